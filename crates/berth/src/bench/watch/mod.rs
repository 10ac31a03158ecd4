//! `berth bench watch`: how well what goes wrong is noticed, what forecasts are worth, and what keeping figures costs.
//!
//! Scenarios are drawn from a seed (`noise`), each kind of finding with and without its fault, at three levels of noise and with changes
//! of load that are no fault (`scenes`); `trial` counts what was found rightly, wrongly and not at all. `foresight` holds forecasts to what
//! came. `store` writes figures to a directory of its own. `goals` judges, `report` shows. No GPU and no daemon is needed; time is
//! that of the scenarios, but for the store's.

pub mod foresight;
mod goals;
mod noise;
pub mod report;
mod scenes;
pub mod store;
#[cfg(test)]
mod tests;
pub mod trial;

use anyhow::Result;
use serde::Serialize;

use report::Report;

/// How much values scatter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Low,
    Middle,
    High,
}

impl Level {
    pub const ALL: [Level; 3] = [Level::Low, Level::Middle, Level::High];

    pub fn as_str(self) -> &'static str {
        match self {
            Level::Low => "low",
            Level::Middle => "middle",
            Level::High => "high",
        }
    }

    fn pick<T>(self, low: T, middle: T, high: T) -> T {
        match self {
            Level::Low => low,
            Level::Middle => middle,
            Level::High => high,
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Of each kind and level: so many with the fault, and as many without.
    pub runs: u32,
    pub seed: u64,
    /// Lots of values written to the store.
    pub lots: u32,
}

/// `told` hears what is being measured.
pub fn run(plan: &Plan, told: &dyn Fn(&str)) -> Result<Report> {
    let mut trials = Vec::new();
    for scene in scenes::Scene::ALL {
        told(scene.name());
        trials.extend(Level::ALL.map(|level| trial::measure(scene, level, plan.runs, plan.seed)));
    }
    told("forecasts");
    let foresights = foresight::measure(plan.runs / 4, plan.seed);
    told("store");
    let store = store::measure(plan.lots)?;
    Ok(Report {
        berth: env!("CARGO_PKG_VERSION").to_owned(),
        seed: plan.seed,
        runs: plan.runs,
        goals: goals::judge(&trials, &foresights, &store),
        trials,
        foresights,
        store,
    })
}
