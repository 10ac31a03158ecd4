//! Jobs that come one after another: when are they done on average, under `jct` and what it is measured against.
//!
//! Tenants run the like again and again, so that what a job takes can be learned from those before it; of the first nobody knows anything. Shortest
//! first has the same estimates and no bound on waits: for as long as others come, the longest job waits. A bound on waits has a price, whoever keeps it. So
//! `jct` as it is by default is measured against shortest first without a bound, and against shortest first under the same bound and in the same line ([`SAME`]:
//! `jct` itself on a GPU that runs one at a time); and with the longest wait as long as it can be set ([`UNBOUNDED`]), which shows the price.

use std::collections::BTreeMap;

use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_model::{Slo, Span};
use berth_sim::Sharing;
use berth_sim::scenario::kernels::Report;
use serde::Serialize;

use super::world::tenant::{Kind, request};
use super::world::{self, Tenant, Way, h200, whole};
use crate::bench::edf::load::Dice;

/// The longest that `kernels.longest_wait` can be.
const LONGEST: Span = Span::from_millis(60_000);
/// As it is by default.
pub const JCT: &str = "jct";
/// With [`LONGEST`] as the longest wait.
pub const UNBOUNDED: &str = "jct-unbounded";
/// Shortest first with the bound and the line of `jct`.
pub const SAME: &str = "sjf-bounded";
const TENANTS: usize = 6;

/// Whether jobs of a mix gain by running side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mix {
    /// Jobs that use half of the GPU or less, and little bandwidth.
    Pays,
    /// Some of each.
    Mixed,
    /// Every job fills the GPU and most of its memory's bandwidth.
    DoesNotPay,
}

/// Mean completion in milliseconds, by the way, seed by seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cell {
    pub mix: Mix,
    pub mean_ms: BTreeMap<String, Vec<f64>>,
}

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
        let large = Kind { demand: 1.2, bandwidth: dice.between(0.85, 1.0) };
        match self {
            Mix::Pays => small,
            Mix::DoesNotPay => large,
            Mix::Mixed if dice.whole(0, 1) == 0 => small,
            Mix::Mixed => large,
        }
    }
}

pub fn measure(mix: Mix, jobs: usize, seeds: &[u64]) -> Cell {
    let machine = h200(Sharing::Mps);
    let unbounded = KernelSettings { longest_wait: LONGEST, ..KernelSettings::default() };
    let ways = [
        ("fifo", Way::Fifo),
        ("sjf", Way::Sjf),
        ("everybody", Way::Everybody),
        (JCT, Way::policy(KernelPolicyName::Jct)),
        (UNBOUNDED, Way::Policy(KernelPolicyName::Jct, Box::new(unbounded))),
        (SAME, Way::SjfBounded),
    ];
    let of = |(name, way): (&str, Way)| {
        let mean = |seed: &u64| mean_ms(&world::run(&machine, &tenants(mix, jobs, *seed), &way, None));
        (name.to_owned(), seeds.iter().map(mean).collect())
    };
    Cell { mix, mean_ms: ways.into_iter().map(of).collect() }
}

/// So many jobs of each tenant, of 5 to 100 ms give or take a fifth, that come faster than they can be done one by one.
fn tenants(mix: Mix, jobs: usize, seed: u64) -> Vec<Tenant> {
    let mut dice = Dice::new(seed);
    let tenant = |owner| {
        let (usual, kind) = (5e6 * 20f64.powf(dice.between(0.0, 1.0)), mix.kind(&mut dice));
        let mut at = dice.between(0.0, 60e6);
        let requests = (0..jobs).map(|_| {
            let length = usual * dice.between(0.8, 1.2);
            let job = request(&mut dice, whole(at), length, kind);
            at += length * TENANTS as f64 * dice.between(0.4, 1.2);
            job
        });
        let requests = requests.collect();
        Tenant::new(owner, Slo { completion: true, ..Slo::default() }, requests)
    };
    (0..TENANTS).map(tenant).collect()
}

fn mean_ms(report: &Report) -> f64 {
    let ends = report.programs.iter().flat_map(|account| &account.finished);
    let times: Vec<f64> = ends.map(|done| (done.done_ns - done.came_ns) as f64 / 1e6).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

impl Cell {
    /// Worst and mean of a way over another, with the same seeds.
    pub fn ratio(&self, way: &str, over: &str) -> Option<(f64, f64)> {
        let (own, other) = (self.mean_ms.get(way)?, self.mean_ms.get(over)?);
        let ratios: Vec<f64> = own.iter().zip(other).map(|(own, other)| own / other).collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        Some((ratios.into_iter().max_by(f64::total_cmp)?, mean))
    }
}
