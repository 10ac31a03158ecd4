//! What `berth bench placement` found, as JSON and as tables.

use std::fmt::Write as _;

use serde::Serialize;

use super::cell::{Cell, Column};
use crate::bench::contention::estimate::Estimate;
use crate::bench::contention::goals::{self, Goal};
use crate::bench::contention::report::grid;
use crate::cluster_sim::{FACTORS, Setup, Way};

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    /// Of every run, but for its way, load and seed.
    pub setup: Setup,
    pub seeds: Vec<u64>,
    pub cells: Vec<Cell>,
    pub goals: Vec<Goal>,
}

impl Report {
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let Setup { nodes, gpus_each, memory, .. } = &self.setup;
        writeln!(out, "{nodes} nodes, {gpus_each} GPUs of {memory} each, simulated, in virtual time")?;
        let runs = self.seeds.len();
        writeln!(out, "\nmissed deadlines in %, mean and 95 % interval of {runs} runs\n{}", self.misses())?;
        writeln!(out, "{}", self.details())?;
        goals::write(&self.goals, out)
    }

    fn misses(&self) -> String {
        let headings: Vec<String> = Way::ALL.iter().map(|way| way.as_str().to_uppercase()).collect();
        let headings: Vec<&str> =
            ["LOAD"].into_iter().chain(headings.iter().map(String::as_str)).chain(["LOST ALONE"]).collect();
        let row = |cell: &Cell| {
            let rates = Way::ALL.iter().map(|way| or_dash(cell.ways.get(way).map(|column| estimate(column.miss_rate))));
            let lost = or_dash(cell.ways.values().next().map(|column| pct(column.lost_rate)));
            [format!("{} %", cell.load_pct)].into_iter().chain(rates).chain([lost]).collect()
        };
        grid(&headings, self.cells.iter().map(row).collect())
    }

    fn details(&self) -> String {
        let factors: Vec<String> = FACTORS.iter().map(|factor| format!("×{factor}")).collect();
        let mut headings = vec!["LOAD", "WAY", "USED %", "TASKS", "BURSTS"];
        headings.extend(factors.iter().map(String::as_str));
        headings.extend(["WAITED %", "FOR s", "NONE: ×ALONE"]);
        let rows = self.cells.iter().flat_map(|cell| cell.ways.iter().map(|(way, column)| detail(cell, *way, column)));
        grid(&headings, rows.collect())
    }
}

fn detail(cell: &Cell, way: Way, column: &Column) -> Vec<String> {
    let mean = |of: Option<Estimate>| or_dash(of.map(|of| pct(of.mean)));
    let mut row = vec![
        format!("{} %", cell.load_pct),
        way.as_str().to_owned(),
        mean(column.utilisation),
        mean(column.task_miss_rate),
        mean(column.burst_miss_rate),
    ];
    row.extend(column.miss_rate_by_tightness.map(|rate| or_dash(rate.map(pct))));
    let tenths = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.1}")));
    row.extend([pct(column.waited_rate), tenths(column.waited_seconds), tenths(column.stay_over_alone)]);
    row
}

fn estimate(of: Estimate) -> String {
    format!("{:.2} ±{:.2}", of.mean * 100.0, (of.high - of.mean) * 100.0)
}

fn pct(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}
