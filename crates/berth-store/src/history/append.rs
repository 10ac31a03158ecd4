//! Writing: lines at the end of the newest segment, a new segment when it is full, the oldest removed when there are too many.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{HistoryError, segments};
use crate::lock::{self, Lock};
use crate::place::Place;

/// Segments a history is made of at least, so that removing the oldest leaves most of it.
const LEAST_SEGMENTS: u64 = 4;
const SMALLEST_SEGMENT: u64 = 64 << 10;

/// The right to write on, for as long as it lives.
#[derive(Debug)]
pub struct Appender {
    place: Place,
    _lock: Lock,
    number: u64,
    file: File,
    /// Of the segment, in whole lines.
    length: u64,
    /// A write that failed may have left part of a line behind `length`.
    is_torn: bool,
    /// Bytes to keep in all.
    most: u64,
}

impl Appender {
    /// Makes the directory if it is missing, and cuts off what a crash left of a line.
    pub fn open(dir: &Path, most: u64, proc_root: &Path) -> Result<Appender, HistoryError> {
        let place = Place::make(dir)?;
        let lock = locked(&place, proc_root)?;
        let failed = |source| HistoryError::List { path: dir.to_owned(), source };
        let number = segments::numbers(&place).map_err(failed)?.last().copied().unwrap_or(1);
        let opened = open_segment(&place, number);
        let (file, length) = opened.map_err(|source| HistoryError::Write { path: path(&place, number), source })?;
        Ok(Appender { place, _lock: lock, number, file, length, is_torn: false, most })
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Whole lines. If it fails, none of them is written.
    pub fn append(&mut self, lines: &[u8]) -> Result<(), HistoryError> {
        let written = self.make_room(lines.len()).and_then(|()| self.mend()).and_then(|()| self.file.write_all(lines));
        if written.is_ok() {
            self.length += lines.len() as u64;
        } else {
            self.is_torn = true;
            // Tried again before the next line; the first error is the one to tell.
            let _ = self.mend();
        }
        written.map_err(|source| HistoryError::Write { path: path(&self.place, self.number), source })
    }

    /// What was written stays, whatever happens to the machine.
    pub fn sync(&self) -> Result<(), HistoryError> {
        let failed = |source| HistoryError::Write { path: path(&self.place, self.number), source };
        self.file.sync_data().map_err(failed)
    }

    fn mend(&mut self) -> io::Result<()> {
        if self.is_torn {
            self.file.set_len(self.length)?;
            self.is_torn = false;
        }
        Ok(())
    }

    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        let segment = (self.most / LEAST_SEGMENTS).clamp(SMALLEST_SEGMENT, segments::LARGEST);
        if self.length == 0 || self.length + bytes as u64 <= segment {
            return Ok(());
        }
        self.mend()?;
        self.file.sync_data()?;
        let (file, length) = open_segment(&self.place, self.number + 1)?;
        (self.file, self.length, self.number) = (file, length, self.number + 1);
        self.sweep(segment)
    }

    /// Removes the oldest until the newest has room to grow.
    fn sweep(&self, segment: u64) -> io::Result<()> {
        let older: Vec<u64> = segments::numbers(&self.place)?.into_iter().filter(|one| *one < self.number).collect();
        let mut kept = segment;
        for number in older.into_iter().rev() {
            let name = segments::name(number);
            kept += self.place.file(&name)?.metadata()?.len();
            if kept > self.most {
                self.place.remove(&name)?;
            }
        }
        Ok(())
    }
}

fn locked(place: &Place, proc_root: &Path) -> Result<Lock, HistoryError> {
    let failed = |source| HistoryError::Lock { path: place.path().to_owned(), source };
    let claimed = lock::claim(place, proc_root).map_err(failed)?;
    claimed
        .map_err(|holder| HistoryError::InUse { path: place.path().to_owned(), pid: holder.map(|holder| holder.pid) })
}

/// With the length of its whole lines, to which it is cut.
fn open_segment(place: &Place, number: u64) -> io::Result<(File, u64)> {
    let name = segments::name(number);
    let file = place.growing(&name)?;
    let length = segments::lines(place, number)?.map_or(0, |lines| lines.bytes());
    if file.metadata()?.len() != length {
        file.set_len(length)?;
    }
    place.sync()?;
    Ok((file, length))
}

fn path(place: &Place, number: u64) -> PathBuf {
    place.path().join(segments::name(number))
}
