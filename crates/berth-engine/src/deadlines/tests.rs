//! Deadlines of tenants on a host whose events are made up, judged without a manager.

use std::time::Duration;

use berth_model::deadline::{Risk, Spread, Tally};
use berth_model::event::ContainerFacts;
use berth_model::history::Why;
use berth_model::{
    Event, GpuIndex, GpuInfo, GpuReading, GpuSample, GpuUuid, Moment, Monitor, ProcessFacts, Runtime, Sample, Settings,
    Stop,
};
use berth_store::history::History;
use jiff::Timestamp;

use super::*;
use crate::manage::{Annals, open_annals};

const BOOT: &str = "4f0c";

/// A daemon, and what a container of one process does by its clock.
struct Host {
    monitor: Monitor,
    deadlines: Deadlines,
    pulse: Pulse,
    labels: BTreeMap<String, String>,
    now: u64,
    /// How far the wall clock has been set, in seconds.
    jumped: i64,
    shown: Snapshot,
    changes: Vec<Change>,
}

fn at(millis: u64) -> Mono {
    Mono(millis * 1_000_000)
}

fn id() -> ContainerId {
    ContainerId("4e3c1c4b8f0a".into())
}

fn tenant() -> TenantKey {
    TenantKey::Container { runtime: Runtime::Docker, id: id() }
}

fn process(pid: u32) -> ProcKey {
    ProcKey { pid, start_ticks: 1 }
}

fn labelled(labels: &[(&str, &str)]) -> Host {
    ruled(labels, settings::Deadlines::default())
}

fn ruled(labels: &[(&str, &str)], rules: settings::Deadlines) -> Host {
    let mut monitor = Monitor::new(settings::Monitor::default());
    let (uuid, name) = (GpuUuid("GPU-0".into()), "a GPU".to_owned());
    monitor.apply(Event::Gpus(vec![GpuInfo { index: GpuIndex(0), uuid, name, memory_total: None, mig: None }]));
    let shown = monitor.snapshot(&Anchor { mono: Mono(0), wall: Timestamp::UNIX_EPOCH });
    Host {
        monitor,
        deadlines: Deadlines::new(rules),
        pulse: Pulse::Loads,
        labels: labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        now: 1_000,
        jumped: 0,
        shown,
        changes: Vec::new(),
    }
}

impl Host {
    fn anchor(&self) -> Anchor {
        let wall = Timestamp::from_second(100_000 + self.jumped).unwrap() + Duration::from_millis(self.now);
        Anchor { mono: at(self.now), wall }
    }

    /// One turn of the loop after these events, and another when it asked for one.
    fn turn(&mut self, events: Vec<Event>) {
        let changes: Vec<Change> = events.into_iter().flat_map(|event| self.monitor.apply(event)).collect();
        let now = self.anchor();
        let mut snapshot = self.monitor.snapshot(&now);
        snapshot.counters.samples = 1;
        let (monitor, pulse) = (&self.monitor, &self.pulse);
        let scene = Scene {
            snapshot: &snapshot,
            labels: &|tenant| monitor.labels_of(tenant),
            owners: &|row| row.owner.iter().cloned().collect(),
            pulse: &|_| pulse.clone(),
            processes: &|tenant| monitor.processes_of(tenant),
            now: &now,
        };
        self.deadlines.attend(&scene, &changes);
        self.changes.extend(self.deadlines.show(&mut snapshot, &now));
        self.deadlines.tasks().into_iter().for_each(|judgement| self.monitor.judged(judgement));
        self.shown = snapshot;
    }

    /// The container's process comes, with a context.
    fn comes(&mut self, pid: u32) {
        self.opens(pid);
        self.turn(vec![Event::Moment { process: process(pid), moment: Moment::ContextReady, at: at(self.now) }]);
    }

    /// The same, without one yet.
    fn opens(&mut self, pid: u32) {
        let facts = ProcessFacts {
            process: process(pid),
            tenant: tenant(),
            uid: Some(1000),
            user: Some("ada".into()),
            command: "python train.py".into(),
            started: None,
        };
        let container = ContainerFacts {
            id: id(),
            name: "trainer".into(),
            image: "pytorch:2".into(),
            labels: self.labels.clone(),
            owner: None,
            started_at: None,
            health: None,
            endurance: None,
            stop: Stop::default(),
        };
        let open = Event::Moment { process: process(pid), moment: Moment::DeviceOpen, at: at(self.now) };
        self.turn(vec![Event::Process(facts), open, Event::Container(Box::new(container))]);
    }

    fn does(&mut self, millis: u64, pulse: Pulse) {
        self.now = millis;
        self.pulse = pulse;
        self.turn(Vec::new());
    }

    fn computes(&mut self, millis: u64) {
        self.does(millis, Pulse::Computes { since: at(millis), crowd: 1 });
    }

    fn leaves(&mut self, millis: u64, pid: u32) {
        self.now = millis;
        self.turn(vec![Event::ProcessExited { process: process(pid), at: at(millis) }]);
    }

    fn row(&self) -> &DeadlineRow {
        self.shown.tasks[0].deadline.as_ref().expect("it has a deadline")
    }

    fn work(&self) -> &WorkRow {
        self.row().work.as_ref().expect("it is at work")
    }

    fn told(&self, kind: &str) -> Vec<&Change> {
        self.changes.iter().filter(|change| change.kind() == kind).collect()
    }
}

/// One task of the container that computes for as long as it stays.
fn one_task(host: &mut Host, from: u64, until: u64, pid: u32) {
    host.now = from;
    host.pulse = Pulse::Loads;
    host.comes(pid);
    host.computes(from);
    host.leaves(until, pid);
}

#[test]
fn a_container_s_deadline_is_shown_with_its_float_and_judged_at_its_end() {
    let mut host = labelled(&[("berth.deadline", "9")]);
    host.comes(1);
    host.computes(2_000);
    host.computes(4_000);
    let row = host.row();
    assert_eq!((row.deadline.to_string(), row.origin, row.unit), ("9s".into(), Origin::Label, Unit::Task));
    assert_eq!((host.work().float_seconds, host.work().risk), (6.0, Risk::Safe));
    host.leaves(5_500, 1);
    let [Change::UnitJudged { verdict, float_nanos, .. }] = host.told("unit_judged")[..] else {
        panic!("{:?}", host.changes)
    };
    assert_eq!((*verdict, *float_nanos), (Verdict::Hit, Some(4_500_000_000)));
    let judgement = host.shown.ended[0].judgement.as_ref().unwrap();
    assert_eq!((judgement.deadline_hit, judgement.active_seconds), (Some(true), Some(3.5)));
    assert_eq!(host.shown.deadlines.tallies[0].owner.as_deref(), Some("ada"));
}

#[test]
fn the_policy_is_told_when_its_work_is_due_and_what_the_like_took() {
    let mut host = labelled(&[("berth.deadline", "9")]);
    for (from, until) in [(10_000, 12_000), (20_000, 24_000), (30_000, 33_000)] {
        one_task(&mut host, from, until, 1);
    }
    host.now = 40_000;
    host.pulse = Pulse::Loads;
    host.comes(1);
    host.computes(41_000);
    host.computes(42_000);
    let work = host.deadlines.work(&tenant(), at(42_000)).unwrap();
    assert_eq!((work.due, work.done), (at(49_000), Duration::from_secs(1)));
    let takes = Spread { units: 3, median_seconds: 3.0, p90_seconds: 4.0, most_seconds: 4.0 };
    assert_eq!(work.takes, Some(takes));
    assert_eq!(host.work().expected_float_seconds, Some(5.0));
    assert_eq!(host.row().tally, Tally { hits: 3, ..Tally::default() });
}

#[test]
fn it_is_told_once_and_before_it_happens_that_a_deadline_will_be_missed() {
    let mut host = labelled(&[("berth.deadline", "9")]);
    one_task(&mut host, 10_000, 18_000, 1);
    host.now = 20_000;
    host.pulse = Pulse::Loads;
    host.comes(1);
    host.does(24_000, Pulse::Waits { since: Some(at(24_000)), behind: Some("b".into()) });
    host.does(26_000, Pulse::Waits { since: Some(at(24_000)), behind: Some("b".into()) });
    let [Change::DeadlineEndangered { due, at: told, .. }] = host.told("deadline_endangered")[..] else {
        panic!("{:?}", host.changes)
    };
    assert!(*told < *due);
    host.computes(27_000);
    host.leaves(35_000, 1);
    assert_eq!((host.told("deadline_endangered").len(), host.shown.deadlines.warnings), (1, 1));
    let why = host.shown.ended[0].judgement.as_ref().unwrap().why.clone();
    assert_eq!(why, Some(Why::OffGpu), "it stood for three seconds and was late by six, four of which it loaded");
}

#[test]
fn a_wall_clock_that_is_set_changes_no_verdict() {
    for jump in [-86_400, 86_400] {
        let mut host = labelled(&[("berth.deadline", "9")]);
        host.comes(1);
        host.computes(2_000);
        host.jumped = jump;
        host.computes(4_000);
        assert_eq!(host.work().float_seconds, 6.0);
        host.leaves(9_999, 1);
        let [Change::UnitJudged { verdict, float_nanos, .. }] = host.told("unit_judged")[..] else {
            panic!("{:?}", host.changes)
        };
        assert_eq!((*verdict, *float_nanos), (Verdict::Hit, Some(1_000_000)));
        let judgement = host.shown.ended[0].judgement.as_ref().unwrap();
        assert_eq!(judgement.due_at.duration_since(judgement.started_at).as_secs(), 9);
    }
}

#[test]
fn a_label_of_stock_docker_counts_and_what_the_bounds_change_is_told() {
    let bounds = vec!["everybody 5s..".parse().unwrap()];
    let mut host = ruled(&[("2", "")], settings::Deadlines { bounds, ..settings::Deadlines::default() });
    host.comes(1);
    host.computes(2_000);
    let row = host.row();
    assert_eq!((row.deadline.to_string(), row.origin), ("5s".into(), Origin::StockLabel));
    assert_eq!(
        (row.asked.map(|asked| asked.to_string()), row.bound.as_deref()),
        (Some("2s".into()), Some("everybody 5s.."))
    );
    assert_eq!(host.told("deadline_out_of_bounds").len(), 1);
}

#[test]
fn what_is_new_about_a_deadline_is_told_once_however_long_its_task_does_not_begin() {
    let bounds = vec!["everybody 5s..".parse().unwrap()];
    let mut host = ruled(&[("2", "")], settings::Deadlines { bounds, ..settings::Deadlines::default() });
    host.opens(1);
    for _ in 0..10 {
        host.turn(Vec::new());
    }
    assert_eq!(host.told("deadline_out_of_bounds").len(), 1);
    host.comes(1);
    host.leaves(3_000, 1);
    host.now = 4_000;
    host.comes(2);
    assert_eq!(host.told("deadline_out_of_bounds").len(), 1, "nor when it comes back");
}

#[test]
fn a_task_that_came_and_went_between_two_turns_is_judged() {
    let mut host = labelled(&[("berth.deadline", "9")]);
    one_task(&mut host, 10_000, 11_000, 1);
    host.changes.clear();
    host.now = 30_000;
    let moment = |moment, millis| Event::Moment { process: process(2), moment, at: at(millis) };
    let facts = ProcessFacts {
        process: process(2),
        tenant: tenant(),
        uid: Some(1000),
        user: Some("ada".into()),
        command: "python train.py".into(),
        started: None,
    };
    let (open, ready) = (moment(Moment::DeviceOpen, 20_000), moment(Moment::ContextReady, 20_000));
    host.turn(vec![Event::Process(facts), open, ready, Event::ProcessExited { process: process(2), at: at(30_000) }]);
    let [Change::UnitJudged { verdict: Verdict::Miss, float_nanos, .. }] = host.told("unit_judged")[..] else {
        panic!("{:?}", host.changes)
    };
    assert_eq!(*float_nanos, Some(-1_000_000_000));
}

#[test]
fn an_idle_server_is_at_no_work_and_is_judged_by_its_next_burst() {
    let mut host = labelled(&[("berth.deadline", "2")]);
    host.comes(1);
    host.computes(5_000);
    host.does(6_000, Pulse::Quiet { since: at(6_000) });
    host.does(20_000, Pulse::Quiet { since: at(6_000) });
    assert_eq!((host.row().work.as_ref(), host.deadlines.work(&tenant(), at(20_000))), (None, None));
    host.computes(30_000);
    assert_eq!((host.row().unit, host.work().float_seconds), (Unit::Burst, 2.0));
    assert_eq!(host.row().tally, Tally { hits: 1, ..Tally::default() });
}

/// A daemon on the history in `settings`, which begins with what is left there.
fn daemon(host: &mut Host, settings: &Settings, boot: &str) -> (Annals, Option<History>) {
    let mut deadlines = Deadlines::new(settings::Deadlines::default());
    let (annals, history) = open_annals(settings, |record| deadlines.recall(record), &host.anchor());
    let left = history.as_ref().map(|history| history.left_units.clone()).unwrap_or_default();
    deadlines.resume(annals.writer(), left, Some(boot));
    host.deadlines = deadlines;
    host.monitor = labelled(&[]).monitor;
    (annals, history)
}

/// What is under way goes on record.
fn keep_open(host: &Host, annals: &mut Annals) {
    let now = host.anchor();
    let left = |tenant: &TenantKey| Some(LeftOpen { boot: BOOT.into(), left: host.deadlines.open(tenant, now.mono)? });
    annals.keep_open(&host.shown, &left, &now);
}

fn leave(host: &Host, settings: &Settings) {
    let (mut annals, history) = open_annals(settings, |_| (), &host.anchor());
    keep_open(host, &mut annals);
    drop(annals);
    drop(history);
}

#[test]
fn the_next_daemon_goes_on_with_the_unit_of_a_task_that_goes_on() {
    for (pid, boot, verdict) in
        [(1, BOOT, Verdict::Miss), (2, BOOT, Verdict::Unknown), (1, "another", Verdict::Unknown)]
    {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.history.dir = home.path().join("history");
        // Before the daemon, which writes in it: gone after it.
        let _history;
        let mut host = labelled(&[("berth.deadline", "9")]);
        host.comes(1);
        host.computes(2_000);
        leave(&host, &settings);
        host.now = 60_000;
        _history = daemon(&mut host, &settings, boot);
        host.changes.clear();
        host.comes(pid);
        if verdict == Verdict::Miss {
            assert_eq!(host.work().float_seconds, -50.0, "due nine seconds after its start");
            host.leaves(61_000, pid);
        }
        let told = host.told("unit_judged");
        let [Change::UnitJudged { verdict: judged, name, .. }] = told[..] else { panic!("{pid} {boot} {told:?}") };
        assert_eq!((*judged, name.as_str()), (verdict, "trainer"), "{pid} {boot}");
    }
}

#[test]
fn those_of_the_daemon_before_are_looked_for_while_every_gpu_is_lost_and_not_for_ever() {
    for comes_back in [true, false] {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.history.dir = home.path().join("history");
        // Before the daemon, which writes in it: gone after it.
        let _history;
        let mut host = labelled(&[("berth.deadline", "2m")]);
        host.comes(1);
        host.computes(2_000);
        leave(&host, &settings);
        host.now = 10_000;
        _history = daemon(&mut host, &settings, BOOT);
        let reading = GpuReading::Lost { reason: "GPU is lost".into() };
        let gpus = vec![GpuSample { index: GpuIndex(0), reading }];
        host.turn(vec![Event::Sample(Sample { at: at(10_000), gpus, ..Sample::default() })]);
        assert_eq!(host.deadlines.again_at(at(10_000)), Some(at(10_000) + LOOKED_FOR));
        assert!(host.told("unit_judged").is_empty());
        if comes_back {
            host.now = 11_000;
            host.comes(1);
            assert_eq!(host.work().float_seconds, 110.0, "it goes on");
        } else {
            host.does(40_000, Pulse::Unknown);
            assert_eq!(host.told("unit_judged").len(), 1);
        }
    }
}

#[test]
fn a_label_that_is_not_understood_is_told_to_who_asks_for_one_and_for_everybody() {
    for (labels, is_told) in [(&[("berth.deadline", "abc")][..], true), (&[("9", ""), ("10", "")], true), (&[], false)]
    {
        let mut host = labelled(labels);
        host.comes(1);
        let monitor = &host.monitor;
        let stage = Stage {
            snapshot: &host.shown,
            labels: &|tenant| monitor.labels_of(tenant),
            uids: &|_| Vec::new(),
            describe: &|_| false,
            edf: &settings::EdfSettings::default(),
            now: &host.anchor(),
        };
        let everybody = host.deadlines.standings(&stage);
        let told: Vec<_> = everybody.iter().map(|one| (one.counts.is_none(), one.unread_labels.len())).collect();
        assert_eq!(told, vec![(true, 1); usize::from(is_told)], "{labels:?}");
    }
}

/// Requests of 100 ms, twice a second.
fn serves(host: &mut Host, from: u64, count: u64) {
    for request in 0..count {
        let begin = from + request * 500;
        host.computes(begin);
        host.does(begin + 100, Pulse::Quiet { since: at(begin + 100) });
        host.does(begin + 350, Pulse::Quiet { since: at(begin + 100) });
    }
}

#[test]
fn bursts_that_come_too_fast_to_be_written_down_each_are_counted_when_the_daemon_stops_or_is_killed() {
    for is_killed in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        settings.history.dir = home.path().join("history");
        let mut host = labelled(&[("berth.deadline", "9"), ("berth.unit", "burst")]);
        let history = daemon(&mut host, &settings, BOOT);
        host.comes(1);
        serves(&mut host, 10_000, 6);
        assert_eq!(host.row().tally, Tally { hits: 6, ..Tally::default() });
        let now = host.anchor();
        if !is_killed {
            host.deadlines.flush();
        }
        host.deadlines = Deadlines::new(settings::Deadlines::default());
        drop(history);
        let mut recalled = Deadlines::new(settings::Deadlines::default());
        drop(open_annals(&settings, |record| recalled.recall(record), &now));
        let (tally, _) = recalled.totals.of(&tenant());
        let lost = if is_killed { 1 } else { 0 };
        assert_eq!(tally.hits, 6 - lost, "those of the last second are lost with a kill");
    }
}

#[test]
fn a_burst_that_was_counted_with_one_that_was_late_is_not_lost_as_well_when_the_daemon_is_killed() {
    let home = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.history.dir = home.path().join("history");
    // Before the daemon, which writes in it: gone after it.
    let _next;
    let mut host = labelled(&[("berth.deadline", "200ms"), ("berth.unit", "burst")]);
    let (mut annals, history) = daemon(&mut host, &settings, BOOT);
    host.comes(1);
    serves(&mut host, 10_000, 1);
    host.computes(10_400);
    host.does(10_800, Pulse::Quiet { since: at(10_800) });
    host.does(11_050, Pulse::Quiet { since: at(10_800) });
    host.computes(11_100);
    keep_open(&host, &mut annals);
    host.does(11_200, Pulse::Quiet { since: at(11_200) });
    host.does(11_450, Pulse::Quiet { since: at(11_200) });
    let all = Tally { hits: 2, misses: 1, unknown: 0 };
    assert_eq!(host.row().tally, all);
    // Killed.
    host.deadlines = Deadlines::new(settings::Deadlines::default());
    drop(annals);
    drop(history);
    host.now = 20_000;
    _next = daemon(&mut host, &settings, BOOT);
    host.comes(1);
    assert_eq!(host.row().tally, all);
}

#[test]
fn a_unit_of_an_earlier_boot_is_given_up_once_and_began_when_it_did() {
    let home = tempfile::tempdir().unwrap();
    let mut settings = Settings::default();
    settings.history.dir = home.path().join("history");
    let mut host = labelled(&[("berth.deadline", "9")]);
    host.now = 500_000;
    host.comes(1);
    host.computes(501_000);
    let began = host.work().started_at;
    leave(&host, &settings);
    // The clock of this boot is behind that of the one before. Each daemon is killed before it has put anything else on record.
    host.jumped = 1_000;
    for _ in 0..2 {
        host.now = 1_000;
        let writing = daemon(&mut host, &settings, "another");
        host.turn(Vec::new());
        host.deadlines = Deadlines::new(settings::Deadlines::default());
        drop(writing);
    }
    let mut told = Vec::new();
    drop(open_annals(&settings, |record| told.push(record.what.clone()), &host.anchor()));
    let judged = told.into_iter().filter_map(|what| if let Happening::Judged(it) = what { Some(it) } else { None });
    let starts: Vec<Timestamp> = judged.map(|judgement| judgement.started_at).collect();
    assert_eq!(starts, [began]);
}
