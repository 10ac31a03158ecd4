//! What people say of how a tenant does, and what they are told of what was noticed. Both are for its owner and administrators.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::{GpuIndex, TenantKey};
use crate::watch::Kind;
use crate::watch::feedback::Feedback;

/// `tenant` is what a person typed; see [`super::find`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchAsk {
    /// How it does, by its owner's word.
    Feedback { tenant: String, said: Feedback },
    /// What its owner's words have come to.
    Mood { tenant: String },
    /// What is noticed now: of one tenant, or of everybody the caller may be told of.
    Findings { tenant: Option<String> },
}

/// What became of a word about a tenant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heard {
    pub tenant: TenantKey,
    pub name: String,
    pub said: Feedback,
    /// What has been said lately, −1 (complaints alone) to 1.
    pub mood: f64,
    /// By which its weight is multiplied at the level of kernels.
    pub weight: f64,
    /// It is written down. `false`: it counts for this daemon only.
    pub is_kept: bool,
}

/// What the words about a tenant have come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MoodRow {
    pub tenant: TenantKey,
    pub name: String,
    /// −1, complaints alone, to 1; 0 where nothing was said.
    pub mood: f64,
    /// By which its weight is multiplied at the level of kernels.
    pub weight: f64,
}

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FindingRow {
    pub tenant: TenantKey,
    pub name: String,
    /// `None` where it is not of one GPU.
    pub gpu: Option<GpuIndex>,
    pub kind: Kind,
    pub since: Timestamp,
    /// 0 to 1.
    pub sure: f64,
    /// What it is, without who it is about.
    pub words: String,
}
