//! Programs of many kernels on one GPU, in virtual time, with somebody who says who may run: a world for policies at the level of kernels.
//!
//! A fluid model beside the engine, small enough for thousands of runs. A [`Program`] is a process with one stream: requests come, each a
//! sequence of [`Kernel`]s with its time alone, the part of the SMs it can use and the part of the memory bandwidth. A [`Steward`] is asked
//! now and then and answers with an [`Order`]; it acts as it would on a host:
//! - a kernel that runs is never stopped, and a program looks at its stops only after [`Machine::grain_ns`] of work, at a cost;
//! - an order counts [`Machine::plan_ns`] after it was asked for; a stop that is lifted is noticed after [`Machine::resume_ns`];
//! - one that leads stops those who yield to it at once, by itself, and until it has been idle for [`Machine::linger_ns`].
//!
//! How kernels share the GPU at the same time is in `rates`. Contexts, copies and memory are not modelled: what is asked here is in which order
//! kernels run.

mod rates;
mod run;
#[cfg(test)]
mod tests;

pub use run::run;

/// What a GPU and its host cost. Defaults are figures of an H200.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Kernels of different programs run at the same time (MPS); otherwise they take slices.
    pub concurrent: bool,
    /// Programs can be confined to a part of the SMs.
    pub divides: bool,
    pub grain_ns: u64,
    /// GPU time of one look at the stops.
    pub look_ns: u64,
    pub resume_ns: u64,
    pub linger_ns: u64,
    pub plan_ns: u64,
    /// Part of its speed that a program loses for each neighbour that uses memory as much as it does.
    pub cache: f64,
}

/// One kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    pub alone_ns: u64,
    /// Part of the SMs it can use, above 0.
    pub demand: f64,
    /// Part of the memory bandwidth it uses alone.
    pub bandwidth: f64,
}

/// So many rounds of the same kernels, from `at_ns` on or when those before it are done.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub at_ns: u64,
    pub rounds: u32,
    pub kernels: Vec<Kernel>,
}

/// One process.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// In the order in which they come.
    pub requests: Vec<Request>,
}

/// Decides who may run.
pub trait Steward {
    fn order(&mut self, sight: &Sight<'_>) -> Order;
}

/// What a steward sees.
#[derive(Debug)]
pub struct Sight<'a> {
    pub now_ns: u64,
    /// In the order of the programs.
    pub programs: &'a [Seen],
}

/// One program, as its ledger tells.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seen {
    /// It has work, running or waiting.
    pub busy: bool,
    /// Since when it has work of which nothing runs.
    pub waiting_since_ns: Option<u64>,
    /// The request under way: its place in the program, when it came, and what of it is done, as if alone.
    pub request: Option<usize>,
    pub came_ns: u64,
    pub done_ns: u64,
    /// Done in all, as if alone.
    pub served_ns: u64,
    /// Since the last order: time in which a kernel of it ran, and what that did, as if alone.
    pub ran_ns: f64,
    pub got_ns: f64,
    /// Requests done since the last order: place, when it came, when it was done.
    pub finished: Vec<Done>,
}

/// A request that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub request: usize,
    pub came_ns: u64,
    pub done_ns: u64,
}

/// What is to be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Order {
    /// Who may begin kernels.
    pub members: Vec<Part>,
    /// `(who, to)`.
    pub yields: Vec<(usize, usize)>,
    /// The steward is asked again then, or when somebody has come or is done.
    pub until_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    pub program: usize,
    /// Part of the SMs it is confined to, and until when; `None`: it may use all.
    pub confined: Option<(f64, u64)>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    pub ended_ns: u64,
    /// Orders that were given.
    pub orders: u64,
    /// In the order of the programs.
    pub programs: Vec<Account>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    pub finished: Vec<Done>,
    /// Kernels that were begun, and that ended.
    pub begun: u64,
    pub ended: u64,
    /// Kernels that ended, in GPU time alone.
    pub served_ns: u64,
    /// The longest time it had work of which nothing ran.
    pub longest_wait_ns: u64,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            concurrent: true,
            divides: true,
            grain_ns: 100_000,
            look_ns: 1_900,
            resume_ns: 10_000,
            linger_ns: 50_000,
            plan_ns: 50_000,
            cache: 0.05,
        }
    }
}

impl Request {
    /// GPU time of all its kernels, alone.
    pub fn alone_ns(&self) -> u64 {
        self.kernels.iter().map(|kernel| kernel.alone_ns).sum::<u64>() * u64::from(self.rounds)
    }

    pub fn kernel_count(&self) -> u64 {
        self.kernels.len() as u64 * u64::from(self.rounds)
    }

    fn kernel(&self, place: u64) -> Option<Kernel> {
        if place >= self.kernel_count() {
            return None;
        }
        self.kernels.get(usize::try_from(place % self.kernels.len() as u64).ok()?).copied()
    }
}
