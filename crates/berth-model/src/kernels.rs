//! What is shown of scheduling at the level of kernels: finished figures, one row per tenant and GPU.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{GpuIndex, GpuUuid, TenantKey};
use crate::quantity::Bytes;
use crate::settings::KernelPolicyName;
use crate::slo::Slo;
use crate::time::Mono;
use crate::watch::Kind;

/// Everybody who takes part, and what came of it since the daemon started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelLevel {
    /// On GPUs that have none of their own.
    pub policy: KernelPolicyName,
    pub gpu_policies: Vec<GpuPolicy>,
    /// What `auto` has in place, where it chooses and somebody takes part; by GPU.
    #[serde(default)]
    pub auto: Vec<AutoChoice>,
    /// What the policy in place came to of late, where several take part; by GPU.
    #[serde(default)]
    pub windows: Vec<GpuWindow>,
    /// By GPU, then by name.
    pub rows: Vec<KernelRow>,
    pub totals: KernelTotals,
}

/// A GPU that has a policy of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuPolicy {
    pub gpu_index: Option<GpuIndex>,
    pub gpu_uuid: GpuUuid,
    pub policy: KernelPolicyName,
}

/// What `auto` has in place on one GPU, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AutoChoice {
    pub gpu_index: Option<GpuIndex>,
    pub gpu_uuid: GpuUuid,
    pub policy: KernelPolicyName,
    /// It is tried for one window in place of this one.
    pub instead_of: Option<KernelPolicyName>,
    /// In words, with the figures it was decided by.
    pub reason: String,
    /// Since when it is in place; `None`: nothing was measured yet, and it is what `auto` begins with.
    pub since: Option<Timestamp>,
    /// Windows that were measured.
    pub windows: u64,
    /// What is remembered of each policy that was in place.
    pub measured: Vec<PolicyFigures>,
    /// What the latest window came to.
    pub latest: Option<WindowFigures>,
}

/// What is remembered of a policy on one GPU: the latest windows, the older the less.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct PolicyFigures {
    pub policy: KernelPolicyName,
    /// Goodput × fairness^½ ÷ slowdown^½.
    pub benefit: f64,
    /// Share of the goals that were kept, 0 to 1; 1 where nobody has one.
    pub goals_kept: f64,
    /// How many windows ago it was last in place.
    pub windows_ago: u64,
}

/// What the policy in place came to over one window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WindowFigures {
    pub policy: KernelPolicyName,
    /// How long somebody had work.
    pub seconds: f64,
    /// Work that counts, as seconds alone, over the window's length.
    pub goodput: f64,
    /// `None` where nobody has a goal, or nothing was seen of it.
    pub goals_kept: Option<f64>,
    /// Jain's index of how fast tenants got on.
    pub fairness: Option<f64>,
    /// How much longer work took than alone.
    pub slowdown: Option<f64>,
    /// Finish-time fairness of whoever came off worst: how long its work took over what it would have taken with an equal part of the GPU.
    #[serde(default)]
    pub worst_finish: Option<f64>,
    /// Tenants that were there for most of it: the figures but goodput are of them.
    #[serde(default)]
    pub tenants: u32,
    /// Of the time wanted, the part of those who came or went, 0 to 1.
    #[serde(default)]
    pub changing: f64,
}

/// The latest window on one GPU, under whatever policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuWindow {
    pub gpu_index: Option<GpuIndex>,
    pub gpu_uuid: GpuUuid,
    pub ended_at: Timestamp,
    #[serde(flatten)]
    pub figures: WindowFigures,
}

/// Which policy `auto` has put in place on a GPU, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyChosen {
    pub gpu: Option<GpuIndex>,
    pub gpu_uuid: GpuUuid,
    pub policy: KernelPolicyName,
    pub before: KernelPolicyName,
    /// For one window only, to see what it brings.
    pub is_try: bool,
    /// In words, with the figures it was decided by.
    pub reason: String,
    /// What is remembered of each.
    pub measured: Vec<PolicyFigures>,
    pub at: Mono,
}

/// One tenant on one GPU, all of its processes together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelRow {
    pub tenant: TenantKey,
    /// As in its task's row.
    pub name: String,
    /// `None` for a GPU the driver's management library does not list.
    pub gpu_index: Option<GpuIndex>,
    pub gpu_uuid: GpuUuid,
    /// Processes that have attached.
    pub clients: u32,
    pub role: KernelRole,
    /// Those it yields to, as people call them.
    pub yields_to: Vec<String>,
    pub is_busy: bool,
    /// It has work and waits.
    pub is_stopped: bool,
    /// Why it runs or waits, in words; `None` where nothing has to be decided.
    pub reason: Option<String>,
    /// What `auto` has in place on its GPU, and why, in words; `None` where a policy was named.
    #[serde(default)]
    pub chosen: Option<String>,
    /// What is found of it, for which it counts for more than its own weight.
    #[serde(default)]
    pub urged_by: Vec<Kind>,
    pub slo: Slo,
    /// Labels that could not be read, in words.
    pub unread_labels: Vec<String>,
    /// How well its goals were kept of late, 0 to 1.
    pub attainment: Option<f64>,
    /// It led others for more than its share, and leads nobody until then.
    pub lead_lost_until: Option<Timestamp>,
    pub served_seconds: f64,
    /// Time since it came in which it had work, and in which it had some and might not run.
    #[serde(default)]
    pub wanted_seconds: f64,
    #[serde(default)]
    pub stopped_seconds: f64,
    /// Functions and shapes that were told apart.
    pub kernel_kinds: u64,
    /// A usual kernel, and how far apart those of one kind lie, as a part of their mean.
    pub kernel_seconds: Option<f64>,
    pub kernel_spread: Option<f64>,
    pub longest_kernel_seconds: Option<f64>,
    /// Mean distance of an estimate from what was measured, as a part of the latter.
    pub prediction_error: Option<f64>,
    /// How much longer its work took than was estimated, as a natural logarithm; errors to both sides cancel out.
    #[serde(default)]
    pub prediction_off: Option<f64>,
    /// Share of the SMs its kernels can use, 0 to 1.
    #[serde(default)]
    pub sm_share: Option<f64>,
    /// Share of the memory's bandwidth it uses while it runs, 0 to 1; `None` where the GPU does not count it, and until it is known.
    #[serde(default)]
    pub bandwidth_share: Option<f64>,
    /// SMs that all of its work is confined to now; `None`: it may use all of them.
    #[serde(default)]
    pub confined_to_sms: Option<u32>,
    /// What was seen of those that ran beside it.
    #[serde(default)]
    pub slowed_by: Vec<SlowedBy>,
    #[serde(flatten)]
    pub memory: MemoryFigures,
    #[serde(flatten)]
    pub requests: RequestFigures,
    #[serde(flatten)]
    pub counters: KernelCounters,
}

/// How much the company of another slows one, as learned from both running at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlowedBy {
    /// As people call it.
    pub name: String,
    /// ρ of policies, 0 to 1: what is lost where both can use half of the GPU.
    pub rho: f64,
    /// Its standard error.
    pub error: f64,
    /// 0: nothing was seen; 1: much was.
    pub confidence: f64,
}

/// Device memory of all its processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MemoryFigures {
    /// What they have, as their libraries tell of them.
    #[serde(default)]
    pub memory_allocated_bytes: Option<Bytes>,
    /// The most it may have now, by its own limit and by what is kept for others; `None`: as much as there is.
    #[serde(default)]
    pub memory_limit_bytes: Option<Bytes>,
    /// What is free and kept for it; `None` without a reservation, and where it is not known what is free.
    #[serde(default)]
    pub memory_kept_bytes: Option<Bytes>,
    /// What it has reserved and neither has nor is free; `None` likewise.
    #[serde(default)]
    pub memory_missing_bytes: Option<Bytes>,
}

/// Requests of all its processes, as their libraries tell of them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct RequestFigures {
    pub requests: u64,
    /// Of the last seconds.
    pub requests_per_second: Option<f64>,
    /// Half of the latest took no longer, and 99 of a hundred.
    pub request_p50_seconds: Option<f64>,
    pub request_p99_seconds: Option<f64>,
    /// Its speed of late over its speed while nobody else had work; `None` until it was alone for a while.
    pub speed_of_alone: Option<f64>,
}

/// As its processes count them; they only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelCounters {
    /// Kernels, graphs and copies given to the driver.
    pub launches: u64,
    /// Waits put into streams.
    pub stops: u64,
    /// Stops that lasted too long and were given up.
    pub stops_given_up: u64,
    /// How often its work was taken off the GPU in the middle, while it had to wait.
    #[serde(default)]
    pub preempted: u64,
    pub copied_bytes: u64,
    pub memory_refused: u64,
    /// Pieces of work that were measured.
    pub samples: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KernelRole {
    /// Nobody else takes part on that GPU.
    Alone,
    /// Others yield to it.
    Leads,
    Yields,
    /// It has its turns among others.
    Equal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct KernelTotals {
    pub attached: u64,
    pub refused: u64,
    pub leads_lost: u64,
    pub plans: u64,
}

/// What happens to a tenant at the level of kernels, for whoever wants to be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "news", rename_all = "snake_case")]
pub enum KernelNews {
    /// Its first process has attached.
    Joined,
    /// Its last one has gone.
    Left,
    /// It kept others stopped for more than its share, and leads nobody for so long.
    LeadLost { gpu: Option<GpuIndex>, for_seconds: u64 },
    /// One of its streams stood at a stop that `from` would not let go of, as far as it says: it yields to that one no more there.
    Parted { gpu: Option<GpuIndex>, from: String },
    /// It takes part no more while this daemon lives, and why.
    Refused { reason: String },
}

impl KernelRole {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Leads => "leads",
            Self::Yields => "yields",
            Self::Equal => "equal",
        }
    }
}

impl KernelCounters {
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in [
            (&mut self.launches, other.launches),
            (&mut self.stops, other.stops),
            (&mut self.stops_given_up, other.stops_given_up),
            (&mut self.preempted, other.preempted),
            (&mut self.copied_bytes, other.copied_bytes),
            (&mut self.memory_refused, other.memory_refused),
            (&mut self.samples, other.samples),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}
