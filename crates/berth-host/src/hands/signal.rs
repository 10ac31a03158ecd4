//! SIGCONT to exactly the process that was stopped: a pid that was handed out again is another's.

use std::io;
use std::path::Path;

use berth_model::ProcKey;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::procs::read;

#[derive(Debug, thiserror::Error)]
#[error("cannot continue process {pid}: {source}")]
pub struct ContinueError {
    pid: u32,
    source: io::Error,
}

/// The kernel undoes the stop before this returns. One that is gone needs no continuing.
pub fn continue_process(proc_root: &Path, process: ProcKey) -> Result<(), ContinueError> {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let sent = pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
        // Pinned first, read afterwards: whoever has the start time is whom the pidfd means, or nobody any more.
        match read::key(proc_root, process.pid) {
            Ok(key) if key == process => pidfd_send_signal(&pidfd, Signal::CONT),
            _ => Ok(()),
        }
    });
    match sent {
        Ok(()) | Err(Errno::SRCH | Errno::INVAL) => Ok(()),
        Err(error) => Err(ContinueError { pid: process.pid, source: error.into() }),
    }
}
