//! The kernel's freezer: everything in a tenant's cgroup stands still, and goes on as if nothing had been.
//!
//! cgroup v1, v2 and hosts that have both. A freeze is confirmed, not assumed, and undone if it cannot be completed in
//! time. Only what was frozen here is thawed: a cgroup that somebody else froze first is refused, and left frozen.
//!
//! Engines do not know of it; see `hands` for how their own pause is used.

mod dir;
mod error;
mod locate;
mod patience;
mod pending;
mod shelter;
mod sight;

#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_model::ProcKey;
use berth_model::hold::Signal;

pub use dir::{CgroupDir, Motion, State, Version};
pub use error::{FreezerError, Refusal};
pub use locate::Hierarchies;
use patience::Patience;
pub use shelter::below as shelter_below;
pub use sight::{OutOfSight, SightError, see_as_the_host};

use crate::procs::read;

/// Freezes and thaws tenants' own cgroups. Blocks, usually for less than a millisecond.
#[derive(Debug)]
pub struct Freezer {
    proc_root: PathBuf,
    hierarchies: Hierarchies,
    /// For one freeze or thaw to take effect.
    within: Duration,
    /// Cgroups met so far: whose the freeze on them is. Those frozen by an earlier daemon are not among them.
    met: Mutex<HashMap<PathBuf, Met>>,
}

#[derive(Debug, Clone, Copy)]
struct Met {
    /// A container that restarts has a new cgroup of the same name.
    inode: u64,
    whose: Whose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Theirs,
}

impl Freezer {
    pub fn new(proc_root: &Path, hierarchies: Hierarchies, within: Duration) -> Freezer {
        Freezer { proc_root: proc_root.to_owned(), hierarchies, within, met: Mutex::default() }
    }

    /// The cgroup of the tenant that `process` belongs to; `None` for a tenant without one of its own.
    pub fn find(&self, process: ProcKey) -> Result<Option<CgroupDir>, FreezerError> {
        let pid = process.pid;
        let path = self.proc_root.join(pid.to_string()).join("cgroup");
        let text = fs::read_to_string(path).map_err(|_| FreezerError::NoProcess { pid })?;
        // Read afterwards: if it is the same process now, it was then.
        if read::key(&self.proc_root, pid).ok() != Some(process) {
            return Err(FreezerError::NoProcess { pid });
        }
        self.hierarchies.tenant_dir(&text).map(|dir| self.open(&dir)).transpose()
    }

    /// A cgroup known by its directory. Those that must never be frozen are refused.
    pub fn open(&self, dir: &Path) -> Result<CgroupDir, FreezerError> {
        let ours = self.proc_root.join("self/cgroup");
        let text = fs::read_to_string(&ours);
        let text = text.map_err(|source| FreezerError::Io { attempt: "read", path: ours, source })?;
        self.hierarchies.check(dir, &text)?;
        CgroupDir::open(dir)
    }

    /// Confirmed when it returns. May be repeated. Refuses what somebody else has frozen.
    pub fn freeze(&self, dir: &CgroupDir) -> Result<(), FreezerError> {
        self.freeze_telling(dir, |_| ())
    }

    /// As [`Freezer::freeze`]; for `told` see [`CgroupDir::freeze_telling`].
    pub fn freeze_telling(&self, dir: &CgroupDir, told: impl Fn(bool)) -> Result<(), FreezerError> {
        self.claim(dir)?;
        dir.freeze_telling(self.within, told).inspect_err(|_| self.forget(dir))
    }

    /// Confirmed when it returns. May be repeated. What somebody else has frozen stays so.
    pub fn thaw(&self, dir: &CgroupDir) -> Result<(), FreezerError> {
        if !self.may_thaw(dir) {
            self.forget(dir);
            return Ok(());
        }
        dir.thaw(self.within)?;
        self.forget(dir);
        Ok(())
    }

    /// A signal that waits for one of `processes`, or for one they descend from, in the cgroup at `dir`, which cannot take it while it
    /// is frozen, and that somebody sent it to be acted on.
    pub fn awaited_signal(&self, dir: &Path, processes: &BTreeSet<ProcKey>) -> Option<Signal> {
        let is_own = |found: PathBuf| found == dir || found == shelter::below(dir);
        let is_inside = |cgroup_file: &str| self.hierarchies.tenant_dir(cgroup_file).is_some_and(is_own);
        pending::awaited_signal(&self.proc_root, is_inside, processes)
    }

    /// Its processes stand in a frozen cgroup below `dir`, and `dir` itself is thawed. It must be frozen by us.
    pub(crate) fn shelter(&self, dir: &CgroupDir) -> Result<(), FreezerError> {
        shelter::enter(dir, self.within)?;
        dir.thaw(self.within)
    }

    /// As [`Freezer::freeze_telling`], but in the shelter: `dir` itself stays as it is.
    pub(crate) fn freeze_sheltered(&self, dir: &CgroupDir, told: impl Fn(bool)) -> Result<(), FreezerError> {
        self.claim(dir)?;
        shelter::freeze(dir, self.within, told).inspect_err(|_| self.forget(dir))
    }

    /// Undoes [`Freezer::freeze_sheltered`], or without a shelter the freeze of `dir` that stood in for it. May be repeated.
    pub(crate) fn thaw_sheltered(&self, dir: &CgroupDir) -> Result<(), FreezerError> {
        if !self.is_sheltered(dir) {
            return self.thaw(dir);
        }
        // `dir` itself was not frozen by us. If it is, that is somebody's pause, and they go back into it.
        self.unshelter(dir)?;
        self.forget(dir);
        Ok(())
    }

    /// There may be processes of it in the shelter.
    pub(crate) fn is_sheltered(&self, dir: &CgroupDir) -> bool {
        shelter::is_there(dir)
    }

    /// Back to `dir`, and to what that is: frozen or not. May be repeated, also if nobody was in the shelter.
    pub(crate) fn unshelter(&self, dir: &CgroupDir) -> Result<(), FreezerError> {
        shelter::leave(dir, self.within)
    }

    /// Waits until somebody else's freeze of `dir` is complete; `false` if nobody froze it, or not in time.
    pub(crate) fn is_soon_frozen(&self, dir: &CgroupDir) -> Result<bool, FreezerError> {
        let patience = Patience::new(self.within);
        loop {
            let state = dir.state()?;
            if state.motion == Motion::Frozen || !state.own || !patience.rest() {
                return Ok(state.own && state.motion == Motion::Frozen);
            }
        }
    }

    /// Notes that a freeze of `dir` is about to be ours, unless it is somebody else's already.
    pub(crate) fn claim(&self, dir: &CgroupDir) -> Result<(), FreezerError> {
        let (inode, state) = (dir.inode()?, dir.state()?);
        let mut met = self.met();
        // Tenants that ended while they were held are never thawed.
        met.retain(|path, _| path.exists());
        let is_ours = met.get(dir.path()).is_some_and(|met| met.inode == inode && met.whose == Whose::Ours);
        let whose = if state.own && !is_ours { Whose::Theirs } else { Whose::Ours };
        met.insert(dir.path().to_owned(), Met { inode, whose });
        match whose {
            Whose::Ours => Ok(()),
            Whose::Theirs => Err(FreezerError::HeldByOthers { path: dir.path().to_owned() }),
        }
    }

    /// What is not known was frozen by an earlier daemon, which wrote it down.
    pub(crate) fn may_thaw(&self, dir: &CgroupDir) -> bool {
        let met = self.met().get(dir.path()).copied();
        met.is_none_or(|met| met.whose == Whose::Ours && dir.inode().ok() == Some(met.inode))
    }

    pub(crate) fn forget(&self, dir: &CgroupDir) {
        self.met().remove(dir.path());
    }

    fn met(&self) -> MutexGuard<'_, HashMap<PathBuf, Met>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
