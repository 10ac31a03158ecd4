//! The simulated driver, real processes, real cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use berth_load::Moment;
use berth_model::Bytes;
use rustix::process::Signal;

use super::host::SimHost;
use super::{LONG, SOON, Sleeper, key};
use crate::clock;
use crate::driver::measure::{lock_times, park_times};
use crate::driver::{Driver, DriverError, DriverHands, DriverSteps, Options, ParkError, State};
use crate::hands::sys::Tracee;
use crate::nvml::{GpuProbe, Look, RawReading};
use crate::testing::{eventually, skip};

const SMALL: Bytes = Bytes::from_mib(32);
/// Of the GPU's 400 MiB.
const SIXTY_PERCENT: Bytes = Bytes::from_mib(240);

#[test]
fn a_library_that_is_not_there_or_not_the_driver_leaves_the_level_absent() {
    let missing = Driver::open(Path::new("/nonexistent/libcuda.so.1"), Options::default()).unwrap_err();
    assert!(matches!(missing, DriverError::NotFound { .. }), "{missing}");
    let other = Driver::open(Path::new("libc.so.6"), Options::default()).unwrap_err();
    assert_eq!(other.to_string(), "libc.so.6 has no cuInit: install NVIDIA driver 570 or newer");
}

#[test]
fn a_lock_returns_when_the_kernel_is_done_and_lets_go_what_waited() {
    let host = SimHost::start();
    let (driver, mut tenant) = (host.driver(), host.computing());
    let asked = Instant::now();
    driver.lock(tenant.key(), LONG).unwrap();
    assert!(asked.elapsed() > Duration::from_millis(500), "a kernel of a second: {:?}", asked.elapsed());
    assert_eq!(driver.state(tenant.key()).unwrap(), State::Locked);
    driver.unlock(tenant.key()).unwrap();
    assert!(tenant.finish());
}

#[test]
fn a_lock_that_runs_out_of_time_leaves_the_kernel_running() {
    let host = SimHost::start();
    let (driver, mut tenant) = (host.driver(), host.computing());
    let refused = driver.lock(tenant.key(), SOON).unwrap_err();
    assert!(matches!(refused, DriverError::TimedOut { .. }), "{refused}");
    assert_eq!(driver.state(tenant.key()).unwrap(), State::Running);
    assert!(!driver.probe_idle(tenant.key(), SOON).unwrap(), "it computes");
    assert!(tenant.finish());
}

#[test]
fn a_locked_process_launches_nothing_until_it_is_unlocked_while_others_go_on() {
    let host = SimHost::start();
    let (driver, tenant, other) = (host.driver(), host.light(), host.light());
    driver.lock(tenant.key(), LONG).unwrap();
    let locked_at = clock::now().0;
    for _ in 0..4 {
        other.until(Moment::KernelDone);
    }
    let unlocked_at = clock::now().0;
    driver.unlock(tenant.key()).unwrap();
    // What it did before, and wrote down after the lock was granted.
    let before = locked_at + u64::try_from(SOON.as_nanos()).unwrap();
    let next = std::iter::repeat_with(|| tenant.until(Moment::KernelDone)).find(|done_at| *done_at > before).unwrap();
    assert!(next > unlocked_at, "{next} is between {locked_at} and {unlocked_at}");
}

#[test]
fn a_busy_tenant_survives_a_hundred_locks() {
    let host = SimHost::start();
    let (driver, tenant) = (host.driver(), host.light());
    let times = lock_times(&driver, tenant.key(), 100, LONG).unwrap();
    eprintln!("{times:?}");
    assert_eq!((times.lock.count, driver.state(tenant.key()).unwrap()), (100, State::Running));
    assert!(times.lock.p50_us >= 400, "the driver alone takes that long");
    tenant.until(Moment::KernelDone);
    eventually("it is idle in between", || driver.probe_idle(tenant.key(), SOON).unwrap());
}

#[test]
fn of_a_tenant_with_one_busy_process_none_is_locked() {
    let host = SimHost::start();
    let (driver, idle, busy) = (host.driver(), host.idle(SMALL), host.computing());
    let refused = driver.lock_all(&[idle.key(), busy.key()], Duration::from_millis(200)).unwrap_err();
    assert!(matches!(refused, DriverError::TimedOut { pid, .. } if pid == busy.key().pid), "{refused}");
    assert_eq!(driver.state(idle.key()).unwrap(), State::Running);
    driver.lock_all(&[idle.key(), busy.key()], LONG).unwrap();
    assert_eq!(driver.state(idle.key()).unwrap(), State::Locked);
}

#[test]
fn a_process_without_a_context_cannot_be_locked() {
    let host = SimHost::start();
    let sleeper = Sleeper::new();
    let refused = host.driver().lock(sleeper.key(), LONG).unwrap_err();
    assert!(matches!(refused, DriverError::NoContext { .. }) && refused.is_passing(), "{refused}");
}

#[test]
fn a_stopped_process_is_refused_until_it_goes_on() {
    let host = SimHost::start();
    let (driver, tenant) = (host.driver(), host.idle(SMALL));
    tenant.signal(Signal::STOP);
    eventually("it is told", || matches!(driver.lock(tenant.key(), LONG), Err(DriverError::StandsStill { .. })));
    tenant.signal(Signal::CONT);
    eventually("it can be locked", || driver.lock(tenant.key(), LONG).is_ok());
}

#[test]
fn a_process_with_one_thread_kept_still_by_berth_itself_can_be_parked() {
    let host = SimHost::start();
    let (parking, tenant) = (host.parking(), host.idle(SMALL));
    let kept = Tracee::seize(tenant.key().pid).unwrap();
    let stat = format!("/proc/{}/stat", tenant.key().pid);
    eventually("it is kept", || fs::read_to_string(&stat).unwrap().contains(") t "));
    parking.park(tenant.key(), LONG).unwrap();
    parking.unpark(tenant.key()).unwrap();
    drop(kept);
    eventually("it goes on", || !fs::read_to_string(&stat).unwrap().contains(") t "));
}

/// A cgroup of this test, removed with it.
struct Cgroup(PathBuf);

impl Cgroup {
    /// `None` where there is no such hierarchy, or it may not be written.
    fn new(hierarchy: &str, name: &str) -> Option<Cgroup> {
        let dir = Path::new("/sys/fs/cgroup").join(hierarchy).join(format!("berth-{name}-{}", std::process::id()));
        let cgroup = fs::create_dir(&dir).ok().map(|()| Cgroup(dir))?;
        // Elsewhere it is a directory like any other.
        cgroup.0.join("cgroup.procs").exists().then_some(cgroup)
    }

    fn set(&self, file: &str, value: impl ToString) -> bool {
        fs::write(self.0.join(file), value.to_string()).is_ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for (file, thaw) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            if self.0.join(file).exists() {
                self.set(file, thaw);
            }
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_frozen_process_is_refused_until_it_is_thawed() {
    let ways = [("freezer", "freezer.state", "FROZEN", "THAWED"), ("unified", "cgroup.freeze", "1", "0")];
    let mut tried = 0;
    for (hierarchy, file, freeze, thaw) in ways.into_iter().chain([("", "cgroup.freeze", "1", "0")]) {
        let Some(cgroup) = Cgroup::new(hierarchy, "lock") else { continue };
        let host = SimHost::start();
        let (driver, tenant) = (host.driver(), host.idle(SMALL));
        if !cgroup.set("cgroup.procs", tenant.key().pid) || !cgroup.set(file, freeze) {
            continue;
        }
        tried += 1;
        let refused = driver.lock(tenant.key(), LONG).unwrap_err();
        assert!(refused.to_string().contains(&*cgroup.0.to_string_lossy()), "{refused}");
        assert!(matches!(refused, DriverError::StandsStill { .. }), "{refused}");
        assert!(cgroup.set(file, thaw));
        eventually("it can be locked", || driver.lock(tenant.key(), LONG).is_ok());
        drop(tenant);
    }
    if tried == 0 {
        skip("a_frozen_process_is_refused_until_it_is_thawed", "no cgroup can be made and frozen");
    }
}

#[test]
fn a_newcomer_with_the_pid_is_not_taken_for_the_old_process() {
    let host = SimHost::start();
    let driver = host.driver();
    let tenant = host.idle(SMALL);
    let old = tenant.key();
    drop(tenant);
    let ticks = old.start_ticks;
    let last_pid = Path::new("/proc/sys/kernel/ns_last_pid");
    let newcomer = (0..200).find_map(|_| {
        fs::write(last_pid, (old.pid - 1).to_string()).ok()?;
        let newcomer = Sleeper(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap());
        (newcomer.0.id() == old.pid && key(old.pid).start_ticks != ticks).then_some(newcomer)
    });
    let Some(newcomer) = newcomer else {
        return skip("a_newcomer_with_the_pid_is_not_taken_for_the_old_process", "the pid cannot be had again");
    };
    assert_eq!(newcomer.0.id(), old.pid);
    assert!(matches!(driver.lock(old, LONG), Err(DriverError::Gone { .. })));
    assert!(matches!(driver.lock(newcomer.key(), LONG), Err(DriverError::NoContext { .. })));
}

#[test]
fn a_lock_outlives_who_took_it_and_is_undone_by_whoever_comes_after() {
    let host = SimHost::start();
    let (before, after, tenant) = (host.driver(), host.driver(), host.idle(SMALL));
    before.lock(tenant.key(), LONG).unwrap();
    drop(before);
    assert!(matches!(host.driver().lock(tenant.key(), LONG), Err(DriverError::LockedByOthers { .. })));
    after.unlock(tenant.key()).unwrap();
    assert_eq!(after.state(tenant.key()).unwrap(), State::Running);
}

#[test]
fn a_lock_that_comes_true_after_its_daemon_died_is_undone() {
    let host = SimHost::start();
    let (driver, mut tenant) = (host.driver(), host.computing_long());
    let mut daemon = host.rival("lock", tenant.key());
    eventually("its lock is under way", || matches!(driver.unlock(tenant.key()), Err(DriverError::Busy { .. })));
    daemon.kill();
    eventually("the lock is undone", || driver.unlock(tenant.key()).is_ok());
    assert_eq!(driver.state(tenant.key()).unwrap(), State::Running);
    assert!(tenant.finish());
}

#[test]
fn a_park_that_comes_true_after_its_daemon_died_is_undone() {
    let host = SimHost::start();
    let (driver, tenant) = (host.driver(), host.idle(SIXTY_PERCENT));
    let mut daemon = host.rival("park", tenant.key());
    eventually("it is locked", || driver.state(tenant.key()).unwrap() != State::Running);
    daemon.kill();
    let hands = DriverHands { driver: driver.clone(), parking: Some(host.parking()), lock_timeout: LONG };
    eventually("it is back", || hands.restore(tenant.key(), None).is_ok());
    eventually("it is unlocked", || hands.unlock(tenant.key()).is_ok());
    assert_eq!(driver.state(tenant.key()).unwrap(), State::Running);
}

/// What NVML says: memory in use, and who is there.
fn seen(look: &Look) -> (Bytes, Vec<u32>) {
    let [gpu] = &look.gpus[..] else { panic!("{look:?}") };
    let RawReading::Ok { memory_used: Some(used), processes: Ok(processes), .. } = &gpu.reading else {
        panic!("{look:?}")
    };
    (*used, processes.iter().map(|process| process.pid).collect())
}

#[test]
fn calling_the_driver_makes_nobody_a_gpu_process() {
    let host = SimHost::start();
    let (driver, tenant, mut probe) = (host.driver(), host.idle(SMALL), host.probe());
    driver.lock(tenant.key(), LONG).unwrap();
    probe.inventory().unwrap();
    assert_eq!(seen(&probe.look(false)).1, [tenant.key().pid], "the tenant alone, locked or not");
}

#[test]
fn two_tenants_of_sixty_percent_each_have_the_gpu_one_after_the_other() {
    let host = SimHost::start();
    let (parking, mut probe) = (host.parking(), host.probe());
    probe.inventory().unwrap();
    let first = host.idle(SIXTY_PERCENT);
    parking.park(first.key(), LONG).unwrap();
    eventually("its memory is free", || {
        let (used, listed) = seen(&probe.look(false));
        used <= Bytes::from_mib(4) && listed.is_empty()
    });
    let second = host.idle(SIXTY_PERCENT);
    let refused = parking.unpark(first.key()).unwrap_err();
    assert!(matches!(refused, ParkError::NoRoom { gpu: 0, .. }), "{refused}");
    assert_eq!(parking.driver().state(first.key()).unwrap(), State::Checkpointed);
    parking.park(second.key(), LONG).unwrap();
    parking.unpark(first.key()).unwrap();
    eventually("the first is back", || seen(&probe.look(false)).1 == [first.key().pid]);
    assert!(matches!(parking.unpark(second.key()), Err(ParkError::NoRoom { .. })));
    drop(first);
    eventually("the second is back", || parking.unpark(second.key()).is_ok());
    assert_eq!(parking.driver().state(second.key()).unwrap(), State::Running);
    assert_eq!(parking.needs_back(second.key()), None);
}

#[test]
fn a_tenant_s_own_memory_limit_rules_out_parking_it() {
    let limits = [("memory", "memory.limit_in_bytes"), ("", "memory.max"), ("unified", "memory.max")];
    let limited = limits
        .into_iter()
        .find_map(|(hierarchy, file)| Cgroup::new(hierarchy, "park").filter(|cgroup| cgroup.set(file, 100 << 20)));
    let Some(cgroup) = limited else {
        return skip("a_tenant_s_own_memory_limit_rules_out_parking_it", "no memory limit can be set");
    };
    let host = SimHost::start();
    let (parking, tenant) = (host.parking(), host.idle(SIXTY_PERCENT));
    parking.check(&[tenant.key()]).expect("without the limit it fits");
    assert!(cgroup.set("cgroup.procs", tenant.key().pid));
    let refused = parking.park(tenant.key(), LONG).unwrap_err();
    let ParkError::MemoryLimit { limit, cgroup: told, .. } = &refused else { panic!("{refused}") };
    assert_eq!((*limit, told), (Bytes(100 << 20), &cgroup.0));
    assert_eq!(parking.driver().state(tenant.key()).unwrap(), State::Running);
    drop(tenant);
}

#[test]
fn parking_is_measured_by_size() {
    let host = SimHost::start();
    let parking = host.parking();
    let mut checkpoints = Vec::new();
    for mib in [32, 300] {
        let tenant = host.idle(Bytes::from_mib(mib));
        let times = park_times(&parking, tenant.key(), LONG).unwrap();
        eprintln!("{times:?}");
        assert!(times.bytes > Bytes::from_mib(mib));
        checkpoints.push(times.checkpoint_us);
    }
    assert!(checkpoints[1] > checkpoints[0] + 100_000, "0.3 GB at 1.8 GB a second: {checkpoints:?}");
}
