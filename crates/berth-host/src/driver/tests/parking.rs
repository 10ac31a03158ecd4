//! What is asked before memory is moved, on GPUs and a host by decree.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use berth_model::hold::Held;
use berth_model::{Bytes, GpuIndex, ProcKey, ProcessKind};
use tempfile::TempDir;

use super::{LONG, Sleeper};
use crate::driver::api::code;
use crate::driver::fake::FakeApi;
use crate::driver::{Driver, Options, ParkError, ParkOptions, Parking};
use crate::nvml::{FakeGpu, FakeProbe};

const GIB: u64 = 1 << 30;

struct Scene {
    api: Arc<FakeApi>,
    gpus: FakeProbe,
    parking: Parking,
    process: Sleeper,
    /// A proc file system with this process, and memory by decree.
    proc: TempDir,
}

impl Scene {
    /// A process with 8 GiB on the first of two GPUs of 24 GiB, on a host with 100 GiB available.
    fn new() -> Self {
        let (api, process) = (Arc::new(FakeApi::default()), Sleeper::new());
        let pid = process.0.id();
        api.add(pid);
        let proc = tempfile::tempdir().unwrap();
        fs::create_dir(proc.path().join(pid.to_string())).unwrap();
        for file in ["stat", "cgroup", "status"] {
            symlink(format!("/proc/{pid}/{file}"), proc.path().join(format!("{pid}/{file}"))).unwrap();
        }
        let scene_gpus = FakeProbe::new(vec![FakeGpu::new(0), FakeGpu::new(1)]);
        scene_gpus.change(|gpus| gpus[0].occupy(pid, Bytes(8 * GIB)));
        let options = Options { proc_root: proc.path().into(), ..Options::default() };
        let driver = Driver::with_api(api.clone(), Path::new("libcuda.so.1"), options);
        let parking = Parking::new(driver, Box::new(scene_gpus.clone()), ParkOptions::default());
        let scene = Self { api, gpus: scene_gpus, parking, process, proc };
        scene.write("maps", "");
        scene.write("environ", "");
        scene.available(100 * GIB);
        scene
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.proc.path().join(self.process.0.id().to_string()).join(file), text).unwrap();
    }

    fn available(&self, bytes: u64) {
        fs::write(self.proc.path().join("meminfo"), format!("MemAvailable: {} kB\n", bytes / 1024)).unwrap();
    }

    fn key(&self) -> ProcKey {
        self.process.key()
    }

    fn state(&self) -> Option<u32> {
        self.api.state_of(self.process.0.id())
    }

    /// Why it is not parked, and that nothing was tried.
    fn refusal(&self) -> ParkError {
        let refused = self.parking.park(self.key(), LONG).unwrap_err();
        assert_eq!((self.state(), self.api.count("lock")), (Some(0), 0), "{refused}");
        refused
    }

    /// The driver has moved it, and NVML no longer lists it.
    fn parked() -> Self {
        let scene = Self::new();
        scene.parking.park(scene.key(), LONG).unwrap();
        scene.gpus.change(|gpus| gpus[0].processes.clear());
        scene
    }

    fn occupy_all_but(&self, gpu: usize, free: u64) {
        self.gpus.change(|gpus| {
            gpus[gpu].memory_used = Some(Bytes(24 * GIB - free));
            gpus[gpu].occupy(1, Bytes(24 * GIB - free));
        });
    }
}

#[test]
fn a_process_that_fits_is_parked_and_comes_back() {
    let scene = Scene::parked();
    assert_eq!(scene.state(), Some(2));
    assert_eq!(scene.parking.needs_back(scene.key()), Some(Held { gpu: GpuIndex(0), bytes: Bytes(8 * GIB) }));
    scene.parking.checkpoint(scene.key()).expect("it is parked already, though no longer listed");
    scene.parking.unpark(scene.key()).unwrap();
    assert_eq!((scene.state(), scene.parking.needs_back(scene.key())), (Some(0), None));
}

#[test]
fn a_host_without_the_memory_is_told_in_numbers() {
    let scene = Scene::new();
    scene.available(9 * GIB);
    let refused = scene.refusal();
    assert_eq!(refused.to_string(), "parking needs 9.5 GiB of host memory, 9.0 GiB are available");
    assert!(refused.is_passing());
}

#[test]
fn what_cannot_be_moved_is_refused_before_it_is_locked() {
    let scene = Scene::new();
    scene.gpus.change(|gpus| gpus[0].processes[0].kind = ProcessKind::MpsClient);
    assert!(matches!(scene.refusal(), ParkError::MpsClient { .. }));

    let scene = Scene::new();
    scene.gpus.change(|gpus| gpus[1].occupy(scene.process.0.id(), Bytes(GIB)));
    assert!(matches!(scene.refusal(), ParkError::SeveralGpus { count: 2, .. }));

    let scene = Scene::new();
    scene.gpus.change(|gpus| gpus[0].processes[0].memory = None);
    assert!(matches!(scene.refusal(), ParkError::HeldUnknown { .. }));

    let scene = Scene::new();
    scene.write("maps", "7f10b0000000-7f10b0100000 r-xp 00000000 08:01 77  /usr/lib/libnccl.so.2\n");
    scene.write("environ", "WORLD_SIZE=4\0");
    let refused = scene.refusal();
    assert!(refused.to_string().ends_with("libnccl.so.2 and was started with WORLD_SIZE=4"), "{refused}");
}

#[test]
fn the_processes_of_a_tenant_must_fit_together() {
    let scene = Scene::new();
    scene.available(10 * GIB);
    scene.parking.check(&[scene.key()]).unwrap();
    let refused = scene.parking.check(&[scene.key(), scene.key()]).unwrap_err();
    assert!(matches!(refused, ParkError::HostMemory { .. }), "{refused}");
}

#[test]
fn memory_the_driver_will_not_move_leaves_the_process_running() {
    let scene = Scene::new();
    scene.api.refuse("checkpoint", code::NOT_SUPPORTED);
    let refused = scene.parking.park(scene.key(), LONG).unwrap_err();
    assert!(refused.to_string().contains("unified memory") && !refused.is_passing(), "{refused}");
    assert_eq!(scene.state(), Some(0));
}

#[test]
fn the_driver_is_not_asked_to_restore_what_has_no_room() {
    let scene = Scene::parked();
    scene.occupy_all_but(0, 9 * GIB - 1);
    let refused = scene.parking.restore(scene.key()).unwrap_err();
    assert!(matches!(refused, ParkError::NoRoom { gpu: 0, .. }) && refused.is_passing(), "{refused}");
    assert_eq!((scene.state(), scene.api.count("restore")), (Some(2), 0));
    scene.gpus.change(|gpus| gpus[0].processes.clear());
    scene.occupy_all_but(0, 9 * GIB);
    scene.occupy_all_but(1, 0);
    scene.parking.restore(scene.key()).expect("the other GPU does not matter");
}

#[test]
fn a_gpu_with_nobody_on_it_has_room_whatever_it_says() {
    let scene = Scene::parked();
    scene.gpus.change(|gpus| gpus[0].memory_used = Some(Bytes(24 * GIB)));
    scene.parking.restore(scene.key()).unwrap();
}

#[test]
fn what_was_parked_by_a_daemon_before_needs_at_most_what_it_has_in_host_memory() {
    let scene = Scene::new();
    scene.api.put(scene.process.0.id(), 2);
    scene.gpus.change(|gpus| gpus[0].processes.clear());
    let status = scene.proc.path().join(scene.process.0.id().to_string()).join("status");
    fs::remove_file(status).unwrap();
    scene.write("status", "VmRSS: 1 kB\nRssAnon:  9437184 kB\n");
    scene.occupy_all_but(0, 9 * GIB);
    assert!(
        matches!(scene.parking.restore(scene.key()), Err(ParkError::NoRoom { needed: Bytes(n), .. }) if n == 9 * GIB)
    );
    scene.parking.remember(scene.key(), Held { gpu: GpuIndex(0), bytes: Bytes(8 * GIB) });
    scene.parking.restore(scene.key()).unwrap();
}

#[test]
fn a_restore_that_runs_out_of_room_all_the_same_stays_parked() {
    let scene = Scene::parked();
    scene.api.refuse("restore", code::OUT_OF_MEMORY);
    let refused = scene.parking.restore(scene.key()).unwrap_err();
    assert!(refused.to_string().contains("stays parked") && refused.is_passing(), "{refused}");
    assert!(scene.parking.needs_back(scene.key()).is_some());
}
