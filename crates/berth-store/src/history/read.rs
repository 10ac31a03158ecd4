//! Reading: the newest records that match, or the last ones again in the order they were written. One segment at a time is in
//! memory.

use std::io;
use std::path::Path;

use berth_model::history::{Meant, Query, Record, Told};

use super::line::{Line, decode};
use super::{HistoryError, open_tasks, segments};
use crate::place::{Place, PlaceError};

/// Answers a query, newest first: of those who are called so, or where nobody is, of those who may be meant. A history nobody has
/// written yet is empty.
pub fn read(dir: &Path, query: &Query) -> Result<Told, HistoryError> {
    let place = match Place::open(dir) {
        Err(PlaceError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Told::default()),
        place => place?,
    };
    let trace = query.whom.as_deref().map(trace_of);
    let (mut told, mut perhaps) = (Told::default(), Told::default());
    for number in numbers(&place)?.into_iter().rev() {
        let Some(lines) = lines(&place, number)? else { continue };
        let (mut has_records, mut is_old) = (false, true);
        for line in lines.iter().rev() {
            // Reading a line as text is cheap, reading it as a record is not.
            if trace.as_ref().is_some_and(|trace| !String::from_utf8_lossy(line).contains(trace)) {
                is_old = false;
                continue;
            }
            match decode(line) {
                Line::Damaged => told.damaged += 1,
                Line::Unknown => {}
                Line::Record(record) => {
                    has_records = true;
                    is_old &= query.since.is_some_and(|since| record.at < since);
                    match query.meant(&record) {
                        Some(Meant::Surely) => add(&mut told, *record, query.limit),
                        Some(Meant::Perhaps) => add(&mut perhaps, *record, query.limit),
                        None => {}
                    }
                    if told.is_cut {
                        return Ok(told);
                    }
                }
            }
        }
        // Clocks are set back by less than a segment takes to fill.
        if has_records && is_old {
            break;
        }
    }
    Ok(if told.records.is_empty() { Told { damaged: told.damaged, ..perhaps } } else { told })
}

fn add(told: &mut Told, record: Record, limit: usize) {
    if told.records.len() < limit {
        told.records.push(record);
    } else {
        told.is_cut = true;
    }
}

/// Tasks that were under way when a daemon last wrote them down: without one, nobody has written down how they ended.
pub fn under_way(dir: &Path) -> Result<Vec<Record>, HistoryError> {
    let place = match Place::open(dir) {
        Err(PlaceError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        place => place?,
    };
    open_tasks::read(&place).map_err(|source| HistoryError::Read { path: dir.to_owned(), source })
}

/// The last records in the order they were written: of the newest segments that have no more than `most` bytes together.
/// How many lines could not be read.
pub(super) fn replay(place: &Place, most: u64, mut each: impl FnMut(Record)) -> Result<u64, HistoryError> {
    let (mut chosen, mut bytes, mut damaged) = (Vec::new(), 0, 0);
    for number in numbers(place)?.into_iter().rev() {
        bytes += place.file(&segments::name(number)).and_then(|file| file.metadata()).map_or(0, |found| found.len());
        if bytes > most && !chosen.is_empty() {
            break;
        }
        chosen.push(number);
    }
    for number in chosen.into_iter().rev() {
        let Some(lines) = lines(place, number)? else { continue };
        for line in lines.iter() {
            match decode(line) {
                Line::Record(record) => each(*record),
                Line::Damaged => damaged += 1,
                Line::Unknown => {}
            }
        }
    }
    Ok(damaged)
}

fn numbers(place: &Place) -> Result<Vec<u64>, HistoryError> {
    segments::numbers(place).map_err(|source| HistoryError::List { path: place.path().to_owned(), source })
}

fn lines(place: &Place, number: u64) -> Result<Option<segments::Lines>, HistoryError> {
    let failed = |source| HistoryError::Read { path: place.path().join(segments::name(number)), source };
    segments::lines(place, number).map_err(failed)
}

/// What stands in every line that may be meant: a key's kind and the beginning of a path need not.
fn trace_of(whom: &str) -> String {
    let rest = whom.split_once(':').map_or(whom, |(_, rest)| rest).trim_start_matches('/');
    let quoted = serde_json::Value::from(rest).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}
