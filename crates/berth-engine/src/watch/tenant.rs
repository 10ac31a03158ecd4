//! One tenant as it is watched: what the snapshot says of it, as the detectors want it.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::history::Judgement;
use berth_model::kernels::KernelRow;
use berth_model::snapshot::HoldStage;
use berth_model::watch::feedback::Mood;
use berth_model::watch::series::{Line, Metric, Of, Owner};
use berth_model::watch::{
    Degradation, Drift, Finding, Kept, NotAttached, PredictorError, SloRisk, Starvation, StuckHold, Want,
};
use berth_model::{Bytes, GpuIndex, GpuUuid, Mono, Snapshot, TaskRow, TaskState, TenantKey};

use super::{LOOK_EVERY, others};

/// Of units that have a deadline, the part that has to meet it, where no goal says how many.
const TARGET: f64 = 0.95;
/// Who has work for less than this part of the time between two looks wants nothing.
const WANTS: f64 = 0.05;
/// Between two writings.
const LOOKS: u32 = 5;
/// What was written down of memory in this time goes before what is seen.
const RECENT: Duration = Duration::from_secs(15 * 60);

#[derive(Debug)]
pub(super) struct Watched {
    pub name: String,
    pub owner: Owner,
    pub mood: Mood,
    pub seen: Mono,
    rows: BTreeMap<Option<GpuIndex>, OnGpu>,
    /// What was written down before of its time on GPUs, until it is seen there.
    recalled: BTreeMap<GpuUuid, Vec<Recalled>>,
    degradation: Degradation,
    risk: SloRisk,
    predictor: PredictorError,
    /// How long its units were expected to compute, when they were last looked at.
    expected_seconds: Option<f64>,
    attached: NotAttached,
    /// Figures came in since the daemon began: what was written down before is behind them.
    is_under_way: bool,
}

#[derive(Debug, Default)]
struct OnGpu {
    drift: Drift,
    starvation: Starvation,
    stuck: StuckHold,
    /// At the level of kernels.
    kept: Kept,
    turned_down: Starvation,
    misjudged: PredictorError,
    /// When its kernels were last looked at, and what they came to then.
    kernels: Option<Kernels>,
    /// When values were last written, and how long it had been held then.
    written: Option<(Mono, f64)>,
}

/// What a tenant's kernels had come to at a look.
#[derive(Debug, Clone, Copy)]
struct Kernels {
    at: Mono,
    wanted_seconds: f64,
    stopped_seconds: f64,
    samples: u64,
}

/// A figure of a tenant on a GPU, as it was written down.
#[derive(Debug, Clone, Copy)]
struct Recalled {
    metric: Metric,
    at: Mono,
    value: f64,
}

/// The others on a tenant's GPU, and the GPU.
pub(super) struct Beside {
    /// Somebody else computes there.
    is_busy: bool,
    /// Others who have work.
    wanting: u32,
    memory: Option<Bytes>,
}

impl Default for Watched {
    fn default() -> Self {
        Self {
            name: String::new(),
            // Until more is known, for administrators alone.
            owner: Owner::new(None, Vec::new()),
            mood: Mood::default(),
            seen: Mono(0),
            rows: BTreeMap::new(),
            recalled: BTreeMap::new(),
            degradation: Degradation::default(),
            risk: SloRisk::new(TARGET),
            predictor: PredictorError::default(),
            expected_seconds: None,
            attached: NotAttached::default(),
            is_under_way: false,
        }
    }
}

impl Beside {
    pub fn of(row: &TaskRow, snapshot: &Snapshot) -> Self {
        let wanting = others(row, snapshot).filter(|other| wants(other)).count();
        let gpu = snapshot.gpus.iter().find(|gpu| Some(gpu.index) == row.gpu_index);
        Self {
            is_busy: others(row, snapshot).any(computes),
            wanting: u32::try_from(wanting).unwrap_or(u32::MAX),
            memory: gpu.and_then(|gpu| gpu.memory_total_bytes),
        }
    }
}

impl Watched {
    pub fn of(&self, tenant: &TenantKey) -> Of {
        Of::tenant(tenant.clone(), &self.name, self.owner.clone())
    }

    /// Of one whose processes are gone nothing says whose it is: it stays whose it was.
    pub fn is_called(&mut self, name: &str, owner: Owner) {
        name.clone_into(&mut self.name);
        if owner.named.is_some() || !owner.uids.is_empty() {
            self.owner = owner;
        }
    }

    /// What was learned is to be written down.
    pub fn look(&mut self, row: &TaskRow, beside: &Beside, now: Mono) -> Vec<(Metric, f64)> {
        self.seen = now;
        self.expected_seconds =
            row.deadline.as_ref().and_then(|deadline| deadline.takes.as_ref()).map(|takes| takes.median_seconds);
        let on_gpu = self.rows.entry(row.gpu_index).or_default();
        if let Some(recalled) = row.gpu_uuid.as_ref().and_then(|uuid| self.recalled.remove(uuid)) {
            on_gpu.recall(&recalled, beside.memory, now);
        }
        if let Some(used) = row.gpu_memory_bytes {
            on_gpu.drift.observe(now, used, beside.memory);
        }
        let is_held = is_held(row);
        on_gpu.stuck.observe(
            now,
            is_held && row.hold.as_ref().is_some_and(|hold| hold.by_uid.is_none()),
            !beside.is_busy,
        );
        let got = match (is_held, row.gpu_core_pct) {
            (true, _) => 0.0,
            (false, Some(core)) => f64::from(core.get()) / 100.0,
            // The driver does not tell tenants apart: who computes unhindered is taken to have its share.
            (false, None) => {
                if computes(row) {
                    1.0
                } else {
                    0.0
                }
            }
        };
        on_gpu.starvation.observe(now, Want { wants: wants(row), got, others: beside.wanting });
        let waited = on_gpu.starvation.take_learned().map(|seconds| (Metric::WaitSeconds, seconds));
        let held = on_gpu.stuck.take_learned().map(|seconds| (Metric::IdleHoldSeconds, seconds));
        waited.into_iter().chain(held).collect()
    }

    /// What the level of kernels says of it on one GPU. `others`: tenants that have work there, too; `is_held`: another level keeps it off.
    /// How far behind it was, where that was learned: to be written down.
    pub fn look_at_kernels(&mut self, kernels: &KernelRow, others: u32, is_held: bool, now: Mono) -> Option<f64> {
        let target = kernels.slo.target().get();
        let on_gpu = self.rows.entry(kernels.gpu_index).or_default();
        if let Some(attained) = kernels.attainment {
            on_gpu.kept.observe(now, attained, target);
        }
        on_gpu.look_at_kernels(kernels, others, is_held, now);
        let learned = on_gpu.turned_down.take_learned();
        // A goal of its own goes before the usual one for deadlines, too.
        if kernels.slo.target.is_some() {
            self.risk.aim(target);
        }
        learned
    }

    /// `is_missed`: it asks to take part at the level of kernels and does not.
    pub fn attaches(&mut self, is_missed: bool, now: Mono) {
        self.attached.observe(now, is_missed);
    }

    /// Takes in what was written down before this daemon began: each value with the instant it is of.
    pub fn recall(&mut self, line: &Line, at: &dyn Fn(i64) -> Mono) {
        for value in &line.values {
            let (at, mean) = (at(value.at_ms), value.sum / float(Bytes(value.count.max(1))));
            match line.key.metric {
                metric @ (Metric::WaitSeconds
                | Metric::KernelWaitSeconds
                | Metric::IdleHoldSeconds
                | Metric::MemoryBytes) => {
                    let on_gpu = line.key.gpu.as_ref().map(|gpu| self.recalled.entry(gpu.clone()).or_default());
                    on_gpu.into_iter().for_each(|all| all.push(Recalled { metric, at, value: mean }));
                }
                _ if self.is_under_way => {}
                Metric::Slack => drop(self.risk.observe(at, mean)),
                Metric::ActiveSeconds => drop(self.degradation.observe(at, mean)),
                Metric::PredictorError => drop(self.predictor.observe(at, 1.0, mean.exp())),
                Metric::Feedback => self.mood.recall(at, mean),
                _ => {}
            }
        }
    }

    /// It is not on a GPU: what was under way there is over, what is usual of it is not forgotten.
    pub fn leave(&mut self) {
        self.rows.values_mut().for_each(OnGpu::leave);
    }

    /// What its units tell, as figures to be written down.
    pub fn judged(&mut self, judgement: &Judgement, now: Mono) -> Vec<(Metric, f64)> {
        let Judgement { seconds, float_seconds, active_seconds, deadline, .. } = judgement;
        let mut figures = Vec::new();
        self.is_under_way = true;
        if let Some(float) = *float_seconds {
            let slack = float / deadline.seconds();
            self.risk.observe(now, slack);
            figures.push((Metric::Slack, slack));
            figures.push((Metric::FloatSeconds, float));
            figures.push((Metric::InTime, f64::from(u8::from(float >= 0.0))));
        }
        figures.extend(seconds.map(|seconds| (Metric::UnitSeconds, seconds)));
        // GPU time as if it were alone: waiting and neighbours do not make a tenant slower.
        if let Some(active) = *active_seconds {
            self.degradation.observe(now, active);
            figures.push((Metric::ActiveSeconds, active));
            if let Some(expected) = self.expected_seconds {
                self.predictor.observe(now, expected, active);
                figures.push((Metric::PredictorError, (active / expected).ln()));
            }
        }
        figures
    }

    /// Its figures on the GPU of this row.
    pub fn figures(&mut self, row: &TaskRow, now: Mono) -> Vec<(Metric, f64)> {
        let mut figures = Vec::new();
        figures.extend(row.gpu_core_pct.map(|core| (Metric::CorePct, f64::from(core.get()))));
        figures.extend(row.gpu_memory_bytes.map(|used| (Metric::MemoryBytes, float(used))));
        if let Some(held) = row.held_seconds {
            let on_gpu = self.rows.entry(row.gpu_index).or_default();
            if let Some((then, before)) = on_gpu.written.replace((now, held)) {
                let share = (held - before) / now.since(then).as_secs_f64();
                figures.push((Metric::HeldShare, share.clamp(0.0, 1.0)));
            }
        }
        figures
    }

    pub fn findings(&self, now: Mono) -> Vec<(Option<GpuIndex>, Finding)> {
        let attached = self.attached.finding(now);
        let whole = [self.degradation.finding(), self.risk.finding(), self.predictor.finding(), attached];
        let on_gpus = self.rows.iter().flat_map(|(gpu, row)| {
            let all = [row.drift.finding(), row.starvation.finding(now), row.stuck.finding(now), row.kept.finding()];
            let inside = [row.turned_down(now), row.misjudged()];
            all.into_iter().chain(inside).flatten().map(move |finding| (*gpu, finding))
        });
        whole.into_iter().flatten().map(|finding| (None, finding)).chain(on_gpus).collect()
    }
}

impl OnGpu {
    fn look_at_kernels(&mut self, row: &KernelRow, others: u32, is_held: bool, now: Mono) {
        let KernelRow { wanted_seconds, stopped_seconds, .. } = *row;
        let samples = row.counters.samples;
        let before = self.kernels.replace(Kernels { at: now, wanted_seconds, stopped_seconds, samples });
        // Whoever came again counts from nothing.
        let Some(before) = before.filter(|before| before.wanted_seconds <= wanted_seconds) else { return };
        let wanted = wanted_seconds - before.wanted_seconds;
        let stopped = (stopped_seconds - before.stopped_seconds).max(0.0);
        let wants = !is_held && wanted >= WANTS * now.since(before.at).as_secs_f64();
        let got = if wanted > 0.0 { 1.0 - (stopped / wanted).min(1.0) } else { 0.0 };
        self.turned_down.observe(now, Want { wants, got, others });
        // Without anything new it would be the same error again.
        if let Some(off) = row.prediction_off.filter(|_| samples > before.samples) {
            self.misjudged.observe(now, 1.0, off.exp());
        }
    }

    /// It starves inside the GPU.
    fn turned_down(&self, now: Mono) -> Option<Finding> {
        let found = self.turned_down.finding(now)?;
        let seconds = now.since(found.since).as_secs();
        let words = format!(
            "it has had work for {seconds} s and its kernels were let run for less than half of its fair share"
        );
        Some(Finding { words, ..found })
    }

    fn misjudged(&self) -> Option<Finding> {
        let found = self.misjudged.finding()?;
        Some(Finding { words: format!("of its kernels: {}", found.words), ..found })
    }

    /// Takes in what was written down before. Of memory only what is recent: how it grew then says nothing of now.
    fn recall(&mut self, recalled: &[Recalled], limit: Option<Bytes>, now: Mono) {
        let is_new = self.drift.is_new();
        for one in recalled {
            match one.metric {
                Metric::WaitSeconds => self.starvation.recall(one.value),
                Metric::KernelWaitSeconds => self.turned_down.recall(one.value),
                Metric::IdleHoldSeconds => self.stuck.recall(one.value),
                Metric::MemoryBytes if is_new && now.since(one.at) < RECENT => {
                    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes of a GPU")]
                    let used = Bytes(one.value.max(0.0) as u64);
                    // It is looked at more often than it is written down.
                    for look in 0..LOOKS {
                        self.drift.observe(one.at + LOOK_EVERY * look, used, limit);
                    }
                }
                _ => {}
            }
        }
    }

    fn leave(&mut self) {
        self.starvation.leave();
        self.stuck.leave();
        self.turned_down.leave();
        (self.drift, self.kept, self.written) = (Drift::default(), Kept::default(), None);
        (self.misjudged, self.kernels) = (PredictorError::default(), None);
    }
}

pub(super) fn is_held(row: &TaskRow) -> bool {
    row.hold.as_ref().is_some_and(|hold| hold.stage == HoldStage::Held)
}

fn computes(row: &TaskRow) -> bool {
    row.state == TaskState::Computing && !is_held(row)
}

/// It computes, or stands in line.
fn wants(row: &TaskRow) -> bool {
    computes(row) || row.hold.as_ref().is_some_and(|hold| hold.stage == HoldStage::Held && hold.place.is_some())
}

#[expect(clippy::cast_precision_loss, reason = "bytes of a GPU: a figure to be looked at")]
pub(super) fn float(bytes: Bytes) -> f64 {
    bytes.0 as f64
}
