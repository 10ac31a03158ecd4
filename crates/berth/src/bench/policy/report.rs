//! What `berth bench policy` found, as JSON and as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::Plan;
use super::completion::Cell;
use super::mixture::Column;
use super::promises::{Case, LOAD};
use super::switching::Switched;
use crate::bench::contention::goals::{self, Goal};
use crate::bench::contention::report::grid;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub berth: String,
    pub seeds: Vec<u64>,
    pub completion: Vec<Cell>,
    pub promises: Vec<Case>,
    pub mixture: BTreeMap<String, Column>,
    pub switching: Option<Switched>,
    pub goals: Vec<Goal>,
}

impl Report {
    pub fn new(plan: &Plan) -> Self {
        Self {
            berth: env!("CARGO_PKG_VERSION").to_owned(),
            seeds: plan.seeds.clone(),
            completion: Vec::new(),
            promises: Vec::new(),
            mixture: BTreeMap::new(),
            switching: None,
            goals: Vec::new(),
        }
    }

    pub fn judged(self) -> Self {
        let goals = super::goals::judge(&self);
        Self { goals, ..self }
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "one GPU, simulated, in virtual time; {} seeds", self.seeds.len())?;
        writeln!(out, "\nmean completion of jobs in ms\n{}", self.completions())?;
        if !self.promises.is_empty() {
            writeln!(out, "{}", self.kept())?;
        }
        if !self.mixture.is_empty() {
            writeln!(out, "\nservers, jobs and work without a goal together\n{}", self.mixed())?;
        }
        if let Some(switched) = &self.switching {
            let ratio = switched.over_one_policy;
            writeln!(out, "with {} switches everything took ×{ratio:.3} of one policy's time", switched.switches)?;
        }
        goals::write(&self.goals, out)
    }

    fn completions(&self) -> String {
        let row = |cell: &Cell| {
            let mean = |way: &str| cell.mean_ms.get(way).map_or("-".to_owned(), |all| format!("{:.1}", mean(all)));
            let ways = ["fifo", "sjf", "everybody", "jct"].map(mean);
            [cell.mix.as_str().to_owned()].into_iter().chain(ways).collect()
        };
        grid(&["JOBS", "FIFO", "SJF", "EVERYBODY", "JCT"], self.completion.iter().map(row).collect())
    }

    fn kept(&self) -> String {
        let feasible = self.promises.iter().filter(|case| case.feasible.is_some()).count();
        let (all, load) = (self.promises.len(), LOAD * 100.0);
        let rest: f64 = self.promises.iter().map(|case| case.rest).sum::<f64>() / all as f64;
        format!(
            "{all} sets of goals at {load:.0} % load: the search keeps all of {feasible}; \
             work without a goal gets ×{rest:.2} of what is left"
        )
    }

    fn mixed(&self) -> String {
        let row = |(way, column): (&String, &Column)| {
            let Column { goodput, in_time, jain, worst_finish } = column;
            vec![
                way.clone(),
                format!("{goodput:.3}"),
                format!("{:.1}", in_time * 100.0),
                format!("{jain:.3}"),
                format!("{worst_finish:.2}"),
            ]
        };
        grid(&["WAY", "GOODPUT", "IN TIME %", "JAIN", "WORST FINISH ×FAIR"], self.mixture.iter().map(row).collect())
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
