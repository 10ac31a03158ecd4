//! The probes on a real kernel: a driver library made here, real processes, both ways of attaching.

mod dead_daemon;
mod gate;
mod sim;
mod tenant;
mod unseen;

use std::process::{Child, Command};
use std::sync::mpsc::{self, Receiver};

use berth_model::{Event, HaltedCall, Moment, Mono};

use super::{Options, Probes, available};
use crate::procs::Registry;
use crate::testing::{PATIENCE, eventually, skip};
use tenant::{Called, Tenant, Workshop};

/// Running probes and what they told.
struct Scene {
    workshop: Workshop,
    probes: Probes,
    event_rx: Receiver<Event>,
}

/// Runs a test with each way of attaching, if the kernel lets anyone attach at all.
fn each_way(test: &str, run: impl Fn(Scene)) {
    for perf_events in [false, true] {
        with(test, Options { perf_events, ..Options::default() }, true, &run);
    }
}

fn with(test: &str, options: Options, watched: bool, run: impl Fn(Scene)) {
    if let Err(reason) = available() {
        return skip(test, &reason.to_string());
    }
    let workshop = Workshop::new();
    let libraries = if watched { vec![workshop.driver.clone()] } else { vec![] };
    let (event_tx, event_rx) = mpsc::channel();
    let registry = Registry::new("/proc".as_ref(), event_tx.clone()).unwrap();
    let options = Options { libraries, ..options };
    let probes = Probes::start(options.clone(), move |pid| registry.resolve(pid), event_tx).unwrap();
    assert!(!(options.perf_events && probes.multi()));
    assert!(!(options.signals && probes.is_unseen()));
    run(Scene { workshop, probes, event_rx });
}

impl Scene {
    /// The next moment anyone passes. What is not told within ten seconds is not told.
    fn next(&self) -> (u32, Moment, Mono) {
        loop {
            let event = self.event_rx.recv_timeout(PATIENCE).expect("a moment in time");
            if let Event::Moment { process, moment, at } = event {
                return (process.pid, moment, at);
            }
        }
    }

    /// The next moment is this one, and was passed within this call of the tenant.
    fn expect(&self, pid: u32, moment: Moment, called: Called) {
        let (seen_pid, seen, at) = self.next();
        assert_eq!((seen_pid, seen), (pid, moment));
        assert!(called.before <= at.0 && at.0 <= called.after, "{moment:?} at {} in {called:?}", at.0);
    }

    fn until_armed(&self, kinds: u64) {
        eventually(&format!("{kinds} armed"), || self.probes.stats().armed == kinds);
    }

    fn until_detached(&self, kinds: u64) {
        eventually(&format!("{kinds} detached"), || self.probes.stats().detached == kinds);
    }

    /// A tenant on a file system that only it sees, as in a container. The script gets program and library as `$0` and
    /// `$1`, and mounts on `/mnt`.
    fn contained(&self, script: &str) -> Tenant {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script]).args([&self.workshop.program, &self.workshop.driver]);
        Tenant::start(&mut command)
    }

    fn newcomer(&self, armed_after: u64) -> Tenant {
        let mut tenant = self.workshop.tenant();
        let init = tenant.call("init");
        self.expect(tenant.pid(), Moment::DeviceOpen, init);
        self.until_armed(armed_after);
        tenant
    }
}

/// Nanoseconds of a launch, in the best of several batches: disturbances only add.
fn launch_nanos(tenant: &mut Tenant) -> u64 {
    let batch = |tenant: &mut Tenant| tenant.repeat("launch", 1000).cpu / 1000;
    (0..20).map(|_| batch(tenant)).min().unwrap()
}

/// No probe is hit for less: entering and leaving the kernel twice takes longer.
const LESS_THAN_A_HIT: u64 = 300;

#[test]
fn every_moment_of_a_stay_is_seen_as_it_happens() {
    each_way("every_moment_of_a_stay", |scene| {
        let mut tenant = scene.newcomer(2);
        let pid = tenant.pid();
        scene.expect(pid, Moment::ContextReady, tenant.call("create"));
        scene.expect(pid, Moment::FirstAllocation, tenant.repeat("allocate", 3));
        scene.expect(pid, Moment::FirstLaunch, tenant.repeat("launch", 3));
        scene.expect(pid, Moment::ContextGone, tenant.call("destroy"));
        let counters = scene.probes.counters();
        assert_eq!((counters.lost, counters.unresolved, counters.late), (0, 0, 0));
        assert!(counters.hits >= 5, "each moment was a hit: {counters:?}");
    });
}

#[test]
fn the_facts_of_a_process_come_before_its_first_moment() {
    each_way("facts_come_first", |scene| {
        let mut tenant = scene.workshop.tenant();
        tenant.call("init");
        let first = scene.event_rx.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(first, Event::Process(facts) if facts.process.pid == tenant.pid()));
    });
}

#[test]
fn a_context_the_driver_refused_is_not_told() {
    each_way("a_refused_context", |scene| {
        let mut tenant = scene.newcomer(2);
        tenant.call("fail");
        scene.expect(tenant.pid(), Moment::ContextReady, tenant.call("retain"));
    });
}

#[test]
fn a_primary_context_is_gone_with_its_last_release_by_either_name() {
    each_way("a_primary_context", |scene| {
        let mut tenant = scene.newcomer(2);
        scene.expect(tenant.pid(), Moment::ContextReady, tenant.repeat("retain", 2));
        tenant.call("release");
        scene.expect(tenant.pid(), Moment::ContextGone, tenant.call("release"));
    });
}

#[test]
fn the_rarer_ways_to_allocate_and_launch_count_too() {
    each_way("the_rarer_ways", |scene| {
        let mut tenant = scene.newcomer(2);
        scene.expect(tenant.pid(), Moment::FirstAllocation, tenant.call("reserve"));
        scene.expect(tenant.pid(), Moment::FirstLaunch, tenant.call("graph"));
    });
}

#[test]
fn a_launch_by_any_thread_is_the_processes() {
    each_way("a_launch_by_any_thread", |scene| {
        let mut tenant = scene.newcomer(2);
        scene.expect(tenant.pid(), Moment::FirstLaunch, tenant.call("thread"));
    });
}

#[test]
fn two_processes_are_told_apart_and_one_does_not_pay_for_watching_the_other() {
    each_way("two_processes", |scene| {
        let mut watched = scene.newcomer(2);
        let mut other = scene.newcomer(4);
        scene.expect(other.pid(), Moment::FirstLaunch, other.call("launch"));
        scene.until_detached(1);
        let nanos = launch_nanos(&mut other);
        assert!(nanos < LESS_THAN_A_HIT, "{nanos} ns for a launch of a process that is not probed");
        assert_eq!(scene.probes.stats().armed, 3);
        scene.expect(watched.pid(), Moment::FirstLaunch, watched.call("launch"));
    });
}

#[test]
fn a_process_that_launches_all_the_time_is_soon_left_alone() {
    each_way("launches_all_the_time", |scene| {
        let mut tenant = scene.newcomer(2);
        let called = tenant.repeat("launch", 200_000);
        scene.expect(tenant.pid(), Moment::FirstLaunch, called);
        scene.until_detached(1);
        let nanos = launch_nanos(&mut tenant);
        assert!(nanos < LESS_THAN_A_HIT, "{nanos} ns for a launch after the first");
        let wasted = scene.probes.stats().counters.wasted;
        assert!(wasted < 100_000, "{wasted} of 200,000 launches were hits");
    });
}

#[test]
fn a_process_that_comes_back_is_seen_again() {
    each_way("re_entry", |scene| {
        let mut tenant = scene.newcomer(2);
        let pid = tenant.pid();
        scene.expect(pid, Moment::ContextReady, tenant.call("create"));
        scene.expect(pid, Moment::FirstAllocation, tenant.call("allocate"));
        scene.expect(pid, Moment::FirstLaunch, tenant.call("launch"));
        scene.until_detached(2);
        scene.expect(pid, Moment::ContextGone, tenant.call("destroy"));
        scene.expect(pid, Moment::ContextReady, tenant.call("create"));
        scene.until_armed(2);
        scene.expect(pid, Moment::FirstAllocation, tenant.call("allocate"));
        scene.expect(pid, Moment::FirstLaunch, tenant.call("launch"));
    });
}

#[test]
fn a_process_in_a_pid_namespace_is_told_by_its_pid_on_the_host() {
    each_way("a_pid_namespace", |scene| {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).args([&scene.workshop.program, &scene.workshop.driver]);
        let mut tenant = Tenant::start(&mut command);
        let init = tenant.call("init");
        let children = format!("/proc/{0}/task/{0}/children", tenant.pid());
        let pid = std::fs::read_to_string(children).unwrap().trim().parse().unwrap();
        scene.expect(pid, Moment::DeviceOpen, init);
        scene.until_armed(2);
        scene.expect(pid, Moment::FirstLaunch, tenant.call("launch"));
    });
}

#[test]
fn a_running_process_with_a_library_of_its_own_is_found_by_its_pid() {
    for perf_events in [false, true] {
        with("a_private_library", Options { perf_events, ..Options::default() }, false, |scene| {
            let script = "mount -t tmpfs none /mnt && cp \"$1\" /mnt/libcuda.so.1 && exec \"$0\" /mnt/libcuda.so.1";
            let mut tenant = scene.contained(script);
            tenant.call("init");
            tenant.call("create");
            scene.probes.attach_process(tenant.pid());
            scene.until_armed(2);
            assert_eq!(scene.probes.stats().libraries, [std::path::PathBuf::from("/mnt/libcuda.so.1")]);
            scene.expect(tenant.pid(), Moment::FirstAllocation, tenant.call("allocate"));
            scene.expect(tenant.pid(), Moment::ContextGone, tenant.call("destroy"));
            assert_eq!(scene.probes.stats().counters.late, 0);
        });
    }
}

/// The library of an image has another device and inode in each container's overlay, and is one file below.
const OVERLAY: &str = "mount -t tmpfs none /mnt && mkdir /mnt/upper /mnt/work /mnt/root && mount -t overlay none \
                       -o \"lowerdir=$(dirname \"$1\"),upperdir=/mnt/upper,workdir=/mnt/work\" /mnt/root && \
                       exec \"$0\" /mnt/root/libcuda.so.1";

#[test]
fn containers_that_share_a_layer_are_each_told_once() {
    with("a_shared_layer", Options::default(), false, |scene| {
        let mut tenants = [scene.contained(OVERLAY), scene.contained(OVERLAY)];
        // Both have loaded it before either is shown to the probes.
        tenants.iter_mut().for_each(|tenant| _ = tenant.call("init"));
        tenants.iter().for_each(|tenant| scene.probes.attach_process(tenant.pid()));
        scene.until_armed(4);
        assert_eq!(scene.probes.stats().libraries.len(), 2, "one file, seen as two");
        for tenant in &mut tenants {
            scene.expect(tenant.pid(), Moment::ContextReady, tenant.call("create"));
            scene.expect(tenant.pid(), Moment::FirstLaunch, tenant.call("launch"));
            scene.expect(tenant.pid(), Moment::ContextGone, tenant.call("destroy"));
        }
    });
}

/// Which of the twins of a library is hit first is up to the kernel.
#[test]
fn a_halt_is_told_whichever_container_of_a_shared_layer_it_seems_to_come_from() {
    with("a_halt_in_a_shared_layer", Options::default(), false, |scene| {
        let mut others = [scene.contained(OVERLAY), scene.contained(OVERLAY)];
        others.iter_mut().for_each(|tenant| _ = tenant.call("init"));
        scene.probes.attach_process(others[0].pid());
        scene.until_armed(2);
        // Known by the library that was watched when it began; the other one is watched later.
        let mut tenant = scene.contained(OVERLAY);
        tenant.call("init");
        scene.until_armed(4);
        scene.probes.attach_process(others[1].pid());
        scene.until_armed(6);
        let process = gate::key(tenant.pid());
        scene.probes.bar(process).unwrap();
        tenant.begin("create", 1);
        assert_eq!(scene.next_halt(), (process, HaltedCall::Context));
        scene.probes.ungate(process).unwrap();
        scene.go_on(process);
        tenant.answer("create");
    });
}

/// A process without the driver. This one may have it: other tests load it here.
struct Bystander(Child);

impl Bystander {
    fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_process_without_the_driver_is_left_alone() {
    with("without_the_driver", Options::default(), false, |scene| {
        let bystander = Bystander::start();
        scene.probes.attach_process(bystander.pid());
        let mut tenant = scene.workshop.tenant();
        tenant.call("create");
        scene.probes.attach_process(tenant.pid());
        scene.until_armed(2);
        scene.expect(tenant.pid(), Moment::FirstLaunch, tenant.call("launch"));
    });
}

#[test]
fn a_library_is_watched_once_and_its_replacement_as_well() {
    with("a_replaced_library", Options::default(), true, |scene| {
        let driver = &scene.workshop.driver;
        scene.probes.watch_library(driver).unwrap();
        assert_eq!(scene.probes.stats().libraries.len(), 1);
        let mut old = scene.workshop.tenant();
        // It answers, so it has loaded the library.
        old.call("allocate");
        let upgrade = driver.with_file_name("upgrade");
        std::fs::copy(driver, &upgrade).unwrap();
        std::fs::rename(&upgrade, driver).unwrap();
        scene.probes.watch_library(driver).unwrap();
        assert_eq!(scene.probes.stats().libraries.len(), 2);
        scene.expect(old.pid(), Moment::DeviceOpen, old.call("init"));
        let mut new = scene.workshop.tenant();
        scene.expect(new.pid(), Moment::DeviceOpen, new.call("init"));
    });
}

#[test]
fn a_file_that_is_no_driver_is_refused_by_name() {
    with("no_driver", Options::default(), true, |scene| {
        let error = scene.probes.watch_library(&scene.workshop.program).unwrap_err().to_string();
        assert!(error.contains("/tenant") && error.contains("none of the driver's functions"), "{error}");
        let error = scene.probes.watch_library("libberth-none.so.1".as_ref()).unwrap_err().to_string();
        assert!(error.contains("libberth-none.so.1"), "{error}");
    });
}

#[test]
fn probes_of_a_process_that_exits_are_taken_away() {
    each_way("exits", |scene| {
        drop(scene.newcomer(2));
        scene.until_armed(0);
        scene.until_detached(2);
    });
}

/// Docker's default filter kills a process for system calls it does not know, and kernels use one for return probes.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_process_with_a_strict_seccomp_filter_survives_being_watched() {
    each_way("seccomp", |scene| {
        let mut tenant = scene.newcomer(2);
        tenant.call("confine");
        scene.expect(tenant.pid(), Moment::ContextReady, tenant.call("create"));
        scene.expect(tenant.pid(), Moment::FirstLaunch, tenant.call("launch"));
        scene.expect(tenant.pid(), Moment::ContextGone, tenant.call("destroy"));
    });
}

#[test]
fn a_process_goes_on_when_the_probes_are_stopped() {
    each_way("stopped", |scene| {
        let mut tenant = scene.newcomer(2);
        drop(scene.probes);
        tenant.call("create");
        tenant.call("allocate");
        assert!(launch_nanos(&mut tenant) < LESS_THAN_A_HIT);
        tenant.call("destroy");
        let told = scene.event_rx.try_iter().filter(|e| matches!(e, Event::Moment { .. })).count();
        assert_eq!(told, 0);
    });
}
