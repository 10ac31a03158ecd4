//! Deadlines: how long a unit of work may take, where a tenant's comes from, and what became of it.
//!
//! Pure. A [`Deadline`] is a duration; a *unit* of work that began at some instant is *due* that much later. When it has ended, the
//! *float* is what was left until then, and below zero it is a miss. [`terms()`] finds the deadline that counts for a tenant,
//! [`Judge`] follows its units.

mod bound;
mod judge;
mod terms;

use std::fmt;
use std::ops::AddAssign;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::Span;
pub use bound::{Bound, InvalidBound, Whose};
pub use judge::{Judge, Judged, Left, Open, Pulse, Sitting, Work};
pub use terms::{Asked, Given, Origin, Read, Terms, Who, terms, unit_rule};

/// The container label that holds a deadline, as written by whoever assigned it.
pub const LABEL: &str = "berth.deadline";
/// The container label that says what a deadline is for: `task` or `burst`.
pub const UNIT_LABEL: &str = "berth.unit";
/// How long a unit takes alone on a GPU, for as long as no unit like it has been seen.
pub const TAKES_LABEL: &str = "berth.takes";
/// A year. Longer is a slip of the pen, not a deadline.
pub const LONGEST: Duration = Duration::from_secs(365 * 24 * 3_600);

/// What can be written of a deadline. Less no GPU can do anything in.
pub const SHORTEST: Duration = Duration::from_micros(1);

/// How long a unit of work may take: at least [`SHORTEST`], at most [`LONGEST`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Deadline(Duration);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDeadline {
    #[error("`{text}` is not a deadline: write seconds, or a number with a unit, such as `9`, `1500ms`, `9s` or `2m`")]
    NotADuration { text: String },
    #[error("a deadline of `{text}` cannot be met: it must be more than 0")]
    NotPositive { text: String },
    #[error("a deadline of `{text}` is too short: it must be at least {}", Span(SHORTEST))]
    TooShort { text: String },
    #[error("a deadline of `{text}` is too long: it must be at most {}", Span(LONGEST))]
    TooLong { text: String },
}

/// What a deadline is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// One stay on the GPUs.
    Task,
    /// One stretch of activity inside a stay, as a request of a server is.
    Burst,
}

/// How the unit is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnitRule {
    /// A task, until it has been idle and computes again: who does that serves requests, and each burst is judged.
    Auto,
    Task,
    Burst,
}

/// Whether a deadline was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Hit,
    Miss,
    /// Nobody saw the end.
    Unknown,
}

/// Units by what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    pub hits: u64,
    pub misses: u64,
    pub unknown: u64,
}

/// How long units of one kind computed, from the last few: what the next one is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many it is from; at least one.
    pub units: u32,
    pub median_seconds: f64,
    /// Nine in ten took no more.
    pub p90_seconds: f64,
    pub most_seconds: f64,
}

/// How likely a unit under way is to be late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Risk {
    /// It is expected to end in time, even if it takes as long as nine in ten do; or nothing says otherwise.
    Safe,
    /// It ends in time if it takes as long as usual.
    Tight,
    /// It is expected to be late.
    Likely,
    /// It is late.
    Late,
}

// === impl Deadline ===

impl Deadline {
    /// `None` outside of what a deadline may be.
    pub fn new(duration: Duration) -> Option<Self> {
        (SHORTEST..=LONGEST).contains(&duration).then_some(Self(duration))
    }

    pub fn get(self) -> Duration {
        self.0
    }

    pub fn seconds(self) -> f64 {
        self.0.as_secs_f64()
    }
}

/// Seconds as in `9` and `1.5`, or with a unit.
impl FromStr for Deadline {
    type Err = InvalidDeadline;

    fn from_str(text: &str) -> Result<Self, InvalidDeadline> {
        let given = || text.to_owned();
        if text.strip_prefix('-').is_some_and(|rest| duration(rest).is_some()) {
            return Err(InvalidDeadline::NotPositive { text: given() });
        }
        match duration(text) {
            None => Err(InvalidDeadline::NotADuration { text: given() }),
            Some(duration) if duration.is_zero() => Err(InvalidDeadline::NotPositive { text: given() }),
            Some(duration) if duration < SHORTEST => Err(InvalidDeadline::TooShort { text: given() }),
            Some(duration) => Self::new(duration).ok_or_else(|| InvalidDeadline::TooLong { text: given() }),
        }
    }
}

/// Of what would be too long to be counted, as much as can be.
fn duration(text: &str) -> Option<Duration> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_seconds = match text.split_once('.') {
        Some((whole, part)) => is_number(whole) && is_number(part),
        None => is_number(text),
    };
    if is_seconds {
        let seconds: f64 = text.parse().ok()?;
        return Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
    }
    text.parse::<Span>().ok().map(Span::get)
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

impl From<Deadline> for String {
    fn from(deadline: Deadline) -> String {
        deadline.to_string()
    }
}

impl TryFrom<String> for Deadline {
    type Error = InvalidDeadline;

    fn try_from(text: String) -> Result<Self, InvalidDeadline> {
        text.parse()
    }
}

// === impl Verdict ===

impl Verdict {
    /// `float_seconds`: what was left until it was due. Just in time is in time.
    pub fn of(float_seconds: Option<f64>) -> Self {
        match float_seconds {
            None => Verdict::Unknown,
            Some(float) if float < 0.0 => Verdict::Miss,
            Some(_) => Verdict::Hit,
        }
    }

    /// As in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Hit => "hit",
            Verdict::Miss => "miss",
            Verdict::Unknown => "unknown",
        }
    }
}

// === impl Unit ===

impl Unit {
    /// As in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Unit::Task => "task",
            Unit::Burst => "burst",
        }
    }
}

// === impl Risk ===

impl Risk {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Risk::Safe => "safe",
            Risk::Tight => "tight",
            Risk::Likely => "likely",
            Risk::Late => "late",
        }
    }
}

// === impl Tally ===

impl Tally {
    pub fn add(&mut self, verdict: Verdict) {
        let counter = match verdict {
            Verdict::Hit => &mut self.hits,
            Verdict::Miss => &mut self.misses,
            Verdict::Unknown => &mut self.unknown,
        };
        *counter += 1;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.hits += other.hits;
        self.misses += other.misses;
        self.unknown += other.unknown;
    }
}

// === impl Spread ===

impl Spread {
    /// `None` of nothing.
    pub fn of(seconds: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = seconds.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let most_seconds = *sorted.last()?;
        let at = |share: usize| sorted.get((sorted.len() * share).div_ceil(100).max(1) - 1).copied();
        Some(Self {
            units: u32::try_from(sorted.len()).unwrap_or(u32::MAX),
            median_seconds: at(50)?,
            p90_seconds: at(90)?,
            most_seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn seconds_as_in_the_paper_and_with_a_unit() {
        for (text, millis) in
            [("9", 9_000), ("0.5", 500), ("1500ms", 1_500), ("9s", 9_000), ("2m", 120_000), ("1h 30m", 5_400_000)]
        {
            assert_eq!(text.parse::<Deadline>().map(|deadline| deadline.get().as_millis()), Ok(millis), "{text}");
        }
    }

    #[test]
    fn what_is_no_deadline_is_refused_and_said_why() {
        let told = |text: &str| text.parse::<Deadline>().unwrap_err();
        for text in ["", "abc", "1e99", "9 9", "nine", "NaN", "inf", ".", "9.", "0x9", "9=1", " 9", "--9"] {
            assert_eq!(told(text), InvalidDeadline::NotADuration { text: text.into() });
        }
        for text in ["0", "0.0", "0s", "-1", "-3s", "-0.5"] {
            assert_eq!(told(text), InvalidDeadline::NotPositive { text: text.into() });
        }
        for text in ["1ns", "999ns", "0.0000009"] {
            assert_eq!(told(text), InvalidDeadline::TooShort { text: text.into() });
        }
        assert_eq!(told("1ns").to_string(), "a deadline of `1ns` is too short: it must be at least 1us");
        for text in ["31536001", "9000h", &"9".repeat(400)] {
            assert_eq!(told(text), InvalidDeadline::TooLong { text: text.into() });
        }
    }

    #[test]
    fn just_in_time_is_in_time() {
        let verdicts = [Some(0.0), Some(1.0), Some(-1e-9), None].map(Verdict::of);
        assert_eq!(verdicts, [Verdict::Hit, Verdict::Hit, Verdict::Miss, Verdict::Unknown]);
    }

    #[test]
    fn a_spread_is_of_what_there_was() {
        assert_eq!(Spread::of([]), None);
        let one = Spread { units: 1, median_seconds: 2.0, p90_seconds: 2.0, most_seconds: 2.0 };
        assert_eq!(Spread::of([2.0]), Some(one));
        let ten = Spread { units: 10, median_seconds: 5.0, p90_seconds: 9.0, most_seconds: 10.0 };
        assert_eq!(Spread::of((1..=10).rev().map(f64::from)), Some(ten));
    }

    proptest! {
        #[test]
        fn a_deadline_survives_being_written_and_read(micros in 1..=31_536_000_000_000u64) {
            let deadline = Deadline::new(Duration::from_micros(micros)).unwrap();
            prop_assert_eq!(deadline.to_string().parse(), Ok(deadline));
        }

        #[test]
        fn no_text_makes_a_deadline_outside_its_bounds(text in "[-0-9.nusmhe ]{0,24}") {
            if let Ok(deadline) = text.parse::<Deadline>() {
                prop_assert!(deadline.get() >= SHORTEST && deadline.get() <= LONGEST);
            }
        }
    }
}
