//! What people ask about the level of kernels, and what they are told: which policy decides there, and who was promised what.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::TenantKey;
use crate::kernels::KernelRow;
use crate::settings::KernelPolicyName;
use crate::slo::Slo;

/// `tenant` is what a person typed; see [`super::find`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelAsk {
    /// From now on this policy plans, on one GPU, by index or UUID, or on all, also those that had one of their own. What runs and what
    /// waits stays as it is until the next plan.
    SetPolicy { policy: KernelPolicyName, gpu: Option<String> },
    /// From now on these goals count, whatever its labels say; also for the next daemon.
    SetSlo { tenant: String, slo: Box<Slo> },
    /// What its labels say counts again.
    ResetSlo { tenant: String },
    /// One tenant's, or everybody's who has goals or takes part.
    ShowSlo { tenant: Option<String> },
}

/// A tenant and its goals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SloStanding {
    pub tenant: TenantKey,
    pub name: String,
    /// What counts, written as labels are.
    pub counts: BTreeMap<String, String>,
    /// Labels that could not be read, and goals that the bounds change, in words.
    pub wrong: Vec<String>,
    /// What a person has said, which goes before its labels; `None`: its labels count.
    pub given: Option<GivenSlo>,
    /// What was said also counts for the next daemon. `false`: nothing is written down here (`history.enabled`).
    pub is_durable: bool,
    /// How it does on each GPU; empty while it does not take part.
    pub rows: Vec<KernelRow>,
}

/// Who said it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenSlo {
    pub by_uid: u32,
    pub at: Timestamp,
}
