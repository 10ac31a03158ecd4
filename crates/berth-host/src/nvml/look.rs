//! One look at the GPUs: first with the driver's bare pids, then with processes that cannot be mistaken.

use std::collections::HashMap;

use berth_model::{Bytes, GpuIndex, GpuProcess, GpuReading, GpuSample, Mono, Percent, ProcKey, ProcessKind, Sample};

use crate::clock::{self, BootTicks};
use crate::procs::Registry;

/// What the MPS control daemon starts; it computes on behalf of its clients.
const MPS_SERVER: &str = "nvidia-cuda-mps-server";

/// What the driver said.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// When the look began.
    pub at: Mono,
    /// The same instant, on the clock that process start times are counted by.
    pub at_ticks: BootTicks,
    pub gpus: Vec<GpuLook>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GpuLook {
    pub index: GpuIndex,
    pub reading: RawReading,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RawReading {
    Ok {
        memory_used: Option<Bytes>,
        core: Option<Percent>,
        /// `Err`: why the list could not be read this time.
        processes: Result<Vec<RawProcess>, String>,
    },
    Lost {
        reason: String,
    },
}

/// A process as the driver lists it. Each pid is listed once per GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawProcess {
    pub pid: u32,
    pub kind: ProcessKind,
    pub memory: Option<Bytes>,
    pub core: Option<Percent>,
}

/// Whom each listed pid stood for when the driver began to list it.
///
/// A driver may list a dead process's pid for a while: until its contexts are torn down, or for as long as a child keeps
/// the device open. If the pid is handed out meanwhile, the newcomer must not be taken for the one on the GPU. So a
/// listing that goes on from look to look stays that of the process it began with; only after a look without it may the
/// pid mean somebody else.
#[derive(Debug, Default)]
pub struct Listings {
    /// `None`: there was no such process.
    first: HashMap<(GpuIndex, u32), Option<ProcKey>>,
}

impl Look {
    /// A look that begins now and has seen nothing yet.
    pub fn begin() -> Self {
        Self { at: clock::now(), at_ticks: clock::boot_ticks(), gpus: Vec::new() }
    }

    /// Names the processes. One that has ended since is left out, and so is a newcomer that got its pid. `listings` is
    /// the same from look to look.
    pub fn resolve(self, registry: &Registry, listings: &mut Listings) -> Sample {
        let began = self.at_ticks;
        let gpus = self.gpus.into_iter().map(|gpu| GpuSample {
            index: gpu.index,
            reading: match gpu.reading {
                RawReading::Lost { reason } => {
                    listings.forget_missing(gpu.index, &[]);
                    GpuReading::Lost { reason }
                }
                RawReading::Ok { memory_used, core, processes } => {
                    let processes = match processes {
                        Ok(listed) => Some(listings.name(gpu.index, &listed, began, registry)),
                        Err(reason) => {
                            tracing::debug!(gpu = gpu.index.0, reason, "no process list this time");
                            None
                        }
                    };
                    GpuReading::Ok { memory_used, core, processes }
                }
            },
        });
        let gpus = gpus.collect();
        Sample { at: self.at, took: clock::now().since(self.at), gpus }
    }
}

// === impl Listings ===

impl Listings {
    fn name(
        &mut self,
        gpu: GpuIndex,
        listed: &[RawProcess],
        look_began: BootTicks,
        registry: &Registry,
    ) -> Vec<GpuProcess> {
        self.forget_missing(gpu, listed);
        let named = listed.iter().filter_map(|raw| {
            // Not announced before it is known to be the one: a newcomer is often not yet in its own cgroup.
            let process = registry.identify(raw.pid);
            let is_it = self.is_meant(gpu, raw.pid, process, look_began);
            is_it.then(|| name(raw, process?, registry))?
        });
        named.collect()
    }

    fn is_meant(&mut self, gpu: GpuIndex, pid: u32, process: Option<ProcKey>, look_began: BootTicks) -> bool {
        let is_new = process.is_some_and(|process| !was_there(process, look_began));
        if is_new {
            return false;
        }
        let first = *self.first.entry((gpu, pid)).or_insert(process);
        process.is_some() && first == process
    }

    fn forget_missing(&mut self, gpu: GpuIndex, listed: &[RawProcess]) {
        self.first.retain(|(of, pid), _| *of != gpu || listed.iter().any(|raw| raw.pid == *pid));
    }
}

fn name(raw: &RawProcess, process: ProcKey, registry: &Registry) -> Option<GpuProcess> {
    let facts = registry.facts(raw.pid).filter(|facts| facts.process == process)?;
    let kind = if program(&facts.command) == MPS_SERVER { ProcessKind::MpsServer } else { raw.kind };
    // Under MPS the driver counts the clients' work as the server's.
    let core = raw.core.filter(|_| kind != ProcessKind::MpsClient);
    Some(GpuProcess { process: facts.process, kind, memory: raw.memory, core })
}

/// A process that started in the tick of the look or later is not the one the driver listed: no program has a context
/// within 10 ms of its start. It is a newcomer with a dead one's pid.
fn was_there(process: ProcKey, look_began: BootTicks) -> bool {
    process.start_ticks < look_began.0
}

/// The file name of the program a command runs.
fn program(command: &str) -> &str {
    let path = command.split(' ').next().unwrap_or(command);
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_born_after_the_look_began_was_not_in_it() {
        let born = |start_ticks| ProcKey { pid: 1, start_ticks };
        assert!(was_there(born(99), BootTicks(100)));
        assert!(!was_there(born(100), BootTicks(100)));
        assert!(!was_there(born(250), BootTicks(100)));
    }

    #[test]
    fn a_listing_that_goes_on_stays_that_of_the_process_it_began_with() {
        let (gpu, pid, look) = (GpuIndex(0), 7, BootTicks(1_000));
        let raw = [RawProcess { pid, kind: ProcessKind::Compute, memory: None, core: None }];
        let life = |start_ticks| Some(ProcKey { pid, start_ticks });
        let mut listings = Listings::default();
        assert!(listings.is_meant(gpu, pid, life(10), look));
        assert!(!listings.is_meant(gpu, pid, None, look), "it has died");
        assert!(!listings.is_meant(gpu, pid, life(20), look), "a newcomer has its pid");
        assert!(listings.is_meant(GpuIndex(1), pid, life(20), look), "on another GPU nobody had it");
        listings.forget_missing(gpu, &raw);
        assert!(!listings.is_meant(gpu, pid, life(20), look), "it is listed still");
        listings.forget_missing(gpu, &[]);
        assert!(listings.is_meant(gpu, pid, life(20), look), "a look without it has ended the old listing");
    }

    #[test]
    fn a_listing_that_began_with_nobody_is_never_somebody_s() {
        let mut listings = Listings::default();
        assert!(!listings.is_meant(GpuIndex(0), 7, None, BootTicks(1_000)));
        let newcomer = Some(ProcKey { pid: 7, start_ticks: 20 });
        assert!(!listings.is_meant(GpuIndex(0), 7, newcomer, BootTicks(1_000)));
    }

    #[test]
    fn the_program_is_the_file_s_name() {
        assert_eq!(program("/usr/bin/nvidia-cuda-mps-server -x /y"), MPS_SERVER);
        assert_eq!(program("python3 nvidia-cuda-mps-server"), "python3");
        assert_eq!(program(""), "");
    }
}
