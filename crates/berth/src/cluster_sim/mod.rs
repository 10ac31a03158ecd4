//! A cluster in virtual time: nodes with GPUs, containers that come, and a placer that sees only what nodes report.
//!
//! Pure: no clock, no threads, no output; the same [`Setup`] gives the same [`Outcome`]. `demand` says what comes, `gpu` and `order` what a
//! GPU does with what it has, `node` what a node says of itself, `placer` who goes where, `run` lets time pass. The list of nodes is
//! the product's own (`berth_policy::nodes`).
//!
//! *When a deadline counts.* A task's runs from when it comes to the cluster, while it waits for a place and while it is on its GPU; what its
//! engine takes to start it is added. Who is refused waits and is offered again, each second, with what is left of its deadline; when that
//! is over it is missed, and it is offered without one, so that its work is done whoever places. A request to one that serves comes at its
//! time whether or not the server has a place by then, and is missed if nobody has answered when it is due.
//!
//! *What is left out:* containers on several GPUs, traffic of images and data, and that one beside another slows it.

mod agenda;
mod cluster;
mod demand;
mod dice;
mod gpu;
mod life;
mod node;
mod order;
mod outcome;
mod placer;
mod run;
mod score;
#[cfg(test)]
mod tests;

use std::time::Duration;

use berth_model::Bytes;
use berth_model::cluster::{Order, Strategy};
use berth_policy::nodes::NodesSettings;
use serde::Serialize;

pub use demand::FACTORS;
pub use order::Rule;
pub use outcome::{Missed, Outcome};
pub use placer::Way;
pub use run::{Progress, run};

/// A cluster and what comes to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setup {
    pub way: Way,
    pub order: Order,
    pub nodes: usize,
    pub gpus_each: usize,
    pub memory: Bytes,
    pub rule: Rule,
    /// GPU seconds that come in a second, over all GPUs.
    pub load: f64,
    pub seed: u64,
    /// For how long containers come. Those of the first and the last sixth fill the cluster and are not counted.
    pub lasts: Duration,
    pub report_every: Duration,
    /// What a report is on its way.
    pub report_takes: Duration,
    /// Share of the reports that are lost.
    pub report_loss: f64,
    pub stale_after: Duration,
    /// Nodes that are lost for a while, spread over the run.
    pub failures: usize,
}

impl Default for Setup {
    /// Fifty nodes with two GPUs of 80 GiB each, asked each second as the placer does.
    fn default() -> Self {
        Self {
            way: Way::Fit,
            order: Order::Spread,
            nodes: 50,
            gpus_each: 2,
            memory: Bytes::from_mib(80 << 10),
            rule: Rule::Edf,
            load: 0.8,
            seed: 1,
            lasts: Duration::from_secs(600),
            report_every: Duration::from_secs(1),
            report_takes: Duration::from_millis(5),
            report_loss: 0.0,
            stale_after: Duration::from_secs(5),
            failures: 0,
        }
    }
}

impl Setup {
    pub fn gpus(&self) -> usize {
        self.nodes * self.gpus_each
    }

    fn nodes_settings(&self) -> NodesSettings {
        NodesSettings {
            // Each way sets its own.
            strategy: Strategy::Fit,
            order: self.order,
            stale_after: self.stale_after,
            miss_window: Duration::from_secs(600),
            reservation_lasts: Duration::from_secs(120),
        }
    }
}
