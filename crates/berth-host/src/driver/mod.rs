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
mod bounded;
mod cgroups;
mod collective;
mod error;
#[cfg(test)]
mod fake;
pub mod measure;
mod park;
mod steps;
mod sys;
mod target;

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use berth_model::ProcKey;

pub use api::{Code, State};
pub use error::DriverError;
pub use park::{Held, ParkError, ParkOptions, Parking};
pub use steps::{DriverHands, DriverSteps};

use api::{Api, code};
use bounded::{Callers, NoAnswer};
use cgroups::Hierarchies;
use target::Target;

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

    /// Where the driver has the process. Blocks for a fraction of a millisecond, `answer_within` at most.
    pub fn state(&self, process: ProcKey) -> Result<State, DriverError> {
        let target = self.target(process)?;
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

    /// A step that sets a process free; `None` if it is gone.
    fn free(
        &self,
        verb: &'static str,
        process: ProcKey,
        limit: Duration,
        call: impl FnOnce(&dyn Api, i32) -> u32 + Send + 'static,
    ) -> Result<Option<(Target, u32)>, DriverError> {
        let target = match self.target(process) {
            Err(DriverError::Gone { .. }) => return Ok(None),
            other => other?,
        };
        self.refuse_standing(verb, &target)?;
        let answer = self.act(verb, &target, limit, call, |_, _, _| ())?;
        Ok(target.is_alive().then_some((target, answer)))
    }

    fn target(&self, process: ProcKey) -> Result<Target, DriverError> {
        let target = Target::pin(&self.shared.options.proc_root, process);
        if matches!(target, Err(DriverError::Gone { .. })) {
            let mut locks = self.locks();
            locks.ours.remove(&process);
            locks.others.remove(&process);
        }
        target
    }

    /// The driver waits for threads that cannot answer while they stand still.
    fn refuse_standing(&self, verb: &'static str, target: &Target) -> Result<(), DriverError> {
        let still = if target.is_stopped() {
            "stopped".to_owned()
        } else {
            let membership = target::read(&self.shared.options.proc_root, target.process, "cgroup")?;
            let Some(cgroup) = self.shared.hierarchies.frozen(&membership) else { return Ok(()) };
            format!("frozen by {}", cgroup.display())
        };
        Err(DriverError::StandsStill { verb, pid: target.process.pid, still })
    }

    fn state_of(&self, target: &Target) -> Result<State, DriverError> {
        let verb = "tell the state of";
        let answer =
            self.act(verb, target, self.shared.options.answer_within, |api, pid| api.state(pid), |_, _, _| ())?;
        answer.map(State::new).map_err(|code| self.refusal(verb, target, code))
    }

    /// The lock was refused for the state the process is in.
    fn found_locked(&self, target: &Target) -> Result<(), DriverError> {
        let (process, pid) = (target.process, target.process.pid);
        match self.state_of(target)? {
            State::Locked | State::Checkpointed if self.locks().ours.contains(&process) => Ok(()),
            State::Locked | State::Checkpointed => {
                self.locks().others.insert(process);
                Err(DriverError::LockedByOthers { pid })
            }
            State::Failed => Err(DriverError::Broken { pid }),
            // Somebody was unlocking it just then.
            State::Running | State::Moving(_) => Err(DriverError::Busy { verb: "lock", pid }),
        }
    }

    /// A process that is not locked may be so in a moment: a daemon that died while it waited for a lock leaves it to
    /// come true. While one is under way the driver takes no other, so asking for one tells.
    fn refuse_pending(&self, target: &Target) -> Result<(), DriverError> {
        let lock_and_unlock = |api: &dyn Api, pid| match api.lock(pid, 1) {
            0 => api.unlock(pid),
            answer => answer,
        };
        let within = self.shared.options.answer_within;
        match self.act("unlock", target, within, lock_and_unlock, |_, _, _| ())? {
            code::ILLEGAL_STATE => Err(DriverError::Busy { verb: "unlock", pid: target.process.pid }),
            // Granted, or refused for work of its own that goes on.
            _ => Ok(()),
        }
    }

    /// The process ended during its lock. If its pid was handed out again so soon, a stranger may be the one locked.
    fn free_stranger(&self, target: &Target, answer: u32) {
        if answer == 0 {
            let unlocked = self.act(
                "unlock",
                target,
                self.shared.options.answer_within,
                |api, pid| if api.state(pid) == Ok(1) { api.unlock(pid) } else { 0 },
                |_, _, _| (),
            );
            if !matches!(unlocked, Ok(0)) {
                tracing::error!(pid = target.pid, ?unlocked, "a process that got its pid just now may be left locked");
            }
        }
    }

    /// One call on one process, with a deadline, the driver initialised by then. `late` is for an answer after it.
    fn act<T: Send + 'static>(
        &self,
        verb: &'static str,
        target: &Target,
        limit: Duration,
        call: impl FnOnce(&dyn Api, i32) -> T + Send + 'static,
        late: impl FnOnce(&dyn Api, i32, T) + Send + 'static,
    ) -> Result<T, DriverError> {
        let (pid, shared) = (target.process.pid, &*self.shared);
        let (api, late_api, target_pid) = (shared.api.clone(), shared.api.clone(), target.pid);
        let is_initialised = shared.is_initialised.clone();
        let for_init = if is_initialised.load(Ordering::Acquire) { Duration::ZERO } else { shared.options.init_within };
        let call = move || {
            initialise(&*api, &is_initialised)?;
            Ok(call(&*api, target_pid))
        };
        let late = move |answer: Result<T, u32>| {
            if let Ok(answer) = answer {
                late(&*late_api, target_pid, answer);
            }
        };
        let waited = limit.saturating_add(for_init);
        match shared.callers.call(pid, waited, call, late) {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(code)) => Err(DriverError::Init { library: shared.library.clone(), code: self.named(code) }),
            Err(NoAnswer::Busy) => Err(DriverError::Busy { verb, pid }),
            Err(NoAnswer::Late) => Err(DriverError::Stuck { verb, pid, waited }),
            Err(NoAnswer::NoThread(source)) => Err(DriverError::NoThread { verb, pid, source }),
        }
    }

    fn refusal(&self, verb: &'static str, target: &Target, number: u32) -> DriverError {
        let pid = target.process.pid;
        match number {
            code::INVALID_VALUE => DriverError::NoContext { verb, pid },
            code::NOT_SUPPORTED => DriverError::Unsupported { verb, pid },
            code::NOT_PERMITTED => DriverError::Denied { verb, pid },
            _ => DriverError::Refused { verb, pid, code: self.named(number) },
        }
    }

    fn named(&self, number: u32) -> Code {
        Code { number, name: self.shared.api.name(number) }
    }

    fn locks(&self) -> MutexGuard<'_, Locks> {
        self.shared.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn initialise(api: &dyn Api, is_initialised: &AtomicBool) -> Result<(), u32> {
    if !is_initialised.load(Ordering::Acquire) {
        match api.init() {
            0 => is_initialised.store(true, Ordering::Release),
            code => return Err(code),
        }
    }
    Ok(())
}

/// Why the state refuses a call that goes on from `from`: being there already, another call must be under way.
fn wrong_state(verb: &'static str, from: State, target: &Target, state: State) -> DriverError {
    let pid = target.process.pid;
    let told = match state {
        State::Failed => return DriverError::Broken { pid },
        State::Moving(_) => return DriverError::Busy { verb, pid },
        _ if state == from => return DriverError::Busy { verb, pid },
        State::Running => "running, not locked",
        State::Locked => "locked",
        State::Checkpointed => "parked",
    };
    DriverError::WrongState { verb, pid, state: told }
}

/// As the driver's timeout, where 0 would wait for ever.
fn milliseconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1)
}
