//! The guard: a small process that outlives the daemon and undoes its holds if it dies.
//!
//! The daemon starts it before it holds anybody, tells it over a socket where the journal is, and hands it the descriptors
//! that must not die with the daemon. The guard then waits for the socket to hang up, which the kernel does however the
//! daemon ends. If nobody else has taken the journal by then, it undoes what is in it and ends. It never decides anything.
//!
//! A guard that dies is replaced by the daemon. If both die, the next daemon, or `berth release --all`, finds the journal.
//! `docs/decisions/0004-the-guard.md` says why it is made this way.

mod apart;
mod hands;
mod link;
mod process;
mod supervise;
mod undo;

#[cfg(test)]
mod tests;

pub use hands::hands;
pub use process::run;
pub use supervise::{Guard, GuardError};
pub use undo::{Undo, Undone};

use std::path::Path;

use berth_model::settings::PolicyName;
use berth_model::{ProcKey, Settings, Stat};
use berth_store::Found;

use link::Plan;
use supervise::Program;

/// A guard of this daemon, in place before anybody is held. Without a policy it may be missing: then nobody can be held until
/// one could be started, and the daemon shows what it sees meanwhile.
pub fn for_daemon(settings: &Settings) -> Result<Guard, GuardError> {
    // This very binary, also after it was replaced on disk.
    let program = Program { path: "/proc/self/exe".into(), args: vec!["guard".into()] };
    match Guard::start(program.clone(), Plan::new(settings)) {
        Err(error) if settings.hold.policy == PolicyName::Off => {
            tracing::warn!(error = berth_engine::describe(&error), "no guard: nobody can be held until there is one");
            Guard::keep_trying(program, Plan::new(settings))
        }
        started => started,
    }
}

/// What could not be read is for a person to look at: nothing is done on a guess.
pub fn tell_unusable(found: &Found) {
    for file in &found.unusable {
        tracing::warn!(path = %file.path.display(), why = file.why, whose = file.clues.name(), "a record of a hold cannot be used");
    }
}

/// Whether the process, and not a later one with its pid, stands stopped by a signal.
pub fn is_stopped(proc_root: &Path, process: ProcKey) -> bool {
    let stat = std::fs::read(proc_root.join(process.pid.to_string()).join("stat")).unwrap_or_default();
    Stat::parse(&stat).is_some_and(|stat| stat.state() == Some('T') && stat.start_ticks() == Some(process.start_ticks))
}
