//! Keeps threads where they stand, at a driver call, while the rest of their process runs.
//!
//! A process that was stopped at a call and frozen there must run to be locked by the driver, but the thread at the call must
//! not: what it stood at would be launched, or fail for want of memory, before the lock is taken. So that thread alone is held
//! by ptrace while the others are thawed. Nothing is written to the process, no signal is seen. When the driver has locked the
//! process, the thread is let go, and its call waits in the driver like any other.
//!
//! The kernel lets everything go if the daemon dies, and a pin does so by itself after [`AT_MOST`].

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{fs, io};

use berth_model::ProcKey;

use super::sys::Tracee;
use crate::procs::read;

/// Longer than any lock is waited for.
const AT_MOST: Duration = Duration::from_secs(60);
/// How soon a pinned process that is killed is seen to be dead by others.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
#[error("cannot keep process {pid} at the call it stands at: {source}")]
pub struct PinError {
    pid: u32,
    source: io::Error,
}

/// A process some of whose threads are kept; dropped, they go on.
#[derive(Debug)]
pub struct Pin {
    /// The tracing thread, which alone can let go, ends when this is closed.
    _release: Sender<()>,
}

impl Pin {
    /// To be called while the process is frozen or stopped. None of its threads that are on their way back from a probe
    /// executes another instruction; which those are is read from where each thread is: not in a system call.
    pub fn put(proc_root: &Path, process: ProcKey) -> Result<Pin, PinError> {
        let failed = |source| PinError { pid: process.pid, source };
        let threads = threads_outside_calls(proc_root, process).map_err(failed)?;
        let (release_tx, release_rx) = mpsc::channel();
        let (ready_tx, ready_rx) = mpsc::channel();
        let thread = std::thread::Builder::new().name("berth-pin".into());
        thread.spawn(move || hold(&threads, &ready_tx, &release_rx)).map_err(failed)?;
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready_rx.recv().map_err(gone).flatten().map_err(failed)?;
        Ok(Pin { _release: release_tx })
    }
}

/// Only the thread that attached may detach.
fn hold(threads: &[u32], ready: &Sender<io::Result<()>>, release: &Receiver<()>) {
    let seized: io::Result<Vec<Tracee>> = threads.iter().map(|thread| Tracee::seize(*thread)).collect();
    match seized {
        Err(error) => _ = ready.send(Err(error)),
        Ok(tracees) => {
            let _ = ready.send(Ok(()));
            let until = Instant::now() + AT_MOST;
            while Instant::now() < until && !tracees.iter().any(Tracee::has_ended) {
                if release.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        }
    }
}

/// Threads that stand still elsewhere than in a system call: at a breakpoint of ours.
fn threads_outside_calls(proc_root: &Path, process: ProcKey) -> io::Result<Vec<u32>> {
    let tasks = proc_root.join(process.pid.to_string()).join("task");
    let mut threads = Vec::new();
    for entry in fs::read_dir(&tasks)? {
        let Some(thread) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A thread that has ended meanwhile has no such file.
        let place = fs::read_to_string(tasks.join(format!("{thread}/syscall"))).unwrap_or_default();
        if place.starts_with("-1 ") {
            threads.push(thread);
        }
    }
    // Read afterwards: were the pid handed out again, its threads would be a stranger's.
    match read::key(proc_root, process.pid) {
        Ok(key) if key == process => Ok(threads),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}
