//! What became of units of work, added up for each container and image.

use std::collections::BTreeMap;

use berth_model::Deadline;
use berth_model::deadline::{Spread, Tally, Unit};
use berth_model::history::{Happening, Judgement, Record, Why};
use jiff::Timestamp;
use serde::Serialize;

use crate::columns::Columns;
use crate::{table, words};

/// The JSON of `--summary`: one for each container, image and unit.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    name: String,
    image: Option<String>,
    unit: Unit,
    /// Of the newest of them.
    deadline: Deadline,
    /// When the oldest of them began.
    since: Timestamp,
    units: u64,
    #[serde(flatten)]
    tally: Tally,
    /// From start to end; `None` if no end was seen.
    run_seconds: Option<Spread>,
    /// `None` if no end was seen.
    float_seconds: Option<Floats>,
    /// Why they were missed, what came most often first; misses of which that is not known are not in it.
    reasons: Vec<Reason>,
}

/// What was left until they were due, below zero of those that were late.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Floats {
    median_seconds: f64,
    /// Nine in ten had at least this.
    p10_seconds: f64,
    least_seconds: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Reason {
    #[serde(flatten)]
    why: Why,
    units: u64,
}

/// Whose units are added up: name, image, and what they are.
type Whose<'a> = (&'a str, Option<&'a str>, Unit);

/// `records`: newest first. In the order in which the newest of each came.
pub(super) fn of(records: &[Record]) -> Vec<Summary> {
    let mut groups: Vec<(Whose<'_>, Vec<&Judgement>)> = Vec::new();
    for record in records {
        let Happening::Judged(judgement) = &record.what else { continue };
        let key = (record.name.as_str(), judgement.workload.image.as_deref(), judgement.unit);
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, units)) => units.push(judgement),
            None => groups.push((key, vec![judgement])),
        }
    }
    groups.into_iter().filter_map(|((name, ..), units)| Summary::of(name, &units)).collect()
}

impl Summary {
    fn of(name: &str, units: &[&Judgement]) -> Option<Self> {
        let newest = units.first()?;
        let mut tally = Tally::default();
        for unit in units {
            tally.add(unit.verdict());
            tally += unit.unwritten;
        }
        Some(Self {
            name: name.to_owned(),
            image: newest.workload.image.clone(),
            unit: newest.unit,
            deadline: newest.deadline,
            since: units.iter().map(|unit| unit.started_at).min()?,
            units: tally.hits + tally.misses + tally.unknown,
            tally,
            run_seconds: Spread::of(units.iter().filter_map(|unit| unit.seconds)),
            float_seconds: Floats::of(units.iter().filter_map(|unit| unit.float_seconds)),
            reasons: reasons(units),
        })
    }

    fn cells(&self) -> Vec<String> {
        let unknown = || "-".to_owned();
        let run = self.run_seconds.map_or_else(unknown, |run| {
            let each = [run.median_seconds, run.p90_seconds, run.most_seconds].map(words::deadline::brief);
            each.join(" / ")
        });
        let float = self.float_seconds.map_or_else(unknown, |float| {
            let each = [float.median_seconds, float.p10_seconds, float.least_seconds].map(words::deadline::brief_float);
            each.join(" / ")
        });
        let because = self.reasons.first().map_or_else(unknown, |reason| {
            let of = if reason.units == 1 { "once".to_owned() } else { format!("{} times", reason.units) };
            format!("{} ({of})", reason.why)
        });
        vec![
            self.name.clone(),
            self.image.clone().unwrap_or_else(unknown),
            self.deadline.to_string(),
            words::deadline::counted(self.units, self.unit),
            self.tally.hits.to_string(),
            self.tally.misses.to_string(),
            self.tally.unknown.to_string(),
            run,
            float,
            because,
        ]
    }
}

impl Floats {
    /// The worst is the least: it is the spread of what was lacking.
    fn of(floats: impl Iterator<Item = f64>) -> Option<Self> {
        let lacking = Spread::of(floats.map(|float| -float))?;
        let [median_seconds, p10_seconds, least_seconds] =
            [lacking.median_seconds, lacking.p90_seconds, lacking.most_seconds].map(|lacking| 0.0 - lacking);
        Some(Self { median_seconds, p10_seconds, least_seconds })
    }
}

fn reasons(units: &[&Judgement]) -> Vec<Reason> {
    let mut counts: BTreeMap<String, Reason> = BTreeMap::new();
    for why in units.iter().filter_map(|unit| unit.why.as_ref()) {
        counts.entry(why.to_string()).or_insert_with(|| Reason { why: why.clone(), units: 0 }).units += 1;
    }
    let mut reasons: Vec<Reason> = counts.into_values().collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.units));
    reasons
}

pub(super) fn text(summaries: &[Summary]) -> String {
    const HEADINGS: [&str; 10] = [
        "TENANT",
        "IMAGE",
        "DEADLINE",
        "UNITS",
        "HITS",
        "MISSES",
        "UNKNOWN",
        "TOOK (MEDIAN / P90 / MOST)",
        "FLOAT (MEDIAN / P10 / LEAST)",
        "MOSTLY MISSED BECAUSE",
    ];
    let numeric = [false, false, true, true, true, true, true, true, true, false];
    table::render(Columns::new(&HEADINGS, &numeric, summaries.iter().map(Summary::cells).collect()))
}

#[cfg(test)]
mod tests {
    use berth_model::TenantKey;

    use super::*;
    use crate::testing::{at, judgement};

    fn record(name: &str, judgement: Judgement) -> Record {
        let tenant = TenantKey::User { uid: 0 };
        Record { at: at(0), tenant, name: name.into(), what: Happening::Judged(judgement) }
    }

    fn held(behind: &str) -> Option<Why> {
        Some(Why::Held { behind: Some(behind.into()) })
    }

    fn records() -> Vec<Record> {
        let burst = Judgement {
            unit: Unit::Burst,
            unwritten: Tally { hits: 40, misses: 2, unknown: 0 },
            ..judgement("2s", Some(0.7), None)
        };
        vec![
            record("batch", judgement("9s", Some(2.0), None)),
            record("server", burst),
            record("batch", judgement("9s", Some(-1.0), held("b"))),
            record("batch", judgement("9s", Some(-3.0), held("b"))),
            record("batch", judgement("9s", Some(-2.0), Some(Why::Contended))),
            record("batch", judgement("12s", None, None)),
            record("batch", Judgement { started_at: at(-400), ..judgement("12s", Some(4.0), None) }),
        ]
    }

    #[test]
    fn units_are_added_up_by_container_with_what_was_not_written_down_each() {
        insta::assert_snapshot!(text(&of(&records())));
        let [batch, server] = &of(&records())[..] else { panic!("{:?}", of(&records())) };
        assert_eq!((batch.units, batch.tally), (6, Tally { hits: 2, misses: 3, unknown: 1 }));
        assert_eq!((server.units, server.tally), (43, Tally { hits: 41, misses: 2, unknown: 0 }));
        assert_eq!((batch.deadline, batch.since), ("9s".parse().unwrap(), at(-400)));
    }

    #[test]
    fn the_worst_float_is_the_least_and_the_reason_the_one_that_came_most_often() {
        let all = of(&records());
        let float = all[0].float_seconds.unwrap();
        assert_eq!((float.median_seconds, float.p10_seconds, float.least_seconds), (-1.0, -3.0, -3.0));
        let reasons: Vec<_> = all[0].reasons.iter().map(|reason| (&reason.why, reason.units)).collect();
        assert_eq!(reasons, [(&held("b").unwrap(), 2), (&Why::Contended, 1)]);
    }

    #[test]
    fn another_image_is_another_line() {
        let mut other = judgement("9s", Some(1.0), None);
        other.workload.image = Some("pytorch:3".into());
        let records = [record("batch", other), record("batch", judgement("9s", Some(1.0), None))];
        assert_eq!(of(&records).len(), 2);
    }

    #[test]
    fn of_units_nobody_saw_end_nothing_is_made_up() {
        let all = of(&[record("batch", judgement("9s", None, None))]);
        assert_eq!((all[0].run_seconds, all[0].float_seconds, all[0].tally.unknown), (None, None, 1));
        assert_eq!(all[0].cells()[7..], ["-", "-", "-"]);
        let json = serde_json::to_value(&all[0]).unwrap();
        assert_eq!((json["unknown"].as_u64(), json["float_seconds"].is_null()), (Some(1), true));
    }
}
