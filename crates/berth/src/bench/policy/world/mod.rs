//! Tenants on a GPU in virtual time, ordered by a policy or by what policies are measured against.
//!
//! The world is `berth_sim::scenario::kernels`, whose GPU is the simulator's engine: how fast two get on side by side comes from its SMs, waves and
//! bandwidth, and no policy's formula is in it. The policies are those of the daemon; `known` is what they are told, which is what libraries write
//! down and some of which is wrong.

pub mod known;
pub mod steward;
pub mod tenant;
pub mod ways;

pub use tenant::Tenant;
pub use ways::Way;

use berth_sim::scenario::kernels::{self, Machine, Program, Report};
use berth_sim::{Profile, Sharing};

/// Nanoseconds, and whatever else is counted whole.
#[expect(clippy::cast_possible_truncation, reason = "a float that is cast saturates")]
pub fn whole(number: f64) -> u64 {
    number as u64
}

/// An H200 on which kernels of different processes run at the same time, or one that gives each process slices of 2 ms.
pub fn h200(sharing: Sharing) -> Machine {
    let profile = Profile::builtin("h200").unwrap_or_else(|error| unreachable!("it is built in: {error}"));
    Machine::new(profile, sharing)
}

/// Runs tenants one way until all is done, or to `until_ns`. A way that is the driver's own has its GPU.
pub fn run(machine: &Machine, tenants: &[Tenant], way: &Way, until_ns: Option<u64>) -> Report {
    let programs: Vec<Program> = tenants.iter().map(|tenant| tenant.program.clone()).collect();
    let sharing = if *way == Way::Temporal { Sharing::TimeSliced } else { machine.sharing };
    // Who has its part for ever has made it before.
    let split_ns = if *way == Way::Static { 0 } else { machine.split_ns };
    let machine = Machine { sharing, split_ns, ..machine.clone() };
    kernels::run(&machine, &programs, way.steward(&machine, tenants).as_mut(), until_ns)
}
