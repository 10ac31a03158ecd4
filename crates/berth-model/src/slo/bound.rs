//! Bounds that an administrator sets on the goals of others: nobody leads by writing a label.
//!
//! As with deadlines, labels and the owners they name are the word of whoever starts a container: all rules that apply count, whatever
//! others would allow. What root has set is not bounded.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::{MemorySize, Share, Slo, Weight};
use crate::deadline::{Who, Whose};
use crate::quantity::Bytes;
use crate::time::Span;

/// One rule: whose goals may be what. As text `everybody latency 5ms..`, `owner eve* reserve ..25%`, `label tier=batch no latency`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct GoalBound {
    pub whose: Whose,
    pub limit: GoalLimit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoalLimit {
    /// There is no such goal.
    No(Goal),
    /// No shorter latency.
    Latency(Span),
    /// No more than this.
    Availability(Share),
    Reserve(Share),
    MemoryReserve(Bytes),
    Weight(Weight),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    Latency,
    Throughput,
    Availability,
    Reserve,
    MemoryReserve,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no bound of goals: write whose, which goal and its bound, such as `everybody latency 5ms..`, `owner eve* reserve ..25%`, \
     `everybody weight ..10` or `label tier=batch no latency`"
)]
pub struct InvalidGoalBound {
    text: String,
}

/// The goals within all bounds that apply, and what was changed, in words.
pub fn within(bounds: &[GoalBound], who: Who<'_>, mut slo: Slo) -> (Slo, Vec<String>) {
    let mut told = Vec::new();
    for bound in bounds.iter().filter(|bound| bound.whose.is(who)) {
        let before = slo.to_labels();
        bound.limit.apply(&mut slo);
        let after = slo.to_labels();
        let changed = before.iter().filter(|(key, value)| after.get(*key) != Some(*value));
        told.extend(changed.map(|(key, value)| {
            let counts = after.get(key).map_or_else(|| "it does not count".to_owned(), |now| format!("{now} counts"));
            format!("`{key}={value}`: {counts}, by the bound `{bound}`")
        }));
    }
    (slo, told)
}

/// The most that one of those may count, whatever is said of it or found; `None`: no bound says so.
pub fn heaviest(bounds: &[GoalBound], who: Who<'_>) -> Option<Weight> {
    let limits = bounds.iter().filter(|bound| bound.whose.is(who)).map(|bound| bound.limit);
    limits.filter_map(|limit| if let GoalLimit::Weight(most) = limit { Some(most) } else { None }).min()
}

impl GoalLimit {
    fn apply(self, slo: &mut Slo) {
        match self {
            Self::No(Goal::Latency) => slo.latency = None,
            Self::No(Goal::Throughput) => slo.throughput = None,
            Self::No(Goal::Availability) => slo.availability = None,
            Self::No(Goal::Reserve) => slo.reserve = None,
            Self::No(Goal::MemoryReserve) => slo.memory_reserve = None,
            Self::Latency(least) => {
                slo.latency.iter_mut().for_each(|latency| latency.within = latency.within.max(least));
            }
            Self::Availability(most) => slo.availability = slo.availability.map(|share| share.min(most)),
            Self::Reserve(most) => slo.reserve = slo.reserve.map(|share| share.min(most)),
            // What is to be learned is bounded when it is known.
            Self::MemoryReserve(most) => {
                let bounded =
                    |size: MemorySize| size.stated().map_or(size, |bytes| MemorySize::Stated(bytes.min(most)));
                slo.memory_reserve = slo.memory_reserve.map(bounded);
            }
            Self::Weight(most) => slo.weight = slo.weight.min(most),
        }
    }
}

impl FromStr for GoalBound {
    type Err = InvalidGoalBound;

    fn from_str(text: &str) -> Result<Self, InvalidGoalBound> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let read = || {
            let (whose, goal) = match words[..] {
                ["everybody", ref goal @ ..] => (Whose::Everybody, goal),
                ["owner", owner, ref goal @ ..] => (Whose::Owner(owner.into()), goal),
                ["label", label, ref goal @ ..] => {
                    let (name, value) = label.split_once('=')?;
                    (Whose::Label(name.to_owned(), value.into()), goal)
                }
                _ => return None,
            };
            let limit = match goal {
                ["no", goal] => GoalLimit::No(Goal::named(goal)?),
                ["latency", least] => GoalLimit::Latency(least.strip_suffix("..")?.parse().ok()?),
                ["availability", most] => GoalLimit::Availability(most.strip_prefix("..")?.parse().ok()?),
                ["reserve", most] => GoalLimit::Reserve(most.strip_prefix("..")?.parse().ok()?),
                ["memory-reserve", most] => GoalLimit::MemoryReserve(most.strip_prefix("..")?.parse().ok()?),
                ["weight", most] => {
                    let most: u32 = most.strip_prefix("..")?.parse().ok()?;
                    GoalLimit::Weight(most.try_into().ok()?)
                }
                _ => return None,
            };
            Some(GoalBound { whose, limit })
        };
        read().ok_or_else(|| InvalidGoalBound { text: text.to_owned() })
    }
}

impl Goal {
    const ALL: [(Goal, &'static str); 5] = [
        (Self::Latency, "latency"),
        (Self::Throughput, "throughput"),
        (Self::Availability, "availability"),
        (Self::Reserve, "reserve"),
        (Self::MemoryReserve, "memory-reserve"),
    ];

    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, own)| *own == name).map(|(goal, _)| *goal)
    }
}

impl fmt::Display for GoalBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.whose)?;
        match self.limit {
            GoalLimit::No(goal) => {
                let name = Goal::ALL.iter().find(|(own, _)| *own == goal).map_or("", |(_, name)| name);
                write!(f, "no {name}")
            }
            GoalLimit::Latency(least) => write!(f, "latency {least}.."),
            GoalLimit::Availability(most) => write!(f, "availability ..{most}"),
            GoalLimit::Reserve(most) => write!(f, "reserve ..{most}"),
            GoalLimit::MemoryReserve(most) => write!(f, "memory-reserve ..{}", most.exactly()),
            GoalLimit::Weight(most) => write!(f, "weight ..{most}"),
        }
    }
}

impl From<GoalBound> for String {
    fn from(bound: GoalBound) -> String {
        bound.to_string()
    }
}

impl<'de> Deserialize<'de> for GoalBound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_bound_survives_being_written_and_read() {
        for text in [
            "everybody latency 5ms..",
            "owner eve* reserve ..25%",
            "label tier=batch no latency",
            "everybody no throughput",
            "everybody weight ..10",
            "label tier= availability ..99%",
            "everybody no memory-reserve",
            "owner eve* memory-reserve ..8GiB",
        ] {
            assert_eq!(text.parse::<GoalBound>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_bound_is_refused_with_what_would_be_right() {
        for text in
            ["", "everybody", "everybody latency ..5ms", "everybody no weight", "owner latency 5ms..", "eve no latency"]
        {
            let error = text.parse::<GoalBound>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("owner eve*"), "{error}");
        }
    }

    fn bounded(bounds: &[&str], owner: &str) -> (BTreeMap<String, String>, Vec<String>) {
        let bounds: Vec<GoalBound> = bounds.iter().map(|text| text.parse().unwrap()).collect();
        let asked = [("latency", "p99:1ms"), ("reserve", "60%"), ("weight", "50"), ("memory-reserve", "8GB")];
        let labels: BTreeMap<String, String> =
            asked.into_iter().map(|(key, value)| (format!("berth.slo.{key}"), value.to_owned())).collect();
        let owners = [owner.to_owned()];
        let who = Who { labels: Some(&labels), owners: &owners, given: None };
        let (slo, told) = within(&bounds, who, Slo::from_labels(&labels).0);
        let counts = slo.to_labels().into_iter().map(|(key, value)| (key.replace("berth.slo.", ""), value));
        (counts.collect(), told)
    }

    #[test]
    fn nobody_leads_by_a_label_that_the_bounds_do_not_allow_and_what_counts_instead_is_told() {
        let bounds =
            ["everybody latency 5ms..", "owner eve* no reserve", "everybody reserve ..50%", "everybody weight ..10"];
        let (counts, told) = bounded(&bounds, "adam");
        assert_eq!(
            (counts["latency"].as_str(), counts["reserve"].as_str(), counts["weight"].as_str()),
            ("p99:5ms", "50%", "10")
        );
        assert_eq!(told[0], "`berth.slo.latency=p99:1ms`: p99:5ms counts, by the bound `everybody latency 5ms..`");
        let (counts, told) = bounded(&["everybody memory-reserve ..2GB"], "adam");
        assert_eq!(counts["memory-reserve"], "2GB");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(!bounded(&["everybody no memory-reserve"], "adam").0.contains_key("memory-reserve"));
        let (counts, told) = bounded(&bounds, "eve2");
        assert!(!counts.contains_key("reserve"), "{counts:?}");
        assert_eq!(told[1], "`berth.slo.reserve=60%`: it does not count, by the bound `owner eve* no reserve`");
        assert_eq!(bounded(&["owner eve no latency"], "adam").1, [""; 0]);
    }
}
