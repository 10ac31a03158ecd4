//! Tenants with goals at nine tenths of what a GPU can do, and one without that takes the rest: which goals are kept.
//!
//! Not every set of goals can be kept. An offline search tells: it runs the same requests, which it knows, by what is really due first, with and
//! without those that are too late anyway, by each fixed order of the tenants, by turns, and all at once. If any of them keeps every
//! goal, they can be kept, and `slo` has to.

use berth_model::Span;
use berth_model::settings::KernelPolicyName;
use berth_model::slo::{Latency, Slo};
use berth_sim::scenario::kernels::{Machine, Report};
use serde::Serialize;

use super::world::tenant::{Kind, request, stream};
use super::world::{self, Tenant, Way, whole};
use crate::bench::edf::load::Dice;

/// What those with goals ask of the GPU, alone.
pub const LOAD: f64 = 0.9;

/// One set of tenants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Case {
    pub seed: u64,
    pub goals: usize,
    /// A way that keeps all of them; `None` if the search found none.
    pub feasible: Option<String>,
    /// Goals that `slo` missed.
    pub missed: usize,
    /// What the one without a goal got, over what was left for it.
    pub rest: f64,
}

/// On every other GPU kernels of different tenants run at the same time.
pub fn measure(seconds: f64, seed: u64) -> Case {
    let machine = Machine { concurrent: seed.is_multiple_of(2), ..Machine::default() };
    let tenants = tenants(seconds, seed);
    let end = whole(seconds * 1e9);
    let goals = tenants.iter().filter(|tenant| tenant.slo.promises()).count();
    let missed = |way: &Way| missed(&tenants, &world::run(&machine, &tenants, way, Some(end + end / 10)));
    let orders = (0..(1..=goals).product()).map(Way::Fixed);
    let mut search = [Way::Due, Way::DueInTime, Way::Everybody, Way::Temporal].into_iter().chain(orders);
    let feasible = search.find(|way| missed(way) == 0).map(|way| way.name());
    let report = world::run(&machine, &tenants, &Way::policy(KernelPolicyName::Slo), Some(end));
    let rest = report.programs.last().map_or(0.0, |account| account.served_ns as f64) / (end as f64 * (1.0 - LOAD));
    Case { seed, goals, feasible, missed: missed(&Way::policy(KernelPolicyName::Slo)), rest }
}

fn missed(tenants: &[Tenant], report: &Report) -> usize {
    let with = tenants.iter().zip(&report.programs).filter(|(tenant, _)| tenant.slo.promises());
    with.filter(|(tenant, account)| tenant.attained(account) < tenant.slo.target().get()).count()
}

/// Two to four servers, the last tenant without a goal.
fn tenants(seconds: f64, seed: u64) -> Vec<Tenant> {
    let mut dice = Dice::new(seed);
    let count = dice.whole(2, 4);
    let parts: Vec<f64> = (0..count).map(|_| dice.between(0.5, 1.5)).collect();
    let all: f64 = parts.iter().sum();
    let mut tenants: Vec<Tenant> = Vec::new();
    for (owner, part) in parts.iter().enumerate() {
        let alone = 0.5e6 * 16f64.powf(dice.between(0.0, 1.0));
        let kind = Kind { demand: dice.between(0.6, 1.0), bandwidth: dice.between(0.2, 0.8) };
        let random = dice.whole(0, 3) == 0;
        let requests = stream(&mut dice, seconds * 1e9, alone * all / part / LOAD, random, alone, kind);
        let within = Span(std::time::Duration::from_nanos(whole(alone * dice.between(2.0, 8.0))));
        let percentile = if dice.whole(0, 1) == 0 { "95%" } else { "99%" };
        let latency = percentile.parse().ok().map(|percentile| Latency { percentile, within });
        tenants.push(Tenant {
            estimate: dice.between(0.9, 1.1),
            ..Tenant::new(owner, Slo { latency, ..Slo::default() }, requests)
        });
    }
    let filler = request(&mut dice, 0, seconds * 2e9, Kind { demand: 1.0, bandwidth: 0.5 });
    tenants.push(Tenant::new(count, Slo::default(), vec![filler]));
    tenants
}
