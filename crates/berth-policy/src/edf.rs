//! Earliest deadline first: the turns of [`crate::turns`], given by claims.
//!
//! *In time*: of those that can meet their deadlines the one that is due first has the turn. Who has a later deadline, or none, stops
//! for it at its next launch; a kernel is never cut short. If all can be in time in any order, they are in this one.
//!
//! *Not all in time* ([`in_time`]): where they cannot all be, the order of deadlines alone makes one after the other late. So the
//! fewest possible are given up, those that take longest, and wait behind the others, the shortest first. Each view decides
//! anew: who was given up because of one that then took less is taken up again.
//!
//! *Lost*: who would be late even if it had the GPU to itself from now on has no claim any more, as one without a deadline. It
//! drags nobody down with it.
//!
//! *What is left of a unit of work* is its usual GPU time less what it had. Usual is the median: nine in ten is what one of them may
//! need, but all of them together never do, and who is given up for that was given up for nothing. Who has taken longer than
//! usual is taken to need what nine in ten do, then the most that any did. Of whom nothing is known is taken to be in time
//! until its deadline has passed: its place is by that alone.
//!
//! A task is not done when it has computed: it must be early by what its like did after that, as far as is known.
//!
//! *The rest* ([`share`]): those without a deadline have their order among them as in `fifo`, and what the others leave; and if that is less
//! than [`EdfSettings::rest`] of a GPU while they want it, they go first until they have had it; where somebody would be late for
//! that, only when they are owed a whole quantum. So do those that are lost, once they have stood for
//! [`FifoSettings::longest_wait`]. Beside *n* others like it nobody stands for longer than `longest_wait + (n + 1) × (quantum + longest
//! kernel) × (1 + 2 / rest)`.
//!
//! *Pauses*: who pauses in the middle of its work keeps its turn for a moment from those with a lesser claim ([`crate::turns`]): they
//! cannot be stopped once they have launched.
//!
//! *Beside* one with a deadline nobody computes unless there is time for it, however little both have loaded. All else is as in `fifo`, and without any
//! deadline so is every decision.

pub mod in_time;
mod share;

use std::collections::BTreeSet;
use std::time::Duration;

use berth_model::{GpuIndex, Mono};

use crate::settings::{EdfSettings, FifoSettings};
use crate::turns::book::Book;
use crate::turns::unit::Unit;
use crate::turns::{Claim, Claims, Rota};
use crate::view::{Past, Tenant, View, Work};
use crate::{Policy, Verdict};
use in_time::Job;
use share::Shares;

#[derive(Debug)]
pub struct Edf(Rota<Deadlines>);

/// Claims by deadlines.
#[derive(Debug)]
struct Deadlines {
    settings: EdfSettings,
    shares: Shares,
    /// When somebody is lost who is not yet, at the earliest.
    lost_at: Option<Mono>,
}

impl Edf {
    /// `turns`: the numbers it has in common with `fifo`.
    pub fn new(turns: FifoSettings, settings: EdfSettings) -> Self {
        Self(Rota::new(turns, Deadlines { settings, shares: Shares::default(), lost_at: None }))
    }
}

impl Policy for Edf {
    fn name(&self) -> &'static str {
        "edf"
    }

    fn queues_for_memory(&self) -> bool {
        true
    }

    fn decide(&mut self, view: &View, now: Mono) -> Verdict {
        self.0.decide(view, now)
    }
}

impl Claims for Deadlines {
    fn assess(&mut self, units: &mut [Unit<'_>], book: &Book, turns: &FifoSettings, now: Mono) {
        let jobs: Vec<Option<Job>> = units.iter().map(|unit| job(unit, book, now)).collect();
        let mut lost_at = Vec::new();
        for (unit, job) in units.iter_mut().zip(&jobs) {
            let Some(job) = job else { continue };
            let due = works(unit).map(|(_, work)| work.due).min().unwrap_or(job.due);
            unit.claim = Claim::InTime { by: job.due, left: job.left, due };
            unit.is_lost = now + job.left > job.due;
            let is_known = works(unit).all(|(_, work)| work.takes.is_some());
            unit.is_midway = !unit.is_lost && (!is_known || !job.left.is_zero());
            if unit.is_lost {
                unit.claim = Claim::Rest;
            } else {
                lost_at.push(Mono(job.due.0 - nanos(job.left)) + Duration::from_nanos(1));
            }
        }
        self.lost_at = lost_at.into_iter().min();
        let gpus: BTreeSet<GpuIndex> = units.iter().flat_map(|unit| unit.gpus.iter().copied()).collect();
        gpus.into_iter().for_each(|gpu| self.plan(gpu, units, &jobs, now));
        self.shares.assess(units, &self.settings, turns, now);
    }

    fn again_at(&self, _: &[Unit<'_>], now: Mono) -> Vec<Mono> {
        self.lost_at.into_iter().chain(self.shares.again_at(now)).collect()
    }
}

impl Deadlines {
    /// Gives up those that cannot be in time on a GPU together with the others. What runs there runs to its end before anything else.
    fn plan(&self, gpu: GpuIndex, units: &mut [Unit<'_>], jobs: &[Option<Job>], now: Mono) {
        let mut start = now;
        let mut planned: Vec<(&mut Unit<'_>, Job)> = Vec::new();
        for (unit, job) in units.iter_mut().zip(jobs).filter(|(unit, _)| unit.contends() && unit.gpus.contains(&gpu)) {
            let job = job.filter(|job| matches!(unit.claim, Claim::InTime { .. }) && takes_time(unit, job));
            let running = unit.busy_since.and_then(|_| unit.length.left()).unwrap_or_default();
            let running = job.map_or(running, |job| running.min(job.left));
            start = start + running;
            if let Some(job) = job {
                let switch = if unit.busy_since.is_some() { Duration::ZERO } else { self.settings.switch.get() };
                planned.push((unit, Job { left: job.left - running + switch, ..job }));
            }
        }
        let each: Vec<Job> = planned.iter().map(|(_, job)| *job).collect();
        for ((unit, job), spare) in planned.into_iter().zip(in_time::spares(&each, start)) {
            match spare {
                Some(spare) => unit.spare = Some(unit.spare.map_or(spare, |other| other.min(spare))),
                None => {
                    let due = unit.claim.due().unwrap_or(job.due);
                    (unit.claim, unit.spare) = (Claim::SqueezedOut { left: job.left, due }, None);
                }
            }
        }
    }
}

/// Whose burst has just ended, and may be judged only when nothing follows it, takes none of the GPU: no turn has to be handed to it.
fn takes_time(unit: &Unit<'_>, job: &Job) -> bool {
    unit.wants() || !job.left.is_zero()
}

/// What a unit has to compute by when: of a gang the earliest of its deadlines, and the most of what is left.
fn job(unit: &Unit<'_>, book: &Book, now: Mono) -> Option<Job> {
    let by = |(tenant, work): (&Tenant, &Work)| {
        let launched = book.get(&tenant.key).and_then(|record| record.first_launch);
        Mono(work.due.0.saturating_sub(nanos(after(tenant.past, work, launched, now))))
    };
    let due = works(unit).map(by).min()?;
    Some(Job { due, left: works(unit).map(|(_, work)| left(work)).max().unwrap_or_default() })
}

fn works<'a>(unit: &Unit<'a>) -> impl Iterator<Item = (&'a Tenant, &'a Work)> {
    unit.members.iter().filter_map(|tenant| Some((*tenant, tenant.work.as_ref()?)))
}

/// What a task does after it has computed, such as copying its output: what its like spent off the GPU, less what this one has by its first
/// launch. At most as long as it computes: who is mostly idle need not be so at its end. A burst ends with its computing.
fn after(past: Option<Past>, work: &Work, launched: Option<Mono>, now: Mono) -> Duration {
    let is_burst = launched.is_some_and(|launched| launched <= work.started);
    let Some(past) = past.filter(|past| !is_burst && past.duty > 0.0) else { return Duration::ZERO };
    let off = past.active_seconds / past.duty - past.active_seconds;
    let before = launched.unwrap_or(now).since(work.started).as_secs_f64();
    Duration::try_from_secs_f64((off - before).min(past.active_seconds)).unwrap_or_default()
}

/// What is left of a unit of work as it usually is, in whole microseconds; nothing where that is not known.
fn left(work: &Work) -> Duration {
    let Some(takes) = work.takes else { return Duration::ZERO };
    let in_all = [takes.median_seconds, takes.p90_seconds, takes.most_seconds];
    let mut left = in_all.into_iter().map(|seconds| seconds - work.done.as_secs_f64());
    let left = left.find(|left| *left > 0.0).and_then(|left| Duration::try_from_secs_f64(left).ok());
    left.map_or(Duration::ZERO, |left| Duration::from_micros(u64::try_from(left.as_micros()).unwrap_or(u64::MAX)))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use berth_model::TenantKey;
    use berth_model::deadline::Spread;
    use berth_model::hold::Means;

    use super::*;
    use crate::view::{Activity, Gpu, Stand};
    use crate::{Action, Reason};

    const MS: u64 = 1_000_000;

    fn work(done_ms: u64, takes: Option<Spread>) -> Work {
        let done = Duration::from_millis(done_ms);
        Work { started: Mono(100 * MS), due: Mono(10_000 * MS), done, takes }
    }

    /// With a gate, on the one GPU; its burst takes as long as is said, and nothing but that is known of it.
    fn tenant(name: &str, activity: Activity, stand: Stand, takes_ms: f64, work: Work) -> Tenant {
        let seconds = takes_ms / 1e3;
        let takes = Spread { units: 1, median_seconds: seconds, p90_seconds: seconds, most_seconds: seconds };
        Tenant {
            key: TenantKey::Cgroup { path: name.into() },
            name: name.into(),
            owner: None,
            gpus: BTreeSet::from([GpuIndex(0)]),
            gang: None,
            arrived: Mono(0),
            activity,
            memory: None,
            needs: None,
            core: None,
            stand,
            means: BTreeSet::from([Means::Gate]),
            past: None,
            work: Some(Work { takes: Some(takes), ..work }),
        }
    }

    /// Two that stand have time for each other and for two handovers, and half of one to spare.
    #[test]
    fn one_whose_burst_has_just_ended_takes_no_time_from_those_that_wait() {
        let now = Mono(1_000 * MS);
        let due = |in_us: u64| Work { due: Mono(now.0 + in_us * 1_000), ..work(0, None) };
        let stands = |name, takes_ms, in_us| {
            let held = Stand::Held { means: Means::Gate, since: Mono(500 * MS) };
            let at_launch = Activity::AtLaunch { since: Mono(500 * MS), computing_since: None };
            tenant(name, at_launch, held, takes_ms, due(in_us))
        };
        let ended = |activity| {
            let done = Work { done: Duration::from_millis(400), ..due(500_000) };
            tenant("ended", activity, Stand::Free, 400.0, done)
        };
        let view = |activity| {
            let gpu = Gpu { index: GpuIndex(0), memory_total: None, memory_used: None, core: None, core_at: None };
            let tenants = vec![ended(activity), stands("first", 900.0, 901_500), stands("second", 800.0, 3_000_000)];
            View { gpus: vec![gpu], tenants }
        };
        let mut edf = Edf::new(FifoSettings::default(), EdfSettings::default());
        edf.decide(&view(Activity::Computing { since: Mono(600 * MS) }), Mono(600 * MS));
        let verdict = edf.decide(&view(Activity::Quiet { since: now }), now);
        let released = verdict.decisions.iter().filter(|decision| decision.action == Action::Release);
        let released: Vec<(&TenantKey, &Reason)> = released.map(|told| (&told.tenant, &told.reason)).collect();
        let due_in = Duration::from_micros(901_500);
        assert_eq!(released, [(&TenantKey::Cgroup { path: "first".into() }, &Reason::DueFirst { due_in })]);
    }

    #[test]
    fn what_is_left_is_by_the_median_and_for_one_that_takes_longer_by_those_that_did() {
        let takes = Spread { units: 10, median_seconds: 1.0, p90_seconds: 2.0, most_seconds: 5.0 };
        let left = |done_ms| left(&work(done_ms, Some(takes))).as_millis();
        assert_eq!([0, 400, 1_000, 2_500, 5_000, 9_000].map(left), [1_000, 600, 1_000, 2_500, 0, 0]);
        assert_eq!(super::left(&work(400, None)), Duration::ZERO, "nothing is known of it");
    }

    /// Its like computed for two of three seconds.
    #[test]
    fn a_task_must_have_computed_before_it_is_due_by_what_it_does_afterwards() {
        let past = Past { active_seconds: 2.0, peak_memory: None, duty: 2.0 / 3.0, burst_seconds: None };
        let after = |past, launched_ms: Option<u64>, now_ms: u64| {
            let launched = launched_ms.map(|ms| Mono(ms * MS));
            super::after(past, &work(0, None), launched, Mono(now_ms * MS)).as_millis()
        };
        assert_eq!(after(Some(past), None, 100), 1_000, "nothing of it has passed yet");
        assert_eq!(after(Some(past), Some(700), 5_000), 400, "0.6 s went by before its first launch");
        assert_eq!(after(Some(past), Some(2_000), 5_000), 0);
        assert_eq!(
            after(Some(past), Some(100), 5_000),
            0,
            "a burst begins with its launch and ends with its computing"
        );
        assert_eq!(after(Some(Past { duty: 0.1, ..past }), None, 100), 2_000, "idle for long, but hardly at its end");
        assert_eq!(after(None, None, 100), 0);
    }
}
