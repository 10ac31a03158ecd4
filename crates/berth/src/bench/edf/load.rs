//! The tenants and their jobs: who sends what, when, and by when it is to be done.
//!
//! Twenty tenants of four owners, each with a program of its own that it runs again and again. A run is a *job*, in a container of its own: it
//! starts, makes a context, copies, computes for as long as its program does give or take a quarter, copies back and ends. Every fifth tenant has no
//! deadline; the others' are a factor of what the program usually takes alone, from tight to loose.
//!
//! Jobs come whether or not those before are done, so that the load is what it is said to be: kernel seconds that come in a
//! second. The same seed gives the same jobs in the same order at every load, only closer together.

use std::time::Duration;

use berth_model::Deadline;
use berth_sim::Profile;
use berth_sim::scenario::{Program, Work};

use super::alone::{Alone, Times};
use crate::bench::contention::workload::draw;

pub const TENANTS: usize = 20;
const OWNERS: usize = 4;
/// Deadline over what the program takes alone, tenant by tenant; every fifth has none.
pub const FACTORS: [f64; 4] = [1.5, 2.5, 4.0, 8.0];
/// Kernel seconds of the shortest and the longest program.
const SHORTEST: f64 = 0.4;
const LONGEST: f64 = 6.0;
/// A job computes for its program's usual time, less or more by up to this share.
const SPREAD: f64 = 0.25;
/// A kernel takes at least this long alone, so that turns and their costs are of a kind on every GPU.
const LEAST_KERNEL: f64 = 0.12;

/// Numbers that look random, the same for the same seed.
#[derive(Debug)]
pub struct Dice {
    seed: u64,
    throws: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    pub tenant: usize,
    pub start_ns: u64,
    pub rounds: u32,
    /// `None`: it is done when it is done.
    pub deadline: Option<Deadline>,
    pub alone: Times,
}

/// Jobs of all tenants.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    pub jobs: Vec<Job>,
    /// Side of the matrices of every kernel.
    n: u64,
}

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice { seed, throws: 0 }
    }

    /// One of the whole numbers from `from` to `to`.
    pub fn whole(&mut self, from: usize, to: usize) -> usize {
        self.throws += 1;
        from + usize::try_from(draw(self.seed, self.throws, (to - from) as u64 + 1)).unwrap_or(0)
    }

    /// Uniform in [from, to).
    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        const STEPS: u64 = 1 << 53;
        self.throws += 1;
        from + draw(self.seed, self.throws, STEPS) as f64 / STEPS as f64 * (to - from)
    }
}

impl Load {
    /// `share`: kernel seconds that come in a second; `each`: jobs of a tenant.
    pub fn new(share: f64, each: usize, seed: u64, profile: &Profile) -> Load {
        let mut dice = Dice::new(seed);
        let n = side(LEAST_KERNEL, 256, profile);
        let mut alone = Alone::new(profile, n);
        let kernel_ns = alone.of(1).kernels_ns;
        let rounds = |seconds: f64| {
            let nearest = (nanos(seconds) + kernel_ns / 2) / kernel_ns;
            u32::try_from(nearest).unwrap_or(u32::MAX).max(1)
        };
        let mut jobs = Vec::new();
        for tenant in 0..TENANTS {
            let usual = SHORTEST * (LONGEST / SHORTEST).powf(dice.between(0.0, 1.0));
            let usual_ns = alone.of(rounds(usual)).stay_ns();
            let deadline = tightness(tenant)
                .and_then(|class| Deadline::new(Duration::from_nanos(usual_ns).mul_f64(FACTORS[class])));
            for _ in 0..each {
                let rounds = rounds(usual * dice.between(1.0 - SPREAD, 1.0 + SPREAD));
                // A place in the time over which all come, for now.
                let place = dice.between(0.0, 1.0);
                jobs.push((place, Job { tenant, start_ns: 0, rounds, deadline, alone: alone.of(rounds) }));
            }
        }
        let work_ns: u64 = jobs.iter().map(|(_, job)| job.alone.kernels_ns).sum();
        let over_seconds = Duration::from_nanos(work_ns).as_secs_f64() / share;
        let placed = jobs.into_iter().map(|(place, job)| Job { start_ns: nanos(place * over_seconds), ..job });
        Load { jobs: placed.collect(), n }
    }

    pub fn programs(&self) -> Vec<Program> {
        let program = |job: &Job| Program { start_ns: job.start_ns, ..program(self.n, job.rounds) };
        self.jobs.iter().map(program).collect()
    }

    /// Of each job.
    pub fn owners(&self) -> Vec<String> {
        self.jobs.iter().map(|job| format!("user-{}", job.tenant % OWNERS)).collect()
    }
}

/// Which of [`FACTORS`] a tenant's deadline is by; `None` without one.
pub fn tightness(tenant: usize) -> Option<usize> {
    Some(tenant % (FACTORS.len() + 1)).filter(|class| *class < FACTORS.len())
}

pub fn program(n: u64, rounds: u32) -> Program {
    Program::of(Work::Training { n, rounds, gap_ns: 0 })
}

/// Side of the smallest matrices, in whole steps, whose product takes that long alone.
pub fn side(seconds: f64, step: usize, profile: &Profile) -> u64 {
    let flops = seconds * profile.compute.gflops * 1e9;
    let takes_long_enough = |n: &u64| 2.0 * (*n as f64).powi(3) >= flops;
    (step..).step_by(step).map(|n| n as u64).find(takes_long_enough).expect("there is always a larger matrix")
}

pub fn nanos(seconds: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(share: f64) -> Load {
        Load::new(share, 6, 1, &Profile::builtin("rtx3090").unwrap())
    }

    #[test]
    fn the_load_is_what_it_is_said_to_be() {
        for share in [0.5, 1.1] {
            let load = load(share);
            let work: u64 = load.jobs.iter().map(|job| job.alone.kernels_ns).sum();
            let over = load.jobs.iter().map(|job| job.start_ns).max().unwrap();
            let reached = work as f64 / over as f64;
            assert!((reached / share - 1.0).abs() < 0.03, "{reached} of {share}: the last of many comes near the end");
        }
    }

    #[test]
    fn the_same_jobs_come_at_every_load_in_the_same_order() {
        let order = |load: &Load| {
            let mut jobs: Vec<&Job> = load.jobs.iter().collect();
            jobs.sort_by_key(|job| job.start_ns);
            jobs.iter().map(|job| (job.tenant, job.rounds, job.deadline)).collect::<Vec<_>>()
        };
        assert_eq!(order(&load(0.5)), order(&load(1.1)));
    }

    #[test]
    fn every_deadline_can_be_met_alone_and_every_fifth_tenant_has_none() {
        let load = load(0.5);
        for job in &load.jobs {
            assert_eq!(job.deadline.is_none(), job.tenant % 5 == 4);
            assert!(
                job.deadline.is_none_or(|deadline| deadline.get().as_nanos() > job.alone.stay_ns().into()),
                "{job:?}"
            );
        }
        assert_eq!(load.jobs.len(), 120);
    }
}
