//! Whether a history could be kept, found out without changing anything.

use std::io;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use rustix::process::geteuid;

use super::{HistoryError, segments};
use crate::place::Place;

/// Less is full: the list of open tasks is replaced whole, and needs room beside the old one.
const ROOM: u64 = 64 << 10;

/// What there is, for people; or why nothing can be written down.
pub fn check(dir: &Path) -> Result<String, HistoryError> {
    let existing = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let denied = |source: rustix::io::Errno| HistoryError::Denied { path: existing.to_owned(), source: source.into() };
    accessat(CWD, existing, Access::WRITE_OK, AtFlags::EACCESS).map_err(denied)?;
    let free = free_bytes(existing).map_err(|source| HistoryError::List { path: existing.to_owned(), source })?;
    if free < ROOM {
        return Err(HistoryError::Full { path: existing.to_owned(), free_kib: free / 1024 });
    }
    if existing != dir {
        return Ok(format!("{} will be made", dir.display()));
    }
    let place = Place::open(dir)?;
    let failed = |source| HistoryError::List { path: dir.to_owned(), source };
    let sizes = segments::numbers(&place).map_err(failed)?.into_iter().map(|number| {
        place.file(&segments::name(number)).and_then(|file| file.metadata()).map_or(0, |found| found.len())
    });
    Ok(format!("{} KiB in {}", sizes.sum::<u64>().div_ceil(1024), dir.display()))
}

/// What this user may still write there: some is often kept back for root.
fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = statvfs(path)?;
    let blocks = if geteuid().is_root() { found.f_bfree } else { found.f_bavail };
    Ok(blocks.saturating_mul(found.f_frsize))
}
