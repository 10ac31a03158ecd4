//! Whether one more piece of work with a deadline fits on a GPU: pure arithmetic on what is known.
//!
//! In the order of earliest deadline first everybody is in time exactly if, for every instant at which something is due, what is due
//! by then fits into the time until then (processor demand). That is reckoned twice: with what work usually takes, and nothing for
//! what is not known; and with what nine in ten take no more than. If the one does not fit, the answer is no; if the other does,
//! and everything is known, it is yes. Bursts are taken to come as fast as their deadline lets them: the next begins when the last
//! was due.
//!
//! Work that was due before the candidate is does not depend on it, and is not looked at. Nobody is admitted or turned away here.

use std::collections::BTreeSet;

use berth_model::GpuIndex;
use berth_model::control::{DueWork, Fits, GpuAdmission};
use berth_model::deadline::{Spread, Unit};

/// Instants looked at; a server of microseconds beside one of hours has more, and then it is not known.
const MOST_INSTANTS: usize = 100_000;
/// Seconds by which sums of measured times may be off.
const TOLERANCE: f64 = 1e-9;

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

/// One stream of demand: at most one piece under way, and further ones where it serves.
#[derive(Debug, Clone, Copy)]
struct Stream<'a> {
    name: Option<&'a str>,
    /// Of the piece under way: when it is due and what it has left.
    first: Option<(f64, f64)>,
    /// Of further pieces: the first begins then, each is due so much later and takes so much; the next begins with that.
    further: Option<(f64, f64, f64)>,
}

/// Whether the newcomer fits, and why.
pub fn admit(ground: &Ground, newcomer: &Newcomer) -> GpuAdmission {
    let due = newcomer.deadline_seconds;
    let without = |by| ground.loads.iter().map(|load| load.stream(by)).collect::<Vec<_>>();
    let with = |by| without(by).into_iter().chain([newcomer.stream(by)]).collect::<Vec<_>>();
    let total = |by| with(by).iter().map(|stream| stream.demand(due)).sum::<f64>();
    let unknown = ground.loads.iter().filter(|load| load.left(By::Worst).is_infinite());
    GpuAdmission {
        gpu: ground.gpu,
        fits: fits(ground, newcomer, &with),
        share: ground.share,
        room_seconds: ground.share * due,
        usual_seconds: total(By::Usual),
        most_seconds: total(By::Most),
        before: before(ground, due),
        endangered: endangered(&with(By::Most), &without(By::Most), ground.share, due),
        unknown: unknown.map(|load| load.name.clone()).collect(),
    }
}

fn fits<'a>(ground: &Ground, newcomer: &Newcomer, with: &dyn Fn(By) -> Vec<Stream<'a>>) -> Fits {
    let due = newcomer.deadline_seconds;
    let is_in_time = |by| late_at(&with(by), ground.share, due).map(|late| late.is_empty());
    if !newcomer.has_time_for_itself(ground.share, By::Usual) || is_in_time(By::Usual) == Some(false) {
        Fits::No
    } else if newcomer.has_time_for_itself(ground.share, By::Worst) && is_in_time(By::Worst) == Some(true) {
        Fits::Yes
    } else {
        Fits::Unknown
    }
}

/// Instants from `due` on by which more is due than there is time for; without end if it only gets worse. `None` where that would take
/// for ever to find out.
fn late_at(streams: &[Stream<'_>], share: f64, due: f64) -> Option<Vec<f64>> {
    let rate: f64 = streams.iter().map(Stream::rate).sum();
    let once: f64 = streams.iter().filter_map(|stream| stream.first).map(|(_, left)| left).sum();
    // Beyond this the time that has passed makes up for all there is to do once.
    let until = if rate < share - TOLERANCE { (once / (share - rate)).max(due) } else { due };
    let until = streams.iter().filter_map(|stream| stream.first).fold(until, |until, (at, _)| until.max(at));
    let mut instants: Vec<f64> = Vec::new();
    for stream in streams {
        instants.extend(stream.instants(due, until)?);
        if instants.len() > MOST_INSTANTS {
            return None;
        }
    }
    let is_late = |at: &f64| streams.iter().map(|stream| stream.demand(*at)).sum::<f64>() > share * at + TOLERANCE;
    let mut late: Vec<f64> = instants.into_iter().filter(is_late).collect();
    match late.is_empty() {
        true if rate > share + TOLERANCE => late.push(f64::INFINITY),
        true if rate >= share - TOLERANCE => return None,
        _ => {}
    }
    Some(late)
}

/// Those with something due at an instant at which the newcomer makes the difference.
fn endangered(with: &[Stream<'_>], without: &[Stream<'_>], share: f64, due: f64) -> Vec<String> {
    let late = late_at(with, share, due).unwrap_or_default();
    let before: BTreeSet<u64> =
        late_at(without, share, due).unwrap_or_default().into_iter().map(f64::to_bits).collect();
    let new: Vec<f64> = late.into_iter().filter(|at| !before.contains(&at.to_bits())).collect();
    let is_due = |stream: &&Stream<'_>| new.iter().any(|at| stream.is_due_at(*at));
    without.iter().filter(is_due).filter_map(|stream| stream.name).map(str::to_owned).collect()
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

// === impl Stream ===

impl Stream<'_> {
    /// GPU time that is due by then.
    fn demand(&self, at: f64) -> f64 {
        let first = self.first.filter(|(due, _)| *due <= at).map_or(0.0, |(_, left)| left);
        first + self.further.filter(|_| self.count(at) > 0.0).map_or(0.0, |(_, _, takes)| self.count(at) * takes)
    }

    /// Further pieces that are due by then.
    fn count(&self, at: f64) -> f64 {
        self.further.map_or(0.0, |(begins, deadline, _)| ((at - begins) / deadline + TOLERANCE).floor().max(0.0))
    }

    /// GPU time per second in the long run.
    fn rate(&self) -> f64 {
        self.further.map_or(0.0, |(_, deadline, takes)| takes / deadline)
    }

    /// When something of it is due, within these; `None` where that is too often to look at.
    fn instants(&self, from: f64, until: f64) -> Option<Vec<f64>> {
        let first = self.first.map(|(due, _)| due).filter(|due| *due >= from);
        let further = self.further.map(|(begins, deadline, _)| {
            let skipped = ((from - begins) / deadline - TOLERANCE).ceil().max(1.0);
            let count = ((until - begins) / deadline - skipped + 1.0 + TOLERANCE).floor().max(0.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is compared first")]
            let count = (count <= MOST_INSTANTS as f64).then_some(count as u32)?;
            Some((0..count).map(move |number| begins + (skipped + f64::from(number)) * deadline))
        });
        let further = match further {
            None => None,
            Some(None) => return None,
            Some(Some(instants)) => Some(instants),
        };
        Some(first.into_iter().chain(further.into_iter().flatten()).collect())
    }

    fn is_due_at(&self, at: f64) -> bool {
        if at.is_infinite() {
            return self.further.is_some();
        }
        let is_same = |due: f64| (due - at).abs() <= TOLERANCE;
        let further = self.further.filter(|_| self.count(at) >= 1.0);
        self.first.is_some_and(|(due, _)| is_same(due))
            || further.is_some_and(|(begins, deadline, _)| is_same(begins + self.count(at) * deadline))
    }
}

#[cfg(test)]
mod tests;
