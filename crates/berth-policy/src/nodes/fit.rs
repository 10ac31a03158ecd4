//! The strategy `fit`: a GPU will do if the newcomer's memory is free there, and its deadline and everybody's are met by processor demand.
//!
//! Of the GPUs that will do the best is, in this order: where it is sure to fit rather than where that is not known; then, spreading,
//! where least is expected to be missing from about the newcomer's deadline on, with some more where a deadline was missed lately, and of
//! equals where less memory is free, so that large rests stay whole; packing, where the least memory is free that is enough. Memory goes by
//! a few classes of size.
//!
//! Nobody is refused because it is not known how long it, or somebody there, takes: what is known must be too much for that. Whoever
//! takes unknown time is expected to take half of the time until it is due when GPUs are ranked. One whose memory is not known goes where most is
//! free. A newcomer without a deadline takes what is left: its place is where nobody is short of time. The first one on a GPU takes its share
//! from those with deadlines, and goes nowhere where one of them would be late for that and is not anyway, as things stood at the report.

use berth_model::cluster::{NotHere, Order, Wanted};
use berth_model::control::Fits;
use berth_model::deadline::Unit;
use berth_model::{Bytes, Mono};

use super::index::Bound as _;
use super::judge::Rank;
use super::line::{FULL, Figure, INSTANTS, Line, STEPS};
use super::node::Gpu;
use crate::admit::{By, Late, Newcomer, fits_beside};

/// Free memory from which on a GPU is of the next class, in MiB.
const CLASSES_MIB: [u64; CLASSES - 1] = {
    const GIB: u64 = 1 << 10;
    [
        512,
        GIB,
        2 * GIB,
        4 * GIB,
        6 * GIB,
        8 * GIB,
        12 * GIB,
        16 * GIB,
        24 * GIB,
        32 * GIB,
        48 * GIB,
        64 * GIB,
        96 * GIB,
        128 * GIB,
        192 * GIB,
    ]
};
const CLASSES: usize = 16;
/// A class of free memory, with and without misses.
pub(super) const COLUMNS: usize = 2 * CLASSES;
/// Percent of a GPU's time that a deadline missed lately counts for. A GPU that is empty now is better than a full one that has missed none.
const MISSED_PCT: u64 = 10;
/// Sums of measured times may be off by less than this.
const SLACK_SECONDS: f64 = 1e-6;

/// What is wanted, made ready to be asked of many GPUs.
#[derive(Debug)]
pub(super) struct Ask {
    memory_bytes: Option<u64>,
    newcomer: Option<Newcomer>,
    order: Order,
    /// GPUs are ranked by this.
    figure: Figure,
    /// Beyond these it is late even if everybody takes no longer than usual.
    usual: Limits,
    /// Beyond these it is not sure to fit.
    sure: Limits,
}

/// Where a newcomer fits, as far as a line tells.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limits {
    Nowhere,
    /// Where no figure is above these.
    Below(Line),
}

impl Ask {
    pub fn new(wanted: &Wanted, order: Order) -> Self {
        let newcomer = wanted.deadline.map(|deadline| Newcomer {
            unit: wanted.unit,
            deadline_seconds: deadline.seconds(),
            takes: wanted.takes,
            run: wanted.run,
        });
        let limits = |by| newcomer.as_ref().map_or(Limits::Below(Line::NOTHING), |newcomer| Limits::of(newcomer, by));
        let step = |newcomer: &Newcomer| step_from(newcomer.deadline_seconds).min(STEPS - 1);
        Self {
            memory_bytes: wanted.memory_bytes.map(|bytes| bytes.0),
            order,
            figure: newcomer.as_ref().map_or(Figure::Crowd, |newcomer| Figure::Expected(step(newcomer))),
            usual: limits(By::Usual),
            sure: limits(By::Worst),
            newcomer,
        }
    }

    /// How good a GPU is, or why it will not do.
    pub fn judge(&self, gpu: &Gpu<'_>, column: usize, line: &Line, now: Mono) -> Result<Rank, NotHere> {
        self.has_memory(gpu.free_bytes())?;
        let fits = match &self.newcomer {
            None => Self::leaves_time(gpu)?,
            Some(newcomer) => self.fits(newcomer, gpu, line, now)?,
        };
        Ok(self.rank(fits, column, line))
    }

    /// How good the best can be of those of a column for which a line stands; `None` if none of them will do.
    pub fn bound(&self, of: usize, line: &Line) -> Option<Rank> {
        match () {
            () if *line == Line::NOTHING || self.is_too_small(of, line) => None,
            () if self.newcomer.is_none() && line.get(Figure::Crowd) == FULL => None,
            () if self.sure.allow(line) => Some(self.rank(Fits::Yes, of, line)),
            () => self.usual.allow(line).then(|| self.rank(Fits::Unknown, of, line)),
        }
    }

    /// All of them have too little memory.
    fn is_too_small(&self, of: usize, line: &Line) -> bool {
        self.memory_bytes.is_some_and(|wanted| {
            let (class, wanted_class) = (of / 2, class(wanted));
            class < wanted_class || (class == wanted_class && line.get(Figure::Memory) > memory(wanted))
        })
    }

    fn has_memory(&self, free_bytes: Option<u64>) -> Result<(), NotHere> {
        match (self.memory_bytes, free_bytes) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(NotHere::MemoryUnknown),
            (Some(wanted), Some(free)) if free >= wanted => Ok(()),
            (Some(wanted), Some(free)) => {
                Err(NotHere::TooLittleMemory { free_bytes: Bytes(free), wanted_bytes: Bytes(wanted) })
            }
        }
    }

    /// No one with a deadline is late for one without. By the report and not by now: what is late by then is not saved by waiting.
    fn leaves_time(gpu: &Gpu<'_>) -> Result<Fits, NotHere> {
        gpu.has_time_for_others()
            .map(|()| Fits::Yes)
            .map_err(|(due_seconds, room_seconds)| NotHere::WouldBeLate { due_seconds, room_seconds })
    }

    fn fits(&self, newcomer: &Newcomer, gpu: &Gpu<'_>, line: &Line, now: Mono) -> Result<Fits, NotHere> {
        let fits = fits_beside(gpu.loads(now), gpu.share(), newcomer).map_err(|late| match late {
            Late::Alone { needs_seconds } => {
                NotHere::TooShort { needs_seconds, deadline_seconds: newcomer.deadline_seconds }
            }
            Late::Together { due_seconds, room_seconds } => NotHere::WouldBeLate { due_seconds, room_seconds },
        })?;
        match fits {
            Fits::Yes if !gpu.report.has_more => Ok(Fits::Yes),
            // It may take too long to reckon through what can be told at a glance.
            _ if self.usual.allow(line) => Ok(Fits::Unknown),
            _ => Err(late(newcomer, line)),
        }
    }

    /// Lower is better. The chance of a place, then by the order.
    fn rank(&self, fits: Fits, column: usize, line: &Line) -> Rank {
        let (class, has_missed) = (column / 2, column as u64 % 2);
        let tier = u64::from(fits != Fits::Yes);
        let class = if self.memory_bytes.is_some() { class } else { CLASSES - 1 - class } as u64;
        let expected = (u64::from(line.get(self.figure)) + MISSED_PCT * has_missed).min(FULL.into());
        let within = match self.order {
            Order::Spread => expected << 4 | class,
            Order::Pack => class << 8 | expected,
        };
        Rank(tier << 12 | within)
    }

    pub fn score(rank: Rank) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "13 bits")]
        let rank = rank.0 as f64;
        1.0 - rank / f64::from(1 << 13)
    }
}

/// Of the lowest class of memory is also what is not known.
pub(super) fn column(has_missed: bool, free_bytes: Option<u64>) -> usize {
    2 * class(free_bytes.unwrap_or(0)) + usize::from(has_missed)
}

fn class(bytes: u64) -> usize {
    CLASSES_MIB.partition_point(|from| *from <= bytes >> 20)
}

/// How far this is from the most of its class, of 254 parts and rounded down.
#[expect(clippy::cast_possible_truncation, reason = "at most 254")]
pub(super) fn memory(bytes: u64) -> u8 {
    let class = class(bytes);
    let from = class.checked_sub(1).map_or(0, |below| CLASSES_MIB[below]) << 20;
    let until = CLASSES_MIB.get(class).map_or(from * 8, |until| until << 20);
    let parts = u128::from(until - bytes.min(until)) * 254 / u128::from(until - from);
    parts as u8
}

/// Told at a glance: what is due at least, and by when.
fn late(newcomer: &Newcomer, line: &Line) -> NotHere {
    let (deadline, takes) = (newcomer.deadline_seconds, By::Usual.takes(newcomer.takes, 0.0));
    let missing = |at| f64::from(line.get(at)) / 100.0;
    let here = |step: usize| {
        (missing(Figure::Usual(step)) * INSTANTS[step] + due(newcomer, INSTANTS[step], takes), INSTANTS[step])
    };
    let by_then = |step: usize| (missing(Figure::ByThen(step)) * INSTANTS[step] + takes, deadline);
    let long_run = (missing(Figure::UsualRate) + rate(newcomer, takes), 1.0);
    let all = (step_from(deadline)..STEPS).map(here).chain(step_until(deadline).map(by_then)).chain([long_run]);
    // Where most is missing, for its time.
    let worst = all.max_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
    let (due_seconds, room_seconds) = worst.unwrap_or(long_run);
    NotHere::WouldBeLate { due_seconds, room_seconds }
}

/// GPU time of the newcomer that is due by an instant from its deadline on.
fn due(newcomer: &Newcomer, at: f64, takes: f64) -> f64 {
    match newcomer.unit {
        Unit::Task => takes,
        Unit::Burst => (at / newcomer.deadline_seconds).floor() * takes,
    }
}

/// In the long run.
fn rate(newcomer: &Newcomer, takes: f64) -> f64 {
    if newcomer.unit == Unit::Burst { takes / newcomer.deadline_seconds } else { 0.0 }
}

/// The first instant of a line from then on.
fn step_from(seconds: f64) -> usize {
    INSTANTS.partition_point(|instant| *instant < seconds)
}

/// The last instant of a line up to then.
fn step_until(seconds: f64) -> Option<usize> {
    INSTANTS.partition_point(|instant| *instant <= seconds).checked_sub(1)
}

// === impl Limits ===

impl Limits {
    /// By the last instant up to its deadline so much may be missing that it can make do with the rest; from every instant on that is not
    /// before its deadline, and in the long run, so much that there is room for what of it is due by then.
    fn of(newcomer: &Newcomer, by: By) -> Self {
        if !newcomer.has_time_for_itself(1.0, by) {
            return Self::Nowhere;
        }
        let (deadline, takes) = (newcomer.deadline_seconds, by.takes(newcomer.takes, 0.0));
        let is_usual = by == By::Usual;
        let from = |step| if is_usual { Figure::Usual(step) } else { Figure::Worst(step) };
        let further = (step_from(deadline)..STEPS).map(|step| {
            let instant = INSTANTS[step];
            (from(step), limit(instant - due(newcomer, instant, takes), instant))
        });
        let first = step_until(deadline).map(|step| (Figure::ByThen(step), limit(deadline - takes, INSTANTS[step])));
        let long_run = if is_usual { Figure::UsualRate } else { Figure::WorstRate };
        let long_run = (long_run, limit(1.0 - rate(newcomer, takes), 1.0));
        Self::Below(Line::limits(further.chain(first).chain([long_run])))
    }

    fn allow(&self, line: &Line) -> bool {
        match self {
            Self::Nowhere => false,
            Self::Below(limits) => !line.exceeds(limits),
        }
    }
}

/// In percent of the time until an instant, what may be missing if this much must be left of it.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 254")]
fn limit(seconds: f64, instant: f64) -> u8 {
    ((seconds + SLACK_SECONDS) / instant * 100.0).min(f64::from(FULL - 1)) as u8
}
