//! The gate without a signal on a real kernel: calls that wait until a freeze is asked for, and go no further.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use berth_model::{Bytes, GpuIndex, HaltedCall, Moment, ProcKey};

use super::super::{Options, available};
use super::gate::{key, signal_continue, threads, until_stopped};
use super::tenant::Tenant;
use super::{Scene, with};
use crate::freezer::tests::{TestCgroup, hierarchies};
use crate::testing::skip;

const WITHIN: Duration = Duration::from_secs(2);
const MIB: u64 = 1 << 20;
const GPU: GpuIndex = GpuIndex(7);

/// Runs a test with each way of attaching, if the kernel can keep a call waiting.
fn each_way(test: &str, run: impl Fn(Scene)) {
    if !available().is_ok_and(|available| available.unseen) {
        return skip(test, "this kernel cannot keep a call waiting");
    }
    for perf_events in [false, true] {
        with(test, Options { perf_events, ..Options::default() }, true, &run);
    }
}

/// The same in each hierarchy, with a process in a cgroup of its own there.
fn each_freezer(test: &str, run: impl Fn(&Scene, &TestCgroup, &mut Tenant)) {
    for hierarchy in hierarchies(test) {
        each_way(test, |scene| {
            let mut tenant = scene.newcomer(2);
            // Dropped first: what is frozen cannot be reaped.
            let cgroup = TestCgroup::new(&hierarchy);
            fs::write(cgroup.path.join("cgroup.procs"), tenant.pid().to_string()).unwrap();
            run(&scene, &cgroup, &mut tenant);
        });
    }
}

impl Scene {
    /// Begins a call that the gate keeps waiting, freezes the process as a hold does, and makes sure that nothing was made.
    fn freezes_at(&self, cgroup: &TestCgroup, tenant: &mut Tenant, what: &str, amount: u32) -> HaltedCall {
        let (before, process) = (tenant.made(), key(tenant.pid()));
        tenant.begin(what, amount);
        let (halted, call) = self.next_halt();
        assert_eq!(halted, process);
        self.freeze(cgroup, process);
        assert_eq!(tenant.made(), before, "{what}");
        assert!(!self.probes.continued(process), "there is no stop to take back");
        call
    }

    fn freeze(&self, cgroup: &TestCgroup, process: ProcKey) {
        cgroup.dir().freeze_telling(WITHIN, || self.probes.freezing(process, true)).unwrap();
        self.probes.freezing(process, false);
    }
}

#[test]
fn a_launch_that_waits_goes_into_the_freezer_and_is_made_when_it_is_thawed_and_nobody_sees_anything() {
    each_freezer("a_launch_that_waits", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        tenant.call("create");
        for round in 1..=5 {
            assert_eq!(scene.freezes_at(cgroup, tenant, "launch", 1), HaltedCall::Launch);
            assert_eq!(scene.halted(), [], "nobody is stopped");
            cgroup.dir().thaw(WITHIN).unwrap();
            tenant.answer("launch");
            assert_eq!(tenant.made(), [round, 0]);
        }
        scene.probes.ungate(process).unwrap();
        tenant.repeat("launch", 10);
        assert!(tenant.is_unseen());
        assert_eq!(scene.told(), []);
    });
}

#[test]
fn a_first_context_and_an_allocation_without_room_wait_in_the_same_way() {
    each_freezer("a_first_context_and_an_allocation", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.bar(process).unwrap();
        assert_eq!(scene.freezes_at(cgroup, tenant, "create", 1), HaltedCall::Context);
        cgroup.dir().thaw(WITHIN).unwrap();
        scene.expect(tenant.pid(), Moment::ContextReady, tenant.answer("create"));
        scene.probes.allow(GPU, Bytes(MIB)).unwrap();
        scene.probes.limit_allocations(process, Some(GPU)).unwrap();
        tenant.repeat("take", 1 << 20);
        let call = scene.freezes_at(cgroup, tenant, "take", 1 << 20);
        assert_eq!(call, HaltedCall::Allocation { bytes: Bytes(MIB) });
        cgroup.dir().thaw(WITHIN).unwrap();
        tenant.answer("take");
        assert_eq!(tenant.made(), [0, 2]);
        assert_eq!(scene.probes.taken(GPU), Bytes(MIB), "what waited was put back");
        assert!(tenant.is_unseen());
    });
}

#[test]
fn one_that_was_frozen_for_another_reason_waits_at_its_next_launch_all_the_same() {
    each_freezer("frozen_before", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        scene.freeze(cgroup, process);
        cgroup.dir().thaw(WITHIN).unwrap();
        scene.freezes_at(cgroup, tenant, "launch", 1);
    });
}

/// Threads that come to a launch while the freeze takes effect get no further than those that waited.
#[test]
fn of_many_threads_none_slips_through_and_each_makes_the_one_launch_it_waits_at() {
    const THREADS: u32 = 8;
    each_freezer("many_threads_wait", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        scene.freezes_at(cgroup, tenant, "storm", THREADS);
        for round in 1..=10 {
            cgroup.dir().thaw(WITHIN).unwrap();
            assert_eq!(scene.next_halt().0, process);
            scene.freeze(cgroup, process);
            assert!(!scene.probes.continued(process));
            let [made, _] = tenant.made();
            assert!(made <= u64::from(THREADS * round), "{made} launches after {round} rounds: one each is held back");
        }
        assert!(tenant.is_unseen());
    });
}

#[test]
fn no_flood_of_sigcont_carries_a_launch_past_the_gate() {
    each_freezer("a_flood_of_sigcont", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    signal_continue(process);
                }
            });
            for _ in 0..5 {
                scene.freezes_at(cgroup, tenant, "launch", 1);
                cgroup.dir().thaw(WITHIN).unwrap();
                tenant.answer("launch");
            }
            is_over.store(true, Ordering::Relaxed);
        });
        assert!(tenant.is_unseen());
    });
}

#[test]
fn one_that_is_let_go_while_it_waits_goes_on_at_once_and_unseen() {
    each_way("let_go_while_it_waits", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.keep_unseen(process);
        scene.probes.gate(process).unwrap();
        tenant.begin("launch", 1);
        assert_eq!(scene.next_halt().0, process);
        scene.probes.ungate(process).unwrap();
        tenant.answer("launch");
        assert!(!scene.probes.continued(process));
        assert!(tenant.is_unseen());
    });
}

#[test]
fn one_about_whom_nobody_decides_in_time_is_stopped_and_that_is_told_too() {
    each_way("nobody_decides", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        tenant.begin("launch", 1);
        assert_eq!([scene.next_halt().0, scene.next_halt().0], [process; 2]);
        until_stopped(process);
        assert_eq!((tenant.made(), scene.halted()), ([0, 0], vec![process]));
        assert!(scene.probes.continued(process), "a stop has to be taken back");
        signal_continue(process);
        tenant.answer("launch");
        assert_eq!(scene.halted(), []);
    });
}

#[test]
fn one_whose_stop_would_be_seen_goes_on_when_nobody_decides_in_time() {
    each_way("nobody_decides_in_sight", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.keep_unseen(process);
        scene.probes.gate(process).unwrap();
        tenant.begin("launch", 1);
        assert_eq!(scene.next_halt().0, process);
        tenant.answer("launch");
        assert!(tenant.is_unseen() && scene.halted().is_empty());
    });
}

/// A thread that waits takes no more than its share of the CPU, and is killed like any other.
#[test]
fn one_that_is_killed_while_it_waits_is_gone() {
    each_way("killed_while_it_waits", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        tenant.begin("launch", 1);
        assert_eq!(scene.next_halt().0, process);
        assert!(!threads(process).contains(&'T'));
        drop(tenant);
        scene.until_armed(0);
        assert_eq!(scene.halted(), []);
    });
}
