//! The guard's side: waits for the daemon's end, then undoes what it left.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, Result};
use berth_host::probes::read_halted;
use berth_store::{Journal, JournalError};

use super::apart::stand_apart;
use super::link::{Inbox, Plan};
use super::undo::{End, Undo};
use super::{hands, tell_unusable};
use crate::logging;

/// For the daemon's lock to come free after its socket hung up: the kernel closes one right after the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// Standard input is the socket of the daemon that started it.
pub fn run() -> Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("taking the daemon's socket")?;
    let mut inbox = Inbox::new(UnixStream::from(socket));
    let plan = inbox.plan().context(
        "there is no daemon on standard input: it starts guards itself, and `berth release --all` undoes holds",
    )?;
    logging::start(&plan.settings.log)?;
    stand_apart(&plan.settings);
    if let Err(error) = inbox.tell_ready() {
        tracing::debug!(%error, "the daemon was gone before its guard was in place");
    }
    inbox.wait_hang_up();
    undo(&plan, &inbox.descriptors)
}

fn undo(plan: &Plan, descriptors: &[OwnedFd]) -> Result<()> {
    let Plan { daemon, settings } = plan;
    let proc_root = &settings.processes.proc_root;
    let (journal, found) = match Journal::take_over(&settings.hold.journal, *daemon, PATIENCE, proc_root) {
        Ok(opened) => opened,
        Err(JournalError::InUse { .. }) => {
            tracing::info!("another has the journal; nothing to guard");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    tell_unusable(&found);
    // A gate is on record before it can stop anybody: if nobody is, and nobody stands at one, there is nothing to wait for.
    let stands_any = |map: &OwnedFd| read_halted(map.as_fd(), proc_root).map_or(true, |halted| !halted.is_empty());
    if found.entries.is_empty() && !descriptors.first().is_some_and(stands_any) {
        return Ok(());
    }
    tracing::warn!(tenants = found.entries.len(), "the daemon is gone; undoing its holds");
    let undone = Undo::new(found, Some(&journal), hands(settings), proc_root, descriptors.first()).run(None);
    match undone.end {
        End::Done => tracing::info!("all holds are undone"),
        End::MadeRoom => tracing::info!(left = undone.left.len(), "another goes on with what is left"),
    }
    Ok(())
}
