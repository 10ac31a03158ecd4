//! Why a cgroup could not be found, frozen or thawed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

#[derive(Debug, thiserror::Error)]
pub enum FreezerError {
    #[error("the cgroup {path} is gone")]
    Gone { path: PathBuf },
    #[error("process {pid} is gone")]
    NoProcess { pid: u32 },
    #[error("the cgroup {path} cannot be frozen: it has neither freezer.state nor cgroup.freeze")]
    NoFreezer { path: PathBuf },
    #[error("the cgroup {path} is left alone: {why}")]
    Refused { path: PathBuf, why: Refusal },
    #[error("somebody else has frozen the cgroup {path}")]
    HeldByOthers { path: PathBuf },
    #[error("cannot {attempt} {path}: {source}")]
    Io { attempt: &'static str, path: PathBuf, source: io::Error },
    #[error("{path} does not read as the kernel's documentation says: {text:?}")]
    Malformed { path: PathBuf, text: String },
    #[error("the cgroup {path} was not frozen within {} ms{}", within.as_millis(), if *undone { "" } else { ", and may still be" })]
    NotFrozen { path: PathBuf, within: Duration, undone: bool },
    #[error("the processes of {path} cannot stand elsewhere for a moment: {why}")]
    NoShelter { path: PathBuf, why: &'static str },
    #[error("the cgroup {path} was not thawed within {} ms", within.as_millis())]
    NotThawed { path: PathBuf, within: Duration },
}

/// Which cgroups are never frozen, whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("it is the root of its hierarchy")]
    Root,
    #[error("it is in no hierarchy that berth was told of")]
    Elsewhere,
    #[error("berth itself is in it")]
    OurOwn,
    #[error("other tenants' cgroups are in it")]
    Shared,
}

impl FreezerError {
    /// A cgroup can vanish between any two calls: its file is then not found, or its open file has no device.
    pub(super) fn io(attempt: &'static str, path: &Path, source: io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::NODEV) => Self::Gone { path: path.parent().unwrap_or(path).to_owned() },
            _ => Self::Io { attempt, path: path.to_owned(), source },
        }
    }

    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Gone { .. } | Self::NoProcess { .. })
    }

    /// Trying again may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::NotFrozen { .. } | Self::NotThawed { .. })
    }
}
