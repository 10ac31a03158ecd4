//! Asking the driver: about a process that is the one meant and does not stand still, within a deadline, and what its answers
//! mean. Which call to make when is in `mod.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_model::ProcKey;

use super::api::{Api, Code, State, code};
use super::bounded::NoAnswer;
use super::target::{Target, read};
use super::{Driver, DriverError};

impl Driver {
    /// A step that sets a process free; `None` if it is gone.
    pub(super) fn free(
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

    pub(super) fn target(&self, process: ProcKey) -> Result<Target, DriverError> {
        let target = Target::pin(&self.shared.options.proc_root, process);
        if matches!(target, Err(DriverError::Gone { .. })) {
            let mut locks = self.locks();
            locks.ours.remove(&process);
            locks.others.remove(&process);
        }
        target
    }

    /// The driver waits for threads that cannot answer while they stand still.
    pub(super) fn refuse_standing(&self, verb: &'static str, target: &Target) -> Result<(), DriverError> {
        let still = if target.is_stopped(&self.shared.options.proc_root) {
            "stopped".to_owned()
        } else {
            let membership = read(&self.shared.options.proc_root, target.process, "cgroup")?;
            let Some(cgroup) = self.shared.hierarchies.frozen(&membership) else { return Ok(()) };
            format!("frozen by {}", cgroup.display())
        };
        Err(DriverError::StandsStill { verb, pid: target.process.pid, still })
    }

    pub(super) fn state_of(&self, target: &Target) -> Result<State, DriverError> {
        let verb = "tell the state of";
        let answer =
            self.act(verb, target, self.shared.options.answer_within, |api, pid| api.state(pid), |_, _, _| ())?;
        answer.map(State::new).map_err(|code| self.refusal(verb, target, code))
    }

    /// The lock was refused for the state the process is in.
    pub(super) fn found_locked(&self, target: &Target) -> Result<(), DriverError> {
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
    pub(super) fn refuse_pending(&self, target: &Target) -> Result<(), DriverError> {
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
    pub(super) fn free_stranger(&self, target: &Target, answer: u32) {
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
    pub(super) fn act<T: Send + 'static>(
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

    pub(super) fn refusal(&self, verb: &'static str, target: &Target, number: u32) -> DriverError {
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
pub(super) fn wrong_state(verb: &'static str, from: State, target: &Target, state: State) -> DriverError {
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
