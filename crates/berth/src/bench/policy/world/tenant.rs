//! Tenants of a run: what they do, and what they were promised.

use std::time::Duration;

use berth_model::Slo;
use berth_sim::scenario::kernels::{Account, Done, Kernel, Program, Request};

use super::whole;
use crate::bench::edf::load::Dice;

/// Kernels are this long, give or take half.
const KERNEL_NS: f64 = 80_000.0;
/// The shortest, with its launch.
const LEAST_NS: f64 = 5_000.0;

#[derive(Debug, Clone)]
pub struct Tenant {
    pub owner: String,
    pub slo: Slo,
    pub program: Program,
}

/// How a tenant's kernels use the GPU.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub demand: f64,
    pub bandwidth: f64,
}

impl Tenant {
    pub fn new(owner: usize, slo: Slo, requests: Vec<Request>) -> Self {
        Self { owner: format!("user{owner}"), slo, program: Program { requests } }
    }

    /// Whether a request was done in time, from when it came.
    pub fn is_in_time(&self, done: &Done) -> bool {
        self.slo.within().is_none_or(|within| Duration::from_nanos(done.done_ns - done.came_ns) <= within)
    }

    /// Requests that were not in time: those that are not done were not.
    pub fn late(&self, account: &Account) -> usize {
        self.program.requests.len() - account.finished.iter().filter(|done| self.is_in_time(done)).count()
    }

    /// Requests that may be late without its goal being missed.
    pub fn may_miss(&self) -> usize {
        let count = self.program.requests.len();
        let misses = (1.0 - self.slo.target().get()) * count as f64;
        usize::try_from(whole(misses + 1e-6)).unwrap_or(0)
    }
}

/// One request of about `alone_ns` in kernels of usual lengths.
pub fn request(dice: &mut Dice, at_ns: u64, alone_ns: f64, kind: Kind) -> Request {
    let count = (alone_ns / KERNEL_NS).round().clamp(1.0, 12.0);
    let rounds = (alone_ns / (count * KERNEL_NS)).round().max(1.0);
    let mean = alone_ns / count / rounds;
    let kernel = |_| Kernel {
        alone_ns: whole((mean * dice.between(0.5, 1.5)).max(LEAST_NS)),
        demand: (kind.demand * dice.between(0.9, 1.1)).clamp(0.05, 1.0),
        bandwidth: (kind.bandwidth * dice.between(0.9, 1.1)).clamp(0.0, 1.0),
    };
    let kernels = (0..whole(count)).map(kernel).collect();
    Request { at_ns, rounds: u32::try_from(whole(rounds)).unwrap_or(u32::MAX), kernels }
}

/// Requests of the same kind that come `gap_ns` apart: at random, or regularly but for a jitter.
pub fn stream(dice: &mut Dice, until_ns: f64, gap_ns: f64, random: bool, alone_ns: f64, kind: Kind) -> Vec<Request> {
    let model = request(dice, 0, alone_ns, kind);
    let mut at = dice.between(0.0, gap_ns);
    let mut all = Vec::new();
    while at < until_ns {
        all.push(Request { at_ns: whole(at), ..model.clone() });
        let gap = if random { -(1.0 - dice.between(0.0, 1.0)).ln() } else { dice.between(0.9, 1.1) };
        at += gap_ns * gap;
    }
    all
}
