//! One look at the GPUs: first with the driver's bare pids, then with processes that cannot be mistaken.

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

impl Look {
    /// A look that begins now and has seen nothing yet.
    pub fn begin() -> Self {
        Self { at: clock::now(), at_ticks: clock::boot_ticks(), gpus: Vec::new() }
    }

    /// Names the processes. One that has ended since is left out, and so is a newcomer that got its pid.
    pub fn resolve(self, registry: &Registry) -> Sample {
        let began = self.at_ticks;
        let gpus = self.gpus.into_iter().map(|gpu| GpuSample {
            index: gpu.index,
            reading: match gpu.reading {
                RawReading::Lost { reason } => GpuReading::Lost { reason },
                RawReading::Ok { memory_used, core, processes } => {
                    let processes = match processes {
                        Ok(listed) => Some(listed.iter().filter_map(|raw| name(raw, began, registry)).collect()),
                        Err(reason) => {
                            tracing::debug!(gpu = gpu.index.0, reason, "no process list this time");
                            None
                        }
                    };
                    GpuReading::Ok { memory_used, core, processes }
                }
            },
        });
        Sample { at: self.at, gpus: gpus.collect() }
    }
}

fn name(raw: &RawProcess, look_began: BootTicks, registry: &Registry) -> Option<GpuProcess> {
    let facts = registry.facts(raw.pid)?;
    if !was_there(facts.process, look_began) {
        return None;
    }
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
    fn the_program_is_the_file_s_name() {
        assert_eq!(program("/usr/bin/nvidia-cuda-mps-server -x /y"), MPS_SERVER);
        assert_eq!(program("python3 nvidia-cuda-mps-server"), "python3");
        assert_eq!(program(""), "");
    }
}
