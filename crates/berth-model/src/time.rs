//! Instants and durations as values: time always comes in as an argument.

use std::fmt;
use std::ops::Add;
use std::str::FromStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// An instant on the host's `CLOCK_MONOTONIC`, in nanoseconds: what probes, workloads and the daemon all share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Mono(pub u64);

/// One reading of both clocks, so that monotonic instants can be shown as wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Anchor {
    pub mono: Mono,
    pub wall: Timestamp,
}

/// A duration as people write it in settings: `500ms`, `9s`, `2m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(into = "String")]
pub struct Span(pub Duration);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration: write a number with a unit, such as `500ms`, `9s` or `2m`")]
pub struct InvalidSpan {
    text: String,
}

// === impl Mono ===

impl Mono {
    pub fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// So much earlier; the beginning of the clock if that was later.
    pub fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;

    fn add(self, duration: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }
}

// === impl Anchor ===

impl Anchor {
    /// The wall time of `instant` by this anchor. A jump of the wall clock moves it; durations stay right.
    pub fn wall_at(&self, instant: Mono) -> Timestamp {
        let nanos = i128::from(instant.0) - i128::from(self.mono.0);
        let offset = SignedDuration::from_nanos_i128(nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)));
        self.wall.saturating_add(offset).unwrap_or(self.wall)
    }
}

// === impl Span ===

impl Span {
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    pub fn get(self) -> Duration {
        self.0
    }
}

impl FromStr for Span {
    type Err = InvalidSpan;

    fn from_str(text: &str) -> Result<Self, InvalidSpan> {
        let invalid = || InvalidSpan { text: text.to_owned() };
        let parsed: SignedDuration = text.parse().map_err(|_| invalid())?;
        Duration::try_from(parsed).map(Span).map_err(|_| invalid())
    }
}

/// A bare number is refused like any text without a unit, not as being of the wrong type.
impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as `500ms`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Span, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Span, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Span, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

impl From<Span> for String {
    fn from(span: Span) -> String {
        span.to_string()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secs, nanos) = (self.0.as_secs(), self.0.subsec_nanos());
        match (secs, nanos) {
            (s, 0) if s % 3600 == 0 && s > 0 => write!(f, "{}h", s / 3600),
            (s, 0) if s % 60 == 0 && s > 0 => write!(f, "{}m", s / 60),
            (s, 0) => write!(f, "{s}s"),
            (s, n) if n % 1_000_000 == 0 => write!(f, "{}ms", s * 1000 + u64::from(n / 1_000_000)),
            (s, n) => write!(f, "{}us", s * 1_000_000 + u64::from(n / 1000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_people_write_them() {
        for (text, millis) in [("500ms", 500), ("9s", 9_000), ("2m", 120_000), ("1m 30s", 90_000), ("24h", 86_400_000)]
        {
            assert_eq!(text.parse::<Span>().map(|s| s.0.as_millis()), Ok(millis), "{text}");
        }
    }

    #[test]
    fn spans_without_a_unit_or_below_zero_are_refused_by_value() {
        for text in ["9", "", "-3s", "fast"] {
            let error = text.parse::<Span>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("500ms"), "{error}");
        }
    }

    #[test]
    fn a_span_survives_being_written_and_read() {
        for millis in [1, 20, 500, 1000, 1500, 60_000, 90_000] {
            let span = Span::from_millis(millis);
            assert_eq!(span.to_string().parse(), Ok(span));
        }
    }

    #[test]
    fn wall_time_is_counted_from_the_anchor_in_both_directions() {
        let anchor = Anchor { mono: Mono(5_000_000_000), wall: Timestamp::from_second(1_000).unwrap() };
        assert_eq!(anchor.wall_at(Mono(2_000_000_000)), Timestamp::from_second(997).unwrap());
        assert_eq!(anchor.wall_at(Mono(6_000_000_000)), Timestamp::from_second(1_001).unwrap());
    }
}
