//! Figures of the level of kernels, as they are looked at once a second.

use berth_model::watch::{Kept, PredictorError, Starvation, Want};

use super::{Load, Scene, at, first};
use crate::bench::watch::Level;
use crate::bench::watch::noise::Noise;

/// One that always has work, beside one to four others. What part of a second its kernels are let run for scatters around its fair share, and every now and then
/// somebody with a goal has the GPU for 2 to 8 s. From the fault on it is let run for a tenth of its share at the most.
pub fn starvation(level: Level, fault: Option<u32>, noise: &mut Noise) -> Option<u32> {
    let spread = level.pick(0.1, 0.4, 0.8);
    let (mut others, mut change_at) = (noise.count(1, 5), noise.count(300, 600));
    let (mut led_from, mut led_until) = (noise.count(20, 60), 0);
    let starved = noise.between(0.0, 0.1);
    let mut detector = Starvation::default();
    first(Scene::StarvationOfKernels, |step| {
        if step >= change_at {
            (others, change_at) = (noise.count(1, 5), step + noise.count(300, 600));
        }
        if step >= led_from {
            led_until = step + noise.count(2, 8);
            led_from = led_until + noise.count(20, 60);
        }
        let fair = 1.0 / f64::from(others + 1);
        let part = if fault.is_some_and(|fault| step >= fault) { starved } else { noise.factor(spread) };
        let got = if step < led_until { 0.0 } else { (fair * part).min(1.0) };
        detector.observe(at(step), Want { wants: true, got, others })
    })
}

/// How far a library's estimates are off of late, which wavers slowly. In a new phase they are off by a factor of 1.5 to 3 for some seconds, until they have
/// learned; some seconds nothing is measured. From the fault on they stay off by 1.6 to 2.5, one way or the other.
pub fn predictor_error(level: Level, fault: Option<u32>, noise: &mut Noise) -> Option<u32> {
    let spread = level.pick(0.02, 0.05, 0.1);
    let off = noise.between(1.6, 2.5).ln() * if noise.is(0.5) { 1.0 } else { -1.0 };
    let (mut lasting, mut phase, mut phase_at) = (0.0, 0.0, noise.count(50, 300));
    let mut detector = PredictorError::default();
    first(Scene::PredictorErrorOfKernels, |step| {
        lasting = 0.8 * lasting + spread * noise.normal();
        phase *= 0.6;
        if step >= phase_at {
            phase = noise.between(1.5, 3.0).ln() * if noise.is(0.5) { 1.0 } else { -1.0 };
            phase_at = step + noise.count(50, 300);
        }
        let wrong = if fault.is_some_and(|fault| step >= fault) { off } else { 0.0 };
        let is_measured = noise.is(0.8);
        is_measured.then(|| detector.observe(at(step), 1.0, (lasting + phase + wrong).exp())).flatten()
    })
}

/// 99 in 100 requests have to be in time; of what may be missed three to eight tenths are, by load, and it wavers. From the fault on three to ten times as much as may be is.
pub fn slo_risk(level: Level, fault: Option<u32>, noise: &mut Noise) -> Option<u32> {
    const TARGET: f64 = 0.99;
    let spread = level.pick(0.05, 0.15, 0.3);
    let (middle, worse) = (noise.between(0.45, 0.55), noise.between(3.0, 10.0));
    let (mut load, mut detector) = (Load::new(0.4), Kept::default());
    first(Scene::SloRiskOfKernels, |step| {
        let part = if fault.is_some_and(|fault| step >= fault) { worse } else { middle * load.factor(step, noise) };
        detector.observe(at(step), 1.0 - (1.0 - TARGET) * part * noise.factor(spread), TARGET);
        detector.finding()
    })
}
