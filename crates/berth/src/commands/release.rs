//! `berth release --all`: undoes every hold on record, for emergencies and without the daemon.
//!
//! Reads the journal that the daemon writes before it does anything to a tenant. While a daemon runs, its holds are its
//! business: two that undo and hold by turns would help nobody.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use berth_host::clock;
use berth_model::Span;
use berth_store::{Journal, JournalError, Role};

use crate::cli::Global;
use crate::columns::printable;
use crate::guard::{self, Undo, Undone};
use crate::out::Stdout;
use crate::{logging, settings};

const EXAMPLES: &str = "\
Examples:
  berth release --all
  berth release --all --within 2m       give parked tenants time to come back
  berth release --all --force           also if a daemon that hangs still has the journal

Only what berth holds is released: a container that someone else paused stays paused.
Exit codes: 0 everybody is free; 1 somebody is not yet, or it failed.";

/// For a guard that is at work to make room.
const PATIENCE: Duration = Duration::from_secs(20);

/// Release what berth holds, without the daemon
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Everything on record
    #[arg(long, required = true)]
    all: bool,
    /// Also while a daemon runs, which may hold them again
    #[arg(long)]
    force: bool,
    /// How long to try
    #[arg(long, value_name = "TIME", default_value = "30s")]
    within: Span,
}

pub fn run(args: &Args, global: &Global) -> Result<ExitCode> {
    let settings = settings::load(global)?;
    logging::start_if_asked(global.log.is_some(), &settings.log)?;
    let hands = guard::hands(&settings);
    let proc_root = &settings.processes.proc_root;
    let until = Some(clock::now() + args.within.get());
    let opened = match Journal::open(&settings.hold.journal, Role::Release, PATIENCE, proc_root) {
        Ok((journal, found)) => (Some(journal), found),
        Err(JournalError::InUse { .. }) if args.force => (None, berth_store::read(&settings.hold.journal, proc_root)?),
        Err(error @ JournalError::InUse { .. }) => {
            return Err(error).context("stop the daemon, which releases everybody, or add --force if it hangs");
        }
        Err(error) => return Err(error.into()),
    };
    let (journal, found) = opened;
    for file in &found.unusable {
        eprintln!("berth: {} cannot be used: {}", file.path.display(), file.why);
    }
    tell(&Undo::new(found, journal.as_ref(), hands, proc_root).run(until))
}

fn tell(undone: &Undone) -> Result<ExitCode> {
    for name in &undone.freed {
        Stdout::line(&format!("released {}", printable(name)))?;
    }
    for (name, why) in &undone.left {
        let why = why.as_deref().unwrap_or("there was no time for it");
        eprintln!("berth: {} is not free yet: {}", printable(name), printable(why));
    }
    if undone.freed.is_empty() && undone.left.is_empty() {
        Stdout::line("nobody is held")?;
    }
    Ok(if undone.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
