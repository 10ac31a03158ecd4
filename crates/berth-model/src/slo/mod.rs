//! What a tenant is promised at the level of kernels, and what it may not have: goals and constraints, as values.
//!
//! Pure. A tenant states its [`Slo`] in labels ([`Slo::from_labels`]) or a person does for it; several goals may stand side by side, such as
//! a latency and a throughput. A *request* is a stretch of work on a GPU between two pauses. How well goals are kept is the *attainment*, 0
//! to 1, and `target` is the attainment to be reached.
//!
//! It does not say who goes first: that is `berth_policy::kernels`.

mod bound;
mod labels;
mod memory;
mod share;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::quantity::Bytes;
use crate::time::Span;
pub use bound::{Goal, GoalBound, GoalLimit, InvalidGoalBound, heaviest, within};
pub use labels::{InvalidSlo, LABELS};
pub use memory::MemorySize;
pub use share::{InvalidShare, Share};

/// Goals of one tenant, and the limits it has to keep. The default asks for nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Slo {
    pub latency: Option<Latency>,
    pub throughput: Option<Throughput>,
    /// Share of the time it wants the GPU in which it gets on.
    pub availability: Option<Share>,
    /// It is one job whose end counts, the sooner the better.
    pub completion: bool,
    /// Attainment to be reached; `None` takes what the goals say, see [`Slo::target`].
    pub target: Option<Share>,
    /// How much it counts beside others.
    pub weight: Weight,
    /// Share of the GPU it gets whenever it wants it, whatever others want.
    pub reserve: Option<Share>,
    /// Device memory that is kept free for it on its GPU. Nobody yields for it.
    // An older berth refuses what it does not know: it is only written where it is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_reserve: Option<MemorySize>,
    pub constraints: Constraints,
}

/// So many of a hundred requests take no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Above 0 and below 1.
    pub percentile: Share,
    pub within: Span,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throughput {
    /// Requests, in thousandths per second.
    MilliPerSecond(u64),
    /// Of what it would get done alone on the GPU.
    OfAlone(Share),
}

/// 1 to [`Weight::MOST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Weight(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a weight of {weight} is not known: write a whole number from 1 to {}", Weight::MOST)]
pub struct InvalidWeight {
    weight: u32,
}

/// What a tenant may not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Constraints {
    /// Share of the GPU's SMs while others want some.
    pub most: Option<Share>,
    /// Device memory.
    pub memory: Option<MemorySize>,
    /// Bytes per second of asynchronous copies.
    pub copy: Option<Bytes>,
    /// It never computes beside another.
    pub apart: bool,
}

// === impl Slo ===

impl Slo {
    /// Whether it has a goal that others without one have to yield to.
    pub fn promises(&self) -> bool {
        self.latency.is_some() || self.throughput.is_some() || self.availability.is_some() || self.reserve.is_some()
    }

    /// Attainment to be reached: as stated, else the strictest of what its goals are about.
    pub fn target(&self) -> Share {
        let stated = [self.latency.map(|latency| latency.percentile), self.availability];
        self.target.or_else(|| stated.into_iter().flatten().max()).unwrap_or(Share::WHOLE)
    }

    /// How long a request may take from its beginning on, by the strictest of its goals; `None` if none is about single requests.
    pub fn within(&self) -> Option<Duration> {
        let paced = match self.throughput {
            Some(Throughput::MilliPerSecond(rate)) => Some(Duration::from_secs(1_000).div_f64(rate.max(1) as f64)),
            Some(Throughput::OfAlone(_)) | None => None,
        };
        self.latency.map(|latency| latency.within.get()).into_iter().chain(paced).min()
    }
}

// === impl Weight ===

impl Weight {
    pub const MOST: u32 = 100;

    pub fn get(self) -> f64 {
        f64::from(self.0)
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(1)
    }
}

impl TryFrom<u32> for Weight {
    type Error = InvalidWeight;

    fn try_from(weight: u32) -> Result<Self, InvalidWeight> {
        (1..=Self::MOST).contains(&weight).then_some(Self(weight)).ok_or(InvalidWeight { weight })
    }
}

impl From<Weight> for u32 {
    fn from(weight: Weight) -> u32 {
        weight.0
    }
}

impl fmt::Display for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}:{}", self.percentile.to_string().trim_end_matches('%'), self.within)
    }
}

impl fmt::Display for Throughput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Throughput::MilliPerSecond(rate) if rate % 1_000 == 0 => write!(f, "{}/s", rate / 1_000),
            Throughput::MilliPerSecond(rate) => {
                let text = format!("{}.{:03}", rate / 1_000, rate % 1_000);
                write!(f, "{}/s", text.trim_end_matches('0'))
            }
            Throughput::OfAlone(share) => write!(f, "{share}"),
        }
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
