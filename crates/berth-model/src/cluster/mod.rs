//! More than one host: what a node says of itself, what is wanted of the cluster, and what came of it.
//!
//! A node's daemon *reports* raw facts ([`report`]); a strategy of `berth_policy::nodes` derives from them where a newcomer may go, and
//! says why not elsewhere ([`place`]). Membership, storage and starting containers are the engine's: nothing here is a second list of who
//! belongs to the cluster.

pub mod api;
mod id;
pub mod place;
mod record;
pub mod report;

pub use id::{InvalidNodeId, NodeId, PlacementId};
pub use place::{Choice, Engine, NotHere, Order, Refusals, Strategy, Wanted};
pub use record::Record;
pub use report::{GpuReport, LoadReport, Past, Report, Stamp};

/// The label, or annotation, by which what a node runs is told to be what was placed there: a [`PlacementId`].
pub const PLACEMENT_LABEL: &str = "berth.placement";
