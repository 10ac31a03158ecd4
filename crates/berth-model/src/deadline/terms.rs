//! The deadline that counts for a tenant: what a person has set, else what its labels say, put within the bounds.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::bound::{Bound, Whose, within};
use super::{Deadline, LABEL, TAKES_LABEL, UNIT_LABEL, UnitRule};
use crate::settings::Deadlines;

/// Characters of a label that are shown.
const MOST_SHOWN: usize = 40;

/// Of labels that each could be a deadline so many are named.
const MOST_NAMED: usize = 4;

/// What a person has said about a tenant's deadline; it goes before its labels and outlives daemons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// `None`: it has none, whatever its labels say.
    pub deadline: Option<Deadline>,
    pub by_uid: u32,
    pub at: Timestamp,
}

/// Where a deadline comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "snake_case")]
pub enum Origin {
    /// `berth deadline set`.
    Set { by_uid: u32 },
    /// The label [`LABEL`].
    Label,
    /// A label whose name is the deadline: what stock Docker makes of `-dl 9`.
    StockLabel,
}

/// A deadline, and by which rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The one that counts.
    pub deadline: Deadline,
    pub origin: Origin,
    /// What was asked for, if the bounds do not allow it.
    pub asked: Option<Asked>,
    pub unit: UnitRule,
}

/// A deadline that was asked for outside the bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    pub deadline: Deadline,
    /// The rule that does not allow it.
    pub bound: Bound,
}

/// A tenant as the rules know it.
#[derive(Debug, Clone, Copy)]
pub struct Who<'a> {
    pub labels: Option<&'a BTreeMap<String, String>>,
    /// Every name of its owner.
    pub owners: &'a [String],
    pub given: Option<Given>,
}

/// What is known of a tenant's deadline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Read {
    /// `None`: it has none.
    pub terms: Option<Terms>,
    /// How long a unit is said to take ([`TAKES_LABEL`]).
    pub takes: Option<Deadline>,
    /// Labels that say nothing berth understands, and what would be right.
    pub unread: Vec<String>,
}

pub fn terms(who: Who<'_>, settings: &Deadlines) -> Read {
    let mut unread = Vec::new();
    let unit = unit(who, settings, &mut unread);
    let labelled = labelled(who, settings, &mut unread);
    let found = match who.given {
        Some(given) => given.deadline.map(|deadline| (deadline, Origin::Set { by_uid: given.by_uid })),
        None => labelled,
    };
    let terms = found.map(|(asked, origin)| {
        let bounds: Vec<&Bound> = settings.bounds.iter().filter(|bound| bound.whose.is(who)).collect();
        let (deadline, by) = within(&bounds, asked);
        let asked = by.map(|bound| Asked { deadline: asked, bound: bound.clone() });
        Terms { deadline, origin, asked, unit }
    });
    let takes = takes(who, &mut unread);
    Read { terms, takes, unread }
}

/// What a tenant's units are, whether or not it has a deadline.
pub fn unit_rule(labels: Option<&BTreeMap<String, String>>, settings: &Deadlines) -> UnitRule {
    unit(Who { labels, owners: &[], given: None }, settings, &mut Vec::new())
}

fn unit(who: Who<'_>, settings: &Deadlines, unread: &mut Vec<String>) -> UnitRule {
    match label(who, UNIT_LABEL) {
        None => settings.unit,
        Some("task") => UnitRule::Task,
        Some("burst") => UnitRule::Burst,
        Some(text) => {
            unread.push(format!("`{UNIT_LABEL}={}`: only `task` and `burst` are known", short(text)));
            settings.unit
        }
    }
}

fn takes(who: Who<'_>, unread: &mut Vec<String>) -> Option<Deadline> {
    let text = label(who, TAKES_LABEL)?;
    let takes = text.parse().ok();
    if takes.is_none() {
        unread.push(format!("`{TAKES_LABEL}={}`: no duration such as `9s`", short(text)));
    }
    takes
}

fn labelled(who: Who<'_>, settings: &Deadlines, unread: &mut Vec<String>) -> Option<(Deadline, Origin)> {
    if let Some(text) = label(who, LABEL) {
        match text.parse() {
            Ok(deadline) => return Some((deadline, Origin::Label)),
            Err(_) if text.len() > MOST_SHOWN => {
                unread.push(format!("`{LABEL}={}`: no deadline is as long as that", short(text)));
            }
            Err(error) => unread.push(format!("`{LABEL}`: {error}")),
        }
        return None;
    }
    if !settings.stock_labels {
        return None;
    }
    let is_bare = |(name, value): &(&String, &String)| value.is_empty() && name.parse::<Deadline>().is_ok();
    let bare: Vec<&String> = who.labels.into_iter().flatten().filter(is_bare).map(|(name, _)| name).collect();
    match bare[..] {
        [] => None,
        [only] => only.parse().ok().map(|deadline| (deadline, Origin::StockLabel)),
        _ => {
            let names = bare.iter().take(MOST_NAMED).map(|name| format!("`{}`", short(name)));
            let names = names.collect::<Vec<_>>().join(", ");
            let more = if bare.len() > MOST_NAMED { ", …" } else { "" };
            unread.push(format!("{names}{more}: each could be its deadline; write `{LABEL}=`"));
            None
        }
    }
}

/// As much of a label as anybody wants to read.
fn short(text: &str) -> String {
    if text.chars().count() <= MOST_SHOWN {
        return text.to_owned();
    }
    text.chars().take(MOST_SHOWN).chain(['…']).collect()
}

fn label<'a>(who: Who<'a>, name: &str) -> Option<&'a str> {
    who.labels?.get(name).map(String::as_str).filter(|value| !value.is_empty())
}

impl Whose {
    /// Whether a rule applies to this tenant.
    pub fn is(&self, who: Who<'_>) -> bool {
        match self {
            Self::Everybody => true,
            Self::Owner(owner) => who.owners.iter().any(|name| owner.matches(name)),
            Self::Label(name, value) => {
                who.labels.and_then(|labels| labels.get(name)).is_some_and(|given| value.matches(given))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(labels: &[(&str, &str)], given: Option<Given>, settings: &Deadlines) -> Read {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        terms(Who { labels: Some(&labels), owners: &["ada".to_owned(), "1000".to_owned()], given }, settings)
    }

    fn found(labels: &[(&str, &str)]) -> Option<(String, Origin)> {
        let terms = read(labels, None, &Deadlines::default()).terms?;
        Some((terms.deadline.to_string(), terms.origin))
    }

    fn set(text: Option<&str>) -> Option<Given> {
        let deadline = text.map(|text| text.parse().unwrap());
        Some(Given { deadline, by_uid: 7, at: Timestamp::UNIX_EPOCH })
    }

    #[test]
    fn the_label_goes_before_what_stock_docker_makes_of_the_flag() {
        assert_eq!(found(&[("berth.deadline", "9")]), Some(("9s".into(), Origin::Label)));
        assert_eq!(found(&[("9", ""), ("a", "b"), ("c", "")]), Some(("9s".into(), Origin::StockLabel)));
        assert_eq!(found(&[("9", ""), ("berth.deadline", "2m")]), Some(("2m".into(), Origin::Label)));
        assert_eq!(found(&[("9", "x")]), None, "a label of its own");
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn how_long_a_unit_is_said_to_take_is_read_or_told_to_be_wrong() {
        let takes = |text| read(&[("berth.takes", text)], None, &Deadlines::default());
        assert_eq!(takes("1500ms").takes.map(|takes| takes.to_string()).as_deref(), Some("1500ms"));
        let wrong = takes("long");
        assert_eq!((wrong.takes, wrong.unread.concat()), (None, "`berth.takes=long`: no duration such as `9s`".into()));
    }

    #[test]
    fn stock_labels_can_be_left_alone() {
        let settings = Deadlines { stock_labels: false, ..Deadlines::default() };
        assert_eq!(read(&[("9", "")], None, &settings), Read::default());
        assert_eq!(read(&[("9", ""), ("10", "")], None, &settings), Read::default(), "and are not asked about");
    }

    #[test]
    fn what_a_person_has_set_goes_before_labels_and_none_is_none() {
        let labels = [("berth.deadline", "9")];
        let terms = read(&labels, set(Some("3s")), &Deadlines::default()).terms.unwrap();
        assert_eq!((terms.deadline.to_string(), terms.origin), ("3s".into(), Origin::Set { by_uid: 7 }));
        assert_eq!(read(&labels, set(None), &Deadlines::default()).terms, None);
    }

    #[test]
    fn what_cannot_be_read_is_told_and_does_not_count() {
        let told = |labels: &[(&str, &str)]| read(labels, None, &Deadlines::default());
        for labels in
            [&[("berth.deadline", "soon"), ("8", "")][..], &[("9", ""), ("10", "")], &[("berth.deadline", "0")]]
        {
            let read = told(labels);
            assert_eq!((read.terms, read.unread.len()), (None, 1), "{labels:?}");
        }
        let read = told(&[("berth.deadline", "9"), ("berth.unit", "request")]);
        assert_eq!((read.terms.unwrap().unit, read.unread.len()), (UnitRule::Auto, 1));
    }

    #[test]
    fn however_much_a_label_says_little_is_repeated() {
        let (long, settings) = ("1".repeat(100_000), Deadlines::default());
        let zeros: Vec<String> = (1..100).map(|zeros| format!("{}9", "0".repeat(zeros))).collect();
        let bare: Vec<(&str, &str)> = zeros.iter().map(|name| (name.as_str(), "")).collect();
        for labels in [&[("berth.deadline", long.as_str())][..], &[("berth.unit", &long)], &bare] {
            let unread = read(labels, None, &settings).unread.concat();
            assert!((1..400).contains(&unread.len()), "{}: {unread:.400}", unread.len());
        }
    }

    #[test]
    fn the_strictest_of_the_bounds_that_apply_counts_and_what_it_changed_is_told() {
        let bounds = ["owner eve 1h..", "label tier=fast 1ms..", "label tier=batch 30s..", "everybody 2s..1m"];
        let settings = Deadlines { bounds: bounds.map(|text| text.parse().unwrap()).into(), ..Deadlines::default() };
        let counted = |labels: &[(&str, &str)], given| {
            let terms = read(labels, given, &settings).terms.unwrap();
            (terms.deadline.to_string(), terms.asked.map(|asked| asked.bound.to_string()))
        };
        assert_eq!(counted(&[("1", "")], None), ("2s".into(), Some("everybody 2s..1m".into())));
        assert_eq!(counted(&[("9", "")], None), ("9s".into(), None));
        let batch = [("tier", "batch"), ("berth.deadline", "9")];
        assert_eq!(counted(&batch, None), ("30s".into(), Some("label tier=batch 30s..".into())));
        let escaping = [("tier", "fast"), ("berth.deadline", "100ms")];
        assert_eq!(counted(&escaping, None), ("2s".into(), Some("everybody 2s..1m".into())), "a label is its own word");
        assert_eq!(counted(&[], set(Some("2h"))).0, "1m", "a person's word too");
    }
}
