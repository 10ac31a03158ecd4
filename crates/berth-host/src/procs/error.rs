//! Why processes cannot be followed at all, or one not be told this time. A process that is gone is no error.

use std::io;
use std::path::PathBuf;

use super::read::ReadError;

#[derive(Debug, thiserror::Error)]
pub enum ProcsError {
    #[error("{path} is not a proc file system: cannot read {path}/self: {source}")]
    NotProc { path: PathBuf, source: io::Error },
    #[error(
        "{path} shows another pid namespace: its `self` is {shown}, this process is {pid}; run berth in the host's pid namespace"
    )]
    OtherNamespace { path: PathBuf, shown: String, pid: u32 },
    #[error("cannot open a pidfd: {source}; Linux 5.3 or newer is needed")]
    NoPidfd { source: io::Error },
    #[error("cannot set up the watch for process exits: {source}")]
    Watch { source: io::Error },
}

/// Why it could not be told who has a pid.
#[derive(Debug, thiserror::Error)]
pub(super) enum IdentifyError {
    #[error("cannot open a pidfd of process {pid}: {source}")]
    Pidfd { pid: u32, source: io::Error },
    #[error(transparent)]
    Read(#[from] ReadError),
}
