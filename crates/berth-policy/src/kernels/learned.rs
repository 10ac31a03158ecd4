//! What is learned while work runs, and outlives a change of policy.

use super::ClientId;
use super::interference::Interference;
use super::weights::Weights;

/// Of one GPU.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Learned {
    pub interference: Interference,
    pub weights: Weights,
}

impl Learned {
    /// The client is gone.
    pub fn forget(&mut self, who: ClientId) {
        self.interference.forget(who);
    }
}
