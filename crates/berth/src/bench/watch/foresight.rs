//! Forecasts held to what came, beside the forecast that all stays as it is.

use berth_model::watch::Forecaster;
use serde::Serialize;

use super::Level;
use super::noise::Noise;

const STEPS: u32 = 600;
/// Values before anything is counted.
const WARM_UP: usize = 150;
const AHEAD: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Figure {
    /// It comes back, every 24 to 72 steps.
    Load,
    /// It scatters around a middle that moves by steps.
    Duration,
    /// It grows, and falls back.
    Memory,
}

/// Mean distances of forecasts four steps ahead, over those of the plain ones: below 1 they are worth something.
#[derive(Debug, Clone, Serialize)]
pub struct Foresight {
    pub figure: Figure,
    pub level: Level,
    pub runs: u32,
    /// Of what is told, which is the plain one where that was less wrong lately.
    pub told_over_plain: f64,
    /// Of level, trend and season alone.
    pub own_over_plain: f64,
    /// Runs at whose end a season was known.
    pub with_season: u32,
}

impl Figure {
    pub const ALL: [Figure; 3] = [Figure::Load, Figure::Duration, Figure::Memory];

    pub fn as_str(self) -> &'static str {
        match self {
            Figure::Load => "load",
            Figure::Duration => "duration",
            Figure::Memory => "memory",
        }
    }
}

pub fn measure(runs: u32, seed: u64) -> Vec<Foresight> {
    let cells = Figure::ALL.into_iter().flat_map(|figure| Level::ALL.map(|level| (figure, level)));
    cells.map(|(figure, level)| cell(figure, level, runs.max(1), seed)).collect()
}

fn cell(figure: Figure, level: Level, runs: u32, seed: u64) -> Foresight {
    let (mut told, mut own, mut plain, mut with_season) = (0.0, 0.0, 0.0, 0);
    for run in 0..runs {
        let mut noise = Noise::new(seed.wrapping_mul(7_919).wrapping_add(u64::from(run) * 16 + level as u64));
        let values = values(figure, level, &mut noise);
        let mut forecaster = Forecaster::default();
        let mut said = Vec::new();
        for (step, value) in values.iter().enumerate() {
            forecaster.observe(*value);
            said.extend(forecaster.forecast(AHEAD).map(|forecast| forecast.value));
            if step >= WARM_UP + AHEAD {
                told += (value - said[step - AHEAD]).abs();
                plain += (value - values[step - AHEAD]).abs();
            }
        }
        let skill = forecaster.skill();
        own += skill.error / skill.plain_error.max(f64::MIN_POSITIVE);
        with_season += u32::from(forecaster.forecast(1).is_some_and(|forecast| forecast.season.is_some()));
    }
    Foresight { figure, level, runs, told_over_plain: told / plain, own_over_plain: own / f64::from(runs), with_season }
}

fn values(figure: Figure, level: Level, noise: &mut Noise) -> Vec<f64> {
    let scatter = level.pick(0.03, 0.1, 0.25);
    match figure {
        Figure::Load => {
            let period = f64::from(noise.count(24, 72));
            let wave = |step: u32| 50.0 + 30.0 * (f64::from(step) / period * std::f64::consts::TAU).sin();
            (0..STEPS).map(|step| wave(step) + 30.0 * scatter * noise.normal()).collect()
        }
        Figure::Duration => {
            let mut middle = 1.0;
            let mut next = |_| {
                middle *= if noise.is(0.01) { noise.between(0.7, 1.4) } else { 1.0 };
                middle * noise.factor(scatter)
            };
            (0..STEPS).map(&mut next).collect()
        }
        Figure::Memory => {
            let (grows, falls_at) = (noise.between(0.005, 0.05), noise.between(1.5, 3.0));
            let mut used = 1.0;
            let mut next = |_| {
                used = if used > falls_at { 1.0 } else { used + grows };
                used + 0.2 * scatter * noise.normal()
            };
            (0..STEPS).map(&mut next).collect()
        }
    }
}
