//! Writing: records at the end of the newest segment. Each daemon begins one of its own, so that what a crash has torn is never
//! written behind.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use berth_model::watch::series::Key;

use super::frame::{self, Record};
use super::names::{Named, Names};
use super::segment::{self, Segment, Tier};
use super::{Limits, SeriesError};
use crate::lock::{self, Lock};
use crate::place::Place;

/// Values in one record: at 15 bytes each they fit in every case.
const MOST_VALUES: usize = 2_000;

/// The right to write, for as long as it lives.
#[derive(Debug)]
pub struct Appender {
    place: Place,
    _lock: Lock,
    limits: Limits,
    names: Names,
    current: Option<Current>,
    next_number: u64,
}

/// The segment that grows.
#[derive(Debug)]
struct Current {
    number: u64,
    file: File,
    /// In whole records.
    length: u64,
    /// A write that failed may have left part of a record behind `length`.
    is_torn: bool,
    from_ms: i64,
}

impl Appender {
    /// Makes the directory if it is missing.
    pub fn open(dir: &Path, limits: Limits, proc_root: &Path) -> Result<Appender, SeriesError> {
        let place = Place::make(dir)?;
        let failed = |source| SeriesError::Lock { path: dir.to_owned(), source };
        let claimed = lock::claim(&place, proc_root).map_err(failed)?;
        let lock = claimed.map_err(|_| SeriesError::InUse { path: dir.to_owned() })?;
        let listed =
            segment::list(&place).map_err(|source| SeriesError::List { path: dir.to_owned(), source })?.segments;
        let next_number = listed.last().map_or(1, |last| last.number + 1);
        let names = Names::new(limits.most_series);
        Ok(Appender { place, _lock: lock, limits, names, current: None, next_number })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The segment that may still grow; those before it do not change.
    pub fn growing(&self) -> u64 {
        self.current.as_ref().map_or(self.next_number, |current| current.number)
    }

    /// Values of one instant. If it fails, none of them is written. `true` if a new segment was begun.
    pub fn append(&mut self, at_ms: i64, values: Vec<(Key, f64)>) -> Result<bool, SeriesError> {
        let is_new = self.make_room(at_ms).map_err(|source| self.failed(source))?;
        let Some(current) = &mut self.current else { return Ok(is_new) };
        let mut bytes = Vec::new();
        if current.length == 0 {
            current.from_ms = at_ms;
            frame::encode(&Record::Begins { from_ms: at_ms }, &mut bytes);
        }
        let before = self.names.next();
        let named = name(&mut self.names, at_ms, values, &mut bytes);
        for part in named.chunks(MOST_VALUES) {
            frame::encode(&Record::Points { at_ms, values: part.to_vec() }, &mut bytes);
        }
        let written = current.write(&bytes);
        if written.is_err() {
            // What named them is not in the segment.
            self.names.forget_from(before);
        }
        written.map_err(|source| self.failed(source)).map(|()| is_new)
    }

    /// What was written stays, whatever happens to the machine.
    pub fn sync(&self) -> Result<(), SeriesError> {
        let synced = self.current.as_ref().map_or(Ok(()), |current| current.file.sync_data());
        synced.map_err(|source| self.failed(source))
    }

    fn make_room(&mut self, at_ms: i64) -> io::Result<bool> {
        let has_room = self.current.as_ref().is_some_and(|current| {
            let age = at_ms.saturating_sub(current.from_ms);
            current.length == 0
                || (current.length < self.limits.segment_bytes && (0..self.limits.segment_ms).contains(&age))
        });
        if has_room {
            return Ok(false);
        }
        if let Some(full) = &mut self.current {
            full.mend()?;
            full.file.sync_data()?;
        }
        let number = self.next_number;
        let file = self.place.growing(&Segment { number, tier: Tier::Points }.name())?;
        self.place.sync()?;
        self.current = Some(Current { number, file, length: 0, is_torn: true, from_ms: at_ms });
        self.next_number += 1;
        self.names.clear();
        Ok(true)
    }

    fn failed(&self, source: io::Error) -> SeriesError {
        let path = self.place.path().join(Segment { number: self.growing(), tier: Tier::Points }.name());
        SeriesError::Write { path, source }
    }

    #[cfg(test)]
    pub fn swap_file(&mut self, file: File) -> File {
        std::mem::replace(&mut self.current.as_mut().unwrap().file, file)
    }
}

impl Current {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = self.mend().and_then(|()| self.file.write_all(bytes));
        if written.is_ok() {
            self.length += bytes.len() as u64;
        } else {
            self.is_torn = true;
            // Tried again before the next record; the first error is the one to tell.
            let _ = self.mend();
        }
        written
    }

    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        Ok(())
    }
}

/// The numbers by which values are written; what names the new ones is added to `bytes`.
fn name(names: &mut Names, at_ms: i64, values: Vec<(Key, f64)>, bytes: &mut Vec<u8>) -> Vec<(u32, f64)> {
    let mut named = Vec::with_capacity(values.len());
    for (key, value) in values {
        let id = match names.name(key, at_ms) {
            Named::Known(id) => id,
            Named::New(id, key) => {
                if !frame::encode(&Record::Names { id, key: Box::new(key) }, bytes) {
                    // A name longer than a record: its values would be nobody's.
                    continue;
                }
                id
            }
        };
        named.push((id, value));
    }
    named
}

/// Where a segment is, for messages.
pub fn path(place: &Place, segment: Segment) -> PathBuf {
    place.path().join(segment.name())
}
