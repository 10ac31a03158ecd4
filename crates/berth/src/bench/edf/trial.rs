//! One load in one way: what became of every job.

use std::time::Duration;

use berth_model::deadline::{Judged, Open, Origin, Spread, Terms, Unit, UnitRule};
use berth_model::event::Evidence;
use berth_model::{ContainerId, Deadline, Mono, Percent, Runtime, TaskId, TenantKey};
use berth_sim::scenario::{Failed, Order, Phase, Run, Scenario};
use berth_sim::{Profile, Sharing};

use super::bound;
use super::load::{Job, Load};
use crate::bench::contention::arena::{Arena, Errand, Known};
use crate::bench::contention::cell::Contender;

const NS: f64 = 1e9;
/// A waiting job keeps its memory, and how many wait is what is measured: the simulated GPU has room for all of them.
const ROOM_MIB: u64 = 1 << 22;

/// How jobs come to the GPU.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    Unmanaged,
    Managed(Contender, Knows),
}

/// What is known of jobs before they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knows {
    Nothing,
    /// What earlier jobs of the same tenant took.
    Earlier,
    /// How long each computes, to the nanosecond.
    Everything,
}

/// What became of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub tenant: usize,
    /// `None`: it had no deadline.
    pub judged: Option<Judged>,
    /// From coming to the GPU until it has left.
    pub stay_seconds: f64,
    /// The same if it had the GPU to itself.
    pub alone_seconds: f64,
    pub ended_seconds: f64,
}

impl Way {
    pub fn name(self) -> &'static str {
        match self {
            Way::Unmanaged => "unmanaged",
            Way::Managed(contender, _) => contender.name,
        }
    }

    /// In the order of the load's jobs.
    pub fn run(self, load: &Load, profile: &Profile, seed: u64) -> Result<Vec<Done>, Failed> {
        let profile = with_room(profile);
        let scenario =
            Scenario { programs: load.programs(), order: Order::Together, sharing: Sharing::TimeSliced, seed };
        let report = match self {
            Way::Unmanaged => scenario.run(&profile)?,
            Way::Managed(contender, knows) => {
                let errands = load.jobs.iter().map(|job| errand(job, knows)).collect();
                let arena = Arena::new((contender.policy)(), (contender.terms)(seed), &load.owners());
                scenario.run_managed(&profile, &mut arena.with_errands(errands))?
            }
        };
        Ok(load.jobs.iter().zip(&report.runs).map(|(job, run)| Done::of(job, run)).collect())
    }
}

impl Done {
    fn of(job: &Job, run: &Run) -> Done {
        let came = run.phases.iter().find(|(phase, ..)| *phase == Phase::Context).map_or(0, |(_, begin, _)| *begin);
        let ended = run.ended_ns();
        Done {
            tenant: job.tenant,
            judged: job.deadline.map(|deadline| judged(Unit::Task, deadline, came, ended)),
            stay_seconds: (ended - came) as f64 / NS,
            alone_seconds: job.alone.stay_ns() as f64 / NS,
            ended_seconds: ended as f64 / NS,
        }
    }
}

/// The jobs with a deadline as the offline optimum is asked about them.
pub fn for_the_optimum(load: &Load) -> Vec<bound::Job> {
    let job = |job: &Job| {
        let came = job.start_ns + job.alone.host_ns;
        let due = Mono(came) + job.deadline?.get();
        Some(bound::Job {
            ready: came + job.alone.head_ns,
            due: due.0.saturating_sub(job.alone.tail_ns),
            takes: job.alone.kernels_ns,
        })
    };
    load.jobs.iter().filter_map(job).collect()
}

/// The same if those without a deadline have their share of the GPU all the time, so that a job takes longer by that. More than it costs where
/// they do not always want it; where more comes than can be done, one of them nearly always waits.
pub fn beside_the_rest(jobs: &[bound::Job], rest: Percent) -> Vec<bound::Job> {
    let own = u64::from(100 - rest.get()).max(1);
    jobs.iter().map(|job| bound::Job { takes: job.takes * 100 / own, ..*job }).collect()
}

/// By the daemon's own arithmetic, from what really happened rather than from what could be seen of it.
pub fn judged(unit: Unit, deadline: Deadline, started: u64, ended: u64) -> Judged {
    let whose = TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(String::new()) };
    Open::new(unit, Mono(started), Evidence::Probe).judged(&whose, TaskId(1), deadline, Some(Mono(ended)))
}

pub fn terms(deadline: Deadline, unit: UnitRule) -> Terms {
    Terms { deadline, origin: Origin::Label, asked: None, unit }
}

pub fn exactly(kernels_ns: u64) -> Known {
    Spread::of([Duration::from_nanos(kernels_ns).as_secs_f64()]).map_or(Known::Nothing, Known::Exactly)
}

pub fn with_room(profile: &Profile) -> Profile {
    let mut profile = profile.clone();
    profile.gpu.memory_mib = profile.gpu.memory_mib.max(ROOM_MIB);
    profile
}

fn errand(job: &Job, knows: Knows) -> Errand {
    Errand {
        terms: job.deadline.map(|deadline| terms(deadline, UnitRule::Task)),
        kind: job.tenant,
        known: match knows {
            Knows::Nothing => Known::Nothing,
            Knows::Earlier => Known::Kind,
            Knows::Everything => exactly(job.alone.kernels_ns),
        },
    }
}
