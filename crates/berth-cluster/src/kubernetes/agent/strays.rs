//! Pods that got other GPUs than the placer chose, as where a chosen one has no share left. Pure but for the clock.
//!
//! Who has opened its GPU is seen there. Until then the node's report says where it will be and what it brings, so that the placer counts it
//! there, and corrects what is written on the pod.

use std::collections::BTreeSet;
use std::time::Instant;

use berth_model::GpuUuid;
use berth_model::cluster::report::{MOST_LOADS, MOST_PLACED, UnderWay};
use berth_model::cluster::{GpuReport, LoadReport, PlacementId, Report};
use berth_model::deadline::{Spread, Unit};

use crate::kubernetes::annotations::Asks;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Stray {
    pub id: PlacementId,
    /// What it got.
    pub gpus: BTreeSet<GpuUuid>,
    pub asks: Asks,
    /// When that was found out.
    pub since: Instant,
    /// It has opened a GPU: a report tells of it by itself.
    pub is_seen: bool,
}

impl Stray {
    /// Adds it to a report, unless it is in that or was in an earlier one.
    pub fn tell(&mut self, report: &mut Report) {
        self.is_seen |= report.gpus.iter().any(|gpu| gpu.placed.contains(&self.id));
        if self.is_seen {
            return;
        }
        for gpu in report.gpus.iter_mut().filter(|gpu| self.gpus.contains(&gpu.uuid)) {
            self.tell_of(gpu);
        }
    }

    fn tell_of(&self, gpu: &mut GpuReport) {
        if gpu.placed.len() == MOST_PLACED {
            return;
        }
        gpu.placed.push(self.id);
        let memory_bytes = self.asks.memory_bytes.unwrap_or_default();
        gpu.memory_promised_bytes.0 = gpu.memory_promised_bytes.0.saturating_add(memory_bytes.0);
        match self.load() {
            Some(load) if gpu.loads.len() < MOST_LOADS => gpu.loads.push(load),
            Some(_) => gpu.has_more = true,
            None => gpu.others += 1,
        }
    }

    /// A task is due since then; of one that serves any request may come. `None` without a deadline.
    fn load(&self) -> Option<LoadReport> {
        let deadline_seconds = self.asks.deadline?.seconds();
        let unit = self.asks.unit.unwrap_or(Unit::Task);
        let due_in_seconds = deadline_seconds - self.since.elapsed().as_secs_f64();
        let under_way = (unit == Unit::Task).then_some(UnderWay { due_in_seconds, done_seconds: 0.0 });
        let takes = self.asks.takes.and_then(|takes| Spread::of([takes.seconds()]));
        Some(LoadReport { unit, deadline_seconds, under_way, takes })
    }
}
