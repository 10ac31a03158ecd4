//! The gate without a signal on a real kernel: calls that wait until a freeze is asked for, and go no further.

use std::cell::Cell;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use berth_model::{Bytes, Event, GpuIndex, HaltedCall, Moment, Mono, ProcKey};
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::super::program::Halting;
use super::super::rule::Rule;
use super::super::{Options, ProbeError, Probes, available, load_for};
use super::gate::{key, signal_continue, threads, until_stopped};
use super::tenant::{Tenant, Workshop};
use super::{Scene, with};
use crate::clock;
use crate::freezer::tests::{TestCgroup, hierarchies};
use crate::procs::Registry;
use crate::testing::{PATIENCE, eventually, skip};

const WITHIN: Duration = Duration::from_secs(2);
const MIB: u64 = 1 << 20;
const GPU: GpuIndex = GpuIndex(7);
/// A call waits at least as long for a decision.
const WAITS: Duration = Duration::from_millis(150);
/// Attempts at a test on a machine that is too busy for it.
const ATTEMPTS: u32 = 10;

/// This test came to freeze a process when its call had waited for so long already that a stop is to be expected.
#[derive(Debug)]
struct Late;

/// Runs a test with each way of attaching, if the kernel can keep a call waiting.
fn each_way(test: &str, run: impl Fn(Scene)) {
    if !available().is_ok_and(|available| available.unseen) {
        return skip(test, "this kernel cannot keep a call waiting");
    }
    for perf_events in [false, true] {
        with(test, Options { perf_events, ..Options::default() }, true, &run);
    }
}

/// The same in each hierarchy, with a process in a cgroup of its own there. A run that came too late proves nothing, and is
/// made again with another process.
fn each_freezer(test: &str, run: impl Fn(&Scene, &TestCgroup, &mut Tenant) -> Result<(), Late>) {
    for hierarchy in hierarchies(test) {
        each_way(test, |scene| {
            let attempt = || {
                scene.until_armed(0);
                let mut tenant = scene.newcomer(2);
                // Dropped first: what is frozen cannot be reaped.
                let cgroup = TestCgroup::new(&hierarchy);
                fs::write(cgroup.path.join("cgroup.procs"), tenant.pid().to_string()).unwrap();
                run(&scene, &cgroup, &mut tenant)
            };
            assert!((0..ATTEMPTS).any(|_| attempt().is_ok()), "never in time");
        });
    }
}

impl Scene {
    /// Begins a call that the gate keeps waiting, freezes the process as a hold does, and makes sure that nothing was made.
    fn freezes_at(
        &self,
        cgroup: &TestCgroup,
        tenant: &mut Tenant,
        what: &str,
        amount: u32,
    ) -> Result<HaltedCall, Late> {
        let before = tenant.made();
        tenant.begin(what, amount);
        let call = self.freezes_next(cgroup, key(tenant.pid()))?;
        assert_eq!(tenant.made(), before, "{what}");
        Ok(call)
    }

    /// Freezes the process at its next halt. It has only waited, and was not stopped.
    fn freezes_next(&self, cgroup: &TestCgroup, process: ProcKey) -> Result<HaltedCall, Late> {
        let (at, call) = loop {
            match self.event_rx.recv_timeout(PATIENCE).expect("a halt in time") {
                Event::Halted { process: halted, call, at } if halted == process => break (at, call),
                _ => {}
            }
        };
        if self.freeze(cgroup, process) > at + WAITS {
            return Err(Late);
        }
        assert!(!self.probes.continued(process), "there is no stop to take back");
        Ok(call)
    }

    /// Returns when that was asked for.
    fn freeze(&self, cgroup: &TestCgroup, process: ProcKey) -> Mono {
        let asked_at = Cell::new(clock::now());
        let told = |is_under_way| {
            self.probes.freezing(process, is_under_way);
            if is_under_way {
                asked_at.set(clock::now());
            }
        };
        cgroup.dir().freeze_telling(WITHIN, told).unwrap();
        asked_at.get()
    }
}

#[test]
fn a_launch_that_waits_goes_into_the_freezer_and_is_made_when_it_is_thawed_and_nobody_sees_anything() {
    each_freezer("a_launch_that_waits", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        tenant.call("create");
        for round in 1..=5 {
            assert_eq!(scene.freezes_at(cgroup, tenant, "launch", 1)?, HaltedCall::Launch);
            assert_eq!(scene.halted(), [], "nobody is stopped");
            cgroup.dir().thaw(WITHIN).unwrap();
            tenant.answer("launch");
            assert_eq!(tenant.made(), [round, 0]);
        }
        scene.probes.ungate(process).unwrap();
        tenant.repeat("launch", 10);
        assert!(tenant.is_unseen());
        assert_eq!(scene.told(), []);
        Ok(())
    });
}

#[test]
fn a_first_context_and_an_allocation_without_room_wait_in_the_same_way() {
    each_freezer("a_first_context_and_an_allocation", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.bar(process).unwrap();
        assert_eq!(scene.freezes_at(cgroup, tenant, "create", 1)?, HaltedCall::Context);
        cgroup.dir().thaw(WITHIN).unwrap();
        scene.expect(tenant.pid(), Moment::ContextReady, tenant.answer("create"));
        let taken = scene.probes.taken(GPU).0;
        scene.probes.allow(GPU, Bytes(taken + MIB)).unwrap();
        scene.probes.limit_allocations(process, Some(GPU)).unwrap();
        tenant.repeat("take", 1 << 20);
        let call = scene.freezes_at(cgroup, tenant, "take", 1 << 20)?;
        assert_eq!(call, HaltedCall::Allocation { bytes: Bytes(MIB) });
        cgroup.dir().thaw(WITHIN).unwrap();
        tenant.answer("take");
        assert_eq!(tenant.made(), [0, 2]);
        assert_eq!(scene.probes.taken(GPU), Bytes(taken + MIB), "what waited was put back");
        assert!(tenant.is_unseen());
        Ok(())
    });
}

#[test]
fn one_that_was_frozen_for_another_reason_waits_at_its_next_launch_all_the_same() {
    each_freezer("frozen_before", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        scene.freeze(cgroup, process);
        cgroup.dir().thaw(WITHIN).unwrap();
        scene.freezes_at(cgroup, tenant, "launch", 1).map(drop)
    });
}

/// Threads that come to a launch while the freeze takes effect get no further than those that waited.
#[test]
fn of_many_threads_none_slips_through_and_each_makes_the_one_launch_it_waits_at() {
    const THREADS: u32 = 8;
    each_freezer("many_threads_wait", |scene, cgroup, tenant| {
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        scene.freezes_at(cgroup, tenant, "storm", THREADS)?;
        for round in 1..=10 {
            cgroup.dir().thaw(WITHIN).unwrap();
            scene.freezes_next(cgroup, process)?;
            let [made, _] = tenant.made();
            assert!(made <= u64::from(THREADS * round), "{made} launches after {round} rounds: one each is held back");
        }
        assert!(tenant.is_unseen());
        Ok(())
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
            let launches = (0..5).try_for_each(|_| {
                scene.freezes_at(cgroup, tenant, "launch", 1)?;
                cgroup.dir().thaw(WITHIN).unwrap();
                tenant.answer("launch");
                Ok(())
            });
            is_over.store(true, Ordering::Relaxed);
            launches
        })?;
        assert!(tenant.is_unseen());
        Ok(())
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
        // Else it is stopped where this test is held up for longer than a call waits.
        scene.probes.keep_unseen(process);
        scene.probes.gate(process).unwrap();
        tenant.begin("launch", 1);
        assert_eq!(scene.next_halt().0, process);
        assert!(!threads(process).contains(&'T'));
        drop(tenant);
        scene.until_armed(0);
        assert_eq!(scene.halted(), []);
    });
}

/// Shorter, and a daemon on a busy host would be too late to freeze it.
#[test]
fn a_call_about_which_nobody_decides_waits_for_the_whole_time_each_time() {
    each_way("how_long_a_call_waits", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.keep_unseen(process);
        scene.probes.gate(process).unwrap();
        for _ in 0..3 {
            let called = tenant.call("launch");
            let waited = Duration::from_nanos(called.after - called.before);
            assert!(waited >= WAITS, "{waited:?}");
        }
    });
}

/// Programs that wait take turns on the CPU: what one has noted on its stack is not to be another's.
#[test]
fn two_that_wait_on_one_cpu_are_told_apart_and_neither_slips_through() {
    each_way("two_on_one_cpu", |scene| {
        let mut tenants = [scene.newcomer(2), scene.newcomer(4)];
        let mut processes = tenants.each_ref().map(|tenant| key(tenant.pid()));
        let mut first = CpuSet::new();
        first.set(0);
        for process in processes {
            sched_setaffinity(Pid::from_raw(process.pid.cast_signed()), &first).unwrap();
            scene.probes.gate(process).unwrap();
        }
        processes.sort_unstable();
        for round in 0..5 {
            tenants.iter_mut().for_each(|tenant| tenant.begin("launch", 1));
            // Each waits, and is stopped when nobody has decided.
            let mut told: Vec<_> = (0..4).map(|_| scene.next_halt().0).collect();
            told.sort_unstable();
            assert_eq!(told, [processes[0], processes[0], processes[1], processes[1]]);
            processes.iter().for_each(|process| until_stopped(*process));
            let mut halted = scene.halted();
            halted.sort_unstable();
            assert_eq!(halted, processes);
            for tenant in &mut tenants {
                assert_eq!(tenant.made(), [round, 0]);
                assert!(scene.probes.continued(key(tenant.pid())), "a stop has to be taken back");
                signal_continue(key(tenant.pid()));
                tenant.answer("launch");
            }
        }
    });
}

/// Whoever gets its pid is not to be treated as it was.
#[test]
fn what_is_told_of_a_process_that_is_gone_leaves_nothing_behind() {
    each_way("told_of_one_that_is_gone", |scene| {
        let tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        let tell = || {
            scene.probes.keep_unseen(process);
            scene.probes.freezing(process, true);
            scene.probes.continued(process);
            // Answered when all that was told before has been taken in.
            scene.probes.ungate(process).unwrap();
            [Rule::Waiting, Rule::Go, Rule::Discreet]
                .map(|rule| scene.probes.kernel.number(process.pid, rule).is_some())
        };
        assert_eq!(tell(), [false, true, true]);
        drop(tenant);
        scene.until_armed(0);
        assert_eq!(tell(), [false; 3]);
    });
}

/// Probes whose thread reads nothing while `is_stuck`, once it has come to a record.
fn with_a_slow_reader(is_stuck: Arc<AtomicBool>) -> Scene {
    let (workshop, (event_tx, event_rx)) = (Workshop::new(), mpsc::channel());
    let registry = Registry::new("/proc".as_ref(), event_tx.clone()).unwrap();
    let resolve = move |pid| {
        while is_stuck.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        registry.resolve(pid)
    };
    let options = Options { libraries: vec![workshop.driver.clone()], ..Options::default() };
    let probes = Probes::start(options, resolve, event_tx).unwrap();
    Scene { workshop, probes, event_rx }
}

#[test]
fn after_a_halt_that_there_was_no_room_to_tell_the_next_one_is_told() {
    /// Several times what the ring has room for.
    const NOISE: u32 = 20_000;
    if !available().is_ok_and(|available| available.unseen) {
        return skip("no_room_to_tell", "this kernel cannot keep a call waiting");
    }
    let is_stuck = Arc::new(AtomicBool::new(false));
    let scene = with_a_slow_reader(is_stuck.clone());
    let mut tenant = scene.newcomer(2);
    let process = key(tenant.pid());
    scene.probes.keep_unseen(process);
    scene.probes.gate(process).unwrap();
    is_stuck.store(true, Ordering::Relaxed);
    scene.workshop.tenant().repeat("init", NOISE);
    tenant.call("launch");
    is_stuck.store(false, Ordering::Relaxed);
    eventually("all is read", || {
        let counters = scene.probes.counters();
        counters.hits + counters.lost > u64::from(NOISE)
    });
    assert!(!scene.event_rx.try_iter().any(|event| matches!(event, Event::Halted { .. })), "there was room");
    tenant.begin("launch", 1);
    assert_eq!(scene.next_halt().0, process);
}

#[test]
fn where_no_call_can_be_kept_waiting_after_all_signals_do() {
    let refuse = |refused: &'static [Halting]| {
        move |halting| match refused.contains(&halting) {
            true => Err(ProbeError::TooOld { attempted: "load a program" }),
            false => Ok(()),
        }
    };
    let chosen = |wanted, refused| load_for(wanted, refuse(refused)).ok().map(|(halting, ())| halting);
    assert_eq!(chosen(Halting::Unseen, &[]), Some(Halting::Unseen));
    assert_eq!(chosen(Halting::Unseen, &[Halting::Unseen]), Some(Halting::BySignal));
    assert_eq!(chosen(Halting::BySignal, &[Halting::BySignal]), None);
    assert_eq!(chosen(Halting::Unseen, &[Halting::Unseen, Halting::BySignal]), None);
}
