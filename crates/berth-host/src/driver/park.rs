//! Parking: a held process's GPU memory goes to host memory, and comes back when there is room.
//!
//! Before anything is moved it is asked whether it can go well: the host has that much memory available, the process's
//! own memory limits leave room (the driver charges the moved memory to the process), it is on one GPU, and computes alone.
//! Peers between GPUs cannot be seen from outside, so a process on several is refused. Unified memory and memory shared
//! between processes cannot be told beforehand either: the driver refuses to move them, and then nothing has changed.
//!
//! **Coming back needs room first.** With drivers of 2025 (580) a restore that runs out of GPU memory cannot be repeated
//! with success, not even with memory enough (NVIDIA/cuda-checkpoint issue 44): the process is lost. So the driver is
//! asked to restore only when the GPU has room for what was there, or nobody else on it. Whoever parks must keep others
//! from taking that room meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_model::hold::{Held, gpu_reserve};
use berth_model::{Bytes, GpuIndex, ProcKey, ProcessKind};

use super::collective::sign;
use super::park_error::ParkError;
use super::target::read;
use super::{Driver, DriverError, State};
use crate::nvml::{GpuLook, GpuProbe, RawReading};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkOptions {
    /// Host memory, and room below a memory limit, to leave untouched.
    pub margin: Bytes,
    /// The slowest the driver may move memory before it counts as stuck, per second. Measured: 1.6 GB out, 4.6 GB in.
    pub slowest: Bytes,
    /// How long moving may take beyond that.
    pub move_within: Duration,
}

/// Moves processes' memory out and back.
pub struct Parking {
    driver: Driver,
    options: ParkOptions,
    /// Looks at the GPUs when somebody is to be parked or restored, and at no other time.
    gpus: Mutex<Gpus>,
    /// What the parked ones need back.
    held: Mutex<HashMap<ProcKey, Held>>,
}

struct Gpus {
    probe: Box<dyn GpuProbe>,
    /// Memory of each.
    total: HashMap<GpuIndex, Option<Bytes>>,
}

impl Default for ParkOptions {
    fn default() -> Self {
        Self { margin: Bytes::from_mib(512), slowest: Bytes::from_mib(256), move_within: Duration::from_secs(30) }
    }
}

// === impl Parking ===

impl Parking {
    /// `probe` sees the GPUs the driver works on.
    pub fn new(driver: Driver, probe: Box<dyn GpuProbe>, options: ParkOptions) -> Parking {
        let gpus = Mutex::new(Gpus { probe, total: HashMap::new() });
        Parking { driver, options, gpus, held: Mutex::default() }
    }

    /// Whether all these processes of a tenant can be parked as things are, and what each holds. Changes nothing. Blocks
    /// for a look at the GPUs.
    pub fn check(&self, processes: &[ProcKey]) -> Result<Vec<Held>, ParkError> {
        let mut tenant = Vec::with_capacity(processes.len());
        for process in processes {
            let held = self.on_one_gpu(*process)?;
            self.refuse_collective(*process)?;
            tenant.push(held);
        }
        let needed: Bytes = tenant.iter().map(|held| self.in_host_memory(held.bytes)).sum();
        self.refuse_full_host(needed)?;
        // The same limit may be over all of them.
        processes.iter().try_for_each(|process| self.refuse_over_limit(*process, needed))?;
        Ok(tenant)
    }

    /// Moves a locked process's memory out. Blocks for seconds. If it cannot be, the process is as it was: locked.
    pub fn checkpoint(&self, process: ProcKey) -> Result<(), ParkError> {
        if self.driver.state(process)? == State::Checkpointed {
            return Ok(());
        }
        let held = *self.check(&[process])?.first().expect("one was asked about");
        // Before the call, since it may come true after its deadline.
        self.remember(process, held);
        self.driver.checkpoint(process, self.time_to_move(held.bytes)).map_err(ParkError::from)
    }

    /// Moves it back, if there is room; it stays locked. Blocks for seconds. No error if it is back already, or gone.
    pub fn restore(&self, process: ProcKey) -> Result<(), ParkError> {
        match self.driver.state(process) {
            Ok(State::Running | State::Locked) | Err(DriverError::Gone { .. } | DriverError::NoContext { .. }) => {
                self.held().remove(&process);
                return Ok(());
            }
            other => other?,
        };
        let needed = self.refuse_without_room(process)?;
        self.driver.restore(process, self.time_to_move(needed))?;
        self.held().remove(&process);
        Ok(())
    }

    /// Locks a process and moves its memory out, or leaves it running.
    pub fn park(&self, process: ProcKey, timeout: Duration) -> Result<(), ParkError> {
        self.check(&[process])?;
        self.driver.lock(process, timeout)?;
        self.checkpoint(process).inspect_err(|_| {
            if let Err(error) = self.driver.unlock(process) {
                tracing::warn!(pid = process.pid, %error, "not parked, and could not be unlocked");
            }
        })
    }

    /// The way back from [`Parking::park`].
    pub fn unpark(&self, process: ProcKey) -> Result<(), ParkError> {
        self.restore(process)?;
        self.driver.unlock(process).map_err(ParkError::from)
    }

    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// What a process that this one parked needs back; worth writing down.
    pub fn needs_back(&self, process: ProcKey) -> Option<Held> {
        self.held().get(&process).copied()
    }

    /// Tells what a process needs that somebody else parked, a daemon before this one for example.
    pub fn remember(&self, process: ProcKey, held: Held) {
        self.held().insert(process, held);
    }

    fn on_one_gpu(&self, process: ProcKey) -> Result<Held, ParkError> {
        let pid = process.pid;
        let gpus = self.look(pid)?;
        let mut found = Vec::new();
        for (gpu, _) in gpus {
            let RawReading::Ok { processes: Ok(processes), .. } = gpu.reading else { continue };
            found.extend(processes.into_iter().filter(|listed| listed.pid == pid).map(|listed| (gpu.index, listed)));
        }
        match &found[..] {
            [] => Err(ParkError::HeldUnknown { pid }),
            [(_, listed)] if listed.kind == ProcessKind::MpsClient => Err(ParkError::MpsClient { pid }),
            [(gpu, listed)] => {
                let bytes = listed.memory.ok_or(ParkError::HeldUnknown { pid })?;
                Ok(Held { gpu: *gpu, bytes })
            }
            several => Err(ParkError::SeveralGpus { pid, count: several.len() }),
        }
    }

    fn refuse_collective(&self, process: ProcKey) -> Result<(), ParkError> {
        let maps = read(self.proc_root(), process, "maps")?;
        let environ = read(self.proc_root(), process, "environ")?;
        let refused = |sign| ParkError::Collective { pid: process.pid, sign };
        sign(&maps, &environ).map_or(Ok(()), |sign| Err(refused(sign)))
    }

    fn refuse_full_host(&self, needed: Bytes) -> Result<(), ParkError> {
        let path = self.proc_root().join("meminfo");
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let available = kib_field(&text, "MemAvailable").ok_or(ParkError::HostMemoryUnknown { path })?;
        let needed = needed + self.options.margin;
        if available < needed { Err(ParkError::HostMemory { needed, available }) } else { Ok(()) }
    }

    fn refuse_over_limit(&self, process: ProcKey, needed: Bytes) -> Result<(), ParkError> {
        let membership = read(self.proc_root(), process, "cgroup")?;
        let needed = needed + self.options.margin;
        match self.driver.shared.hierarchies.memory_room(&membership) {
            Some(tightest) if tightest.room < needed => Err(ParkError::MemoryLimit {
                pid: process.pid,
                needed,
                cgroup: tightest.cgroup,
                room: tightest.room,
                limit: tightest.limit,
            }),
            _ => Ok(()),
        }
    }

    /// How much is to come back.
    fn refuse_without_room(&self, process: ProcKey) -> Result<Bytes, ParkError> {
        let pid = process.pid;
        let known = self.needs_back(process);
        // Whoever parked it did not say. It cannot be more than the process has in host memory, and it may be any GPU.
        let needed = match known {
            Some(held) => held.bytes,
            None => kib_field(&read(self.proc_root(), process, "status")?, "RssAnon")
                .ok_or(ParkError::HeldUnknown { pid })?,
        };
        for (gpu, total) in self.look(pid)? {
            if known.is_some_and(|held| held.gpu != gpu.index) {
                continue;
            }
            let index = gpu.index.0;
            let free = match free(&gpu, total).ok_or(ParkError::RoomUnknown { pid, gpu: index })? {
                Free::All => continue,
                Free::Bytes(free) => free,
            };
            if free < needed {
                return Err(ParkError::NoRoom { pid, gpu: index, needed, free });
            }
        }
        Ok(needed)
    }

    /// One look, each GPU with its memory.
    fn look(&self, pid: u32) -> Result<Vec<(GpuLook, Option<Bytes>)>, ParkError> {
        let mut gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        if gpus.total.is_empty() {
            let inventory = gpus.probe.inventory().map_err(|source| ParkError::Nvml { pid, source })?;
            gpus.total = inventory.into_iter().map(|gpu| (gpu.index, gpu.memory_total)).collect();
        }
        let look = gpus.probe.look(false);
        let with_total = |gpu: GpuLook| {
            let total = gpus.total.get(&gpu.index).copied().flatten();
            (gpu, total)
        };
        Ok(look.gpus.into_iter().map(with_total).collect())
    }

    /// What moved memory takes in host memory: measured 7 % more than on the GPU.
    fn in_host_memory(&self, on_gpu: Bytes) -> Bytes {
        on_gpu + Bytes(on_gpu.0 / 8)
    }

    fn time_to_move(&self, bytes: Bytes) -> Duration {
        self.options.move_within + Duration::from_secs(bytes.0 / self.options.slowest.0.max(1))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<ProcKey, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn proc_root(&self) -> &Path {
        &self.driver.shared.options.proc_root
    }
}

enum Free {
    /// Nobody is there.
    All,
    Bytes(Bytes),
}

/// `None`: cannot be told.
fn free(gpu: &GpuLook, total: Option<Bytes>) -> Option<Free> {
    let RawReading::Ok { memory_used, processes, .. } = &gpu.reading else { return None };
    if processes.as_ref().is_ok_and(Vec::is_empty) {
        return Some(Free::All);
    }
    let total = total?;
    Some(Free::Bytes(Bytes(total.0.saturating_sub((*memory_used)?.0).saturating_sub(gpu_reserve(total).0))))
}

/// A line of `/proc/meminfo` or `/proc/PID/status`: `Name:   123 kB`.
fn kib_field(text: &str, name: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kib: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib * 1024))
}

impl fmt::Debug for Parking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parking").field("driver", &self.driver).field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_by_their_whole_name() {
        let text = "MemTotal:  100 kB\nMemAvailable:    42 kB\nMemAvailableX: 7 kB\n";
        assert_eq!(kib_field(text, "MemAvailable"), Some(Bytes(42 * 1024)));
        assert_eq!(kib_field(text, "MemAvail"), None);
        assert_eq!(kib_field("RssAnon:\t  8 pages\n", "RssAnon"), None);
    }
}
