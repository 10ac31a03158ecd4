//! Servers with goals, jobs that should end, and work that takes what is left: how much gets done that counts, and how fairly.
//!
//! *Goodput* is GPU time, as if alone, of requests that were in time and of all work without a goal, in each second. Beside it `fairness`.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::Span;
use berth_model::slo::{Latency, Slo};
use berth_sim::Sharing;
use berth_sim::scenario::kernels::{Account, Report};
use serde::Serialize;

use super::fairness::Fairness;
use super::world::tenant::{Kind, request, stream};
use super::world::ways::PLANNING;
use super::world::{self, Tenant, Way, h200, whole};
use crate::bench::edf::load::Dice;

/// One way over all seeds: the mean of each.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Column {
    pub goodput: f64,
    /// Share of the requests with a goal that were in time.
    pub in_time: f64,
    #[serde(flatten)]
    pub fairness: Fairness,
}

pub fn measure(seconds: f64, seeds: &[u64]) -> BTreeMap<String, Column> {
    let unfair = [Way::Temporal, Way::Everybody, Way::LastFirst];
    let ways = unfair.into_iter().chain(PLANNING.map(Way::policy));
    ways.map(|way| (way.name().to_owned(), column(&way, seconds, seeds))).collect()
}

fn column(way: &Way, seconds: f64, seeds: &[u64]) -> Column {
    let runs: Vec<Column> = seeds.iter().map(|seed| one(way, seconds, *seed)).collect();
    let mean = |of: fn(&Column) -> f64| runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64;
    let worst_finish = runs.iter().map(|run| run.fairness.worst_finish).fold(0.0, f64::max);
    Column {
        goodput: mean(|run| run.goodput),
        in_time: mean(|run| run.in_time),
        fairness: Fairness { jain: mean(|run| run.fairness.jain), worst_finish },
    }
}

fn one(way: &Way, seconds: f64, seed: u64) -> Column {
    let tenants = tenants(seconds, seed);
    let report = world::run(&h200(Sharing::Mps), &tenants, way, Some(whole(seconds * 1e9)));
    Column {
        goodput: goodput(&tenants, &report),
        in_time: in_time(&tenants, &report),
        fairness: Fairness::of(&tenants, &report),
    }
}

/// GPU seconds that count, in each second.
pub fn goodput(tenants: &[Tenant], report: &Report) -> f64 {
    let all: f64 = tenants.iter().zip(&report.programs).map(|(tenant, account)| counts(tenant, account)).sum();
    all / report.ended_ns.max(1) as f64
}

fn counts(tenant: &Tenant, account: &Account) -> f64 {
    if tenant.slo.latency.is_none() {
        return account.served_ns as f64;
    }
    let in_time = account.finished.iter().filter(|done| tenant.is_in_time(done));
    in_time.map(|done| tenant.program.requests[done.request].alone_ns() as f64).sum()
}

/// Share of the requests with a goal that were in time, of those that could be.
pub fn in_time(tenants: &[Tenant], report: &Report) -> f64 {
    let each = tenants.iter().zip(&report.programs).filter(|(tenant, _)| tenant.slo.latency.is_some());
    let (kept, all) = each.fold((0, 0), |sum, (tenant, account)| {
        let due = |at: u64| at + u64::try_from(tenant.slo.within().unwrap_or_default().as_nanos()).unwrap_or(0);
        let asked = tenant.program.requests.iter().filter(|request| due(request.at_ns) <= report.ended_ns).count();
        let kept = account.finished.iter().filter(|done| tenant.is_in_time(done)).count();
        (sum.0 + kept.min(asked), sum.1 + asked)
    });
    kept as f64 / all.max(1) as f64
}

/// Two servers that ask for a third of the GPU, four jobs, two that always have work.
pub fn tenants(seconds: f64, seed: u64) -> Vec<Tenant> {
    let mut dice = Dice::new(seed);
    let end = seconds * 1e9;
    let mut tenants = Vec::new();
    for (owner, load) in [0.15, 0.2].into_iter().enumerate() {
        let alone = dice.between(1e6, 3e6);
        let kind = Kind { demand: dice.between(0.3, 0.6), bandwidth: dice.between(0.1, 0.4) };
        let requests = stream(&mut dice, end, alone / load, true, alone, kind);
        let within = Span(Duration::from_nanos(whole(alone * 5.0)));
        let latency = "99%".parse().ok().map(|percentile| Latency { percentile, within });
        tenants.push(Tenant::new(owner, Slo { latency, ..Slo::default() }, requests));
    }
    for owner in 2..6 {
        let kind = Kind { demand: dice.between(0.3, 1.0), bandwidth: dice.between(0.1, 0.7) };
        let (at, alone) = (dice.between(0.0, 0.6) * end, dice.between(0.02, 0.1) * end);
        let job = request(&mut dice, whole(at), alone, kind);
        tenants.push(Tenant::new(owner, Slo { completion: true, ..Slo::default() }, vec![job]));
    }
    for owner in 6..8 {
        let kind = Kind { demand: dice.between(0.5, 1.0), bandwidth: dice.between(0.2, 0.8) };
        tenants.push(Tenant::new(owner, Slo::default(), vec![request(&mut dice, 0, end * 3.0, kind)]));
    }
    tenants
}
