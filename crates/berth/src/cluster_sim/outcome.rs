//! What came of a run.

use serde::Serialize;

use super::placer::Way;

/// Deadlines, and how many of them were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Missed {
    pub deadlines: u64,
    pub missed: u64,
    /// Takes longer than its deadline even alone: whoever places it, it is missed.
    pub lost: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    pub way: Way,
    pub nodes: usize,
    pub gpus: usize,
    /// Virtual time that has passed.
    pub seconds: f64,
    /// It ran to its end.
    pub is_complete: bool,
    /// Containers that came while it counted.
    pub containers: u64,
    /// Of tasks, of bursts.
    pub tasks: Missed,
    pub bursts: Missed,
    /// By the factor of the deadline, tight ones first.
    pub tasks_by_tightness: [Missed; 4],
    /// Containers that found no place when they came, and how long those waited on average.
    pub waited: u64,
    pub waited_seconds: Option<f64>,
    /// Containers that never had a place.
    pub never_placed: u64,
    /// Of containers without a deadline: from coming to their end, over what they compute. `None` without any.
    pub stay_over_alone: Option<f64>,
    /// Share of the GPUs' time in which they computed, while containers counted; `None` if that was not reached.
    pub utilisation: Option<f64>,
    /// Containers that were on a node which was lost.
    pub displaced: u64,
    /// Placed on a node that was lost already.
    pub placed_on_lost: u64,
    /// Placed on a node whose last report was too old.
    pub placed_on_stale: u64,
    pub traffic: Traffic,
}

/// What passed between nodes and placer, and what there was to tell. Over the whole run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Traffic {
    /// Reports made because they were asked for.
    pub reports: u64,
    /// Of those the ones that said anything else than the one before, but for time that passed.
    pub changed: u64,
    /// Instants at which somebody came, left, or began or ended a unit: what a node would push.
    pub changes: u64,
    /// Choices asked for.
    pub choices: u64,
}

// === impl Missed ===

impl Missed {
    pub fn add(&mut self, is_missed: bool, is_lost: bool) {
        self.deadlines += 1;
        self.missed += u64::from(is_missed);
        self.lost += u64::from(is_lost);
    }

    /// `None` of none.
    pub fn rate(self) -> Option<f64> {
        (self.deadlines > 0).then(|| self.missed as f64 / self.deadlines as f64)
    }

    pub fn lost_rate(self) -> Option<f64> {
        (self.deadlines > 0).then(|| self.lost as f64 / self.deadlines as f64)
    }
}

impl std::ops::Add for Missed {
    type Output = Missed;

    fn add(self, other: Missed) -> Missed {
        Missed {
            deadlines: self.deadlines + other.deadlines,
            missed: self.missed + other.missed,
            lost: self.lost + other.lost,
        }
    }
}

// === impl Outcome ===

impl Outcome {
    pub fn new(way: Way, nodes: usize, gpus: usize) -> Self {
        Self {
            way,
            nodes,
            gpus,
            seconds: 0.0,
            is_complete: false,
            containers: 0,
            tasks: Missed::default(),
            bursts: Missed::default(),
            tasks_by_tightness: [Missed::default(); 4],
            waited: 0,
            waited_seconds: None,
            never_placed: 0,
            stay_over_alone: None,
            utilisation: None,
            displaced: 0,
            placed_on_lost: 0,
            placed_on_stale: 0,
            traffic: Traffic::default(),
        }
    }

    /// Of all deadlines.
    pub fn all(&self) -> Missed {
        self.tasks + self.bursts
    }
}

/// Mean of what is added up one by one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    pub fn get(self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}
