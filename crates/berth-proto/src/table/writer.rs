//! The one writer of a table.
//!
//! A new writer makes a new file and moves it into place, so that whoever reads the old one keeps a whole, if old, table.
//! A lock file beside the table, which only its owner may open, keeps a second writer away; the kernel drops the lock
//! with the process, so a writer that was killed leaves nothing to clean up. The directory must exist.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read};
use std::iter;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::layout::{HEADER_BYTES, HEARTBEAT_INTERVAL, LOCKED_HEAD_BYTES, MAGIC, MAX_ROWS, ROW_BYTES, Shape, WriterId};
use super::row::{Row, Stamp};
use super::seqlock;
use super::sys::{self, WriterMap};

#[derive(Debug, thiserror::Error)]
pub enum TableError {
    #[error("cannot make a task table of {rows} rows: 1 to {MAX_ROWS} are possible")]
    Rows { rows: u32 },
    #[error("task table {} has another writer{}", .path.display(), .pid.map(|pid| format!(", pid {pid}")).unwrap_or_default())]
    Owned { path: PathBuf, pid: Option<u32> },
    #[error("{} is no task table: refusing to replace it", .path.display())]
    Foreign { path: PathBuf },
    #[error("cannot allocate {bytes} bytes for task table {}", .path.display())]
    Allocate { path: PathBuf, bytes: u64, source: io::Error },
    #[error("cannot {attempt} {}", .path.display())]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("task table {} was removed, replaced or cut short under its writer", .path.display())]
    Lost { path: PathBuf },
}

/// What publishing did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Published {
    Changed,
    /// The rows were those of last time: readers see nothing but the heartbeat.
    Unchanged,
}

/// Keeps a table up to date for as long as it lives; dropping it marks the table as closed.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    map: WriterMap,
    capacity: usize,
    /// What readers see, so that the shared memory need not be read: [`encode`]'s words. Empty before the first time.
    current: Vec<u64>,
    /// Kept for its allocation.
    next: Vec<u64>,
    /// Held, never used.
    _lock: Lock,
}

/// Keeps other writers away.
#[derive(Debug)]
struct Lock(File);

/// The locked words before the rows: counts, two times, and reserved ones.
const HEAD_WORDS: usize = LOCKED_HEAD_BYTES / 8;

impl Writer {
    /// Takes over the table at `path`, with room for `rows` rows, none of them set.
    pub fn create(path: impl Into<PathBuf>, rows: u32) -> Result<Self, TableError> {
        let path = path.into();
        if !(1..=MAX_ROWS).contains(&rows) {
            return Err(TableError::Rows { rows });
        }
        let lock = lock(&path)?;
        check_replaceable(&path)?;
        let new = with_suffix(&path, ".new");
        let (file, map) = build(&new, &shape(rows)).inspect_err(|_| {
            // A leftover is harmless, and the first error is the one to tell.
            let _ = fs::remove_file(&new);
        })?;
        fs::rename(&new, &path).map_err(io_error("put in place the task table", &path))?;
        let capacity = rows as usize;
        Ok(Self { path, file, map, capacity, current: Vec::new(), next: Vec::new(), _lock: lock })
    }

    /// Makes `rows` what readers see. Rows beyond the table's capacity are left out and counted.
    pub fn publish(&mut self, rows: &[Row], now: Stamp) -> Result<Published, TableError> {
        self.heartbeat(now.mono_ns)?;
        encode(&mut self.next, rows, self.capacity);
        if self.next == self.current {
            return Ok(Published::Unchanged);
        }
        let (counts, rows) = self.next.split_first().map_or((0, &[][..]), |(counts, rows)| (*counts, rows));
        let head = [counts, now.mono_ns, now.wall_ns].into_iter().chain(iter::repeat(0)).take(HEAD_WORDS);
        // Rows of last time that are no more are cleared, so that nothing but current rows is ever in the file.
        let cleared = iter::repeat_n(0, self.current.len().saturating_sub(self.next.len()));
        let words = head.chain(rows.iter().copied()).chain(cleared);
        seqlock::write(self.map.sequence(), self.map.locked(), words);
        self.map.wake_readers();
        std::mem::swap(&mut self.current, &mut self.next);
        Ok(Published::Changed)
    }

    /// Shows that the writer lives; to be called once in every [`HEARTBEAT_INTERVAL`] without a publish.
    pub fn heartbeat(&self, now_mono_ns: u64) -> Result<(), TableError> {
        self.check_intact()?;
        self.map.heartbeat().store(now_mono_ns, Ordering::Relaxed);
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writing to a page the file no longer has would kill this process, and a file without a name has no readers.
    fn check_intact(&self) -> Result<(), TableError> {
        let expected = (HEADER_BYTES + ROW_BYTES * self.capacity) as u64;
        let intact = self.file.metadata().is_ok_and(|file| file.nlink() > 0 && file.len() >= expected);
        intact.then_some(()).ok_or_else(|| TableError::Lost { path: self.path.clone() })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.check_intact().is_ok() {
            self.map.closed().store(1, Ordering::Release);
            self.map.wake_readers();
        }
    }
}

impl Drop for Lock {
    /// Closing alone would not do: a child that was just forked has the file open, too, until it runs its program.
    fn drop(&mut self) {
        // There is nothing to do about an error, and closing unlocks as well, if later.
        let _ = self.0.unlock();
    }
}

/// The words that decide whether anything changed: row count and rows left out, then the rows.
fn encode(words: &mut Vec<u64>, rows: &[Row], capacity: usize) {
    let stored = rows.len().min(capacity);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    words.clear();
    words.push(u64::from(count(stored)) | u64::from(count(rows.len() - stored)) << 32);
    let mut bytes = [0; ROW_BYTES];
    for row in &rows[..stored] {
        row.encode(&mut bytes);
        words.extend(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)));
    }
}

fn shape(rows: u32) -> Shape {
    #[expect(clippy::cast_possible_truncation, reason = "192, 384, and a second in nanoseconds")]
    Shape {
        header_bytes: HEADER_BYTES as u32,
        row_bytes: ROW_BYTES as u32,
        row_capacity: rows,
        writer: WriterId::of_self(),
        created_mono_ns: sys::monotonic_ns(),
        heartbeat_interval_ns: HEARTBEAT_INTERVAL.as_nanos() as u64,
    }
}

/// Not a lock on the table itself: everybody may read that, so anybody could keep the daemon out by locking it.
fn lock(path: &Path) -> Result<Lock, TableError> {
    let lock_path = with_suffix(path, ".lock");
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&lock_path)
        .map_err(io_error("open the lock file", &lock_path))?;
    match lock.try_lock() {
        Ok(()) => Ok(Lock(lock)),
        Err(TryLockError::WouldBlock) => Err(TableError::Owned { path: path.to_owned(), pid: writer_pid(path) }),
        Err(TryLockError::Error(source)) => Err(io_error("lock", &lock_path)(source)),
    }
}

/// A wrong path in the settings must not cost anyone a file.
fn check_replaceable(path: &Path) -> Result<(), TableError> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start));
    match read {
        Ok(_) if start.is_empty() || start == MAGIC => Ok(()),
        Ok(_) => Err(TableError::Foreign { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io_error("look at", path)(error)),
    }
}

/// A whole table without rows, under a name nobody reads yet.
fn build(new: &Path, shape: &Shape) -> Result<(File, WriterMap), TableError> {
    match fs::remove_file(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_error("remove the leftover", new)(error));
        }
        _ => {}
    }
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o644)
        .open(new)
        .map_err(io_error("create", new))?;
    // Whatever the umask: the table is for everyone to read.
    file.set_permissions(Permissions::from_mode(0o644)).map_err(io_error("make readable", new))?;
    let bytes = shape.file_bytes();
    sys::allocate(&file, bytes).map_err(|source| TableError::Allocate { path: new.to_owned(), bytes, source })?;
    file.write_all_at(&shape.encode(), 0).map_err(io_error("write", new))?;
    let length = usize::try_from(bytes).map_err(|_| TableError::Rows { rows: shape.row_capacity })?;
    let map = WriterMap::new(&file, length).map_err(io_error("map", new))?;
    Ok((file, map))
}

fn writer_pid(path: &Path) -> Option<u32> {
    let mut header = [0; HEADER_BYTES];
    let file = File::open(path).ok()?;
    file.read_exact_at(&mut header, 0).ok()?;
    Shape::decode(&header, file.metadata().ok()?.len()).ok().map(|shape| shape.writer.pid)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

fn io_error(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TableError {
    let path = path.to_owned();
    move |source| TableError::Io { attempt, path, source }
}
