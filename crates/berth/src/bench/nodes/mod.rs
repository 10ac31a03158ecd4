//! `berth bench nodes`: what a list of nodes costs, from a hundred to a hundred thousand of them.
//!
//! Nodes of two GPUs with mixed loads are drawn from a seed (`draw`). `cell` measures the list on them with each strategy: made from nothing, one
//! report applied, one choice, one that nobody takes. `wire` says what a report weighs. `goals` judges, `report` shows. Time is measured on
//! this machine, by one thread; nothing is sent.

pub mod cell;
mod draw;
pub mod goals;
mod memory;
pub mod report;
#[cfg(test)]
mod tests;
pub mod wire;

use berth_cluster::frame::FrameError;
use berth_model::cluster::Strategy;

use cell::Cell;
use report::Report;
use wire::Wire;

pub const SIZES: [usize; 4] = [100, 1_000, 10_000, 100_000];

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    pub sizes: Vec<usize>,
    /// Reports applied and choices made, each.
    pub turns: usize,
    pub seed: u64,
}

/// `told` hears what is being measured.
pub fn run(plan: &Plan, told: &dyn Fn(&str)) -> Result<Report, FrameError> {
    // The largest first: memory that was let go of is taken again, and would not be seen.
    let mut sizes = plan.sizes.clone();
    sizes.sort_unstable();
    let mut cells = Vec::new();
    for nodes in sizes.into_iter().rev() {
        for strategy in [Strategy::Fit, Strategy::Paper] {
            told(&format!("{nodes} nodes, {}", report::name(strategy)));
            cells.push(Cell::measure(strategy, nodes, plan.turns, plan.seed));
        }
    }
    cells.reverse();
    let wire = Wire::measure(plan.turns, plan.seed)?;
    Ok(Report {
        berth: env!("CARGO_PKG_VERSION").to_owned(),
        seed: plan.seed,
        goals: goals::judge(&cells),
        cells,
        wire,
    })
}
