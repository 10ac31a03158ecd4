//! What `berth bench watch` found, as JSON and as tables.

use std::fmt::Write as _;

use serde::Serialize;

use super::foresight::Foresight;
use super::store::Store;
use super::trial::Trial;
use crate::bench::contention::goals::{self, Goal};
use crate::bench::contention::report::grid;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub seed: u64,
    pub runs: u32,
    pub trials: Vec<Trial>,
    pub foresights: Vec<Foresight>,
    pub store: Store,
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
        let Self { runs, seed, store, .. } = self;
        writeln!(
            out,
            "{runs} scenes with the fault and {runs} without it for each line, seed {seed}; load changes in all of them"
        )?;
        writeln!(out, "\n{}", self.found())?;
        writeln!(
            out,
            "PER DAY: found where nothing was wrong, of one that gives a figure every second. LEAD: steps from the finding until the"
        )?;
        writeln!(
            out,
            "goal is missed by the last pieces of work; below zero it was missed before. BEFORE: the part that was found before that."
        )?;
        for trial in &self.trials {
            if let (Some(over_plain), Some(lead)) = (trial.foreseen_over_plain, trial.lead_on_average.as_ref()) {
                let (name, level) = (trial.scene.name(), trial.level.as_str());
                writeln!(
                    out,
                    "{name}, {level} noise: slack that decides 30 pieces ahead, error ÷ plain {over_plain:.3}; lead to where the goal is missed on average {:.0} (p50)",
                    lead.p50
                )?;
            }
        }
        writeln!(out, "forecasts, four steps ahead: mean error over that of saying that all stays as it is")?;
        writeln!(out, "\n{}", self.foreseen())?;
        writeln!(
            out,
            "store: {} values, {:.0} a second, {:.2} bytes each, {:.2} as minutes; read as hours in {:.0} ms",
            store.values, store.values_per_second, store.bytes_per_value, store.minutes_bytes_per_value, store.read_ms
        )?;
        goals::write(&self.goals, out)
    }

    fn found(&self) -> String {
        let headings = [
            "FINDING",
            "NOISE",
            "FOUND",
            "WRONGLY",
            "PRECISION",
            "RECALL",
            "PER DAY",
            "DELAY p50",
            "p99",
            "LEAD p50",
            "BEFORE",
        ];
        let rows = self.trials.iter().map(|trial| {
            let steps = |steps: Option<f64>| steps.map_or_else(|| "-".to_owned(), |steps| format!("{steps:.0}"));
            let delay = trial.delay.as_ref();
            vec![
                trial.scene.name().to_owned(),
                trial.level.as_str().to_owned(),
                trial.found.to_string(),
                trial.wrongly.to_string(),
                format!("{:.3}", trial.precision),
                format!("{:.3}", trial.recall),
                format!("{:.2}", trial.wrongly_per_day),
                steps(delay.map(|delay| delay.p50)),
                steps(delay.map(|delay| delay.p99)),
                steps(trial.lead.as_ref().map(|lead| lead.p50)),
                trial.before.map_or_else(|| "-".to_owned(), |part| format!("{part:.3}")),
            ]
        });
        grid(&headings, rows.collect())
    }

    fn foreseen(&self) -> String {
        let headings = ["FIGURE", "NOISE", "TOLD ÷ PLAIN", "MODEL ÷ PLAIN", "SEASONS"];
        let rows = self.foresights.iter().map(|one| {
            vec![
                one.figure.as_str().to_owned(),
                one.level.as_str().to_owned(),
                format!("{:.3}", one.told_over_plain),
                format!("{:.3}", one.own_over_plain),
                format!("{} of {}", one.with_season, one.runs),
            ]
        });
        grid(&headings, rows.collect())
    }
}
