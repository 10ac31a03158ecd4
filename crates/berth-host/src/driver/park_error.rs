//! Why a process is not parked, or does not come back yet; with numbers where numbers decide.

use std::path::PathBuf;

use berth_model::{Bytes, StepFailure};

use super::DriverError;
use super::collective::Sign;
use crate::nvml::NvmlError;

#[derive(Debug, thiserror::Error)]
pub enum ParkError {
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("cannot tell what process {pid} has on the GPUs: {source}")]
    Nvml { pid: u32, source: NvmlError },
    #[error("cannot tell how much GPU memory process {pid} has: the driver does not list it, or not its memory")]
    HeldUnknown { pid: u32 },
    #[error("process {pid} is on {count} GPUs; what it shares between them would not survive")]
    SeveralGpus { pid: u32, count: usize },
    #[error("process {pid} is a client of MPS, whose memory the driver does not move")]
    MpsClient { pid: u32 },
    #[error("process {pid} computes together with others: {sign}")]
    Collective { pid: u32, sign: Sign },
    #[error("parking needs {needed} of host memory, {available} are available")]
    HostMemory { needed: Bytes, available: Bytes },
    #[error("cannot read how much host memory is available from {path}")]
    HostMemoryUnknown { path: PathBuf },
    #[error("parking process {pid} needs {needed} within its memory limit, but {cgroup} leaves {room} of {limit}")]
    MemoryLimit { pid: u32, needed: Bytes, cgroup: PathBuf, room: Bytes, limit: Bytes },
    #[error("process {pid} needs {needed} on GPU {gpu} to come back, {free} are free; it stays parked")]
    NoRoom { pid: u32, gpu: u32, needed: Bytes, free: Bytes },
    #[error("cannot tell whether GPU {gpu} has room for process {pid}; it stays parked")]
    RoomUnknown { pid: u32, gpu: u32 },
}

impl ParkError {
    /// Trying again later may help.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Driver(error) => error.is_passing(),
            Self::Nvml { .. }
            | Self::HostMemory { .. }
            | Self::MemoryLimit { .. }
            | Self::NoRoom { .. }
            | Self::RoomUnknown { .. } => true,
            Self::HeldUnknown { .. }
            | Self::SeveralGpus { .. }
            | Self::MpsClient { .. }
            | Self::Collective { .. }
            | Self::HostMemoryUnknown { .. } => false,
        }
    }
}

impl From<ParkError> for StepFailure {
    fn from(error: ParkError) -> StepFailure {
        StepFailure { message: error.to_string(), is_passing: error.is_passing() }
    }
}
