//! What goes into and comes out of the [`Engine`](super::Engine), apart from the requests and replies themselves.

use berth_proto::sim::Reply;

use crate::fault::NvmlFaults;

/// A call that is not answered yet; its [`Completion`] carries the same ticket, exactly once, unless its process exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    Now(Reply),
    Later(Ticket),
}

/// The answer to an [`Outcome::Later`]. `pid` is the process that asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    pub ticket: Ticket,
    pub pid: u32,
    pub reply: Reply,
}

/// How processes come to the SMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sharing {
    /// The driver's default: one process at a time, in turns, with a cost at each change.
    #[default]
    TimeSliced,
    /// All processes in one context through the MPS server.
    Mps,
}

/// What NVML would say now.
#[derive(Debug, Clone, PartialEq)]
pub struct NvmlView {
    pub gpus: Vec<GpuView>,
    pub faults: NvmlFaults,
    pub sharing: Sharing,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GpuView {
    /// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    pub uuid: String,
    pub name: String,
    /// `00000000:3B:00.0`.
    pub pci_bus_id: String,
    pub total_bytes: u64,
    pub used_bytes: u64,
    pub utilisation: Utilisation,
    /// By pid. A process is there while a context of it holds memory: from before it is ready until it is gone, but not
    /// while checkpointed.
    pub processes: Vec<ProcessView>,
    pub traffic: Traffic,
    /// Every call on this GPU answers `GPU_IS_LOST`.
    pub lost: bool,
}

/// What kernels have moved since the start, as time in which all of the memory's bandwidth was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    pub full_ns: u64,
    /// End of the last window that is counted. A GPU that is idle has none after it.
    pub until_ns: u64,
}

/// Means over the last whole window; up to a window old.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Utilisation {
    /// Time in which a kernel ran.
    pub gpu_pct: u32,
    /// Time in which device memory was read or written by kernels.
    pub memory_pct: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessView {
    pub pid: u32,
    /// `None` without permission.
    pub used_bytes: Option<u64>,
    /// `None` until the process ran a kernel in a whole window, and under MPS, where all use counts as the server's.
    pub sm: Option<SmSample>,
}

/// A process's share of the last window it ran in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmSample {
    pub pct: u32,
    /// End of the window, in the engine's time.
    pub at_ns: u64,
}
