//! What is asked of the placer, and what it answers: the bodies of its HTTP interface.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Choice, Engine, NodeId, NotHere, PlacementId, Refusals, Report, Strategy};
use crate::deadline::{Deadline, Unit};
use crate::quantity::Bytes;

/// `GET /v1/nodes`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Nodes {
    /// `swarm` or `kubernetes`.
    pub engine: String,
    pub strategy: Strategy,
    /// Why this placer places nothing now, as a clause; `None` if it does.
    pub idle: Option<String>,
    /// Best first for the question that was asked; without one, for a container that needs nothing in particular.
    pub nodes: Vec<Node>,
    /// What is to run and has no place, in the engine's order. Kubernetes tells of its own.
    #[serde(default)]
    pub waiting: Vec<Waiting>,
}

/// A service that is to run and does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    pub name: String,
    /// Since when for this reason, by the engine's clock; `None` if it does not say.
    pub since: Option<Timestamp>,
    pub why: String,
}

/// One node, and whether it would be chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub node: NodeId,
    /// As people call it, where that is not its id.
    pub name: Option<String>,
    pub engine: Engine,
    /// The last report that could be believed; `None` if none came.
    pub report: Option<Report>,
    /// How old it is.
    pub age_seconds: Option<f64>,
    /// Why it was refused, where the last answer of its daemon was.
    pub refused: Option<String>,
    /// Placed there and not seen there yet.
    pub reserved: u32,
    /// `None`: it would take the container.
    pub why_not: Option<NotHere>,
    /// Higher is better; `None` where it would not.
    pub score: Option<f64>,
}

/// `POST /v1/place`. What is `None` may be anything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaceRequest {
    pub deadline: Option<Deadline>,
    #[serde(default = "task")]
    pub unit: Unit,
    pub memory_bytes: Option<Bytes>,
    #[serde(default = "one")]
    pub gpus: u32,
    /// Whose history tells how long it takes.
    pub image: Option<String>,
    /// How long it takes by itself, where somebody knows better than the history.
    pub takes: Option<Deadline>,
    /// The engine's own constraints, as on its command line (`node.labels.rack==a`).
    #[serde(default)]
    pub constraints: Vec<String>,
    /// Tell of every node, not only of how many were refused for what.
    #[serde(default)]
    pub detail: bool,
}

/// The answer to a [`PlaceRequest`]: nothing has been placed or reserved by it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlaceAnswer {
    /// Why this placer places nothing now, as a clause; `None` if it does.
    #[serde(default)]
    pub idle: Option<String>,
    /// `None`: nobody takes it.
    pub choice: Option<Choice>,
    /// The chosen node as people call it, where that is not its id.
    pub name: Option<String>,
    /// Nodes that would take it, with the chosen one.
    pub candidates: u32,
    pub refusals: Refusals,
    /// Where it was asked for.
    pub nodes: Vec<Node>,
}

/// `POST /v1/reservations`, with a [`PlaceRequest`]: the place is kept while the connection stays open, and after that for as long as the
/// engine may take to tell of the container that carries the placement in its label ([`super::PLACEMENT_LABEL`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reserved {
    pub placement: PlacementId,
    pub choice: Choice,
    /// The node as people call it, where that is not its id.
    pub name: Option<String>,
    /// Nodes that would have taken it, with the chosen one.
    pub candidates: u32,
    pub refusals: Refusals,
}

impl PlaceRequest {
    /// Anything, on one GPU.
    pub fn anything() -> Self {
        Self {
            deadline: None,
            unit: task(),
            memory_bytes: None,
            gpus: one(),
            image: None,
            takes: None,
            constraints: Vec::new(),
            detail: false,
        }
    }
}

fn task() -> Unit {
    Unit::Task
}

fn one() -> u32 {
    1
}
