//! What every surface shows: finished numbers, nothing left to compute while drawing.

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::cluster::PlacementId;
use crate::deadline::{Deadline, Origin, Risk, Spread, Tally, Unit};
use crate::event::{Evidence, ProcessKind, Source, SourceStatus};
use crate::history::Judgement;
use crate::hold::Means;
use crate::id::{ContainerId, GpuIndex, GpuUuid, TaskId, TenantKey};
use crate::kernels::KernelLevel;
use crate::quantity::{Bytes, Percent};
use crate::settings::PolicyName;
use crate::watch::WatchTotals;

/// The host at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    pub taken_at: Timestamp,
    pub gpus: Vec<GpuView>,
    /// One row per tenant and GPU, ordered by GPU, then by task start.
    pub tasks: Vec<TaskRow>,
    /// The last tasks that ended, newest first; bounded.
    pub ended: Vec<Arc<EndedTask>>,
    pub sources: Vec<SourceView>,
    pub counters: Counters,
    /// How the probes are doing; `None` without probes.
    pub probes: Option<ProbeCounters>,
    /// What is done about contention; `None` where berth only watches.
    pub management: Option<Management>,
    pub deadlines: DeadlineTotals,
    /// What happens at the level of kernels; `None` where nobody can take part.
    #[serde(default)]
    pub kernels: Option<KernelLevel>,
    /// What is noticed of tenants, counted.
    #[serde(default)]
    pub watch: WatchTotals,
}

/// Units that had a deadline, since the daemon started.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DeadlineTotals {
    /// By owner and unit; a bounded number of owners, the rest together without a name.
    pub tallies: Vec<OwnerTally>,
    /// Units that were said to be late before they were.
    pub warnings: u64,
    pub float_seconds: Histogram,
    pub run_seconds: Histogram,
    /// The last misses on each GPU, the latest first.
    #[serde(default)]
    pub misses: Vec<MissRow>,
    /// Changes when what is known of how long work takes does, as far as that matters to whoever expects it.
    #[serde(default)]
    pub pasts: u32,
}

/// A deadline that was missed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissRow {
    pub gpu_uuid: GpuUuid,
    /// When the unit ended.
    pub missed_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerTally {
    pub owner: Option<String>,
    pub unit: Unit,
    #[serde(flatten)]
    pub tally: Tally,
}

/// How often a figure was how large.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper ends and how many were at most that, but above the one before; the last has no end.
    pub buckets: Vec<(Option<f64>, u64)>,
    pub sum: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuView {
    pub index: GpuIndex,
    /// `None` for a GPU that has been lost since before berth first looked.
    pub uuid: Option<GpuUuid>,
    pub name: Option<String>,
    pub memory_used_bytes: Option<Bytes>,
    pub memory_total_bytes: Option<Bytes>,
    pub core_pct: Option<Percent>,
    pub tenants: u32,
    /// `None` while the GPU answers; else what the driver said.
    pub lost: Option<String>,
    /// Why its processes could not be listed at the last look; `None` while they can, and while the GPU is lost. Tenants
    /// are then those known from before and from probes.
    pub blind: Option<String>,
    pub mig: Option<bool>,
}

/// What a tenant does on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// Has opened the device; no context yet, so no task yet.
    Opening,
    /// Holds memory; has not been seen computing.
    Loaded,
    Computing,
    /// Holds memory, has computed, and computes no more.
    Idle,
    /// The GPU went away under it.
    Lost,
}

/// One tenant on one GPU. The field names are the JSON contract of `berth ps --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskRow {
    pub tenant: TenantKey,
    /// `None` for tenants that are no containers.
    pub container_id: Option<ContainerId>,
    /// The container's name; for others the cgroup's path or the user's name.
    pub container_name: String,
    pub owner: Option<String>,
    pub image: Option<String>,
    /// By the engine; the task may have started long after.
    pub container_started_at: Option<Timestamp>,
    pub command: String,
    pub pids: Vec<u32>,
    pub process_kinds: Vec<ProcessKind>,
    /// `None` until the driver lists the tenant on a GPU.
    pub gpu_uuid: Option<GpuUuid>,
    pub gpu_index: Option<GpuIndex>,
    pub gpu_memory_bytes: Option<Bytes>,
    /// Of this tenant; `None` if the driver does not tell tenants apart.
    pub gpu_core_pct: Option<Percent>,
    pub state: TaskState,
    pub task_id: Option<TaskId>,
    pub task_started_at: Option<Timestamp>,
    pub task_seconds: Option<f64>,
    /// How well the start is known.
    pub task_start_evidence: Option<Evidence>,
    /// What berth does to it, or would; `None` while it is free and neither a person nor a rule has decided about it.
    pub hold: Option<HoldRow>,
    /// Time it was kept off in this task, up to now; `None` where berth only watches.
    pub held_seconds: Option<f64>,
    /// How long it may take, and how it does; `None` without a deadline.
    pub deadline: Option<DeadlineRow>,
    /// GPU memory it says it will need in all, by its label; `None` if it does not.
    #[serde(default)]
    pub memory_needed_bytes: Option<Bytes>,
    /// By which it was placed here, as its label says; `None` if nobody placed it.
    #[serde(default)]
    pub placement: Option<PlacementId>,
}

/// A tenant's deadline, and how it does by it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadlineRow {
    /// The one that counts.
    pub deadline: Deadline,
    #[serde(flatten)]
    pub origin: Origin,
    /// What was asked for, if the settings do not allow it, and the rule that does not.
    pub asked: Option<Deadline>,
    pub bound: Option<String>,
    /// What it is for.
    pub unit: Unit,
    /// Its unit under way; `None` between bursts.
    pub work: Option<WorkRow>,
    /// How long units like this computed before; `None` if none is known.
    pub takes: Option<Spread>,
    /// The same of bursts, where no unit is under way: what comes next may be one. `None` also if none is known.
    #[serde(default)]
    pub next_takes: Option<Spread>,
    /// Of this tenant, as far back as the history is read.
    pub tally: Tally,
    /// What was left, or missing, in its last unit that was seen to end.
    pub last_float_seconds: Option<f64>,
}

/// A unit of work under way that has a deadline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkRow {
    pub started_at: Timestamp,
    pub due_at: Timestamp,
    /// Until it is due; below zero it is late.
    pub float_seconds: f64,
    /// What is expected to be left at its end, where enough is known to say.
    pub expected_float_seconds: Option<f64>,
    /// GPU time so far, as if alone.
    pub active_seconds: f64,
    pub risk: Risk,
}

/// How a tenant is kept off the GPU, or about to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldRow {
    pub stage: HoldStage,
    /// `None` when it is being released.
    pub means: Option<Means>,
    /// The user who decided; `None` for a policy.
    pub by_uid: Option<u32>,
    pub reason: String,
    /// The driver call it stands at, if it was stopped at one.
    pub stands_at: Option<StandsAt>,
    pub since: Timestamp,
    /// Time it was kept off in this task, up to now.
    pub held_seconds: f64,
    /// Its place in line from 1, where it waits for its turn, among those who wait for a GPU it is on.
    pub place: Option<u32>,
    /// How many are in that line, with it.
    pub places: Option<u32>,
    /// For whom it waits, as people call it.
    pub behind: Option<String>,
    /// When its turn is expected, where enough is known to say.
    pub expected_at: Option<Timestamp>,
    /// Policies leave it alone until then; `None`: until its task ends, where they do.
    pub until: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldStage {
    /// It runs and policies leave it alone: by a person's word, or by a rule of the settings or its labels.
    Exempt,
    /// It runs, and will be stopped at its next launch.
    Gated,
    Held,
    /// On its way to being held or released.
    Moving,
    /// Dry run: it runs, and would be stopped at its next launch.
    WouldGate,
    /// Dry run: it runs, and would be held.
    WouldHold,
}

/// Where a tenant stands that the gate has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum StandsAt {
    /// The making of its first context.
    Context,
    FirstLaunch,
    Launch,
    Allocation {
        bytes: Bytes,
    },
}

/// Who decides about holds, and what came of it since the daemon started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Management {
    pub policy: PolicyName,
    /// The policy only says what it would do.
    pub dry_run: bool,
    /// What can and may be done here to a container.
    #[serde(default)]
    pub means: Vec<Means>,
    /// Who waits for a turn, first in line first; in a dry run, who would.
    pub queue: Vec<QueueRow>,
    pub holds: HoldCounters,
    /// Holds of dry runs, none of which was made.
    pub would_be_holds: HoldCounters,
}

/// One tenant in line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueRow {
    pub tenant: TenantKey,
    pub name: String,
    /// For whom it waits, as people call it; `None` where it waits for memory or a rule rather than a tenant.
    pub behind: Option<String>,
    /// Why it waits.
    pub reason: String,
    pub since: Timestamp,
    pub expected_at: Option<Timestamp>,
}

/// Confirmed holds by their means, and holds and releases that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HoldCounters {
    pub freeze: u64,
    pub lock: u64,
    pub gate: u64,
    pub park: u64,
    pub failed: u64,
}

impl HoldCounters {
    /// One more by these means.
    pub fn add(&mut self, means: Means) {
        let counter = match means {
            Means::Freeze => &mut self.freeze,
            Means::Lock => &mut self.lock,
            Means::Gate => &mut self.gate,
            Means::Park => &mut self.park,
        };
        *counter += 1;
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndedTask {
    pub task_id: TaskId,
    pub tenant: TenantKey,
    pub container_name: String,
    pub owner: Option<String>,
    pub image: Option<String>,
    /// Of the process that began it.
    pub command: String,
    pub gpus: Vec<GpuIndex>,
    pub peak_memory_bytes: Option<Bytes>,
    pub started_at: Timestamp,
    pub start_evidence: Evidence,
    pub ended_at: Timestamp,
    pub seconds: f64,
    pub end: TaskEnd,
    /// By its deadline, if it had one and was judged as a whole.
    pub judgement: Option<Judgement>,
}

/// What a task's end was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskEnd {
    /// Its last context was given up, by a process that lived on.
    Left,
    /// Its last process ended, with a context it had not given up.
    Exited,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceView {
    pub source: Source,
    #[serde(flatten)]
    pub status: SourceStatus,
}

/// Totals since the daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    pub samples: u64,
    pub tasks_started: u64,
    pub tasks_ended: u64,
    pub gpus_lost: u64,
}

/// Totals of the probes since the daemon started: whether what they tell is all there was to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProbeCounters {
    /// Driver calls that were told.
    pub hits: u64,
    /// Calls lost because more came at once than there was room for.
    pub lost: u64,
    /// Calls of processes that were gone before anybody could say which they were.
    pub unresolved: u64,
    /// Times a first allocation or launch may have passed before its probe was in place.
    pub late: u64,
    /// Hits nobody needed, while a probe that had told all it should was being taken away: what being watched cost.
    pub wasted: u64,
}
