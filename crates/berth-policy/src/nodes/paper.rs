//! The strategy `paper`: the node list as published. Most free GPU memory first, the first placeable one whose float time exceeds the
//! newcomer's deadline.
//!
//! Not placeable is where a container missed its deadline and is still there, where the cores are at 100 %, or the memory is. The float time
//! is the sum of everybody's. Taken literally that places nothing on an idle cluster, and leaves things open. What is repaired:
//!
//! - where nobody has a deadline the float time is without bound;
//! - a unit under way counts with what is left until it is due, one that is over with what was left then;
//! - whether a unit is in time is not known before its end: one that is late and runs on is no miss yet;
//! - the text gives the order no direction: most free memory comes first;
//! - each GPU is judged as if it was a node, for the paper's nodes have one; a container that wants several gets the best of one node;
//! - a newcomer without a deadline needs no float time;
//! - memory that is wanted must be free: the text sorts by it and does not compare;
//! - what is on its way counts as if it had just begun.

use berth_model::cluster::{GpuReport, LoadReport, NotHere, Wanted};
use berth_model::{Bytes, Mono};

use super::index::Bound;
use super::judge::Rank;
use super::node::Gpu;

#[derive(Debug)]
pub(super) struct Ask {
    memory_bytes: Option<u64>,
    deadline_seconds: Option<f64>,
}

/// The best of several GPUs that are placeable, as far as that does not depend on the question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Best {
    /// `None` where there is none.
    free_bytes: Option<u64>,
    /// At the instant of the report, and less later; infinite where it is without bound.
    float_seconds: f64,
}

impl Ask {
    pub fn new(wanted: &Wanted) -> Self {
        Self {
            memory_bytes: wanted.memory_bytes.map(|bytes| bytes.0),
            deadline_seconds: wanted.deadline.map(|deadline| deadline.seconds()),
        }
    }

    pub fn judge(&self, gpu: &Gpu<'_>, now: Mono) -> Result<Rank, NotHere> {
        is_placeable(gpu.report)?;
        let free = gpu.free_bytes();
        match (self.memory_bytes, free) {
            (Some(_), None) => return Err(NotHere::MemoryUnknown),
            (Some(wanted), Some(free)) if free < wanted => {
                return Err(NotHere::TooLittleMemory { free_bytes: Bytes(free), wanted_bytes: Bytes(wanted) });
            }
            _ => {}
        }
        let float = float_seconds(gpu.loads(now), gpu.report.past_float_seconds);
        match (self.deadline_seconds, float) {
            (Some(deadline_seconds), Some(float_seconds)) if float_seconds <= deadline_seconds => {
                Err(NotHere::FloatTooShort { float_seconds, deadline_seconds })
            }
            _ => Ok(rank(free.unwrap_or(0))),
        }
    }

    /// How good the best can be; `None` if none of those will do for which it stands.
    pub fn bound(&self, best: &Best) -> Option<Rank> {
        let free = best.free_bytes?;
        let has_time = self.deadline_seconds.is_none_or(|deadline| best.float_seconds > deadline);
        (has_time && self.memory_bytes.is_none_or(|wanted| free >= wanted)).then(|| rank(free))
    }

    /// Half at 64 GiB.
    pub fn score(rank: Rank) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "what is lost is less than a page of the largest GPUs")]
        let free = (u64::MAX - rank.0) as f64;
        free / (free + f64::from(1u32 << 31) * 32.0)
    }
}

/// Most first.
fn rank(free_bytes: u64) -> Rank {
    Rank(u64::MAX - free_bytes)
}

fn is_placeable(report: &GpuReport) -> Result<(), NotHere> {
    let is_full = report.memory_total_bytes.is_some_and(|total| report.memory_used_bytes >= Some(total));
    match report {
        _ if report.missed_by_present > 0 => Err(NotHere::Missed { containers: report.missed_by_present }),
        _ if report.core_pct.is_some_and(|core| core.get() >= 100) => Err(NotHere::CoreFull),
        _ if is_full => Err(NotHere::MemoryFull),
        _ => Ok(()),
    }
}

/// Of those who are there or on their way; `None` is without bound.
fn float_seconds(loads: impl Iterator<Item = LoadReport>, past_float_seconds: f64) -> Option<f64> {
    let due = |load: LoadReport| load.under_way.map_or(0.0, |work| work.due_in_seconds);
    let sum = loads.map(due).fold(None, |sum, due| Some(sum.unwrap_or(0.0) + due));
    sum.map(|sum| sum + past_float_seconds)
}

// === impl Best ===

impl Best {
    /// `coming` are those on their way, each with its load if it has a deadline.
    pub fn of(gpu: &GpuReport, free_bytes: Option<u64>, coming: impl Iterator<Item = Option<LoadReport>>) -> Self {
        let loads = gpu.loads.iter().copied().chain(coming.flatten());
        let float_seconds = float_seconds(loads, gpu.past_float_seconds).unwrap_or(f64::INFINITY);
        let is_placeable = is_placeable(gpu).is_ok();
        if is_placeable { Self { free_bytes: Some(free_bytes.unwrap_or(0)), float_seconds } } else { Self::NOTHING }
    }
}

impl Bound for Best {
    const NOTHING: Self = Self { free_bytes: None, float_seconds: f64::NEG_INFINITY };

    fn add(&mut self, other: &Self) {
        self.free_bytes = self.free_bytes.max(other.free_bytes);
        self.float_seconds = self.float_seconds.max(other.float_seconds);
    }
}
