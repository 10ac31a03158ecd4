//! The driver's process lock and checkpoint.

use berth_proto::sim::{CheckpointOp, Reply, Request, cu};
use berth_sim::Sharing;

use super::{MIB, MS, Rig, SECOND, input};

const MANAGER: u32 = 99;
const LOCK: CheckpointOp = CheckpointOp::Lock { timeout_ms: 0 };

fn on(pid: u32, op: CheckpointOp) -> Request {
    Request::Checkpoint { pid, op }
}

fn done(rig: &mut Rig, pid: u32, op: CheckpointOp) {
    assert_eq!(rig.call(MANAGER, on(pid, op)), Reply::Done, "{op:?}");
}

fn state(rig: &mut Rig, pid: u32) -> u32 {
    match rig.call(MANAGER, on(pid, CheckpointOp::GetState)) {
        Reply::ProcessState(state) => state,
        other => panic!("{other:?}"),
    }
}

#[test]
fn lock_takes_a_fraction_of_a_millisecond_when_nothing_runs() {
    let mut rig = Rig::new();
    rig.context(1);
    let begin = rig.engine.now();
    done(&mut rig, 1, LOCK);
    assert_eq!(rig.engine.now() - begin, 400_000);
    assert_eq!(state(&mut rig, 1), 1);
}

#[test]
fn lock_is_answered_when_the_queue_has_drained() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.launch(1, context, 0, 3000, 100);
    rig.launch(1, context, 0, 100, 100);
    let begin = rig.engine.now();
    done(&mut rig, 1, LOCK);
    assert_eq!((rig.engine.now() - begin) / MS, 3100);
}

#[test]
fn lock_that_runs_out_of_time_changes_nothing() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.launch(1, context, 0, 3000, 100);
    let locked = rig.start(MANAGER, on(1, CheckpointOp::Lock { timeout_ms: 10 }));
    let held = rig.start(1, Request::MemInfo { context });
    let begin = rig.engine.now();
    assert_eq!(rig.wait(locked), (begin + 10 * MS, Reply::Error(cu::TIMEOUT)));
    assert!(matches!(rig.wait(held), (at, Reply::Memory { .. }) if at == begin + 10 * MS), "held calls go on");
    assert_eq!(state(&mut rig, 1), 0);
}

#[test]
fn lock_waits_for_a_context_being_made() {
    let mut rig = Rig::new();
    let ready = rig.start(1, Request::ContextCreate { device: 0 });
    rig.run_to(20 * MS);
    let locked = rig.start(MANAGER, on(1, LOCK));
    let locked_at = rig.wait(locked).0;
    assert_eq!(locked_at, rig.wait(ready).0 + 400_000);
}

#[test]
fn locked_process_s_calls_wait_for_the_unlock_and_keep_their_order() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    done(&mut rig, 1, LOCK);
    let cost = rig.kernel(100, 100);
    let launched = rig.start(1, Request::Launch { context, stream: 0, cost });
    let copied = rig.start(1, input(context, 10_000_000));
    rig.run_for(10 * SECOND);
    assert!(!rig.is_answered(launched) && !rig.is_answered(copied));
    assert_eq!(rig.engine.compute_load(0), 0.0, "nothing of a locked process runs");
    done(&mut rig, 1, CheckpointOp::Unlock);
    let unlocked = rig.engine.now();
    assert_eq!(rig.wait(launched).0, unlocked);
    assert_eq!((rig.wait(copied).0 - unlocked) / MS, 101);
}

#[test]
fn other_processes_go_on_while_one_is_locked() {
    let mut rig = Rig::new();
    rig.context(1);
    let context = rig.context(2);
    done(&mut rig, 1, LOCK);
    rig.launch(2, context, 0, 10, 100);
    assert_eq!(rig.call(2, Request::ContextSync { context }), Reply::Done);
}

#[test]
fn checkpointed_process_holds_no_memory_and_is_not_listed_until_restored() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let pointer = rig.handle(1, Request::MemAlloc { context, bytes: 1 << 30 });
    let before = rig.gpu();
    done(&mut rig, 1, LOCK);
    done(&mut rig, 1, CheckpointOp::Checkpoint);
    assert_eq!((rig.gpu().used_bytes, rig.used_by(1), state(&mut rig, 1)), (4 * MIB, None, 2));
    done(&mut rig, 1, CheckpointOp::Restore);
    assert_eq!((rig.gpu(), state(&mut rig, 1)), (before, 1));
    done(&mut rig, 1, CheckpointOp::Unlock);
    assert_eq!(state(&mut rig, 1), 0);
    assert_eq!(rig.call(1, Request::MemFree { context, pointer }), Reply::Done);
}

#[test]
fn restore_without_room_fails_and_stays_checkpointed() {
    let mut rig = Rig::new();
    let (first, second) = (rig.context(1), rig.context(2));
    rig.handle(1, Request::MemAlloc { context: first, bytes: 100 << 30 });
    done(&mut rig, 1, LOCK);
    done(&mut rig, 1, CheckpointOp::Checkpoint);
    let pointer = rig.handle(2, Request::MemAlloc { context: second, bytes: 100 << 30 });
    let before = rig.gpu();
    assert_eq!(rig.call(MANAGER, on(1, CheckpointOp::Restore)), Reply::Error(cu::OUT_OF_MEMORY));
    assert_eq!((rig.gpu(), state(&mut rig, 1)), (before, 2));
    rig.call(2, Request::MemFree { context: second, pointer });
    done(&mut rig, 1, CheckpointOp::Restore);
}

#[test]
fn process_on_two_gpus_is_restored_on_both_or_on_neither() {
    let mut rig = Rig::with(2, Sharing::TimeSliced);
    for device in [0, 1] {
        let context = rig.handle(1, Request::ContextCreate { device });
        rig.handle(1, Request::MemAlloc { context, bytes: 100 << 30 });
    }
    done(&mut rig, 1, LOCK);
    done(&mut rig, 1, CheckpointOp::Checkpoint);
    let context = rig.handle(2, Request::ContextCreate { device: 1 });
    rig.handle(2, Request::MemAlloc { context, bytes: 100 << 30 });
    let before = rig.engine.nvml();
    assert_eq!(rig.call(MANAGER, on(1, CheckpointOp::Restore)), Reply::Error(cu::OUT_OF_MEMORY));
    assert_eq!(rig.engine.nvml(), before);
    rig.engine.process_exited(2);
    rig.run_for(SECOND);
    done(&mut rig, 1, CheckpointOp::Restore);
}

#[test]
fn wrong_order_is_an_illegal_state() {
    use CheckpointOp::{Checkpoint, Restore, Unlock};
    let mut rig = Rig::new();
    rig.context(1);
    let refused = |rig: &mut Rig, ops: &[CheckpointOp]| {
        for op in ops {
            assert_eq!(rig.call(MANAGER, on(1, *op)), Reply::Error(cu::ILLEGAL_STATE), "{op:?}");
        }
    };
    refused(&mut rig, &[Checkpoint, Restore, Unlock]);
    let locked = rig.start(MANAGER, on(1, LOCK));
    refused(&mut rig, &[LOCK, Checkpoint, Restore, Unlock]);
    rig.wait(locked);
    refused(&mut rig, &[LOCK, Restore]);
    done(&mut rig, 1, Checkpoint);
    refused(&mut rig, &[LOCK, Checkpoint, Unlock]);
    done(&mut rig, 1, Restore);
    refused(&mut rig, &[LOCK, Restore]);
    done(&mut rig, 1, Unlock);
}

#[test]
fn unknown_process_is_refused() {
    let mut rig = Rig::new();
    assert_eq!(rig.call(MANAGER, on(1, LOCK)), Reply::Error(cu::INVALID_VALUE));
}

#[test]
fn target_that_exits_ends_the_wait_and_asker_that_exits_is_not_answered() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.launch(1, context, 0, 3000, 100);
    let locked = rig.start(MANAGER, on(1, LOCK));
    rig.engine.process_exited(1);
    assert_eq!(rig.wait(locked).1, Reply::Error(cu::INVALID_VALUE));

    let context = rig.context(2);
    rig.launch(2, context, 0, 3000, 100);
    let locked = rig.start(MANAGER, on(2, LOCK));
    rig.engine.process_exited(MANAGER);
    rig.run_for(5 * SECOND);
    assert!(!rig.is_answered(locked));
    assert_eq!(state(&mut rig, 2), 1, "the lock itself was taken");
}

#[test]
fn checkpointed_process_that_exits_leaves_nothing_to_tear_down() {
    let mut rig = Rig::new();
    rig.context(1);
    done(&mut rig, 1, LOCK);
    done(&mut rig, 1, CheckpointOp::Checkpoint);
    rig.engine.process_exited(1);
    assert_eq!(rig.engine.next_event(), None);
    let context = rig.context(1);
    assert_eq!(rig.call(1, Request::ContextSync { context }), Reply::Done, "a new process of that pid is not locked");
}
