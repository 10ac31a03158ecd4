//! One GPU: what it is asked at each look, and what its answers mean.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::{BandwidthUse, Bytes, GpuIndex, GpuInfo, GpuUuid, Mono, Percent, ProcessKind};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError as Code;
use nvml_wrapper::struct_wrappers::device::{ProcessInfo, ProcessUtilizationSample};
use nvml_wrapper::{Device, Nvml};

use crate::clock;

use super::counters::Counters;
use super::error::{is_absent, is_lost};
use super::sys::{self, Buffers, List};
use super::{RawProcess, RawReading};

/// At least this often the graphics and MPS lists are read, though nothing hints at a change.
const OTHER_LISTS_EVERY: Duration = Duration::from_secs(1);

/// How old a sample of a process's use may be, by the driver's wall clock.
const USE_LOOKS_BACK_US: u64 = 1_500_000;

/// A GPU of the inventory.
#[derive(Debug)]
pub struct Watched {
    pub index: GpuIndex,
    /// `None` until it first answers: it was lost when the inventory was taken.
    pub uuid: Option<GpuUuid>,
    /// Where the driver has it in its present order; `None` if it no longer does.
    pub position: Option<u32>,
    others: OtherLists,
    counters: Counters,
    /// Time of the newest use sample seen, by the driver's clock; older ones are not asked for again.
    last_use_us: u64,
}

/// Graphics processes and MPS clients: rare on a compute host, and as dear as the compute list. They are read when the
/// compute list has other pids than before, when there were some last time, and once in a while.
#[derive(Debug, Default)]
struct OtherLists {
    read_at: Option<Mono>,
    compute_pids: Vec<u32>,
    graphics: Vec<Listed>,
    mps: Vec<Listed>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listed {
    pid: u32,
    memory: Option<Bytes>,
}

/// Everything asked of a device goes through these.
struct Ask<'a> {
    nvml: &'a Nvml,
    device: Device<'a>,
    buffers: &'a mut Buffers,
}

// === impl Watched ===

impl Watched {
    pub fn new(info: &GpuInfo) -> Self {
        Self { uuid: Some(info.uuid.clone()), ..Self::unknown(info.index) }
    }

    /// One that does not even say who it is.
    pub fn unknown(index: GpuIndex) -> Self {
        Self {
            index,
            uuid: None,
            position: Some(index.0),
            others: OtherLists::default(),
            counters: Counters::default(),
            last_use_us: 0,
        }
    }

    pub fn read(&mut self, nvml: &Nvml, at: Mono, per_process_core: bool, buffers: &mut Buffers) -> RawReading {
        let Some(position) = self.position else {
            let what = self.uuid.as_ref().map_or_else(|| "it".to_owned(), ToString::to_string);
            return RawReading::Lost { reason: format!("the driver no longer lists {what}") };
        };
        let reading = nvml.device_by_index(position).and_then(|device| {
            // Not taken for granted: a driver may have been started anew, with other GPUs, between two looks.
            let found = GpuUuid(device.uuid()?);
            let expected = self.uuid.get_or_insert_with(|| found.clone());
            if found != *expected {
                return Ok(RawReading::Lost { reason: format!("{found} is in the place of {expected}") });
            }
            self.ask(&mut Ask { nvml, device, buffers }, at, per_process_core)
        });
        let reading = reading.unwrap_or_else(|error| RawReading::Lost { reason: error.to_string() });
        if matches!(reading, RawReading::Lost { .. }) {
            self.others = OtherLists::default();
        }
        reading
    }

    /// What was used of its memory's bandwidth since it was last asked. Looks tell whether it is there, and is itself.
    pub fn bandwidth(&mut self, nvml: &Nvml) -> Option<BandwidthUse> {
        let device = nvml.device_by_index(self.position?).ok()?;
        self.counters.read(nvml, &device, self.index)
    }

    /// The library is about to be closed, or somebody else comes in its place.
    pub fn forget_counters(&mut self, nvml: &Nvml) {
        self.counters.forget(nvml);
    }

    /// An error means the GPU is lost.
    fn ask(&mut self, ask: &mut Ask<'_>, at: Mono, per_process_core: bool) -> Result<RawReading, Code> {
        let memory = or_unknown(ask.device.memory_info())?;
        let (memory_used, memory_free) = memory.map(|memory| (Bytes(memory.used), Bytes(memory.free))).unzip();
        let core = or_unknown(ask.device.utilization_rates())?.and_then(|rates| Percent::checked(rates.gpu));
        let mut processes = match self.processes(ask, at) {
            Err(error) if is_lost(&error) => return Err(error),
            other => other.map_err(|error| error.to_string()),
        };
        if let (true, Ok(listed)) = (per_process_core, &mut processes) {
            let shares = self.shares(ask)?;
            for process in listed {
                process.core = share_of(process.pid, shares.as_ref());
            }
        }
        Ok(RawReading::Ok { memory_used, memory_free, core, processes })
    }

    fn processes(&mut self, ask: &mut Ask<'_>, at: Mono) -> Result<Vec<RawProcess>, Code> {
        let compute = ask.list(List::Compute)?;
        if self.others.are_due(&compute, at) {
            self.others.graphics = ask.list_or_none(List::Graphics)?;
            self.others.mps = ask.list_or_none(List::Mps)?;
            self.others.note(&compute, at);
        }
        Ok(merge(&compute, &self.others.mps, &self.others.graphics))
    }

    /// `Ok(None)` if the driver does not tell processes apart on this GPU.
    fn shares(&mut self, ask: &mut Ask<'_>) -> Result<Option<BTreeMap<u32, Option<Percent>>>, Code> {
        // The driver keeps samples of long ago; what a process did then says nothing about now.
        let now_us = u64::try_from(clock::anchor().wall.as_microsecond()).unwrap_or(0);
        let since = self.last_use_us.max(now_us.saturating_sub(USE_LOOKS_BACK_US));
        match sys::utilisation(ask.nvml, &ask.device, since, ask.buffers) {
            Ok(samples) => {
                self.last_use_us = samples.iter().map(|s| s.timestamp).fold(self.last_use_us, u64::max);
                Ok(Some(mean_per_pid(&samples)))
            }
            // So the driver says that nobody has computed since.
            Err(Code::NotFound) => Ok(Some(BTreeMap::new())),
            Err(error) if is_lost(&error) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

// === impl Ask ===

impl Ask<'_> {
    fn list(&mut self, list: List) -> Result<Vec<Listed>, Code> {
        let listed = sys::processes(self.nvml, &self.device, list, self.buffers)?;
        Ok(listed.iter().map(Listed::from).collect())
    }

    fn list_or_none(&mut self, list: List) -> Result<Vec<Listed>, Code> {
        match self.list(list) {
            Err(error) if is_absent(&error) => Ok(Vec::new()),
            other => other,
        }
    }
}

impl From<&ProcessInfo> for Listed {
    fn from(info: &ProcessInfo) -> Self {
        let memory = match info.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
            UsedGpuMemory::Unavailable => None,
        };
        Listed { pid: info.pid, memory }
    }
}

// === impl OtherLists ===

impl OtherLists {
    fn are_due(&self, compute: &[Listed], at: Mono) -> bool {
        let is_stale = self.read_at.is_none_or(|read_at| at.since(read_at) >= OTHER_LISTS_EVERY);
        let had_some = !self.graphics.is_empty() || !self.mps.is_empty();
        is_stale || had_some || !compute.iter().map(|listed| listed.pid).eq(self.compute_pids.iter().copied())
    }

    fn note(&mut self, compute: &[Listed], at: Mono) {
        self.read_at = Some(at);
        self.compute_pids = compute.iter().map(|listed| listed.pid).collect();
    }
}

/// `Ok(None)` for a value the driver does not give, `Err` if it says that the GPU is gone.
fn or_unknown<T>(answer: Result<T, Code>) -> Result<Option<T>, Code> {
    match answer {
        Err(error) if is_lost(&error) => Err(error),
        other => Ok(other.ok()),
    }
}

/// One entry per pid. A process on several instances of one GPU is listed by the driver once for each.
fn merge(compute: &[Listed], mps: &[Listed], graphics: &[Listed]) -> Vec<RawProcess> {
    let mut merged = BTreeMap::<u32, RawProcess>::new();
    for (listed, kind) in
        compute.iter().map(|l| (l, ProcessKind::Compute)).chain(graphics.iter().map(|l| (l, ProcessKind::Graphics)))
    {
        let Listed { pid, memory } = *listed;
        merged
            .entry(pid)
            .and_modify(|known| {
                if known.kind == kind {
                    known.memory = known.memory.zip(memory).map(|(a, b)| a + b);
                }
            })
            .or_insert(RawProcess { pid, kind, memory, core: None });
    }
    for Listed { pid, memory } in mps.iter().copied() {
        let kind = ProcessKind::MpsClient;
        merged.entry(pid).or_insert(RawProcess { pid, kind, memory, core: None }).kind = kind;
    }
    merged.into_values().collect()
}

/// `None` for a pid all of whose samples are garbage, as the driver gives for processes that are going away.
fn mean_per_pid(samples: &[ProcessUtilizationSample]) -> BTreeMap<u32, Option<Percent>> {
    let mut sums = BTreeMap::<u32, (u32, u32)>::new();
    for sample in samples {
        let (sum, count) = sums.entry(sample.pid).or_default();
        if sample.sm_util <= 100 {
            (*sum, *count) = (*sum + sample.sm_util, *count + 1);
        }
    }
    sums.into_iter().map(|(pid, (sum, count))| (pid, sum.checked_div(count).and_then(Percent::checked))).collect()
}

/// A process without a sample has not computed: the driver lists only those that have.
fn share_of(pid: u32, shares: Option<&BTreeMap<u32, Option<Percent>>>) -> Option<Percent> {
    shares?.get(&pid).copied().unwrap_or_else(|| Some(Percent::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(pid: u32, mib: u64) -> Listed {
        Listed { pid, memory: Some(Bytes::from_mib(mib)) }
    }

    fn use_of(pid: u32, sm_util: u32) -> ProcessUtilizationSample {
        ProcessUtilizationSample { pid, timestamp: 1, sm_util, mem_util: 0, enc_util: 0, dec_util: 0 }
    }

    fn brief(merged: &[RawProcess]) -> Vec<(u32, ProcessKind, Option<u64>)> {
        merged.iter().map(|p| (p.pid, p.kind, p.memory.map(|bytes| bytes.0 >> 20))).collect()
    }

    #[test]
    fn each_process_is_listed_once_as_what_it_is() {
        use ProcessKind::{Compute, Graphics, MpsClient};
        let compute = [listed(1, 100), listed(2, 200), listed(1, 50)];
        let mps = [listed(2, 200), listed(3, 300)];
        let graphics = [listed(1, 100), listed(4, 10)];
        assert_eq!(
            brief(&merge(&compute, &mps, &graphics)),
            [(1, Compute, Some(150)), (2, MpsClient, Some(200)), (3, MpsClient, Some(300)), (4, Graphics, Some(10))]
        );
    }

    #[test]
    fn memory_the_driver_does_not_tell_is_unknown_not_zero() {
        let untold = Listed { pid: 1, memory: None };
        assert_eq!(brief(&merge(&[untold], &[], &[])), [(1, ProcessKind::Compute, None)]);
        assert_eq!(brief(&merge(&[listed(1, 5), untold], &[], &[])), [(1, ProcessKind::Compute, None)]);
    }

    #[test]
    fn use_above_the_whole_gpu_is_dropped_and_the_rest_averaged() {
        let shares = mean_per_pid(&[use_of(1, 40), use_of(1, 4_000_000), use_of(1, 60), use_of(2, 101)]);
        assert_eq!(share_of(1, Some(&shares)), Percent::checked(50));
        assert_eq!(share_of(2, Some(&shares)), None);
        assert_eq!(share_of(3, Some(&shares)), Percent::checked(0));
        assert_eq!(share_of(3, None), None);
    }

    #[test]
    fn the_other_lists_are_read_on_change_while_not_empty_and_once_in_a_while() {
        let second = |s: u64| Mono(s * 1_000_000_000);
        let mut others = OtherLists::default();
        assert!(others.are_due(&[], second(10)), "at first");
        others.note(&[listed(1, 1)], second(10));
        assert!(!others.are_due(&[listed(1, 2)], second(10)), "more memory is no change of processes");
        assert!(others.are_due(&[listed(1, 1), listed(2, 1)], second(10)), "a newcomer may be an MPS client");
        assert!(others.are_due(&[listed(1, 1)], second(11)), "once in a while");
        others.graphics = vec![listed(9, 1)];
        assert!(others.are_due(&[listed(1, 1)], second(10)), "they may have gone");
    }
}
