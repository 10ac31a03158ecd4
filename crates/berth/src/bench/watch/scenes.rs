//! What detectors are shown: a figure as it is when all is well, with changes of load that are no fault, and from some step on with one.
//!
//! A scene gives the step at which its detector first found something, if it did, and of a goal the steps from which on it is missed.

use std::collections::VecDeque;

use berth_model::watch::{Degradation, Drift, Finding, Foreseen, PredictorError, SloRisk, Starvation, StuckHold, Want};
use berth_model::{Bytes, Mono};

use serde::Serialize;

use super::Level;
use super::noise::Noise;

mod inside;

/// What is played: a detector, and where its figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scene {
    Degradation,
    SloRisk,
    MemoryDrift,
    Starvation,
    StuckHold,
    PredictorError,
    /// Figures of the level of kernels.
    StarvationOfKernels,
    PredictorErrorOfKernels,
    SloRiskOfKernels,
}

impl Scene {
    /// That who has not attached is told is a fact, and no judgement of figures.
    pub const ALL: [Scene; 9] = [
        Scene::Degradation,
        Scene::SloRisk,
        Scene::MemoryDrift,
        Scene::Starvation,
        Scene::StuckHold,
        Scene::PredictorError,
        Scene::StarvationOfKernels,
        Scene::PredictorErrorOfKernels,
        Scene::SloRiskOfKernels,
    ];

    /// As people read it.
    pub fn name(self) -> &'static str {
        match self {
            Scene::Degradation => "degradation",
            Scene::SloRisk => "slo risk",
            Scene::MemoryDrift => "memory drift",
            Scene::Starvation => "starvation",
            Scene::StuckHold => "stuck hold",
            Scene::PredictorError => "predictor error",
            Scene::StarvationOfKernels => "starvation, kernels",
            Scene::PredictorErrorOfKernels => "predictor error, kernels",
            Scene::SloRiskOfKernels => "slo risk, kernels",
        }
    }

    /// Steps of it.
    pub fn length(self) -> u32 {
        match self {
            Scene::Degradation | Scene::PredictorError => 800,
            Scene::SloRisk => 1_500,
            Scene::MemoryDrift | Scene::Starvation | Scene::StuckHold => 1_800,
            Scene::StarvationOfKernels | Scene::PredictorErrorOfKernels | Scene::SloRiskOfKernels => 1_800,
        }
    }
}

/// What came of a scene, by steps.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Played {
    pub found: Option<u32>,
    /// Here fewer of the window's pieces were in time than the goal asks for; `None` where there is none, or it is kept.
    pub missed: Option<u32>,
    /// From here on fewer will be on average, which nobody can see.
    pub missed_on_average: Option<u32>,
    /// How wrong forecasts of the slack that decides were.
    pub foreseen: Option<Foreseen>,
}

/// `fault` is the step from which on something is wrong.
pub fn play(scene: Scene, level: Level, fault: Option<u32>, noise: &mut Noise) -> Played {
    let found = match scene {
        Scene::SloRisk => return slo_risk(level, fault, noise),
        Scene::Degradation => degradation(level, fault, noise),
        Scene::MemoryDrift => memory_drift(level, fault, noise),
        Scene::Starvation => starvation(level, fault, noise),
        Scene::StuckHold => stuck_hold(level, fault, noise),
        Scene::PredictorError => predictor_error(level, fault, noise),
        Scene::StarvationOfKernels => inside::starvation(level, fault, noise),
        Scene::PredictorErrorOfKernels => inside::predictor_error(level, fault, noise),
        Scene::SloRiskOfKernels => inside::slo_risk(level, fault, noise),
    };
    Played { found, ..Played::default() }
}

fn first(scene: Scene, mut observe: impl FnMut(u32) -> Option<Finding>) -> Option<u32> {
    (0..scene.length()).find(|step| observe(*step).is_some())
}

/// A second a step.
fn at(step: u32) -> Mono {
    Mono(u64::from(step) * 1_000_000_000)
}

/// Factors by which load changes a figure: other ones after some steps.
struct Load {
    until: u32,
    factor: f64,
    by: f64,
}

impl Load {
    fn new(by: f64) -> Self {
        Self { until: 0, factor: 1.0, by }
    }

    fn factor(&mut self, step: u32, noise: &mut Noise) -> f64 {
        if step >= self.until {
            self.until = step + noise.count(100, 400);
            self.factor = noise.between(1.0 - self.by, 1.0 + self.by);
        }
        self.factor
    }
}

/// Work that takes 1.3 to 2 times as long from the fault on. Load changes it by up to 5 %, one in fifty is wild.
fn degradation(level: Level, fault: Option<u32>, noise: &mut Noise) -> Option<u32> {
    let spread = level.pick(0.05, 0.15, 0.35);
    let slower = noise.between(1.3, 2.0);
    let (mut load, mut detector) = (Load::new(0.05), Degradation::default());
    first(Scene::Degradation, |step| {
        let wild = if noise.is(0.02) { noise.between(2.0, 8.0) } else { 1.0 };
        let is_wrong = fault.is_some_and(|fault| step >= fault);
        let took = 0.2 * load.factor(step, noise) * noise.factor(spread) * wild * if is_wrong { slower } else { 1.0 };
        detector.observe(at(step), took)
    })
}

/// Predictions that are off by a factor of 1.6 to 2.5 from the fault on, one way or the other.
fn predictor_error(level: Level, fault: Option<u32>, noise: &mut Noise) -> Option<u32> {
    let spread = level.pick(0.1, 0.25, 0.5);
    let off = noise.between(1.6, 2.5);
    let off = if noise.is(0.5) { off } else { 1.0 / off };
    let (mut load, mut detector) = (Load::new(0.1), PredictorError::default());
    first(Scene::PredictorError, |step| {
        let predicted = noise.between(0.05, 2.0);
        let is_wrong = fault.is_some_and(|fault| step >= fault);
        let took = predicted * load.factor(step, noise) * noise.factor(spread) * if is_wrong { off } else { 1.0 };
        detector.observe(at(step), predicted, took)
    })
}

/// 995 in 1,000 are in time and 95 in 100 have to be; load takes it down to 985. From the fault on slack shrinks, in 150 to 400 steps
/// to where every second is late.
fn slo_risk(level: Level, fault: Option<u32>, noise: &mut Noise) -> Played {
    /// Times the spread, that 5 in 100 are below.
    const LATE: f64 = 1.645;
    let spread = level.pick(0.05, 0.1, 0.2);
    let (usual, under_load) = (2.58 * spread + noise.between(0.0, 0.1), 2.17 * spread);
    let shrinks_for = noise.between(150.0, 400.0);
    let (mut until, mut middle) = (0, usual);
    let mut detector = SloRisk::new(0.95);
    let mut played = Played::default();
    let mut window: VecDeque<bool> = VecDeque::new();
    for step in 0..Scene::SloRisk.length() {
        if step >= until {
            until = step + noise.count(100, 400);
            middle = noise.between(under_load, usual);
        }
        let gone = fault.map_or(0.0, |fault| f64::from(step.saturating_sub(fault)) / shrinks_for).min(1.0);
        let slack = middle * (1.0 - gone);
        // Only once a goal cannot be kept any more, and not when load takes it there for a while.
        if slack < LATE * spread && played.missed_on_average.is_none() && gone > 0.0 {
            played.missed_on_average = Some(step);
        }
        let slack = slack + spread * noise.normal();
        window.push_back(slack < 0.0);
        window.drain(..window.len().saturating_sub(detector.window()));
        let late = window.iter().filter(|is_late| **is_late).count() as f64 / window.len() as f64;
        if late > 1.0 - detector.target() + f64::EPSILON && gone > 0.0 {
            played.missed = played.missed.or(Some(step));
        }
        if detector.observe(at(step), slack).is_some() {
            played.found = played.found.or(Some(step));
        }
    }
    played.foreseen = detector.foreseen();
    played
}

/// 8 GiB with a saw on it and noise that lasts; load makes steps of up to 30 %. From the fault on it grows by 5 to 25 % in five minutes.
fn memory_drift(level: Level, fault: Option<u32>, noise: &mut Noise) -> Option<u32> {
    const BASE: f64 = 8.0 * 1024.0 * 1024.0 * 1024.0;
    let (saw, scatter) = (level.pick(0.005, 0.02, 0.05), level.pick(0.001, 0.004, 0.01));
    let (period, grows) = (noise.count(10, 60), noise.between(0.05, 0.25) / 300.0);
    let (mut load, mut lasting, mut detector) = (Load::new(0.3), 0.0, Drift::default());
    first(Scene::MemoryDrift, |step| {
        lasting = 0.8 * lasting + scatter * noise.normal();
        let tooth = saw * f64::from(step % period) / f64::from(period);
        let grown = grows * fault.map_or(0.0, |fault| f64::from(step.saturating_sub(fault)));
        let used = BASE * (load.factor(step / 2, noise) + tooth + lasting + grown);
        detector.observe(at(step), bytes(used), Some(Bytes::from_mib(80 << 10)))
    })
}

/// Two to five tenants by turns of 2 to 10 s whose lengths scatter; how many there are changes. From the fault on one of them has no turn.
fn starvation(level: Level, fault: Option<u32>, noise: &mut Noise) -> Option<u32> {
    let spread = level.pick(0.1, 0.4, 0.8);
    let turn = noise.between(2.0, 10.0);
    let (mut others, mut change_at) = (noise.count(1, 5), noise.count(300, 600));
    let (mut whose, mut until) = (0, 0.0);
    let mut detector = Starvation::default();
    first(Scene::Starvation, |step| {
        let is_wrong = fault.is_some_and(|fault| step >= fault);
        if step >= change_at {
            (others, change_at) = (noise.count(1, 5), step + noise.count(300, 600));
        }
        while until <= f64::from(step) {
            whose = (whose + 1) % (others + 1);
            until += turn * noise.factor(spread);
        }
        let got = if whose == 0 && !is_wrong { 1.0 } else { 0.0 };
        detector.observe(at(step), Want { wants: true, got, others })
    })
}

/// Half a second a step. One that is held while another computes, for 5 to 15 s, and then for nobody for about a second, or two under
/// load. From the fault on nobody computes and it stays held.
fn stuck_hold(level: Level, fault: Option<u32>, noise: &mut Noise) -> Option<u32> {
    let spread = level.pick(0.3, 0.6, 1.0);
    let (mut load, mut detector) = (Load::new(0.5), StuckHold::default());
    let (mut is_free, mut until) = (false, 0.0);
    first(Scene::StuckHold, |step| {
        let now = f64::from(step) / 2.0;
        while until <= now {
            is_free = !is_free;
            let gap = 1.2 * load.factor(step, noise) * noise.factor(spread);
            until += if is_free { gap } else { noise.between(5.0, 15.0) };
        }
        let is_wrong = fault.is_some_and(|fault| step >= fault);
        detector.observe(Mono(u64::from(step) * 500_000_000), true, is_free || is_wrong)
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a GPU")]
fn bytes(bytes: f64) -> Bytes {
    Bytes(bytes.max(0.0) as u64)
}
