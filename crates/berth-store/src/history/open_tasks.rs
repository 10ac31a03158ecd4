//! Tasks that are under way, in one small file: what a daemon that is killed can no longer tell of them.
//!
//! The same lines as everywhere in the history. The file is replaced whole by a rename, so that a kill leaves the old or the new
//! one; a power failure may cost it. Whoever opens the history next writes down what it says, and begins with an empty one.

use std::io;

use berth_model::deadline::Unit;
use berth_model::history::{Happening, LeftOpen, Record};

use super::line::{self, Line};
use super::segments;
use crate::place::Place;

const NAME: &str = "open.v1.jsonl";
const SCRATCH: &str = "open.new";

/// Puts these in the place of those before.
pub fn write(place: &Place, records: &[Record]) -> io::Result<()> {
    let mut lines = Vec::new();
    for record in records {
        // One too long to be a line is left out: it would not be written down at its end either.
        line::encode(record, &mut lines);
    }
    place.replace(NAME, SCRATCH, &lines)
}

/// What stands in it; lines that cannot be read are left out.
pub fn read(place: &Place) -> io::Result<Vec<Record>> {
    let bytes = match place.read(NAME) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        bytes => bytes?,
    };
    let lines = bytes[..segments::whole(&bytes)].split(|byte| *byte == b'\n');
    let records = lines.filter_map(|line| match line::decode(line) {
        Line::Record(record) => Some(*record),
        Line::Unknown | Line::Damaged => None,
    });
    Ok(records.collect())
}

/// It tells the end of a task, not that it was lost sight of.
pub fn has_ended(record: &Record) -> bool {
    matches!(&record.what, Happening::Task(story) if story.end.is_some())
}

/// A unit that has been judged since is not under way: the file is not replaced for each burst. Of one whose end nobody saw the record
/// was written later, and says nothing of what began meanwhile.
pub fn forget_judged(open: &mut Record, record: &Record) {
    let (Happening::Task(story), Happening::Judged(judgement)) = (&mut open.what, &record.what) else { return };
    let Some(LeftOpen { left, .. }) = story.left.as_deref_mut() else { return };
    let Some(unit) = left.open.as_ref().filter(|_| open.tenant == record.tenant) else { return };
    let began =
        open.at.saturating_sub(jiff::SignedDuration::try_from(left.heard.since(unit.started)).unwrap_or_default());
    let is_known_until = if judgement.seconds.is_some() { record.at } else { judgement.started_at };
    if began.is_ok_and(|began| is_known_until >= began) {
        left.open = None;
        left.serves |= judgement.unit == Unit::Burst;
    }
}

/// Both are of the same task.
pub fn is_same(one: &Record, other: &Record) -> bool {
    match (&one.what, &other.what) {
        (Happening::Task(a), Happening::Task(b)) => {
            one.tenant == other.tenant && (a.task_id, a.started_at) == (b.task_id, b.started_at)
        }
        _ => false,
    }
}
