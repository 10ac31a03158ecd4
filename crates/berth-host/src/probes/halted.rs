//! Which processes the programs have stopped and nobody has continued yet, as the kernel keeps it.
//!
//! The map outlives the daemon in the hands of whoever else has its descriptor. Then it is final: a process is told to have
//! died when its probes are gone. What is done about a stopped process is for the reader to decide.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use berth_model::{Mono, ProcKey};

use super::sys;
use crate::clock::{self, BootTicks};
use crate::procs;

/// The processes in the map behind `halted`, from [`super::Probes::halted_map`], that still are the ones it means.
/// Can be called in any process of the initial pid namespace. May miss what is stopped while it reads.
pub fn read_halted(halted: BorrowedFd<'_>, proc_root: &Path) -> io::Result<Vec<ProcKey>> {
    let is_meant = |(pid, at): (u32, Mono)| {
        let key = procs::read::key(proc_root, pid).ok()?;
        // A pid that was handed out again belongs to somebody who began later.
        (clock::at_boot_ticks(BootTicks(key.start_ticks)) <= at).then_some(key)
    };
    Ok(entries(halted)?.into_iter().filter_map(is_meant).collect())
}

fn entries(halted: BorrowedFd<'_>) -> io::Result<BTreeSet<(u32, Mono)>> {
    let mut entries = BTreeSet::new();
    let mut last = None;
    loop {
        let key = match sys::map_next_key::<4>(halted, last.as_ref()) {
            Ok(key) => key,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(entries),
            Err(error) => return Err(error),
        };
        // One that was removed meanwhile is none.
        if let Ok(at) = sys::map_lookup(halted, &key) {
            entries.insert((u32::from_ne_bytes(key), Mono(at)));
        }
        last = Some(key);
    }
}
