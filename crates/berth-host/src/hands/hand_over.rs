//! From a freeze by the cgroup, or in the shelter, to the engine's pause, without the container running in between.
//!
//! The engine is asked whether it answers at all before anything is touched. If it does not pause the container after that, the
//! container's cgroup is frozen as before.

use berth_model::ContainerId;

use super::pause::{PauseError, claimed_pause};
use crate::docker::Pauser;
use crate::freezer::{CgroupDir, Freezer};

/// Returns when the engine has the container paused and its processes are back in its cgroup. May be repeated.
pub fn to_engine(pauser: &Pauser, freezer: &Freezer, id: &ContainerId, dir: &CgroupDir) -> Result<(), PauseError> {
    freezer.claim(dir)?;
    let says_paused = pauser.says_paused(id)?.ok_or_else(|| PauseError::NoSuchContainer { id: id.clone() })?;
    let is_frozen = dir.state()?.own;
    if says_paused && is_frozen {
        return Ok(freezer.unshelter(dir)?);
    }
    let sheltered = match (is_frozen, freezer.is_sheltered(dir)) {
        (true, _) => freezer.shelter(dir).map_err(PauseError::from),
        (false, true) => Ok(()),
        // Someone has thawed it since; who that was is told by others.
        (false, false) => return Err(PauseError::NotHeld { id: id.clone() }),
    };
    let paused = sheltered.and_then(|()| claimed_pause(pauser, freezer, id, dir));
    if paused.is_err() {
        freezer.freeze(dir)?;
    }
    freezer.unshelter(dir)?;
    paused
}
