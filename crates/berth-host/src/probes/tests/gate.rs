//! The gate by signals on a real kernel: processes that stop at a call, and those that must not.

use std::path::Path;

use berth_model::{Bytes, Event, GpuIndex, HaltedCall, Moment, ProcKey};
use rustix::process::{Pid, Signal, kill_process};

use super::super::{Options, ProbeError, read_halted};
use super::tenant::Tenant;
use super::{Bystander, Scene, with};
use crate::procs;
use crate::testing::{PATIENCE, eventually};

/// Runs a test with each way of attaching, as on a kernel that cannot keep a call waiting.
fn each_way(test: &str, run: impl Fn(Scene)) {
    for perf_events in [false, true] {
        with(test, Options { perf_events, signals: true, ..Options::default() }, true, &run);
    }
}

pub fn key(pid: u32) -> ProcKey {
    procs::read::key(Path::new("/proc"), pid).unwrap()
}

/// Sends the signal that continues a stopped process.
pub fn signal_continue(process: ProcKey) {
    kill_process(Pid::from_raw(process.pid.cast_signed()).unwrap(), Signal::CONT).unwrap();
}

/// Waits until every thread of the process is stopped.
pub fn until_stopped(process: ProcKey) {
    eventually("every thread stopped", || threads(process).iter().all(|state| *state == 'T'));
}

/// The state of each thread, as `/proc` shows it.
pub fn threads(process: ProcKey) -> Vec<char> {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.pid)).unwrap();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok());
    stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next()).collect()
}

impl Scene {
    /// The next stop anyone makes.
    pub fn next_halt(&self) -> (ProcKey, HaltedCall) {
        loop {
            let event = self.event_rx.recv_timeout(PATIENCE).expect("a stop in time");
            if let Event::Halted { process, call, .. } = event {
                return (process, call);
            }
        }
    }

    /// What of interest to a hold is told until now. A process that opens the device afterwards ends the wait.
    pub fn told(&self) -> Vec<Event> {
        let mut last = self.workshop.tenant();
        last.call("init");
        let mut told = Vec::new();
        loop {
            match self.event_rx.recv_timeout(PATIENCE).unwrap() {
                Event::Moment { process, .. } if process.pid == last.pid() => return told,
                event @ (Event::Halted { .. } | Event::Drained { .. } | Event::Launched { .. }) => told.push(event),
                _ => {}
            }
        }
    }

    fn phases(&self) -> Vec<&'static str> {
        let name = |event| match event {
            Event::Drained { .. } => "drained",
            Event::Launched { .. } => "launched",
            _ => "halted",
        };
        self.told().into_iter().map(name).collect()
    }

    pub fn halted(&self) -> Vec<ProcKey> {
        read_halted(self.probes.halted_map(), Path::new("/proc")).unwrap()
    }

    pub fn go_on(&self, process: ProcKey) {
        self.probes.continued(process);
        signal_continue(process);
    }

    /// Begins a call that the gate stops, and waits until it has.
    fn stops_at(&self, tenant: &mut Tenant, what: &str, amount: u32) -> HaltedCall {
        tenant.begin(what, amount);
        let (process, call) = self.next_halt();
        assert_eq!(process, key(tenant.pid()));
        until_stopped(process);
        call
    }
}

#[test]
fn a_gated_newcomer_stops_at_its_first_launch_and_makes_it_when_continued() {
    each_way("a_gated_newcomer", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        tenant.call("create");
        tenant.call("allocate");
        assert_eq!(scene.stops_at(&mut tenant, "launch", 1), HaltedCall::Launch);
        assert_eq!(tenant.made(), [0, 1], "it stands before the launch");
        assert_eq!(scene.halted(), [process]);
        scene.probes.ungate(process).unwrap();
        scene.go_on(process);
        tenant.answer("launch");
        assert_eq!(tenant.made(), [1, 1]);
        assert_eq!(scene.halted(), []);
        tenant.repeat("launch", 3);
        assert_eq!(scene.told(), []);
    });
}

#[test]
fn a_barred_newcomer_stops_before_its_first_context_and_at_no_later_one() {
    for what in ["create", "retain"] {
        each_way(&format!("a_barred_newcomer_{what}"), |scene| {
            let mut tenant = scene.newcomer(2);
            let process = key(tenant.pid());
            scene.probes.bar(process).unwrap();
            assert_eq!(scene.stops_at(&mut tenant, what, 1), HaltedCall::Context);
            scene.go_on(process);
            scene.expect(tenant.pid(), Moment::ContextReady, tenant.answer(what));
            tenant.call(what);
            assert_eq!(scene.stops_at(&mut tenant, "launch", 1), HaltedCall::Launch, "it is gated as well");
            scene.probes.ungate(process).unwrap();
            scene.go_on(process);
            tenant.answer("launch");
            tenant.repeat("launch", 3);
            assert_eq!(scene.told(), []);
        });
    }
}

#[test]
fn one_that_is_let_go_before_its_context_stops_nowhere_and_one_that_is_only_gated_not_there() {
    each_way("let_go_before_its_context", |scene| {
        let (mut free, mut gated) = (scene.newcomer(2), scene.newcomer(4));
        scene.probes.bar(key(free.pid())).unwrap();
        scene.probes.ungate(key(free.pid())).unwrap();
        free.call("create");
        free.call("launch");
        scene.probes.gate(key(gated.pid())).unwrap();
        gated.call("create");
        assert_eq!(scene.told(), []);
    });
}

#[test]
fn one_that_has_a_context_is_barred_from_nothing_but_launching() {
    each_way("barred_too_late", |scene| {
        let mut tenant = scene.newcomer(2);
        scene.expect(tenant.pid(), Moment::ContextReady, tenant.call("retain"));
        scene.probes.bar(key(tenant.pid())).unwrap();
        tenant.call("retain");
        assert_eq!(scene.told(), []);
        assert_eq!(scene.stops_at(&mut tenant, "launch", 1), HaltedCall::Launch);
        scene.go_on(key(tenant.pid()));
        tenant.answer("launch");
    });
}

#[test]
fn every_way_to_launch_is_stopped() {
    each_way("every_way_to_launch", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        for what in ["launch", "extended", "graph", "thread"] {
            assert_eq!(scene.stops_at(&mut tenant, what, 1), HaltedCall::Launch);
            let [made, _] = tenant.made();
            scene.go_on(process);
            tenant.answer(what);
            assert_eq!(tenant.made(), [made + 1, 0], "{what}");
        }
    });
}

#[test]
fn a_process_that_has_launched_before_can_still_be_gated() {
    each_way("gated_late", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        tenant.repeat("launch", 5);
        scene.until_detached(1);
        scene.probes.gate(process).unwrap();
        scene.stops_at(&mut tenant, "launch", 1);
        assert_eq!(tenant.made(), [5, 0]);
        scene.probes.ungate(process).unwrap();
        scene.go_on(process);
        tenant.answer("launch");
        scene.until_detached(2);
        assert_eq!(scene.probes.counters().late, 0);
    });
}

#[test]
fn a_process_never_seen_before_can_be_gated() {
    each_way("gated_unseen", |scene| {
        let mut tenant =
            scene.contained("mount -t tmpfs none /mnt && cp \"$1\" /mnt/libcuda.so.1 && exec \"$0\" /mnt/libcuda.so.1");
        tenant.call("create");
        scene.probes.gate(key(tenant.pid())).unwrap();
        scene.stops_at(&mut tenant, "launch", 1);
    });
}

#[test]
fn a_gate_that_was_opened_in_time_stops_nobody() {
    each_way("ungated", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        for _ in 0..2 {
            scene.probes.gate(process).unwrap();
        }
        for _ in 0..2 {
            scene.probes.ungate(process).unwrap();
        }
        tenant.repeat("launch", 10);
        scene.until_detached(1);
        assert_eq!(scene.told(), []);
    });
}

/// Were a thread let pass because another is about to stop the process, some launches would be made.
#[test]
fn no_thread_slips_through_while_another_is_being_stopped() {
    const THREADS: u32 = 8;
    each_way("many_threads", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.gate(process).unwrap();
        scene.stops_at(&mut tenant, "storm", THREADS);
        assert_eq!(tenant.made(), [0, 0]);
        for round in 1..=20 {
            scene.go_on(process);
            assert_eq!(scene.next_halt().0, process);
            until_stopped(process);
            let [made, _] = tenant.made();
            assert!(made <= u64::from(THREADS * round), "{made} launches after {round} rounds: one each is held back");
        }
        scene.probes.ungate(process).unwrap();
        scene.go_on(process);
        let [before, _] = tenant.made();
        eventually("launches again", || tenant.made()[0] > before + 1000);
    });
}

#[test]
fn a_storm_of_launches_ends_where_the_gate_comes_down() {
    const THREADS: u32 = 4;
    each_way("a_storm", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        tenant.repeat("storm", THREADS);
        scene.until_detached(1);
        scene.probes.gate(process).unwrap();
        let [at_return, _] = tenant.made();
        assert_eq!(scene.next_halt().0, process);
        until_stopped(process);
        let [made, _] = tenant.made();
        assert!(made <= at_return + u64::from(THREADS), "{} launches after the gate was down", made - at_return);
    });
}

#[test]
fn a_hundred_processes_are_gated_and_let_go() {
    each_way("a_hundred", |scene| {
        // A perf event for each function of each process takes its time.
        let count = if scene.probes.multi() { 100 } else { 20 };
        let mut tenants: Vec<_> = (0..count).map(|_| scene.workshop.tenant()).collect();
        let keys: Vec<_> = tenants.iter().map(|tenant| key(tenant.pid())).collect();
        tenants.iter_mut().for_each(|tenant| _ = tenant.call("init"));
        for (tenant, process) in tenants.iter_mut().zip(&keys) {
            scene.probes.gate(*process).unwrap();
            tenant.begin("launch", 1);
        }
        let mut halted: Vec<_> = tenants.iter().map(|_| scene.next_halt().0).collect();
        halted.sort();
        let mut wanted = keys.clone();
        wanted.sort();
        assert_eq!(halted, wanted);
        let mut listed = scene.halted();
        listed.sort();
        assert_eq!(listed, wanted);
        for (tenant, process) in tenants.iter_mut().zip(&keys) {
            until_stopped(*process);
            assert_eq!(tenant.made(), [0, 0]);
            scene.probes.ungate(*process).unwrap();
            scene.go_on(*process);
            tenant.answer("launch");
        }
        assert_eq!(scene.halted(), []);
    });
}

const MIB: u64 = 1 << 20;
const GPU: GpuIndex = GpuIndex(7);

#[test]
fn an_allocation_that_the_pool_has_no_room_for_is_stopped_and_a_smaller_one_is_not() {
    each_way("a_limit", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.limit_allocations(process, Some(GPU)).unwrap();
        tenant.call("create");
        tenant.repeat("take", 1 << 20);
        assert_eq!(scene.probes.taken(GPU), Bytes(0), "a GPU without bounds is not counted");
        scene.probes.allow(GPU, Bytes(3 * MIB)).unwrap();
        tenant.repeat("take", 1 << 20);
        tenant.repeat("pitch", 1024);
        assert_eq!(scene.probes.taken(GPU), Bytes(2 * MIB));
        for (what, amount, bytes) in [("take", (1 << 20) + 1, (1 << 20) + 1), ("pitch", 1025, 1025 << 10)] {
            let [_, before] = tenant.made();
            let call = scene.stops_at(&mut tenant, what, amount);
            assert_eq!(call, HaltedCall::Allocation { bytes: Bytes(bytes) });
            assert_eq!(tenant.made(), [0, before], "{what}");
            scene.go_on(process);
            tenant.answer(what);
            assert_eq!(tenant.made(), [0, before + 1], "{what}");
        }
        assert_eq!(scene.probes.taken(GPU), Bytes(2 * MIB), "what was stopped was put back");
        tenant.repeat("take", 1 << 20);
        scene.probes.allow(GPU, Bytes(4 * MIB)).unwrap();
        tenant.repeat("take", 1 << 20);
        tenant.call("launch");
        scene.probes.limit_allocations(process, None).unwrap();
        tenant.repeat("take", u32::MAX);
        assert_eq!(scene.told(), []);
    });
}

/// Each would fit by itself; were they measured one by one, several would pass.
#[test]
fn of_many_that_allocate_at_the_same_instant_no_more_pass_than_there_is_room_for() {
    each_way("many_allocate", |scene| {
        let mut tenants: Vec<_> = (0..6).map(|_| scene.workshop.tenant()).collect();
        scene.probes.allow(GPU, Bytes(2 * MIB)).unwrap();
        for tenant in &mut tenants {
            tenant.call("init");
            scene.probes.limit_allocations(key(tenant.pid()), Some(GPU)).unwrap();
        }
        tenants.iter_mut().for_each(|tenant| tenant.begin("take", 1 << 20));
        for _ in 0..4 {
            assert!(matches!(scene.next_halt().1, HaltedCall::Allocation { .. }));
        }
        let made = || tenants.iter().map(|tenant| tenant.made()[1]).sum::<u64>();
        eventually("two have passed", || made() == 2);
        assert_eq!(scene.probes.taken(GPU), Bytes(2 * MIB));
    });
}

#[test]
fn a_watched_process_is_told_to_drain_and_to_launch_again_each_once() {
    each_way("drains", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        tenant.call("launch");
        tenant.call("wait");
        assert_eq!(scene.phases(), [""; 0], "nobody watches");
        scene.probes.watch_drains(process, true).unwrap();
        tenant.repeat("launch", 3);
        assert_eq!(scene.phases(), ["launched"]);
        tenant.call("broken");
        tenant.call("asktoosoon");
        assert_eq!(scene.phases(), [""; 0], "neither an error nor an impatient question is a drained queue");
        tenant.repeat("wait", 3);
        assert_eq!(scene.phases(), ["drained"]);
        for drain in ["ask", "finish"] {
            tenant.call("launch");
            tenant.call(drain);
            // Watching what is watched forgets nothing.
            scene.probes.watch_drains(process, true).unwrap();
            assert_eq!(scene.phases(), ["launched", "drained"], "{drain}");
        }
        scene.probes.watch_drains(process, false).unwrap();
        tenant.call("launch");
        tenant.call("wait");
        assert_eq!(scene.phases(), [""; 0], "nobody watches any more");
    });
}

#[test]
fn a_launch_that_was_stopped_is_drained_after_it_was_let_go() {
    each_way("drained_after_a_hold", |scene| {
        let mut tenant = scene.newcomer(2);
        let process = key(tenant.pid());
        scene.probes.watch_drains(process, true).unwrap();
        tenant.call("wait");
        assert_eq!(scene.phases(), ["drained"]);
        scene.probes.gate(process).unwrap();
        scene.stops_at(&mut tenant, "launch", 1);
        scene.probes.ungate(process).unwrap();
        scene.go_on(process);
        tenant.answer("launch");
        tenant.call("wait");
        assert_eq!(scene.phases(), ["drained"], "that it launches is known from letting it go");
    });
}

#[cfg(target_arch = "x86_64")]
#[test]
fn a_process_with_a_strict_seccomp_filter_survives_being_watched_for_drains() {
    each_way("seccomp_drains", |scene| {
        let mut tenant = scene.newcomer(2);
        tenant.call("confine");
        scene.probes.watch_drains(key(tenant.pid()), true).unwrap();
        tenant.call("launch");
        tenant.call("wait");
        assert_eq!(scene.phases(), ["launched", "drained"]);
    });
}

#[test]
fn a_process_without_the_driver_or_without_life_cannot_be_gated_but_always_let_go() {
    each_way("nobody_to_gate", |scene| {
        let bystander = Bystander::start();
        let without = key(bystander.pid());
        assert!(matches!(scene.probes.gate(without), Err(ProbeError::NoDriver { process }) if process == without));
        let tenant = scene.newcomer(2);
        let later = ProcKey { start_ticks: u64::MAX, ..key(tenant.pid()) };
        assert!(matches!(scene.probes.gate(later), Err(ProbeError::Gone { process }) if process == later));
        let process = key(tenant.pid());
        drop(tenant);
        scene.until_armed(0);
        assert!(matches!(scene.probes.gate(process), Err(ProbeError::Gone { .. })));
        scene.probes.ungate(process).unwrap();
        scene.probes.limit_allocations(process, None).unwrap();
        scene.probes.watch_drains(process, false).unwrap();
    });
}

#[test]
fn one_that_is_killed_where_it_stands_is_no_longer_listed() {
    each_way("killed_at_the_gate", |scene| {
        let mut tenant = scene.newcomer(2);
        scene.probes.gate(key(tenant.pid())).unwrap();
        scene.stops_at(&mut tenant, "launch", 1);
        drop(tenant);
        eventually("taken off the list", || scene.halted().is_empty());
    });
}
