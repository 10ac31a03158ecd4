//! Measurements a person can repeat: each prints a table, or everything as JSON.
//!
//! `detect` judges the monitor by the workload's own clock: how well each moment is dated, how soon it is told, what
//! watching costs the host, and what it costs the tenants. `deadline` does so for containers with deadlines, and judges the
//! verdicts. `contention` makes tenants contend for a simulated GPU in virtual time, unmanaged and under each policy, and `edf` counts
//! the deadlines they miss there; `live` does the same as `contention` with real processes and a real daemon. `hold` measures the
//! means themselves: how soon a tenant stands still, and how soon it runs again. `placement` counts the deadlines that are missed on a
//! simulated cluster, and `nodes` says what a list of its nodes costs. `watch` draws figures over time with faults in them, and counts which
//! are noticed. `colocate` has a server and a trainer share a GPU in every way there is,
//! and `launch` says what a launch costs with berth's library in a program. `policy` and `squads` measure in virtual time who runs inside a GPU.

pub mod colocate;
pub mod contention;
pub mod daemon;
pub mod deadline;
pub mod detect;
pub mod edf;
pub mod hold;
pub mod launch;
pub mod live;
pub mod machine;
pub mod nodes;
pub mod placement;
pub mod policy;
pub mod quantiles;
pub mod report;
pub mod seen;
pub mod slowdown;
pub mod squads;
pub mod tenant;
pub mod tenants;
pub mod truth;
pub mod watch;
