//! What is shown of a tenant's deadline: the deadline, what is left of it, and how often it was met.

use super::{Field, elapsed, unknown};
use crate::deadline::{Origin, Tally};
use crate::snapshot::{DeadlineRow, TaskRow};

/// Shown when anybody has a deadline, as [`FLOAT`] and [`HITS`] are.
pub const DEADLINE: Field = Field {
    name: "deadline",
    heading: "DEADLINE",
    help: "how long a unit of its work may take; `set` by a person; `1s -> 5s` where the bounds do not allow what was asked",
    numeric: false,
    text: |row| of(row, deadline_text),
};

pub const FLOAT: Field = Field {
    name: "deadline.work.float_seconds",
    heading: "FLOAT",
    help: "time left until its work under way is due, below zero once it is late",
    numeric: true,
    text: |row| of(row, |deadline| deadline.work.as_ref().map_or_else(unknown, |work| signed(work.float_seconds))),
};

pub const HITS: Field = Field {
    name: "deadline.tally",
    heading: "HITS",
    help: "units of its work that met their deadline, of those that were seen to end",
    numeric: true,
    text: |row| of(row, |deadline| hits(deadline.tally)),
};

/// Shown where there is room for it, as [`FROM`] is.
pub const UNIT: Field = Field {
    name: "deadline.unit",
    heading: "UNIT",
    help: "what the deadline is for: the task, or each burst of it",
    numeric: false,
    text: |row| of(row, |deadline| deadline.unit.as_str().to_owned()),
};

pub const FROM: Field = Field {
    name: "deadline.from",
    heading: "DEADLINE FROM",
    help: "who gave the deadline, and the bound that changed it",
    numeric: false,
    text: |row| of(row, from),
};

fn of(row: &TaskRow, text: impl Fn(&DeadlineRow) -> String) -> String {
    row.deadline.as_ref().map_or_else(unknown, text)
}

fn deadline_text(row: &DeadlineRow) -> String {
    let asked = row.asked.map(|asked| format!("{asked} -> ")).unwrap_or_default();
    let set = if matches!(row.origin, Origin::Set { .. }) { " set" } else { "" };
    format!("{asked}{}{set}", row.deadline)
}

/// `12/14`; a dash while nothing was judged.
pub fn hits(Tally { hits, misses, .. }: Tally) -> String {
    if hits + misses == 0 { unknown() } else { format!("{hits}/{}", hits + misses) }
}

/// `label`, or `set by root, bound everybody 5s..`.
fn from(row: &DeadlineRow) -> String {
    let who = match row.origin {
        Origin::Set { by_uid: 0 } => "set by root".to_owned(),
        Origin::Set { by_uid } => format!("set by user {by_uid}"),
        Origin::Label => "label".to_owned(),
        Origin::StockLabel => "label made of -dl".to_owned(),
    };
    let bound = row.bound.as_ref().map(|bound| format!(", bound {bound}")).unwrap_or_default();
    who + &bound
}

/// As [`elapsed`], below zero with its sign.
pub fn signed(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "-" } else { "" };
    format!("{sign}{}", elapsed(seconds.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::Unit;
    use crate::testing;

    fn row(change: impl FnOnce(&mut DeadlineRow)) -> TaskRow {
        let mut deadline = testing::deadline(-0.04);
        change(&mut deadline);
        TaskRow { deadline: Some(deadline), ..testing::row(crate::TenantKey::User { uid: 0 }, "root") }
    }

    #[test]
    fn float_counts_down_and_keeps_its_sign_when_it_is_late() {
        assert_eq!([4.24, -0.04, -247.0, 7_500.0].map(signed), ["4.2s", "-0.0s", "-4m07s", "2h05m"]);
        assert_eq!((FLOAT.text)(&row(|_| ())), "-0.0s");
        assert_eq!((FLOAT.text)(&row(|deadline| deadline.work = None)), "-", "between bursts nothing is due");
    }

    #[test]
    fn an_override_and_a_bound_are_seen() {
        let said = |change: fn(&mut DeadlineRow)| {
            let row = row(change);
            ((DEADLINE.text)(&row), (FROM.text)(&row))
        };
        let both = |deadline: &str, from: &str| (deadline.to_owned(), from.to_owned());
        assert_eq!(said(|_| ()), both("9s", "label"));
        assert_eq!(said(|row| row.origin = Origin::StockLabel), both("9s", "label made of -dl"));
        let set = said(|row| row.origin = Origin::Set { by_uid: 1000 });
        assert_eq!(set, both("9s set", "set by user 1000"));
        let bound = said(|row| {
            (row.asked, row.bound) = (Some("1s".parse().unwrap()), Some("everybody 9s..".into()));
        });
        assert_eq!(bound, both("1s -> 9s", "label, bound everybody 9s.."));
    }

    #[test]
    fn what_nobody_saw_end_is_neither_hit_nor_miss() {
        let tally = |hits, misses, unknown| super::hits(Tally { hits, misses, unknown });
        assert_eq!([tally(12, 2, 5), tally(0, 3, 0), tally(0, 0, 4)], ["12/14", "0/3", "-"]);
        assert_eq!((UNIT.text)(&row(|deadline| deadline.unit = Unit::Burst)), "burst");
    }
}
