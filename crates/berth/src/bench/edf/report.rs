//! What `berth bench edf` found, as JSON and as tables.

use std::fmt::Write as _;

use serde::Serialize;

use super::cell::{Cell, Column};
use super::load::{FACTORS, TENANTS};
use super::together::{Case, Together};
use crate::bench::contention::goals::{self, Goal};
use crate::bench::contention::report::grid;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub gpu: String,
    pub seeds: Vec<u64>,
    pub cells: Vec<Cell>,
    pub together: Together,
    pub goals: Vec<Goal>,
}

/// In the order people compare them.
pub const WAYS: [&str; 6] = ["unmanaged", "paper", "fifo", "edf", "edf-exact", "edf-unknown"];

impl Report {
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}, simulated, in virtual time", self.gpu)?;
        if let Some(cell) = self.cells.first() {
            writeln!(
                out,
                "\n{TENANTS} tenants, {} jobs, {} with a deadline, {} runs: missed in %, mean and 95 % interval\n{}\n{}",
                cell.jobs,
                cell.with_deadline,
                self.seeds.len(),
                self.misses(),
                self.details()
            )?;
        }
        if self.together.cases > 0 {
            self.write_together(out)?;
        }
        goals::write(&self.goals, out)
    }

    fn write_together(&self, out: &mut String) -> std::fmt::Result {
        let together = &self.together;
        writeln!(
            out,
            "together: {} cases, {} jobs; the best orders miss {}, edf {}",
            together.cases, together.jobs, together.solver_misses, together.edf_misses
        )?;
        for case in &together.worse {
            let Case { seed, jobs, solver_misses, edf_misses } = case;
            writeln!(out, "  case {seed}: of {jobs} jobs the best order misses {solver_misses}, edf {edf_misses}")?;
        }
        Ok(())
    }

    fn misses(&self) -> String {
        let rows = self.cells.iter().map(|cell| {
            let (least, most) = cell.optimum_rate();
            let between = |from: f64, to: f64| format!("{:.1} – {:.1}", from * 100.0, to * 100.0);
            let gap = cell.edf_gap.map_or_else(|| "-".to_owned(), |gap| between(gap.at_least, gap.at_most));
            let rates = WAYS.iter().map(|way| cell.ways.get(way).map_or_else(|| "-".to_owned(), rate));
            let beside = format!("{:.1}", cell.least_beside_the_rest * 100.0);
            [format!("{} %", cell.load_pct)]
                .into_iter()
                .chain(rates)
                .chain([between(least, most), beside, gap])
                .collect()
        });
        let headings: Vec<String> = WAYS.iter().map(|way| way.to_uppercase()).collect();
        let headings: Vec<&str> = ["LOAD"]
            .into_iter()
            .chain(headings.iter().map(String::as_str))
            .chain(["OPTIMUM", "WITH REST", "EDF ABOVE IT"])
            .collect();
        grid(&headings, rows.collect())
    }

    fn details(&self) -> String {
        let factors: Vec<String> = FACTORS.iter().map(|factor| format!("×{factor}")).collect();
        let mut headings = vec!["LOAD", "WAY"];
        headings.extend(factors.iter().map(String::as_str));
        headings.extend(["LATE s", "WORST", "JOBS/min", "NONE: ×ALONE", "WORST", "LONGEST s"]);
        let rows = self.cells.iter().flat_map(|cell| {
            let shown = WAYS.iter().filter_map(|way| Some((way, cell.ways.get(way)?)));
            shown.map(|(way, column)| detail(cell, way, column))
        });
        grid(&headings, rows.collect())
    }
}

fn rate(column: &Column) -> String {
    let estimate = column.miss_rate;
    format!("{:.1} ±{:.1}", estimate.mean * 100.0, (estimate.high - estimate.mean) * 100.0)
}

fn detail(cell: &Cell, way: &str, column: &Column) -> Vec<String> {
    let seconds = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1}"));
    let without = column.without_deadline;
    let mut row = vec![format!("{} %", cell.load_pct), way.to_owned()];
    row.extend(column.miss_rate_by_tightness.iter().map(|rate| format!("{:.1}", rate * 100.0)));
    row.extend([
        seconds(column.mean_lateness_seconds),
        seconds(column.worst_lateness_seconds),
        format!("{:.1}", column.jobs_per_minute.mean),
        format!("{:.1}", without.stay_over_alone.mean),
        format!("{:.1}", without.worst_stay_over_alone),
        format!("{:.0}", without.longest_stay_seconds),
    ]);
    row
}
