//! What NVML shows of the engine's state.

use std::collections::BTreeMap;

use super::api::{GpuView, NvmlView, ProcessView};
use super::{Engine, Gpu};

impl Engine {
    /// As of [`Engine::now`]; does not change anything.
    pub fn nvml(&self) -> NvmlView {
        let gpus = self.gpus.iter().enumerate().map(|(index, gpu)| self.gpu_view(index, gpu)).collect();
        NvmlView { gpus, faults: self.nvml_faults.clone(), sharing: self.sharing }
    }

    /// Part of the SMs of one GPU at work, [0, 1]; for tests of conservation and for plots, NVML has no such thing.
    pub fn compute_load(&self, gpu: u32) -> f64 {
        self.gpus.get(gpu as usize).map_or(0.0, Gpu::compute_load)
    }

    /// Part of the time in which making and ending contexts keeps kernels of one GPU from running, [0, 1].
    pub fn compute_blocked(&self, gpu: u32) -> f64 {
        self.gpus.get(gpu as usize).map_or(0.0, Gpu::blocked)
    }

    /// Kernels of a process that have run to their end in the contexts it has; for tests, no driver tells it.
    pub fn kernels_done(&self, pid: u32) -> u64 {
        self.contexts.values().filter(|context| context.pid == pid).map(|context| context.kernels_done).sum()
    }

    fn gpu_view(&self, index: usize, gpu: &Gpu) -> GpuView {
        let mut used: BTreeMap<u32, u64> = BTreeMap::new();
        for context in self.contexts.values().filter(|context| context.gpu == index && context.charged > 0) {
            *used.entry(context.pid).or_default() += context.charged;
        }
        let permitted = !self.nvml_faults.no_permission;
        let processes = used.into_iter().map(|(pid, bytes)| ProcessView {
            pid,
            used_bytes: permitted.then_some(bytes),
            sm: gpu.meter.sample(pid).filter(|_| permitted),
        });
        GpuView {
            uuid: uuid_text(&gpu.device.uuid),
            name: gpu.device.name.clone(),
            pci_bus_id: format!("{:08X}:{:02X}:00.0", index / 255, index % 255 + 1),
            total_bytes: gpu.device.total_memory,
            used_bytes: gpu.used,
            utilisation: gpu.meter.shown(),
            processes: processes.collect(),
            traffic: gpu.meter.traffic(),
            lost: gpu.lost,
        }
    }
}

fn uuid_text(bytes: &[u8; 16]) -> String {
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parts = [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]];
    format!("GPU-{}", parts.map(hex).join("-"))
}
