//! Jobs that come one after another: when are they done on average, under `jct` and what it is measured against.

use std::collections::BTreeMap;

use berth_model::Slo;
use berth_model::settings::KernelPolicyName;
use berth_sim::scenario::kernels::{Machine, Report};
use serde::Serialize;

use super::world::tenant::{Kind, request};
use super::world::{self, Tenant, Way, whole};
use crate::bench::edf::load::Dice;

/// Whether jobs of a mix gain by running side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Jobs that use half of the GPU or less, and little bandwidth.
    Pays,
    /// Some of each.
    Mixed,
    /// Every job fills the GPU and its memory's bandwidth.
    DoesNotPay,
}

/// Mean completion in milliseconds, by the way, seed by seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    pub mix: Mix,
    pub mean_ms: BTreeMap<String, Vec<f64>>,
}

const WAYS: [Way; 4] = [
    Way::Fifo,
    Way::Sjf,
    Way::Everybody,
    Way::Policy(KernelPolicyName::Jct, berth_model::settings::Division::SemiSpatial),
];

impl Mix {
    pub const ALL: [Mix; 3] = [Mix::Pays, Mix::Mixed, Mix::DoesNotPay];

    pub fn as_str(self) -> &'static str {
        match self {
            Mix::Pays => "sharing pays",
            Mix::Mixed => "mixed",
            Mix::DoesNotPay => "sharing does not pay",
        }
    }

    fn kind(self, dice: &mut Dice) -> Kind {
        let small = Kind { demand: dice.between(0.2, 0.5), bandwidth: dice.between(0.05, 0.3) };
        let large = Kind { demand: 1.0, bandwidth: dice.between(0.85, 1.0) };
        match self {
            Mix::Pays => small,
            Mix::DoesNotPay => large,
            Mix::Mixed if dice.whole(0, 1) == 0 => small,
            Mix::Mixed => large,
        }
    }
}

pub fn measure(mix: Mix, jobs: usize, seeds: &[u64]) -> Cell {
    let machine = Machine::default();
    let of = |way: Way| {
        let mean = |seed: &u64| mean_ms(&world::run(&machine, &tenants(mix, jobs, *seed), &way, None));
        (way.name(), seeds.iter().map(mean).collect())
    };
    Cell { mix, mean_ms: WAYS.into_iter().map(of).collect() }
}

/// Jobs of 5 to 200 ms that come faster than they can be done one by one. Estimates are off by up to a fifth.
fn tenants(mix: Mix, jobs: usize, seed: u64) -> Vec<Tenant> {
    let mut dice = Dice::new(seed);
    let mut at = 0.0;
    let mut all = Vec::new();
    for owner in 0..jobs {
        let (alone, kind) = (5e6 * 40f64.powf(dice.between(0.0, 1.0)), mix.kind(&mut dice));
        let job = request(&mut dice, whole(at), alone, kind);
        let slo = Slo { completion: true, ..Slo::default() };
        all.push(Tenant { estimate: dice.between(0.8, 1.2), ..Tenant::new(owner, slo, vec![job]) });
        at += dice.between(0.0, 60e6);
    }
    all
}

fn mean_ms(report: &Report) -> f64 {
    let ends = report.programs.iter().flat_map(|account| &account.finished);
    let times: Vec<f64> = ends.map(|done| (done.done_ns - done.came_ns) as f64 / 1e6).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

impl Cell {
    /// Worst and mean of `jct` over another way, with the same seeds.
    pub fn ratio(&self, over: &str) -> Option<(f64, f64)> {
        let (own, other) = (self.mean_ms.get("jct")?, self.mean_ms.get(over)?);
        let ratios: Vec<f64> = own.iter().zip(other).map(|(own, other)| own / other).collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        Some((ratios.into_iter().max_by(f64::total_cmp)?, mean))
    }
}
