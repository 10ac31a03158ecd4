//! The seam for whoever manages the processes of a scenario from outside: it is told what they do and makes them stand still.
//!
//! The scenario knows no policy and no mechanism. A [`Manager`] is told of every [`Sight`] at the instant it happens; how
//! much of it a real observer would see, how late, and how long its hands take is the manager's to model.

use berth_proto::sim::CheckpointOp;

use crate::engine::Engine;

/// Someone outside the processes. Processes are named by their place in the scenario.
pub trait Manager {
    /// A process does something that could be noticed.
    fn saw(&mut self, now: u64, process: usize, sight: Sight) -> Passage;

    /// When it wants to act by itself; `None`: only after the next sight.
    fn next_event(&self) -> Option<u64>;

    /// Asked after everything that happens at one instant has happened; may be asked again at the same instant.
    fn act(&mut self, engine: &Engine) -> Vec<Command>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// It is about to call the driver for the first time.
    Initialises,
    ContextReady,
    /// It is about to ask for memory.
    Allocates {
        bytes: u64,
    },
    /// It is about to launch a kernel.
    Launches,
    /// A call that waits for the GPU has returned: nothing of it runs.
    Drained,
    ContextGone,
    Exited,
    /// The driver has answered what a [`Command::Driver`] asked about it.
    DriverAnswered {
        done: bool,
    },
}

/// What being seen does to the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// It goes on after this long.
    On { after_ns: u64 },
    /// It stands still where it is, until [`Command::Go`]. After [`Sight::Exited`] there is nobody to stop.
    Stop,
}

/// What a manager does to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Its threads stand still. What it has submitted to the GPU runs on.
    Stop(usize),
    Go(usize),
    /// The driver's lock and checkpoint.
    Driver(usize, CheckpointOp),
}

/// Nobody manages anything.
#[derive(Debug, Default)]
pub struct Unmanaged;

impl Passage {
    pub const AT_ONCE: Passage = Passage::On { after_ns: 0 };
}

impl Manager for Unmanaged {
    fn saw(&mut self, _: u64, _: usize, _: Sight) -> Passage {
        Passage::AT_ONCE
    }

    fn next_event(&self) -> Option<u64> {
        None
    }

    fn act(&mut self, _: &Engine) -> Vec<Command> {
        Vec::new()
    }
}
