//! Many scenes of one kind at one level, with the fault and without: what was found rightly, wrongly, and not at all.

use berth_model::watch::Foreseen;
use serde::Serialize;

use super::noise::Noise;
use super::scenes::Scene;
use super::{Level, scenes};
use crate::bench::quantiles::Quantiles;

const SECONDS_PER_DAY: f64 = 86_400.0;

#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    #[serde(rename = "kind")]
    pub scene: Scene,
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
    /// The same until it is missed on average.
    pub lead_on_average: Option<Quantiles>,
    /// Of the faults by which a goal was missed, the part that was found before.
    pub before: Option<f64>,
    /// Mean error of forecasts of the slack that decides, over that of saying that all stays as it is.
    pub foreseen_over_plain: Option<f64>,
}

pub fn measure(scene: Scene, level: Level, runs: u32, seed: u64) -> Trial {
    let (mut found, mut wrongly, mut delays, mut leads) = (0, 0, Vec::new(), Vec::new());
    let (mut leads_on_average, mut missed, mut before) = (Vec::new(), 0_u32, 0_u32);
    let (mut error, mut plain_error) = (0.0, 0.0);
    let (mut alarms, mut calm_steps) = (0_u32, 0_u32);
    for run in 0..runs {
        // Faults come in the third quarter of a scene at the latest: there has to be time to notice.
        let mut noise = Noise::new(seed_of(scene, level, run, seed));
        let length = scene.length();
        let fault = noise.count(length * 4 / 10, length * 6 / 10);
        let played = scenes::play(scene, level, Some(fault), &mut noise);
        missed += u32::from(played.missed.is_some());
        if let Some(Foreseen { error: own, plain_error: plain }) = played.foreseen {
            (error, plain_error) = (error + own, plain_error + plain);
        }
        match played.found {
            Some(step) if step >= fault => {
                found += 1;
                delays.push(f64::from(step - fault));
                let lead = |missed: Option<u32>| missed.map(|missed| f64::from(missed) - f64::from(step));
                leads.extend(lead(played.missed));
                leads_on_average.extend(lead(played.missed_on_average));
                before += u32::from(lead(played.missed).is_some_and(|lead| lead > 0.0));
            }
            Some(_) => wrongly += 1,
            None => {}
        }
        let mut noise = Noise::new(seed_of(scene, level, run, !seed));
        let alarm = scenes::play(scene, level, None, &mut noise).found;
        alarms += u32::from(alarm.is_some());
        calm_steps += alarm.map_or(length, |step| step + 1);
    }
    wrongly += alarms;
    Trial {
        scene,
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
        lead_on_average: Quantiles::of(&leads_on_average),
        before: (missed > 0).then(|| f64::from(before) / f64::from(missed)),
        foreseen_over_plain: (plain_error > 0.0).then(|| error / plain_error),
    }
}

fn seed_of(scene: Scene, level: Level, run: u32, seed: u64) -> u64 {
    let scene = (scene as u64) * 8 + level as u64;
    seed.wrapping_mul(1_000_003).wrapping_add(scene).wrapping_mul(1_000_003).wrapping_add(u64::from(run))
}
