//! `berth bench placement`: how many deadlines are missed on a simulated cluster, by who places its containers.
//!
//! The cluster is `crate::cluster_sim`, in virtual time; the same seeds give the same figures. `cell` is one load in every way, `goals` judges,
//! `report` and `plots` show.

pub mod cell;
pub mod goals;
pub mod plots;
pub mod report;
#[cfg(test)]
mod tests;

use crate::cluster_sim::{Setup, Way};
use cell::Cell;
use report::Report;

pub const LOADS_PCT: [u32; 3] = [60, 80, 95];

/// Asked now and then, from several threads.
pub type IsEnough<'a> = dyn Fn() -> bool + Sync + 'a;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Of every run, but for its way, load and seed.
    pub setup: Setup,
    pub ways: Vec<Way>,
    pub loads_pct: Vec<u32>,
    /// One run of each way with each, at each load.
    pub seeds: Vec<u64>,
}

/// `told` hears what is being run; when `is_enough` says so it ends with what it has.
pub fn run(plan: &Plan, is_enough: &IsEnough<'_>, told: &dyn Fn(&str)) -> Report {
    let mut cells = Vec::new();
    for load_pct in plan.loads_pct.iter().copied() {
        told(&format!("load {load_pct} %: {} runs", plan.ways.len() * plan.seeds.len()));
        let setup = Setup { load: f64::from(load_pct) / 100.0, ..plan.setup.clone() };
        cells.extend(Cell::measure(load_pct, &setup, plan, is_enough));
    }
    Report {
        berth: env!("CARGO_PKG_VERSION").to_owned(),
        setup: plan.setup.clone(),
        seeds: plan.seeds.clone(),
        goals: goals::judge(&cells),
        cells,
    }
}
