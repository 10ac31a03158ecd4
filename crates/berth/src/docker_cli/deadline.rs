//! `-dl 9` and `--deadline 9s` of `run` and `create`, turned into the label that the engine keeps.
//!
//! To the client as it is, `-dl 9` is `-d -l 9`: detached, with a label named `9`. Here it is a deadline alone. A value with a
//! `=` is a label and nothing else, so `-dl key=value` keeps the client's meaning. Only `-dl` at the start of a token counts:
//! `-itdl 9` is the client's `-i -t -d -l 9`.

use std::fmt;

use berth_model::deadline::{Deadline, InvalidDeadline, LABEL};

use super::flags::{FlagSet, Standing, Takes};

const SHORT: &str = "-dl";
const LONG: &str = "--deadline";

/// What was found among the flags.
#[derive(Debug, PartialEq, Eq)]
pub struct Found {
    /// Which tokens are to be replaced, and by what.
    pub label: Option<Replacement>,
    /// The client will show its help and do nothing.
    pub is_help: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Replacement {
    pub at: usize,
    pub tokens: usize,
    pub by: String,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongDeadline {
    #[error("flag needs an argument: {flag}")]
    Missing { flag: &'static str },
    #[error("invalid argument {value:?} for \"-dl, --deadline\" flag: {why}{hint}")]
    Invalid { value: String, why: InvalidDeadline, hint: LabelHint },
    #[error("invalid argument {second:?} for \"-dl, --deadline\" flag: a deadline of {first:?} is given already")]
    Twice { first: String, second: String },
}

/// What to write for a label without a value, which `-dl NAME` was.
#[derive(Debug, PartialEq, Eq)]
pub struct LabelHint(Option<String>);

impl fmt::Display for LabelHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |label| write!(f, " (for a label, and detached, write -d -l {label})"))
    }
}

/// Whether it is worth reading the flags at all.
pub fn may_be_in(args: &[String]) -> bool {
    args.iter().any(|arg| arg.starts_with(SHORT) || arg.starts_with(LONG))
}

/// `args`: what stands behind `run` or `create`, whose flags are `flags`. Nothing is looked for behind one that is not of them,
/// which the client will refuse.
pub fn find(args: &[String], flags: &FlagSet) -> Result<Found, WrongDeadline> {
    let flags = flags.clone().with("deadline", None, Takes::Value);
    let (mut found, mut given, mut at) = (Found { label: None, is_help: false }, None, 0);
    let mut labelled = None;
    loop {
        if let Some(ours) = ours(args, at) {
            let value = ours.value.ok_or(WrongDeadline::Missing { flag: ours.flag })?;
            check(value, &ours)?;
            if let Some(first) = given.replace(value.to_owned()) {
                return Err(WrongDeadline::Twice { first, second: value.to_owned() });
            }
            found.label = Some(Replacement { at, tokens: ours.tokens, by: format!("--label={LABEL}={value}") });
            at += ours.tokens;
            continue;
        }
        match flags.standing(args, at) {
            Standing::Unknown => return Ok(Found { is_help: false, ..found }),
            Standing::Operand(_) => match (given, labelled) {
                // The client would take the last of them, and say nothing.
                (Some(second), Some(first)) => return Err(WrongDeadline::Twice { first, second }),
                _ => return Ok(found),
            },
            Standing::Flag(flag) => {
                found.is_help |= flag.is("help", None) && flag.value != Some("false");
                let label = flag.value.filter(|_| flag.is("label", Some('l')));
                labelled = label.and_then(of_label).map(str::to_owned).or(labelled);
                at += flag.tokens;
            }
        }
    }
}

/// What a label says about a deadline; nothing if it is another.
fn of_label(label: &str) -> Option<&str> {
    let (name, value) = label.split_once('=').unwrap_or((label, ""));
    (name == LABEL).then_some(value)
}

/// How many tokens a deadline takes that stands at `at`; `None` if none does.
pub fn tokens_at(args: &[String], at: usize) -> Option<usize> {
    ours(args, at).map(|ours| ours.tokens)
}

struct Ours<'a> {
    flag: &'static str,
    value: Option<&'a str>,
    tokens: usize,
}

/// The deadline that stands at `at`, in any of the ways a flag may be written.
fn ours(args: &[String], at: usize) -> Option<Ours<'_>> {
    let token = args.get(at)?;
    let (flag, rest) = match (token.strip_prefix(SHORT), token.strip_prefix(LONG)) {
        (Some(rest), _) => (SHORT, rest),
        (_, Some(rest)) if rest.is_empty() || rest.starts_with('=') => (LONG, rest),
        _ => return None,
    };
    let (value, tokens) = match rest {
        "" => (args.get(at + 1).map(String::as_str), 1 + usize::from(at + 1 < args.len())),
        _ => (Some(rest.strip_prefix('=').unwrap_or(rest)), 1),
    };
    let is_label = flag == SHORT && value.is_some_and(|value| value.contains('='));
    (!is_label).then_some(Ours { flag, value, tokens })
}

fn check(value: &str, ours: &Ours<'_>) -> Result<(), WrongDeadline> {
    let Err(why) = value.parse::<Deadline>() else { return Ok(()) };
    // A flag or a number that is none is no label anybody meant.
    let is_word = value.starts_with(|first: char| first.is_ascii_alphabetic());
    let hint = LabelHint((ours.flag == SHORT && is_word).then(|| value.to_owned()));
    Err(WrongDeadline::Invalid { value: value.to_owned(), why, hint })
}
