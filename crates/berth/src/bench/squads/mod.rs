//! `berth bench squads`: equal tenants on one GPU, by turns, with fixed parts, and in squads, in virtual time.
//!
//! `cell` is one load shared every way, `report` shows and judges. The world is that of `berth bench policy`; squads are those of `hybrid`.

pub mod cell;
pub mod report;
#[cfg(test)]
mod tests;

use cell::Cell;
use report::Report;

/// Light, medium, and about all there is.
pub const LOADS_PCT: [u32; 3] = [30, 60, 95];

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    pub loads_pct: Vec<u32>,
    pub seeds: Vec<u64>,
    /// How long requests come.
    pub seconds: f64,
}

/// `told` hears what is being run; when `is_enough` says so it ends with what it has.
pub fn run(plan: &Plan, is_enough: &dyn Fn() -> bool, told: &dyn Fn(&str)) -> Report {
    let mut cells = Vec::new();
    for load_pct in plan.loads_pct.iter().copied() {
        told(&format!("load {load_pct} %: {} runs", cell::WAYS.len() * plan.seeds.len()));
        cells.push(Cell::measure(load_pct, plan.seconds, &plan.seeds));
        if is_enough() {
            break;
        }
    }
    Report::new(plan, cells)
}
