//! The policies at work on a small model of a host: golden traces, and laws that hold for any mix of tenants.

#[path = "policies/deadlines.rs"]
mod deadlines;
#[path = "policies/golden.rs"]
mod golden;
#[path = "policies/host.rs"]
mod host;
#[path = "policies/laws.rs"]
mod laws;
#[path = "policies/mixes.rs"]
mod mixes;
#[path = "policies/units.rs"]
mod units;
