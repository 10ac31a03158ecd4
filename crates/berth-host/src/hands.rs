//! Doing what a hold needs: one step at a time, to one tenant.
//!
//! Steps block, for milliseconds or for seconds, and are performed on threads of their own. Each can be repeated without
//! harm: freezing what is frozen, continuing what runs, unlocking what is not locked are no errors. A process or container
//! that is gone is no error either where the step would have set it free.

#[cfg(any(test, feature = "fakes"))]
pub mod fake;
mod gate;
mod hand_over;
mod host;
mod pause;
mod pin;
mod signal;
pub(crate) mod sys;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use berth_model::hold::{Held, Step};
use berth_model::{ContainerId, ProcKey, StepFailure, TenantKey};

pub use gate::Gate;
pub use host::HostHands;
pub use pause::PauseError;

/// Whom a step is done to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    pub tenant: TenantKey,
    /// Directory of the tenant's own cgroup in the hierarchy that can freeze it; `None` for those without one.
    pub cgroup: Option<PathBuf>,
    /// As the Docker Engine knows it.
    pub container: Option<ContainerId>,
    /// Its processes that use a GPU, as far as they are known.
    pub processes: BTreeSet<ProcKey>,
    /// What its parked processes need on their GPUs to come back, as far as is known.
    pub needs_back: BTreeMap<ProcKey, Held>,
    /// Processes that stand at a driver call and are to stay there when the tenant is thawed for no other reason than to be
    /// locked: until the driver has locked them, the threads at the call do not go on.
    pub standing: BTreeSet<ProcKey>,
}

impl Subject {
    /// A tenant of whose processes nothing is known, with nothing parked and nobody at a call.
    pub fn new(tenant: TenantKey, cgroup: Option<PathBuf>, container: Option<ContainerId>) -> Subject {
        let (processes, standing) = (BTreeSet::new(), BTreeSet::new());
        Subject { tenant, cgroup, container, processes, needs_back: BTreeMap::new(), standing }
    }
}

/// Performs steps. Whoever calls has written down what may happen.
pub trait Hands: std::fmt::Debug + Send + Sync {
    /// Returns when the step's effect is confirmed, or why it is not.
    fn perform(&self, subject: &Subject, step: Step) -> Result<(), StepFailure>;

    /// What a process that these hands have parked needs back; worth writing down. Does not block.
    fn needs_back(&self, _: ProcKey) -> Option<Held> {
        None
    }
}
