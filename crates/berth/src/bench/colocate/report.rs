//! What `berth bench colocate` found, as JSON and as tables: every mode beside both programs alone, and what was asked.

use std::fmt::Write as _;

use berth_load::roles::words::Served;
use berth_model::settings::KernelSettings;
use serde::Serialize;

use super::mode::Mode;
use super::pair::{Asked, Load, Pair};
use super::session::{Alone, Window};
use super::{Deeds, Measured, Together};
use crate::bench::machine::Machine;
use crate::bench::quantiles::Spread;
use crate::bench::report::Verdict;
use crate::columns::Columns;
use crate::table;

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub machine: Machine,
    /// Of each window.
    pub seconds: u32,
    /// By which berth ordered kernels.
    pub settings: KernelSettings,
    pub pairs: Vec<PairReport>,
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct PairReport {
    pub pair: Pair,
    pub what: &'static str,
    /// For [`Load::Medium`].
    pub asked: Asked,
    /// What a request takes without a queue, at the beginning and at the end.
    pub service_ms: Vec<f64>,
    /// Steps of the trainer alone per second, at the beginning and at the end.
    pub trainer_alone_per_s: Vec<f64>,
    pub loads: Vec<LoadReport>,
}

#[derive(Debug, Clone, Serialize)]
pub struct LoadReport {
    pub load: Load,
    pub rate: u32,
    /// The server alone, at the beginning and at the end, each round.
    pub alone: Vec<Vec<Served>>,
    /// What the server's own work leaves of the GPU: no trainer beside it can have more without slowing it.
    pub trainer_ceiling: Option<f64>,
    pub rows: Vec<Row>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub mode: Mode,
    /// By which other settings.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub with: String,
    pub rounds: Vec<Round>,
    /// Medians of the rounds.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p99_over_alone: Option<f64>,
    pub trainer_per_s: Option<f64>,
    pub trainer_over_alone: Option<f64>,
    /// In this mode, at all loads.
    pub deeds: Option<Deeds>,
    /// Of berth's modes, at the load for which something is asked.
    pub verdict: Option<Verdict>,
}

/// One window beside those alone with the same arrivals.
#[derive(Debug, Clone, Serialize)]
pub struct Round {
    pub served: Served,
    pub p99_over_alone: Option<f64>,
    pub trainer_per_s: Option<f64>,
    pub trainer_over_alone: Option<f64>,
}

impl Report {
    pub fn of(measured: &Measured) -> Self {
        let pair = |found: &super::MeasuredPair| {
            let loads = measured.loads.iter().map(|load| load_report(found, *load));
            PairReport {
                pair: found.pair,
                what: found.pair.what(),
                asked: found.pair.asked(),
                service_ms: found.alone.iter().map(|alone| alone.service_ms).collect(),
                trainer_alone_per_s: found.alone.iter().filter_map(|alone| alone.trainer_per_s).collect(),
                loads: loads.filter(|load| !load.alone.is_empty()).collect(),
            }
        };
        Self {
            berth: env!("CARGO_PKG_VERSION").to_owned(),
            machine: measured.machine.clone(),
            seconds: measured.seconds,
            settings: measured.kernels.clone(),
            pairs: measured.pairs.iter().map(pair).collect(),
            notes: measured.notes.clone(),
        }
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}, windows of {} s", self.machine.to_text(), self.seconds)?;
        for pair in &self.pairs {
            writeln!(out, "\n{}: {}", pair.pair.name(), pair.what)?;
            let (service, trainer) = (list(&pair.service_ms, 2), list(&pair.trainer_alone_per_s, 2));
            writeln!(out, "alone: a request takes {service} ms, the trainer does {trainer} steps/s (before, after)")?;
            writeln!(out, "{}", pair.table().trim_end())?;
            pair.write_deeds(out)?;
            let Asked { p99_over_alone, trainer_over_alone } = pair.asked;
            writeln!(
                out,
                "goal at {}: p99 at most ×{p99_over_alone:.2} of alone, the trainer at least {:.0} % of alone",
                Load::Medium,
                trainer_over_alone * 100.0
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(out, "\n{note}"))
    }
}

impl PairReport {
    /// What berth did in each of its modes.
    fn write_deeds(&self, out: &mut String) -> std::fmt::Result {
        let rows = self.loads.first().into_iter().flat_map(|load| &load.rows);
        for (mode, deeds) in rows.filter_map(|row| Some((row.mode, row.deeds?))) {
            let Deeds { stops, stops_given_up, preempted, leads_lost } = deeds;
            let given_up = if stops_given_up > 0 { format!(" ({stops_given_up} given up)") } else { String::new() };
            let lost = if leads_lost > 0 { format!(", the lead lost {leads_lost} times") } else { String::new() };
            writeln!(out, "{mode}: {stops} waits{given_up}, {preempted} preemptions{lost}")?;
        }
        Ok(())
    }

    fn table(&self) -> String {
        let rows = self.loads.iter().flat_map(|load| {
            let alone = load.alone.iter().map(|rounds| {
                let [p50, p99] = [|served: &Served| served.p50_ms, |served: &Served| served.p99_ms]
                    .map(|of| median_of(rounds.iter().map(of)).map_or("?".to_owned(), ms));
                let mut row = vec![load.load.to_string(), Mode::Alone.to_string(), p50, p99, "×1.00".to_owned()];
                row.extend(["-", "100 %", "-", ""].map(str::to_owned));
                row
            });
            alone.chain(load.rows.iter().map(|row| row.cells(load)))
        });
        let headings = ["LOAD", "MODE", "p50 ms", "p99 ms", "p99", "STEPS/s", "TRAINER", "CEILING", ""];
        let numeric = [false, false, true, true, true, true, true, true, false];
        table::render(Columns::new(&headings, &numeric, rows.collect()))
    }
}

impl Row {
    fn cells(&self, load: &LoadReport) -> Vec<String> {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "?".to_owned());
        let ratio = ranged(self.rounds.iter().filter_map(|round| round.p99_over_alone), |ratio| format!("×{ratio:.2}"));
        let steps = self.trainer_per_s.map(|steps| format!("{steps:.2}"));
        let trainer = ranged(self.rounds.iter().filter_map(|round| round.trainer_over_alone), percent);
        let given_up: u64 = self.rounds.iter().map(|round| round.served.given_up).sum();
        let verdict = match self.verdict {
            Some(Verdict::Met) => "met".to_owned(),
            Some(Verdict::NotMet) => "NOT MET".to_owned(),
            Some(Verdict::NotShown) => "not shown".to_owned(),
            None if given_up > 0 => format!("{given_up} given up"),
            None => String::new(),
        };
        let mode = [self.mode.to_string(), self.with.clone()].join(" ");
        let mut row = vec![load.load.to_string(), mode.trim_end().to_owned()];
        row.extend([self.p50_ms.map(ms), self.p99_ms.map(ms), ratio, steps, trainer].map(or_unknown));
        row.extend([or_unknown(load.trainer_ceiling.map(percent)), verdict]);
        row
    }

    fn of(mode: Mode, with: String, rounds: Vec<Round>, deeds: Option<Deeds>, asked: Option<Asked>) -> Self {
        let median = |of: fn(&Round) -> Option<f64>| median_of(rounds.iter().filter_map(of));
        let p99_over_alone = median(|round| round.p99_over_alone);
        let trainer_over_alone = median(|round| round.trainer_over_alone);
        Self {
            mode,
            with,
            p50_ms: median(|round| Some(round.served.p50_ms)),
            p99_ms: median(|round| Some(round.served.p99_ms)),
            p99_over_alone,
            trainer_per_s: median(|round| round.trainer_per_s),
            trainer_over_alone,
            deeds,
            verdict: asked.map(|asked| verdict(asked, p99_over_alone, trainer_over_alone)),
            rounds,
        }
    }
}

fn load_report(found: &super::MeasuredPair, load: Load) -> LoadReport {
    let is_of = |window: &&Window| window.load == load;
    let alone = found.alone.iter().map(|alone| alone.windows.iter().filter(is_of));
    let trainer_alone = mean(found.alone.iter().filter_map(|alone| alone.trainer_per_s));
    let round = |window: &Window| {
        let same = alone.clone().flatten().filter(|alone| alone.round == window.round);
        let p99_alone = mean(same.map(|alone| alone.served.p99_ms));
        Round {
            served: window.served.clone(),
            p99_over_alone: p99_alone.map(|alone| window.served.p99_ms / alone),
            trainer_per_s: window.trainer_per_s,
            trainer_over_alone: window.trainer_per_s.zip(trainer_alone).map(|(steps, alone)| steps / alone),
        }
    };
    let row = |together: &Together| {
        let rounds: Vec<Round> = together.windows.iter().filter(is_of).map(round).collect();
        let asked = (together.mode.is_berth() && load == Load::Medium).then(|| found.pair.asked());
        (!rounds.is_empty()).then(|| Row::of(together.mode, together.with.clone(), rounds, together.deeds, asked))
    };
    let rows = found.together.iter().filter_map(row).collect();
    let alone = alone.clone().map(|windows| windows.map(|window| window.served.clone()).collect::<Vec<_>>());
    let alone = alone.filter(|rounds| !rounds.is_empty()).collect();
    LoadReport { load, rate: load.rate(), alone, trainer_ceiling: ceiling(&found.alone, load), rows }
}

fn verdict(asked: Asked, p99_over_alone: Option<f64>, trainer_over_alone: Option<f64>) -> Verdict {
    match p99_over_alone.zip(trainer_over_alone) {
        None => Verdict::NotShown,
        Some((p99, trainer)) if p99 <= asked.p99_over_alone && trainer >= asked.trainer_over_alone => Verdict::Met,
        Some(_) => Verdict::NotMet,
    }
}

fn ceiling(alone: &[Alone], load: Load) -> Option<f64> {
    // Whatever disturbs the measurement only adds to it.
    let service_ms = alone.iter().map(|alone| alone.service_ms).min_by(f64::total_cmp)?;
    Some((1.0 - service_ms * f64::from(load.rate()) / 1e3).max(0.0))
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.fold((0u32, 0.0), |(count, sum), value| (count + 1, sum + value));
    (count > 0).then(|| sum / f64::from(count))
}

/// Of an even number the mean of the middle two: the lower of two rounds would be the better one.
fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some(f64::midpoint(*low, *high))
}

/// The median, and of several the least and the most.
fn ranged(values: impl Iterator<Item = f64>, text: impl Fn(f64) -> String) -> Option<String> {
    let values: Vec<f64> = values.collect();
    let Spread { min, quantiles, .. } = Spread::of(&values)?;
    let middle = text(median_of(values.into_iter())?);
    Some(if quantiles.n > 1 { format!("{middle} ({}–{})", text(min), text(quantiles.max)) } else { middle })
}

fn ms(value: f64) -> String {
    format!("{value:.2}")
}

fn list(values: &[f64], decimals: usize) -> String {
    let texts: Vec<String> = values.iter().map(|value| format!("{value:.decimals$}")).collect();
    if texts.is_empty() { "?".to_owned() } else { texts.join(", ") }
}

#[cfg(test)]
mod tests;
