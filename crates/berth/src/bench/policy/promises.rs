//! Tenants with goals at nine tenths of what a GPU can do, and one without that takes the rest: which goals are kept.
//!
//! Not every set of goals can be kept. An offline search tells (`feasible`): as if acting cost nothing, with what berth's own means cost whoever uses
//! them, and, of these, if requests that are late are run all the same ([`costs`]): something that comes is seen at the next look, what runs is stopped at the end of a piece of work, and each
//! piece begins with a look at the stops.
//!
//! Of a set that can be kept and is not, two more runs tell why: what a rule keeps that does not see the future (`online`), and what `slo` does where it is told
//! when each request came, which no library sees of those that queue inside a program.

use berth_model::Span;
use berth_model::settings::KernelPolicyName;
use berth_model::slo::{Latency, Slo};
use berth_sim::Sharing;
use berth_sim::scenario::kernels::{Machine, Report};
use serde::Serialize;

use super::feasible::{self, Costs, Feasible, Late};
use super::online;
use super::world::tenant::{Kind, request, stream};
use super::world::{self, Tenant, Way, h200, whole};
use crate::bench::edf::load::Dice;

/// What those with goals ask of the GPU, alone.
pub const LOAD: f64 = 0.9;

/// One set of tenants.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Case {
    pub seed: u64,
    pub goals: usize,
    /// Whether all of them can be kept: as if acting cost nothing, with what it costs, and if late requests are run too.
    pub ideal: Feasible,
    pub feasible: Feasible,
    pub runnable: Feasible,
    /// Goals that a rule misses that does not know what comes: with what is late never run, and run.
    pub online: usize,
    pub online_run: usize,
    /// Of each goal, requests that were late under `slo`, and how many may be.
    pub late: Vec<(usize, usize)>,
    /// Goals that `slo` missed, that it does where it is told when requests came, and that the driver's slices and everybody at once do.
    pub missed: usize,
    pub told: usize,
    pub temporal: usize,
    pub everybody: usize,
    /// What the one without a goal got, over what was left for it.
    pub rest: f64,
}

/// On every other GPU kernels of different tenants run at the same time.
pub fn measure(seconds: f64, seed: u64) -> Case {
    let machine = h200(if seed.is_multiple_of(2) { Sharing::Mps } else { Sharing::TimeSliced });
    let tenants = tenants(seconds, seed);
    let end = whole(seconds * 1e9);
    let run = |way: &Way| world::run(&machine, &tenants, way, Some(end + end / 10));
    let slo = run(&Way::policy(KernelPolicyName::Slo));
    let late = late_of(&tenants, &slo);
    let rest = slo.programs.last().map_or(0.0, |account| account.served_ns as f64);
    let run_missed = |way: &Way| missed(&late_of(&tenants, &run(way)));
    let asks = feasible::asks(&tenants, costs(&machine));
    let online = |fate: Late| {
        let may_miss = feasible::may_miss(&tenants);
        let late = online::late(&asks, may_miss.clone(), fate);
        missed(&late.into_iter().zip(may_miss).collect::<Vec<_>>())
    };
    Case {
        seed,
        goals: tenants.iter().filter(|tenant| tenant.slo.promises()).count(),
        ideal: feasible::goals(&tenants, Costs::NONE, Late::LeftOut),
        feasible: feasible::goals(&tenants, costs(&machine), Late::LeftOut),
        runnable: feasible::goals(&tenants, costs(&machine), Late::Run),
        online: online(Late::LeftOut),
        online_run: online(Late::Run),
        missed: missed(&late),
        late,
        told: run_missed(&Way::Told),
        temporal: run_missed(&Way::Temporal),
        everybody: run_missed(&Way::Everybody),
        rest: rest / (slo.ended_ns as f64 * (1.0 - LOAD)),
    }
}

/// What acting costs on that machine.
pub fn costs(machine: &Machine) -> Costs {
    let Machine { grain_ns, stop_ns, resume_ns, gap_ns, look_every_ns, plan_ns, .. } = *machine;
    let switch_ns = if machine.sharing == Sharing::TimeSliced { machine.profile.compute.switch_us * 1e3 } else { 0.0 };
    Costs {
        late_ns: (look_every_ns + plan_ns + grain_ns + resume_ns) as f64,
        part: stop_ns as f64 / (grain_ns as f64 / 2.0),
        each_ns: (gap_ns + resume_ns) as f64 + switch_ns,
    }
}

/// Requests of each tenant with a goal that were late, and how many may be.
fn late_of(tenants: &[Tenant], report: &Report) -> Vec<(usize, usize)> {
    let with = tenants.iter().zip(&report.programs).filter(|(tenant, _)| tenant.slo.promises());
    with.map(|(tenant, account)| (tenant.late(account), tenant.may_miss())).collect()
}

fn missed(late: &[(usize, usize)]) -> usize {
    late.iter().filter(|(late, may_be)| late > may_be).count()
}

/// Two to four servers, the last tenant without a goal.
pub fn tenants(seconds: f64, seed: u64) -> Vec<Tenant> {
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
        tenants.push(Tenant::new(owner, Slo { latency, ..Slo::default() }, requests));
    }
    let filler = request(&mut dice, 0, seconds * 2e9, Kind { demand: 1.0, bandwidth: 0.5 });
    tenants.push(Tenant::new(count, Slo::default(), vec![filler]));
    tenants
}
