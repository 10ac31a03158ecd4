//! Doing what a hold needs: one step at a time, to one tenant.
//!
//! Steps block, for milliseconds or for seconds, and are performed on threads of their own. Each can be repeated without
//! harm: freezing what is frozen, continuing what runs, unlocking what is not locked are no errors. A process or container
//! that is gone is no error either where the step would have set it free.

pub mod bench;
#[cfg(any(test, feature = "fakes"))]
pub mod fake;
mod gate;
mod hand_over;
mod host;
mod pause;
mod signal;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use berth_model::hold::Step;
use berth_model::{ContainerId, StepFailure, TenantKey};

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
}

/// Performs steps. Whoever calls has written down what may happen.
pub trait Hands: std::fmt::Debug + Send + Sync {
    /// Returns when the step's effect is confirmed, or why it is not.
    fn perform(&self, subject: &Subject, step: Step) -> Result<(), StepFailure>;
}
