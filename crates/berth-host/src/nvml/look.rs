//! One look at the GPUs: first with the driver's bare pids, then with processes that cannot be mistaken.

use std::collections::HashMap;
use std::time::Duration;

use berth_model::{
    Bytes, GpuIndex, GpuProcess, GpuReading, GpuSample, Mono, Percent, ProcKey, ProcessFacts, ProcessKind, Sample,
};

use crate::clock::{self, BootTicks};
use crate::procs::{Holder, Now, Registry};

/// What the MPS control daemon starts; it computes on behalf of its clients.
const MPS_SERVER: &str = "nvidia-cuda-mps-server";

/// What the driver said.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// When the look began.
    pub at: Mono,
    /// The same instant, on the clock that process start times are counted by.
    pub at_ticks: BootTicks,
    /// CPU time of the looking thread, then.
    pub at_cpu: Duration,
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
        memory_free: Option<Bytes>,
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
/// listing that goes on from look to look stays that of the process it began with, and one found by the first look after
/// a process's end is that process's; only after a look without it may the pid mean somebody else.
#[derive(Debug, Default)]
pub struct Listings {
    /// `None`: there was no such process.
    first: HashMap<(GpuIndex, u32), Option<ProcKey>>,
    /// When the look that last read the list began.
    read_at: HashMap<GpuIndex, Mono>,
}

impl Look {
    /// A look that begins now and has seen nothing yet.
    pub fn begin() -> Self {
        Self { at: clock::now(), at_ticks: clock::boot_ticks(), at_cpu: clock::thread_cpu(), gpus: Vec::new() }
    }

    /// Names the processes, on the thread that looked. One that has ended since is left out, and so is a newcomer that
    /// got its pid. `listings` is the same from look to look.
    pub fn resolve(self, registry: &Registry, listings: &mut Listings) -> Sample {
        let (at, began) = (self.at, self.at_ticks);
        let gpus = self.gpus.into_iter().map(|gpu| GpuSample {
            index: gpu.index,
            reading: match gpu.reading {
                RawReading::Lost { reason } => {
                    listings.forget_missing(gpu.index, &[]);
                    GpuReading::Lost { reason }
                }
                RawReading::Ok { memory_used, memory_free, core, processes } => {
                    let processes = processes.map(|listed| {
                        let named = listings.name(gpu.index, &listed, began, registry);
                        listings.read_at.insert(gpu.index, at);
                        named
                    });
                    GpuReading::Ok { memory_used, memory_free, core, processes }
                }
            },
        });
        let gpus = gpus.collect();
        let cpu = clock::thread_cpu().saturating_sub(self.at_cpu);
        Sample { at: self.at, took: clock::now().since(self.at), cpu, gpus }
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
            let holder = registry.holder(raw.pid);
            let process = self.meant(gpu, raw.pid, holder, look_began)?;
            name(raw, process, registry)
        });
        named.collect()
    }

    /// The holder of a pid, if it is the one the driver means. A holder that could not be told begins no listing: the
    /// next look tries again.
    fn meant(&mut self, gpu: GpuIndex, pid: u32, holder: Holder, look_began: BootTicks) -> Option<ProcKey> {
        let read_at = self.read_at.get(&gpu);
        let is_unseen = |ended: Mono| read_at.is_none_or(|read_at| ended >= *read_at);
        let before = holder.before.filter(|(_, ended)| is_unseen(*ended)).map(|(process, _)| process);
        let now = match holder.now {
            Now::Process(process) => Some(process),
            Now::Nobody => None,
            Now::Untold if before.is_none() => return None,
            Now::Untold => None,
        };
        let first = *self.first.entry((gpu, pid)).or_insert(before.or(now));
        now.filter(|now| was_there(*now, look_began) && first == Some(*now))
    }

    fn forget_missing(&mut self, gpu: GpuIndex, listed: &[RawProcess]) {
        self.first.retain(|(of, pid), _| *of != gpu || listed.iter().any(|raw| raw.pid == *pid));
    }
}

fn name(raw: &RawProcess, process: ProcKey, registry: &Registry) -> Option<GpuProcess> {
    let facts = registry.facts(raw.pid).filter(|facts| facts.process == process)?;
    let kind = if is_mps_server(&facts, registry) { ProcessKind::MpsServer } else { raw.kind };
    // Under MPS the driver counts the clients' work as the server's.
    let core = raw.core.filter(|_| kind != ProcessKind::MpsClient);
    Some(GpuProcess { process: facts.process, kind, memory: raw.memory, core })
}

/// What it is called anybody can be. One in a container is its tenant's: the engine gives the program itself to containers.
fn is_mps_server(facts: &ProcessFacts, registry: &Registry) -> bool {
    program(&facts.command) == MPS_SERVER
        && facts.tenant.container_id().is_none()
        && registry.runs_host_program(facts.process, MPS_SERVER)
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

    const PID: u32 = 7;
    const LOOK: BootTicks = BootTicks(1_000);

    fn life(start_ticks: u64) -> ProcKey {
        ProcKey { pid: PID, start_ticks }
    }

    fn held(now: Now) -> Holder {
        Holder { now, before: None }
    }

    impl Listings {
        fn is_meant(&mut self, gpu: u32, holder: Holder) -> bool {
            self.meant(GpuIndex(gpu), PID, holder, LOOK).is_some()
        }
    }

    #[test]
    fn a_listing_that_goes_on_stays_that_of_the_process_it_began_with() {
        let raw = [RawProcess { pid: PID, kind: ProcessKind::Compute, memory: None, core: None }];
        let mut listings = Listings::default();
        let (old, new) = (held(Now::Process(life(10))), held(Now::Process(life(20))));
        assert!(listings.is_meant(0, old));
        assert!(!listings.is_meant(0, held(Now::Nobody)), "it has died");
        assert!(!listings.is_meant(0, new), "a newcomer has its pid");
        assert!(listings.is_meant(1, new), "on another GPU nobody had it");
        listings.forget_missing(GpuIndex(0), &raw);
        assert!(!listings.is_meant(0, new), "it is listed still");
        listings.forget_missing(GpuIndex(0), &[]);
        assert!(listings.is_meant(0, new), "a look without it has ended the old listing");
    }

    #[test]
    fn a_listing_found_right_after_an_end_is_that_of_the_dead_even_if_no_look_saw_it_alive() {
        let mut listings = Listings { read_at: HashMap::from([(GpuIndex(0), Mono(500))]), ..Listings::default() };
        let swapped_at = |ended| Holder { now: Now::Process(life(20)), before: Some((life(10), Mono(ended))) };
        assert!(!listings.is_meant(0, swapped_at(501)));
        assert!(!listings.is_meant(0, held(Now::Process(life(20)))), "it goes on");
        listings.forget_missing(GpuIndex(0), &[]);
        assert!(listings.is_meant(0, swapped_at(499)), "a look since the end did not list it");
    }

    #[test]
    fn a_listing_that_began_with_nobody_is_never_somebody_s() {
        let mut listings = Listings::default();
        assert!(!listings.is_meant(0, held(Now::Nobody)));
        assert!(!listings.is_meant(0, held(Now::Process(life(20)))));
    }

    #[test]
    fn a_holder_that_could_not_be_told_is_found_by_a_later_look() {
        let mut listings = Listings::default();
        assert!(!listings.is_meant(0, held(Now::Untold)));
        assert!(listings.is_meant(0, held(Now::Process(life(20)))));
        assert!(!listings.is_meant(0, held(Now::Untold)));
        assert!(listings.is_meant(0, held(Now::Process(life(20)))), "and an unlucky look between changes nothing");
        let dead = Some((life(10), Mono(1)));
        assert!(!listings.is_meant(1, Holder { now: Now::Untold, before: dead }));
        assert!(!listings.is_meant(1, held(Now::Process(life(20)))), "the dead one's listing is not a newcomer's");
    }

    #[test]
    fn the_program_is_the_file_s_name() {
        assert_eq!(program("/usr/bin/nvidia-cuda-mps-server -x /y"), MPS_SERVER);
        assert_eq!(program("python3 nvidia-cuda-mps-server"), "python3");
        assert_eq!(program(""), "");
    }
}
