//! Jobs that all wait for the GPU at once, with exact estimates: does `edf` miss any that the best order does not?
//!
//! All have loaded. One computes, and while it does the others come to their launches at the same instant and stand there. When the GPU is
//! free, everything is known: when their bursts are due and how long each computes. From then on only the order counts, and every
//! order is tried ([`super::solver`]). Each job takes its kernel alone, to the nanosecond, and what handing the GPU on costs in
//! the arena.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_model::Deadline;
use berth_model::deadline::{Unit, UnitRule, Verdict};
use berth_sim::scenario::{Failed, Order, Phase, Program, Report, Run, Scenario, Work};
use berth_sim::{Profile, Sharing};
use serde::Serialize;

use super::load::{Dice, side};
use super::solver::{Waiting, fewest_late};
use super::trial::{exactly, judged, terms, with_room};
use crate::bench::contention::arena::{Arena, Errand};
use crate::bench::contention::cell::Contender;
use crate::bench::contention::costs::Costs;

const FEWEST_JOBS: usize = 4;
const MOST_JOBS: usize = 9;
/// Kernel seconds of a job.
const SHORTEST: f64 = 0.4;
const LONGEST: f64 = 4.0;
/// Kernel seconds of the one that computes before.
const FIRST: f64 = 2.3;
/// What it has left when the others come: less than any of them takes, so that nobody would give it up for one of them.
const FIRST_LEFT: Duration = Duration::from_millis(300);
/// How long after its launch it is due: so soon that nobody may compute beside it.
const FIRST_SPARE: Duration = Duration::from_millis(50);
/// When the others come to their launches: all contexts are made by then.
const LAUNCH: Duration = Duration::from_secs(10);
/// What the latest deadline leaves of the time all of them need.
const TIGHT: f64 = 0.85;
/// Sides of matrices are multiples of this.
const STEP: usize = 64;

/// Over all cases.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Together {
    pub cases: usize,
    pub jobs: usize,
    /// Late in the best order.
    pub solver_misses: usize,
    pub edf_misses: usize,
    /// In which it missed more than the best order does.
    pub worse: Vec<Case>,
    /// In which it missed fewer. There is no such case if the solver counts right.
    pub better: usize,
}

/// One case, by the number it was drawn with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Case {
    pub seed: u64,
    pub jobs: usize,
    pub solver_misses: usize,
    pub edf_misses: usize,
}

#[derive(Debug, Clone)]
struct Burst {
    n: u64,
    kernel_ns: u64,
    deadline: Deadline,
}

impl Together {
    pub fn add(&mut self, case: Case) {
        self.cases += 1;
        self.jobs += case.jobs;
        self.solver_misses += case.solver_misses;
        self.edf_misses += case.edf_misses;
        self.better += usize::from(case.edf_misses < case.solver_misses);
        if case.edf_misses > case.solver_misses {
            self.worse.push(case);
        }
    }
}

/// Draws a case and runs it.
pub fn case(contender: Contender, profile: &Profile, seed: u64) -> Result<Case, Failed> {
    let mut dice = Dice::new(seed);
    let first = side(FIRST, STEP, profile);
    let bursts = bursts(&mut dice, profile)?;
    let report = run(contender, first, &bursts, profile, seed)?;
    let free_at = computes(&report.runs[0]).1;
    let runs = &report.runs[1..];
    let mut edf_misses = 0;
    let mut waiting = Vec::new();
    for (burst, run) in bursts.iter().zip(runs) {
        let (wanted, done) = computes(run);
        let judged = judged(Unit::Burst, burst.deadline, wanted, done);
        edf_misses += usize::from(Verdict::of(judged.float_seconds) == Verdict::Miss);
        let takes = burst.kernel_ns + nanos(Costs::CGROUP.handover());
        waiting.push(Waiting { takes, due: judged.due.0.saturating_sub(free_at) });
    }
    Ok(Case { seed, jobs: bursts.len(), solver_misses: fewest_late(&waiting), edf_misses })
}

/// From nearly hopeless to loose, and never room for all.
fn bursts(dice: &mut Dice, profile: &Profile) -> Result<Vec<Burst>, Failed> {
    let count = dice.whole(FEWEST_JOBS, MOST_JOBS);
    let sides: Vec<u64> =
        (0..count).map(|_| side(SHORTEST * (LONGEST / SHORTEST).powf(dice.between(0.0, 1.0)), STEP, profile)).collect();
    let kernels: Vec<u64> = sides.iter().map(|n| kernel_ns(*n, profile)).collect::<Result<_, _>>()?;
    let seconds = |ns: u64| Duration::from_nanos(ns).as_secs_f64();
    let latest = seconds(kernels.iter().sum()) * TIGHT;
    let bursts = sides.into_iter().zip(kernels).map(|(n, kernel_ns)| {
        let own = seconds(kernel_ns);
        let room = Duration::from_secs_f64(dice.between(0.8 * own, latest.max(own)));
        let deadline = Deadline::new(FIRST_LEFT + room).expect("seconds");
        Burst { n, kernel_ns, deadline }
    });
    Ok(bursts.collect())
}

fn run(contender: Contender, first: u64, bursts: &[Burst], profile: &Profile, seed: u64) -> Result<Report, Failed> {
    let launches = |n, at| Program::of(Work::Appointment { n, at_ns: nanos(at) });
    let first_ns = kernel_ns(first, profile)?;
    let before = launches(first, LAUNCH + FIRST_LEFT - Duration::from_nanos(first_ns));
    let others = bursts.iter().map(|burst| launches(burst.n, LAUNCH));
    let scenario = Scenario {
        programs: [before].into_iter().chain(others).collect(),
        order: Order::Together,
        sharing: Sharing::TimeSliced,
        seed,
    };
    let its_deadline = Deadline::new(Duration::from_nanos(first_ns) + FIRST_SPARE).expect("seconds");
    let its_own = Errand { terms: Some(terms(its_deadline, UnitRule::Burst)), kind: 0, known: exactly(first_ns) };
    let errands = bursts.iter().zip(1..).map(|(burst, kind)| Errand {
        terms: Some(terms(burst.deadline, UnitRule::Burst)),
        kind,
        known: exactly(burst.kernel_ns),
    });
    let owners: Vec<String> = (0..=bursts.len()).map(|index| format!("user-{index}")).collect();
    let arena = Arena::new((contender.policy)(), (contender.terms)(seed), &owners);
    let mut arena = arena.with_errands([its_own].into_iter().chain(errands).collect());
    scenario.run_managed(&with_room(profile), &mut arena)
}

fn kernel_ns(n: u64, profile: &Profile) -> Result<u64, Failed> {
    let alone = Scenario::of(1, n, Order::Together, Sharing::TimeSliced).run(&with_room(profile))?;
    Ok(alone.runs[0].ns(Phase::Kernel))
}

/// From wanting to compute to having computed.
fn computes(run: &Run) -> (u64, u64) {
    let busy = BTreeSet::from([Phase::Turn, Phase::Kernel]);
    let mut spans = run.phases.iter().filter(|(phase, ..)| busy.contains(phase));
    let first = spans.next();
    let last = spans.next_back().or(first);
    (first.map_or(0, |(_, begin, _)| *begin), last.map_or(0, |(.., end)| *end))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
