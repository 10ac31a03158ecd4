//! A snapshot as metrics, in the order of the snapshot, so that the same state gives the same page.

mod deadlines;
mod kernels;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use berth_model::hold::Means;
use berth_model::snapshot::{HoldCounters, HoldStage, Management, ProbeCounters};
use berth_model::watch::{Kind, WatchTotals};
use berth_model::{GpuView, Percent, Snapshot, SourceStatus, TaskRow, TenantKey};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::names::{self, Named, label};
use crate::control::ReportTotals;
use crate::usage::Usage;

#[derive(Debug)]
pub(super) struct HostCollector {
    pub snapshot: Arc<Snapshot>,
    pub usage: Usage,
    pub reports: Option<ReportTotals>,
}

type Labels = Vec<(&'static str, String)>;

impl Collector for HostCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut page = Page { encoder: &mut encoder };
        page.daemon(&self.snapshot, &self.usage)?;
        if let Some(reports) = &self.reports {
            page.reports(reports)?;
        }
        if let Some(probes) = &self.snapshot.probes {
            page.probes(probes)?;
        }
        if let Some(management) = &self.snapshot.management {
            page.management(management, &self.snapshot.tasks)?;
        }
        if let Some(level) = &self.snapshot.kernels {
            page.kernels(level)?;
        }
        page.deadlines(&self.snapshot.deadlines)?;
        page.watch(&self.snapshot.watch)?;
        page.gpus(&self.snapshot.gpus)?;
        page.tenants(&self.snapshot.tasks)
    }
}

struct Page<'a, 'e> {
    encoder: &'a mut DescriptorEncoder<'e>,
}

impl Page<'_, '_> {
    fn daemon(&mut self, snapshot: &Snapshot, usage: &Usage) -> fmt::Result {
        let version = vec![(label::VERSION, env!("CARGO_PKG_VERSION").to_owned())];
        self.gauges(names::BUILD_INFO, [(version, 1.0)])?;
        let counters = snapshot.counters;
        self.single(names::SAMPLES, ConstCounter::new(counters.samples))?;
        self.single(names::TASKS_STARTED, ConstCounter::new(counters.tasks_started))?;
        self.single(names::TASKS_ENDED, ConstCounter::new(counters.tasks_ended))?;
        self.single(names::GPUS_LOST, ConstCounter::new(counters.gpus_lost))?;
        let sources = snapshot.sources.iter().filter_map(|view| {
            let up = match view.status {
                SourceStatus::Up => 1.0,
                SourceStatus::Down { .. } => 0.0,
                SourceStatus::Off => return None,
            };
            Some((vec![(label::SOURCE, view.source.as_str().to_owned())], up))
        });
        self.gauges(names::SOURCE_UP, sources)?;
        if let Some(seconds) = usage.cpu_seconds {
            self.single(names::PROCESS_CPU, ConstCounter::new(seconds))?;
        }
        if let Some(bytes) = usage.resident_bytes {
            self.single(names::PROCESS_RESIDENT, ConstGauge::new(float(bytes)))?;
        }
        Ok(())
    }

    fn reports(&mut self, reports: &ReportTotals) -> fmt::Result {
        self.single(names::REPORTS_SERVED, ConstCounter::new(reports.served))?;
        let refused =
            reports.refused.iter().map(|(why, count)| (vec![(label::REASON, (*why).to_owned())], float(*count)));
        self.counters(names::REPORTS_REFUSED, refused)
    }

    fn probes(&mut self, probes: &ProbeCounters) -> fmt::Result {
        self.single(names::PROBE_HITS, ConstCounter::new(probes.hits))?;
        self.single(names::PROBE_LOST, ConstCounter::new(probes.lost))?;
        self.single(names::PROBE_UNRESOLVED, ConstCounter::new(probes.unresolved))?;
        self.single(names::PROBE_WASTED, ConstCounter::new(probes.wasted))?;
        self.single(names::PROBE_LATE, ConstCounter::new(probes.late))
    }

    fn management(&mut self, management: &Management, rows: &[TaskRow]) -> fmt::Result {
        self.gauges(names::POLICY, [(vec![(label::POLICY, management.policy.as_str().to_owned())], 1.0)])?;
        self.single(names::DRY_RUN, ConstGauge::new(truth(management.dry_run)))?;
        self.single(names::QUEUE, ConstGauge::new(count(management.queue.len())))?;
        self.single(names::TENANTS_HELD, ConstGauge::new(tenants_at(HoldStage::Held, rows)))?;
        self.counters(names::HOLDS, by_means(management.holds))?;
        if management.dry_run {
            let would = tenants_at(HoldStage::WouldHold, rows);
            self.single(names::TENANTS_WOULD_BE_HELD, ConstGauge::new(would))?;
            self.counters(names::WOULD_BE_HOLDS, by_means(management.would_be_holds))?;
        }
        self.single(names::HOLD_FAILURES, ConstCounter::new(management.holds.failed))
    }

    /// Every kind has a series: what is not there is known not to be.
    fn watch(&mut self, watch: &WatchTotals) -> fmt::Result {
        let by_kind = |counts: &BTreeMap<Kind, u64>| {
            let count = |kind: Kind| float(counts.get(&kind).copied().unwrap_or(0));
            Kind::ALL.map(|kind| (vec![(label::KIND, kind.as_str().to_owned())], count(kind)))
        };
        self.gauges(names::FINDINGS, by_kind(&watch.findings))?;
        self.counters(names::FOUND, by_kind(&watch.found))?;
        let Some(series) = watch.series else { return Ok(()) };
        self.single(names::SERIES_WRITTEN, ConstCounter::new(series.written))?;
        self.single(names::SERIES_LOST, ConstCounter::new(series.lost))?;
        self.single(names::SERIES_BYTES, ConstGauge::new(float(series.bytes)))
    }

    fn gpus(&mut self, gpus: &[GpuView]) -> fmt::Result {
        let each = |value: fn(&GpuView) -> Option<f64>| {
            gpus.iter().filter_map(move |gpu| Some((gpu_labels(gpu), value(gpu)?))).collect::<Vec<_>>()
        };
        let info = gpus.iter().filter_map(|gpu| {
            let mut labels = gpu_labels(gpu);
            labels.push((label::UUID, gpu.uuid.as_ref()?.to_string()));
            labels.push((label::NAME, gpu.name.clone()?));
            Some((labels, 1.0))
        });
        self.gauges(names::GPU_INFO, info)?;
        self.gauges(names::GPU_UP, each(|gpu| Some(truth(gpu.lost.is_none()))))?;
        self.gauges(names::GPU_READABLE, each(|gpu| Some(truth(gpu.lost.is_none() && gpu.blind.is_none()))))?;
        self.gauges(names::GPU_TENANTS, each(|gpu| gpu.uuid.as_ref().map(|_| f64::from(gpu.tenants))))?;
        self.gauges(names::GPU_MEMORY_SIZE, each(|gpu| gpu.memory_total_bytes.map(|bytes| float(bytes.0))))?;
        self.gauges(names::GPU_MEMORY_USED, each(|gpu| gpu.memory_used_bytes.map(|bytes| float(bytes.0))))?;
        self.gauges(names::GPU_CORE, each(|gpu| gpu.core_pct.map(ratio)))
    }

    fn tenants(&mut self, rows: &[TaskRow]) -> fmt::Result {
        let each = |value: fn(&TaskRow) -> Option<f64>| {
            rows.iter().filter_map(move |row| Some((tenant_labels(row)?, value(row)?))).collect::<Vec<_>>()
        };
        self.gauges(names::TENANT_MEMORY, each(|row| row.gpu_memory_bytes.map(|bytes| float(bytes.0))))?;
        self.gauges(names::TENANT_CORE, each(|row| row.gpu_core_pct.map(ratio)))?;
        self.gauges(names::TASK_SECONDS, each(|row| row.task_seconds))?;
        self.counters(names::TENANT_HELD, each(|row| row.held_seconds))?;
        self.gauges(names::TENANT_DEADLINE, each(|row| Some(row.deadline.as_ref()?.deadline.seconds())))?;
        let float = |row: &TaskRow| Some(row.deadline.as_ref()?.work.as_ref()?.float_seconds);
        self.gauges(names::TENANT_FLOAT, each(float))?;
        let states = rows.iter().filter_map(|row| {
            let mut labels = tenant_labels(row)?;
            labels.push((label::STATE, row.state.as_str().to_owned()));
            Some((labels, 1.0))
        });
        self.gauges(names::TENANT_STATE, states)
    }

    /// Nothing at all is written for a metric without series.
    fn gauges(&mut self, (name, help): Named, series: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        series.try_for_each(|(labels, value)| ConstGauge::new(value).encode(encoder.encode_family(&labels)?))
    }

    /// The same for what only grows while it is there.
    fn counters(&mut self, (name, help): Named, series: impl IntoIterator<Item = (Labels, f64)>) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let mut encoder = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        series.try_for_each(|(labels, value)| ConstCounter::new(value).encode(encoder.encode_family(&labels)?))
    }

    /// A metric without labels.
    fn single(&mut self, (name, help): Named, metric: impl EncodeMetric) -> fmt::Result {
        let encoder = self.encoder.encode_descriptor(name, help, None, metric.metric_type())?;
        metric.encode(encoder)
    }
}

fn tenants_at(stage: HoldStage, rows: &[TaskRow]) -> f64 {
    let is_there = |row: &&TaskRow| row.hold.as_ref().is_some_and(|hold| hold.stage == stage);
    count(rows.iter().filter(is_there).map(|row| &row.tenant).collect::<BTreeSet<&TenantKey>>().len())
}

fn by_means(holds: HoldCounters) -> [(Labels, f64); 4] {
    let HoldCounters { freeze, lock, gate, park, failed: _ } = holds;
    let each = [(Means::Freeze, freeze), (Means::Lock, lock), (Means::Gate, gate), (Means::Park, park)];
    each.map(|(means, holds)| (vec![(label::MEANS, means.as_str().to_owned())], float(holds)))
}

fn gpu_labels(gpu: &GpuView) -> Labels {
    vec![(label::GPU, gpu.index.to_string())]
}

/// `None` while it is not known on which GPU the tenant is.
fn tenant_labels(row: &TaskRow) -> Option<Labels> {
    Some(vec![
        (label::TENANT, row.tenant.to_string()),
        (label::CONTAINER, row.container_name.clone()),
        (label::OWNER, row.owner.clone().unwrap_or_default()),
        (label::GPU, row.gpu_index?.to_string()),
    ])
}

fn truth(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}

fn ratio(percent: Percent) -> f64 {
    f64::from(percent.get()) / 100.0
}

fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 8 PiB")]
fn float(value: u64) -> f64 {
    value as f64
}
