//! Bounds that an administrator sets on the deadlines of others: nobody comes first by writing a shorter one.

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

impl Bound {
    /// The deadline put within the bound.
    pub fn clamp(&self, deadline: Deadline) -> Deadline {
        let raised = self.shortest.map_or(deadline, |shortest| deadline.max(shortest));
        self.longest.map_or(raised, |longest| raised.min(longest))
    }
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
        match &self.whose {
            Whose::Everybody => f.write_str("everybody ")?,
            Whose::Owner(owner) => write!(f, "owner {owner} ")?,
            Whose::Label(name, value) => write!(f, "label {name}={value} ")?,
        }
        let end = |end: Option<Deadline>| end.map(|end| end.to_string()).unwrap_or_default();
        write!(f, "{}..{}", end(self.shortest), end(self.longest))
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

    #[test]
    fn a_deadline_outside_is_put_at_the_nearest_end() {
        let bound: Bound = "everybody 2s..5s".parse().unwrap();
        let clamped = ["1", "3", "9"].map(|text| bound.clamp(text.parse().unwrap()).to_string());
        assert_eq!(clamped, ["2s", "3s", "5s"]);
    }
}
