//! Who runs and who waits: pure functions of what is known about a host.
//!
//! A [`Policy`] is given a [`View`] and the time, and answers with [`Decision`]s, each with a [`Reason`] a person
//! understands. It touches nothing: whoever asked turns decisions into steps (`berth_model::hold`), and what came of them is
//! in the next view. The same views in the same order give the same decisions.
//!
//! A policy may be asked at any time and any number of times; it is asked again at the latest at [`Verdict::again_at`].
#![forbid(unsafe_code)]

pub mod admit;
pub mod edf;
pub mod fifo;
pub mod kernels;
pub mod nodes;
pub mod paper;
pub mod reason;
mod turns;
pub mod view;

use berth_model::hold::Means;
use berth_model::{Mono, TenantKey};
use serde::{Deserialize, Serialize};

/// The numbers of each policy: part of the configuration file.
pub use berth_model::settings::policy as settings;
pub use reason::Reason;
pub use settings::{EdfSettings, FifoSettings, PaperSettings};
pub use view::{Activity, Gpu, Past, Stand, Tenant, View, Work};

/// Decides who runs on the GPUs of one host.
pub trait Policy: std::fmt::Debug + Send {
    fn name(&self) -> &'static str;

    /// Tenants that want memory a GPU has not left are to be stopped at their allocation, for this policy to let go on.
    fn queues_for_memory(&self) -> bool {
        false
    }

    /// Somebody waits for what only a look at the GPUs tells: they are looked at as often as where nobody sees calls.
    fn goes_by_looks(&self) -> bool {
        false
    }

    /// What to change. Tenants it does not name stay as they are.
    fn decide(&mut self, view: &View, now: Mono) -> Verdict;
}

/// Holds nobody: what the others are measured against.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Policy for Nobody {
    fn name(&self) -> &'static str {
        "nobody"
    }

    fn decide(&mut self, _: &View, _: Mono) -> Verdict {
        Verdict::default()
    }
}

/// What a policy answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Verdict {
    pub decisions: Vec<Decision>,
    /// Who waits, first in line first.
    pub queue: Vec<Waiting>,
    /// Ask again by then even if nothing has happened.
    pub again_at: Option<Mono>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    pub tenant: TenantKey,
    pub action: Action,
    pub reason: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Keep it off by these means. [`Means::Gate`] lets it run until its next launch.
    Hold(Means),
    /// As [`Means::Gate`], and stop it at the making of its first context too.
    Bar,
    Release,
}

/// One tenant in line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    pub tenant: TenantKey,
    /// For whom it waits; `None` where it waits for memory or a rule rather than a tenant.
    pub behind: Option<TenantKey>,
    pub since: Mono,
    /// When its turn is expected, where enough is known to say.
    pub expected_at: Option<Mono>,
}
