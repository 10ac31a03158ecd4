//! What is wanted of a cluster, and where it may go or why not.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::NodeId;
use crate::deadline::{Deadline, Spread, Unit};
use crate::id::GpuUuid;
use crate::quantity::Bytes;

/// How nodes are ranked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Where its deadline and everybody else's on that GPU are met, by processor demand.
    #[default]
    Fit,
    /// As published: most free memory first, the first whose float time exceeds the deadline.
    Paper,
}

/// Of several places that would do, which is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The emptiest, so that everybody has room.
    #[default]
    Spread,
    /// The fullest, so that what is large finds a place that is whole.
    Pack,
}

/// A container that is to be placed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// `None`: it has all the time in the world, and takes what is left.
    pub deadline: Option<Deadline>,
    pub unit: Unit,
    /// GPU memory it needs; `None` if nobody said.
    pub memory_bytes: Option<Bytes>,
    /// GPUs it needs on one node; at least 1.
    pub gpus: u32,
    /// GPU time a unit takes, as if alone; `None` if that is not known.
    pub takes: Option<Spread>,
    /// Time it takes by itself, also off the GPU.
    pub run: Option<Spread>,
}

/// What the engine says of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    Ready,
    /// Takes nothing new and keeps what it has.
    Paused,
    /// Is to be emptied.
    Drained,
    /// Does not answer its manager.
    Down,
}

/// Where it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    pub node: NodeId,
    /// As many as were wanted.
    pub gpus: Vec<GpuUuid>,
}

/// Why a node is not chosen, with the figures that say so. Its name without them is its [`NotHere::word`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NotHere {
    /// Its engine takes nothing new.
    Engine { engine: Engine },
    /// The engine's own constraints, labels or resources leave it out.
    Excluded,
    /// No report has come, or none that could be believed.
    NoReport,
    /// The last report is too old.
    Stale { age_seconds: f64 },
    /// It has no GPU, or fewer than wanted.
    TooFewGpus { gpus: u32, wanted: u32 },
    /// Its GPUs do not answer.
    GpusLost,
    /// Too little memory is free on any GPU.
    TooLittleMemory { free_bytes: Bytes, wanted_bytes: Bytes },
    /// Nobody knows how much memory is free.
    MemoryUnknown,
    /// What was placed there and has not arrived takes what is left.
    Reserved,
    /// `paper`: a container there missed its deadline.
    Missed { containers: u32 },
    /// `paper`: its cores are fully used.
    CoreFull,
    /// `paper`: its memory is fully used.
    MemoryFull,
    /// `paper`: the float time of what it runs does not exceed the deadline.
    FloatTooShort { float_seconds: f64, deadline_seconds: f64 },
    /// The newcomer would not be in time even if it was alone there.
    TooShort { needs_seconds: f64, deadline_seconds: f64 },
    /// More would be due than there is time for: the newcomer or somebody who is there would be late.
    WouldBeLate { due_seconds: f64, room_seconds: f64 },
}

/// How many nodes were not chosen, and why, by [`NotHere::word`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Refusals(pub BTreeMap<String, u32>);

// === impl Strategy ===

impl Strategy {
    /// As in the settings file.
    pub fn as_str(self) -> &'static str {
        match self {
            Strategy::Fit => "fit",
            Strategy::Paper => "paper",
        }
    }
}

// === impl Wanted ===

impl Wanted {
    /// Anything, on one GPU.
    pub fn anything() -> Self {
        Self { deadline: None, unit: Unit::Task, memory_bytes: None, gpus: 1, takes: None, run: None }
    }
}

// === impl NotHere ===

impl NotHere {
    /// One word per reason: what counts, metrics and events go by.
    pub fn word(&self) -> &'static str {
        match self {
            NotHere::Engine { engine: Engine::Paused } => "paused",
            NotHere::Engine { engine: Engine::Drained } => "drained",
            NotHere::Engine { .. } => "down",
            NotHere::Excluded => "excluded",
            NotHere::NoReport => "no-report",
            NotHere::Stale { .. } => "stale",
            NotHere::TooFewGpus { .. } => "too-few-gpus",
            NotHere::GpusLost => "gpus-lost",
            NotHere::TooLittleMemory { .. } => "too-little-memory",
            NotHere::MemoryUnknown => "memory-unknown",
            NotHere::Reserved => "reserved",
            NotHere::Missed { .. } => "missed",
            NotHere::CoreFull => "core-full",
            NotHere::MemoryFull => "memory-full",
            NotHere::FloatTooShort { .. } => "float-too-short",
            NotHere::TooShort { .. } => "deadline-too-short",
            NotHere::WouldBeLate { .. } => "would-be-late",
        }
    }
}

/// A clause for people: `its last report is 12.0 s old`.
impl fmt::Display for NotHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotHere::Engine { engine: Engine::Ready } => f.write_str("its engine takes nothing new"),
            NotHere::Engine { engine: Engine::Paused } => f.write_str("its engine is paused"),
            NotHere::Engine { engine: Engine::Drained } => f.write_str("its engine is drained"),
            NotHere::Engine { engine: Engine::Down } => f.write_str("its engine does not answer"),
            NotHere::Excluded => f.write_str("constraints leave it out"),
            NotHere::NoReport => f.write_str("its berth has not reported"),
            NotHere::Stale { age_seconds } => write!(f, "its last report is {age_seconds:.1} s old"),
            NotHere::TooFewGpus { gpus: 0, .. } => f.write_str("it has no GPU"),
            NotHere::TooFewGpus { gpus, wanted } => write!(f, "it has {gpus} of {wanted} GPUs"),
            NotHere::GpusLost => f.write_str("its GPUs do not answer"),
            NotHere::TooLittleMemory { free_bytes, wanted_bytes } => {
                write!(f, "at most {free_bytes} is free on a GPU, {wanted_bytes} is wanted")
            }
            NotHere::MemoryUnknown => f.write_str("how much memory is free there is not known"),
            NotHere::Reserved => f.write_str("what is on its way there takes what is left"),
            NotHere::Missed { containers: 1 } => f.write_str("a container there missed its deadline"),
            NotHere::Missed { containers } => write!(f, "{containers} containers there missed their deadlines"),
            NotHere::CoreFull => f.write_str("its GPUs compute all the time"),
            NotHere::MemoryFull => f.write_str("its GPU memory is full"),
            NotHere::FloatTooShort { float_seconds, deadline_seconds } => {
                write!(f, "its float time of {float_seconds:.3} s does not exceed {deadline_seconds:.3} s")
            }
            NotHere::TooShort { needs_seconds, deadline_seconds } => {
                write!(f, "alone it would take {needs_seconds:.3} s of {deadline_seconds:.3} s")
            }
            NotHere::WouldBeLate { due_seconds, room_seconds } => {
                write!(f, "{due_seconds:.3} s of GPU time would be due within {room_seconds:.3} s")
            }
        }
    }
}

// === impl Refusals ===

impl Refusals {
    pub fn add(&mut self, why: &NotHere) {
        match self.0.get_mut(why.word()) {
            Some(count) => *count += 1,
            None => drop(self.0.insert(why.word().to_owned(), 1)),
        }
    }

    pub fn total(&self) -> u32 {
        self.0.values().sum()
    }
}
