//! What a node says of itself: raw facts, so that each strategy derives from them what it goes by.
//!
//! Durations in a report are relative to the instant of its [`Stamp`]; whoever reads it later takes off what has passed since. No
//! tenant is named: a report is read by everybody who places.

mod check;
mod of;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{NodeId, PlacementId};
use crate::deadline::{Spread, Unit};
use crate::hold::Means;
use crate::id::GpuUuid;
use crate::quantity::{Bytes, Percent};
use crate::settings::PolicyName;

pub use check::Impossible;
pub use of::{About, share};

/// A node that reports by itself does so at least this often, also when nothing is new.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// What one report holds at most, so that a reader need not trust its writer: what is beyond is left out, and said to be.
pub const MOST_GPUS: usize = 64;
pub const MOST_LOADS: usize = 256;
pub const MOST_MISSES: usize = 16;
pub const MOST_PLACED: usize = 1024;
/// Images of which a node tells what it knows, the latest first.
pub const MOST_PASTS: usize = 256;

/// One node at one instant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub node: NodeId,
    pub stamp: Stamp,
    /// Of the daemon, as `berth --version` says it.
    pub berth: String,
    /// Who decides there; `None` where nobody is held.
    pub policy: Option<PolicyName>,
    /// By what tenants can be held there.
    pub means: Vec<Means>,
    pub gpus: Vec<GpuReport>,
    /// Changes when what the node knows of the past does ([`Past`]), which is asked for separately.
    pub pasts: u32,
}

/// Which report of a node this is. Of two, the one with the later start, then with the higher number, is the newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// When its daemon started, by the node's wall clock, in milliseconds since 1970.
    pub started_ms: u64,
    /// From 1 since then; no two reports have the same.
    pub number: u64,
    /// When it was made, by the node's wall clock, in milliseconds since 1970.
    pub at_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuReport {
    pub uuid: GpuUuid,
    /// It does not answer; the other figures are what was last known.
    pub is_lost: bool,
    /// `None` if the driver does not say.
    pub memory_total_bytes: Option<Bytes>,
    pub memory_used_bytes: Option<Bytes>,
    /// What tenants have said they will need (`berth.memory`) and have not taken yet.
    pub memory_promised_bytes: Bytes,
    pub core_pct: Option<Percent>,
    /// Tenants that wait for their turn.
    pub queue: u32,
    /// Tenants without a deadline.
    pub others: u32,
    /// Of its time what those with a deadline may have beside somebody without one, more than 0 and at most 1. Alone they have all of it.
    pub share: f64,
    /// Tenants with a deadline, at most [`MOST_LOADS`].
    pub loads: Vec<LoadReport>,
    /// Not all of them are in `loads`.
    pub has_more: bool,
    /// Containers that are still there and missed a deadline.
    pub missed_by_present: u32,
    /// How long ago deadlines were missed here, in seconds, the latest first, at most [`MOST_MISSES`].
    pub misses_ago_seconds: Vec<f64>,
    /// Sum of what was left, or missing, in the last unit of each container that is still there and has no unit under way, in seconds.
    pub past_float_seconds: f64,
    /// What was placed and has been seen on this GPU, at most [`MOST_PLACED`], the latest first.
    pub placed: Vec<PlacementId>,
}

/// One tenant with a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    pub unit: Unit,
    /// More than 0.
    pub deadline_seconds: f64,
    /// `None` between bursts.
    pub under_way: Option<UnderWay>,
    /// GPU time a unit takes, as if alone; `None` if that is not known.
    pub takes: Option<Spread>,
}

/// A unit of work that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UnderWay {
    /// Below zero it is late.
    pub due_in_seconds: f64,
    /// GPU time it had so far.
    pub done_seconds: f64,
}

/// What a node knows of work of one image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Past {
    pub image: String,
    pub unit: Unit,
    /// GPU time a unit takes, as if alone.
    pub takes: Option<Spread>,
    /// Time it takes by itself, also off the GPU.
    pub run: Option<Spread>,
}

// === impl GpuReport ===

impl GpuReport {
    /// Memory nobody has and nobody was promised; `None` if the driver does not say.
    pub fn free_bytes(&self) -> Option<Bytes> {
        let (total, used) = (self.memory_total_bytes?, self.memory_used_bytes?);
        Some(Bytes(total.0.saturating_sub(used.0).saturating_sub(self.memory_promised_bytes.0)))
    }
}
