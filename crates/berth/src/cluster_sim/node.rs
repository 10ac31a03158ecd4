//! One node: its GPUs, and what its daemon would say of them.

use std::time::Duration;

use berth_model::cluster::report::{MOST_LOADS, MOST_PLACED, UnderWay};
use berth_model::cluster::{GpuReport, LoadReport, NodeId, PlacementId, Report, Stamp};
use berth_model::hold::Means;
use berth_model::settings::PolicyName;
use berth_model::{Bytes, GpuUuid, Mono, Percent};

use super::gpu::{Gpu, REST, Tenant};
use super::order::Rule;

#[derive(Debug)]
pub struct Node {
    pub id: NodeId,
    pub gpus: Vec<Gpu>,
    pub is_alive: bool,
    rule: Rule,
    reports: u64,
    /// When the last report was made, and how long each GPU had computed by then.
    last: (Mono, Vec<Duration>),
}

impl Node {
    pub fn new(number: usize, gpus: usize, memory: Bytes, rule: Rule) -> Self {
        let id = format!("node-{number:05}").parse().expect("letters, digits and a dash name a node");
        let all = (0..gpus).map(|_| Gpu::new(rule, memory)).collect();
        Self { id, gpus: all, is_alive: true, rule, reports: 0, last: (Mono(0), vec![Duration::ZERO; gpus]) }
    }

    /// As NVML would name it.
    pub fn uuid(&self, gpu: usize) -> GpuUuid {
        GpuUuid(format!("GPU-{}-{gpu}", self.id))
    }

    /// Which of its GPUs is called so.
    pub fn gpu_of(&self, uuid: &GpuUuid) -> Option<usize> {
        (0..self.gpus.len()).find(|gpu| self.uuid(*gpu) == *uuid)
    }

    /// Everybody there goes.
    pub fn fail(&mut self, now: Mono) -> Vec<PlacementId> {
        self.is_alive = false;
        self.gpus.iter_mut().flat_map(|gpu| gpu.clear(now)).collect()
    }

    /// What its daemon says now.
    pub fn report(&mut self, now: Mono) -> Report {
        self.reports += 1;
        let busy: Vec<Duration> = self.gpus.iter().map(|gpu| gpu.busy(now)).collect();
        let passed = now.since(self.last.0);
        let core = busy.iter().zip(&self.last.1).map(|(now, before)| core(now.saturating_sub(*before), passed));
        let gpus = core.enumerate().map(|(gpu, core)| self.gpu_report(gpu, core, now)).collect();
        self.last = (now, busy);
        Report {
            node: self.id.clone(),
            stamp: Stamp { started_ms: 1, number: self.reports, at_ms: now.0 / 1_000_000 },
            berth: env!("CARGO_PKG_VERSION").to_owned(),
            policy: policy(self.rule),
            means: vec![Means::Freeze],
            gpus,
            pasts: 1,
        }
    }

    fn gpu_report(&self, number: usize, core_pct: Option<Percent>, now: Mono) -> GpuReport {
        let gpu = &self.gpus[number];
        let with_deadline = || gpu.tenants().iter().chain(gpu.line()).filter(|tenant| tenant.deadline.is_some());
        let there = gpu.tenants().len() + gpu.line().len();
        let others = there - with_deadline().count();
        let loads: Vec<LoadReport> = with_deadline().filter_map(|tenant| load(gpu, tenant, now)).collect();
        let floats = with_deadline().filter(|tenant| tenant.pieces.is_empty()).filter_map(|tenant| tenant.last_float);
        // The latest first.
        let placed = gpu.line().iter().rev().chain(gpu.tenants().iter().rev()).map(|tenant| tenant.id);
        GpuReport {
            uuid: self.uuid(number),
            is_lost: false,
            memory_total_bytes: Some(gpu.memory),
            memory_used_bytes: Some(gpu.used()),
            memory_promised_bytes: gpu.line().iter().map(|tenant| tenant.memory).sum(),
            core_pct,
            queue: count(gpu.queue()),
            others: count(others),
            share: 1.0 - REST,
            has_more: loads.len() > MOST_LOADS,
            loads: loads.into_iter().take(MOST_LOADS).collect(),
            missed_by_present: count(gpu.tenants().iter().filter(|tenant| tenant.has_missed).count()),
            misses_ago_seconds: gpu.misses().map(|at| now.since(at).as_secs_f64()).collect(),
            past_float_seconds: floats.sum(),
            placed: placed.take(MOST_PLACED).collect(),
        }
    }
}

fn load(gpu: &Gpu, tenant: &Tenant, now: Mono) -> Option<LoadReport> {
    let under_way = tenant.pieces.front().and_then(|piece| piece.due).map(|due| UnderWay {
        due_in_seconds: due.since(now).as_secs_f64() - now.since(due).as_secs_f64(),
        done_seconds: gpu.done(tenant, now).as_secs_f64(),
    });
    let deadline_seconds = tenant.deadline?.as_secs_f64();
    Some(LoadReport { unit: tenant.unit, deadline_seconds, under_way, takes: tenant.takes })
}

/// `None` before any time has passed.
fn core(busy: Duration, passed: Duration) -> Option<Percent> {
    let hundreds = busy.as_nanos() * 100 + passed.as_nanos() / 2;
    Percent::checked(u32::try_from(hundreds.checked_div(passed.as_nanos())?).ok()?)
}

fn policy(rule: Rule) -> Option<PolicyName> {
    match rule {
        Rule::Edf => Some(PolicyName::Edf),
        Rule::Fifo => Some(PolicyName::Fifo),
        Rule::Share => None,
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
