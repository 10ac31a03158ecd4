//! Units of one tenant, and of several, from what they do.

use proptest::prelude::*;

use super::*;
use crate::deadline::Origin;

const TENANT: TenantKey = TenantKey::User { uid: 1 };

fn at(millis: u64) -> Mono {
    Mono(millis * 1_000_000)
}

fn terms(unit: UnitRule, deadline: &str) -> Terms {
    Terms { deadline: deadline.parse().unwrap(), origin: Origin::Label, asked: None, unit }
}

fn processes(pids: &[u32]) -> BTreeSet<ProcKey> {
    pids.iter().map(|pid| ProcKey { pid: *pid, start_ticks: 1 }).collect()
}

fn computes(since: u64) -> Pulse {
    Pulse::Computes { since: at(since), crowd: 1 }
}

fn quiet(since: u64) -> Pulse {
    Pulse::Quiet { since: at(since) }
}

fn waits(since: u64, behind: &str) -> Pulse {
    Pulse::Waits { since: Some(at(since)), behind: Some(behind.to_owned()) }
}

/// A judge and one tenant in a task that began at 0.
struct Bench {
    judge: Judge,
    unit: UnitRule,
    terms: Option<Terms>,
    evidence: Evidence,
    judged: Vec<Judged>,
}

impl Bench {
    fn new(unit: UnitRule, deadline: &str) -> Self {
        let terms = Some(terms(unit, deadline));
        Self { judge: Judge::new(Deadlines::default()), unit, terms, evidence: Evidence::Probe, judged: Vec::new() }
    }

    fn sit(&mut self, millis: u64, pulse: Pulse) -> &mut Self {
        let terms = self.terms.as_ref();
        let sitting = Sitting {
            tenant: &TENANT,
            task: TaskId(1),
            task_started: at(0),
            evidence: self.evidence,
            processes: processes(&[1]),
            unit: self.unit,
            terms,
            pulse,
        };
        let judged = self.judge.sit(sitting, at(millis));
        self.judged.extend(judged);
        self
    }

    fn end(&mut self, millis: u64) -> &mut Self {
        let judged = self.judge.task_ended(&TENANT, at(millis));
        self.judged.extend(judged);
        self
    }

    /// Unit, start and end in milliseconds, float in seconds.
    fn told(&self) -> Vec<(Unit, u64, u64, f64)> {
        let millis = |instant: Mono| instant.0 / 1_000_000;
        let each = |judged: &Judged| {
            let float = (judged.float_seconds.unwrap_or(f64::NAN) * 1e3).round() / 1e3;
            (judged.unit, millis(judged.started), judged.ended.map_or(0, millis), float)
        };
        self.judged.iter().map(each).collect()
    }
}

#[test]
fn a_task_is_judged_from_its_start_to_its_end() {
    let mut bench = Bench::new(UnitRule::Auto, "9s");
    bench.sit(0, Pulse::Loads).sit(1_000, computes(1_000)).sit(4_000, quiet(4_000)).end(5_000);
    assert_eq!(bench.told(), [(Unit::Task, 0, 5_000, 4.0)]);
    let judged = &bench.judged[0];
    assert_eq!((judged.active_seconds, judged.held_seconds, &judged.why), (Some(3.0), 0.0, &None));
}

#[test]
fn a_server_is_judged_by_each_burst_and_its_loading_counts_for_nothing() {
    let mut bench = Bench::new(UnitRule::Auto, "2s");
    bench.sit(0, Pulse::Loads).sit(10_000, computes(10_000)).sit(11_000, quiet(11_000));
    assert!(bench.judged.is_empty(), "it may be leaving");
    bench.sit(20_000, computes(20_000));
    assert_eq!(bench.told(), [(Unit::Burst, 10_000, 11_000, 1.0)]);
    assert_eq!(bench.judge.unit(&TENANT), Some(Unit::Burst));
    bench
        .sit(22_500, quiet(22_500))
        .sit(22_600, computes(22_600))
        .sit(23_000, quiet(23_000))
        .sit(23_200, quiet(23_000));
    assert_eq!(bench.told()[1..], [(Unit::Burst, 20_000, 23_000, -1.0)], "a short pause does not end a burst");
    bench.sit(60_000, quiet(23_000)).end(70_000);
    assert_eq!(bench.judged.len(), 2, "idle is no unit");
    assert_eq!(bench.judge.work(&TENANT), None);
}

#[test]
fn what_a_process_did_in_its_last_task_is_not_of_this_one() {
    let mut bench = Bench::new(UnitRule::Auto, "9s");
    bench.judge.task_ended(&TENANT, at(0));
    let sitting = |pulse| Sitting {
        tenant: &TENANT,
        task: TaskId(2),
        task_started: at(20_000),
        evidence: Evidence::Probe,
        processes: processes(&[1]),
        unit: bench.unit,
        terms: bench.terms.as_ref(),
        pulse,
    };
    for (millis, pulse) in [(20_000, computes(20_000)), (20_010, quiet(9_000)), (20_020, computes(20_020))] {
        assert_eq!(bench.judge.sit(sitting(pulse), at(millis)), None);
    }
    assert_eq!(bench.judge.unit(&TENANT), Some(Unit::Task));
}

#[test]
fn a_task_that_idles_before_it_leaves_is_a_task() {
    let mut bench = Bench::new(UnitRule::Auto, "2s");
    bench.sit(0, computes(0)).sit(1_000, quiet(1_000)).sit(30_000, quiet(1_000)).end(31_000);
    assert_eq!(bench.told(), [(Unit::Task, 0, 31_000, -29.0)]);
    assert_eq!(bench.judged[0].why, Some(Why::OffGpu));
}

#[test]
fn a_label_decides_before_anything_was_seen() {
    let mut task = Bench::new(UnitRule::Task, "30s");
    task.sit(0, computes(0)).sit(1_000, quiet(1_000)).sit(20_000, computes(20_000)).end(21_000);
    assert_eq!(task.told(), [(Unit::Task, 0, 21_000, 9.0)]);
    let mut burst = Bench::new(UnitRule::Burst, "2s");
    burst.sit(0, Pulse::Loads).sit(5_000, computes(5_000)).sit(6_000, quiet(6_000)).end(6_100);
    assert_eq!(burst.told(), [(Unit::Burst, 5_000, 6_000, 1.0)], "what it did last counts, not when it left");
}

#[test]
fn a_label_that_is_told_late_counts_from_the_start() {
    let mut bench = Bench::new(UnitRule::Burst, "2s");
    let terms = bench.terms.take();
    bench.sit(0, Pulse::Loads).sit(100, computes(100));
    bench.terms = terms;
    bench.sit(200, computes(100)).sit(1_000, quiet(1_000)).sit(1_300, quiet(1_000));
    assert_eq!(bench.told(), [(Unit::Burst, 100, 1_000, 1.1)]);
}

#[test]
fn a_deadline_that_is_set_or_changed_in_between_counts_from_the_start_and_without_one_nothing_is_judged() {
    let mut bench = Bench::new(UnitRule::Auto, "1s");
    bench.sit(0, computes(0));
    bench.terms = Some(terms(UnitRule::Auto, "5s"));
    bench.sit(2_000, computes(0)).end(4_000);
    assert_eq!(bench.told(), [(Unit::Task, 0, 4_000, 1.0)]);
    let mut none = Bench { terms: None, ..Bench::new(UnitRule::Auto, "1s") };
    none.sit(0, computes(0)).end(9_000);
    assert!(none.judged.is_empty());
}

#[test]
fn a_server_that_gets_its_deadline_later_is_judged_by_its_next_burst() {
    for rule in [UnitRule::Auto, UnitRule::Burst] {
        let mut bench = Bench::new(rule, "2s");
        let terms = bench.terms.take();
        for minute in 0..60 {
            bench.sit(minute * 60_000, computes(minute * 60_000));
            bench.sit(minute * 60_000 + 1_000, quiet(minute * 60_000 + 1_000));
        }
        bench.terms = terms.clone();
        bench.sit(3_590_000, quiet(3_541_000)).sit(3_600_000, computes(3_600_000)).sit(3_601_000, quiet(3_601_000));
        bench.sit(3_602_000, quiet(3_601_000));
        assert_eq!(bench.told(), [(Unit::Burst, 3_600_000, 3_601_000, 1.0)], "{rule:?}");
        bench.terms = None;
        bench.sit(3_700_000, computes(3_700_000)).sit(3_709_000, quiet(3_709_000)).sit(3_720_000, quiet(3_709_000));
        bench.terms = terms;
        bench.sit(3_730_000, quiet(3_709_000)).end(3_740_000);
        assert_eq!(bench.judged.len(), 1, "what it did without one is nobody's business");
    }
}

#[test]
fn why_it_was_late_is_the_first_thing_without_which_it_would_not_have_been() {
    let why = |course: &[(u64, Pulse)], end: u64| {
        let mut bench = Bench::new(UnitRule::Task, "5s");
        for (millis, pulse) in course {
            bench.sit(*millis, pulse.clone());
        }
        bench.end(end).judged[0].why.clone()
    };
    assert_eq!(why(&[(0, computes(0))], 6_000), Some(Why::TooShort));
    let held = [(0, waits(0, "a")), (1_000, waits(0, "b")), (4_000, computes(4_000))];
    assert_eq!(why(&held, 7_000), Some(Why::Held { behind: Some("b".into()) }));
    let beside = Pulse::Computes { since: at(0), crowd: 2 };
    assert_eq!(why(&[(0, beside.clone())], 8_000), Some(Why::Contended));
    assert_eq!(why(&[(0, waits(0, "a")), (1_000, beside)], 7_000), Some(Why::Contended), "both together");
    assert_eq!(why(&[(0, Pulse::Loads), (4_000, computes(4_000))], 7_000), Some(Why::OffGpu));
    assert_eq!(why(&[(0, Pulse::Unknown)], 7_000), None);
    assert_eq!(why(&[(0, computes(0))], 5_000), None, "it was not late");
}

#[test]
fn of_one_that_was_there_before_anybody_looked_only_a_hit_is_known() {
    for (end, verdict) in [(5_000, Verdict::Hit), (10_000, Verdict::Unknown)] {
        let mut bench = Bench { evidence: Evidence::Process, ..Bench::new(UnitRule::Task, "9s") };
        bench.sit(4_000, computes(4_000)).end(end);
        assert_eq!(Verdict::of(bench.judged[0].float_seconds), verdict);
    }
}

#[test]
fn what_was_mostly_not_seen_is_not_said_to_have_computed() {
    let mut bench = Bench::new(UnitRule::Task, "9s");
    bench.sit(0, Pulse::Unknown).sit(3_000, computes(3_000)).end(5_000);
    assert_eq!(bench.judged[0].active_seconds, None);
    let mut bench = Bench::new(UnitRule::Task, "9s");
    bench.sit(0, Pulse::Unknown).sit(1_000, computes(1_000)).sit(5_000, waits(5_000, "a")).end(9_000);
    assert_eq!(bench.judged[0].active_seconds, Some(5.0), "as the rest");
}

/// What the daemon before wrote down of it, at that time.
fn left(judge: &Judge, millis: u64) -> Left {
    let written = serde_json::to_string(&judge.open(&TENANT, at(millis)).unwrap()).unwrap();
    serde_json::from_str(&written).unwrap()
}

/// A daemon that finds the tenant, with this process, at 50 s.
fn next_daemon(left: Left, pid: u32) -> Judge {
    let mut judge = Judge::new(Deadlines::default());
    judge.recall(TENANT, left);
    let terms = terms(UnitRule::Auto, "9s");
    let sitting = Sitting {
        tenant: &TENANT,
        task: TaskId(1),
        task_started: at(50_000),
        evidence: Evidence::Look,
        processes: processes(&[pid]),
        unit: terms.unit,
        terms: Some(&terms),
        pulse: computes(50_000),
    };
    assert_eq!(judge.sit(sitting, at(50_000)), None);
    judge
}

#[test]
fn a_task_goes_on_with_the_next_daemon_if_its_processes_do() {
    let mut before = Bench::new(UnitRule::Task, "9s");
    before.sit(1_000, waits(1_000, "a")).sit(3_000, computes(3_000));
    for (pid, started, lost) in [(1, 0, 0), (2, 50_000, 1)] {
        let mut after = next_daemon(left(&before.judge, 3_000), pid);
        assert_eq!(after.work(&TENANT).map(|work| work.started), Some(at(started)), "pid {pid}");
        assert_eq!(after.lost(|_| false).len(), lost);
    }
    let judged = next_daemon(left(&before.judge, 3_000), 1).task_ended(&TENANT, at(60_000)).unwrap();
    assert_eq!((judged.float_seconds, judged.active_seconds), (Some(-51.0), None), "nobody saw what it did meanwhile");
}

#[test]
fn a_burst_of_an_earlier_daemon_is_not_taken_to_go_on() {
    let mut before = Bench::new(UnitRule::Burst, "9s");
    before.sit(1_000, computes(1_000));
    let mut after = next_daemon(left(&before.judge, 1_000), 1);
    assert_eq!((after.work(&TENANT).map(|work| work.started), after.lost(|_| false).len()), (Some(at(50_000)), 1));
}

#[test]
fn one_that_serves_still_does_with_the_next_daemon() {
    let mut before = Bench::new(UnitRule::Auto, "2s");
    before.sit(0, computes(0)).sit(1_000, quiet(1_000)).sit(10_000, computes(10_000)).sit(11_000, quiet(11_000));
    before.sit(12_000, quiet(11_000));
    let left = left(&before.judge, 12_000);
    assert_eq!((left.serves, &left.open), (true, &None));
    let mut after = Judge::new(Deadlines::default());
    after.recall(TENANT, left);
    let terms = terms(UnitRule::Auto, "2s");
    let sitting = Sitting {
        tenant: &TENANT,
        task: TaskId(1),
        task_started: at(0),
        evidence: Evidence::Process,
        processes: processes(&[1]),
        unit: terms.unit,
        terms: Some(&terms),
        pulse: Pulse::Unknown,
    };
    assert_eq!(after.sit(sitting, at(50_000)), None);
    assert_eq!((after.unit(&TENANT), after.work(&TENANT), after.lost(|_| false).len()), (Some(Unit::Burst), None, 0));
}

#[test]
fn a_pause_in_which_the_daemon_was_killed_does_not_make_a_server_of_a_task() {
    let mut before = Bench::new(UnitRule::Auto, "9s");
    before.sit(1_000, computes(1_000)).sit(2_000, quiet(2_000));
    let after = next_daemon(left(&before.judge, 2_001), 1);
    assert_eq!((after.unit(&TENANT), after.work(&TENANT).map(|work| work.started)), (Some(Unit::Task), Some(at(0))));
}

#[test]
fn of_a_burst_under_way_when_a_deadline_is_set_nothing_is_said_and_the_next_is_judged() {
    let mut bench = Bench::new(UnitRule::Burst, "2s");
    let terms = bench.terms.take();
    bench.sit(0, Pulse::Loads).sit(10_000, computes(10_000));
    bench.terms = terms;
    bench
        .sit(19_000, computes(19_000))
        .sit(20_000, computes(19_000))
        .sit(21_000, quiet(21_000))
        .sit(22_000, quiet(21_000));
    assert!(bench.judged.is_empty());
    bench.sit(30_000, computes(30_000)).sit(31_000, quiet(31_000)).sit(32_000, quiet(31_000));
    assert_eq!(bench.told(), [(Unit::Burst, 30_000, 31_000, 1.0)]);
}

#[test]
fn a_burst_ends_no_sooner_than_it_was_last_seen_to_go_on_though_who_computed_has_left() {
    for others in [quiet(100), Pulse::Loads] {
        let mut bench = Bench::new(UnitRule::Burst, "2s");
        bench
            .sit(5_000, computes(5_000))
            .sit(8_000, computes(5_000))
            .sit(8_100, others.clone())
            .sit(9_000, others.clone());
        assert_eq!(bench.told(), [(Unit::Burst, 5_000, 8_000, -1.0)], "{others:?}");
    }
}

#[test]
fn a_unit_nobody_comes_back_for_has_no_verdict() {
    let mut before = Bench::new(UnitRule::Task, "9s");
    before.sit(1_000, computes(1_000));
    let Left { open, deadline, .. } = left(&before.judge, 1_000);
    let judged = open.unwrap().judged(&TENANT, TaskId(1), deadline.unwrap(), None);
    assert_eq!((judged.float_seconds, judged.active_seconds, judged.why), (None, None, None));
}

proptest! {
    /// Whatever a tenant does, and however late that is told: units of it do not overlap and end after they begin; told in time, they took no
    /// less than what they are said to consist of.
    #[test]
    fn units_follow_each_other(
        rule in prop_oneof![Just(UnitRule::Auto), Just(UnitRule::Task), Just(UnitRule::Burst)],
        course in prop::collection::vec((0..5u8, 1..4_000u64, 1..4u32, prop_oneof![Just(0), 0..9_000u64]), 1..40),
    ) {
        let is_prompt = course.iter().all(|(.., before)| *before == 0);
        let mut bench = Bench::new(rule, "1s");
        let mut now = 0_u64;
        for (kind, millis, crowd, before) in course {
            let since = now.saturating_sub(before);
            let pulse = match kind {
                0 => Pulse::Computes { since: at(since), crowd },
                1 => waits(since, "a"),
                2 => quiet(since),
                3 => Pulse::Loads,
                _ => Pulse::Unknown,
            };
            bench.sit(now, pulse);
            now += millis;
        }
        bench.end(now);
        let mut last = Mono(0);
        for judged in &bench.judged {
            let ended = judged.ended.unwrap();
            prop_assert!(judged.started >= last && ended >= judged.started && ended <= at(now), "{judged:?}");
            let took = ended.since(judged.started).as_secs_f64();
            let spent = judged.active_seconds.unwrap_or(0.0) + judged.held_seconds + judged.contended_seconds;
            prop_assert!(!is_prompt || spent <= took + 1e-6, "{judged:?}");
            let float = judged.float_seconds.unwrap();
            prop_assert!((float - (1.0 - took)).abs() < 1e-6);
            last = ended;
        }
        prop_assert!(rule != UnitRule::Task || bench.judged.len() == 1);
    }
}
