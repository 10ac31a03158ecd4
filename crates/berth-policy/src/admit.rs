//! Whether one more piece of work with a deadline fits on a GPU: pure arithmetic on what is known.
//!
//! In the order of earliest deadline first everybody is in time exactly if, for every instant at which something is due, what is due
//! by then fits into the time until then (processor demand). That is reckoned twice: with what work usually takes, and nothing for
//! what is not known; and with what nine in ten take no more than. If the one does not fit, the answer is no; if the other does,
//! and everything is known, it is yes. Bursts are taken to come as fast as their deadline lets them: the next begins when the last
//! was due.
//!
//! Not every instant is looked at: from the last one that matters it goes backward, and where less is due than there is time for, all
//! instants are left out by which even that much would fit (quick processor-demand analysis). What takes long even so is not known.
//!
//! Work that was due before the candidate is does not depend on it, and is not looked at. Nobody is admitted or turned away here.

use berth_model::GpuIndex;
use berth_model::control::{DueWork, Fits, GpuAdmission};
use berth_model::deadline::{Spread, Unit};

/// Looks at what one stream has due by an instant, each time everybody is reckoned through. The loop waits for that, so it is bounded.
const MOST_LOOKS: usize = 25_000;
/// Pieces of work that can be told apart by when they are due.
const MOST_COUNTED: f64 = 1e15;
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

/// What is due, and how much of the time there is for it.
struct Demand<'a> {
    streams: Vec<Stream<'a>>,
    share: f64,
}

/// Whether everybody is in time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Outcome {
    InTime,
    /// By this instant more is due than there is time for, and by no later one; without end if it only gets worse.
    LateAt(f64),
    /// It would take too long to find out.
    Unreckoned,
}

/// Whether the newcomer fits, and why.
pub fn admit(ground: &Ground, newcomer: &Newcomer) -> GpuAdmission {
    let due = newcomer.deadline_seconds;
    let [usual, most, worst] = [By::Usual, By::Most, By::Worst].map(|by| Demand::new(ground, newcomer, by));
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

// === impl Demand ===

impl<'a> Demand<'a> {
    /// Of those who are there and, last, of the newcomer.
    fn new(ground: &'a Ground, newcomer: &Newcomer, by: By) -> Self {
        let streams = ground.loads.iter().map(|load| load.stream(by)).chain([newcomer.stream(by)]).collect();
        Self { streams, share: ground.share }
    }

    /// GPU time that is due by then.
    fn by(&self, at: f64) -> f64 {
        self.streams.iter().map(|stream| stream.demand(at)).sum()
    }

    /// GPU time per second in the long run.
    fn rate(&self) -> f64 {
        self.streams.iter().map(Stream::rate).sum()
    }

    fn is_late(&self, demand: f64, at: f64) -> bool {
        demand > self.share * at + TOLERANCE
    }

    /// From `from` on.
    fn outcome(&self, from: f64) -> Outcome {
        self.walk(from).0
    }

    /// The same, and how many instants were looked at.
    fn walk(&self, from: f64) -> (Outcome, usize) {
        let (rate, firsts) = (self.rate(), self.streams.iter().filter_map(|stream| stream.first));
        let once: f64 = firsts.clone().map(|(_, left)| left).sum();
        if !(rate + once).is_finite() {
            return (Outcome::LateAt(f64::INFINITY), 0);
        }
        // Beyond this the time that has passed makes up for all there is to do once.
        let until = if rate < self.share - TOLERANCE { (once / (self.share - rate)).max(from) } else { from };
        let until = firsts.fold(until, |until, (at, _)| until.max(at));
        if self.streams.iter().any(|stream| stream.count(until) > MOST_COUNTED) {
            return (Outcome::Unreckoned, 0);
        }
        let mut steps = 0;
        let mut next = self.last_until(until);
        while let Some(at) = next.filter(|at| *at >= from) {
            steps += 1;
            if steps * self.streams.len() > MOST_LOOKS {
                return (Outcome::Unreckoned, steps);
            }
            let demand = self.by(at);
            if self.is_late(demand, at) {
                return (Outcome::LateAt(at), steps);
            }
            // No more than that is due by any instant before, and by those from here on it fits.
            next = self.last_until((demand / self.share).min(at.next_down()));
        }
        let outcome = match rate {
            rate if rate > self.share + TOLERANCE => Outcome::LateAt(f64::INFINITY),
            rate if rate >= self.share - TOLERANCE => Outcome::Unreckoned,
            _ => Outcome::InTime,
        };
        (outcome, steps)
    }

    /// The last instant up to this one at which something is due.
    fn last_until(&self, at: f64) -> Option<f64> {
        self.streams.iter().filter_map(|stream| stream.last_until(at)).reduce(f64::max)
    }

    /// Those with something due at an instant at which the newcomer makes the difference. Where that would take long, of those who
    /// serve only the next while is looked at.
    fn endangered(&self, due: f64) -> Vec<String> {
        let Some((newcomer, others)) = self.streams.split_last() else { return Vec::new() };
        let until = match self.outcome(due) {
            Outcome::InTime => return Vec::new(),
            Outcome::LateAt(at) if at.is_infinite() => {
                let is_full = self.rate() - newcomer.rate() > self.share + TOLERANCE;
                let servers = others.iter().filter(|stream| !is_full && stream.further.is_some());
                return servers.filter_map(|stream| stream.name).map(str::to_owned).collect();
            }
            Outcome::LateAt(at) => at,
            Outcome::Unreckoned => f64::INFINITY,
        };
        let often: f64 = others.iter().filter_map(|stream| stream.further).map(|(_, deadline, _)| 1.0 / deadline).sum();
        let mut instants = MOST_LOOKS / self.streams.len();
        let until = until.min(due + instants as f64 / 2.0 / often);
        let mut is_new = |at: f64| {
            let demand = self.by(at);
            self.is_late(demand, at) && !self.is_late(demand - newcomer.demand(at), at)
        };
        let is_endangered = |stream: &&Stream<'_>| {
            let looked_at = stream.instants(due, until).take_while(|_| {
                instants = instants.saturating_sub(1);
                instants > 0
            });
            looked_at.into_iter().any(&mut is_new)
        };
        others.iter().filter(is_endangered).filter_map(|stream| stream.name).map(str::to_owned).collect()
    }
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

    /// When something of it was last due, up to this instant.
    fn last_until(&self, at: f64) -> Option<f64> {
        let first = self.first.map(|(due, _)| due).filter(|due| *due <= at);
        let further = self.further.and_then(|(begins, deadline, _)| {
            let near = ((at - begins) / deadline).round();
            let counts = [near, near - 1.0].into_iter().filter(|count| *count >= 1.0);
            counts.map(|count| begins + count * deadline).find(|due| *due <= at)
        });
        first.into_iter().chain(further).reduce(f64::max)
    }

    /// When something of it is due from `from` on: of what comes again up to `until`.
    fn instants(&self, from: f64, until: f64) -> impl Iterator<Item = f64> {
        let first = self.first.map(|(due, _)| due).filter(|due| *due >= from);
        let further = self.further.into_iter().flat_map(move |(begins, deadline, _)| {
            let skipped = ((from - begins) / deadline - TOLERANCE).ceil().max(1.0);
            let due = (0..).map(move |number: u32| begins + (skipped + f64::from(number)) * deadline);
            due.take_while(move |due| *due <= until)
        });
        first.into_iter().chain(further)
    }
}

#[cfg(test)]
mod tests;
