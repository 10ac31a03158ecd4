//! How much device memory a tenant may have, or has kept for it: stated, or learned from what the like of it took before.
//!
//! Pure. What the like took is told by whoever knows the history; nothing counts until something of it is known.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{InvalidSlo, Slo};
use crate::quantity::{Bytes, InvalidBytes};

/// What is learned is this part more than the most that was seen: no two runs take quite the same.
const MARGIN_PART: u64 = 8;
/// How people write that it is to be learned.
const AUTO: &str = "auto";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Written", try_from = "Written")]
pub enum MemorySize {
    Stated(Bytes),
    /// As much as the like of it took before.
    Learned,
}

/// In JSON: a number of bytes, or `"auto"`.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Bytes(Bytes),
    Word(String),
}

// === impl MemorySize ===

impl MemorySize {
    /// `None` as long as it is not known.
    pub fn stated(self) -> Option<Bytes> {
        match self {
            Self::Stated(bytes) => Some(bytes),
            Self::Learned => None,
        }
    }

    /// What counts where the like took so much at most.
    fn of(seen: Bytes) -> Self {
        Self::Stated(Bytes(seen.0.saturating_add(seen.0 / MARGIN_PART)))
    }
}

impl FromStr for MemorySize {
    type Err = InvalidBytes;

    fn from_str(text: &str) -> Result<Self, InvalidBytes> {
        if text == AUTO { Ok(Self::Learned) } else { text.parse().map(Self::Stated) }
    }
}

/// As [`FromStr`] reads it, to the byte.
impl fmt::Display for MemorySize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stated(bytes) => write!(f, "{}", bytes.exactly()),
            Self::Learned => f.write_str(AUTO),
        }
    }
}

impl From<MemorySize> for Written {
    fn from(size: MemorySize) -> Written {
        match size {
            MemorySize::Stated(bytes) => Written::Bytes(bytes),
            MemorySize::Learned => Written::Word(AUTO.to_owned()),
        }
    }
}

impl TryFrom<Written> for MemorySize {
    type Error = InvalidBytes;

    fn try_from(written: Written) -> Result<Self, InvalidBytes> {
        match written {
            Written::Bytes(bytes) => Ok(Self::Stated(bytes)),
            Written::Word(word) => word.parse(),
        }
    }
}

// === impl Slo ===

impl Slo {
    /// Puts what was seen in the place of what is to be learned: the most device memory that the like took, `None` if there was none. What
    /// came of it, in words.
    pub fn learn(&mut self, seen: Option<Bytes>) -> Vec<String> {
        let cap = learn("memory", &mut self.constraints.memory, seen);
        let kept = learn("memory-reserve", &mut self.memory_reserve, seen);
        let settled = self.settle_memory().map(|invalid| invalid.to_string());
        cap.into_iter().chain(kept).chain(settled).collect()
    }

    /// No more is reserved than it may have.
    pub(super) fn settle_memory(&mut self) -> Option<InvalidSlo> {
        let (reserve, most) = (self.memory_reserve?.stated()?, self.constraints.memory?.stated()?);
        if reserve <= most {
            return None;
        }
        self.memory_reserve = self.constraints.memory;
        Some(InvalidSlo::MemoryReserveAboveMemory { reserve, most })
    }
}

fn learn(name: &str, size: &mut Option<MemorySize>, seen: Option<Bytes>) -> Option<String> {
    if *size != Some(MemorySize::Learned) {
        return None;
    }
    *size = seen.map(MemorySize::of);
    let counts = match (seen, size.and_then(MemorySize::stated)) {
        (Some(seen), Some(counts)) => format!("{counts} counts, since the like of it took {seen} at most"),
        _ => "nothing counts yet: none like it has been seen from beginning to end".to_owned(),
    };
    Some(format!("`berth.slo.{name}={AUTO}`: {counts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slo(memory: &str, reserve: &str) -> Slo {
        let labels = [("berth.slo.memory", memory), ("berth.slo.memory-reserve", reserve)];
        let labels = labels.into_iter().filter(|(_, value)| !value.is_empty());
        let (slo, wrong) = Slo::from_labels(&labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
        assert!(wrong.is_empty(), "{wrong:?}");
        slo
    }

    fn sizes(slo: &Slo) -> (Option<Bytes>, Option<Bytes>) {
        let stated = |size: Option<MemorySize>| size.and_then(MemorySize::stated);
        (stated(slo.constraints.memory), stated(slo.memory_reserve))
    }

    #[test]
    fn what_is_to_be_learned_counts_for_nothing_until_it_is_known_and_that_is_told() {
        let mut unknown = slo("auto", "auto");
        let told = unknown.learn(None);
        assert_eq!(sizes(&unknown), (None, None));
        assert_eq!(told.len(), 2);
        assert!(told[1].starts_with("`berth.slo.memory-reserve=auto`: nothing counts yet"), "{told:?}");
    }

    #[test]
    fn what_was_seen_counts_with_an_eighth_more() {
        let mut known = slo("auto", "auto");
        let told = known.learn(Some(Bytes::from_mib(8 << 10)));
        assert_eq!(sizes(&known), (Some(Bytes::from_mib(9 << 10)), Some(Bytes::from_mib(9 << 10))));
        assert_eq!(told[0], "`berth.slo.memory=auto`: 9.0 GiB counts, since the like of it took 8.0 GiB at most");
        assert!(known.learn(None).is_empty(), "it is known now");
    }

    #[test]
    fn what_is_learned_reserves_no_more_than_a_stated_limit() {
        let mut known = slo("4GiB", "auto");
        let told = known.learn(Some(Bytes::from_mib(8 << 10)));
        assert_eq!(sizes(&known).1, Some(Bytes::from_mib(4 << 10)));
        assert!(told[1].contains("above `berth.slo.memory="), "{told:?}");
    }

    #[test]
    fn what_is_stated_stays_as_it_is() {
        let mut stated = slo("8GiB", "2GiB");
        assert_eq!((stated.learn(Some(Bytes(1))), sizes(&stated)), (vec![], sizes(&slo("8GiB", "2GiB"))));
    }

    #[test]
    fn in_json_a_size_is_a_number_as_it_was_or_a_word() {
        for (size, json) in [(MemorySize::Stated(Bytes(5)), "5"), (MemorySize::Learned, "\"auto\"")] {
            assert_eq!(serde_json::to_string(&size).unwrap(), json);
            assert_eq!(serde_json::from_str::<MemorySize>(json).unwrap(), size);
        }
        assert!(serde_json::from_str::<MemorySize>("\"much\"").is_err());
    }
}
