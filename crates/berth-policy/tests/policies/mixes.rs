//! Small beside large, short beside long: what nobody may lose against a host on which nobody is held.
//!
//! A kernel that was begun is not stopped, and of whom nothing is known yet may have to wait for one: so a tenant may lose the
//! rest of one kernel, once.

use berth_policy::fifo::Fifo;
use berth_policy::{FifoSettings, Nobody, Policy};
use proptest::prelude::*;

use crate::host::{Do, Host, Job, MS};

/// Managed, and not.
fn both(jobs: &[Job]) -> [Host; 2] {
    let run = |policy: &mut dyn Policy| {
        let mut host = Host::new(1, 1_000_000, jobs.to_vec());
        host.run(policy, 10_000_000);
        assert!(host.beings.iter().all(|being| being.finished.is_some()), "{}", host.trace);
        host
    };
    [run(&mut Fifo::new(FifoSettings::default())), run(&mut Nobody)]
}

fn end_ms(host: &Host, name: &str) -> u64 {
    host.finished_ms(name).expect("everybody ends")
}

fn last_ms(host: &Host) -> u64 {
    host.beings.iter().filter_map(|being| being.finished).max().unwrap_or(0) / MS
}

fn sum_ms(host: &Host) -> u64 {
    host.beings.iter().filter_map(|being| being.finished).sum::<u64>() / MS
}

/// The mean end is no later, to a hundredth.
fn is_no_later(managed: &Host, free: &Host) -> bool {
    sum_ms(managed) * 100 <= sum_ms(free) * 101
}

/// One kernel, and data that grows with it.
fn product(name: &str, at: u64, kernel_ms: u64) -> Job {
    let script = [Do::Load(100), Do::Take(kernel_ms), Do::Load(100), Do::Compute(kernel_ms), Do::Rest(50)];
    Job::new(name, at, &script)
}

/// So many bursts with a pause after each.
fn looping(name: &str, at: u64, burst_ms: u64, rest_ms: u64, rounds: usize) -> Job {
    let script = [Do::Load(100), Do::Take(1_000)].into_iter();
    let rounds = (0..rounds).flat_map(|_| [Do::Compute(burst_ms), Do::Rest(rest_ms)]);
    Job::new(name, at, &script.chain(rounds).collect::<Vec<_>>())
}

/// Known to a third or less of each other, or equal.
fn sizes() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let kernel = prop::sample::select(vec![100_u64, 400, 1_600, 6_400]);
    prop::collection::vec((0_u64..3_000, kernel), 2..8)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    /// Nothing is known of them but the data they have loaded.
    #[test]
    fn of_a_mix_of_sizes_neither_the_last_end_nor_the_mean_one_is_later(mix in sizes()) {
        let jobs: Vec<Job> = mix.iter().enumerate().map(|(n, (at, ms))| product(&format!("job-{n}"), *at, *ms)).collect();
        let [managed, free] = both(&jobs);
        prop_assert!(last_ms(&managed) <= last_ms(&free), "{} {}\n{}", last_ms(&managed), last_ms(&free), managed.trace);
        prop_assert!(is_no_later(&managed, &free), "{} {}\n{}", sum_ms(&managed), sum_ms(&free), managed.trace);
    }

    /// The same when their like has run before, and each by itself.
    #[test]
    fn of_a_mix_of_known_sizes_nobody_ends_later_but_for_the_rest_of_a_kernel(mix in sizes()) {
        let known = |(n, (at, ms)): (usize, &(u64, u64))| product(&format!("job-{n}"), *at, *ms).known(*ms as f64 / 1e3);
        let jobs: Vec<Job> = mix.iter().enumerate().map(known).collect();
        let [managed, free] = both(&jobs);
        prop_assert!(is_no_later(&managed, &free), "{} {}\n{}", sum_ms(&managed), sum_ms(&free), managed.trace);
        for (job, (_, kernel)) in jobs.iter().zip(&mix) {
            let (managed_ms, free_ms) = (end_ms(&managed, &job.name), end_ms(&free, &job.name));
            prop_assert!(managed_ms <= free_ms + 3 * kernel, "{}: {managed_ms} {free_ms}\n{}", job.name, managed.trace);
        }
    }

    /// A server beside trainings: it loses at most one kernel of each, at its first request.
    #[test]
    fn short_bursts_beside_long_ones_take_no_longer_but_for_the_first(
        long in 900_u64..2_500,
        share in 4_u64..20,
        trainings in 1_usize..4,
        pause in 1_u64..5,
    ) {
        let short = long / share;
        let mut jobs: Vec<Job> = (0..trainings).map(|n| looping(&format!("long-{n}"), 0, long, 20, 15)).collect();
        jobs.push(looping("short", 50, short, pause * short, 12));
        let [managed, free] = both(&jobs);
        let (managed_ms, free_ms) = (end_ms(&managed, "short"), end_ms(&free, "short"));
        prop_assert!(managed_ms <= free_ms + trainings as u64 * long, "{managed_ms} {free_ms}\n{}", managed.trace);
        prop_assert!(last_ms(&managed) * 100 <= last_ms(&free) * 101, "{}", managed.trace);
    }
}

/// As a program of many threads looks: a launch follows at once, but for a moment now and then in which no thread comes to its own.
#[test]
fn who_goes_on_and_on_has_its_share_beside_long_kernels_though_it_hitches() {
    let mut jobs: Vec<Job> = (0..2).map(|n| looping(&format!("long-{n}"), 0, 2_500, 5, 12)).collect();
    let rounds = (0..400).flat_map(|round| [Do::Compute(25), Do::Rest(if round % 8 == 7 { 8 } else { 0 })]);
    let script: Vec<Do> = [Do::Load(100), Do::Take(1_000)].into_iter().chain(rounds).collect();
    jobs.push(Job::new("threads", 3_000, &script));
    let [managed, free] = both(&jobs);
    let (managed_ms, free_ms) = (end_ms(&managed, "threads"), end_ms(&free, "threads"));
    let quantum_ms = u64::try_from(FifoSettings::default().quantum.get().as_millis()).unwrap();
    assert!(managed_ms <= free_ms + quantum_ms, "{managed_ms} {free_ms}\n{}", managed.trace);
}

/// One that goes on and on was there first; two come that pause a little between bursts.
#[test]
fn who_goes_on_and_on_does_not_stand_until_the_others_have_had_a_quantum() {
    let jobs = [("on", 0, 0, 60), ("off-1", 1_500, 20, 60), ("off-2", 1_800, 20, 60)];
    let jobs: Vec<Job> = jobs.iter().map(|(name, at, rest, rounds)| looping(name, *at, 220, *rest, *rounds)).collect();
    let [managed, _] = both(&jobs);
    let longest = managed.being("on").waits.iter().max().copied().unwrap_or_default();
    assert!(longest < 4_000 * MS, "{} ms\n{}", longest / MS, managed.trace);
}
