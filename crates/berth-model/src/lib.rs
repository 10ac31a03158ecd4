//! The pure heart of berth: what a GPU host looks like and how it changes, with no clock, file, socket or thread.
//!
//! Events come in with the time they happened; [`Monitor`] turns them into tenants and tasks; a [`Snapshot`] is what
//! every surface shows. Mechanisms that produce events live in `berth-host`, the loop that feeds them in `berth-engine`.
#![forbid(unsafe_code)]

pub mod bursts;
pub mod cgroup;
pub mod cluster;
pub mod control;
pub mod deadline;
pub mod event;
pub mod fields;
pub mod history;
pub mod hold;
pub mod id;
pub mod kernels;
pub mod monitor;
pub mod quantity;
pub mod settings;
pub mod slo;
pub mod snapshot;
pub mod stat;
pub mod taking_part;
#[cfg(test)]
mod testing;
pub mod time;
pub mod watch;

pub use deadline::Deadline;
pub use event::{
    BandwidthUse, Change, ContainerFacts, Endurance, Event, Evidence, GpuInfo, GpuProcess, GpuReading, GpuSample,
    HaltedCall, HealthChecks, Moment, ProcessFacts, ProcessKind, Sample, Source, SourceStatus, StepFailure, Stop,
};
pub use id::{ContainerId, GpuIndex, GpuUuid, ProcKey, Runtime, TaskId, TenantKey};
pub use monitor::Monitor;
pub use quantity::{Bytes, Percent};
pub use settings::Settings;
pub use slo::Slo;
pub use snapshot::{GpuView, Snapshot, TaskRow, TaskState};
pub use stat::Stat;
pub use time::{Anchor, Mono, Span};
