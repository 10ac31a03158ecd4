//! Docker Swarm: its nodes, what was placed on them, and what becomes of that when a node is lost or emptied.
//!
//! Membership, storage and starting containers are the swarm's. berth reads nodes, services and tasks from a manager, and changes two
//! things there: the lease that says which placer acts, and the constraint, variables and labels of services it has placed.

mod engine;
pub mod labels;
mod lease;
mod node;
mod rounds;
mod service;

pub use engine::{EngineError, Manager};
pub use rounds::Swarm;
pub use service::constraint;
