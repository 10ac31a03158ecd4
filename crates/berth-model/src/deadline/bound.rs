//! Bounds that an administrator sets on the deadlines of others: nobody comes first by writing a shorter one.
//!
//! Labels, and owners that labels name, are the word of whoever starts a container. So the strictest of all rules that apply counts:
//! nobody gets out of one by naming itself so that another applies too.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::Deadline;
use crate::settings::Pattern;

/// One rule: whose deadlines must be how long. As text `owner eve* 30s..10m`, `label tier=batch 1m..` or `everybody 1s..1h`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Bound {
    pub whose: Whose,
    pub shortest: Option<Deadline>,
    pub longest: Option<Deadline>,
}

/// To whom a rule applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    Everybody,
    /// By name as in `berth ps`, or by user id where no label names the owner.
    Owner(Pattern),
    /// Containers with this label; its value may have wildcards.
    Label(String, Pattern),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no bound: write whose deadlines and how long they may be, such as `owner eve* 30s..10m`, `label tier=batch 1m..` or `everybody ..1h`"
)]
pub struct InvalidBound {
    text: String,
}

/// The deadline put within all of these, and the rule that changed it. Where they leave nothing, the longer one counts.
pub fn within<'a>(bounds: &[&'a Bound], asked: Deadline) -> (Deadline, Option<&'a Bound>) {
    let shortests = bounds.iter().filter_map(|bound| Some((bound.shortest?, *bound)));
    let longests = bounds.iter().filter_map(|bound| Some((bound.longest?, *bound)));
    let lowered = longests.min_by_key(|(longest, _)| *longest).filter(|(longest, _)| *longest < asked);
    let (deadline, by) = lowered.map_or((asked, None), |(longest, bound)| (longest, Some(bound)));
    let raised = shortests.max_by_key(|(shortest, _)| *shortest).filter(|(shortest, _)| *shortest > deadline);
    raised.map_or((deadline, by), |(shortest, bound)| (shortest, Some(bound)))
}

impl FromStr for Bound {
    type Err = InvalidBound;

    fn from_str(text: &str) -> Result<Self, InvalidBound> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let read = || {
            let (whose, range) = match words[..] {
                ["everybody", range] => (Whose::Everybody, range),
                ["owner", owner, range] => (Whose::Owner(owner.into()), range),
                ["label", label, range] => {
                    let (name, value) = label.split_once('=')?;
                    (Whose::Label(name.to_owned(), value.into()), range)
                }
                _ => return None,
            };
            let (shortest, longest) = range.split_once("..")?;
            let end = |text: &str| if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) };
            let bound = Bound { whose, shortest: end(shortest)?, longest: end(longest)? };
            let is_empty = bound.shortest.zip(bound.longest).is_some_and(|(shortest, longest)| shortest > longest);
            (!is_empty && (bound.shortest, bound.longest) != (None, None)).then_some(bound)
        };
        read().ok_or_else(|| InvalidBound { text: text.to_owned() })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.whose)?;
        let end = |end: Option<Deadline>| end.map(|end| end.to_string()).unwrap_or_default();
        write!(f, "{}..{}", end(self.shortest), end(self.longest))
    }
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("everybody"),
            Self::Owner(owner) => write!(f, "owner {owner}"),
            Self::Label(name, value) => write!(f, "label {name}={value}"),
        }
    }
}

impl From<Bound> for String {
    fn from(bound: Bound) -> String {
        bound.to_string()
    }
}

impl<'de> Deserialize<'de> for Bound {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_survives_being_written_and_read() {
        for text in ["everybody 1s..1h", "owner eve* 30s..", "label tier=batch ..10m", "label tier= 500ms.."] {
            assert_eq!(text.parse::<Bound>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_bound_is_refused_with_what_would_be_right() {
        for text in [
            "",
            "everybody",
            "everybody ..",
            "everybody 2s..1s",
            "owner 1s..2s",
            "label tier 1s..",
            "eve 1s..",
            "everybody 0s..",
        ] {
            let error = text.parse::<Bound>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("owner eve*"), "{error}");
        }
    }

    fn put_within(bounds: &[&str], asked: &str) -> (String, Option<String>) {
        let bounds: Vec<Bound> = bounds.iter().map(|text| text.parse().unwrap()).collect();
        let (deadline, by) = within(&bounds.iter().collect::<Vec<_>>(), asked.parse().unwrap());
        (deadline.to_string(), by.map(ToString::to_string))
    }

    #[test]
    fn a_deadline_outside_is_put_at_the_nearest_end() {
        let clamped = ["1", "3", "9"].map(|asked| put_within(&["everybody 2s..5s"], asked).0);
        assert_eq!(clamped, ["2s", "3s", "5s"]);
    }

    #[test]
    fn the_strictest_of_several_counts_in_whatever_order_they_are() {
        let mut bounds = ["everybody 2s..1m", "owner eve 10s..", "label tier=fast 1s..30s"];
        for _ in 0..2 {
            assert_eq!(put_within(&bounds, "1ms"), ("10s".into(), Some("owner eve 10s..".into())));
            assert_eq!(put_within(&bounds, "1h"), ("30s".into(), Some("label tier=fast 1s..30s".into())));
            assert_eq!(put_within(&bounds, "20s"), ("20s".into(), None));
            bounds.reverse();
        }
    }

    #[test]
    fn where_bounds_leave_nothing_the_longer_counts() {
        let bounds = ["owner eve ..5s", "everybody 9s.."];
        for asked in ["1s", "7s", "1h"] {
            assert_eq!(put_within(&bounds, asked), ("9s".into(), Some("everybody 9s..".into())));
        }
    }
}
