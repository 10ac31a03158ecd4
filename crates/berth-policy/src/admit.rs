//! Whether one more piece of work with a deadline fits on a GPU: pure arithmetic on what is known.
//!
//! In the order of earliest deadline first everybody is in time exactly if, for every instant at which something is due, what is due
//! by then fits into the time until then (processor demand). That is reckoned twice: with what work usually takes, and nothing for
//! what is not known; and with what nine in ten take no more than. If the one does not fit, the answer is no; if the other does,
//! and everything is known, it is yes. Bursts are taken to come as fast as their deadline lets them: the next begins when the last
//! was due.
//!
//! Work that was due before the candidate is does not depend on it, and is not looked at. Nobody is admitted or turned away here.

mod demand;

use berth_model::GpuIndex;
use berth_model::control::{DueWork, Fits, GpuAdmission};
use berth_model::deadline::{Spread, Unit};

use demand::{Demand, Outcome, Stream, TOLERANCE};

/// A GPU and those who are there.
#[derive(Debug, Clone, PartialEq)]
pub struct Ground {
    pub gpu: GpuIndex,
    pub loads: Vec<Load>,
    /// Of its time what those with a deadline may have, more than 0 and at most 1.
    pub share: f64,
}

/// A tenant with a deadline.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// As people call it.
    pub name: String,
    pub unit: Unit,
    /// More than 0.
    pub deadline_seconds: f64,
    /// `None` between bursts.
    pub under_way: Option<UnderWay>,
    /// GPU time a unit takes, as if alone; `None` if that is not known.
    pub takes: Option<Spread>,
}

/// A unit of work that has begun.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnderWay {
    /// From now; below zero it is late.
    pub due_in_seconds: f64,
    /// GPU time it had so far.
    pub done_seconds: f64,
}

/// What may be started now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Newcomer {
    pub unit: Unit,
    /// More than 0.
    pub deadline_seconds: f64,
    /// GPU time it takes, as if alone.
    pub takes: Option<Spread>,
    /// Time it takes by itself, also off the GPU.
    pub run: Option<Spread>,
}

/// How much is taken to be left of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// What it usually takes; nothing where that is not known.
    Usual,
    /// What nine in ten take no more than; nothing where that is not known.
    Most,
    /// The same, and no end where it is not known.
    Worst,
}

/// Whether the newcomer fits, and why.
pub fn admit(ground: &Ground, newcomer: &Newcomer) -> GpuAdmission {
    let due = newcomer.deadline_seconds;
    let [usual, most, worst] = [By::Usual, By::Most, By::Worst].map(|by| demand(ground, newcomer, by));
    let outcomes = [usual.outcome(due), worst.outcome(due)];
    let fits = fits(newcomer, ground.share, outcomes);
    let unknown = ground.loads.iter().filter(|load| load.left(By::Worst).is_infinite());
    GpuAdmission {
        gpu: ground.gpu,
        fits,
        is_unreckoned: fits == Fits::Unknown && outcomes.contains(&Outcome::Unreckoned),
        share: ground.share,
        room_seconds: ground.share * due,
        usual_seconds: usual.by(due),
        most_seconds: most.by(due),
        before: before(ground, due),
        endangered: most.endangered(due),
        unknown: unknown.map(|load| load.name.clone()).collect(),
    }
}

fn fits(newcomer: &Newcomer, share: f64, [usual, worst]: [Outcome; 2]) -> Fits {
    if !newcomer.has_time_for_itself(share, By::Usual) || matches!(usual, Outcome::LateAt(_)) {
        Fits::No
    } else if newcomer.has_time_for_itself(share, By::Worst) && worst == Outcome::InTime {
        Fits::Yes
    } else {
        Fits::Unknown
    }
}

fn demand<'a>(ground: &'a Ground, newcomer: &Newcomer, by: By) -> Demand<'a> {
    let streams = ground.loads.iter().map(|load| load.stream(by)).chain([newcomer.stream(by)]).collect();
    Demand { streams, share: ground.share }
}

fn before(ground: &Ground, due: f64) -> Vec<DueWork> {
    let work = |load: &Load| {
        let left = load.left(By::Worst);
        DueWork {
            name: load.name.clone(),
            unit: load.unit,
            due_in_seconds: load.under_way.map_or(load.deadline_seconds, |work| work.due_in_seconds),
            left_seconds: left.is_finite().then_some(left),
        }
    };
    let mut before: Vec<DueWork> = ground.loads.iter().map(work).filter(|work| work.due_in_seconds <= due).collect();
    before.sort_by(|one, other| one.due_in_seconds.total_cmp(&other.due_in_seconds));
    before
}

// === impl By ===

impl By {
    /// GPU time in all of a unit that had `done`. One that took longer than nine in ten may take as long as the longest did; after
    /// that nobody knows.
    fn takes(self, takes: Option<Spread>, done_seconds: f64) -> f64 {
        let known = |spread: Spread| match self {
            By::Usual => Some(spread.median_seconds),
            By::Most | By::Worst if done_seconds <= spread.p90_seconds => Some(spread.p90_seconds),
            By::Most | By::Worst if done_seconds <= spread.most_seconds => Some(spread.most_seconds),
            By::Most | By::Worst => None,
        };
        takes.and_then(known).unwrap_or(if self == By::Worst { f64::INFINITY } else { 0.0 })
    }
}

// === impl Load ===

impl Load {
    /// GPU time left of its unit under way, or of its next one.
    fn left(&self, by: By) -> f64 {
        let done = self.under_way.map_or(0.0, |work| work.done_seconds);
        (by.takes(self.takes, done) - done).max(0.0)
    }

    fn stream(&self, by: By) -> Stream<'_> {
        let first = self.under_way.map(|work| (work.due_in_seconds, self.left(by)));
        let begins = first.map_or(0.0, |(due, _)| due.max(0.0));
        let further = (self.unit == Unit::Burst).then(|| (begins, self.deadline_seconds, by.takes(self.takes, 0.0)));
        Stream { name: Some(&self.name), first, further }
    }
}

// === impl Newcomer ===

impl Newcomer {
    fn stream(&self, by: By) -> Stream<'static> {
        let (deadline, takes) = (self.deadline_seconds, by.takes(self.takes, 0.0));
        match self.unit {
            Unit::Task => Stream { name: None, first: Some((deadline, takes)), further: None },
            Unit::Burst => Stream { name: None, first: None, further: Some((0.0, deadline, takes)) },
        }
    }

    /// With nobody before it: off the GPU it needs its own time, on the GPU what others leave of it.
    fn has_time_for_itself(&self, share: f64, by: By) -> bool {
        let takes = by.takes(self.takes, 0.0);
        let elsewhere = (self.run.map_or(0.0, |run| by.takes(Some(run), 0.0)) - takes).max(0.0);
        elsewhere + takes / share <= self.deadline_seconds + TOLERANCE
    }
}

#[cfg(test)]
mod tests;
