//! The policy changed again and again while work runs: nothing is lost, and how much slower it gets.

use berth_sim::scenario::kernels::{Machine, Report};
use serde::Serialize;

use super::mixture;
use super::world::{self, Tenant, Way};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Switched {
    /// How often the policy was changed.
    pub switches: u64,
    pub kernels: u64,
    /// Kernels that were not run, or not exactly once.
    pub lost: u64,
    /// The longest time a tenant had work of which nothing ran, in milliseconds, and the most it may be.
    pub longest_wait_ms: f64,
    pub bound_ms: f64,
    /// Time until all was done, over that under `hybrid` alone.
    pub over_one_policy: f64,
}

/// With another policy at every `every`th plan, until all work is done.
pub fn measure(seconds: f64, every: u64, seed: u64) -> Switched {
    let tenants = mixture::tenants(seconds, seed);
    let machine = Machine::default();
    let run = |way: Way| world::run(&machine, &tenants, &way, None);
    let (switching, one) =
        (run(Way::Switching(every)), run(Way::policy(berth_model::settings::KernelPolicyName::Hybrid)));
    let kernels = tenants.iter().map(kernels).sum();
    let longest = switching.programs.iter().map(|account| account.longest_wait_ns).max().unwrap_or(0);
    Switched {
        switches: switching.orders / every.max(1),
        kernels,
        lost: lost(&tenants, &switching),
        longest_wait_ms: longest as f64 / 1e6,
        bound_ms: bound_ms(&tenants),
        over_one_policy: switching.ended_ns as f64 / one.ended_ns as f64,
    }
}

fn kernels(tenant: &Tenant) -> u64 {
    tenant.program.requests.iter().map(|request| request.kernel_count()).sum()
}

fn lost(tenants: &[Tenant], report: &Report) -> u64 {
    let each = tenants.iter().zip(&report.programs);
    each.map(|(tenant, account)| kernels(tenant).abs_diff(account.ended) + account.begun.abs_diff(account.ended)).sum()
}

/// What `squad::longest_wait` allows, and the longest kernel of everybody, which nobody can stop.
pub fn bound_ms(tenants: &[Tenant]) -> f64 {
    let settings = berth_model::settings::KernelSettings::default();
    let waits = berth_policy::kernels::squad::longest_wait(tenants.len(), &settings);
    let longest = tenants.iter().filter_map(|tenant| tenant.profile().longest).max().unwrap_or_default();
    (waits + longest * u32::try_from(tenants.len()).unwrap_or(1)).as_secs_f64() * 1e3
}
