//! Servers with goals, jobs that should end, and work that takes what is left: how much gets done that counts, and how fairly.
//!
//! *Goodput* is GPU time, as if alone, of requests that were in time and of all work without a goal, in each second. *Fairness* is Jain's index
//! over what each user got of what it wanted.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::Span;
use berth_model::settings::KernelPolicyName;
use berth_model::slo::{Latency, Slo};
use berth_policy::kernels::hybrid::jain;
use berth_sim::scenario::kernels::{Account, Machine, Report};
use serde::Serialize;

use super::world::tenant::{Kind, request, stream};
use super::world::{self, Tenant, Way, whole};
use crate::bench::edf::load::Dice;

/// One way over all seeds: the mean of each.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Column {
    pub goodput: f64,
    /// Share of the requests with a goal that were in time.
    pub in_time: f64,
    /// Jain's index over users.
    pub jain: f64,
    /// Of jobs, the worst time over what it would have been with an equal part of the GPU.
    pub worst_finish: f64,
}

pub const POLICIES: [KernelPolicyName; 3] = [KernelPolicyName::Jct, KernelPolicyName::Slo, KernelPolicyName::Hybrid];

pub fn measure(seconds: f64, seeds: &[u64]) -> BTreeMap<String, Column> {
    let ways = [Way::Temporal, Way::Everybody].into_iter().chain(POLICIES.map(Way::policy));
    ways.map(|way| (way.name(), column(&way, seconds, seeds))).collect()
}

fn column(way: &Way, seconds: f64, seeds: &[u64]) -> Column {
    let runs: Vec<Column> = seeds.iter().map(|seed| one(way, seconds, *seed)).collect();
    let mean = |of: fn(&Column) -> f64| runs.iter().map(of).sum::<f64>() / runs.len().max(1) as f64;
    Column {
        goodput: mean(|run| run.goodput),
        in_time: mean(|run| run.in_time),
        jain: mean(|run| run.jain),
        worst_finish: mean(|run| run.worst_finish),
    }
}

fn one(way: &Way, seconds: f64, seed: u64) -> Column {
    let tenants = tenants(seconds, seed);
    let report = world::run(&Machine::default(), &tenants, way, Some(whole(seconds * 1e9)));
    let each = || tenants.iter().zip(&report.programs);
    let (in_time, all) =
        each().filter(|(tenant, _)| tenant.slo.latency.is_some()).fold((0, 0), |sum, (tenant, account)| {
            let kept = account.finished.iter().filter(|done| tenant.is_in_time(done)).count();
            (sum.0 + kept, sum.1 + tenant.program.requests.len())
        });
    Column {
        goodput: each().map(|(tenant, account)| counts(tenant, account)).sum::<f64>() / (seconds * 1e9),
        in_time: in_time as f64 / all.max(1) as f64,
        jain: jain(each().map(|(tenant, account)| got(tenant, account, &report))).unwrap_or(0.0),
        worst_finish: worst_finish(&tenants, &report),
    }
}

/// GPU time that counts, in nanoseconds.
fn counts(tenant: &Tenant, account: &Account) -> f64 {
    if tenant.slo.latency.is_none() {
        return account.served_ns as f64;
    }
    let in_time = account.finished.iter().filter(|done| tenant.is_in_time(done));
    in_time.map(|done| tenant.program.requests[done.request].alone_ns() as f64).sum()
}

/// What a tenant got of what it wanted: of its requests, or of the time since it came, at most its equal part counts.
fn got(tenant: &Tenant, account: &Account, report: &Report) -> f64 {
    let came = tenant.program.requests.first().map_or(0, |request| request.at_ns);
    let ended = account.finished.last().filter(|_| account.finished.len() == tenant.program.requests.len());
    let ended = ended.map_or(report.ended_ns, |done| done.done_ns).min(report.ended_ns);
    let here = ended.saturating_sub(came).max(1) as f64;
    let wanted: f64 = tenant.program.requests.iter().map(|request| request.alone_ns() as f64).sum();
    let part = here / report.programs.len() as f64;
    (account.served_ns as f64 / wanted.min(part)).min(1.0)
}

fn worst_finish(tenants: &[Tenant], report: &Report) -> f64 {
    let jobs = tenants.iter().zip(&report.programs).filter(|(tenant, _)| tenant.slo.completion);
    let finish = jobs.map(|(tenant, account)| {
        let request = &tenant.program.requests[0];
        let ended = account.finished.first().map_or(report.ended_ns, |done| done.done_ns);
        let alone = if account.finished.is_empty() { account.served_ns.max(1) } else { request.alone_ns() };
        ended.saturating_sub(request.at_ns) as f64 / (alone as f64 * tenants.len() as f64)
    });
    finish.fold(0.0, f64::max)
}

/// Two servers, four jobs, two that always have work.
pub fn tenants(seconds: f64, seed: u64) -> Vec<Tenant> {
    let mut dice = Dice::new(seed);
    let end = seconds * 1e9;
    let mut tenants = Vec::new();
    for owner in 0..2 {
        let alone = dice.between(1e6, 3e6);
        let kind = Kind { demand: dice.between(0.3, 0.6), bandwidth: dice.between(0.1, 0.4) };
        let requests = stream(&mut dice, end, alone / dice_load(owner), true, alone, kind);
        let within = Span(Duration::from_nanos(whole(alone * 5.0)));
        let latency = "99%".parse().ok().map(|percentile| Latency { percentile, within });
        tenants.push(Tenant::new(owner, Slo { latency, ..Slo::default() }, requests));
    }
    for owner in 2..6 {
        let kind = Kind { demand: dice.between(0.3, 1.0), bandwidth: dice.between(0.1, 0.7) };
        let (at, alone) = (dice.between(0.0, 0.6) * end, dice.between(0.02, 0.1) * end);
        let job = request(&mut dice, whole(at), alone, kind);
        let slo = Slo { completion: true, ..Slo::default() };
        tenants.push(Tenant { estimate: dice.between(0.8, 1.2), ..Tenant::new(owner, slo, vec![job]) });
    }
    for owner in 6..8 {
        let kind = Kind { demand: dice.between(0.5, 1.0), bandwidth: dice.between(0.2, 0.8) };
        tenants.push(Tenant::new(owner, Slo::default(), vec![request(&mut dice, 0, end * 3.0, kind)]));
    }
    tenants
}

/// What each server asks of the GPU, alone.
fn dice_load(owner: usize) -> f64 {
    [0.15, 0.2][owner % 2]
}
