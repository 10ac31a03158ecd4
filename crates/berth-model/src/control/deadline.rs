//! What people ask about deadlines, and what they are told: those of tenants, and whether one more would be met.

use serde::{Deserialize, Serialize};

use crate::deadline::{Deadline, Given, Spread, Unit};
use crate::id::{GpuIndex, TenantKey};
use crate::settings::PolicyName;
use crate::snapshot::DeadlineRow;

/// `tenant` is what a person typed; see [`super::find`]. It may be a container that has not come to a GPU yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadlineAsk {
    /// From now on this one counts, or none, whatever its labels say; also for the next daemon.
    Set { tenant: String, deadline: Option<Deadline> },
    /// What its labels say counts again.
    Reset { tenant: String },
    /// One tenant's, or everybody's who has one or of whom a person has said something.
    Show { tenant: Option<String> },
    /// Whether one more could be met.
    Admit(Candidate),
    /// What is known of each image, for whoever places containers.
    Pasts,
}

/// A tenant and its deadline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadlineStanding {
    pub tenant: TenantKey,
    pub name: String,
    pub owner: Option<String>,
    /// It is on a GPU, or on its way there.
    pub is_here: bool,
    /// What a person has said, which goes before its labels; `None`: its labels count.
    pub given: Option<Given>,
    /// What was said also counts for the next daemon. `false`: nothing is written down here (`history.enabled`).
    pub is_durable: bool,
    /// The deadline that counts, and how the tenant does by it; `None`: it has none.
    pub counts: Option<DeadlineRow>,
    /// Labels that say nothing berth understands, each with what would be right.
    #[serde(default)]
    pub unread_labels: Vec<String>,
}

/// Work that somebody may start, with a deadline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub deadline: Deadline,
    pub unit: Unit,
    /// Whose history tells how long it takes; what is `None` may be anything.
    pub image: Option<String>,
    pub command: Option<String>,
    pub owner: Option<String>,
    /// How long it takes by itself, where somebody knows better than the history.
    pub takes: Option<Deadline>,
    /// `None`: whichever suits it best.
    pub gpu: Option<GpuIndex>,
}

/// Whether everybody's deadline would be met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fits {
    /// Not even if everybody takes no longer than usual.
    No,
    /// It depends, or something is not known.
    Unknown,
    /// Even if everybody takes as long as nine in ten do.
    Yes,
}

/// The answer to [`DeadlineAsk::Admit`], in the order of earliest deadline first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Admission {
    pub fits: Fits,
    /// Who decides here; only `edf` keeps to that order. `None` where nobody is held.
    pub policy: Option<PolicyName>,
    /// The GPU it would fit on best; `None` where there is none.
    pub gpu: Option<GpuIndex>,
    /// The deadline that would count.
    pub deadline: Deadline,
    /// What was asked about, if the bounds of the settings do not allow it.
    pub asked: Option<Deadline>,
    pub unit: Unit,
    /// GPU time it takes, as if alone; `None` if that is not known.
    pub takes: Option<Spread>,
    /// Time it takes by itself, with what it does before and after computing; `None` if that is not known.
    pub run: Option<Spread>,
    /// What is left of its deadline if it takes as long as nine in ten do, and nobody is beside it.
    pub spare_seconds: Option<f64>,
    pub gpus: Vec<GpuAdmission>,
}

/// The same for one GPU. Instants are in seconds from now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuAdmission {
    pub gpu: GpuIndex,
    pub fits: Fits,
    /// Of the GPU's time what work with a deadline may have, 0 to 1: the rest is for those who have none, where there are any.
    pub share: f64,
    /// GPU time there is for such work until the candidate is due.
    pub room_seconds: f64,
    /// GPU time that is due until then, with the candidate's: if everybody takes as long as usual, and as nine in ten do. What
    /// is not known counts for nothing here.
    pub usual_seconds: f64,
    pub most_seconds: f64,
    /// Others' work that is due no later than the candidate.
    pub before: Vec<DueWork>,
    /// Who would perhaps be late with it, and would not be without it; the candidate is not named.
    pub endangered: Vec<String>,
    /// Those of whom it is not known how long they take.
    pub unknown: Vec<String>,
    /// It is not known because too many instants would have to be looked at.
    #[serde(default)]
    pub is_unreckoned: bool,
}

/// Work of a tenant that is under way, or may come at any time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DueWork {
    pub name: String,
    pub unit: Unit,
    /// Below zero it is late; of one between bursts, when the next would be due that begins now.
    pub due_in_seconds: f64,
    /// GPU time it has left, if it takes as long as nine in ten do; `None` if that is not known.
    pub left_seconds: Option<f64>,
}

impl Fits {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Fits::No => "no",
            Fits::Unknown => "unknown",
            Fits::Yes => "yes",
        }
    }
}
