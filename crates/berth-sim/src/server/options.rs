//! What to serve, and what can go wrong with it.

use std::io;
use std::path::PathBuf;

use berth_proto::nvml_state::{MAX_GPUS, StateError};

use super::libraries::Libraries;
use crate::{Profile, Sharing};

#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Made if it does not exist.
    pub dir: PathBuf,
    pub profile: Profile,
    pub gpu_count: u32,
    pub seed: u64,
    pub sharing: Sharing,
    /// How many times faster than the real thing; the caller's own clock is not scaled.
    pub time_scale: f64,
    /// The built cdylibs; `None` takes those beside the running program.
    pub libraries: Option<Libraries>,
}

impl ServeOptions {
    /// One GPU at its own speed.
    pub fn new(dir: impl Into<PathBuf>, profile: Profile) -> Self {
        Self {
            dir: dir.into(),
            profile,
            gpu_count: 1,
            seed: 0,
            sharing: Sharing::default(),
            time_scale: 1.0,
            libraries: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ServeError> {
        if !(self.time_scale.is_finite() && self.time_scale > 0.0) {
            return Err(ServeError::TimeScale { scale: self.time_scale });
        }
        if self.gpu_count == 0 || self.gpu_count as usize > MAX_GPUS {
            return Err(ServeError::GpuCount { count: self.gpu_count });
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("time scale is {scale}, must be a number above 0")]
    TimeScale { scale: f64 },
    #[error("{count} GPUs asked for, must be 1 to {MAX_GPUS}")]
    GpuCount { count: u32 },
    #[error("another simulator already serves {dir}")]
    AlreadyServed { dir: PathBuf },
    #[error("no simulated driver library {name} in any of: {}; build it with `cargo build -p berth-sim-cuda -p berth-sim-nvml`", list(.tried))]
    NoLibrary { name: &'static str, tried: Vec<PathBuf> },
    #[error("{what} {path}")]
    File { what: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Snapshot(#[from] StateError),
    #[error("{what}")]
    System { what: &'static str, source: io::Error },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}
