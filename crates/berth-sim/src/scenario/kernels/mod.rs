//! Programs of many kernels on one GPU, in virtual time, with somebody who says who may run: a world for policies at the level of kernels.
//!
//! The GPU is the [`Engine`](crate::Engine): SMs, waves of blocks, memory bandwidth, time slices and launch costs are its, and nothing here says how fast
//! two get on side by side. A [`Program`] is a process with a context and one stream: requests come, each a sequence of [`Kernel`]s. A
//! [`Steward`] looks at them now and then and answers with an [`Order`]; what it wants is done as berth's library does it in a program:
//! - kernels go to the GPU in pieces of [`Machine::grain_ns`] of work; between two of them the program looks at its stops, at a cost if it has any;
//!   a kernel that runs is never stopped;
//! - a stop that is lifted is noticed after [`Machine::resume_ns`]; the next of a queue of requests comes [`Machine::gap_ns`] after the one before;
//! - being confined to other SMs than the last time takes [`Machine::split_ns`], in which it begins nothing;
//! - one that leads stops those who yield to it at once, by itself, and until it has been idle for [`Machine::linger_ns`];
//! - the steward looks every [`Machine::look_every_ns`], and what it orders counts [`Machine::plan_ns`] later.
//!
//! What it sees is what a program's library would write down: whether there is work and since when, what was done, some pieces of work with
//! the time they took. Copies and memory are not modelled: what is asked here is in which order kernels run.

mod client;
mod run;
#[cfg(test)]
mod tests;

use berth_proto::sim::KernelCost;

use crate::engine::{Sharing, nanos};
use crate::profile::Profile;

pub use run::run;

/// One piece of work in so many is measured.
const SAMPLE_EVERY: u64 = 32;
/// Kernels that fill the GPU do so this many times over, as most do.
const WAVES: u64 = 4;

/// A GPU, and what acting on it costs. The costs are figures of an H200, but for [`Machine::split_ns`], which nobody has measured there: it is a guess.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub profile: Profile,
    pub sharing: Sharing,
    pub grain_ns: u64,
    /// Time of one look at the stops, in which the program's stream has nothing to do.
    pub stop_ns: u64,
    pub resume_ns: u64,
    pub gap_ns: u64,
    /// What it costs a program to be confined to other SMs than the last time: a context, made by the thread that launches.
    pub split_ns: u64,
    pub linger_ns: u64,
    pub look_every_ns: u64,
    pub plan_ns: u64,
    /// The launch of that number never comes to the GPU: to see that it is noticed.
    pub loses: Option<u64>,
}

/// One kernel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kernel {
    /// With its launch.
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
    /// What is to be from now on; `None`: what was.
    fn look(&mut self, sight: &Sight<'_>) -> Option<Order>;
}

/// What a steward sees.
#[derive(Debug)]
pub struct Sight<'a> {
    pub now_ns: u64,
    /// In the order of the programs.
    pub programs: &'a [Seen],
}

/// One program, as its library writes it down.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Seen {
    /// It has work, running or waiting.
    pub busy: bool,
    /// When the request under way was begun, or the last was done. How long it stood in the program's own queue is not told.
    pub since_ns: u64,
    /// No stop keeps it from beginning anything now.
    pub may_run: bool,
    /// Since the last look: requests that were done, and pieces of work that were measured.
    pub finished: Vec<Done>,
    pub samples: Vec<Sample>,
}

/// A request that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    pub request: usize,
    /// When it came, when it was begun, when it was done.
    pub came_ns: u64,
    pub began_ns: u64,
    pub done_ns: u64,
}

/// A piece of work that was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub began_ns: u64,
    pub took_ns: u64,
    /// What it takes alone with all SMs.
    pub alone_ns: u64,
    /// Part of the SMs its kernels can use.
    pub demand: f64,
}

/// What is to be.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Order {
    /// Who may begin kernels.
    pub members: Vec<Part>,
    /// `(who, to)`.
    pub yields: Vec<(usize, usize)>,
    /// Those whose words go down the moment they are idle.
    pub no_linger: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    pub program: usize,
    /// SMs it is confined to, and until when; `None`: it may use all.
    pub confined: Option<Confined>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    pub first: u32,
    pub count: u32,
    pub until_ns: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Report {
    pub ended_ns: u64,
    /// Looks of the steward, and orders it gave.
    pub looks: u64,
    pub orders: u64,
    /// Somebody had work and nobody could begin any, for ever.
    pub is_stuck: bool,
    /// In the order of the programs.
    pub programs: Vec<Account>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Account {
    pub finished: Vec<Done>,
    /// Kernels the program launched, by its own count, and that ended on the GPU, by the GPU's.
    pub launched: u64,
    pub on_gpu: u64,
    /// What is done, in GPU time alone.
    pub served_ns: u64,
    /// The longest time it had work of which nothing was on the GPU.
    pub longest_wait_ns: u64,
}

impl Machine {
    pub fn new(profile: Profile, sharing: Sharing) -> Self {
        Self {
            profile,
            sharing,
            grain_ns: 100_000,
            stop_ns: 1_900,
            resume_ns: 10_000,
            gap_ns: 25_000,
            split_ns: 2_000_000,
            linger_ns: 50_000,
            look_every_ns: 500_000,
            plan_ns: 50_000,
            loses: None,
        }
    }
}

impl Kernel {
    /// What it costs on a GPU, so that it takes `alone_ns` there.
    fn cost(&self, profile: &Profile) -> KernelCost {
        let compute = &profile.compute;
        let busy_ns = (self.alone_ns as f64 - compute.launch_us * 1e3).max(0.0);
        let room = u64::from(profile.gpu.sm_count) * u64::from(profile.gpu.blocks_per_sm);
        let blocks = nanos(room as f64 * self.demand).clamp(1, room);
        let demand = blocks as f64 / room as f64;
        let blocks = if blocks < room { blocks } else { room * WAVES };
        let widest = (demand / compute.memory_sms).min(1.0);
        KernelCost {
            flops: busy_ns * demand * compute.gflops,
            bytes: busy_ns * self.bandwidth.clamp(0.0, widest) * compute.bandwidth_gbps,
            blocks,
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
