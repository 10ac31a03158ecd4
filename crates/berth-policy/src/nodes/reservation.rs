//! What was placed on a node and has not been seen there yet.

use berth_model::Mono;
use berth_model::cluster::report::UnderWay;
use berth_model::cluster::{LoadReport, PlacementId, Wanted};
use berth_model::deadline::{Spread, Unit};
use berth_model::id::GpuUuid;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reservation {
    pub id: PlacementId,
    /// When it was placed.
    pub at: Mono,
    /// Those of its GPUs on which it has not been seen.
    pub gpus: Vec<GpuUuid>,
    /// Of each of them; 0 where nobody said.
    pub memory_bytes: u64,
    /// `None`: it takes what is left.
    deadline_seconds: Option<f64>,
    unit: Unit,
    takes: Option<Spread>,
}

impl Reservation {
    pub fn new(id: PlacementId, wanted: &Wanted, gpus: &[GpuUuid], at: Mono) -> Self {
        Self {
            id,
            at,
            gpus: gpus.to_vec(),
            memory_bytes: wanted.memory_bytes.map_or(0, |bytes| bytes.0),
            deadline_seconds: wanted.deadline.map(|deadline| deadline.seconds()),
            unit: wanted.unit,
            takes: wanted.takes,
        }
    }

    pub fn is_on(&self, gpu: &GpuUuid) -> bool {
        self.gpus.contains(gpu)
    }

    pub fn has_deadline(&self) -> bool {
        self.deadline_seconds.is_some()
    }

    /// As seen from an instant: a task is due since it was placed, of one that serves any request may come. `None` without a deadline.
    pub fn load(&self, from: Mono) -> Option<LoadReport> {
        let deadline_seconds = self.deadline_seconds?;
        let due_in_seconds = deadline_seconds + self.at.since(from).as_secs_f64() - from.since(self.at).as_secs_f64();
        let under_way = (self.unit == Unit::Task).then_some(UnderWay { due_in_seconds, done_seconds: 0.0 });
        Some(LoadReport { unit: self.unit, deadline_seconds, under_way, takes: self.takes })
    }
}
