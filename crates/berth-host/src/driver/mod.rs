//! The CUDA driver's calls on other processes: lock, and park.
//!
//! **Lock.** The driver takes no new work of a process and answers when the old is done: a hold of its own, and, with a
//! short timeout, the evidence that nothing of that process runs. **Park.** A locked process's GPU memory is moved to
//! host memory and back; see [`Parking`].
//!
//! ```text
//! Running ──lock──▶ Locked ──checkpoint──▶ Checkpointed ──restore──▶ Locked ──unlock──▶ Running
//! ```
//!
//! What the driver does not do, this module does:
//! - *Who is meant.* The driver takes pids; a process is pinned by a pidfd for the time of a call (`target`).
//! - *Coming back.* Calls hang where a thread of the process stands still, or where it shares memory with a locked one.
//!   Who is stopped or frozen is refused before the call; every call has a deadline (`bounded`). A lock that comes true
//!   after its deadline is undone; memory that was still moving arrives, and the step can be repeated then.
//! - *Whose lock it is.* A process that somebody else locked is left alone, and not unlocked either.
//!
//! A lock outlives whoever took it: the driver does not undo it when the daemon dies. So every lock, [`Driver::probe_idle`]'s
//! too, is to be written down before it is asked for.
//!
//! `cuInit` is called once, before the first call. It opens the driver's devices but makes no context: the daemon holds
//! no GPU memory, and NVML does not list it. Forked children of the daemon cannot use the driver.

mod api;
mod ask;
mod bounded;
pub(crate) mod cgroups;
mod collective;
mod error;
#[cfg(test)]
mod fake;
pub mod measure;
mod park;
mod park_error;
mod steps;
mod sys;
mod target;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_model::ProcKey;

pub use api::{Code, State};
pub use error::DriverError;
pub use park::{ParkOptions, Parking};
pub use park_error::ParkError;
pub use steps::{DriverHands, DriverSteps};

use api::{Api, code};
use ask::wrong_state;
use bounded::Callers;
use cgroups::Hierarchies;

/// Where things are, and how long the driver may take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub proc_root: PathBuf,
    /// How much longer than its own timeout a lock may take until it is given up. Longer than the driver's timer is late.
    pub grace: Duration,
    /// How long the driver may take to tell a state, or to unlock.
    pub answer_within: Duration,
    /// How long `cuInit` may take: seconds where the GPUs have to wake up first.
    pub init_within: Duration,
}

/// The driver, found and not yet touched. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Driver {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    api: Arc<dyn Api>,
    library: PathBuf,
    options: Options,
    hierarchies: Hierarchies,
    is_initialised: Arc<AtomicBool>,
    callers: Callers,
    locks: Mutex<Locks>,
}

#[derive(Debug, Default)]
struct Locks {
    /// Locked here, and not unlocked since.
    ours: HashSet<ProcKey>,
    /// Found locked.
    others: HashSet<ProcKey>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            proc_root: "/proc".into(),
            grace: Duration::from_secs(2),
            answer_within: Duration::from_secs(10),
            init_within: Duration::from_secs(60),
        }
    }
}

// === impl Driver ===

impl Driver {
    /// Loads the driver's library and looks for the functions. Calls none of them: that costs nothing until somebody is
    /// to be locked, and works where there is no GPU yet.
    pub fn open(library: &Path, options: Options) -> Result<Driver, DriverError> {
        let cuda = sys::Cuda::open(library).map_err(|error| DriverError::from_open(library, error))?;
        Ok(Self::with_api(Arc::new(cuda), library, options))
    }

    fn with_api(api: Arc<dyn Api>, library: &Path, options: Options) -> Driver {
        let mounts = std::fs::read_to_string(options.proc_root.join("self/mounts")).unwrap_or_default();
        let shared = Shared {
            api,
            library: library.to_owned(),
            hierarchies: Hierarchies::from_mounts(&mounts),
            options,
            is_initialised: Arc::default(),
            callers: Callers::default(),
            locks: Mutex::default(),
        };
        Driver { shared: Arc::new(shared) }
    }

    /// Where the driver has the process. Blocks for a fraction of a millisecond, `answer_within` at most. A process that is
    /// stopped or frozen is refused: the driver asks the process itself.
    pub fn state(&self, process: ProcKey) -> Result<State, DriverError> {
        let target = self.target(process)?;
        self.refuse_standing("tell the state of", &target)?;
        self.state_of(&target)
    }

    /// Blocks until the process's work is done and it is locked, or `timeout` is over: then it is not locked. What this
    /// driver has locked already stays so. A process that is stopped or frozen is refused.
    pub fn lock(&self, process: ProcKey, timeout: Duration) -> Result<(), DriverError> {
        let target = self.target(process)?;
        self.refuse_standing("lock", &target)?;
        let answer = self.act(
            "lock",
            &target,
            timeout.saturating_add(self.shared.options.grace),
            move |api, pid| api.lock(pid, milliseconds(timeout)),
            // Nobody knows of it any more.
            |api, pid, answer| {
                if answer == 0 {
                    let _ = api.unlock(pid);
                }
            },
        )?;
        if !target.is_alive() {
            self.free_stranger(&target, answer);
            return Err(DriverError::Gone { pid: process.pid });
        }
        match answer {
            0 => {
                let mut locks = self.locks();
                locks.others.remove(&process);
                locks.ours.insert(process);
                Ok(())
            }
            code::ILLEGAL_STATE => self.found_locked(&target),
            code::NOT_READY | code::TIMEOUT => Err(DriverError::TimedOut { pid: process.pid, waited: timeout }),
            other => Err(self.refusal("lock", &target, other)),
        }
    }

    /// Lets the process's calls go on. No error if it is not locked, if it is gone, or if the lock is somebody else's.
    pub fn unlock(&self, process: ProcKey) -> Result<(), DriverError> {
        if self.locks().others.contains(&process) {
            return Ok(());
        }
        let within = self.shared.options.answer_within;
        match self.free("unlock", process, within, |api, pid| api.unlock(pid))? {
            None | Some((_, 0 | code::INVALID_VALUE)) => {}
            Some((target, code::ILLEGAL_STATE)) => match self.state_of(&target)? {
                State::Running => self.refuse_pending(&target)?,
                state => return Err(wrong_state("unlock", State::Locked, &target, state)),
            },
            Some((target, other)) => return Err(self.refusal("unlock", &target, other)),
        }
        self.locks().ours.remove(&process);
        Ok(())
    }

    /// Locks all or none of a tenant's processes, one after the other, within `timeout` for all of them.
    pub fn lock_all(&self, processes: &[ProcKey], timeout: Duration) -> Result<(), DriverError> {
        let begin = Instant::now();
        for (count, process) in processes.iter().enumerate() {
            let left = timeout.saturating_sub(begin.elapsed());
            if let Err(error) = self.lock(*process, left) {
                self.unlock_all(&processes[..count]);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the process has nothing running or queued: locks it within `timeout` and unlocks it at once. A call that the
    /// process makes meanwhile waits, for about a millisecond or `timeout`. What is held by its lock is idle, and stays so.
    pub fn probe_idle(&self, process: ProcKey, timeout: Duration) -> Result<bool, DriverError> {
        if self.locks().ours.contains(&process) {
            return Ok(true);
        }
        match self.lock(process, timeout) {
            Ok(()) => self.unlock(process).map(|()| true),
            Err(DriverError::TimedOut { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Moves a locked process's GPU memory to host memory. Blocks while it moves, `limit` at most; it goes on then. No
    /// error if it has been moved already.
    pub fn checkpoint(&self, process: ProcKey, limit: Duration) -> Result<(), DriverError> {
        let target = self.target(process)?;
        self.refuse_standing("park", &target)?;
        match self.act("park", &target, limit, |api, pid| api.checkpoint(pid), |_, _, _| ())? {
            0 => Ok(()),
            _ if !target.is_alive() => Err(DriverError::Gone { pid: process.pid }),
            code::ILLEGAL_STATE => match self.state_of(&target)? {
                State::Checkpointed => Ok(()),
                state => Err(wrong_state("park", State::Locked, &target, state)),
            },
            other => Err(self.refusal("park", &target, other)),
        }
    }

    /// Moves it back; the process stays locked. Blocks while it moves, `limit` at most; it goes on then. No error if it is
    /// back already, or gone. With [`DriverError::NoRoom`] it stays parked, but see [`Parking::restore`].
    pub fn restore(&self, process: ProcKey, limit: Duration) -> Result<(), DriverError> {
        let Some((target, answer)) = self.free("restore", process, limit, |api, pid| api.restore(pid))? else {
            return Ok(());
        };
        match answer {
            0 | code::INVALID_VALUE => Ok(()),
            code::OUT_OF_MEMORY => Err(DriverError::NoRoom { pid: process.pid }),
            code::ILLEGAL_STATE => match self.state_of(&target)? {
                State::Running | State::Locked => Ok(()),
                state => Err(wrong_state("restore", State::Checkpointed, &target, state)),
            },
            other => Err(self.refusal("restore", &target, other)),
        }
    }

    fn unlock_all(&self, processes: &[ProcKey]) {
        for process in processes {
            if let Err(error) = self.unlock(*process) {
                tracing::warn!(pid = process.pid, %error, "a lock could not be undone");
            }
        }
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.shared.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As the driver's timeout, where 0 would wait for ever.
fn milliseconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1)
}
