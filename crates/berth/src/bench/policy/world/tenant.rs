//! Tenants of a run: what they do, what they were promised, and what is known of them.

use std::time::Duration;

use berth_model::Slo;
use berth_policy::kernels::Profile;
use berth_sim::scenario::kernels::{Account, Done, Kernel, Program, Request};

use super::whole;
use crate::bench::edf::load::Dice;

/// Kernels are this long, give or take half.
const KERNEL_NS: f64 = 80_000.0;

#[derive(Debug, Clone)]
pub struct Tenant {
    pub owner: String,
    pub slo: Slo,
    pub program: Program,
    /// What units of work are taken to need, over what they need.
    pub estimate: f64,
}

/// How a tenant's kernels use the GPU.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub demand: f64,
    pub bandwidth: f64,
}

impl Tenant {
    pub fn new(owner: usize, slo: Slo, requests: Vec<Request>) -> Self {
        Self { owner: format!("user{owner}"), slo, program: Program { requests }, estimate: 1.0 }
    }

    /// What the daemon's profile would say.
    pub fn profile(&self) -> Profile {
        let kernels = || self.program.requests.iter().take(8).flat_map(|request| &request.kernels);
        let mean = |of: fn(&Kernel) -> f64| {
            let weighted: f64 = kernels().map(|kernel| of(kernel) * kernel.alone_ns as f64).sum();
            weighted / kernels().map(|kernel| kernel.alone_ns as f64).sum::<f64>().max(1.0)
        };
        let serves = self.program.requests.len() > 1;
        let usual = self.program.requests.first().map(|request| self.told(request));
        Profile {
            kernel: Some(Duration::from_nanos(whole(mean(|kernel| kernel.alone_ns as f64)))),
            longest: kernels().map(|kernel| Duration::from_nanos(kernel.alone_ns)).max(),
            request: usual.filter(|_| serves),
            demand: Some(mean(|kernel| kernel.demand)),
            bandwidth: Some(mean(|kernel| kernel.bandwidth)),
        }
    }

    /// What a request is taken to need.
    pub fn told(&self, request: &Request) -> Duration {
        Duration::from_nanos(request.alone_ns()).mul_f64(self.estimate)
    }

    /// Whether a request kept what was promised of single ones.
    pub fn is_in_time(&self, done: &Done) -> bool {
        self.slo.within().is_none_or(|within| Duration::from_nanos(done.done_ns - done.came_ns) <= within)
    }

    /// Share of its requests that were in time; those that are not done were not.
    pub fn attained(&self, account: &Account) -> f64 {
        let in_time = account.finished.iter().filter(|done| self.is_in_time(done)).count();
        in_time as f64 / self.program.requests.len().max(1) as f64
    }
}

/// One request of about `alone_ns` in kernels of usual lengths.
pub fn request(dice: &mut Dice, at_ns: u64, alone_ns: f64, kind: Kind) -> Request {
    let count = (alone_ns / KERNEL_NS).round().clamp(1.0, 12.0);
    let rounds = (alone_ns / (count * KERNEL_NS)).round().max(1.0);
    let mean = alone_ns / count / rounds;
    let kernel = |_| Kernel {
        alone_ns: whole((mean * dice.between(0.5, 1.5)).max(1_000.0)),
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
