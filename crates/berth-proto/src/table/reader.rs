//! Reading a table that someone else keeps changing.
//!
//! The table is copied out with `pread`, not through a mapping: whatever happens to the file, cut short included, is an
//! error and never a signal. The fences of the sequence lock order the kernel's copies made for this thread just as they
//! order its own loads. Nothing is ever written, nothing is locked.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{iter, thread};

use super::freshness::{Freshness, Heartbeat, Place};
use super::layout::{
    HEADER_BYTES, HeaderError, LOCKED_HEAD_BYTES, LOCKED_OFFSET, RawHeader, Shape, take_u32, take_u64,
};
use super::row::{Row, Stamp};
use super::seqlock::{self, Source};
use super::sys::{self, WaitMap};

/// Attempts in quick succession; a publish takes microseconds.
const QUICK_ATTEMPTS: u32 = 64;
/// Attempts after those, for a writer that was interrupted in the middle of it.
const SLOW_ATTEMPTS: u32 = 500;
const SLOW_PAUSE: Duration = Duration::from_micros(100);

/// How long to sleep at most before looking whether the file was replaced, of which no futex tells.
const REPLACED_CHECK: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read task table {}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{} is not a regular file, so no task table", .path.display())]
    NotAFile { path: PathBuf },
    #[error("{} {problem}", .path.display())]
    Header { path: PathBuf, problem: HeaderError },
    #[error("task table {} was cut short while being read", .path.display())]
    Truncated { path: PathBuf },
    #[error("task table {} has {count} rows and room for {capacity}", .path.display())]
    RowCount { path: PathBuf, count: u32, capacity: u32 },
    #[error("task table {} was being written at each of {attempts} attempts to read it", .path.display())]
    Busy { path: PathBuf, attempts: u32 },
    #[error("the writer of task table {} (pid {pid}) died while writing it", .path.display())]
    Unfinished { path: PathBuf, pid: u32 },
}

/// One look at the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    /// Ordered by GPU, then by task start.
    pub rows: Vec<Row>,
    /// Tenants there was no room for.
    pub rows_left_out: u32,
    /// When the rows last changed; `None` if nothing was published yet.
    pub updated: Option<Stamp>,
    pub version: Version,
    pub freshness: Freshness,
    pub writer_pid: u32,
}

/// Which contents: two looks with the same version have the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Version {
    /// Tells one writer's file from the next one's.
    pub created_mono_ns: u64,
    pub sequence: u64,
}

/// Follows the table at one path, from writer to writer.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: File,
    shape: Shape,
    place: Place,
    /// Made when first needed.
    wait_map: Option<WaitMap>,
    /// Kept for its allocation.
    rows: Vec<u8>,
}

// === impl Reader ===

impl Reader {
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ReadError> {
        let path = path.into();
        let (file, shape) = open(&path)?;
        Ok(Self { path, file, shape, place: Place::here(), wait_map: None, rows: Vec::new() })
    }

    /// Copies the table out. If a new writer has replaced the file, the new one's.
    pub fn read(&mut self) -> Result<Table, ReadError> {
        self.follow();
        let attempts = iter::repeat_n(Duration::ZERO, QUICK_ATTEMPTS as usize)
            .chain(iter::repeat_n(SLOW_PAUSE, SLOW_ATTEMPTS as usize));
        for pause in attempts {
            if let Some(table) = self.try_read()? {
                return Ok(table);
            }
            if pause.is_zero() { thread::yield_now() } else { thread::sleep(pause) }
        }
        Err(self.gave_up())
    }

    /// Sleeps until the table is no longer at `since`: `false` if it still was after `timeout`.
    ///
    /// A writer that leaves or dies changes nothing in the rows: [`Table::freshness`] tells of that.
    pub fn wait_changed(&mut self, since: Version, timeout: Duration) -> Result<bool, ReadError> {
        let start = Instant::now();
        loop {
            self.follow();
            if self.version()? != since {
                return Ok(true);
            }
            let left = timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            let low = (since.sequence & 0xffff_ffff) as u32;
            self.wait_map()?.wait(low, left.min(REPLACED_CHECK));
        }
    }

    /// The version now. In the middle of a change, that of neither side.
    pub fn version(&self) -> Result<Version, ReadError> {
        let sequence = self.word(offset_of!(RawHeader, sequence))?;
        Ok(Version { created_mono_ns: self.shape.created_mono_ns, sequence })
    }

    /// Whether the writer is still there, without reading any rows.
    pub fn freshness(&self) -> Result<Freshness, ReadError> {
        let beat = Heartbeat {
            last_mono_ns: self.word(offset_of!(RawHeader, heartbeat_mono_ns))?,
            interval_ns: self.shape.heartbeat_interval_ns,
            closed: self.word(offset_of!(RawHeader, closed))? != 0,
        };
        Ok(Freshness::find(&self.shape.writer, &self.place, &beat, sys::monotonic_ns()))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Goes over to the file that now has the path, if ours lost it. As long as that one cannot be opened, ours is
    /// still the last word.
    fn follow(&mut self) {
        let replaced = self.file.metadata().is_ok_and(|file| file.nlink() == 0);
        if replaced && let Ok((file, shape)) = open(&self.path) {
            (self.file, self.shape, self.wait_map) = (file, shape, None);
        }
    }

    fn try_read(&mut self) -> Result<Option<Table>, ReadError> {
        let mut source = FileSource {
            path: &self.path,
            file: &self.file,
            shape: &self.shape,
            head: [0; LOCKED_HEAD_BYTES],
            rows: &mut self.rows,
        };
        let Some(sequence) = seqlock::try_read(&mut source)? else {
            return Ok(None);
        };
        let (head, count) = (source.head, source.row_count());
        let capacity = self.shape.row_capacity;
        if count > capacity {
            return Err(ReadError::RowCount { path: self.path.clone(), count, capacity });
        }
        self.table(sequence, &head).map(Some)
    }

    fn table(&self, sequence: u64, head: &[u8]) -> Result<Table, ReadError> {
        let at = |field: usize| field - LOCKED_OFFSET;
        let updated = Stamp {
            mono_ns: take_u64(head, at(offset_of!(RawHeader, updated_mono_ns))),
            wall_ns: take_u64(head, at(offset_of!(RawHeader, updated_wall_ns))),
        };
        let stride = self.shape.row_bytes as usize;
        Ok(Table {
            rows: self.rows.chunks_exact(stride).filter_map(|row| row.first_chunk()).map(Row::decode).collect(),
            rows_left_out: take_u32(head, at(offset_of!(RawHeader, rows_left_out))),
            updated: (sequence > 0).then_some(updated),
            version: Version { created_mono_ns: self.shape.created_mono_ns, sequence },
            freshness: self.freshness()?,
            writer_pid: self.shape.writer.pid,
        })
    }

    fn gave_up(&self) -> ReadError {
        let path = self.path.clone();
        match self.freshness() {
            Ok(Freshness::WriterGone) => ReadError::Unfinished { path, pid: self.shape.writer.pid },
            Ok(Freshness::Live | Freshness::Stale { .. }) => {
                ReadError::Busy { path, attempts: QUICK_ATTEMPTS + SLOW_ATTEMPTS }
            }
            Err(error) => error,
        }
    }

    fn word(&self, offset: usize) -> Result<u64, ReadError> {
        read_word(&self.file, &self.path, offset)
    }

    fn wait_map(&mut self) -> Result<&WaitMap, ReadError> {
        let map = match self.wait_map.take() {
            Some(map) => map,
            None => WaitMap::new(&self.file).map_err(|source| ReadError::Io { path: self.path.clone(), source })?,
        };
        Ok(self.wait_map.insert(map))
    }
}

// === impl FileSource ===

/// The sequence lock's view of an open file.
struct FileSource<'a> {
    path: &'a Path,
    file: &'a File,
    shape: &'a Shape,
    head: [u8; LOCKED_HEAD_BYTES],
    rows: &'a mut Vec<u8>,
}

impl FileSource<'_> {
    fn row_count(&self) -> u32 {
        take_u32(&self.head, offset_of!(RawHeader, row_count) - LOCKED_OFFSET)
    }
}

impl Source for FileSource<'_> {
    type Error = ReadError;

    fn sequence(&mut self) -> Result<u64, ReadError> {
        read_word(self.file, self.path, offset_of!(RawHeader, sequence))
    }

    fn copy(&mut self) -> Result<(), ReadError> {
        let failed = read_error(self.path);
        self.file.read_exact_at(&mut self.head, LOCKED_OFFSET as u64).map_err(&failed)?;
        // The count may be torn: never read beyond the table for it.
        let rows = self.row_count().min(self.shape.row_capacity) as usize;
        self.rows.resize(rows * self.shape.row_bytes as usize, 0);
        self.file.read_exact_at(self.rows, u64::from(self.shape.header_bytes)).map_err(failed)
    }
}

/// Opening neither waits for the other end of a pipe nor takes a directory for a table.
fn open(path: &Path) -> Result<(File, Shape), ReadError> {
    let failed = read_error(path);
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(&failed)?;
    let metadata = file.metadata().map_err(&failed)?;
    if !metadata.is_file() {
        return Err(ReadError::NotAFile { path: path.to_owned() });
    }
    let mut header = [0; HEADER_BYTES];
    let bytes = header.len().min(usize::try_from(metadata.len()).unwrap_or(usize::MAX));
    file.read_exact_at(&mut header[..bytes], 0).map_err(failed)?;
    Shape::decode(&header[..bytes], metadata.len())
        .map(|shape| (file, shape))
        .map_err(|problem| ReadError::Header { path: path.to_owned(), problem })
}

fn read_word(file: &File, path: &Path, offset: usize) -> Result<u64, ReadError> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, offset as u64).map_err(read_error(path))?;
    Ok(u64::from_le_bytes(word))
}

fn read_error(path: &Path) -> impl Fn(io::Error) -> ReadError {
    move |source| match source.kind() {
        io::ErrorKind::UnexpectedEof => ReadError::Truncated { path: path.to_owned() },
        _ => ReadError::Io { path: path.to_owned(), source },
    }
}
