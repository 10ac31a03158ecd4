//! What crosses a process boundary: fixed layouts, messages and C types that two programs must agree on.
//!
//! Nothing here has a socket, only the task table has a clock, and nothing here decides anything.

pub mod cuda;
pub mod functions;
pub mod nvml;
pub mod nvml_state;
#[cfg(not(loom))]
pub mod shim;
pub mod sim;
pub mod sim_dir;
pub mod table;
pub mod wire;
