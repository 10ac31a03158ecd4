//! What is remembered of tasks and holds, on disk: it outlives the daemon and the boot.
//!
//! Records are lines with a checksum in numbered segments, written only at the end of the newest; the oldest segment goes
//! when all of them take too much room. A crash can cost the last line, which is cut off when the next daemon opens the
//! history, and a power failure what was written in the last second. A line that cannot be read costs only itself.
//!
//! [`History`] has the right to write, and a thread that does it: whoever hands a record to its [`Writer`] never waits for a
//! disk. Reading needs no right but that of the files' owner, and goes on beside the writing.

mod append;
mod check;
mod line;
mod open_tasks;
mod read;
mod segments;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::path::PathBuf;

pub use check::check;
pub use read::{read, under_way};
pub use writer::{History, Writer};

use crate::place::PlaceError;

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("the history cannot be kept (history.dir chooses another place)")]
    Place(#[from] PlaceError),
    #[error("nothing can be written in {} (history.dir chooses another place)", path.display())]
    Denied { path: PathBuf, source: io::Error },
    #[error("{} is full, {free_kib} KiB are left: what happens is not written down (history.dir chooses another place)", path.display())]
    Full { path: PathBuf, free_kib: u64 },
    #[error("locking the history in {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("the history in {} is in use{}: give each daemon a directory of its own (history.dir)", path.display(), by(*pid))]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error("listing the history in {}", path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("starting a thread that writes the history")]
    Thread { source: io::Error },
}

fn by(pid: Option<u32>) -> String {
    pid.map_or(String::new(), |pid| format!(" by another daemon (process {pid})"))
}
