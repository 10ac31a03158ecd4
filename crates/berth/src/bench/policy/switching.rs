//! The policy changed again and again while work runs: nothing is lost, nobody stands for ever, and how much slower it gets.
//!
//! What programs launched is their own count, what ran is the GPU's: a launch that never comes there is not made up for by anything in between.

use berth_model::settings::KernelPolicyName;
use berth_sim::Sharing;
use berth_sim::scenario::kernels::{Machine, Report};
use serde::Serialize;

use super::mixture;
use super::world::{self, Tenant, Way, h200};

/// Longer no kernel of these is; nobody can stop one.
const LONGEST_KERNEL_MS: f64 = 0.2;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Switched {
    /// How often the policy was changed.
    pub switches: u64,
    pub kernels: u64,
    /// Kernels that were to be and were not launched, and that were launched and did not run, or ran twice.
    pub lost: u64,
    /// Work was left that nobody could begin.
    pub is_stuck: bool,
    /// The longest time a tenant had work of which nothing ran, in milliseconds, and the most it may be.
    pub longest_wait_ms: f64,
    pub bound_ms: f64,
    /// Time until all was done, over that under `hybrid` alone.
    pub over_one_policy: f64,
}

/// With another policy at every plan, until all work is done.
pub fn measure(seconds: f64, seed: u64) -> Switched {
    measure_on(&h200(Sharing::Mps), seconds, seed)
}

pub fn measure_on(machine: &Machine, seconds: f64, seed: u64) -> Switched {
    let tenants = mixture::tenants(seconds, seed);
    let run = |way: Way| world::run(machine, &tenants, &way, None);
    let (switching, one) = (run(Way::Switching), run(Way::policy(KernelPolicyName::Hybrid)));
    let longest = switching.programs.iter().map(|account| account.longest_wait_ns).max().unwrap_or(0);
    Switched {
        switches: switching.orders,
        kernels: tenants.iter().map(kernels).sum(),
        lost: lost(&tenants, &switching),
        is_stuck: switching.is_stuck,
        longest_wait_ms: longest as f64 / 1e6,
        bound_ms: bound_ms(machine, tenants.len()),
        over_one_policy: switching.ended_ns as f64 / one.ended_ns as f64,
    }
}

fn kernels(tenant: &Tenant) -> u64 {
    tenant.program.requests.iter().map(|request| request.kernel_count()).sum()
}

/// Of a run to the end.
pub fn lost(tenants: &[Tenant], report: &Report) -> u64 {
    let each = tenants.iter().zip(&report.programs);
    each.map(|(tenant, account)| kernels(tenant).abs_diff(account.launched) + account.launched.abs_diff(account.on_gpu))
        .sum()
}

/// What `squad::longest_wait` allows, and for each turn that is waited for what a look, a plan and a kernel that runs take.
pub fn bound_ms(machine: &Machine, tenants: usize) -> f64 {
    let settings = berth_model::settings::KernelSettings::default();
    let waits = berth_policy::kernels::squad::longest_wait(tenants, &settings).as_secs_f64() * 1e3;
    let turn = (machine.look_every_ns + machine.plan_ns + machine.grain_ns) as f64 / 1e6 + LONGEST_KERNEL_MS;
    waits + turn * tenants as f64
}
