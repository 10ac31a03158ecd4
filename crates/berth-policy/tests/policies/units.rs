//! Units of work with a deadline, on the host of `host.rs`: a whole stay, or each burst of one.

use std::time::Duration;

use berth_model::Mono;
use berth_model::deadline::Spread;
use berth_policy::Work;

use crate::host::{Do, MS};

/// What a tenant has promised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Due {
    /// Milliseconds from the start of a unit.
    pub within: u64,
    /// Each burst is a unit; else the whole stay is.
    pub is_each: bool,
    /// Kernels of a burst.
    pub kernels: usize,
    /// GPU time that its like took.
    pub takes: Option<Spread>,
}

/// What has become of a tenant's units.
#[derive(Debug, Default)]
pub struct Units {
    open: Option<(Mono, f64)>,
    /// Kernels of the one under way that are done.
    kernels: usize,
    /// Nanoseconds by which each was in time; below zero: late.
    pub floats: Vec<i128>,
}

/// One that took exactly so many milliseconds.
pub fn exactly(millis: u64) -> Option<Spread> {
    Spread::of([Duration::from_millis(millis).as_secs_f64()])
}

/// GPU time of a script in milliseconds.
pub fn computes(script: &[Do]) -> u64 {
    script.iter().map(|part| if let Do::Compute(ms) | Do::Submit(ms) = part { *ms } else { 0 }).sum()
}

impl Units {
    /// It goes on; begins one unless one is under way.
    pub fn begin(&mut self, now: Mono) {
        self.open.get_or_insert((now, 0.0));
    }

    pub fn pass(&mut self, nanos: f64) {
        if let Some((_, done)) = &mut self.open {
            *done += nanos;
        }
    }

    /// A kernel is over, and with it perhaps the unit.
    pub fn end_kernel(&mut self, due: Due, now: Mono) {
        self.kernels += 1;
        if due.is_each && self.kernels >= due.kernels {
            self.end(due, now);
        }
    }

    pub fn end(&mut self, due: Due, now: Mono) {
        self.kernels = 0;
        if let Some((started, _)) = self.open.take() {
            self.floats.push(i128::from(due_at(due, started).0) - i128::from(now.0));
        }
    }

    pub fn work(&self, due: Due) -> Option<Work> {
        let (started, done) = self.open?;
        let done = Duration::try_from_secs_f64(done / 1e9).ok()?;
        Some(Work { started, due: due_at(due, started), done, takes: due.takes })
    }

    pub fn late(&self) -> usize {
        self.floats.iter().filter(|float| **float < 0).count()
    }
}

fn due_at(due: Due, started: Mono) -> Mono {
    Mono(started.0 + due.within * MS)
}
