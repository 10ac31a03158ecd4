//! What can be made to go wrong, on purpose.
//!
//! Every fault is sticky: once it has struck it stays, as a GPU that fell off the bus stays away until a reboot. Each
//! surface can fail alone (the driver, one area of NVML, permissions), because a monitor must survive each alone.
//! *When* a fault strikes is either now ([`Engine::inject`](crate::Engine::inject)) or drawn from the engine's seed
//! ([`Engine::inject_between`](crate::Engine::inject_between)).

use std::collections::BTreeMap;

/// NVML return codes the faults produce, named as in `nvml.h`.
pub mod nvml {
    pub const NOT_SUPPORTED: u32 = 3;
    pub const NO_PERMISSION: u32 = 4;
    pub const DRIVER_NOT_LOADED: u32 = 9;
    pub const TIMEOUT: u32 = 10;
    pub const GPU_IS_LOST: u32 = 15;
    pub const UNKNOWN: u32 = 999;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The GPU fell off the bus: pending and later CUDA calls on it fail, NVML answers `GPU_IS_LOST`.
    GpuLost { gpu: u32 },
    /// Every NVML call of one area answers `code`.
    Nvml { area: NvmlArea, code: u32 },
    /// The reader of NVML may see processes but not what they use.
    NoPermission,
    /// The process's kernel (the running one, or its next) ends in `LAUNCH_FAILED`; its contexts are unusable after.
    KernelFault { pid: u32 },
}

/// Parts of NVML that fail independently of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NvmlArea {
    /// `nvmlInit*`.
    Init,
    /// Counting devices and getting handles and identities.
    Device,
    /// `nvmlDeviceGetMemoryInfo*`.
    Memory,
    /// `nvmlDeviceGetUtilizationRates`.
    Utilisation,
    /// `nvmlDeviceGetComputeRunningProcesses*`.
    ProcessList,
    /// `nvmlDeviceGetProcessUtilization`.
    ProcessUtilisation,
}

impl NvmlArea {
    pub const ALL: [NvmlArea; 6] = [
        NvmlArea::Init,
        NvmlArea::Device,
        NvmlArea::Memory,
        NvmlArea::Utilisation,
        NvmlArea::ProcessList,
        NvmlArea::ProcessUtilisation,
    ];

    /// The name used on command lines and in the documentation.
    pub fn name(self) -> &'static str {
        match self {
            NvmlArea::Init => "init",
            NvmlArea::Device => "device",
            NvmlArea::Memory => "memory",
            NvmlArea::Utilisation => "utilisation",
            NvmlArea::ProcessList => "process-list",
            NvmlArea::ProcessUtilisation => "process-utilisation",
        }
    }

    pub fn from_name(name: &str) -> Option<NvmlArea> {
        NvmlArea::ALL.into_iter().find(|area| area.name() == name)
    }
}

/// A fault is for something the simulation does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoSuchTarget {
    #[error("there is no GPU {gpu} (there are: {})", list(there))]
    Gpu { gpu: u32, there: Vec<u32> },
    #[error("no process {pid} uses the simulated GPUs (there are: {})", list(there))]
    Process { pid: u32, there: Vec<u32> },
}

fn list(numbers: &[u32]) -> String {
    if numbers.is_empty() {
        return "none".into();
    }
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// The faults of NVML in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvmlFaults {
    /// Answered by every function of the area.
    pub codes: BTreeMap<NvmlArea, u32>,
    pub no_permission: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_area_is_found_again_by_its_name() {
        for area in NvmlArea::ALL {
            assert_eq!(NvmlArea::from_name(area.name()), Some(area));
        }
        assert_eq!(NvmlArea::from_name("Init"), None);
    }
}
