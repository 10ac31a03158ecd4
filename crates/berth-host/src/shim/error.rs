//! Why clients cannot attach at all.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ShimError {
    #[error("another daemon answers on {path}: give this one a socket of its own (kernels.socket)")]
    InUse { path: PathBuf },
    #[error("{path} exists and is no socket: remove it, or set kernels.socket to another path")]
    NotASocket { path: PathBuf },
    #[error("making the directory {path} for the socket (kernels.socket chooses another place)")]
    Directory { path: PathBuf, source: io::Error },
    #[error("listening on {path} (kernels.socket chooses another place)")]
    Listen { path: PathBuf, source: io::Error },
    #[error("cannot {attempt}")]
    Io { attempt: &'static str, source: io::Error },
}

impl ShimError {
    pub(super) fn io(attempt: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Io { attempt, source: errno.into() }
    }
}
