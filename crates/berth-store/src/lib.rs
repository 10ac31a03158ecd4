//! What berth writes down: the journal of holds, [`history`], [`deadlines`] that people have set, and [`series`] of figures.
//!
//! Before berth does anything to a tenant it writes an [`Entry`]: enough to undo the hold without the daemon that made
//! it. [`Journal`] keeps one small file per tenant in a directory under `/run`, each replaced by a rename, so that a kill at
//! any instant leaves the old or the new one. Nothing is synced to a disk: holds do not outlive a reboot, and records of an
//! earlier boot are dropped. Who holds the directory's lock may write; the kernel gives the lock back when its holder dies.
//!
//! What is read is believed only as far as it can be checked: [`Found`] names every file that could not be used, and
//! [`Kept::verified`] leaves out processes that ended and cgroups that are others by now. Undoing is not done here.
#![forbid(unsafe_code)]

mod checksum;
mod clues;
pub mod deadlines;
pub mod history;
mod journal;
mod live;
mod lock;
mod mend;
mod place;
mod record;
pub mod series;
pub mod slos;

#[cfg(test)]
mod testing;

use std::path::PathBuf;

use berth_model::hold::{By, Grip, Held, Note, Want};
use berth_model::{ContainerId, Mono, ProcKey, TenantKey};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use clues::Clues;
pub use journal::{Found, Journal, JournalError, Unusable, holder, read};
pub use live::Gone;
pub use lock::{Holder, Role};
pub use place::PlaceError;
pub use record::Kept;

/// One tenant that is held, or about to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub tenant: TenantKey,
    /// Directory of the cgroup that can be frozen; `None` where it has none of its own.
    pub cgroup: Option<PathBuf>,
    pub container: Option<ContainerId>,
    /// Everything that may have been done to it.
    pub grip: Grip,
    pub want: Want,
    /// Of processes that are parked, or about to be: without it nobody could tell whether there is room for them.
    #[serde(default)]
    pub needs_back: Vec<NeedsBack>,
    #[serde(flatten)]
    pub by: By,
    /// When the want became what it is, on the clock of this boot.
    pub since: Mono,
    /// The same instant, for people.
    pub since_wall: Timestamp,
    /// What people call it.
    pub name: String,
    pub reason: String,
}

/// GPU memory that a parked process must find free before it can come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeedsBack {
    pub process: ProcKey,
    #[serde(flatten)]
    pub held: Held,
}

impl Entry {
    /// What the record says, as the keeper has it.
    pub fn note(&self) -> Note {
        let Self { grip, want, by, since, reason, .. } = self;
        Note { grip: grip.clone(), want: *want, by: *by, reason: reason.clone(), since: *since }
    }
}
