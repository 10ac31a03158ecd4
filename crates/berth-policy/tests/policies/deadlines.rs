//! `edf`: what holds for any tenants with deadlines, and whole traces of the situations it is for.

use berth_model::{Mono, Percent, Span};
use berth_policy::edf::Edf;
use berth_policy::fifo::Fifo;
use berth_policy::{EdfSettings, FifoSettings, Policy, Verdict, View};
use proptest::prelude::*;

use crate::host::{Do, Host, Job, MS, key};
use crate::laws::{Watched, hasty, job, jobs, patient, played, with_bursts};
use crate::units::{Due, computes};

fn edf(turns: FifoSettings) -> Edf {
    Edf::new(turns, EdfSettings { switch: Span::from_millis(0), ..EdfSettings::default() })
}

/// Runs with the numbers of the configuration file.
fn played_on_one(jobs: Vec<Job>, until_ms: u64) -> Host {
    let mut host = Host::new(1, 24_000, jobs);
    host.run(&mut Edf::new(FifoSettings::default(), EdfSettings::default()), until_ms);
    host
}

fn late(host: &Host) -> usize {
    host.beings.iter().map(|being| being.units.late()).sum()
}

/// Context and input, then kernels with nothing between them; the first launch is at 200 ms.
fn task(name: &str, at: u64, kernels: &[u64]) -> Job {
    let mut script = vec![Do::Load(100), Do::Take(800), Do::Load(100)];
    script.extend(kernels.iter().map(|ms| Do::Compute(*ms)));
    Job::new(name, at, &script)
}

// === laws ===

/// Both policies on the same views.
#[derive(Debug)]
struct Same {
    fifo: Fifo,
    edf: Edf,
}

impl Policy for Same {
    fn name(&self) -> &'static str {
        "same"
    }

    fn decide(&mut self, view: &View, now: Mono) -> Verdict {
        let verdict = self.edf.decide(view, now);
        assert_eq!(verdict, self.fifo.decide(view, now), "at {} ms", now.0 / MS);
        verdict
    }
}

/// Deadlines from hopeless to far, of tasks and bursts, well known, badly known and not known.
fn with_deadlines(jobs: impl Strategy<Value = Vec<Job>>) -> impl Strategy<Value = Vec<Job>> {
    (jobs, prop::collection::vec((0_u8..5, 20_u64..20_000), 10)).prop_map(|(jobs, deadlines)| {
        let due = |(job, (kind, within)): (Job, (u8, u64))| match kind {
            0 | 1 => job.due(within),
            2 => job.due_unknown(within),
            3 => job.due_each(within / 4, 300),
            _ => job,
        };
        jobs.into_iter().zip(deadlines).map(due).collect()
    })
}

/// Tasks of one or several kernels, all there from the beginning: kernels, and when it is due after the first can launch.
fn together() -> impl Strategy<Value = Vec<(Vec<u64>, u64)>> {
    let kernels = prop::collection::vec(60_u64..900, 1..4);
    prop::collection::vec((kernels, 50_u64..5_000), 1..7)
}

/// The fewest that are late in any order. Those in time go first, in the order of their deadlines, so all sets of them are tried.
fn fewest_late(tasks: &[(u64, u64)]) -> usize {
    let mut sorted = tasks.to_vec();
    sorted.sort_by_key(|(_, due)| *due);
    let fits = |set: u32| {
        let mut end = 0;
        sorted.iter().enumerate().filter(|(n, _)| set & (1 << n) != 0).all(|(_, (takes, due))| {
            end += takes;
            end <= *due
        })
    };
    let most = (0..1_u32 << tasks.len()).filter(|set| fits(*set)).map(u32::count_ones).max().unwrap_or(0);
    tasks.len() - most as usize
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn without_deadlines_every_decision_is_that_of_fifo(jobs in jobs(job(), 8), delay in 0_u64..30, is_hasty: bool) {
        let settings = if is_hasty { hasty() } else { FifoSettings::default() };
        let mut same = Same { fifo: Fifo::new(settings.clone()), edf: Edf::new(settings, EdfSettings::default()) };
        played(jobs, delay * MS, &mut same);
    }

    #[test]
    fn nobody_waits_longer_than_the_last_resort_and_everyone_ends(jobs in with_deadlines(jobs(job(), 8)), delay in 0_u64..30) {
        let settings = hasty();
        let bound = settings.last_resort.get().as_nanos();
        let mut policy = Watched { policy: edf(settings.clone()), twin: edf(settings) };
        let host = played(jobs, delay * MS, &mut policy);
        for being in &host.beings {
            prop_assert!(being.finished.is_some(), "{} is stuck:\n{}", being.job.name, host.trace);
            let longest = being.waits.iter().copied().max().unwrap_or(0);
            prop_assert!(u128::from(longest) <= bound + u128::from(2 * delay * MS), "{} waited {longest} ns:\n{}", being.job.name, host.trace);
        }
    }

    #[test]
    fn of_those_that_are_not_light_one_computes_at_a_time(jobs in with_deadlines(jobs(with_bursts(500..1_400), 8))) {
        let jobs = jobs.into_iter().map(|job| Job { gang: None, ..job }).collect();
        let host = played(jobs, 0, &mut edf(patient()));
        prop_assert!(host.crowded == 0, "crowded for {} ms:\n{}", host.crowded / MS, host.trace);
        prop_assert!(host.beings.iter().all(|being| being.finished.is_some()), "{}", host.trace);
    }

    #[test]
    fn released_together_and_known_exactly_no_more_are_late_than_must_be(tasks in together()) {
        let jobs = tasks.iter().enumerate().map(|(n, (kernels, due))| task(&format!("job-{n}"), 0, kernels).due(200 + due)).collect();
        let mut host = Host::new(1, 24_000, jobs);
        host.run(&mut edf(FifoSettings::default()), 600_000);
        let solved: Vec<(u64, u64)> = tasks.iter().map(|(kernels, due)| (kernels.iter().sum(), *due)).collect();
        prop_assert!(late(&host) <= fewest_late(&solved), "{} {}\n{}", late(&host), fewest_late(&solved), host.trace);
    }

    /// Those that can all be in time are, whatever hopeless ones and ones without a deadline there are, but for the share of the latter.
    #[test]
    fn who_cannot_be_in_time_makes_nobody_late(
        sizes in prop::collection::vec(60_u64..900, 1..6),
        hopeless in prop::collection::vec((100_u64..3_000, 1_u64..90), 1..5),
    ) {
        let mut end = 200;
        let mut jobs = Vec::new();
        for (n, size) in sizes.iter().enumerate() {
            end += size;
            jobs.push(task(&format!("can-{n}"), 0, &[*size]).due(end + 5));
        }
        for (n, (size, percent)) in hopeless.iter().enumerate() {
            jobs.push(task(&format!("cannot-{n}"), 0, &[*size]).due(200 + size * percent / 100));
        }
        let mut host = Host::new(1, 24_000, jobs);
        host.run(&mut edf(FifoSettings::default()), 600_000);
        let all = host.beings.iter().filter(|being| being.job.name.starts_with("can-"));
        prop_assert_eq!(all.map(|being| being.units.late()).sum::<usize>(), 0, "{}", host.trace);
        prop_assert!(host.beings.iter().all(|being| being.finished.is_some()), "{}", host.trace);
    }

    /// Many deadlines of one owner do not starve those of others that have none: their share comes round.
    #[test]
    fn without_a_deadline_nobody_waits_for_longer_than_its_share_takes_to_come(
        crowd in prop::collection::vec((prop::collection::vec(60_u64..900, 1..12), 500_u64..60_000), 1..6),
        rest in prop::collection::vec(prop::collection::vec(60_u64..900, 1..5), 1..4),
        share in 5_u32..60,
    ) {
        let mut jobs: Vec<Job> = crowd.iter().enumerate().map(|(n, (kernels, due))| task(&format!("due-{n}"), 0, kernels).due(*due)).collect();
        jobs.extend(rest.iter().enumerate().map(|(n, kernels)| task(&format!("rest-{n}"), 50, kernels)));
        let mut host = Host::new(1, 24_000, jobs);
        let rest_share = Percent::checked(share).expect("a share");
        let turns = FifoSettings { last_resort: patient().last_resort, ..hasty() };
        host.run(&mut Edf::new(turns, EdfSettings { rest: rest_share, ..EdfSettings::default() }), 6_000_000);
        let turn = 500 + 900;
        let bound = 1_000 + rest.len() as u64 * turn * (100 + 2 * 100 * 100 / u64::from(share)) / 100;
        for being in &host.beings {
            prop_assert!(being.finished.is_some(), "{} is stuck:\n{}", being.job.name, host.trace);
            let longest = being.waits.iter().copied().max().unwrap_or(0);
            let has_none = being.job.due.is_none();
            prop_assert!(!has_none || longest <= bound * MS, "{} waited {longest} ns, not {bound} ms:\n{}", being.job.name, host.trace);
        }
    }
}

// === traces ===

#[test]
fn a_tight_one_comes_while_a_loose_one_computes() {
    let jobs = vec![task("loose", 0, &[1_000; 6]).due(20_000), task("tight", 1_500, &[1_000]).due(3_000)];
    let host = played_on_one(jobs, 60_000);
    assert_eq!((late(&host), host.crowded), (0, 0), "{}", host.trace);
    insta::assert_snapshot!(host.trace);
}

#[test]
fn one_that_cannot_be_in_time_is_told_so_and_goes_last() {
    let jobs = vec![
        task("hopeless", 0, &[2_000, 2_000]).due(1_500),
        task("first", 0, &[1_000]).due(2_000),
        task("second", 0, &[1_000]).due(3_000),
    ];
    let host = played_on_one(jobs, 60_000);
    assert_eq!((late(&host), host.being("hopeless").units.late()), (1, 1), "{}", host.trace);
    insta::assert_snapshot!(host.trace);
}

#[test]
fn one_without_a_deadline_among_many_that_have_one() {
    let mut jobs: Vec<Job> = (0..6).map(|n| task(&format!("due-{n}"), 0, &[500; 8]).due(60_000 + 1_000 * n)).collect();
    jobs.push(task("none", 0, &[500; 6]));
    let host = played_on_one(jobs, 120_000);
    let ends = host.being("none").finished.unwrap_or(u64::MAX) / MS;
    assert!(ends < 28_000, "a tenth of the time is its own: {ends}\n{}", host.trace);
    assert_eq!((late(&host), host.crowded), (0, 0), "{}", host.trace);
    insta::assert_snapshot!(host.trace);
}

/// Twice as much to do as there is time for: the order of deadlines alone would make all but the first late.
#[test]
fn of_too_many_the_shorter_ones_are_in_time() {
    let job =
        |n: u64| task(&format!("job-{n}"), 0, &[if n.is_multiple_of(2) { 400 } else { 1_200 }]).due(1_000 + 400 * n);
    let host = played_on_one((0..8).map(job).collect(), 60_000);
    assert!(host.beings.iter().filter(|being| being.units.late() == 0).count() >= 5, "{}", host.trace);
    insta::assert_snapshot!(host.trace);
}

#[test]
fn a_server_is_in_time_beside_a_training() {
    let training = task("training", 0, &[50; 400]);
    let rounds = (0..20).flat_map(|_| [Do::Compute(40), Do::Rest(400)]);
    let server = Job::new("server", 500, &[Do::Load(100), Do::Take(800)].into_iter().chain(rounds).collect::<Vec<_>>());
    let host = played_on_one(vec![training, server.due_each(120, 40)], 120_000);
    assert_eq!(host.being("server").units.floats.len(), 20);
    assert_eq!(late(&host), 0, "{:?}\n{}", host.being("server").units.floats, host.trace);
}

/// As much as it is promised, no more and no less, while others want all of the GPU.
#[test]
fn those_without_a_deadline_get_their_share_while_others_have_deadlines_without_end() {
    for share in [10_u32, 30] {
        let mut jobs: Vec<Job> = (0..3).map(|n| task(&format!("due-{n}"), 0, &[100; 400]).due(400_000)).collect();
        jobs.push(task("none", 0, &[100; 400]));
        let mut host = Host::new(1, 24_000, jobs);
        let rest = Percent::checked(share).expect("a share");
        host.run(&mut Edf::new(FifoSettings::default(), EdfSettings { rest, ..EdfSettings::default() }), 100_200);
        let had = host.being("none").computed / MS;
        let promised = u64::from(share) * 1_000;
        assert!(had.abs_diff(promised) <= 300, "{had} ms of {promised}\n{}", host.trace);
    }
}

/// Its requests are of several kernels with a moment between them, in which a step of the training would take longer than there is time.
#[test]
fn one_that_pauses_in_the_middle_of_its_work_keeps_its_turn_if_it_would_be_late() {
    let training = task("training", 0, &[200; 150]);
    let request = [Do::Compute(80), Do::Rest(5), Do::Compute(80), Do::Rest(5), Do::Compute(80), Do::Rest(5)];
    let rounds = (0..10).flat_map(|_| request.into_iter().chain([Do::Rest(900)]));
    let script: Vec<Do> = [Do::Load(100), Do::Take(800)].into_iter().chain(rounds).collect();
    let mut job = Job::new("server", 500, &script).due_each(470, 240);
    job.due = job.due.map(|due| Due { kernels: 3, ..due });
    let host = played_on_one(vec![training, job], 120_000);
    assert_eq!(host.being("server").units.floats.len(), 10);
    assert!(late(&host) <= 1, "only before it is known: {:?}\n{}", host.being("server").units.floats, host.trace);
}

#[test]
fn those_in_line_are_told_when_their_turn_is_expected() {
    let jobs = vec![
        task("now", 0, &[1_000; 3]).due(4_000),
        task("later", 0, &[1_000; 2]).due(9_000),
        task("none", 0, &[1_000]),
    ];
    let host = played_on_one(jobs, 250);
    let told = host.verdict.queue.iter().map(|waiting| (&waiting.tenant, waiting.expected_at.map(|at| at.0 / MS)));
    let expected = [(&key("later"), Some(3_200)), (&key("none"), Some(5_200))];
    assert_eq!(told.collect::<Vec<_>>(), expected, "{}", host.trace);
}

#[test]
fn of_whom_nothing_is_known_the_deadline_alone_says_when_its_turn_is() {
    let jobs = vec![
        task("known", 0, &[300]).due(9_000),
        task("unknown", 0, &[300]).due_unknown(3_000),
        task("none", 0, &[300]),
    ];
    let host = played_on_one(jobs, 60_000);
    let ends = ["unknown", "known", "none"].map(|name| host.finished_ms(name));
    assert_eq!(ends, [Some(500), Some(800), Some(1_100)], "{}", host.trace);
}

/// Over many hosts with tenants that come when they like, `edf` makes fewer late than `fifo`.
#[test]
fn fewer_are_late_than_under_fifo() {
    let mut numbers = 1_u64;
    let mut draw = |below: u64| {
        numbers = numbers.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (numbers >> 33) % below
    };
    let (mut by_edf, mut by_fifo, mut all) = (0, 0, 0);
    for _ in 0..30 {
        let jobs: Vec<Job> = (0..10)
            .map(|n| {
                let kernels: Vec<u64> = (0..=draw(5)).map(|_| 60 + draw(500)).collect();
                let job = task(&format!("job-{n}"), draw(8_000), &kernels);
                let within = 200 + computes(&job.script) * (2 + draw(5));
                job.due(within)
            })
            .collect();
        let run = |policy: &mut dyn Policy| {
            let mut host = Host::new(1, 24_000, jobs.clone());
            host.run(policy, 600_000);
            late(&host)
        };
        by_edf += run(&mut edf(FifoSettings::default()));
        by_fifo += run(&mut Fifo::new(FifoSettings::default()));
        all += jobs.len();
    }
    assert!(by_edf * 2 < by_fifo, "{by_edf} by edf, {by_fifo} by fifo, of {all}");
}

/// A program that was never seen before, ten times: a context, its data, and rounds of a kernel with a moment on the CPU between them. One
/// after the other comes while those before it compute.
fn first_timers(loads_mib: u64, pause_ms: u64) -> Vec<Job> {
    let rounds = (0..4).flat_map(|_| [Do::Compute(330), Do::Rest(pause_ms)]);
    let start = [Do::Take(400), Do::Open(300), Do::Take(loads_mib), Do::Load(20)];
    let script: Vec<Do> = start.into_iter().chain(rounds).collect();
    (0..10).map(|n| Job::new(&format!("job-{n}"), 300 * n, &script).due_unknown(3_000 * (n + 1))).collect()
}

/// Also where all have loaded so little that they might be light, and where a hold comes too late for the launch after a pause.
#[test]
fn those_that_pause_go_one_after_the_other_in_the_order_of_their_deadlines_known_or_not() {
    for (loads_mib, pause_ms, delay_ms) in [(900, 1, 0), (900, 1, 3), (60, 1, 0), (60, 1, 3), (60, 20, 10)] {
        let jobs = first_timers(loads_mib, pause_ms);
        in_order_and_alone(jobs.clone(), delay_ms);
        let known = |(n, job): (u64, Job)| job.due(3_000 * (n + 1));
        in_order_and_alone((0..).zip(jobs).map(known).collect(), delay_ms);
    }
}

fn in_order_and_alone(jobs: Vec<Job>, delay_ms: u64) {
    let mut host = Host::new(1, 24_000, jobs);
    host.delay = delay_ms * MS;
    host.run(&mut Edf::new(FifoSettings::default(), EdfSettings::default()), 60_000);
    assert_eq!((late(&host), host.crowded), (0, 0), "{:?}\n{}", host.being("job-0").job, host.trace);
    let ends = host.beings.iter().map(|being| being.finished);
    assert!(ends.is_sorted(), "{:?}\n{}", host.being("job-0").job, host.trace);
}

/// With pauses shorter than its bursts it keeps its turn over them, so the other stands for at most twice as long as it computes. With
/// longer ones it does so once, until that is known.
#[test]
fn for_one_that_pauses_the_gpu_rests_half_of_the_time_at_most() {
    for ((pause_ms, most_ms), is_known) in [((20, 2 * 900), false), ((60, 900 + 100), false), ((60, 900 + 100), true)] {
        let rounds = (0..30).flat_map(|_| [Do::Compute(30), Do::Rest(pause_ms)]);
        let script: Vec<Do> = [Do::Load(100), Do::Take(800)].into_iter().chain(rounds).collect();
        let pauses = Job::new("pauses", 0, &script);
        let pauses = if is_known { pauses.due(30_000) } else { pauses.due_unknown(30_000) };
        let host = played_on_one(vec![pauses, task("none", 0, &[60; 50])], 60_000);
        let stood = host.being("none").waits.iter().sum::<u64>() / MS;
        assert!(stood <= most_ms, "{stood} ms\n{}", host.trace);
        assert_eq!((late(&host), host.crowded), (0, 0), "{}", host.trace);
    }
}
