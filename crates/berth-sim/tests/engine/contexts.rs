//! Contexts come and go: their times, their memory, the driver's lock, the SMs standing still.

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
    rig.run_for(100 * MS);
    assert_eq!((rig.used_by(7), rig.is_answered(destroyed)), (Some(OWN), false));
    assert_eq!(rig.wait(destroyed).1, Reply::Done);
    assert_eq!(rig.used_by(7), None);
}

#[test]
fn contexts_of_many_processes_become_ready_one_after_another() {
    let mut rig = Rig::new();
    let tickets: Vec<_> = (1..=5).map(|pid| rig.start(pid, Request::ContextCreate { device: 0 })).collect();
    let mut ready: Vec<u64> = tickets.into_iter().map(|ticket| rig.wait(ticket).0).collect();
    ready.sort_unstable();
    let serial_ms = 85;
    for pair in ready.windows(2) {
        let apart_ms = (pair[1] - pair[0]) / MS;
        assert!((serial_ms - 2..=serial_ms + 2).contains(&apart_ms), "{apart_ms} ms apart");
    }
}

#[test]
fn contexts_on_two_gpus_do_not_wait_for_each_other() {
    let mut rig = Rig::with(2, berth_sim::Sharing::TimeSliced);
    let tickets = [0, 1].map(|device| rig.start(device + 1, Request::ContextCreate { device }));
    let [first, second] = tickets.map(|ticket| rig.wait(ticket).0);
    assert!(first.abs_diff(second) < 20 * MS, "{first} {second}");
}

#[test]
fn kernels_stand_still_while_another_context_is_made() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let begin = rig.engine.now();
    rig.launch(1, context, 0, 1000, 100);
    rig.start(2, Request::ContextCreate { device: 0 });
    let done = rig.start(1, Request::ContextSync { context });
    let (end, _) = rig.wait(done);
    assert_eq!((end - begin) / MS, 1065, "the kernel's 1000 ms and 65 ms of blocking");
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
    assert_eq!((end - begin) / MS, 630, "the kernel's 500 ms and 130 ms of teardown");
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
    rig.run_for(120 * MS);
    assert!(rig.used_by(1).is_some(), "the teardown takes 130 ms");
    rig.run_for(20 * MS);
    assert_eq!((rig.used_by(1), rig.gpu().used_bytes), (None, 4 * MIB));
    rig.run_for(20 * SECOND);
    assert!(!rig.is_answered(waiting), "nobody is there to be answered");
}

#[test]
fn exit_in_any_moment_of_creation_leaves_nothing_behind() {
    for ms in (0..250).step_by(10) {
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
