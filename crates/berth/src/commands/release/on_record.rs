//! Undoes every hold on record, for emergencies and without the daemon.
//!
//! Reads the journal that the daemon writes before it does anything to a tenant. While a daemon runs, its holds are its
//! business: two that undo and hold by turns would help nobody.

use std::time::Duration;

use anyhow::{Context, Result};
use berth_host::clock;
use berth_model::{Settings, Span};
use berth_store::{Journal, JournalError, Role};

use super::doubtful::{self, Doubtful};
use super::{Gone, Left, Released};
use crate::columns::printable;
use crate::guard::{self, Undo, Undone};
use crate::out::say;

/// For a guard that is at work to make room.
const PATIENCE: Duration = Duration::from_secs(20);

/// `force`: also while a daemon has the journal.
pub(super) fn release(settings: &Settings, within: Span, force: bool) -> Result<Released> {
    let hands = guard::hands(settings);
    let (path, proc_root) = (&settings.hold.journal, &settings.processes.proc_root);
    let until = Some(clock::now() + within.get());
    let (journal, found) = match Journal::open(path, Role::Release, PATIENCE, proc_root) {
        Ok((journal, found)) => (Some(journal), found),
        Err(JournalError::InUse { .. }) if force => (None, berth_store::read(path, proc_root)?),
        Err(error @ JournalError::InUse { .. }) => {
            return Err(error).context("stop the daemon, which releases everybody, or add --force if it hangs");
        }
        Err(error) => return Err(error.into()),
    };
    found.unusable.iter().for_each(|file| say(&printable(&file.to_string())));
    let doubtful: Vec<Doubtful> = doubtful::of(&found);
    let Undone { freed, gone, left, .. } = Undo::new(found, journal.as_ref(), hands, proc_root, None).run(until);
    let why = |why: Option<String>| why.unwrap_or_else(|| "there was no time for it".to_owned());
    let left = left.into_iter().map(|(name, reason)| Left { name, why: why(reason) });
    let left: Vec<Left> = left.chain(doubtful.iter().filter_map(Doubtful::left)).collect();
    let is_left = |name: &String| left.iter().any(|left| left.name == *name);
    let gone = gone.into_iter().map(|(name, why)| Gone { name, why: why.to_string() });
    Ok(Released { released: freed.into_iter().filter(|name| !is_left(name)).collect(), gone: gone.collect(), left })
}
