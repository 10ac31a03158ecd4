//! Contexts come and go: their times, their memory, the driver working on them by turns, the SMs standing still.

use berth_proto::sim::{Reply, Request, cu};

use super::{MIB, MS, Rig, SECOND, input};

const OWN: u64 = 518 * MIB;

#[test]
fn context_holds_its_own_memory_from_before_it_is_ready_until_it_is_gone() {
    let mut rig = Rig::new();
    let created = rig.start(7, Request::ContextCreate { device: 0 });
    rig.run_to(90 * MS);
    assert_eq!(rig.used_by(7), None, "not listed at first");
    rig.run_to(130 * MS);
    assert_eq!((rig.used_by(7), rig.is_answered(created)), (Some(OWN), false));
    let (_, Reply::Handle(context)) = rig.wait(created) else { panic!("no context") };
    let destroyed = rig.start(7, Request::ContextDestroy { context });
    rig.run_for(50 * MS);
    assert_eq!((rig.used_by(7), rig.is_answered(destroyed)), (Some(OWN), false));
    assert_eq!(rig.wait(destroyed).1, Reply::Done);
    assert_eq!(rig.used_by(7), None);
}

#[test]
fn contexts_of_many_processes_become_ready_together() {
    let mut rig = Rig::new();
    let tickets: Vec<_> = (1..=5).map(|pid| rig.start(pid, Request::ContextCreate { device: 0 })).collect();
    let ready: Vec<u64> = tickets.into_iter().map(|ticket| rig.wait(ticket).0 / MS).collect();
    let (first, last) = (ready.iter().min().unwrap(), ready.iter().max().unwrap());
    let expected_ms = 80 + 28 + 5 * 132;
    assert!(last.abs_diff(expected_ms) <= 15, "{last} ms");
    assert!(last - first <= 30, "{ready:?}");
}

#[test]
fn context_made_beside_those_of_others_is_ready_later_and_makes_them_later() {
    let mut rig = Rig::new();
    let first = rig.start(1, Request::ContextCreate { device: 0 });
    rig.run_to(150 * MS);
    let second = rig.start(2, Request::ContextCreate { device: 0 });
    let [first, second] = [first, second].map(|ticket| rig.wait(ticket).0 / MS);
    // From 178 on both are worked on: 62 ms are left of the first then, and 70 of the second when that is ready.
    assert!(first.abs_diff(178 + 2 * 62) <= 9, "{first}");
    assert!(second.abs_diff(first + 70) <= 9, "{second}");
}

#[test]
fn gpu_is_woken_for_the_first_context_only() {
    let mut rig = Rig::new();
    let created = |rig: &mut Rig, pid| {
        let begin = rig.engine.now();
        (rig.context(pid), (rig.engine.now() - begin) / MS)
    };
    let (first, alone_ms) = created(&mut rig, 1);
    let (second, beside_ms) = created(&mut rig, 2);
    assert!(alone_ms.abs_diff(beside_ms + 80) <= 9, "{alone_ms} {beside_ms}");
    rig.call(1, Request::ContextDestroy { context: first });
    rig.call(2, Request::ContextDestroy { context: second });
    assert!(created(&mut rig, 3).1.abs_diff(alone_ms) <= 9, "asleep again");
}

#[test]
fn contexts_on_two_gpus_do_not_wait_for_each_other() {
    let mut rig = Rig::with(2, berth_sim::Sharing::TimeSliced);
    let tickets = [0, 1].map(|device| rig.start(device + 1, Request::ContextCreate { device }));
    let [first, second] = tickets.map(|ticket| rig.wait(ticket).0);
    assert!(first.abs_diff(second) < 20 * MS, "{first} {second}");
}

#[test]
fn context_made_beside_a_kernel_takes_longer_and_costs_the_kernel_its_blocking_part() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let begin = rig.engine.now();
    rig.launch(1, context, 0, 1000, 100);
    let created = rig.start(2, Request::ContextCreate { device: 0 });
    let done = rig.start(1, Request::ContextSync { context });
    let (ready, _) = rig.wait(created);
    let driver_ms = 132.0 * 1.7;
    assert!(((ready - begin) as f64 / MS as f64 - 28.0 - driver_ms).abs() < 9.0, "{}", ready - begin);
    let (end, _) = rig.wait(done);
    assert!(((end - begin) / MS).abs_diff(1014) <= 1, "the kernel's 1000 ms and 14 ms of blocking");
}

#[test]
fn context_of_a_process_that_stands_still_is_not_made_and_in_nobodys_way() {
    let mut rig = Rig::new();
    let [first, second] = [1, 2].map(|pid| rig.start(pid, Request::ContextCreate { device: 0 }));
    rig.run_to(108 * MS);
    rig.engine.stand_still(1, true);
    assert!((rig.wait(second).0 / MS).abs_diff(108 + 132) <= 9, "as if alone");
    rig.run_to(2 * SECOND);
    assert!(!rig.is_answered(first));
    rig.engine.stand_still(1, false);
    assert!((rig.wait(first).0 / MS).abs_diff(2_000 + 132) <= 9, "all of it is left to do");
}

#[test]
fn copy_stands_still_with_its_process_and_a_kernel_does_not() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.launch(1, context, 0, 500, 100);
    let begin = rig.engine.now();
    let stream = rig.handle(1, Request::StreamCreate { context });
    let (direction, bytes) = (berth_proto::sim::Direction::HostToDevice, 6_900_000_000);
    let copied = rig.start(1, Request::Copy { context, stream, direction, bytes, wait: true });
    rig.engine.stand_still(1, true);
    rig.run_for(10 * SECOND);
    assert_eq!(rig.engine.compute_load(0), 0.0, "the kernel is over");
    rig.engine.stand_still(1, false);
    assert_eq!((rig.wait(copied).0 - begin) / MS, 11_000);
}

#[test]
fn exit_of_a_process_that_stands_still_leaves_nothing_behind() {
    let mut rig = Rig::new();
    rig.start(1, Request::ContextCreate { device: 0 });
    rig.run_to(150 * MS);
    rig.engine.stand_still(1, true);
    rig.engine.process_exited(1);
    rig.run_for(SECOND);
    assert_eq!((rig.gpu().used_bytes, rig.engine.next_event()), (4 * MIB, None));
}

#[test]
fn kernels_of_mps_clients_do_not_hold_up_the_driver() {
    let mut rig = Rig::with(1, berth_sim::Sharing::Mps);
    let context = rig.context(1);
    let begin = rig.engine.now();
    rig.launch(1, context, 0, 1000, 100);
    let created = rig.start(2, Request::ContextCreate { device: 0 });
    assert!(((rig.wait(created).0 - begin) / MS).abs_diff(28 + 75) <= 5);
}

#[test]
fn context_of_an_unknown_process_or_device_is_refused_by_name() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    assert_eq!(rig.call(2, Request::ContextSync { context }), Reply::Error(cu::INVALID_CONTEXT));
    assert_eq!(rig.call(1, Request::ContextCreate { device: 1 }), Reply::Error(cu::INVALID_DEVICE));
    assert_eq!(rig.call(1, Request::Device { device: 1 }), Reply::Error(cu::INVALID_DEVICE));
    assert_eq!(rig.call(1, Request::DeviceCount), Reply::Count(1));
}

#[test]
fn destroyed_context_waits_for_its_kernel() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.launch(1, context, 0, 500, 100);
    let begin = rig.engine.now();
    let destroyed = rig.start(1, Request::ContextDestroy { context });
    assert_eq!(rig.call(1, input(context, 1)), Reply::Error(cu::INVALID_CONTEXT), "it takes no more work");
    let (end, _) = rig.wait(destroyed);
    assert!(((end - begin) / MS).abs_diff(559) <= 2, "the kernel's 500 ms and 59 ms of teardown");
    assert_eq!(rig.call(1, Request::ContextSync { context }), Reply::Error(cu::INVALID_CONTEXT));
}

#[test]
fn exit_drops_kernels_at_once_and_memory_after_the_teardown() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.call(1, Request::MemAlloc { context, bytes: 1 << 30 });
    rig.launch(1, context, 0, 10_000, 100);
    let waiting = rig.start(1, Request::ContextSync { context });
    rig.engine.process_exited(1);
    assert_eq!(rig.engine.compute_load(0), 0.0);
    rig.run_for(50 * MS);
    assert!(rig.used_by(1).is_some(), "the teardown takes 59 ms");
    rig.run_for(20 * MS);
    assert_eq!((rig.used_by(1), rig.gpu().used_bytes), (None, 4 * MIB));
    rig.run_for(20 * SECOND);
    assert!(!rig.is_answered(waiting), "nobody is there to be answered");
}

#[test]
fn exit_in_any_moment_of_creation_leaves_nothing_behind() {
    for ms in (0..550).step_by(10) {
        let mut rig = Rig::new();
        for pid in 1..=3 {
            rig.start(pid, Request::ContextCreate { device: 0 });
        }
        rig.run_to(ms * MS);
        (1..=3).for_each(|pid| rig.engine.process_exited(pid));
        rig.run_to(5 * SECOND);
        assert_eq!(rig.gpu().used_bytes, 4 * MIB, "exit at {ms} ms");
        assert_eq!(rig.engine.next_event(), None, "exit at {ms} ms");
    }
}
