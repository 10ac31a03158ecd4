//! Pausing a container through its engine, with the freezer as the judge.
//!
//! The engine keeps a flag of its own, and a late message from below can set it wrong: it then refuses to pause what runs
//! ("already paused") or to let go what stands still. So whatever it answers, the freezer is looked at; and where the two
//! disagree, the freezer is moved to where the engine believes it, which makes both right.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use berth_model::{ContainerId, StepFailure};

use crate::docker::{Answer, DockerError, Pauser};
use crate::freezer::{CgroupDir, Freezer, FreezerError};

/// A call that waits is held up by this much longer.
const LOOK_EVERY: Duration = Duration::from_millis(1);

#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error(transparent)]
    Engine(#[from] DockerError),
    #[error(transparent)]
    Freezer(#[from] FreezerError),
    #[error("the engine has no container {}", id.short())]
    NoSuchContainer { id: ContainerId },
    #[error("the engine did not pause {} (it answered {status}): {message}", id.short())]
    Refused { id: ContainerId, status: u16, message: String },
    #[error("{} is not frozen any more", id.short())]
    NotHeld { id: ContainerId },
    #[error("the engine says it paused {}, but its processes run", id.short())]
    NotFrozen { id: ContainerId },
}

impl PauseError {
    fn is_passing(&self) -> bool {
        match self {
            Self::Engine(_) | Self::Refused { .. } | Self::NotFrozen { .. } => true,
            Self::Freezer(error) => error.is_passing(),
            Self::NoSuchContainer { .. } | Self::NotHeld { .. } => false,
        }
    }
}

impl From<PauseError> for StepFailure {
    fn from(error: PauseError) -> StepFailure {
        StepFailure { is_passing: error.is_passing(), message: error.to_string() }
    }
}

/// Returns when the container is paused and its processes stand still. For `told` see [`CgroupDir::freeze_telling`].
pub fn pause(
    pauser: &Pauser,
    freezer: &Freezer,
    id: &ContainerId,
    dir: &CgroupDir,
    told: impl Fn(bool) + Sync,
) -> Result<(), PauseError> {
    freezer.claim(dir)?;
    let paused = telling(dir, &told, || claimed_pause(pauser, freezer, id, dir));
    if paused.is_err() && !dir.state().is_ok_and(|state| state.own) {
        freezer.forget(dir);
    }
    paused
}

/// The engine does not say when it has asked the kernel, and answers when that is done: meanwhile the freezer is looked at.
fn telling<T>(dir: &CgroupDir, told: &(impl Fn(bool) + Sync), pause: impl FnOnce() -> T) -> T {
    let (over_tx, over_rx) = channel::<()>();
    let look = move || {
        while over_rx.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            if dir.state().is_ok_and(|state| state.own) {
                return told(true);
            }
        }
    };
    let paused = std::thread::scope(|scope| {
        if let Err(error) = std::thread::Builder::new().name("berth-look".into()).spawn_scoped(scope, look) {
            tracing::debug!(%error, "calls that wait hold up the pause");
        }
        let paused = pause();
        drop(over_tx);
        paused
    });
    told(false);
    paused
}

pub(super) fn claimed_pause(
    pauser: &Pauser,
    freezer: &Freezer,
    id: &ContainerId,
    dir: &CgroupDir,
) -> Result<(), PauseError> {
    match pauser.pause(id)? {
        Answer::Done if freezer.is_soon_frozen(dir)? => Ok(()),
        Answer::Done => Err(PauseError::NotFrozen { id: id.clone() }),
        Answer::NoSuchContainer => Err(PauseError::NoSuchContainer { id: id.clone() }),
        Answer::Refused { .. } if freezer.is_soon_frozen(dir)? => Ok(()),
        Answer::Refused { status, message } => {
            if pauser.says_paused(id)? != Some(true) {
                return Err(PauseError::Refused { id: id.clone(), status, message });
            }
            tracing::warn!(container = %id, message, "the engine believes it paused already; frozen directly");
            freezer.freeze(dir).map_err(PauseError::from)
        }
    }
}

/// Returns when the container's processes run, whatever the engine makes of it. `dir` is `None` if its cgroup is gone.
pub fn unpause(
    pauser: &Pauser,
    freezer: &Freezer,
    id: &ContainerId,
    dir: Option<&CgroupDir>,
) -> Result<(), PauseError> {
    if let Some(dir) = dir
        && !freezer.may_thaw(dir)
    {
        freezer.forget(dir);
        return Ok(());
    }
    let answer = pauser.unpause(id);
    let Some(dir) = dir else { return answer.map(drop).map_err(PauseError::from) };
    let is_own = match dir.state() {
        Err(error) if error.is_gone() => false,
        state => state?.own,
    };
    match answer {
        Ok(Answer::Done | Answer::NoSuchContainer) if !is_own => {}
        Ok(Answer::Refused { .. }) if !is_own => correct(pauser, freezer, id, dir)?,
        answer => tracing::warn!(container = %id, ?answer, "the engine left it frozen; thawed directly"),
    }
    freezer.thaw(dir).map_err(PauseError::from)
}

/// The engine may believe a running container paused. Frozen for a moment, it can let it go on.
fn correct(pauser: &Pauser, freezer: &Freezer, id: &ContainerId, dir: &CgroupDir) -> Result<(), PauseError> {
    if pauser.says_paused(id).ok().flatten() != Some(true) {
        return Ok(());
    }
    freezer.freeze(dir)?;
    let answer = pauser.unpause(id);
    tracing::warn!(container = %id, ?answer, "the engine believed it paused; corrected");
    Ok(())
}
