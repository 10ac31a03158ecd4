//! On a real GPU, where `BERTH_TEST_GPU=1` says there is one: that it locks and parks as the simulated one does.
//!
//! Besides holding the claims the tests print what only hardware can tell: the cost of `cuInit`, the code of a lock that ran out
//! of time, the times of lock and park. They want the GPU for themselves: `--test-threads=1`, as `gpu/driver.sh` does.

use std::path::Path;
use std::time::{Duration, Instant};

use berth_load::Moment;
use berth_model::Bytes;
use rustix::process::Signal;

use super::host::{Rival, Tenant};
use super::{LONG, SOON};
use crate::driver::api::Api;
use crate::driver::measure::{lock_times, park_times};
use crate::driver::sys::Cuda;
use crate::driver::{Driver, DriverError, DriverHands, DriverSteps, Options, ParkError, ParkOptions, Parking, State};
use crate::hands::sys::Tracee;
use crate::nvml::{GpuLook, GpuProbe, NvmlProbe, RawReading};
use crate::testing::eventually;

const LIBCUDA: &str = "libcuda.so.1";
const GIB: u64 = 1 << 30;
/// For a lock that waits for a kernel, or memory that is moved by tens of GiB.
const LONGER: Duration = Duration::from_secs(120);

/// Everything of a real driver that a test needs; `None`, said loudly, where there is no GPU to use.
struct Gpu {
    driver: Driver,
    probe: NvmlProbe,
    /// Of the first GPU.
    total: Bytes,
}

impl Gpu {
    fn for_test(test: &str) -> Option<Gpu> {
        if std::env::var_os("BERTH_TEST_GPU").is_none_or(|value| value != "1") {
            eprintln!("SKIPPED {test}: BERTH_TEST_GPU is not 1");
            return None;
        }
        let mut probe = open_probe();
        let total = probe.inventory().unwrap()[0].memory_total.unwrap();
        Some(Gpu { driver: Driver::open(Path::new(LIBCUDA), Options::default()).unwrap(), probe, total })
    }

    /// Has memory, as NVML tells, and does nothing.
    fn idle(&mut self, memory: Bytes) -> Tenant {
        let tenant = Tenant::start(Path::new(LIBCUDA), &format!("hold:{}", memory.0));
        tenant.until_listed(&mut self.probe, memory);
        tenant
    }

    fn parking(&self) -> Parking {
        Parking::new(self.driver.clone(), Box::new(open_probe()), ParkOptions::default())
    }

    fn is_listed(&mut self, pid: u32) -> bool {
        self.probe.look(false).gpus.iter().any(|gpu| pids(gpu).contains(&pid))
    }

    fn used(&mut self) -> Bytes {
        let RawReading::Ok { memory_used: Some(used), .. } = self.probe.look(false).gpus[0].reading else {
            panic!("the first GPU does not tell its memory")
        };
        used
    }
}

fn open_probe() -> NvmlProbe {
    NvmlProbe::open(Path::new("libnvidia-ml.so.1")).unwrap()
}

fn pids(gpu: &GpuLook) -> Vec<u32> {
    let RawReading::Ok { processes: Ok(listed), .. } = &gpu.reading else { return Vec::new() };
    listed.iter().map(|process| process.pid).collect()
}

fn start(order: &str) -> Tenant {
    Tenant::start(Path::new(LIBCUDA), order)
}

#[test]
fn real_locks_take_no_context_and_are_quick_on_an_idle_process() {
    let test = "real_locks_take_no_context_and_are_quick_on_an_idle_process";
    let Some(mut gpu) = Gpu::for_test(test) else { return };
    let idle = gpu.idle(Bytes(GIB));
    let begin = Instant::now();
    assert_eq!(gpu.driver.state(idle.key()).unwrap(), State::Running);
    eprintln!("cuInit and the first state: {:?}", begin.elapsed());
    assert!(!gpu.is_listed(std::process::id()), "no context was made here");
    let times = lock_times(&gpu.driver, idle.key(), 500, LONG).unwrap();
    eprintln!("lock of an idle process: {times:?}");
    assert!(times.lock.p50_us < 5_000, "{times:?}");
    assert!(gpu.is_listed(idle.key().pid), "locked or not, it is listed");
}

#[test]
fn a_real_lock_waits_for_the_kernel_or_leaves_it_running() {
    let Some(gpu) = Gpu::for_test("a_real_lock_waits_for_the_kernel_or_leaves_it_running") else { return };
    let mut busy = start("matmul:19456");
    busy.until(Moment::FirstLaunch);
    let bare = Cuda::open(Path::new(LIBCUDA)).unwrap();
    assert_eq!(bare.init(), 0);
    let answer = bare.lock(busy.key().pid.cast_signed(), 50);
    eprintln!("a lock that runs out of time answers {:?} ({answer})", bare.name(answer));
    let refused = gpu.driver.lock(busy.key(), SOON).unwrap_err();
    assert!(matches!(refused, DriverError::TimedOut { .. }), "{refused}");
    assert_eq!(gpu.driver.state(busy.key()).unwrap(), State::Running);
    assert!(!gpu.driver.probe_idle(busy.key(), SOON).unwrap(), "it computes");
    let begin = Instant::now();
    gpu.driver.lock(busy.key(), LONGER).unwrap();
    eprintln!("lock of a running kernel: {:?}", begin.elapsed());
    gpu.driver.unlock(busy.key()).unwrap();
    assert!(busy.finish());
}

#[test]
fn a_real_lock_keeps_one_process_off_while_others_go_on_and_all_or_none_of_a_tenant() {
    let test = "a_real_lock_keeps_one_process_off_while_others_go_on_and_all_or_none_of_a_tenant";
    let Some(mut gpu) = Gpu::for_test(test) else { return };
    let (tenant, other) = (start("light:512"), start("light:512"));
    tenant.until(Moment::KernelDone);
    gpu.driver.lock(tenant.key(), LONG).unwrap();
    let locked_at = crate::clock::now().0;
    for _ in 0..10 {
        other.until(Moment::KernelDone);
    }
    let unlocked_at = crate::clock::now().0;
    gpu.driver.unlock(tenant.key()).unwrap();
    let before = locked_at + u64::try_from(SOON.as_nanos()).unwrap();
    let next = std::iter::repeat_with(|| tenant.until(Moment::KernelDone)).find(|done_at| *done_at > before).unwrap();
    assert!(next > unlocked_at, "{next} is between {locked_at} and {unlocked_at}");

    let (idle, busy) = (gpu.idle(Bytes(GIB)), start("matmul:19456"));
    busy.until(Moment::FirstLaunch);
    let refused = gpu.driver.lock_all(&[idle.key(), busy.key()], SOON).unwrap_err();
    assert!(matches!(refused, DriverError::TimedOut { .. }), "{refused}");
    assert_eq!(gpu.driver.state(idle.key()).unwrap(), State::Running);
    gpu.driver.lock_all(&[idle.key(), busy.key()], LONGER).unwrap();
    assert_eq!(gpu.driver.state(idle.key()).unwrap(), State::Locked);
}

#[test]
fn a_stopped_process_is_refused_before_the_real_driver_hangs_on_it() {
    let test = "a_stopped_process_is_refused_before_the_real_driver_hangs_on_it";
    let Some(mut gpu) = Gpu::for_test(test) else { return };
    let tenant = gpu.idle(Bytes(GIB));
    tenant.signal(Signal::STOP);
    let driver = gpu.driver.clone();
    eventually("it is told", || matches!(driver.lock(tenant.key(), LONG), Err(DriverError::StandsStill { .. })));
    tenant.signal(Signal::CONT);
    eventually("it can be locked", || driver.lock(tenant.key(), LONG).is_ok());
    driver.unlock(tenant.key()).unwrap();
}

#[test]
fn real_memory_is_moved_out_and_back_by_size() {
    let Some(mut gpu) = Gpu::for_test("real_memory_is_moved_out_and_back_by_size") else { return };
    let parking = gpu.parking();
    for gib in [1_u64, 4, 10, 20] {
        let tenant = gpu.idle(Bytes(gib * GIB));
        let times = park_times(&parking, tenant.key(), LONG).unwrap();
        assert!(times.bytes >= Bytes(gib * GIB));
        eprintln!("park: {times:?}");
        assert_eq!(gpu.driver.state(tenant.key()).unwrap(), State::Running);
    }
}

#[test]
fn a_real_tenant_computes_rightly_after_it_was_parked_in_its_pause() {
    let test = "a_real_tenant_computes_rightly_after_it_was_parked_in_its_pause";
    let Some(mut gpu) = Gpu::for_test(test) else { return };
    let mut tenant = start("pausing:8192");
    tenant.until(Moment::KernelDone);
    let (parking, before) = (gpu.parking(), gpu.used());
    parking.park(tenant.key(), LONG).unwrap();
    eventually("it is no longer listed", || !gpu.is_listed(tenant.key().pid));
    eprintln!("memory in use: {before}, {} with the tenant parked", gpu.used());
    assert!(gpu.used() < before);
    parking.unpark(tenant.key()).unwrap();
    assert!(tenant.finish(), "its second result is compared with the CPU's");
}

/// How one that stands at an allocation is parked: its thread must not go on, the others must.
#[test]
fn a_real_process_is_locked_and_parked_with_one_thread_kept_still() {
    let test = "a_real_process_is_locked_and_parked_with_one_thread_kept_still";
    let Some(mut gpu) = Gpu::for_test(test) else { return };
    let (tenant, parking) = (gpu.idle(Bytes(2 * GIB)), gpu.parking());
    let kept = Tracee::seize(tenant.key().pid).unwrap();
    eprintln!("lock with a thread kept still: {:?}", lock_times(&gpu.driver, tenant.key(), 20, LONG).unwrap());
    eprintln!("park with a thread kept still: {:?}", park_times(&parking, tenant.key(), LONG).unwrap());
    drop(kept);
    assert_eq!(gpu.driver.state(tenant.key()).unwrap(), State::Running);
}

#[test]
fn two_real_tenants_of_sixty_percent_each_have_the_gpu_one_after_the_other() {
    let test = "two_real_tenants_of_sixty_percent_each_have_the_gpu_one_after_the_other";
    let Some(mut gpu) = Gpu::for_test(test) else { return };
    let sixty = Bytes(gpu.total.0 / 10 * 6);
    let (parking, first) = (gpu.parking(), gpu.idle(sixty));
    if let Err(error @ (ParkError::HostMemory { .. } | ParkError::MemoryLimit { .. })) = parking.check(&[first.key()]) {
        return eprintln!("SKIPPED {test}: {error}");
    }
    let begin = Instant::now();
    parking.park(first.key(), LONG).unwrap();
    eprintln!("{sixty} parked in {:?}", begin.elapsed());
    let second = gpu.idle(sixty);
    let refused = parking.unpark(first.key()).unwrap_err();
    assert!(matches!(refused, ParkError::NoRoom { gpu: 0, .. }), "{refused}");
    assert_eq!(gpu.driver.state(first.key()).unwrap(), State::Checkpointed);
    drop(second);
    let begin = Instant::now();
    eventually("the first is back", || parking.unpark(first.key()).is_ok());
    eprintln!("{sixty} back in {:?}", begin.elapsed());
    assert_eq!(gpu.driver.state(first.key()).unwrap(), State::Running);
    first.until_listed(&mut gpu.probe, sixty);
}

#[test]
fn what_a_killed_daemon_left_locked_or_parked_on_a_real_gpu_is_undone_by_the_next() {
    let test = "what_a_killed_daemon_left_locked_or_parked_on_a_real_gpu_is_undone_by_the_next";
    let Some(mut gpu) = Gpu::for_test(test) else { return };
    let hands = DriverHands { driver: gpu.driver.clone(), parking: Some(gpu.parking()), lock_timeout: LONG };
    for verb in ["lock", "park"] {
        let tenant = gpu.idle(Bytes(4 * GIB));
        let mut daemon = Rival::start(Path::new(LIBCUDA), verb, tenant.key());
        eventually("it is locked", || gpu.driver.state(tenant.key()).is_ok_and(|state| state != State::Running));
        daemon.kill();
        eventually("it is back", || hands.restore(tenant.key(), None).is_ok());
        eventually("it is unlocked", || hands.unlock(tenant.key()).is_ok());
        assert_eq!(gpu.driver.state(tenant.key()).unwrap(), State::Running, "{verb}");
    }
}
