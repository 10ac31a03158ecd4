//! What this host can do, level by level, and source by source: for `berth doctor`.
//!
//! Facts are gathered first, by trying where trying changes nothing; what they mean is decided by pure functions below.
//! Of a level that berth does not use yet it says what the *host* offers.

mod gather;
mod sys;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::PathBuf;

use berth_model::hold::Means;
use berth_model::{Settings, Source};
use serde::Serialize;

use crate::freezer::OutOfSight;
pub use gather::gather;

/// What can be done with a tenant. Only observing is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Observe,
    /// Its container is paused.
    Freeze,
    /// The driver refuses its new work and drains what it has submitted.
    Lock,
    /// It is stopped at its next launch or allocation.
    Gate,
    /// Its GPU memory is moved to host memory.
    Park,
    /// It gets a share of the GPU's processors.
    Partition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Level(Level),
    Source(Source),
    /// Whether what happens can be remembered, which whoever keeps the history finds out.
    History,
    /// Whether holds are on record, which whoever reads the journal finds out.
    Holds,
    /// Whether tenants can take part at the level of kernels, which whoever offers it finds out.
    Kernels,
    /// Whether this host can be asked as a node of a cluster, and whether its placer answers; whoever asks them finds out.
    Node,
    Placer,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Status {
    /// It works.
    Available { detail: String },
    /// The host has what it takes; this version of berth does not use it yet.
    Offered { detail: String },
    /// `reason` says why not, and how to get it.
    Missing { reason: String },
    /// Switched off by the settings.
    Off,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    pub subject: Subject,
    #[serde(flatten)]
    pub status: Status,
}

/// All that is known about the host. `Err` holds the mechanism's words: why not, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub nvml: Result<NvmlFacts, String>,
    /// Whether processes can be followed.
    pub processes: Result<(), String>,
    /// `None`: switched off.
    pub docker: Option<Result<String, String>>,
    pub process_events: Option<Result<String, String>>,
    pub probes: Option<Result<String, String>>,
    /// As the kernel sees it, whatever the settings say.
    pub uprobes: Result<String, String>,
    /// How processes are halted by them.
    pub halting: &'static str,
    pub freezers: Vec<Freezer>,
    /// Why tenants' cgroups cannot be found in them, if so.
    pub out_of_sight: Option<OutOfSight>,
    /// The library that tenants are probed by.
    pub cuda: Result<CudaFacts, String>,
    /// The library that they are locked and parked by.
    pub driver: Result<CudaFacts, String>,
    /// What the settings let berth do to a tenant.
    pub means: BTreeSet<Means>,
    /// Where the MPS control program is.
    pub mps_control: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NvmlFacts {
    pub driver: Option<String>,
    /// All that the driver lists.
    pub gpus: usize,
    /// Those of them that cannot be observed, and why.
    pub unseen: Vec<String>,
    /// How many of them can be divided into instances.
    pub mig_capable: usize,
}

/// What the CUDA driver library has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CudaFacts {
    pub library: PathBuf,
    pub has_lock: bool,
    pub has_checkpoint: bool,
    pub has_green_contexts: bool,
}

/// A mounted hierarchy that can freeze.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Freezer {
    pub version: CgroupVersion,
    pub mount: PathBuf,
    pub is_writable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

/// Finds out everything: seconds at most. The levels first, in order, then the sources.
pub fn check(settings: &Settings) -> Vec<LevelReport> {
    reports(&gather(settings))
}

/// What the facts mean.
pub fn reports(facts: &Facts) -> Vec<LevelReport> {
    let level = |level, status| LevelReport { subject: Subject::Level(level), status };
    let source = |source, status| LevelReport { subject: Subject::Source(source), status };
    vec![
        level(Level::Observe, observe(facts)),
        level(Level::Freeze, allowed(facts, Means::Freeze, freeze(facts))),
        level(Level::Lock, allowed(facts, Means::Lock, lock(&facts.driver))),
        level(Level::Gate, allowed(facts, Means::Gate, gate(facts))),
        level(Level::Park, allowed(facts, Means::Park, park(facts))),
        level(Level::Partition, partition(facts)),
        source(Source::Nvml, found(facts.nvml.as_ref().map(describe))),
        source(Source::Docker, optional(facts.docker.as_ref())),
        source(Source::ProcessEvents, optional(facts.process_events.as_ref())),
        source(Source::Probes, optional(facts.probes.as_ref())),
    ]
}

fn observe(facts: &Facts) -> Status {
    match (&facts.nvml, &facts.processes) {
        (Ok(nvml), Ok(())) if nvml.gpus == 0 => {
            missing("the driver answers and lists no GPU: is one plugged in, and given to this container?")
        }
        (Ok(nvml), Ok(())) if nvml.unseen.len() >= nvml.gpus => {
            missing(format!("{}: reset the GPU (nvidia-smi --gpu-reset), or reboot", describe(nvml)))
        }
        (Ok(nvml), Ok(())) => Status::Available { detail: describe(nvml) },
        (Err(reason), _) | (_, Err(reason)) => missing(reason),
    }
}

/// A means that the settings leave out is not used, whatever the host offers.
fn allowed(facts: &Facts, means: Means, status: Status) -> Status {
    if facts.means.contains(&means) { status } else { Status::Off }
}

fn freeze(facts: &Facts) -> Status {
    let freezers = &facts.freezers;
    let name = |freezer: &Freezer| {
        let version = match freezer.version {
            CgroupVersion::V1 => "cgroup v1 freezer",
            CgroupVersion::V2 => "cgroup v2",
        };
        format!("{version} at {}", freezer.mount.display())
    };
    if freezers.is_empty() {
        return missing("no cgroup hierarchy that can freeze is mounted: mount cgroup2 at /sys/fs/cgroup");
    }
    let writable: Vec<String> = freezers.iter().filter(|freezer| freezer.is_writable).map(name).collect();
    if writable.is_empty() {
        let seen: Vec<String> = freezers.iter().map(name).collect();
        return missing(format!("{} may not be written: run berth as root, on the host", seen.join(" and ")));
    }
    match facts.out_of_sight {
        Some(why) => missing(why.to_string()),
        None => Status::Available { detail: writable.join(" and ") },
    }
}

fn lock(cuda: &Result<CudaFacts, String>) -> Status {
    match cuda {
        Err(reason) => missing(reason),
        Ok(cuda) if cuda.has_lock => {
            Status::Available { detail: format!("{} has cuCheckpointProcessLock", cuda.library.display()) }
        }
        Ok(cuda) => too_old(cuda, "cuCheckpointProcessLock"),
    }
}

fn gate(facts: &Facts) -> Status {
    match (&facts.uprobes, &facts.cuda) {
        // It is made of probes.
        _ if facts.probes.is_none() => Status::Off,
        (Err(reason), _) | (_, Err(reason)) => missing(reason),
        (Ok(detail), Ok(cuda)) => {
            let (library, halting) = (cuda.library.display(), facts.halting);
            Status::Available { detail: format!("{detail}, on {library}; processes are halted {halting}") }
        }
    }
}

/// Memory comes back only where NVML tells that there is room for it.
fn park(facts: &Facts) -> Status {
    match (&facts.driver, &facts.nvml) {
        (Err(reason), _) | (_, Err(reason)) => missing(reason),
        (Ok(driver), Ok(_)) if driver.has_lock && driver.has_checkpoint => {
            Status::Available { detail: format!("{} has cuCheckpointProcessCheckpoint", driver.library.display()) }
        }
        (Ok(driver), Ok(_)) => too_old(driver, "cuCheckpointProcessCheckpoint"),
    }
}

fn partition(facts: &Facts) -> Status {
    let mut ways = Vec::new();
    if let Some(program) = &facts.mps_control {
        ways.push(format!("MPS ({})", program.display()));
    }
    if facts.cuda.as_ref().is_ok_and(|cuda| cuda.has_green_contexts) {
        ways.push("green contexts".to_owned());
    }
    if facts.nvml.as_ref().is_ok_and(|nvml| nvml.mig_capable > 0) {
        ways.push("MIG".to_owned());
    }
    if ways.is_empty() {
        return missing(
            "neither MPS, green contexts nor MIG are here: install nvidia-cuda-mps-control, or the driver of CUDA 12.4",
        );
    }
    Status::Offered { detail: ways.join(", ") }
}

fn describe(nvml: &NvmlFacts) -> String {
    let plural = if nvml.gpus == 1 { "" } else { "s" };
    let driver = nvml.driver.as_ref().map_or_else(String::new, |version| format!(", driver {version}"));
    let unseen: String = nvml.unseen.iter().map(|words| format!("; {words}")).collect();
    format!("{} GPU{plural}{driver}{unseen}", nvml.gpus)
}

fn found(fact: Result<String, &String>) -> Status {
    match fact {
        Ok(detail) => Status::Available { detail },
        Err(reason) => missing(reason),
    }
}

fn optional(fact: Option<&Result<String, String>>) -> Status {
    fact.map_or(Status::Off, |fact| found(fact.as_ref().cloned()))
}

fn too_old(cuda: &CudaFacts, symbol: &str) -> Status {
    missing(format!("{} has no {symbol}: install NVIDIA driver 570 or newer", cuda.library.display()))
}

fn missing(reason: impl Into<String>) -> Status {
    Status::Missing { reason: reason.into() }
}
