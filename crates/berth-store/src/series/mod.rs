//! Figures over time, on disk: they outlive the daemon and the boot, and take no more room than they may.
//!
//! Values are appended to numbered segments as records with a checksum each ([`frame`]); a segment names its series itself, so that
//! each can be read, made smaller or removed without the others. A segment that is old enough is rewritten with one value per minute,
//! and later per hour: sums, counts, the least and the greatest stay. The rewritten file takes the old one's number and counts from
//! the moment it has its name; the old one is removed after that, so that a kill at any instant leaves each value once.
//!
//! [`Series`] has the right to write, and a thread that does it: whoever hands values to its [`Writer`] never waits for a disk. What
//! cannot be written is lost, counted and told, the newest first. Time is that of the values: no clock is read here.

mod append;
mod compact;
mod frame;
mod names;
mod read;
mod segment;
#[cfg(test)]
mod tests;
mod upkeep;
mod writer;

use std::io;
use std::path::PathBuf;

pub use read::{latest, read};
pub use writer::{Health, Series, Writer};

use crate::place::PlaceError;

/// How much is kept, and how finely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes on disk in all; the oldest go first.
    pub most_bytes: u64,
    /// Bytes of a segment at which the next begins.
    pub segment_bytes: u64,
    /// Time a segment covers at most.
    pub segment_ms: i64,
    /// Age at which single values become minutes.
    pub points_ms: i64,
    /// Age at which minutes become hours.
    pub minutes_ms: i64,
    /// Age at which a value is removed.
    pub keep_ms: i64,
    /// Series that are told apart at a time; of more, those that were idle longest become one.
    pub most_series: usize,
}

impl Default for Limits {
    fn default() -> Self {
        const HOUR: i64 = 3_600_000;
        Self {
            most_bytes: 32 << 20,
            segment_bytes: 1 << 20,
            segment_ms: 6 * HOUR,
            points_ms: 24 * HOUR,
            minutes_ms: 14 * 24 * HOUR,
            keep_ms: 90 * 24 * HOUR,
            most_series: 4_096,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    #[error("figures cannot be kept (history.dir chooses another place)")]
    Place(#[from] PlaceError),
    #[error("locking the figures in {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("the figures in {} are in use by another daemon: give each a directory of its own (history.dir)", path.display())]
    InUse { path: PathBuf },
    #[error("listing the figures in {}", path.display())]
    List { path: PathBuf, source: io::Error },
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("starting a thread that writes figures")]
    Thread { source: io::Error },
}
