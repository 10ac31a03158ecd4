//! Tenants on a GPU in virtual time, ordered by a policy or by what policies are measured against.
//!
//! The world is `berth_sim::scenario::kernels`; the policies are those of the daemon. What a policy is told is what the daemon could know:
//! estimates of work are off by some percent, interference and attainment are learned as the run goes on.

pub mod steward;
pub mod tenant;
pub mod ways;

pub use steward::Managed;
pub use tenant::Tenant;
pub use ways::Way;

use berth_sim::scenario::kernels::{self, Machine, Program, Report};

/// Nanoseconds, and whatever else is counted whole.
#[expect(clippy::cast_possible_truncation, reason = "a float that is cast saturates")]
pub fn whole(number: f64) -> u64 {
    number as u64
}

/// Runs tenants one way until all is done, or to `until_ns`.
pub fn run(machine: &Machine, tenants: &[Tenant], way: &Way, until_ns: Option<u64>) -> Report {
    let programs: Vec<Program> = tenants.iter().map(|tenant| tenant.program.clone()).collect();
    kernels::run(machine, &programs, way.steward(machine, tenants).as_mut(), until_ns)
}
