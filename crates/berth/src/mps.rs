//! Whether an MPS server is run on this host, by the pipe that its control daemon makes.

use std::path::PathBuf;

/// As the driver finds it.
const VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";
const USUAL: &str = "/tmp/nvidia-mps";

/// The directory of its pipes, as the driver would look for it.
pub fn directory() -> PathBuf {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map_or_else(|| USUAL.into(), PathBuf::from)
}

pub fn is_there() -> bool {
    directory().join("control").exists()
}
