//! What `berth bench policy` found, as JSON and as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::completion::{Cell, JCT, SAME, UNBOUNDED};
use super::fairness::Fairness;
use super::feasible::Feasible;
use super::mixture::Column;
use super::promises::{Case, LOAD};
use super::switching::Switched;
use super::{Plan, changing};
use crate::bench::contention::goals::{self, Goal};
use crate::bench::contention::report::grid;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    pub berth: String,
    pub seeds: Vec<u64>,
    pub completion: Vec<Cell>,
    pub promises: Vec<Case>,
    pub mixture: BTreeMap<String, Column>,
    pub changing: BTreeMap<String, changing::Column>,
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
            changing: BTreeMap::new(),
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
        let runs = self.seeds.len();
        writeln!(out, "one GPU, simulated, in virtual time; {runs} seeds from {}", self.seeds.first().unwrap_or(&0))?;
        writeln!(out, "\nmean completion of jobs in ms\n{}", self.completions())?;
        if !self.promises.is_empty() {
            writeln!(out, "{}", self.kept())?;
        }
        if !self.mixture.is_empty() {
            writeln!(out, "\nservers, jobs and work without a goal together\n{}", self.mixed())?;
        }
        if !self.changing.is_empty() {
            writeln!(out, "\njobs, then servers, then jobs: goodput\n{}", self.changed())?;
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
            let ways = ["fifo", "sjf", SAME, "everybody", JCT, UNBOUNDED].map(mean);
            [cell.mix.as_str().to_owned()].into_iter().chain(ways).collect()
        };
        let headings = ["JOBS", "FIFO", "SJF", "SJF BOUNDED", "EVERYBODY", "JCT", "JCT UNBOUNDED"];
        grid(&headings, self.completion.iter().map(row).collect())
    }

    fn kept(&self) -> String {
        let (all, load) = (self.promises.len(), LOAD * 100.0);
        let count = |of: &dyn Fn(&Case) -> bool| self.promises.iter().filter(|case| of(case)).count();
        let ideal = count(&|case| case.ideal == Feasible::Yes);
        let is = |of: fn(&Case) -> Feasible, found: Feasible| count(&move |case: &Case| of(case) == found);
        let found = |of: fn(&Case) -> Feasible| (is(of, Feasible::Yes), is(of, Feasible::Unknown));
        let ((can, unknown), (runs, unknown_runs)) = (found(|case| case.feasible), found(|case| case.runnable));
        let kept = [
            ("slo", count(&|case| case.missed == 0)),
            ("everybody", count(&|case| case.everybody == 0)),
            ("temporal", count(&|case| case.temporal == 0)),
        ];
        let kept = kept.map(|(way, kept)| format!("{way} {kept}")).join(", ");
        let rest: f64 = self.promises.iter().map(|case| case.rest).sum::<f64>() / all as f64;
        let of = |can_be: fn(&Case) -> Feasible, missed: fn(&Case) -> usize| {
            count(&move |case: &Case| can_be(case) == Feasible::Yes && missed(case) == 0)
        };
        let both = |missed| format!("{} and {}", of(|case| case.feasible, missed), of(|case| case.runnable, missed));
        format!(
            "{all} sets of goals at {load:.0} % load, one at a time: {ideal} can be kept if acting is free,\n\
             {can} with what it costs ({unknown} searches given up), {runs} if late requests are run too ({unknown_runs} given up);\n\
             all goals kept: {kept};\n\
             of the {can} and of the {runs}: slo {}, told when each request came {},\n\
             a rule that knows all but what comes {}, or {} if it runs late requests too;\n\
             under slo, work without a goal gets ×{rest:.2} of what is left{}",
            both(|case| case.missed),
            both(|case| case.told),
            both(|case| case.online),
            both(|case| case.online_run),
            self.lost(),
        )
    }

    /// Sets that can be kept and were not.
    fn lost(&self) -> String {
        let is_kept = |missed: usize| if missed == 0 { "kept" } else { "missed" }.to_owned();
        let can_be = |found: Feasible| {
            match found {
                Feasible::Yes => "yes",
                Feasible::No => "no",
                Feasible::Unknown => "?",
            }
            .to_owned()
        };
        let is_lost = |case: &&Case| case.missed > 0 && [case.feasible, case.runnable].contains(&Feasible::Yes);
        let row = |case: &Case| {
            let late = case.late.iter().map(|(late, may_be)| format!("{late}/{may_be}"));
            let cells = [case.told, case.online, case.online_run].map(is_kept);
            let first = [case.seed.to_string(), late.collect::<Vec<_>>().join(" "), can_be(case.runnable)];
            first.into_iter().chain(cells).collect()
        };
        let rows: Vec<Vec<String>> = self.promises.iter().filter(is_lost).map(row).collect();
        if rows.is_empty() {
            return String::new();
        }
        let headings = ["MISSED", "LATE/ALLOWED", "CAN ALL RUN", "SLO TOLD", "RULE", "RULE, ALL RUN"];
        format!("\n\n{}", grid(&headings, rows))
    }

    fn changed(&self) -> String {
        let row = |(way, column): (&String, &changing::Column)| {
            let parts = column.goodput.iter().chain([&column.mean]).map(|goodput| format!("{goodput:.3}"));
            let rest = [format!("{:.1}", column.in_time * 100.0), column.changes.to_string()];
            [way.clone()].into_iter().chain(parts).chain(rest).collect()
        };
        let headings = ["WAY", "JOBS", "SERVERS", "JOBS", "MEAN", "IN TIME %", "CHANGES"];
        grid(&headings, self.changing.iter().map(row).collect())
    }

    fn mixed(&self) -> String {
        let row = |(way, column): (&String, &Column)| {
            let Column { goodput, in_time, fairness: Fairness { jain, worst_finish } } = column;
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
