//! Equal tenants at one load, shared every way.

use std::collections::BTreeMap;

use berth_model::Slo;
use berth_model::settings::{Division, KernelPolicyName};
use berth_sim::Sharing;
use berth_sim::scenario::kernels::Report;
use serde::Serialize;

use crate::bench::edf::load::Dice;
use crate::bench::policy::world::tenant::{Kind, stream};
use crate::bench::policy::world::{self, Tenant, Way, h200, whole};
use crate::bench::quantiles::Quantiles;

/// Tenants of a run.
pub const TENANTS: usize = 4;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    /// GPU time that is asked for in a hundred, as if alone.
    pub load_pct: u32,
    pub ways: BTreeMap<String, Column>,
}

/// One way over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Column {
    /// From a request's coming to its end.
    pub mean_ms: f64,
    pub p99_ms: f64,
    /// GPU time of requests that ended, as if alone, in each second.
    pub done: f64,
    /// The longest time a tenant had work of which nothing ran.
    pub longest_wait_ms: f64,
}

/// What squads are measured against, and squads by how they divide the SMs; the latter last.
pub const WAYS: [&str; 6] = ["temporal", "static", "everybody", "strict", "unrestricted", "semi-spatial"];

fn way(name: &str) -> Way {
    let squads = |division| Way::divided(KernelPolicyName::Hybrid, division);
    match name {
        "temporal" => Way::Temporal,
        "static" => Way::Static,
        "strict" => squads(Division::Strict),
        "unrestricted" => squads(Division::Unrestricted),
        "semi-spatial" => squads(Division::SemiSpatial),
        _ => Way::Everybody,
    }
}

impl Cell {
    pub fn measure(load_pct: u32, seconds: f64, seeds: &[u64]) -> Cell {
        let machine = h200(Sharing::Mps);
        let column = |name: &str| {
            let load = f64::from(load_pct) / 100.0;
            let run = |seed: &u64| {
                world::run(&machine, &tenants(load, seconds, *seed), &way(name), Some(whole(seconds * 1e9)))
            };
            let reports: Vec<Report> = seeds.iter().map(run).collect();
            (name.to_owned(), Column::of(&reports, seconds))
        };
        Cell { load_pct, ways: WAYS.into_iter().map(column).collect() }
    }
}

impl Column {
    fn of(reports: &[Report], seconds: f64) -> Column {
        let accounts = || reports.iter().flat_map(|report| &report.programs);
        let times: Vec<f64> = accounts()
            .flat_map(|account| &account.finished)
            .map(|done| (done.done_ns - done.came_ns) as f64 / 1e6)
            .collect();
        let served: f64 = accounts().map(|account| account.served_ns as f64 / 1e9).sum();
        let longest = accounts().map(|account| account.longest_wait_ns).max().unwrap_or(0);
        Column {
            mean_ms: times.iter().sum::<f64>() / times.len().max(1) as f64,
            p99_ms: Quantiles::of(&times).map_or(0.0, |times| times.p99),
            done: served / seconds / reports.len().max(1) as f64,
            longest_wait_ms: longest as f64 / 1e6,
        }
    }
}

/// Requests of 2 to 6 ms at random, each tenant a quarter of the load; what they use of the GPU differs.
fn tenants(load: f64, seconds: f64, seed: u64) -> Vec<Tenant> {
    let mut dice = Dice::new(seed);
    let tenant = |owner| {
        let alone = dice.between(2e6, 6e6);
        let kind = Kind { demand: dice.between(0.25, 0.9), bandwidth: dice.between(0.1, 0.6) };
        let gap = alone * TENANTS as f64 / load;
        Tenant::new(owner, Slo::default(), stream(&mut dice, seconds * 1e9, gap, true, alone, kind))
    };
    (0..TENANTS).map(tenant).collect()
}
