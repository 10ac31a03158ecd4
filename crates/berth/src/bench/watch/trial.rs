//! Many scenes of one kind at one level, with the fault and without: what was found rightly, wrongly, and not at all.

use berth_model::watch::Kind;
use serde::Serialize;

use super::noise::Noise;
use super::{Level, scenes};
use crate::bench::quantiles::Quantiles;

const SECONDS_PER_DAY: f64 = 86_400.0;

#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    pub kind: Kind,
    pub level: Level,
    pub with_fault: u32,
    pub without_fault: u32,
    /// Found after the fault began, and before the scene ended.
    pub found: u32,
    /// Found where there was none: without a fault, or before it.
    pub wrongly: u32,
    /// Of what was found, the part that was there.
    pub precision: f64,
    /// Of what was there, the part that was found.
    pub recall: f64,
    /// Steps from the fault until it was found.
    pub delay: Option<Quantiles>,
    /// Findings where there was no fault, of what gives a figure every second, in a day.
    pub wrongly_per_day: f64,
    /// Steps from a finding until the goal is missed, below zero where it was missed before; only of goals.
    pub lead: Option<Quantiles>,
}

pub fn measure(kind: Kind, level: Level, runs: u32, seed: u64) -> Trial {
    let (mut found, mut wrongly, mut delays, mut leads) = (0, 0, Vec::new(), Vec::new());
    let (mut alarms, mut calm_steps) = (0_u32, 0_u32);
    for run in 0..runs {
        // Faults come in the third quarter of a scene at the latest: there has to be time to notice.
        let mut noise = Noise::new(seed_of(kind, level, run, seed));
        let length = scenes::length(kind);
        let fault = noise.count(length * 4 / 10, length * 6 / 10);
        let played = scenes::play(kind, level, Some(fault), &mut noise);
        match played.found {
            Some(step) if step >= fault => {
                found += 1;
                delays.push(f64::from(step - fault));
                leads.extend(played.missed.map(|missed| f64::from(missed) - f64::from(step)));
            }
            Some(_) => wrongly += 1,
            None => {}
        }
        let mut noise = Noise::new(seed_of(kind, level, run, !seed));
        let alarm = scenes::play(kind, level, None, &mut noise).found;
        alarms += u32::from(alarm.is_some());
        calm_steps += alarm.map_or(length, |step| step + 1);
    }
    wrongly += alarms;
    Trial {
        kind,
        level,
        with_fault: runs,
        without_fault: runs,
        found,
        wrongly,
        precision: f64::from(found) / f64::from((found + wrongly).max(1)),
        recall: f64::from(found) / f64::from(runs.max(1)),
        delay: Quantiles::of(&delays),
        wrongly_per_day: f64::from(alarms) / f64::from(calm_steps.max(1)) * SECONDS_PER_DAY,
        lead: Quantiles::of(&leads),
    }
}

fn seed_of(kind: Kind, level: Level, run: u32, seed: u64) -> u64 {
    let scene = (kind as u64) * 8 + level as u64;
    seed.wrapping_mul(1_000_003).wrapping_add(scene).wrapping_mul(1_000_003).wrapping_add(u64::from(run))
}
