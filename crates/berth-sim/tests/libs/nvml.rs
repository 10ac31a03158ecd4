//! The simulated NVML, loaded as a monitor loads it.

use std::ffi::{CStr, c_char, c_uint};
use std::path::Path;
use std::time::Instant;

use berth_proto::nvml::{
    GPM_DRAM_BANDWIDTH, GPM_VERSION, GpmMetric, GpmMetricsGet, GpmSupport, Memory, MemoryV2, PciInfo, ProcessInfo,
    ProcessUtilization, Utilization, result,
};
use berth_proto::sim_dir;
use libloading::Library;

use crate::support::{Sim, until};

const MIB: u64 = 1 << 20;

pub struct Nvml {
    library: Library,
}

macro_rules! call {
    ($nvml:expr, $name:literal ($($type:ty),*) $(, $arg:expr)*) => {{
        // SAFETY: the types are those of NVML's header.
        unsafe {
            let function: libloading::Symbol<unsafe extern "C" fn($($type),*) -> u32> =
                $nvml.library.get($name).unwrap();
            function($($arg),*)
        }
    }};
}

impl Nvml {
    pub fn load(path: &Path) -> Self {
        // SAFETY: the library under test has no constructor.
        Self { library: unsafe { Library::new(path) }.unwrap() }
    }

    pub fn of(sim: &Sim) -> Self {
        let nvml = Self::load(&sim.library(sim_dir::NVML_SONAME));
        assert_eq!(nvml.init(), 0);
        nvml
    }

    pub fn init(&self) -> u32 {
        call!(self, b"nvmlInit_v2"())
    }

    pub fn device(&self, index: c_uint) -> Result<u64, u32> {
        let mut device = 0;
        match call!(self, b"nvmlDeviceGetHandleByIndex_v2"(c_uint, *mut u64), index, &mut device) {
            0 => Ok(device),
            code => Err(code),
        }
    }

    pub fn memory(&self, device: u64) -> Result<Memory, u32> {
        let mut memory = Memory::default();
        match call!(self, b"nvmlDeviceGetMemoryInfo"(u64, *mut Memory), device, &mut memory) {
            0 => Ok(memory),
            code => Err(code),
        }
    }

    /// As every binding does it: ask how many, then ask again with room.
    pub fn processes(&self, device: u64) -> Result<Vec<ProcessInfo>, u32> {
        let mut count = 0;
        let ask = |count: &mut c_uint, room: *mut ProcessInfo| {
            call!(
                self,
                b"nvmlDeviceGetComputeRunningProcesses_v3"(u64, *mut c_uint, *mut ProcessInfo),
                device, count, room
            )
        };
        match ask(&mut count, std::ptr::null_mut()) {
            0 => return Ok(Vec::new()),
            result::INSUFFICIENT_SIZE => {}
            code => return Err(code),
        }
        let mut room = vec![ProcessInfo::default(); count as usize + 5];
        count = c_uint::try_from(room.len()).unwrap();
        match ask(&mut count, room.as_mut_ptr()) {
            0 => Ok(room[..count as usize].to_vec()),
            code => Err(code),
        }
    }

    pub fn utilization(&self, device: u64) -> Result<Utilization, u32> {
        let mut rates = Utilization::default();
        match call!(self, b"nvmlDeviceGetUtilizationRates"(u64, *mut Utilization), device, &mut rates) {
            0 => Ok(rates),
            code => Err(code),
        }
    }

    pub fn samples(&self, device: u64, since_us: u64) -> Result<Vec<ProcessUtilization>, u32> {
        let mut count = 8;
        let mut room = [ProcessUtilization::default(); 8];
        let code = call!(
            self,
            b"nvmlDeviceGetProcessUtilization"(u64, *mut ProcessUtilization, *mut c_uint, u64),
            device, room.as_mut_ptr(), &mut count, since_us
        );
        if code == 0 { Ok(room[..count as usize].to_vec()) } else { Err(code) }
    }

    fn text(&self, name: &[u8], device: u64) -> String {
        let mut room = [0 as c_char; 96];
        // SAFETY: the type is that of NVML's header, and the room is as large as said.
        let code = unsafe {
            let function: libloading::Symbol<unsafe extern "C" fn(u64, *mut c_char, c_uint) -> u32> =
                self.library.get(name).unwrap();
            function(device, room.as_mut_ptr(), 96)
        };
        assert_eq!(code, 0);
        // SAFETY: the library wrote a zero-terminated text.
        unsafe { CStr::from_ptr(room.as_ptr()) }.to_str().unwrap().to_owned()
    }
}

#[test]
fn a_monitor_sees_the_gpu_its_memory_and_who_is_on_it() {
    let sim = Sim::with(|options| options.gpu_count = 2);
    let nvml = Nvml::of(&sim);
    let mut count = 0;
    assert_eq!(call!(nvml, b"nvmlDeviceGetCount_v2"(*mut c_uint), &mut count), 0);
    assert_eq!(count, 2);
    let device = nvml.device(0).unwrap();
    assert_eq!(nvml.device(2), Err(result::INVALID_ARGUMENT));
    assert_eq!(nvml.text(b"nvmlDeviceGetName", device), "NVIDIA H200");
    assert_ne!(nvml.text(b"nvmlDeviceGetUUID", device), nvml.text(b"nvmlDeviceGetUUID", nvml.device(1).unwrap()));
    assert!(nvml.processes(device).unwrap().is_empty());
    let idle = nvml.memory(device).unwrap();
    assert_eq!(idle.total, 143_771 * MIB);
    let client = sim.client().ready();
    let listed = until("the process to be listed with its memory", || {
        nvml.processes(device).unwrap().into_iter().find(|process| process.used_bytes > 550 * MIB)
    });
    assert_eq!(listed.pid, client.pid());
    assert_eq!(nvml.memory(device).unwrap().used, idle.used + listed.used_bytes);
    client.quit();
    until("the process to be unlisted", || nvml.processes(device).unwrap().is_empty().then_some(()));
}

#[test]
fn utilisation_rises_while_a_kernel_runs_and_is_the_processs() {
    let sim = Sim::start();
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    assert_eq!(nvml.samples(device, 0).unwrap_err(), result::NOT_FOUND);
    let mut client = sim.client().ready();
    client.must("launch 40000");
    until("the GPU to be busy", || (nvml.utilization(device).unwrap().gpu > 90).then_some(()));
    let sample = until("a sample of the process", || nvml.samples(device, 0).ok())[0];
    assert_eq!(sample.pid, client.pid());
    let later = until("a newer sample", || nvml.samples(device, sample.time_us).ok())[0];
    assert!(later.time_us > sample.time_us && later.sm_pct <= 100, "{later:?}");
}

/// As the header has it, with room for two metrics.
#[repr(C)]
struct Asked {
    head: GpmMetricsGet<*mut u8>,
    metrics: [GpmMetric; 2],
}

impl Nvml {
    fn has_counters(&self, device: u64) -> bool {
        let mut support = GpmSupport { version: GPM_VERSION, supported: 7 };
        let code = call!(self, b"nvmlGpmQueryDeviceSupport"(u64, *mut GpmSupport), device, &mut support);
        assert_eq!(code, 0);
        support.supported != 0
    }

    fn counters(&self) -> *mut u8 {
        let mut sample = std::ptr::null_mut();
        assert_eq!(call!(self, b"nvmlGpmSampleAlloc"(*mut *mut u8), &mut sample), 0);
        sample
    }

    fn count(&self, device: u64, sample: *mut u8) -> u32 {
        call!(self, b"nvmlGpmSampleGet"(u64, *mut u8), device, sample)
    }

    /// The whole call's result, and of each metric its own with its value.
    fn used(&self, samples: [*mut u8; 2], ids: [c_uint; 2]) -> (u32, [(u32, f64); 2]) {
        let metric = |id| GpmMetric { id, result: 7, value: -1.0, words: [std::ptr::null(); 3] };
        let head = GpmMetricsGet { version: GPM_VERSION, count: 2, samples };
        let mut asked = Asked { head, metrics: ids.map(metric) };
        let code = call!(self, b"nvmlGpmMetricsGet"(*mut Asked), &mut asked);
        (code, asked.metrics.map(|metric| (metric.result, metric.value)))
    }
}

#[test]
fn bandwidth_is_counted_between_two_samples() {
    let sim = Sim::start();
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    assert!(nvml.has_counters(device));
    let samples = [nvml.counters(), nvml.counters()];
    let asked = [GPM_DRAM_BANDWIDTH, 1];
    assert_eq!(nvml.used(samples, asked).0, result::INVALID_ARGUMENT, "neither was taken");
    let mut client = sim.client().ready();
    client.must("launch 400000");
    until("windows in which it ran throughout", || (nvml.utilization(device).unwrap().gpu == 100).then_some(()));
    let used = || {
        assert_eq!(nvml.count(device, samples[0]), 0);
        std::thread::sleep(std::time::Duration::from_millis(1_000));
        assert_eq!(nvml.count(device, samples[1]), 0);
        nvml.used(samples, asked)
    };
    let (code, [(of_memory, share), (other, _)]) = used();
    assert_eq!((code, of_memory, other), (0, 0, result::NOT_SUPPORTED));
    assert!((20.0..30.0).contains(&share), "{share}");
    drop(client);
    until("an idle GPU", || (nvml.utilization(device).unwrap().gpu == 0).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(400));
    let (code, [(_, share), _]) = used();
    assert!(code == 0 && share == 0.0, "{code} {share}");
    for sample in samples {
        assert_eq!(call!(nvml, b"nvmlGpmSampleFree"(*mut u8), sample), 0);
    }
    assert_eq!(call!(nvml, b"nvmlGpmSampleFree"(*mut u8), std::ptr::null_mut()), result::INVALID_ARGUMENT);
}

#[test]
fn gpus_before_hopper_have_no_counters() {
    let sim = Sim::with(|options| options.profile = berth_sim::Profile::builtin("a100").unwrap());
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    assert!(!nvml.has_counters(device));
    assert_eq!(nvml.count(device, nvml.counters()), result::NOT_SUPPORTED);
}

#[test]
fn the_second_memory_struct_is_checked_for_its_version() {
    let sim = Sim::start();
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    let mut memory = MemoryV2::default();
    let code = call!(nvml, b"nvmlDeviceGetMemoryInfo_v2"(u64, *mut MemoryV2), device, &mut memory);
    assert_eq!(code, result::ARGUMENT_VERSION_MISMATCH);
    memory.version = MemoryV2::VERSION;
    assert_eq!(call!(nvml, b"nvmlDeviceGetMemoryInfo_v2"(u64, *mut MemoryV2), device, &mut memory), 0);
    assert_eq!(memory.total, memory.used + memory.free + memory.reserved);
}

#[test]
fn a_gpu_is_found_by_its_uuid_and_its_bus() {
    let sim = Sim::with(|options| options.gpu_count = 2);
    let nvml = Nvml::of(&sim);
    let device = nvml.device(1).unwrap();
    let uuid = std::ffi::CString::new(nvml.text(b"nvmlDeviceGetUUID", device)).unwrap();
    let mut found = 0;
    assert_eq!(call!(nvml, b"nvmlDeviceGetHandleByUUID"(*const c_char, *mut u64), uuid.as_ptr(), &mut found), 0);
    assert_eq!(found, device);
    // SAFETY: all zeros is a valid value of this plain struct.
    let mut pci: PciInfo = unsafe { std::mem::zeroed() };
    assert_eq!(call!(nvml, b"nvmlDeviceGetPciInfo_v3"(u64, *mut PciInfo), device, &mut pci), 0);
    let bus: *const c_char = pci.bus_id.as_ptr();
    assert_eq!(call!(nvml, b"nvmlDeviceGetHandleByPciBusId_v2"(*const c_char, *mut u64), bus, &mut found), 0);
    assert_eq!(found, device);
}

#[test]
fn only_gpus_that_can_be_divided_have_a_mig_mode() {
    let mig_mode = |profile: &str| {
        let sim = Sim::with(|options| options.profile = berth_sim::Profile::builtin(profile).unwrap());
        let nvml = Nvml::of(&sim);
        let device = nvml.device(0).unwrap();
        let mut mode: [c_uint; 2] = [7, 7];
        let [current, pending] = &mut mode;
        let code = call!(nvml, b"nvmlDeviceGetMigMode"(u64, *mut c_uint, *mut c_uint), device, current, pending);
        (code, mode)
    };
    assert_eq!(mig_mode("a100"), (0, [0, 0]));
    assert_eq!(mig_mode("h200"), (0, [0, 0]));
    assert_eq!(mig_mode("rtx3090"), (result::NOT_SUPPORTED, [7, 7]));
}

#[test]
fn the_process_list_takes_as_long_as_the_real_one() {
    let sim = Sim::start();
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    let host = sim.snapshot().host().unwrap();
    assert!((200_000.0..400_000.0).contains(&host.process_list_ns(20)), "{}", host.process_list_ns(20));
    let started = Instant::now();
    for _ in 0..100 {
        nvml.processes(device).unwrap();
    }
    assert!(started.elapsed().as_nanos() as f64 >= 100.0 * host.process_list_ns(0));
}

#[test]
fn without_a_simulator_there_is_no_driver_and_a_dead_one_is_a_lost_gpu() {
    let mut sim = Sim::start();
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    sim.stop();
    assert_eq!(nvml.memory(device).unwrap_err(), result::GPU_IS_LOST);
    let fresh = Nvml::load(&sim.library(sim_dir::NVML_SONAME));
    assert_eq!(call!(fresh, b"nvmlShutdown"()), 0);
    assert_eq!(fresh.init(), result::DRIVER_NOT_LOADED);
    assert_eq!(fresh.memory(device).unwrap_err(), result::UNINITIALIZED);
}

#[test]
fn a_simulator_that_comes_back_is_seen_by_whoever_still_watches() {
    let mut sim = Sim::start();
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    sim.stop();
    assert_eq!(nvml.memory(device).unwrap_err(), result::GPU_IS_LOST);
    let mut options = berth_sim::server::ServeOptions::new(sim.dir(), berth_sim::Profile::builtin("h200").unwrap());
    options.libraries = Some(crate::support::libraries());
    let _again = berth_sim::server::Server::bind(options).unwrap();
    nvml.memory(device).unwrap();
}
