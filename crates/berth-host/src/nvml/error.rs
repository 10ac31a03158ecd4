//! Why the driver's management library cannot be used, each with what to do about it.

use std::path::{Path, PathBuf};

use nvml_wrapper::error::NvmlError as Code;

#[derive(Debug, thiserror::Error)]
pub enum NvmlError {
    #[error("cannot find {library}: install the NVIDIA driver, or set nvml.library to where its libnvidia-ml.so.1 is")]
    NotFound { library: PathBuf },
    #[error(
        "{library} is not a library that can be loaded ({reason}): set nvml.library to the driver's libnvidia-ml.so.1"
    )]
    NotALibrary { library: PathBuf, reason: String },
    #[error(
        "{library} is not NVML, or of a driver older than 510: it has no {symbol}; set nvml.library to the driver's libnvidia-ml.so.1"
    )]
    NotNvml { library: PathBuf, symbol: &'static str },
    #[error(
        "{library} finds no loaded NVIDIA driver: load it (modprobe nvidia), and if berth runs in a container, give it the GPUs"
    )]
    DriverNotLoaded { library: PathBuf },
    #[error("{library} may not use the GPUs: run berth as root, or give it access to /dev/nvidiactl and /dev/nvidia*")]
    NoPermission { library: PathBuf },
    #[error(
        "{library} and the loaded NVIDIA driver are of different versions: reboot or reload the driver after its update"
    )]
    VersionMismatch { library: PathBuf },
    #[error("cannot initialise {library}: {source}")]
    Init { library: PathBuf, source: Code },
    #[error("{call} failed: {source}")]
    Call { call: &'static str, source: Code },
}

impl NvmlError {
    /// What `dlopen` said, told apart. glibc starts with the file it could not open, which may be a dependency.
    pub(super) fn from_load(library: &Path, reason: String) -> Self {
        let library = library.to_owned();
        let missing = reason.starts_with(&*library.to_string_lossy()) && reason.ends_with("No such file or directory");
        if missing { Self::NotFound { library } } else { Self::NotALibrary { library, reason } }
    }

    pub(super) fn from_init(library: &Path, source: Code) -> Self {
        let library = library.to_owned();
        match source {
            Code::DriverNotLoaded => Self::DriverNotLoaded { library },
            Code::NoPermission => Self::NoPermission { library },
            Code::LibRmVersionMismatch => Self::VersionMismatch { library },
            source => Self::Init { library, source },
        }
    }
}

/// Answers that mean the GPU, or the whole driver, is gone; any other failure only leaves one value unknown.
pub(super) fn is_lost(error: &Code) -> bool {
    matches!(
        error,
        Code::GpuLost
            | Code::ResetRequired
            | Code::Uninitialized
            | Code::DriverNotLoaded
            | Code::LibRmVersionMismatch
            | Code::OperatingSystem
    )
}

/// Answers that mean this driver or GPU has no such thing, now or later.
pub(super) fn is_absent(error: &Code) -> bool {
    matches!(error, Code::NotSupported | Code::FunctionNotFound | Code::FailedToLoadSymbol(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_dependency_is_not_taken_for_a_missing_library() {
        let library = Path::new("/opt/libnvidia-ml.so.1");
        let own = "/opt/libnvidia-ml.so.1: cannot open shared object file: No such file or directory";
        assert!(matches!(NvmlError::from_load(library, own.into()), NvmlError::NotFound { .. }));
        let other = "libfoo.so: cannot open shared object file: No such file or directory";
        let told = NvmlError::from_load(library, other.into());
        assert!(matches!(told, NvmlError::NotALibrary { .. }) && told.to_string().contains("libfoo.so"), "{told}");
    }

    #[test]
    fn every_refusal_names_the_library_and_a_remedy() {
        let library = Path::new("/opt/ml.so");
        for (code, remedy) in [
            (Code::DriverNotLoaded, "modprobe nvidia"),
            (Code::NoPermission, "root"),
            (Code::LibRmVersionMismatch, "reboot"),
        ] {
            let told = NvmlError::from_init(library, code).to_string();
            assert!(told.contains("/opt/ml.so") && told.contains(remedy), "{told}");
        }
    }
}
