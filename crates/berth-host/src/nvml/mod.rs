//! GPUs, their memory and who is on them, from the driver's management library.
//!
//! [`NvmlProbe`] asks the library named in the settings: the real one or the simulated one, it cannot tell. Costs decide
//! the shape: the process list takes the driver 0.3 ms at twenty processes, use per process 2 ms, so each is asked for
//! once per look and the latter only on demand. The library lists bare pids; [`Look::resolve`] names the processes.
//!
//! It does not decide how often to look, and has no thread of its own: calls block for as long as the driver does.

mod counters;
mod device;
mod error;
#[cfg(any(test, feature = "fakes"))]
mod fake;
mod look;
mod probe;
mod sys;

#[cfg(test)]
mod tests;

use berth_model::{BandwidthUse, GpuInfo};

pub use error::NvmlError;
#[cfg(any(test, feature = "fakes"))]
pub use fake::{FakeGpu, FakeProbe};
pub use look::{GpuLook, Listings, Look, RawProcess, RawReading};
pub use probe::NvmlProbe;

/// Something that sees GPUs.
pub trait GpuProbe: Send {
    /// The GPUs there are now and can be described. Fixes their numbering: later looks speak of these GPUs by these
    /// indices, whatever order the driver finds them in later. One that the driver lists and that does not answer has no
    /// description; looks tell it as lost, and read it once it answers, until a new inventory can describe it. Blocks for
    /// milliseconds; may be called again at any time.
    fn inventory(&mut self) -> Result<Vec<GpuInfo>, NvmlError>;

    /// Looks at every GPU there was at the last inventory, once, in its order; without one there is none. Never fails as
    /// a whole: a GPU or driver that is gone is a reading, and answers again once it is back, without a new probe. What
    /// is in a GPU's place is never read as that GPU: a stranger makes it lost first and then, known to be replaced, left
    /// out of looks, until a new inventory names its successor. A value the driver does not give is `None`.
    /// `per_process_core` asks for each process's use of the GPU since the last time it was asked for; without it, every
    /// process's `core` is `None`. Blocks for up to milliseconds.
    fn look(&mut self, per_process_core: bool) -> Look;

    /// What was used of each GPU's memory bandwidth since this was last asked. Nothing of a GPU that has no counters of it, nor the first time,
    /// nor after seconds in which nobody asked.
    fn bandwidth(&mut self) -> Vec<BandwidthUse>;
}
