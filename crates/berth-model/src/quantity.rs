//! Quantities with their unit in the type.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A share of a device's time, 0 to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Percent(u8);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an amount of memory: write a number with a unit, such as `512MiB` or `20GiB`")]
pub struct InvalidBytes {
    text: String,
}

const UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

// === impl Bytes ===

impl Bytes {
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// As [`FromStr`] reads it, to the byte: in the unit that makes the shortest number.
    pub fn exactly(self) -> impl fmt::Display {
        let whole = UNITS.iter().filter(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit));
        let (suffix, unit) = whole.max_by_key(|(_, unit)| *unit).unwrap_or(&("B", 1));
        format!("{}{suffix}", self.0 / unit)
    }
}

impl Add for Bytes {
    type Output = Bytes;

    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0.saturating_add(other.0))
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Bytes>>(iter: I) -> Bytes {
        iter.fold(Bytes(0), Add::add)
    }
}

impl FromStr for Bytes {
    type Err = InvalidBytes;

    fn from_str(text: &str) -> Result<Self, InvalidBytes> {
        let invalid = || InvalidBytes { text: text.to_owned() };
        let (number, unit) = UNITS
            .iter()
            .find_map(|(suffix, unit)| text.trim().strip_suffix(suffix).map(|number| (number.trim(), *unit)))
            .ok_or_else(invalid)?;
        number.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).map(Bytes).ok_or_else(invalid)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scaled = UNITS[..4].iter().rev().find(|(_, unit)| self.0 >= *unit);
        #[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
        match scaled {
            None => write!(f, "{} B", self.0),
            Some((suffix, unit)) if self.0 >= 100 * unit => write!(f, "{:.0} {suffix}", self.0 as f64 / *unit as f64),
            Some((suffix, unit)) => write!(f, "{:.1} {suffix}", self.0 as f64 / *unit as f64),
        }
    }
}

// === impl Percent ===

impl Percent {
    /// `None` for anything above 100: drivers report garbage for processes that are going away.
    pub fn checked(value: u32) -> Option<Self> {
        u8::try_from(value).ok().filter(|v| *v <= 100).map(Percent)
    }

    /// Shares of several processes of one tenant, added and capped at the whole device.
    pub fn saturating_add(self, other: Percent) -> Percent {
        Percent(self.0.saturating_add(other.0).min(100))
    }

    pub fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_reads_with_binary_and_decimal_units() {
        assert_eq!("20GiB".parse(), Ok(Bytes(20 << 30)));
        assert_eq!("512 MiB".parse(), Ok(Bytes(512 << 20)));
        assert_eq!("3GB".parse(), Ok(Bytes(3_000_000_000)));
    }

    #[test]
    fn memory_without_a_unit_negative_or_overflowing_is_refused_by_value() {
        for text in ["20", "-1GiB", "GiB", "99999999999TiB", "1.5.2GiB"] {
            assert!(text.parse::<Bytes>().unwrap_err().to_string().contains(text), "{text}");
        }
    }

    #[test]
    fn memory_written_exactly_is_read_again_as_the_same() {
        let written = |bytes: u64| Bytes(bytes).exactly().to_string();
        assert_eq!(
            ["8GiB", "3GB", "1536MiB", "1025B", "0B"].map(|text| written(text.parse::<Bytes>().unwrap().0)),
            ["8GiB", "3GB", "1536MiB", "1025B", "0B",]
        );
        for bytes in [1, 7 << 20, 1_000_000, (1 << 40) + 1, u64::MAX] {
            assert_eq!(written(bytes).parse(), Ok(Bytes(bytes)));
        }
    }

    #[test]
    fn memory_is_shown_in_the_largest_unit_that_fits() {
        let shown: Vec<_> = [0, 1023, 518 << 20, 2_200_000_000, 143_771 << 20].map(|b| Bytes(b).to_string()).into();
        assert_eq!(shown, ["0 B", "1023 B", "518 MiB", "2.0 GiB", "140 GiB"]);
    }

    #[test]
    fn utilisation_above_a_hundred_is_unknown_not_a_hundred() {
        assert_eq!(Percent::checked(100).map(Percent::get), Some(100));
        assert_eq!(Percent::checked(101), None);
        assert_eq!(Percent::checked(70_000), None);
    }
}
