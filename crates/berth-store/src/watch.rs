//! Waiting for whoever keeps the journal to end.

use std::path::{Path, PathBuf};

use crate::journal::{Found, Journal, JournalError};
use crate::lock::{Holder, Lock, Role};
use crate::place::Place;

/// Waits behind a daemon, to take its journal when it ends, however it ends.
#[derive(Debug)]
pub struct Watch {
    place: Place,
    proc_root: PathBuf,
}

impl Watch {
    pub fn new(path: &Path, proc_root: &Path) -> Result<Watch, JournalError> {
        Ok(Watch { place: Place::make(path)?, proc_root: proc_root.to_owned() })
    }

    /// Blocks while anybody else has the journal; then it is ours, with what is in it.
    pub fn wait(self) -> Result<(Journal, Found), JournalError> {
        let Watch { place, proc_root } = self;
        let lock = Lock::wait(&place, Holder::own(Role::Guard, &proc_root));
        let lock = lock.map_err(|source| JournalError::Lock { path: place.path().to_owned(), source })?;
        Journal::with_lock(place, lock, &proc_root)
    }
}
