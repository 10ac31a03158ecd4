//! What the loop makes of figures over time: they are written down, looked at, and what is noticed is told.
//!
//! Fed from the finished snapshot, at most once in [`LOOK_EVERY`], and from units of work as they are judged: nothing is measured for it.
//! Values go to the store of series every [`WRITE_EVERY`]. Detectors are those of `berth_model::watch`, a set for each tenant, of a
//! bounded number of tenants; they begin with what an earlier daemon wrote down ([`past`]). Who is told what is decided in `asks`; an event says who and what, and never a figure.

mod asks;
mod budget;
mod past;
mod tenant;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use berth_model::control::{Caller, Reply, WatchAsk};
use berth_model::history::Judgement;
use berth_model::settings::History;
use berth_model::watch::series::{Key, Metric, Of, Owner};
use berth_model::watch::{Finding, Kind, SeriesTotals, WatchTotals};
use berth_model::{Anchor, Change, Event, GpuIndex, Mono, Snapshot, TaskRow, TenantKey};
use berth_store::series::{Health, Limits, Series, Writer};

use budget::Budget;
use past::Past;
use tenant::{Beside, Watched};

const LOOK_EVERY: Duration = Duration::from_secs(1);
const WRITE_EVERY: Duration = Duration::from_secs(5);
/// Tenants that are remembered; of more, the one that was not seen for the longest time is forgotten.
const MOST_TENANTS: usize = 512;
/// Bounds of [`Watch::weight`], whatever is said.
const LIGHTEST: f64 = 0.5;
const HEAVIEST: f64 = 2.0;
/// For as long as one of these is found of a tenant, it counts so many times as much.
const URGENT: [Kind; 2] = [Kind::SloRisk, Kind::Starvation];
const URGENCY: f64 = 1.25;
/// Under the history's directory.
const DIR: &str = "series";

/// One finding of one tenant, on one GPU or as a whole.
type Place = (TenantKey, Option<GpuIndex>, Kind);

#[derive(Default)]
pub(crate) struct Watch {
    /// `None`: nothing is written down.
    writer: Option<Writer>,
    /// Ends the writing when all of it is on disk.
    _series: Option<Series>,
    /// What was written down before, until it has been taken in.
    past: Past,
    tenants: BTreeMap<TenantKey, Watched>,
    told: BTreeSet<Place>,
    /// Findings that began, counted.
    found: BTreeMap<Kind, u64>,
    asks: Vec<(Caller, WatchAsk, Reply)>,
    /// What each user may still say.
    budget: Budget,
    looked: Option<Mono>,
    written: Option<Mono>,
    /// What was used of GPUs' memory bandwidth since that was last written down.
    bandwidth: BTreeMap<GpuIndex, f64>,
}

/// The host as it is looked at.
pub(crate) struct Sight<'a> {
    pub snapshot: &'a Snapshot,
    pub owner: &'a dyn Fn(&TenantKey) -> Owner,
    /// Whether it asks to take part at the level of kernels.
    pub asks_for_kernels: &'a dyn Fn(&TenantKey) -> bool,
    pub now: &'a Anchor,
}

/// What a policy goes by of what is noticed. Nobody is held or freed by it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Noticed {
    /// What its own weight is multiplied by.
    pub weight: f64,
    /// Findings that are part of that.
    pub urged_by: Vec<Kind>,
    /// Its work takes longer or shorter than is expected of it.
    pub is_misjudged: bool,
}

impl Watch {
    /// Without a place for it nothing is written down, which is told; what goes wrong is noticed all the same.
    pub fn open(settings: &History, proc_root: &Path) -> Self {
        if !settings.enabled {
            return Self::default();
        }
        let dir = settings.dir.join(DIR);
        match Series::open(&dir, Limits::default(), proc_root) {
            Ok(series) => {
                let (writer, past) = (Some(series.writer()), Past::read(dir));
                Self { writer, past, _series: Some(series), ..Self::default() }
            }
            Err(error) => {
                tracing::warn!(error = crate::describe(&error), "figures are not written down");
                Self::default()
            }
        }
    }

    pub fn ask(&mut self, caller: Caller, ask: WatchAsk, reply: Reply) {
        self.asks.push((caller, ask, reply));
    }

    /// What has begun or ceased to be wrong. Answers those who asked.
    pub fn turn(&mut self, sight: &Sight<'_>, units: &[(TenantKey, String, Judgement)]) -> Vec<Change> {
        self.judged(units, sight);
        let now = sight.now.mono;
        let changes = if is_due(&mut self.looked, now, LOOK_EVERY) {
            self.look(sight);
            self.changes(now)
        } else {
            Vec::new()
        };
        self.answer(sight);
        changes
    }

    /// How much what its owner says of it counts: what its own weight is multiplied by, within [`LIGHTEST`] and [`HEAVIEST`].
    pub fn weight(&self, tenant: &TenantKey, now: Mono) -> f64 {
        self.tenants.get(tenant).map_or(1.0, |watched| watched.mood.weight(now)).clamp(LIGHTEST, HEAVIEST)
    }

    /// What its owner says and what is found of it, within [`LIGHTEST`] and [`HEAVIEST`] together.
    pub fn noticed(&self, tenant: &TenantKey, now: Mono) -> Noticed {
        let is_found = |kind: &Kind| self.told.iter().any(|(of, _, found)| of == tenant && found == kind);
        let urged_by: Vec<Kind> = URGENT.into_iter().filter(is_found).collect();
        let urgency = if urged_by.is_empty() { 1.0 } else { URGENCY };
        let weight = (self.weight(tenant, now) * urgency).clamp(LIGHTEST, HEAVIEST);
        Noticed { weight, urged_by, is_misjudged: is_found(&Kind::PredictorError) }
    }

    /// What a source says that no snapshot shows.
    pub fn note(&mut self, event: &Event) {
        if let Event::Bandwidth(uses) = event {
            self.bandwidth.extend(uses.iter().map(|seen| (seen.gpu, seen.share)));
        }
    }

    /// Counted, for everybody.
    pub fn totals(&self) -> WatchTotals {
        let mut findings = BTreeMap::new();
        self.told.iter().for_each(|(_, _, kind)| *findings.entry(*kind).or_default() += 1);
        let series = self.writer.as_ref().map(|writer| {
            let Health { written, lost, bytes, .. } = writer.health();
            SeriesTotals { written, lost, bytes }
        });
        WatchTotals { findings, found: self.found.clone(), series }
    }

    fn look(&mut self, sight: &Sight<'_>) {
        let Sight { snapshot, owner, asks_for_kernels, now } = *sight;
        let kernels = snapshot.kernels.iter().flat_map(|level| &level.rows);
        let mut learned = Vec::new();
        for row in &snapshot.tasks {
            let watched = self.tenants.entry(row.tenant.clone()).or_default();
            watched.is_called(&row.container_name, owner(&row.tenant));
            self.past.taken_in(&row.tenant, watched, now);
            let figures = watched.look(row, &Beside::of(row, snapshot), now.mono);
            let key = |metric| Key { of: watched.of(&row.tenant), gpu: row.gpu_uuid.clone(), metric };
            learned.extend(figures.into_iter().map(|(metric, value)| (key(metric), value)));
            let mut attached = kernels.clone().filter(|kernels| kernels.tenant.is(&row.tenant)).peekable();
            let is_missed = snapshot.kernels.is_some() && attached.peek().is_none() && asks_for_kernels(&row.tenant);
            watched.attaches(is_missed, now.mono);
            attached.filter(|kernels| kernels.gpu_index == row.gpu_index).for_each(|own| {
                let others = kernels.clone().filter(|other| other.gpu_uuid == own.gpu_uuid && other.is_busy);
                let others = others.filter(|other| other.tenant != own.tenant).count();
                let others = u32::try_from(others).unwrap_or(u32::MAX);
                let waited = watched.look_at_kernels(own, others, tenant::is_held(row), now.mono);
                let key = Key {
                    of: watched.of(&row.tenant),
                    gpu: Some(own.gpu_uuid.clone()),
                    metric: Metric::KernelWaitSeconds,
                };
                learned.extend(waited.map(|seconds| (key, seconds)));
            });
        }
        let here: BTreeSet<&TenantKey> = snapshot.tasks.iter().map(|row| &row.tenant).collect();
        for (tenant, watched) in &mut self.tenants {
            if !here.contains(tenant) {
                watched.leave();
            }
        }
        self.forget();
        self.keep(learned, now);
        if is_due(&mut self.written, now.mono, WRITE_EVERY) {
            self.write(sight);
        }
    }

    /// Units of work that have ended.
    fn judged(&mut self, units: &[(TenantKey, String, Judgement)], sight: &Sight<'_>) {
        let mut values = Vec::new();
        for (tenant, name, judgement) in units {
            let watched = self.tenants.entry(tenant.clone()).or_default();
            watched.is_called(name, (sight.owner)(tenant));
            self.past.taken_in(tenant, watched, sight.now);
            let figures = watched.judged(judgement, sight.now.mono);
            let of = watched.of(tenant);
            values
                .extend(figures.into_iter().map(|(metric, value)| (Key { of: of.clone(), gpu: None, metric }, value)));
        }
        self.keep(values, sight.now);
    }

    fn write(&mut self, sight: &Sight<'_>) {
        let mut values = Vec::new();
        let bandwidth = std::mem::take(&mut self.bandwidth);
        for gpu in &sight.snapshot.gpus {
            let key = |metric| Key { of: Of::Gpu, gpu: gpu.uuid.clone(), metric };
            values.extend(gpu.core_pct.map(|core| (key(Metric::CorePct), f64::from(core.get()))));
            values.extend(gpu.memory_used_bytes.map(|used| (key(Metric::MemoryBytes), tenant::float(used))));
            values.extend(bandwidth.get(&gpu.index).map(|share| (key(Metric::BandwidthShare), *share)));
        }
        for row in &sight.snapshot.tasks {
            let Some(watched) = self.tenants.get_mut(&row.tenant) else { continue };
            let of = watched.of(&row.tenant);
            let key = |metric| Key { of: of.clone(), gpu: row.gpu_uuid.clone(), metric };
            values.extend(watched.figures(row, sight.now.mono).into_iter().map(|(metric, value)| (key(metric), value)));
        }
        for row in sight.snapshot.kernels.iter().flat_map(|level| &level.rows) {
            let Some(of) = self.tenants.get(&row.tenant).map(|watched| watched.of(&row.tenant)) else { continue };
            let key = |metric| Key { of: of.clone(), gpu: Some(row.gpu_uuid.clone()), metric };
            values.extend(row.attainment.map(|attained| (key(Metric::Attainment), attained)));
            values.extend(row.bandwidth_share.map(|share| (key(Metric::BandwidthShare), share)));
        }
        self.keep(values, sight.now);
    }

    fn keep(&self, values: Vec<(Key, f64)>, now: &Anchor) {
        if let Some(writer) = self.writer.as_ref().filter(|_| !values.is_empty()) {
            writer.write(now.wall.as_millisecond(), values);
        }
    }

    fn findings(&self, now: Mono) -> Vec<(&TenantKey, &Watched, Option<GpuIndex>, Finding)> {
        let all = self.tenants.iter().flat_map(|(tenant, watched)| {
            watched.findings(now).into_iter().map(move |(gpu, finding)| (tenant, watched, gpu, finding))
        });
        all.collect()
    }

    fn changes(&mut self, at: Mono) -> Vec<Change> {
        let place = |tenant: &TenantKey, gpu, kind| (tenant.clone(), gpu, kind);
        let found: BTreeMap<Place, (String, Mono)> = self
            .findings(at)
            .into_iter()
            .map(|(tenant, watched, gpu, finding)| {
                (place(tenant, gpu, finding.kind), (watched.name.clone(), finding.since))
            })
            .collect();
        let mut changes = Vec::new();
        for ((tenant, _, kind), (name, since)) in found.iter().filter(|(place, _)| !self.told.contains(place)) {
            *self.found.entry(*kind).or_default() += 1;
            let (tenant, name, kind, since) = (tenant.clone(), name.clone(), *kind, *since);
            changes.push(Change::Found { tenant, name, kind, since, at });
        }
        for (tenant, _, kind) in self.told.iter().filter(|place| !found.contains_key(place)) {
            let name = self.tenants.get(tenant).map_or_else(|| tenant.to_string(), |watched| watched.name.clone());
            changes.push(Change::FoundNoMore { tenant: tenant.clone(), name, kind: *kind, at });
        }
        self.told = found.into_keys().collect();
        changes
    }

    fn forget(&mut self) {
        while self.tenants.len() > MOST_TENANTS {
            let oldest = self.tenants.iter().min_by_key(|(_, watched)| watched.seen).map(|(tenant, _)| tenant.clone());
            oldest.and_then(|oldest| self.tenants.remove(&oldest));
        }
    }
}

/// Rows of others on the GPU of this one.
fn others<'a>(row: &'a TaskRow, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a TaskRow> {
    snapshot.tasks.iter().filter(|other| other.gpu_index == row.gpu_index && other.tenant != row.tenant)
}

/// `true` once in that time, and then it counts anew.
fn is_due(last: &mut Option<Mono>, now: Mono, every: Duration) -> bool {
    let is_due = last.is_none_or(|last| now.since(last) >= every);
    if is_due {
        *last = Some(now);
    }
    is_due
}
