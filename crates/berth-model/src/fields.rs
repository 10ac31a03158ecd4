//! The one list of what is shown about a tenant on a GPU: tables, the live view and `--help` read it.

mod deadline;

use crate::snapshot::{HoldRow, HoldStage, TaskRow, TaskState};
pub use deadline::{DEADLINE, FLOAT, FROM, HITS, UNIT, hits, signed};

/// A column: its name (as in JSON, with dots where it is inside of something), its heading, what it means, and how it reads.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub heading: &'static str,
    pub help: &'static str,
    /// Numbers line up on the right.
    pub numeric: bool,
    pub text: fn(&TaskRow) -> String,
}

/// In the order people read them.
pub const FIELDS: [Field; 9] = [
    Field {
        name: "gpu_index",
        heading: "GPU",
        help: "index of the GPU",
        numeric: true,
        text: |row| row.gpu_index.map_or_else(unknown, |gpu| gpu.to_string()),
    },
    Field {
        name: "container_name",
        heading: "TENANT",
        help: "container name, cgroup path or user",
        numeric: false,
        text: |row| row.container_name.clone(),
    },
    Field {
        name: "container_id",
        heading: "CONTAINER ID",
        help: "container id, shortened as in docker ps",
        numeric: false,
        text: |row| row.container_id.as_ref().map_or_else(unknown, |id| id.short().to_owned()),
    },
    Field {
        name: "owner",
        heading: "OWNER",
        help: "who the tenant belongs to",
        numeric: false,
        text: |row| row.owner.clone().unwrap_or_else(unknown),
    },
    Field {
        name: "state",
        heading: "STATE",
        help: "opening, loaded, computing, idle or lost",
        numeric: false,
        text: |row| row.state.as_str().to_owned(),
    },
    Field {
        name: "gpu_memory_bytes",
        heading: "MEMORY",
        help: "GPU memory held",
        numeric: true,
        text: |row| row.gpu_memory_bytes.map_or_else(unknown, |bytes| bytes.to_string()),
    },
    Field {
        name: "gpu_core_pct",
        heading: "CORE",
        help: "share of the GPU's time used by this tenant",
        numeric: true,
        text: |row| row.gpu_core_pct.map_or_else(unknown, |pct| pct.to_string()),
    },
    Field {
        name: "task_seconds",
        heading: "SINCE",
        help: "how long the task has been on the GPU",
        numeric: true,
        text: |row| row.task_seconds.map_or_else(unknown, elapsed),
    },
    Field {
        name: "pids",
        heading: "PIDS",
        help: "host process ids",
        numeric: false,
        text: |row| row.pids.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
    },
];

/// Shown when anybody is held, gated or exempt.
pub const HOLD: Field = Field {
    name: "hold",
    heading: "HOLD",
    help: "held with how long in this task, its place in line, gated (stops at its next launch), exempt, or what a dry run would do",
    numeric: false,
    text: |row| row.hold.as_ref().map_or_else(unknown, hold_text),
};

/// Shown where there is room for it.
pub const REASON: Field = Field {
    name: "hold.reason",
    heading: "BECAUSE",
    help: "why it is held or exempt, and for whom it waits",
    numeric: false,
    text: |row| row.hold.as_ref().map_or_else(unknown, |hold| hold.reason.clone()),
};

/// What to show of these rows, in order: [`FIELDS`], what is done to somebody where somebody is, and deadlines where there are any.
pub fn shown_of<'a>(rows: impl IntoIterator<Item = &'a TaskRow>, wide: bool) -> Vec<Field> {
    let (mut is_held, mut has_deadline) = (false, false);
    for row in rows {
        is_held |= row.hold.is_some();
        has_deadline |= row.deadline.is_some();
    }
    let mut fields = FIELDS.to_vec();
    if is_held {
        insert_after(&mut fields, "state", &[HOLD]);
    }
    if has_deadline {
        insert_after(&mut fields, "task_seconds", &[DEADLINE, FLOAT, HITS]);
    }
    if has_deadline && wide {
        fields.extend([UNIT, FROM]);
    }
    if is_held && wide {
        fields.push(REASON);
    }
    fields
}

fn insert_after(fields: &mut Vec<Field>, name: &str, more: &[Field]) {
    let at = fields.iter().position(|field| field.name == name).map_or(fields.len(), |at| at + 1);
    fields.splice(at..at, more.iter().copied());
}

fn hold_text(hold: &HoldRow) -> String {
    match (hold.stage, hold.place, hold.places) {
        (HoldStage::Held, Some(place), Some(places)) if places > 1 => format!("#{place} of {places}"),
        (HoldStage::WouldHold, Some(place), Some(places)) if places > 1 => format!("dry #{place} of {places}"),
        (HoldStage::WouldHold, ..) => "dry held".to_owned(),
        (HoldStage::WouldGate, ..) => "dry gated".to_owned(),
        (HoldStage::Held, ..) => format!("held {}", whole(hold.held_seconds)),
        (HoldStage::Gated, ..) => "gated".to_owned(),
        (HoldStage::Exempt, ..) => "exempt".to_owned(),
        (HoldStage::Moving, ..) if hold.means.is_some() => "holding".to_owned(),
        (HoldStage::Moving, ..) => "releasing".to_owned(),
    }
}

/// `14s`; from a minute on as [`elapsed`].
fn whole(seconds: f64) -> String {
    if seconds < 60.0 { format!("{seconds:.0}s") } else { elapsed(seconds) }
}

fn unknown() -> String {
    "-".to_owned()
}

/// `3.2s`, `4m07s`, `2h05m`, `3d04h`.
pub fn elapsed(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped; shown as whole seconds")]
    let whole = seconds.clamp(0.0, 1e15) as u64;
    match whole {
        0..60 => format!("{seconds:.1}s"),
        60..3600 => format!("{}m{:02}s", whole / 60, whole % 60),
        3600..86_400 => format!("{}h{:02}m", whole / 3600, whole / 60 % 60),
        _ => format!("{}d{:02}h", whole / 86_400, whole / 3600 % 24),
    }
}

impl TaskState {
    pub fn as_str(self) -> &'static str {
        match self {
            TaskState::Opening => "opening",
            TaskState::Loaded => "loaded",
            TaskState::Computing => "computing",
            TaskState::Idle => "idle",
            TaskState::Lost => "lost",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elapsed_time_keeps_two_units() {
        let shown = [3.21, 247.0, 7_500.0, 273_600.0].map(elapsed);
        assert_eq!(shown, ["3.2s", "4m07s", "2h05m", "3d04h"]);
    }

    fn hold(stage: HoldStage) -> HoldRow {
        HoldRow {
            stage,
            means: Some(crate::hold::Means::Gate),
            by_uid: None,
            reason: "`b` computes".into(),
            stands_at: None,
            since: jiff::Timestamp::UNIX_EPOCH,
            held_seconds: 14.2,
            place: None,
            places: None,
            behind: None,
            expected_at: None,
            until: None,
        }
    }

    #[test]
    fn a_hold_is_a_short_word() {
        let said = |hold: HoldRow| hold_text(&hold);
        assert_eq!(said(hold(HoldStage::Held)), "held 14s");
        assert_eq!(said(HoldRow { held_seconds: 247.0, ..hold(HoldStage::Held) }), "held 4m07s");
        assert_eq!(said(HoldRow { place: Some(2), places: Some(3), ..hold(HoldStage::Held) }), "#2 of 3");
        assert_eq!(said(HoldRow { place: Some(1), places: Some(1), ..hold(HoldStage::Held) }), "held 14s");
        assert_eq!((said(hold(HoldStage::Gated)), said(hold(HoldStage::Exempt))), ("gated".into(), "exempt".into()));
        assert_eq!(said(hold(HoldStage::Moving)), "holding");
        assert_eq!(said(HoldRow { place: Some(2), places: Some(3), ..hold(HoldStage::WouldHold) }), "dry #2 of 3");
        assert_eq!(
            (said(hold(HoldStage::WouldHold)), said(hold(HoldStage::WouldGate))),
            ("dry held".into(), "dry gated".into())
        );
        assert_eq!(said(HoldRow { means: None, ..hold(HoldStage::Moving) }), "releasing");
    }

    #[test]
    fn holds_are_shown_only_where_somebody_is_held() {
        let (free, held) = (row(), TaskRow { hold: Some(hold(HoldStage::Gated)), ..row() });
        let headings = |rows: &[&TaskRow], wide| {
            let fields = shown_of(rows.iter().copied(), wide);
            fields.iter().map(|field| field.heading).filter(|heading| ["HOLD", "BECAUSE"].contains(heading)).count()
        };
        assert_eq!((headings(&[&free], true), headings(&[&free, &held], false)), (0, 1));
        assert_eq!(headings(&[&free, &held], true), 2);
        assert_eq!(((HOLD.text)(&free), (REASON.text)(&held)), ("-".into(), "`b` computes".into()));
    }

    #[test]
    fn deadlines_are_shown_only_where_somebody_has_one() {
        let due = TaskRow { deadline: Some(crate::testing::deadline(4.0)), ..row() };
        let names = |rows: &[&TaskRow], wide| {
            let fields = shown_of(rows.iter().copied(), wide);
            let of_deadlines = fields.iter().filter(|field| field.name.starts_with("deadline"));
            of_deadlines.map(|field| field.heading).collect::<Vec<_>>()
        };
        assert_eq!(names(&[&row()], true), [""; 0]);
        assert_eq!(names(&[&row(), &due], false), ["DEADLINE", "FLOAT", "HITS"]);
        assert_eq!(names(&[&row(), &due], true), ["DEADLINE", "FLOAT", "HITS", "UNIT", "DEADLINE FROM"]);
    }

    fn row() -> TaskRow {
        crate::testing::row(crate::TenantKey::User { uid: 0 }, "root")
    }

    /// The names are where the values are; of one who has a hold and a deadline everything is there.
    #[test]
    fn every_field_is_a_key_of_the_json_row() {
        let (hold, deadline) = (Some(hold(HoldStage::Held)), Some(crate::testing::deadline(4.0)));
        let row = TaskRow { hold, deadline, ..row() };
        let json = serde_json::to_value(&row).unwrap();
        for field in shown_of([&row], true) {
            let pointer = format!("/{}", field.name.replace('.', "/"));
            assert!(json.pointer(&pointer).is_some(), "{} is not in the JSON", field.name);
            assert!(!(field.text)(&row).is_empty(), "{} is shown as nothing", field.name);
        }
    }
}
