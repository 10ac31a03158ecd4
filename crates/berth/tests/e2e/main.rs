//! berth as a whole, everything real except the silicon: the built binary as daemon, commands and tenants, the simulated
//! driver in a process of its own, real cgroups and containers.
//!
//! `support` is the stage: each test has its own directory, simulator, daemon and cgroups, and leaves nothing behind. The
//! rest are the claims. Tests wait for what they expect with a deadline no healthy run comes near, and take the time of
//! things from those who did them, never from how long a wait was.
//!
//! Needs root (cgroups) and the simulated libraries beside the binary (`cargo build --workspace`).

// A panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod support;

mod bad_input;
mod bench;
mod bench_deadline;
mod bench_holds;
mod changed_gpus;
mod colocate;
mod contained;
mod containers;
mod contract;
mod deadlines;
mod demo;
mod edf;
mod faults;
mod held_containers;
mod history;
mod holds;
mod judging;
mod kernels;
mod kernels_containers;
mod killed;
mod killed_with_containers;
mod life_cycle;
mod memory;
mod metrics;
mod node_report;
mod on_record;
mod pods;
mod replaced;
mod reused_pid;
mod rules;
mod scripts;
mod shown_deadlines;
mod stand_in;
mod still_clients;
mod stopping;
mod swarm;
mod systemd;
mod task_table;
mod unprivileged;
mod untouched;
mod watch;
