//! Who runs inside one GPU, at the grain of kernels: pure functions from a [`Scene`] to a [`Plan`].
//!
//! A *client* is a process that can be ordered. Some *lead*: others yield to them, by a word the leader raises itself, and no plan is needed
//! for that. Between equals a plan names a *squad*: who may run together until when, and how the multiprocessors (SMs) are divided among
//! them. Whoever asked carries it out, and asks again at [`Squad::until`], or sooner when somebody came, went, or was done.
//!
//! Policies keep nothing between two plans: the same scene gives the same plan, and one policy can take over from another at any plan. What
//! is learned while work runs, whom whose company slows and how much a client counts, is [`Learned`]: it belongs to whoever asks, comes with
//! the scene, and outlives a change of policy.

pub mod auto;
mod crowd;
mod frame;
pub mod hybrid;
pub mod interference;
pub mod jct;
#[cfg(test)]
mod laws;
pub mod learned;
mod promise;
pub mod queue;
pub mod reason;
mod search;
pub mod settled;
mod shares;
pub mod slo;
pub mod squad;
#[cfg(test)]
mod testing;
pub mod types;
pub mod weights;
mod welcome;

use berth_model::settings::{KernelPolicyName, KernelSettings};
pub use berth_model::slo::{Slo, Throughput};
pub use crowd::Crowd;
pub use frame::limited;
pub use hybrid::Hybrid;
pub use interference::{CoRun, Interference, Phi};
pub use jct::Jct;
pub use learned::Learned;
pub use queue::Queue;
pub use reason::Reason;
pub use settled::{Settled, Split};
pub use types::{
    Client, ClientId, Division, Member, Orders, Part, Place, Plan, Profile, Scene, Side, Squad, Work, Yield,
};
pub use weights::{Attained, Voice, Weights};

/// The policy of that name; `None` for `off`, under which everybody runs and nobody yields, and for `auto`, which plans nothing itself.
pub fn named(name: KernelPolicyName, settings: &KernelSettings) -> Option<Box<dyn KernelPolicy>> {
    let settings = settings.clone();
    match name {
        KernelPolicyName::Off | KernelPolicyName::Auto => None,
        KernelPolicyName::Jct => Some(Box::new(Jct { settings })),
        KernelPolicyName::Slo => Some(Box::new(slo::Slo { settings })),
        KernelPolicyName::Hybrid => Some(Box::new(Hybrid { settings })),
    }
}

/// Decides who runs inside one GPU.
pub trait KernelPolicy: std::fmt::Debug + Send {
    fn name(&self) -> &'static str;

    /// What is to be, for every client of the scene.
    fn plan(&self, scene: &Scene<'_>) -> Plan;
}
