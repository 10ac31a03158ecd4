//! The simulated GPU: a model of what the driver, the silicon and NVML do, without any of the three.
//!
//! [`Engine`] is pure: virtual time in nanoseconds comes in, replies and completions go out; no clock, no I/O, no
//! unsafe code, and the same seed and requests give the same answers. [`Profile`] is the GPU as data, [`Fault`] what
//! can go wrong, [`scenario`] runs small programs against an engine in virtual time.
//!
//! What is modelled, what is not, and every parameter: `docs/simulator.md`.

pub mod engine;
pub mod fault;
pub mod profile;
pub mod published;
pub mod scenario;
pub mod server;

pub use engine::{
    Completion, Engine, GpuView, NvmlView, Outcome, ProcessView, Sharing, SmSample, Ticket, Traffic, Utilisation,
};
pub use fault::{Fault, NoSuchTarget, NvmlArea, NvmlFaults};
pub use profile::{Profile, ProfileError};
