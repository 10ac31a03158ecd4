//! The files: numbered segments, the highest number the newest, each of values or of what they became.
//!
//! A number has one file. Where there are two, the coarser one was just made from the other, which counts no more.

use std::collections::BTreeMap;
use std::io::{self, Read};

use super::frame::{Record, Records};
use crate::place::Place;

/// Of this version of the format. Files of others are neither read nor removed.
const ENDING: &str = ".v1";
/// Read of a segment at most: what is written at once may go past its limit.
const MOST_READ: u64 = 16 << 20;
/// Bytes of the first record, and more.
const HEAD: u64 = 64;

/// How finely values are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    Points,
    Minutes,
    Hours,
}

impl Tier {
    const ALL: [Tier; 3] = [Tier::Points, Tier::Minutes, Tier::Hours];

    pub fn width_ms(self) -> u32 {
        match self {
            Tier::Points => 0,
            Tier::Minutes => 60_000,
            Tier::Hours => 3_600_000,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Tier::Points => "points",
            Tier::Minutes => "minutes",
            Tier::Hours => "hours",
        }
    }
}

/// One file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    pub number: u64,
    pub tier: Tier,
}

impl Segment {
    pub fn name(self) -> String {
        format!("{:010}.{}{ENDING}", self.number, self.tier.as_str())
    }

    fn of(name: &str) -> Option<Segment> {
        let (number, tier) = name.strip_suffix(ENDING)?.split_once('.')?;
        let tier = Tier::ALL.into_iter().find(|one| one.as_str() == tier)?;
        let segment = Segment { number: number.parse().ok()?, tier };
        (segment.name() == name).then_some(segment)
    }

    /// All of it, from whichever file the number has now; `None` if it was removed meanwhile.
    pub fn bytes(self, place: &Place) -> io::Result<Option<Vec<u8>>> {
        for tier in Tier::ALL.into_iter().filter(|tier| *tier >= self.tier) {
            match place.file(&Segment { tier, ..self }.name()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                file => {
                    let mut bytes = Vec::new();
                    file?.take(MOST_READ).read_to_end(&mut bytes)?;
                    return Ok(Some(bytes));
                }
            }
        }
        Ok(None)
    }

    pub fn length(self, place: &Place) -> io::Result<u64> {
        Ok(place.file(&self.name())?.metadata()?.len())
    }

    /// Before this no value in it is; `None` if it does not say so.
    pub fn begins_ms(self, place: &Place) -> io::Result<Option<i64>> {
        let mut bytes = Vec::new();
        place.file(&self.name())?.take(HEAD).read_to_end(&mut bytes)?;
        Ok(match Records::new(&bytes).next() {
            Some(Record::Begins { from_ms }) => Some(from_ms),
            _ => None,
        })
    }
}

/// What there is, the oldest first; and what counts no more.
#[derive(Debug, Default)]
pub struct Listed {
    pub segments: Vec<Segment>,
    pub replaced: Vec<Segment>,
}

pub fn list(place: &Place) -> io::Result<Listed> {
    let mut listed = Listed::default();
    let mut coarsest: BTreeMap<u64, Segment> = BTreeMap::new();
    for segment in place.names()?.iter().filter_map(|name| Segment::of(name)) {
        let finer = match coarsest.insert(segment.number, segment) {
            Some(other) if other.tier > segment.tier => {
                coarsest.insert(other.number, other);
                Some(segment)
            }
            other => other,
        };
        listed.replaced.extend(finer);
    }
    listed.segments = coarsest.into_values().collect();
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_given_by_berth_are_segments() {
        let segment = Segment { number: 7, tier: Tier::Minutes };
        assert_eq!(Segment::of(&segment.name()), Some(segment));
        for name in ["7.minutes.v1", "0000000007.minutes.v2", "0000000007.days.v1", "lock", "0000000007.minutes.v1.new"]
        {
            assert_eq!(Segment::of(name), None, "{name}");
        }
    }

    #[test]
    fn of_two_files_of_a_number_the_coarser_counts() {
        let parent = tempfile::tempdir().unwrap();
        let place = Place::make(&parent.path().join("series")).unwrap();
        for (number, tier) in [(1, Tier::Hours), (2, Tier::Minutes), (2, Tier::Points), (3, Tier::Points)] {
            place.growing(&Segment { number, tier }.name()).unwrap();
        }
        let listed = list(&place).unwrap();
        let tiers: Vec<_> = listed.segments.iter().map(|one| one.tier).collect();
        assert_eq!(tiers, [Tier::Hours, Tier::Minutes, Tier::Points]);
        assert_eq!(listed.replaced, [Segment { number: 2, tier: Tier::Points }]);
    }
}
