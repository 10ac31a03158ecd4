//! Small programs run against an engine in virtual time: how long do k processes take, and where does the time go.
//!
//! The programs are the workloads such measurements use, made of a square FP32 matrix product in phases: start, host arrays, context,
//! allocation, two inputs, kernel, one output, free, teardown; once, repeated, in small requests, or once and then idle. What
//! the host side costs is the profile's `host` section. An [`Order`] says what the processes wait for outside the GPU, a
//! [`Manager`] may make them stand still; how they share the GPU is the engine's [`Sharing`].
//!
//! It does not model the host's own contention (cores, memory bandwidth): the measured tables do not ask for it.

pub mod kernels;
mod manager;
mod process;
mod program;
mod runner;
mod spent;
#[cfg(test)]
mod tests;

pub use manager::{Command, Manager, Passage, Sight, Unmanaged};
pub use program::{Phase, Program, Work};
pub use runner::FIRST_PID;
pub use spent::Spent;

use crate::engine::{Engine, Sharing};
use crate::profile::Profile;

/// What the processes wait for before they start or compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Each process starts when the one before it has ended.
    OneByOne,
    /// All start at once and nothing holds them.
    Together,
    /// All start at once; a lock, first come first served, is held around each kernel and around nothing else.
    KernelsOneByOne,
}

#[derive(Debug, Clone)]
pub struct Scenario {
    pub programs: Vec<Program>,
    pub order: Order,
    pub sharing: Sharing,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// From the first start to the last end.
    pub total_ns: u64,
    /// In the order of [`Scenario::programs`].
    pub runs: Vec<Run>,
    pub spent: Spent,
}

/// One process's life.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// Begin and end of each phase it went through, in order.
    pub phases: Vec<(Phase, u64, u64)>,
    /// How often a manager made it stand still, and for how long in all.
    pub holds: u32,
    pub held_ns: u64,
}

/// A program was refused something by the simulated driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("program {program} failed in phase {phase:?} with CUresult {code}")]
pub struct ProgramFailed {
    pub program: usize,
    pub phase: Phase,
    pub code: u32,
}

/// A managed scenario did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    #[error(transparent)]
    Program(#[from] ProgramFailed),
    #[error("{waiting} processes stand still since {at_ns} ns and nobody lets them go")]
    Stuck { at_ns: u64, waiting: usize },
}

impl Scenario {
    /// `count` equal products.
    pub fn of(count: usize, n: u64, order: Order, sharing: Sharing) -> Scenario {
        Scenario { programs: vec![Program::product(n); count], order, sharing, seed: 1 }
    }

    pub fn run(&self, profile: &Profile) -> Result<Report, ProgramFailed> {
        self.run_managed(profile, &mut Unmanaged).map_err(|failed| match failed {
            Failed::Program(failed) => failed,
            Failed::Stuck { .. } => unreachable!("a process waits for the host, the engine, or a turn someone holds"),
        })
    }

    /// With `manager` looking on. Turns of an [`Order`] and a manager that stops processes do not know of each other.
    pub fn run_managed(&self, profile: &Profile, manager: &mut dyn Manager) -> Result<Report, Failed> {
        let devices = self.programs.iter().map(|program| program.device + 1).max().unwrap_or(1);
        let engine = Engine::with_sharing(profile.clone(), devices, self.seed, self.sharing);
        runner::Runner::new(engine, self, manager).run()
    }
}

impl Report {
    /// Mean length of a phase over all runs.
    pub fn mean_ns(&self, phase: Phase) -> f64 {
        let total: u64 = self.runs.iter().map(|run| run.ns(phase)).sum();
        total as f64 / self.runs.len() as f64
    }

    /// Mean time from the first start to a run's end.
    pub fn mean_completion_ns(&self) -> f64 {
        let total: u64 = self.runs.iter().map(Run::ended_ns).sum();
        total as f64 / self.runs.len() as f64
    }
}

impl Run {
    /// Length of a phase; 0 when the run never came to it.
    pub fn ns(&self, phase: Phase) -> u64 {
        self.phases.iter().filter(|(of, ..)| *of == phase).map(|(_, begin, end)| end - begin).sum()
    }

    pub fn ended_ns(&self) -> u64 {
        self.phases.last().map_or(0, |(.., end)| *end)
    }
}
