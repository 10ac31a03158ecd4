//! A run from its beginning to its end, and what is counted of it.

use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;

use super::Setup;
use super::cluster::{Cluster, Event};
use super::outcome::{Missed, Outcome};

/// Between two times at which somebody is told how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Progress {
    pub seconds: f64,
    pub of_seconds: f64,
    pub containers: usize,
    pub waiting: usize,
    pub deadlines: Missed,
}

/// Runs it to its end, or until `told` has heard enough.
pub fn run(setup: &Setup, told: &mut dyn FnMut(&Progress) -> ControlFlow<()>) -> Outcome {
    let mut cluster = Cluster::new(setup);
    cluster.note_in(TOLD_EVERY, Event::Tell);
    while let Some(event) = cluster.pop() {
        match event {
            Event::Tell if told(&cluster.progress()).is_break() => return cluster.finish(false),
            Event::Tell => cluster.note_in(TOLD_EVERY, Event::Tell),
            event => cluster.happens(event),
        }
        if cluster.is_over() {
            break;
        }
    }
    cluster.finish(true)
}
