//! Faults injected from outside, as a monitor and a program meet them.

use berth_proto::nvml::{VALUE_NOT_AVAILABLE, result};
use berth_proto::{cuda, sim_dir};
use berth_sim::server::{ControlError, inject};
use berth_sim::{Fault, NvmlArea};

use crate::nvml::Nvml;
use crate::support::{Sim, until};

#[test]
fn a_lost_gpu_is_lost_to_nvml_and_to_the_program() {
    let sim = Sim::with(|options| options.gpu_count = 2);
    let nvml = Nvml::of(&sim);
    let (lost, other) = (nvml.device(0).unwrap(), nvml.device(1).unwrap());
    let mut client = sim.client().ready();
    client.must("launch 100000");
    client.send("sync");
    inject(sim.dir(), Fault::GpuLost { gpu: 0 }).unwrap();
    assert_ne!(client.answer().code, 0);
    assert_eq!(nvml.memory(lost).unwrap_err(), result::GPU_IS_LOST);
    assert_eq!(nvml.device(0), Err(result::GPU_IS_LOST));
    nvml.memory(other).unwrap();
}

#[test]
fn an_area_of_nvml_fails_alone() {
    let sim = Sim::start();
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    inject(sim.dir(), Fault::Nvml { area: NvmlArea::ProcessList, code: result::UNKNOWN }).unwrap();
    assert_eq!(nvml.processes(device).unwrap_err(), result::UNKNOWN);
    nvml.memory(device).unwrap();
    inject(sim.dir(), Fault::Nvml { area: NvmlArea::Memory, code: result::NO_PERMISSION }).unwrap();
    assert_eq!(nvml.memory(device).unwrap_err(), result::NO_PERMISSION);
    nvml.utilization(device).unwrap();
    inject(sim.dir(), Fault::Nvml { area: NvmlArea::Init, code: result::DRIVER_NOT_LOADED }).unwrap();
    assert_eq!(nvml.init(), result::DRIVER_NOT_LOADED);
}

#[test]
fn without_permission_processes_are_seen_but_not_what_they_use() {
    let sim = Sim::start();
    let nvml = Nvml::of(&sim);
    let device = nvml.device(0).unwrap();
    let client = sim.client().ready();
    inject(sim.dir(), Fault::NoPermission).unwrap();
    let seen = until("the process to be listed", || nvml.processes(device).unwrap().first().copied());
    assert_eq!((seen.pid, seen.used_bytes), (client.pid(), VALUE_NOT_AVAILABLE));
}

#[test]
fn a_kernel_that_fails_breaks_its_own_context_for_good() {
    let sim = Sim::start();
    let mut client = sim.client().ready();
    let mut other = sim.client().ready();
    inject(sim.dir(), Fault::KernelFault { pid: client.pid() }).unwrap();
    client.must("launch 1");
    assert_eq!(client.ask("sync").code, cuda::result::LAUNCH_FAILED);
    assert_eq!(client.ask("memory").code, cuda::result::LAUNCH_FAILED);
    other.must("launch 1");
    other.must("sync");
}

#[test]
fn injecting_into_nothing_names_the_socket() {
    let dir = tempfile::tempdir().unwrap();
    let error = inject(dir.path(), Fault::NoPermission).unwrap_err();
    assert!(matches!(&error, ControlError::Connect { path, .. } if path.ends_with(sim_dir::CONTROL)), "{error}");
}

#[test]
fn a_fault_for_what_is_not_there_is_refused_and_what_is_there_is_named() {
    let sim = Sim::with(|options| options.gpu_count = 2);
    let why = |fault| match inject(sim.dir(), fault) {
        Err(ControlError::Refused { why, .. }) => why,
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(why(Fault::GpuLost { gpu: 2 }), "there is no GPU 2 (there are: 0, 1)");
    let nobody = Fault::KernelFault { pid: 1 };
    assert_eq!(why(nobody), "no process 1 uses the simulated GPUs (there are: none)");
    let client = sim.client().ready();
    assert_eq!(why(nobody), format!("no process 1 uses the simulated GPUs (there are: {})", client.pid()));
    let pid = client.pid();
    client.quit();
    until("the process to be off the GPU", || sim.listed(pid).is_none().then_some(()));
    assert!(why(Fault::KernelFault { pid }).ends_with("(there are: none)"));
}
