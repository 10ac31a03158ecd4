//! `libnvidia-ml.so.1` of the simulated GPU: answers from the simulator's published snapshot, and from nothing else.
//!
//! No socket, no lock, no thread: a monitor that asks can be held up neither by a tenant nor by the simulator. The
//! snapshot's age is checked at every call, so a simulator that died is a lost GPU. What the simulated GPU does not have
//! (sensors, clocks, fans) answers "not supported", as NVML itself does for hardware without them.
//!
//! `exports.rs` is the C edge; every function behind it is plain Rust.

mod device;
mod edge;
mod exports;
mod gpm;
mod processes;
mod state;
mod system;
