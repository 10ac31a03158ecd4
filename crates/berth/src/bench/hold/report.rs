//! What `berth bench hold` found, as JSON and as a table.

use berth_model::Bytes;
use serde::Serialize;

use super::Part;
use crate::bench::machine::Machine;
use crate::bench::quantiles::Quantiles;
use crate::bench::report::Verdict;
use crate::columns::Columns;
use crate::table;

pub const HOLD: &str = "decision → confirmed";
pub const RELEASE: &str = "release → running";
/// Of the 99th percentile.
pub const GOAL_MS: f64 = 1.0;

/// Everything that was measured so far.
#[derive(Debug, Clone)]
pub struct Measured {
    pub machine: Machine,
    pub rows: Vec<Row>,
    /// What this host does not have, and why.
    pub absent: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Report {
    pub berth: String,
    pub machine: Machine,
    pub rows: Vec<Row>,
    pub absent: Vec<String>,
}

/// One stretch of a hold by one means.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub means: String,
    pub what: &'static str,
    /// `None` where it could not be done.
    pub times_ms: Option<Quantiles>,
    /// GPU memory that was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// What cannot be undercut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bare: Option<Bare>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    #[serde(skip)]
    part: Part,
}

/// The same effect without anything of berth's.
#[derive(Debug, Clone, Serialize)]
pub struct Bare {
    pub is: &'static str,
    pub times_ms: Quantiles,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Goal {
    /// Of the 99th percentile, or of the worst of fewer than 100.
    pub at_most_ms: f64,
    pub verdict: Verdict,
}

impl Row {
    /// `None` without times.
    pub fn of(part: Part, means: &str, what: &'static str, times_ms: &[f64]) -> Option<Row> {
        let times_ms = Some(Quantiles::of(times_ms)?);
        Some(Row { means: means.to_owned(), what, times_ms, bytes: None, bare: None, goal: None, refused: None, part })
    }

    pub fn refused(part: Part, means: &str, why: String) -> Row {
        let (means, refused) = (means.to_owned(), Some(why));
        Row { means, what: HOLD, times_ms: None, bytes: None, bare: None, goal: None, refused, part }
    }

    /// On a machine on which the bare effect misses the goal, nothing is shown by missing it too.
    pub fn with_goal(self, at_most_ms: f64, bare: Bare) -> Row {
        let goal = self.times_ms.map(|times| {
            let verdict = match times.p99 {
                reached if reached <= at_most_ms => Verdict::Met,
                _ if bare.times_ms.p99 > at_most_ms => Verdict::NotShown,
                _ => Verdict::NotMet,
            };
            Goal { at_most_ms, verdict }
        });
        Row { goal, bare: Some(bare), ..self }
    }

    pub fn with_bytes(self, bytes: Bytes) -> Row {
        Row { bytes: Some(bytes), ..self }
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![self.means.clone(), self.what.to_owned()];
        match self.times_ms {
            Some(times) => cells.extend([times.n.to_string(), ms(times.p50), p99(times), ms(times.max)]),
            None => cells.extend(["-"; 4].map(str::to_owned)),
        }
        let bare = self.bare.as_ref().map(|bare| [ms(bare.times_ms.p50), p99(bare.times_ms)]);
        cells.extend(bare.unwrap_or_default());
        cells.push(self.goal.map_or(String::new(), |goal| match goal.verdict {
            Verdict::Met => format!("{} reached", goal.at_most_ms),
            Verdict::NotMet => format!("{} NOT MET", goal.at_most_ms),
            Verdict::NotShown => format!("{} not shown", goal.at_most_ms),
        }));
        cells
    }
}

impl Bare {
    pub fn of(is: &'static str, times_ms: &[f64]) -> Option<Bare> {
        Some(Bare { is, times_ms: Quantiles::of(times_ms)? })
    }
}

/// Of fewer than a hundred it is the worst, which is not printed twice.
fn p99(times: Quantiles) -> String {
    if times.has_p99() { ms(times.p99) } else { "-".to_owned() }
}

/// As exact as matters.
fn ms(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        some if some >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

impl Report {
    pub fn of(measured: &Measured) -> Report {
        Report {
            berth: env!("CARGO_PKG_VERSION").to_owned(),
            machine: measured.machine.clone(),
            rows: measured.rows.clone(),
            absent: measured.absent.clone(),
        }
    }

    pub fn to_text(&self) -> String {
        let headings = ["MEANS", "FROM → TO", "N", "P50 MS", "P99", "WORST", "BARE", "P99", "GOAL"];
        let numeric = [false, false, true, true, true, true, true, true, false];
        let mut rows: Vec<Vec<String>> = self.rows.iter().map(Row::cells).collect();
        // Whose they are is said once.
        for index in (1..rows.len()).rev() {
            if rows[index][0] == rows[index - 1][0] {
                rows[index][0].clear();
            }
        }
        let table = table::render(Columns::new(&headings, &numeric, rows));
        let mut text = format!("{}\n\n{}\n", self.machine.to_text(), table.trim_end());
        text += "\nrunning: by the tenant's own clock; none ran within a hold. P99 of 100 or more;\n\
                 the goal is for P99, or for the worst of fewer; it is not shown where the bare effect misses it too.\n";
        for (part, what, is) in self.bare_meanings() {
            text += &format!("bare, {part}, {what}: {is}\n");
        }
        for row in &self.rows {
            text += &row.refused.as_ref().map_or(String::new(), |why| format!("{}: {why}\n", row.means));
        }
        for absent in &self.absent {
            text += &format!("not measured, {absent}\n");
        }
        text
    }

    /// What each number in the column of bare times is, once for each means.
    fn bare_meanings(&self) -> Vec<(&'static str, &'static str, &'static str)> {
        let mut meanings: Vec<(&str, &str, &str)> = Vec::new();
        for row in &self.rows {
            let meaning = row.bare.as_ref().map(|bare| (row.part.name(), row.what, bare.is));
            meanings.extend(meaning.filter(|meaning| !meanings.contains(meaning)));
        }
        meanings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let few: Vec<f64> = (1..=20).map(|n| f64::from(n) / 100.0).collect();
        let many: Vec<f64> = (1..=200).map(|n| f64::from(n) / 100.0).collect();
        let slow = [2_316.6, 37_000.4];
        let bare = |times: &[f64]| Bare::of("a bare write, and reading until it is frozen", times).unwrap();
        let rows = vec![
            Row::of(Part::Cgroup, "cgroup v2", HOLD, &few).unwrap().with_goal(GOAL_MS, bare(&few)),
            Row::of(Part::Cgroup, "cgroup v2", RELEASE, &many).unwrap().with_goal(GOAL_MS, bare(&few)),
            Row::of(Part::Lock, "lock, idle", HOLD, &many).unwrap().with_goal(GOAL_MS, bare(&many)),
            Row::of(Part::Gate, "gate", "armed before a first launch", &many).unwrap(),
            Row::of(Part::Lock, "lock, busy 12 ms", "release → next kernel done", &many).unwrap(),
            Row::of(Part::Park, "park 512 MiB", HOLD, &slow).unwrap(),
            Row::refused(Part::Park, "park 8 GiB", "the host has no room for it".into()),
        ];
        let machine = Machine::example();
        let absent = vec!["docker pause: the tenants are no containers of Docker".to_owned()];
        Report::of(&Measured { machine, rows, absent })
    }

    #[test]
    fn a_goal_is_judged_by_the_99th_percentile_and_by_the_worst_of_few() {
        let verdicts: Vec<_> = report().rows.iter().map(|row| row.goal.map(|goal| goal.verdict)).take(3).collect();
        assert_eq!(verdicts, [Some(Verdict::Met), Some(Verdict::NotMet), Some(Verdict::NotShown)]);
        assert!(Row::of(Part::Cgroup, "cgroup v2", HOLD, &[]).is_none(), "nothing measured is no row");
    }

    #[test]
    fn the_table_fits_a_hundred_columns_and_says_what_is_missing() {
        let text = report().to_text();
        assert!(text.lines().all(|line| crate::columns::width(line) <= 100), "{text}");
        insta::assert_snapshot!(text);
    }
}
