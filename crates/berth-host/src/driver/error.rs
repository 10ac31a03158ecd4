//! Why the driver's calls on other processes cannot be made, or one of them was refused; each with what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_model::StepFailure;

use super::api::Code;
use super::sys::OpenError;

#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    #[error(
        "no CUDA driver library ({library}: not found): install the NVIDIA driver, or set the library to its libcuda.so.1"
    )]
    NotFound { library: PathBuf },
    #[error("{library} is not a library that can be loaded: {reason}")]
    NotALibrary { library: PathBuf, reason: String },
    #[error("{library} has no {symbol}: install NVIDIA driver 570 or newer")]
    TooOld { library: PathBuf, symbol: &'static str },
    #[error("cannot initialise {library}: {code}")]
    Init { library: PathBuf, code: Code },
    #[error("process {pid} is gone")]
    Gone { pid: u32 },
    #[error("cannot read {file} of process {pid}: {source}")]
    Read { pid: u32, file: &'static str, source: io::Error },
    #[error("process {pid} has no context the driver can {verb}: it has none yet, or gave it back")]
    NoContext { verb: &'static str, pid: u32 },
    #[error("cannot {verb} process {pid} while it is {still}: the driver waits for its threads; let it run first")]
    StandsStill { verb: &'static str, pid: u32, still: String },
    #[error("process {pid} still had work on the GPU after {waited:?}; it was not locked")]
    TimedOut { pid: u32, waited: Duration },
    #[error("the driver did not {verb} process {pid} within {waited:?}, and has not answered yet")]
    Stuck { verb: &'static str, pid: u32, waited: Duration },
    #[error("cannot {verb} process {pid}: an earlier call on it, or somebody else's, is still under way")]
    Busy { verb: &'static str, pid: u32 },
    #[error("cannot {verb} process {pid}: no thread for it: {source}")]
    NoThread { verb: &'static str, pid: u32, source: io::Error },
    #[error("process {pid} was locked by somebody else, with cuda-checkpoint for example; berth leaves that alone")]
    LockedByOthers { pid: u32 },
    #[error("cannot {verb} process {pid}: the driver has it {state}")]
    WrongState { verb: &'static str, pid: u32, state: &'static str },
    #[error("moving the GPU memory of process {pid} failed for good: only its end gives it back")]
    Broken { pid: u32 },
    #[error(
        "the driver cannot {verb} process {pid}: a client of MPS, or it uses unified memory or memory shared with others"
    )]
    Unsupported { verb: &'static str, pid: u32 },
    #[error("not permitted to {verb} process {pid}: run berth as root")]
    Denied { verb: &'static str, pid: u32 },
    #[error("the GPU has no room for the memory of process {pid} yet; it stays parked")]
    NoRoom { pid: u32 },
    #[error("the driver refused to {verb} process {pid}: {code}")]
    Refused { verb: &'static str, pid: u32, code: Code },
}

impl DriverError {
    pub(super) fn from_open(library: &Path, error: OpenError) -> Self {
        let library = library.to_owned();
        match error {
            OpenError::Missing(symbol) => Self::TooOld { library, symbol },
            // glibc starts with the file it could not open, which may be a dependency.
            OpenError::Load(reason)
                if reason.starts_with(&*library.to_string_lossy()) && reason.ends_with("No such file or directory") =>
            {
                Self::NotFound { library }
            }
            OpenError::Load(reason) => Self::NotALibrary { library, reason },
        }
    }

    /// Trying again later may help, or there will be nobody left to try it on: the end of who is gone is told in a moment.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Gone { .. }
            | Self::NoContext { .. }
            | Self::StandsStill { .. }
            | Self::TimedOut { .. }
            | Self::Stuck { .. }
            | Self::Busy { .. }
            | Self::NoThread { .. }
            | Self::NoRoom { .. }
            | Self::Read { .. } => true,
            Self::NotFound { .. }
            | Self::NotALibrary { .. }
            | Self::TooOld { .. }
            | Self::Init { .. }
            | Self::LockedByOthers { .. }
            | Self::WrongState { .. }
            | Self::Broken { .. }
            | Self::Unsupported { .. }
            | Self::Denied { .. }
            | Self::Refused { .. } => false,
        }
    }
}

impl From<DriverError> for StepFailure {
    fn from(error: DriverError) -> StepFailure {
        StepFailure { message: error.to_string(), is_passing: error.is_passing() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_dependency_is_not_taken_for_a_missing_library() {
        let library = Path::new("/opt/libcuda.so.1");
        let own = "/opt/libcuda.so.1: cannot open shared object file: No such file or directory".to_owned();
        let told = DriverError::from_open(library, OpenError::Load(own));
        assert!(matches!(told, DriverError::NotFound { .. }), "{told}");
        let other = "libfoo.so: cannot open shared object file: No such file or directory".to_owned();
        let told = DriverError::from_open(library, OpenError::Load(other));
        assert!(matches!(told, DriverError::NotALibrary { .. }) && told.to_string().contains("libfoo.so"), "{told}");
    }

    #[test]
    fn an_old_driver_is_told_by_the_function_it_lacks_and_the_one_to_install() {
        let told = DriverError::from_open(Path::new("libcuda.so.1"), OpenError::Missing("cuCheckpointProcessLock"));
        assert_eq!(told.to_string(), "libcuda.so.1 has no cuCheckpointProcessLock: install NVIDIA driver 570 or newer");
    }
}
