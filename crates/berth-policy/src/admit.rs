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
use berth_model::cluster::LoadReport;
pub use berth_model::cluster::report::UnderWay;
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

/// Why it does not fit, even if everybody takes no longer than usual.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Late {
    /// Alone it would need so long.
    Alone { needs_seconds: f64 },
    /// So much would be due where there is so much time.
    Together { due_seconds: f64, room_seconds: f64 },
}

/// How much is taken to be left of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
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
    let unknown = ground.loads.iter().filter(|load| left(&load.work(), By::Worst).is_infinite());
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

/// Whether the newcomer fits beside those: the same answer without names and without what is due before, for whoever asks of many GPUs.
/// Never [`Fits::No`], which is the error.
pub fn fits_beside(
    loads: impl Iterator<Item = LoadReport> + Clone,
    share: f64,
    newcomer: &Newcomer,
) -> Result<Fits, Late> {
    let due = newcomer.deadline_seconds;
    if !newcomer.has_time_for_itself(share, By::Usual) {
        return Err(Late::Alone { needs_seconds: newcomer.needs_seconds(share, By::Usual) });
    }
    let streams = |by| loads.clone().map(move |load| stream(&load, None, by)).chain([newcomer.stream(by)]);
    // Mostly sums tell, and what is due need not be kept.
    let outcome = |by| match demand::at_a_glance(streams(by), share, due) {
        Some(outcome) => outcome,
        None => Demand { streams: streams(by).collect(), share }.outcome(due),
    };
    let worst = outcome(By::Worst);
    // Who is in time at its longest is in time as usual.
    let usual = if worst == Outcome::InTime { worst } else { outcome(By::Usual) };
    if let Outcome::LateAt(at) = usual {
        let (due_seconds, room_seconds) = Demand { streams: streams(By::Usual).collect(), share }.late(at);
        return Err(Late::Together { due_seconds, room_seconds });
    }
    Ok(fits(newcomer, share, [usual, worst]))
}

/// Whether nobody is late because there is only this share of the time, if everybody takes no longer than usual. If somebody is, how much is
/// due where there is how much time. Who is late with the whole time, too, is not late for that; and work that can no longer be in time has
/// no claim to it, and takes nothing from the others.
pub fn share_is_enough(loads: impl Iterator<Item = LoadReport>, share: f64) -> Result<(), (f64, f64)> {
    let mut demand = Demand { streams: loads.map(|load| stream(&load, None, By::Usual)).collect(), share };
    for stream in &mut demand.streams {
        stream.first = stream.first.filter(|(due, left)| *left <= due + TOLERANCE);
    }
    // Nor does it take from the looks there are for the others.
    demand.streams.retain(|stream| stream.first.is_some() || stream.further.is_some());
    demand.late_for_the_share().map_or(Ok(()), |at| Err(demand.late(at)))
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
    let streams = ground
        .loads
        .iter()
        .map(|load| stream(&load.work(), Some(&load.name), by))
        .chain([newcomer.stream(by)])
        .collect();
    Demand { streams, share: ground.share }
}

fn before(ground: &Ground, due: f64) -> Vec<DueWork> {
    let work = |load: &Load| {
        let left = left(&load.work(), By::Worst);
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
    pub(crate) fn takes(self, takes: Option<Spread>, done_seconds: f64) -> f64 {
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
    fn work(&self) -> LoadReport {
        let &Self { unit, deadline_seconds, under_way, takes, .. } = self;
        LoadReport { unit, deadline_seconds, under_way, takes }
    }
}

/// GPU time left of its unit under way, or of its next one.
pub(crate) fn left(load: &LoadReport, by: By) -> f64 {
    let done = load.under_way.map_or(0.0, |work| work.done_seconds);
    (by.takes(load.takes, done) - done).max(0.0)
}

fn stream<'a>(load: &LoadReport, name: Option<&'a str>, by: By) -> Stream<'a> {
    let first = load.under_way.map(|work| (work.due_in_seconds, left(load, by)));
    let begins = first.map_or(0.0, |(due, _)| due.max(0.0));
    let further = (load.unit == Unit::Burst).then(|| (begins, load.deadline_seconds, by.takes(load.takes, 0.0)));
    Stream { name, first, further }
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
    fn needs_seconds(&self, share: f64, by: By) -> f64 {
        let takes = by.takes(self.takes, 0.0);
        let elsewhere = (self.run.map_or(0.0, |run| by.takes(Some(run), 0.0)) - takes).max(0.0);
        elsewhere + takes / share
    }

    pub(crate) fn has_time_for_itself(&self, share: f64, by: By) -> bool {
        self.needs_seconds(share, by) <= self.deadline_seconds + TOLERANCE
    }
}

#[cfg(test)]
mod tests;
