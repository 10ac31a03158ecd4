//! The engine's view as NVML's snapshot: written when it changes, at most once a millisecond, with a sign of life.

use std::path::Path;

use berth_proto::cuda::DRIVER_VERSION;
use berth_proto::nvml_state::{self, Area, Gpu, Host, Process, SmSample, Writer};

use super::clock::Clock;
use super::options::ServeError;
use crate::{Engine, GpuView, NvmlArea, NvmlView, Profile, Sharing};

const PUBLISH_EVERY_NS: u64 = 1_000_000;
const BEAT_EVERY_NS: u64 = 100_000_000;

/// What the driver and NVML call themselves.
const DRIVER_VERSION_TEXT: &str = "580.159.03";

#[derive(Debug)]
pub(super) struct Publisher {
    writer: Writer,
    /// What was published last.
    view: Option<NvmlView>,
    published_ns: u64,
    beat_ns: u64,
    /// Something happened since then.
    stale: bool,
}

impl Publisher {
    pub(super) fn create(dir: &Path) -> Result<Self, ServeError> {
        let writer = Writer::create(&dir.join(nvml_state::FILE_NAME))?;
        Ok(Self { writer, view: None, published_ns: 0, beat_ns: 0, stale: true })
    }

    pub(super) fn mark_stale(&mut self) {
        self.stale = true;
    }

    /// When this wants to be called again, in `CLOCK_MONOTONIC`.
    pub(super) fn next_ns(&self) -> u64 {
        let beat = self.beat_ns.saturating_add(BEAT_EVERY_NS);
        if self.stale { beat.min(self.published_ns.saturating_add(PUBLISH_EVERY_NS)) } else { beat }
    }

    /// Does what is due. Says whether it was a sign of life, ten of which make a second.
    pub(super) fn tick(&mut self, now_ns: u64, engine: &Engine, clock: &Clock) -> bool {
        let beats = now_ns >= self.beat_ns.saturating_add(BEAT_EVERY_NS);
        if beats {
            self.writer.beat(now_ns);
            self.beat_ns = now_ns;
        }
        if self.stale && now_ns >= self.published_ns.saturating_add(PUBLISH_EVERY_NS) {
            self.publish(engine, clock);
            self.published_ns = now_ns;
            self.stale = false;
        }
        beats
    }

    /// Publishes without regard to when the last time was.
    pub(super) fn publish(&mut self, engine: &Engine, clock: &Clock) {
        let view = engine.nvml();
        if self.view.as_ref() == Some(&view) {
            return;
        }
        let profile = engine.profile();
        let gpus: Vec<Gpu> = view.gpus.iter().map(|gpu| gpu_state(gpu, profile, clock)).collect();
        self.writer.publish(&host_state(&view, profile), &gpus);
        self.view = Some(view);
    }
}

fn host_state(view: &NvmlView, profile: &Profile) -> Host {
    let mut faults = [0; Area::COUNT];
    for (area, code) in &view.faults.codes {
        faults[area_of(*area) as usize] = *code;
    }
    Host {
        gpu_count: u32::try_from(view.gpus.len()).unwrap_or(u32::MAX),
        cuda_version: DRIVER_VERSION,
        driver_version: DRIVER_VERSION_TEXT.into(),
        process_list_base_ns: profile.process_list_ns(0),
        process_list_quadratic_ns: profile.nvml.process_list_quadratic_us * 1e3,
        mps: view.sharing == Sharing::Mps,
        faults,
    }
}

fn area_of(area: NvmlArea) -> Area {
    match area {
        NvmlArea::Init => Area::Init,
        NvmlArea::Device => Area::Device,
        NvmlArea::Memory => Area::Memory,
        NvmlArea::Utilisation => Area::Utilisation,
        NvmlArea::ProcessList => Area::ProcessList,
        NvmlArea::ProcessUtilisation => Area::ProcessUtilisation,
    }
}

fn gpu_state(view: &GpuView, profile: &Profile, clock: &Clock) -> Gpu {
    let process = |process: &crate::ProcessView| Process {
        pid: process.pid,
        used_bytes: process.used_bytes,
        sm: process.sm.map(|sample| SmSample { pct: sample.pct, at_us: clock.epoch_us(sample.at_ns) }),
    };
    Gpu {
        name: view.name.clone(),
        uuid: view.uuid.clone(),
        pci_bus_id: view.pci_bus_id.clone(),
        total_bytes: view.total_bytes,
        used_bytes: view.used_bytes,
        reserved_bytes: profile.gpu.reserved_mib << 20,
        gpu_pct: view.utilisation.gpu_pct,
        memory_pct: view.utilisation.memory_pct,
        traffic_us: clock.real_us(view.traffic.full_ns),
        traffic_at_us: clock.epoch_us(view.traffic.until_ns),
        lost: view.lost,
        sm_count: profile.gpu.sm_count,
        compute_capability: profile.gpu.compute_capability,
        processes: view.processes.iter().map(process).collect(),
    }
}
