//! One cgroup that can be frozen: what its files say, and changing it with the effect confirmed.
//!
//! v1 has `freezer.state`, v2 `cgroup.freeze` with the outcome in `cgroup.events`. Nothing here asks whose cgroup it is.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::error::FreezerError;
use super::patience::Patience;

/// A freeze of processes that fork all the time can stick half-way on v1; asking again moves it on.
const ASK_AGAIN_EVERY: Duration = Duration::from_millis(10);
/// Every so many times it is asked again, the processes are let go first.
const LET_GO_EVERY: u128 = 5;

/// The directory of a cgroup in a hierarchy that can freeze.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupDir {
    path: PathBuf,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V1,
    V2,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    pub motion: Motion,
    /// This cgroup itself was told to freeze.
    pub own: bool,
    /// One above it was.
    pub above: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    Thawed,
    /// Told to freeze; some of its processes may still run.
    Freezing,
    Frozen,
}

impl CgroupDir {
    pub fn open(path: &Path) -> Result<CgroupDir, FreezerError> {
        let version = if path.join("freezer.state").exists() {
            Version::V1
        } else if path.join("cgroup.freeze").exists() {
            Version::V2
        } else if path.exists() {
            return Err(FreezerError::NoFreezer { path: path.to_owned() });
        } else {
            return Err(FreezerError::Gone { path: path.to_owned() });
        };
        Ok(CgroupDir { path: path.to_owned(), version })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Tells this cgroup from a later one of the same name.
    pub(super) fn inode(&self) -> Result<u64, FreezerError> {
        let metadata = fs::metadata(self.path.join("cgroup.procs"));
        metadata.map(|metadata| metadata.ino()).map_err(|source| self.failure("look at", "cgroup.procs", source))
    }

    pub fn state(&self) -> Result<State, FreezerError> {
        match self.version {
            Version::V1 => self.state_v1(),
            Version::V2 => self.state_v2(),
        }
    }

    /// Returns when nothing in it runs any more. If that cannot be reached in time it is undone.
    pub fn freeze(&self, within: Duration) -> Result<(), FreezerError> {
        self.freeze_telling(within, |_| ())
    }

    /// As [`CgroupDir::freeze`]. `told` hears `true` when the kernel was asked: from then on no thread in it gets back to its
    /// program; and `false` when it is frozen, or before what could not be is undone.
    pub fn freeze_telling(&self, within: Duration, told: impl Fn(bool)) -> Result<(), FreezerError> {
        let frozen = self.tell(true).map(|()| told(true)).and_then(|()| self.settle(within));
        told(false);
        frozen.map_err(|error| match (error, self.thaw(within)) {
            (error, Err(undoing)) if undoing.is_gone() => error,
            (FreezerError::NotFrozen { path, within, .. }, undone) => {
                FreezerError::NotFrozen { path, within, undone: undone.is_ok() }
            }
            (error, _) => error,
        })
    }

    /// Returns when it keeps nobody from running; a cgroup above it may. One that is gone is thawed.
    pub fn thaw(&self, within: Duration) -> Result<(), FreezerError> {
        match self.tell(false).and_then(|()| self.loosen(within)) {
            Err(error) if error.is_gone() => Ok(()),
            thawed => thawed,
        }
    }

    fn settle(&self, within: Duration) -> Result<(), FreezerError> {
        let patience = Patience::new(within);
        let mut asked = 0;
        while !self.is_frozen()? {
            let times = patience.waited().as_nanos() / ASK_AGAIN_EVERY.as_nanos();
            if self.version == Version::V1 && times > asked {
                asked = times;
                if times.is_multiple_of(LET_GO_EVERY) {
                    self.tell(false)?;
                }
                self.tell(true)?;
            }
            if !patience.rest() {
                return Err(FreezerError::NotFrozen { path: self.path.clone(), within, undone: false });
            }
        }
        Ok(())
    }

    fn loosen(&self, within: Duration) -> Result<(), FreezerError> {
        let patience = Patience::new(within);
        loop {
            let state = self.state()?;
            if !state.own && (state.above || state.motion == Motion::Thawed) {
                return Ok(());
            }
            if !patience.rest() {
                return Err(FreezerError::NotThawed { path: self.path.clone(), within });
            }
        }
    }

    fn tell(&self, freeze: bool) -> Result<(), FreezerError> {
        let (file, word) = match (self.version, freeze) {
            (Version::V1, true) => ("freezer.state", "FROZEN"),
            (Version::V1, false) => ("freezer.state", "THAWED"),
            (Version::V2, true) => ("cgroup.freeze", "1"),
            (Version::V2, false) => ("cgroup.freeze", "0"),
        };
        let written = OpenOptions::new().write(true).open(self.path.join(file));
        written
            .and_then(|mut file| file.write_all(word.as_bytes()))
            .map_err(|source| self.failure("write", file, source))
    }

    /// The one thing to know while waiting: fewer files than [`CgroupDir::state`].
    fn is_frozen(&self) -> Result<bool, FreezerError> {
        match self.version {
            Version::V1 => self.motion_v1().map(|motion| motion == Motion::Frozen),
            Version::V2 => self.frozen_v2(),
        }
    }

    fn motion_v1(&self) -> Result<Motion, FreezerError> {
        let text = self.read("freezer.state")?;
        match text.as_str() {
            "THAWED" => Ok(Motion::Thawed),
            "FREEZING" => Ok(Motion::Freezing),
            "FROZEN" => Ok(Motion::Frozen),
            _ => Err(FreezerError::Malformed { path: self.path.join("freezer.state"), text }),
        }
    }

    /// A cgroup that has processes of its own is told frozen as soon as those are; the cgroups below it may not be yet.
    fn frozen_v2(&self) -> Result<bool, FreezerError> {
        Ok(frozen_event(&self.path)? && is_frozen_below(&self.path)?)
    }

    fn state_v1(&self) -> Result<State, FreezerError> {
        let motion = self.motion_v1()?;
        let own = self.read("freezer.self_freezing")? == "1";
        Ok(State { motion, own, above: self.read("freezer.parent_freezing")? == "1" })
    }

    fn state_v2(&self) -> Result<State, FreezerError> {
        let frozen = self.frozen_v2()?;
        let own = self.read("cgroup.freeze")? == "1";
        let above = self.path.ancestors().skip(1).map_while(freeze_flag).any(|flag| flag);
        let motion = match frozen {
            true => Motion::Frozen,
            false if own || above => Motion::Freezing,
            false => Motion::Thawed,
        };
        Ok(State { motion, own, above })
    }

    fn read(&self, file: &'static str) -> Result<String, FreezerError> {
        read(&self.path.join(file))
    }

    fn failure(&self, attempt: &'static str, file: &str, source: std::io::Error) -> FreezerError {
        FreezerError::io(attempt, &self.path.join(file), source)
    }
}

fn read(file: &Path) -> Result<String, FreezerError> {
    let text = fs::read_to_string(file).map_err(|source| FreezerError::io("read", file, source))?;
    Ok(text.trim_end().to_owned())
}

fn frozen_event(dir: &Path) -> Result<bool, FreezerError> {
    let path = dir.join("cgroup.events");
    let events = read(&path)?;
    let frozen = events.lines().find_map(|line| line.strip_prefix("frozen ")).map(|value| value == "1");
    frozen.ok_or(FreezerError::Malformed { path, text: events })
}

fn is_frozen_below(dir: &Path) -> Result<bool, FreezerError> {
    let entries = fs::read_dir(dir).map_err(|source| FreezerError::io("list", &dir.join("cgroup.procs"), source))?;
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let child = entry.path();
        match frozen_event(&child).and_then(|frozen| Ok(frozen && is_frozen_below(&child)?)) {
            Ok(true) => {}
            Err(error) if error.is_gone() => {}
            unfrozen => return unfrozen,
        }
    }
    Ok(true)
}

/// `None` above the hierarchy, and for its root, which cannot be frozen.
fn freeze_flag(dir: &Path) -> Option<bool> {
    Some(fs::read_to_string(dir.join("cgroup.freeze")).ok()?.trim_end() == "1")
}
