//! Deadlines in words: what became of a unit of work, and why.

use berth_model::Deadline;
use berth_model::control::DeadlineStanding;
use berth_model::deadline::{Origin, Risk, Spread, Tally, Unit, Verdict};
use berth_model::fields::elapsed;
use berth_model::history::Judgement;
use berth_model::snapshot::{DeadlineRow, WorkRow};

use super::hold::{seconds, user};

/// `met its deadline of 9s, 1.2s left`; of one that was late, by how much and why.
pub fn judged(deadline: Deadline, verdict: Verdict, float_nanos: Option<i64>, why: Option<&str>) -> String {
    #[expect(clippy::cast_precision_loss, reason = "shown to a tenth of a second")]
    let by = brief(float_nanos.unwrap_or(0).unsigned_abs() as f64 / 1e9);
    match verdict {
        Verdict::Hit => format!("met its deadline of {deadline}, {by} left"),
        Verdict::Miss => {
            let why = why.map(|why| format!(": {why}")).unwrap_or_default();
            format!("missed its deadline of {deadline} by {by}{why}")
        }
        Verdict::Unknown => format!("had a deadline of {deadline}; nobody saw whether it was met"),
    }
}

/// What happened, and the details, of a line of the history.
pub fn story(judgement: &Judgement) -> (String, String) {
    let Judgement { unit, deadline, float_seconds, seconds, active_seconds, unwritten, .. } = judgement;
    let by = float_seconds.map(|float| brief(float.abs())).unwrap_or_default();
    let what = match judgement.verdict() {
        Verdict::Hit => format!("deadline met, {by} left"),
        Verdict::Miss => format!("deadline missed by {by}"),
        Verdict::Unknown => "deadline: not known".to_owned(),
    };
    let some = |seconds: f64, word: &str| (seconds > 0.0).then(|| format!("{word} {}", brief(seconds)));
    let parts = [
        Some(format!("{} of {deadline}", unit.as_str())),
        seconds.map(|seconds| format!("took {}", brief(seconds))),
        active_seconds.map(|seconds| format!("{} of GPU time", brief(seconds))),
        some(judgement.held_seconds, "held"),
        some(judgement.contended_seconds, "lost beside others"),
    ];
    let details = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let why = judgement.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    (what, format!("{details}{why}{}", more(*unwritten, *unit)))
}

/// `; 14 more bursts: 13 met, 1 missed`.
fn more(Tally { hits, misses, unknown }: Tally, unit: Unit) -> String {
    let counts = [(hits, "met"), (misses, "missed"), (unknown, "not known")];
    let parts: Vec<String> =
        counts.iter().filter(|(units, _)| *units > 0).map(|(units, what)| format!("{units} {what}")).collect();
    match hits + misses + unknown {
        0 => String::new(),
        units => format!("; {} more: {}", counted(units, unit), parts.join(", ")),
    }
}

/// What is known of a tenant's deadline; nothing where nobody has given it one.
pub fn of_standing(standing: &DeadlineStanding) -> Vec<(&'static str, String)> {
    let unread = standing.unread_labels.iter().map(|label| ("label", format!("not understood: {label}")));
    let mut told = match (&standing.counts, standing.given) {
        (Some(row), _) => facts(row),
        (None, Some(given)) => {
            vec![("deadline", format!("none: taken away by {}, whatever its labels say", user(given.by_uid)))]
        }
        (None, None) if standing.unread_labels.is_empty() => Vec::new(),
        (None, None) => vec![("deadline", "none".to_owned())],
    };
    told.extend(unread);
    told
}

/// What is known of a deadline, for views with room for it.
pub fn facts(row: &DeadlineRow) -> Vec<(&'static str, String)> {
    let due = row.work.as_ref().map_or_else(|| "nothing: no work is under way".to_owned(), due);
    let mut facts = vec![("deadline", origin(row)), ("due", due)];
    facts.extend(row.takes.as_ref().map(|takes| ("takes", spread(takes, row.unit))));
    facts.push(("met", met(row)));
    facts
}

/// `9s for each burst, by a label`; of one outside the bounds what was asked for and by which rule it counts otherwise.
pub fn origin(row: &DeadlineRow) -> String {
    let what = match row.unit {
        Unit::Task => "the task",
        Unit::Burst => "each burst",
    };
    let by = match row.origin {
        Origin::Set { by_uid } => format!("set by {}, whatever its labels say", user(by_uid)),
        Origin::Label => "by its label".to_owned(),
        Origin::StockLabel => "by the label that `docker -dl` makes".to_owned(),
    };
    let bound = row.bound.as_ref().map(|bound| format!(" (`{bound}`)")).unwrap_or_default();
    let asked =
        row.asked.map(|asked| format!("; {asked} was asked for, which is not allowed{bound}")).unwrap_or_default();
    format!("{} for {what}, {by}{asked}", row.deadline)
}

/// `in 4.2s; about 1.9s is expected to be left`.
fn due(work: &WorkRow) -> String {
    let float = work.float_seconds;
    let when = if float < 0.0 { format!("{} ago", brief(-float)) } else { format!("in {}", brief(float)) };
    let left = |left: f64| format!("about {} is expected to be left", brief(left));
    match (work.risk, work.expected_float_seconds) {
        (Risk::Late, _) => format!("{when}: it is late"),
        (Risk::Likely, Some(left)) if left < 0.0 => {
            format!("{when}; will probably be late, by about {}", brief(-left))
        }
        (Risk::Likely, _) => format!("{when}; will probably be late"),
        (Risk::Tight, Some(float)) => format!("{when}; tight: {}", left(float)),
        (Risk::Tight, None) => format!("{when}; tight"),
        (Risk::Safe, Some(float)) => format!("{when}; {}", left(float)),
        (Risk::Safe, None) => format!("{when}; how much will be left cannot be told"),
    }
}

/// `4.1 s of GPU time, nine in ten up to 5.6 s, at most 8.3 s (14 tasks)`.
pub fn spread(spread: &Spread, unit: Unit) -> String {
    let Spread { units, median_seconds, p90_seconds, most_seconds } = *spread;
    let (median, p90, most) = (seconds(median_seconds), seconds(p90_seconds), seconds(most_seconds));
    format!("{median} of GPU time, nine in ten up to {p90}, at most {most} ({})", counted(u64::from(units), unit))
}

/// `12 of 14, 1 not known; last time 1.9s was left`.
fn met(row: &DeadlineRow) -> String {
    let judged = row.tally.hits + row.tally.misses;
    let of = if judged == 0 { "none judged yet".to_owned() } else { format!("{} of {judged}", row.tally.hits) };
    let unknown = if row.tally.unknown == 0 { String::new() } else { format!(", {} not known", row.tally.unknown) };
    let last = match row.last_float_seconds {
        Some(float) if float < 0.0 => format!("; last time it was {} late", brief(-float)),
        Some(float) => format!("; last time {} was left", brief(float)),
        None => String::new(),
    };
    format!("{of}{unknown}{last}")
}

/// `1 task`, `14 bursts`.
pub fn counted(units: u64, unit: Unit) -> String {
    let ending = if units == 1 { "" } else { "s" };
    format!("{units} {}{ending}", unit.as_str())
}

/// As elsewhere, but below a second in milliseconds: bursts are short, and so is what some of them lack.
pub fn brief(seconds: f64) -> String {
    let millis = (seconds * 1e3).round();
    if (0.0..1e3).contains(&millis) { format!("{millis:.0}ms") } else { elapsed(seconds) }
}

/// [`brief`] with its sign.
pub fn brief_float(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "-" } else { "" };
    format!("{sign}{}", brief(seconds.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::deadlines;

    fn told(name: &str) -> Vec<String> {
        let row = deadlines().tasks.into_iter().find(|row| row.container_name == name).unwrap();
        facts(&row.deadline.unwrap()).into_iter().map(|(what, value)| format!("{what}: {value}")).collect()
    }

    #[test]
    fn where_a_deadline_comes_from_and_how_it_does_is_told_whole() {
        assert_eq!(
            told("trainer"),
            [
                "deadline: 9s for the task, by its label",
                "due: in 5.2s; about 4.2s is expected to be left",
                "takes: 4.1 s of GPU time, nine in ten up to 5.6 s, at most 8.3 s (14 tasks)",
                "met: 12 of 14, 1 not known; last time 1.9s was left",
            ]
        );
    }

    #[test]
    fn an_override_a_bound_and_a_stock_label_are_named() {
        assert_eq!(told("report")[0], "deadline: 5s for the task, set by user 1000, whatever its labels say");
        let asked = "5s for the task, by its label; 1ms was asked for, which is not allowed (`owner ada 5s..`)";
        assert_eq!(told("eager")[0], format!("deadline: {asked}"));
        assert_eq!(told("server")[0], "deadline: 2s for each burst, by the label that `docker -dl` makes");
    }

    #[test]
    fn a_risk_says_what_is_expected_and_what_is_not_known_is_not_made_up() {
        assert_eq!(told("report")[1], "due: in 1.1s; tight: about 300ms is expected to be left");
        assert_eq!(told("eager")[1], "due: 800ms ago: it is late");
        assert_eq!(told("server")[1], "due: nothing: no work is under way");
        let waits = told("train-8");
        assert_eq!(waits[1], "due: in 12.0s; will probably be late, by about 3.4s");
        assert_eq!(waits[2..], ["met: none judged yet"]);
    }

    #[test]
    fn a_miss_by_little_is_not_a_miss_by_nothing() {
        assert_eq!([0.0004, 0.0423, 0.9996, 1.25, 61.0].map(brief), ["0ms", "42ms", "1.0s", "1.2s", "1m01s"]);
        assert_eq!([-0.0423, 0.0423, -3.0].map(brief_float), ["-42ms", "42ms", "-3.0s"]);
        let missed = judged("2s".parse().unwrap(), Verdict::Miss, Some(-42_300_000), None);
        assert_eq!(missed, "missed its deadline of 2s by 42ms");
    }
}
