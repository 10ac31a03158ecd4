//! The real probe on the simulated driver: the contract, and each way its library can fail.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use berth_model::{Bytes, GpuIndex, ProcessKind};
use berth_sim::fault::nvml as codes;
use berth_sim::server::{ServeOptions, Server, inject};
use berth_sim::{Fault, NvmlArea, Profile, Sharing};
use tempfile::TempDir;

use super::tenant::tenant;
use super::{FIRST, Host, SECOND, contract, listed, reading};
use crate::nvml::{GpuProbe, Listings, NvmlError, NvmlProbe, RawReading};
use crate::testing::{eventually, libraries};

/// Two simulated GPUs in a directory of their own.
struct SimHost {
    dir: TempDir,
    sharing: Sharing,
    profile: &'static str,
    gpus: u32,
    seed: u64,
    server: Option<Running>,
    tenants: Vec<Child>,
}

struct Running {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl SimHost {
    fn start(sharing: Sharing) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut host = Self { dir, sharing, profile: "h200", gpus: 2, seed: 0, server: None, tenants: Vec::new() };
        host.serve();
        host
    }

    /// Another simulator in the same place.
    fn restart(&mut self, change: impl FnOnce(&mut Self)) {
        self.shut_down();
        change(self);
        self.serve();
    }

    fn serve(&mut self) {
        let mut options = ServeOptions::new(self.dir.path(), Profile::builtin(self.profile).unwrap());
        options.libraries = Some(libraries());
        (options.gpu_count, options.seed, options.sharing) = (self.gpus, self.seed, self.sharing);
        options.time_scale = 10.0;
        let server = Server::bind(options).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || server.run(|| stopped.load(Ordering::Relaxed)).unwrap());
        self.server = Some(Running { stop, thread });
    }

    fn shut_down(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop.store(true, Ordering::Relaxed);
            server.thread.join().unwrap();
        }
    }

    fn library(&self, name: &str) -> PathBuf {
        self.dir.path().join("lib").join(name)
    }

    fn open(&self) -> NvmlProbe {
        NvmlProbe::open(&self.library("libnvidia-ml.so.1")).unwrap()
    }

    fn fault(&self, fault: Fault) {
        inject(self.dir.path(), fault).unwrap();
    }

    fn fail(&self, area: NvmlArea, code: u32) {
        self.fault(Fault::Nvml { area, code });
    }
}

impl Host for SimHost {
    fn probe(&mut self) -> Box<dyn GpuProbe> {
        Box::new(self.open())
    }

    fn occupy(&mut self, gpu: GpuIndex, memory: Bytes) -> u32 {
        let tenant = tenant(&self.library("libcuda.so.1"), gpu, memory);
        let pid = tenant.id();
        self.tenants.push(tenant);
        pid
    }

    fn vacate(&mut self, pid: u32) {
        let tenant = self.tenants.iter_mut().find(|tenant| tenant.id() == pid).unwrap();
        tenant.kill().unwrap();
        tenant.wait().unwrap();
    }

    fn lose(&mut self, gpu: GpuIndex) {
        self.fault(Fault::GpuLost { gpu: gpu.0 });
    }

    /// A lost GPU comes back as real ones do: with the whole driver started anew.
    fn bring_back(&mut self, _gpu: GpuIndex) {
        self.restart(|_| ());
    }

    fn replace_all(&mut self) {
        self.restart(|host| host.seed += 1);
    }
}

impl Drop for SimHost {
    fn drop(&mut self) {
        for tenant in &mut self.tenants {
            let _ = tenant.kill();
            let _ = tenant.wait();
        }
        self.shut_down();
    }
}

#[test]
fn the_real_probe_keeps_the_contract() {
    contract(&mut SimHost::start(Sharing::default()));
}

#[test]
fn bandwidth_is_told_between_two_readings_of_gpus_that_count_it() {
    let mut host = SimHost::start(Sharing::default());
    let mut probe = host.open();
    assert_eq!(probe.bandwidth(), [], "no inventory was taken");
    probe.inventory().unwrap();
    assert_eq!(probe.bandwidth(), [], "nothing is known of the time before");
    let told = |probe: &mut NvmlProbe| {
        let mut told = Vec::new();
        eventually("both are told of", || {
            told = probe.bandwidth();
            told.iter().map(|told| told.gpu).eq([FIRST, SECOND])
        });
        told
    };
    let first = told(&mut probe);
    assert!(first.iter().all(|told| told.share == 0.0 && told.since < told.until), "{first:?}");
    let next = told(&mut probe);
    assert!(next.iter().zip(&first).all(|(next, first)| next.since >= first.until), "one after the other");
    probe.inventory().unwrap();
    assert_eq!(probe.bandwidth(), [], "who is who may have changed");
    host.restart(|host| host.profile = "a100");
    let mut older = host.open();
    older.inventory().unwrap();
    assert_eq!((older.bandwidth(), older.bandwidth()), (vec![], vec![]));
}

fn watching(host: &mut SimHost) -> (NvmlProbe, u32) {
    let mut probe = host.open();
    probe.inventory().unwrap();
    let pid = host.occupy(FIRST, Bytes::from_mib(64));
    eventually("the tenant is listed", || !listed(&probe.look(false), FIRST).is_empty());
    (probe, pid)
}

#[test]
fn each_value_the_driver_fails_to_give_is_unknown_alone() {
    let mut host = SimHost::start(Sharing::default());
    let (mut probe, pid) = watching(&mut host);
    host.fail(NvmlArea::Memory, codes::UNKNOWN);
    let look = probe.look(false);
    let RawReading::Ok { memory_used: None, memory_free: None, core: Some(_), processes: Ok(processes) } =
        reading(&look, FIRST)
    else {
        panic!("{look:?}");
    };
    assert_eq!(processes[0].pid, pid);
    host.fail(NvmlArea::Utilisation, codes::NOT_SUPPORTED);
    assert!(matches!(reading(&probe.look(false), FIRST), RawReading::Ok { core: None, processes: Ok(_), .. }));
    host.fail(NvmlArea::ProcessUtilisation, codes::TIMEOUT);
    assert_eq!(listed(&probe.look(true), FIRST)[0].core, None);
    host.fail(NvmlArea::ProcessList, codes::UNKNOWN);
    let look = probe.look(false);
    assert!(matches!(reading(&look, FIRST), RawReading::Ok { processes: Err(why), .. } if !why.is_empty()), "{look:?}");
}

#[test]
fn what_the_driver_keeps_for_itself_is_neither_used_nor_free() {
    let mut host = SimHost::start(Sharing::default());
    let (mut probe, pid) = watching(&mut host);
    let total = probe.inventory().unwrap()[0].memory_total.unwrap();
    let look = probe.look(false);
    let RawReading::Ok { memory_used: Some(used), memory_free: Some(free), .. } = reading(&look, FIRST) else {
        panic!("{look:?}")
    };
    let own = listed(&look, FIRST).iter().find(|process| process.pid == pid).unwrap().memory.unwrap();
    let reserve = Bytes::from_mib(Profile::builtin("h200").unwrap().gpu.reserved_mib);
    assert_eq!((*used, Bytes(total.0 - used.0 - free.0)), (own, reserve));
}

#[test]
fn what_the_reader_may_not_see_of_a_process_is_unknown() {
    let mut host = SimHost::start(Sharing::default());
    let (mut probe, pid) = watching(&mut host);
    host.fault(Fault::NoPermission);
    eventually("the memory is hidden", || listed(&probe.look(false), FIRST)[0].memory.is_none());
    assert_eq!(listed(&probe.look(false), FIRST)[0].pid, pid);
}

#[test]
fn a_driver_that_refuses_is_refused_with_its_reason() {
    for (code, expected) in [(codes::DRIVER_NOT_LOADED, "modprobe"), (codes::NO_PERMISSION, "run berth as root")] {
        let host = SimHost::start(Sharing::default());
        host.fail(NvmlArea::Init, code);
        let error = NvmlProbe::open(&host.library("libnvidia-ml.so.1")).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(matches!(error, NvmlError::DriverNotLoaded { .. } | NvmlError::NoPermission { .. }), "{error:?}");
    }
}

#[test]
fn a_driver_that_goes_away_is_a_reading_and_so_is_its_return() {
    let mut host = SimHost::start(Sharing::default());
    let (mut probe, _) = watching(&mut host);
    host.shut_down();
    let is_lost = |look: &crate::nvml::Look| {
        [FIRST, SECOND].iter().all(|gpu| matches!(reading(look, *gpu), RawReading::Lost { .. }))
    };
    eventually("both GPUs are lost", || is_lost(&probe.look(false)));
    host.serve();
    eventually("both GPUs are back", || {
        let look = probe.look(false);
        [FIRST, SECOND].iter().all(|gpu| matches!(reading(&look, *gpu), RawReading::Ok { .. }))
    });
}

#[test]
fn a_gpu_that_does_not_come_back_with_the_driver_stays_lost_under_its_own_index() {
    let mut host = SimHost::start(Sharing::default());
    let mut probe = host.open();
    let uuid = probe.inventory().unwrap()[1].uuid.clone();
    host.restart(|host| host.gpus = 1);
    eventually("the first GPU is back and the second is missed by name", || {
        let look = probe.look(false);
        let missed = |reason: &str| reason.contains(&uuid.0);
        matches!(reading(&look, FIRST), RawReading::Ok { .. })
            && matches!(reading(&look, SECOND), RawReading::Lost { reason } if missed(reason))
    });
    assert_eq!(probe.inventory().unwrap().len(), 1);
}

#[test]
fn gpus_of_another_kind_in_the_old_places_are_told_by_their_own_names() {
    let mut host = SimHost::start(Sharing::default());
    let mut probe = host.open();
    let before = probe.inventory().unwrap();
    host.restart(|host| (host.profile, host.gpus) = ("rtx3090", 3));
    eventually("the old ones are left out", || probe.look(false).gpus.is_empty());
    let after = probe.inventory().unwrap();
    assert_eq!(after.iter().map(|gpu| gpu.name.as_str()).collect::<Vec<_>>(), ["NVIDIA GeForce RTX 3090"; 3]);
    assert_eq!((before[0].mig, after[0].mig), (Some(false), None), "only one of them has a MIG mode");
    assert_eq!(probe.look(false).gpus.len(), 3);
}

#[test]
fn a_gpu_that_comes_with_the_driver_s_return_is_in_the_next_inventory() {
    let mut host = SimHost::start(Sharing::default());
    let mut probe = host.open();
    let before = probe.inventory().unwrap();
    host.shut_down();
    eventually("both are lost", || {
        probe.look(false).gpus.iter().all(|gpu| matches!(gpu.reading, RawReading::Lost { .. }))
    });
    host.restart(|host| host.gpus = 3);
    eventually("both are back", || {
        probe.look(false).gpus.iter().all(|gpu| matches!(gpu.reading, RawReading::Ok { .. }))
    });
    let after = probe.inventory().unwrap();
    assert_eq!((&after[..2], after.len()), (&before[..], 3));
}

#[test]
fn clients_of_mps_are_told_as_such_and_their_share_is_unknown() {
    let mut host = SimHost::start(Sharing::Mps);
    let (mut probe, pid) = watching(&mut host);
    let look = probe.look(true);
    let [process] = listed(&look, FIRST) else { panic!("{look:?}") };
    assert_eq!((process.pid, process.kind), (pid, ProcessKind::MpsClient));
    let registry = crate::procs::Registry::new(Path::new("/proc"), std::sync::mpsc::channel().0).unwrap();
    let sample = look.resolve(&registry, &mut Listings::default());
    let berth_model::GpuReading::Ok { processes: Ok(processes), .. } = &sample.gpus[0].reading else {
        panic!("{sample:?}");
    };
    assert_eq!((processes[0].kind, processes[0].core), (ProcessKind::MpsClient, None));
}
