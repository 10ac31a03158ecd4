//! A probe that sees what a test tells it to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_model::{BandwidthUse, Bytes, GpuIndex, GpuInfo, GpuUuid, Percent, ProcessKind};
use nvml_wrapper::error::NvmlError as Code;

use super::{GpuLook, GpuProbe, Look, NvmlError, RawProcess, RawReading};

/// GPUs by decree. Clones share them, so a test keeps one and gives the other away.
#[derive(Debug, Clone, Default)]
pub struct FakeProbe {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    gpus: Vec<FakeGpu>,
    inventoried: Vec<(GpuIndex, GpuUuid)>,
    looks: u64,
    inventory_fails: bool,
}

/// One GPU; tests change its fields between looks.
#[derive(Debug, Clone)]
pub struct FakeGpu {
    pub info: GpuInfo,
    pub memory_used: Option<Bytes>,
    pub core: Option<Percent>,
    pub processes: Vec<RawProcess>,
    /// Why the process list cannot be read.
    pub list_fails: Option<String>,
    /// Why the GPU is gone.
    pub lost: Option<String>,
}

impl FakeGpu {
    pub fn new(index: u32) -> Self {
        let info = GpuInfo {
            index: GpuIndex(index),
            uuid: GpuUuid(format!("GPU-fake-{index}")),
            name: "Fake GPU".into(),
            memory_total: Some(Bytes::from_mib(24_576)),
            mig: Some(false),
        };
        Self { info, memory_used: None, core: None, processes: Vec::new(), list_fails: None, lost: None }
    }

    /// Lists one more compute process.
    pub fn occupy(&mut self, pid: u32, memory: Bytes) {
        let core = Some(Percent::default());
        self.processes.push(RawProcess { pid, kind: ProcessKind::Compute, memory: Some(memory), core });
    }
}

impl FakeProbe {
    pub fn new(gpus: Vec<FakeGpu>) -> Self {
        let probe = Self::default();
        probe.lock().gpus = gpus;
        probe
    }

    /// Changes what is seen from now on.
    pub fn change<T>(&self, change: impl FnOnce(&mut Vec<FakeGpu>) -> T) -> T {
        change(&mut self.lock().gpus)
    }

    pub fn fail_inventory(&self, fails: bool) {
        self.lock().inventory_fails = fails;
    }

    /// How often somebody looked.
    pub fn looks(&self) -> u64 {
        self.lock().looks
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl GpuProbe for FakeProbe {
    fn inventory(&mut self) -> Result<Vec<GpuInfo>, NvmlError> {
        let mut state = self.lock();
        if state.inventory_fails {
            return Err(NvmlError::Call { call: "nvmlDeviceGetCount", source: Code::Unknown });
        }
        state.inventoried = state.gpus.iter().map(|gpu| (gpu.info.index, gpu.info.uuid.clone())).collect();
        Ok(state.gpus.iter().filter(|gpu| gpu.lost.is_none()).map(|gpu| gpu.info.clone()).collect())
    }

    fn look(&mut self, per_process_core: bool) -> Look {
        let mut look = Look::begin();
        let mut state = self.lock();
        state.looks += 1;
        for (index, uuid) in &state.inventoried {
            let reading = match state.gpus.iter().find(|gpu| gpu.info.index == *index) {
                None => RawReading::Lost { reason: "no longer there".into() },
                Some(gpu) if gpu.info.uuid != *uuid => continue,
                Some(gpu) => read(gpu, per_process_core),
            };
            look.gpus.push(GpuLook { index: *index, reading });
        }
        look
    }

    fn bandwidth(&mut self) -> Vec<BandwidthUse> {
        Vec::new()
    }
}

fn read(gpu: &FakeGpu, per_process_core: bool) -> RawReading {
    if let Some(reason) = gpu.lost.clone() {
        return RawReading::Lost { reason };
    }
    let listed = gpu.processes.iter().cloned().map(|mut process| {
        process.core = process.core.filter(|_| per_process_core);
        process
    });
    let processes = gpu.list_fails.clone().map_or_else(|| Ok(listed.collect()), Err);
    RawReading::Ok { memory_used: gpu.memory_used, memory_free: None, core: gpu.core, processes }
}
