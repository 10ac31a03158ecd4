//! The mechanisms of a GPU host: each turns what the kernel, the driver or the engine says into [`berth_model::Event`]s.
//!
//! One module per mechanism, none knows another except that all name processes through [`procs::Registry`] and time
//! through [`clock`]. What an event means is the model's business, which source to use when is the engine's. Unsafe code
//! is in the `sys` modules only.

pub mod clock;
pub mod connector;
pub mod docker;
pub mod driver;
pub mod freezer;
pub mod hands;
pub mod levels;
pub mod nvml;
pub mod probes;
pub mod procs;
pub mod shim;

#[cfg(test)]
mod testing;
