//! What `berth bench squads` found, as JSON and as a table, judged.

use std::fmt::Write as _;

use serde::Serialize;

use super::Plan;
use super::cell::{Cell, TENANTS, WAYS};
use crate::bench::contention::goals::{self, Goal};
use crate::bench::contention::report::grid;

/// Ways that are squads.
const SQUADS: [&str; 3] = ["strict", "unrestricted", "semi-spatial"];

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub berth: String,
    pub seeds: Vec<u64>,
    pub cells: Vec<Cell>,
    pub goals: Vec<Goal>,
}

impl Report {
    pub fn new(plan: &Plan, cells: Vec<Cell>) -> Self {
        let goals = cells.iter().flat_map(judge).collect();
        Self { berth: env!("CARGO_PKG_VERSION").to_owned(), seeds: plan.seeds.clone(), cells, goals }
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let runs = self.seeds.len();
        writeln!(out, "{TENANTS} equal tenants on one GPU, simulated, in virtual time; {runs} seeds")?;
        let rows = self.cells.iter().flat_map(|cell| WAYS.iter().filter_map(|name| row(cell, name)));
        writeln!(out, "\n{}", grid(&["LOAD", "WAY", "MEAN ms", "p99 ms", "DONE", "LONGEST WAIT ms"], rows.collect()))?;
        goals::write(&self.goals, out)
    }
}

fn row(cell: &Cell, name: &str) -> Option<Vec<String>> {
    let column = cell.ways.get(name)?;
    Some(vec![
        format!("{} %", cell.load_pct),
        name.to_owned(),
        format!("{:.2}", column.mean_ms),
        format!("{:.1}", column.p99_ms),
        format!("{:.3}", column.done),
        format!("{:.1}", column.longest_wait_ms),
    ])
}

/// Each kind of squad by the mean time of a request: against the better of turns and fixed parts, and against everybody at once. The latter is only
/// shown: nobody has a goal here, and nobody is to be protected from anybody.
pub fn judge(cell: &Cell) -> Vec<Goal> {
    let mean = |name: &str| cell.ways.get(name).map(|column| column.mean_ms);
    let (Some(turns), Some(parts), Some(everybody)) = (mean("temporal"), mean("static"), mean("everybody")) else {
        return Vec::new();
    };
    let goal = |name: &&str| {
        let squads = mean(name)?;
        let ratio = squads / turns.min(parts);
        let told = format!("{name} squads over turns and parts, {} %", cell.load_pct);
        let reached = format!("×{ratio:.3}; over everybody ×{:.3}", squads / everybody);
        Some(Goal::new(&told, "below ×1", reached).judged(ratio < 1.0))
    };
    SQUADS.iter().filter_map(goal).collect()
}
