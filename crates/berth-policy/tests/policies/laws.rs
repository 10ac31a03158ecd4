//! What holds for any mix of tenants, whatever they do and however late anything is known or takes effect.
//!
//! Two laws are held by the host itself in every run: asked twice, a policy answers the same; and it never touches a tenant
//! that is exempt, in a person's hands, or moving, nor by means it does not have.

use std::collections::BTreeSet;
use std::ops::Range;

use berth_model::hold::Means;
use berth_model::{Mono, Span};
use berth_policy::fifo::Fifo;
use berth_policy::paper::Paper;
use berth_policy::{Action, FifoSettings, PaperSettings, Past, Policy, Stand, Tenant, Verdict, View};
use proptest::prelude::*;

use crate::host::{Do, Host, Job, MS};

const GATE: [Means; 3] = [Means::Gate, Means::Lock, Means::Freeze];

fn bursts(most_ms: u64) -> impl Strategy<Value = Vec<Do>> {
    let burst = (1..most_ms, 0_u64..200).prop_map(|(compute, rest)| [Do::Compute(compute), Do::Rest(rest)]);
    let opening = prop::option::of(1_u64..3_000);
    (10_u64..600, opening, prop::collection::vec(burst, 1..8)).prop_map(|(load, opening, bursts)| {
        let mut script = vec![Do::Load(load / 2)];
        script.extend(opening.map(Do::Open));
        script.extend([Do::Take(800), Do::Load(load / 2)]);
        script.extend(bursts.into_iter().flatten());
        script
    })
}

fn means() -> impl Strategy<Value = Vec<Means>> {
    prop_oneof![
        4 => Just(GATE.to_vec()),
        1 => Just(vec![Means::Lock]),
        1 => Just(vec![Means::Freeze]),
        1 => Just(Vec::new()),
    ]
}

fn past() -> impl Strategy<Value = Option<Past>> {
    let past = |active_seconds, duty| Some(Past { active_seconds, peak_memory: None, duty, burst_seconds: None });
    prop_oneof![3 => Just(None), 1 => Just(past(1.0, 0.1)), 1 => Just(past(5.0, 0.9))]
}

/// Any tenant on any of two GPUs.
pub fn job() -> impl Strategy<Value = Job> {
    let places = prop::sample::subsequence(vec![0_u32, 1], 1..=2);
    let late = prop_oneof![3 => Just(Some(0)), 1 => Just(Some(5 * MS)), 1 => Just(None)];
    let words = (prop::option::of("[ab]"), prop::option::weighted(0.2, "[gh]"));
    let start = 0_u64..2_000;
    (start, bursts(1_500), places, means(), past(), late, words, prop::bool::weighted(0.1)).prop_map(
        |(at, script, gpus, means, past, lateness, (owner, gang), by_person)| {
            let job = Job::new("", at, &script).gpus(&gpus).means(&means);
            Job { past, lateness, owner, gang, by_person, ..job }
        },
    )
}

pub fn jobs(job: impl Strategy<Value = Job>, most: usize) -> impl Strategy<Value = Vec<Job>> {
    prop::collection::vec(job, 1..most).prop_map(|jobs| {
        let named = |(n, job): (usize, Job)| Job { name: format!("job-{n}"), ..job };
        jobs.into_iter().enumerate().map(named).collect()
    })
}

/// Short times, so that bounds come into play.
pub fn hasty() -> FifoSettings {
    FifoSettings {
        quantum: Span::from_millis(500),
        slice: Span::from_millis(50),
        longest_wait: Span::from_millis(1_000),
        last_resort: Span::from_millis(3_000),
        ..FifoSettings::default()
    }
}

pub fn patient() -> FifoSettings {
    let far = Span::from_millis(1_000_000);
    FifoSettings { longest_wait: far, last_resort: far, ..FifoSettings::default() }
}

pub fn played(jobs: Vec<Job>, delay: u64, policy: &mut dyn Policy) -> Host {
    let mut host = Host::new(2, 24_000, jobs);
    host.delay = delay;
    host.run(policy, 600_000);
    host
}

/// A policy whose every answer is looked at.
#[derive(Debug)]
pub struct Watched<P> {
    pub policy: P,
    /// The same policy, told of the tenants in another order.
    pub twin: P,
}

impl<P: Policy> Policy for Watched<P> {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn decide(&mut self, view: &View, now: Mono) -> Verdict {
        let verdict = self.policy.decide(view, now);
        let mut turned = view.clone();
        turned.tenants.reverse();
        assert_eq!(verdict, self.twin.decide(&turned, now), "the order of tenants says nothing");
        let named: Vec<_> = verdict.decisions.iter().map(|decision| &decision.tenant).collect();
        assert_eq!(named.len(), named.iter().collect::<BTreeSet<_>>().len(), "each tenant once");
        view.tenants.iter().for_each(|tenant| assert_with_its_gang(tenant, view, &verdict));
        verdict
    }
}

/// What is decided for one is decided for all of its gang that it can be decided for.
fn assert_with_its_gang(tenant: &Tenant, view: &View, verdict: &Verdict) {
    let action = |tenant: &Tenant| verdict.decisions.iter().find(|other| other.tenant == tenant.key).map(|d| d.action);
    let Some(decided) = action(tenant).filter(|_| tenant.gang.is_some()) else { return };
    for mate in view.tenants.iter().filter(|mate| mate.gang == tenant.gang && mate.owner == tenant.owner) {
        let is_due = match decided {
            Action::Release => matches!(mate.stand, Stand::Gated { .. } | Stand::Held { .. }),
            Action::Hold(_) => mate.stand == Stand::Free && mate.means.contains(&Means::Gate),
            Action::Bar => panic!("{} has a gang to open with", tenant.name),
        };
        if is_due && mate.means.contains(&Means::Gate) && tenant.means.contains(&Means::Gate) {
            assert_eq!(action(mate), Some(decided), "{} without {}", tenant.name, mate.name);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn nobody_waits_longer_than_the_last_resort_and_everyone_ends(jobs in jobs(job(), 8), delay in 0_u64..30) {
        let settings = hasty();
        let bound = settings.last_resort.get().as_nanos();
        let mut policy = Watched { policy: Fifo::new(settings.clone()), twin: Fifo::new(settings) };
        let host = played(jobs, delay * MS, &mut policy);
        for being in &host.beings {
            prop_assert!(being.finished.is_some(), "{} is stuck:\n{}", being.job.name, host.trace);
            let longest = being.waits.iter().copied().max().unwrap_or(0);
            // A decision takes its time, and one that is moving is left alone until it has moved.
            prop_assert!(u128::from(longest) <= bound + u128::from(2 * delay * MS), "{} waited {longest} ns:\n{}", being.job.name, host.trace);
        }
    }

    /// No starvation, without the last resort: where every tenant can be gated and what they do is seen, who has waited for
    /// the longest wait waits for one turn of each of the others at most. A turn is a quantum, and then the kernel that runs.
    #[test]
    fn nobody_waits_longer_than_one_turn_of_each_once_it_is_first_in_line(jobs in jobs(heavy(), 10)) {
        let jobs: Vec<Job> = jobs.into_iter().map(|job| Job { gang: None, ..job }).collect();
        let others = jobs.len() as u64 - 1;
        let kernels = jobs.iter().flat_map(|job| &job.script).map(|part| if let Do::Compute(ms) = part { *ms } else { 0 });
        let turn = 500 + kernels.max().unwrap_or(0);
        let host = played(jobs, 0, &mut Fifo::new(FifoSettings { last_resort: patient().last_resort, ..hasty() }));
        for being in &host.beings {
            prop_assert!(being.finished.is_some(), "{} is stuck:\n{}", being.job.name, host.trace);
            let longest = being.waits.iter().copied().max().unwrap_or(0);
            prop_assert!(longest <= (1_000 + others * turn) * MS, "{} waited {longest} ns:\n{}", being.job.name, host.trace);
        }
    }

    /// Where every tenant can be gated, what they do is seen, decisions take effect at once, and nobody is brief beside
    /// another (`mixes.rs`). Gangs are another matter: one of which a part stands and a part computes is not waited for.
    #[test]
    fn of_those_that_are_not_light_one_computes_at_a_time(jobs in jobs(with_bursts(500..1_400), 8)) {
        let jobs = jobs.into_iter().map(|job| Job { gang: None, ..job }).collect();
        let host = played(jobs, 0, &mut Fifo::new(patient()));
        prop_assert!(host.crowded == 0, "crowded for {} ms:\n{}", host.crowded / MS, host.trace);
        prop_assert!(host.beings.iter().all(|being| being.finished.is_some()), "{}", host.trace);
    }

    /// Managed, all is done no later than one by one, and no GPU stands idle while someone stands at a launch for it alone.
    #[test]
    fn equal_products_end_as_early_as_their_kernels_allow(k in 1_u64..12, kernel in 20_u64..3_000) {
        let script = [Do::Load(100), Do::Take(1_000), Do::Load(100), Do::Compute(kernel), Do::Rest(150)];
        let jobs = (0..k).map(|n| Job::new(&format!("job-{n}"), 0, &script)).collect();
        let host = played(jobs, 0, &mut Fifo::new(patient()));
        let last = host.beings.iter().filter_map(|being| being.finished).max();
        prop_assert_eq!(last, Some((200 + k * kernel + 150) * MS));
    }

    #[test]
    fn crossed_wishes_for_two_gpus_never_block_each_other(jobs in jobs(heavy(), 10), delay in 0_u64..5) {
        let host = played(jobs, delay * MS, &mut Fifo::new(patient()));
        prop_assert!(host.beings.iter().all(|being| being.finished.is_some()), "{}", host.trace);
    }

    #[test]
    fn nobody_is_held_more_often_than_is_allowed(jobs in jobs(heavy(), 6), most in 1_u32..4) {
        let host = played(jobs, 0, &mut Fifo::new(FifoSettings { holds_per_second: most, ..hasty() }));
        for being in &host.beings {
            for at in &being.holds {
                let within = being.holds.iter().filter(|other| *other >= at && **other < at + 1_000 * MS).count();
                prop_assert!(within <= most as usize, "{} was held {within} times in a second", being.job.name);
            }
            prop_assert!(being.releases.len() <= being.holds.len() + 1);
        }
    }

    #[test]
    fn the_same_host_gives_the_same_decisions(jobs in jobs(job(), 6), delay in 0_u64..30) {
        let run = || played(jobs.clone(), delay * MS, &mut Fifo::new(hasty())).trace;
        prop_assert_eq!(run(), run());
    }

    #[test]
    fn who_is_alone_on_its_gpus_is_never_held(one in job(), other in job()) {
        let jobs = [(one, 0), (other, 1)].into_iter().enumerate();
        let jobs = jobs.map(|(n, (job, gpu))| Job { name: format!("job-{n}"), gang: None, ..job.gpus(&[gpu]) }).collect();
        let host = played(jobs, 0, &mut Fifo::new(hasty()));
        prop_assert!(host.beings.iter().all(|being| being.holds.is_empty()), "{}", host.trace);
    }

    #[test]
    fn light_tenants_are_never_held(starts in prop::collection::vec(0_u64..500, 1..6), burst in 1_u64..9) {
        // Together at most 70 % of the core: 14 % each.
        let light = |(n, at): (usize, u64)| {
            let mut script = vec![Do::Load(300)];
            script.extend((0..100).flat_map(|_| [Do::Compute(burst), Do::Rest(burst * 6 + 1)]));
            Job::new(&format!("light-{n}"), at, &script).past(10.0, 0.14)
        };
        let host = played(starts.into_iter().enumerate().map(light).collect(), MS, &mut Fifo::new(FifoSettings::default()));
        prop_assert!(host.beings.iter().all(|being| being.holds.is_empty()), "{}", host.trace);
    }

    /// Nothing is known of them but that they have loaded little.
    #[test]
    fn light_tenants_without_a_past_are_never_held(starts in prop::collection::vec(0_u64..500, 1..6), burst in 1_u64..9) {
        let host = played(lights(&starts, burst, 500), 0, &mut Fifo::new(FifoSettings::default()));
        prop_assert!(host.beings.iter().all(|being| being.holds.is_empty()), "{}", host.trace);
    }

    /// One that has loaded much may stand at its first launch while others have not come back from theirs: at most for a
    /// small burst each.
    #[test]
    fn light_tenants_without_a_past_that_have_loaded_much_stand_once_at_most(
        starts in prop::collection::vec(0_u64..100, 2..6),
        burst in 1_u64..9,
    ) {
        let others = starts.len() as u64 - 1;
        let host = played(lights(&starts, burst, 2_000), 0, &mut Fifo::new(FifoSettings::default()));
        for being in &host.beings {
            prop_assert!(being.waits.len() <= 1, "{}", host.trace);
            prop_assert!(being.waits.iter().sum::<u64>() <= others * 12 * MS, "{}", host.trace);
        }
    }

    /// Heavy ones that have loaded little are found out by their first burst: only who launches while that is small still
    /// slips through.
    #[test]
    fn who_has_loaded_little_waits_all_the_same_for_one_that_has_shown_to_be_heavy(
        starts in prop::sample::subsequence((0_u64..20).map(|n| n * 220).collect::<Vec<_>>(), 1..8),
        kernel in 60_u64..2_000,
    ) {
        let script = [Do::Load(200), Do::Compute(kernel), Do::Rest(20), Do::Compute(kernel)];
        let jobs = starts.iter().enumerate().map(|(n, at)| Job::new(&format!("job-{n}"), *at, &script)).collect();
        let host = played(jobs, 0, &mut Fifo::new(patient()));
        prop_assert!(host.crowded == 0, "crowded for {} ms:\n{}", host.crowded / MS, host.trace);
    }

    #[test]
    fn what_fits_alone_waits_for_its_memory_and_does_not_fail(
        jobs in jobs((0_u64..1_000, 1_000_u64..24_000, 10_u64..1_500).prop_map(|(at, mib, ms)| {
            Job::new("", at, &[Do::Load(100), Do::Take(mib), Do::Load(50), Do::Compute(ms), Do::Rest(50)])
        }), 8),
        delay in 0_u64..30,
    ) {
        let host = played(jobs, delay * MS, &mut Fifo::new(hasty()));
        prop_assert!(host.beings.iter().all(|being| being.finished.is_some() && !being.has_failed), "{}", host.trace);
    }

    #[test]
    fn with_park_nobody_fails_over_memory_taken_piece_by_piece(
        jobs in jobs((0_u64..1_000, 1_000_u64..12_000, 10_u64..1_500).prop_map(|(at, mib, ms)| {
            let script = [Do::Take(mib), Do::Load(50), Do::Take(mib), Do::Compute(ms), Do::Rest(50)];
            Job::new("", at, &script).means(&[Means::Gate, Means::Park])
        }), 6),
        delay in 0_u64..30,
    ) {
        let host = played(jobs, delay * MS, &mut Fifo::new(hasty()));
        prop_assert!(host.beings.iter().all(|being| being.finished.is_some() && !being.has_failed), "{}", host.trace);
    }

    #[test]
    fn the_paper_lets_everyone_end_within_its_bound(jobs in jobs(job(), 8), delay in 0_u64..100) {
        let settings = PaperSettings { longest_wait: Span::from_millis(5_000), ..PaperSettings::default() };
        let host = played(jobs, delay * MS, &mut Paper::new(settings));
        for being in &host.beings {
            prop_assert!(being.finished.is_some(), "{} is stuck:\n{}", being.job.name, host.trace);
            let longest = being.waits.iter().copied().max().unwrap_or(0);
            prop_assert!(longest <= (5_000 + 2 * delay) * MS, "{} waited {longest} ns:\n{}", being.job.name, host.trace);
        }
    }
}

/// Tenants that use 14 % of a GPU each, having loaded so many MiB.
fn lights(starts: &[u64], burst: u64, mib: u64) -> Vec<Job> {
    let light = |(n, at): (usize, &u64)| {
        let mut script = vec![Do::Take(mib), Do::Load(300)];
        script.extend((0..60).flat_map(|_| [Do::Compute(burst), Do::Rest(burst * 6 + 1)]));
        Job::new(&format!("light-{n}"), *at, &script)
    };
    starts.iter().enumerate().map(light).collect()
}

/// A tenant whose bursts are long, on any of two GPUs, perhaps in a gang.
fn heavy() -> impl Strategy<Value = Job> {
    with_bursts(60..1_500)
}

pub fn with_bursts(millis: Range<u64>) -> impl Strategy<Value = Job> {
    let burst = (millis, 0_u64..200).prop_map(|(compute, rest)| [Do::Compute(compute), Do::Rest(rest)]);
    let places = prop::sample::subsequence(vec![0_u32, 1], 1..=2);
    let words = (prop::option::of("[ab]"), prop::option::weighted(0.2, "[gh]"));
    (0_u64..2_000, prop::collection::vec(burst, 1..8), places, words).prop_map(|(at, bursts, gpus, (owner, gang))| {
        let mut script = vec![Do::Load(100), Do::Take(1_000), Do::Load(100)];
        script.extend(bursts.into_iter().flatten());
        Job { owner, gang, ..Job::new("", at, &script).gpus(&gpus) }
    })
}
