//! Work in a stream that the process itself does.

use berth_proto::sim::{CheckpointOp, Reply, Request, cu};

use super::{MS, Rig};

fn work(context: u64, stream: u64, token: u64) -> Request {
    Request::HostWork { context, stream, token }
}

fn done(context: u64, stream: u64, token: u64) -> Request {
    Request::HostWorkDone { context, stream, token }
}

#[test]
fn a_stream_stands_at_host_work_until_it_is_done_and_others_run_on() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let stream = rig.handle(1, Request::StreamCreate { context });
    assert_eq!(rig.call(1, work(context, 0, 7)), Reply::Done);
    rig.launch(1, context, 0, 10, 50);
    rig.launch(1, context, stream, 20, 50);
    let begin = rig.engine.now();
    rig.call(1, Request::StreamSync { context, stream });
    assert_eq!((rig.engine.now() - begin) / MS, 20);
    rig.run_for(100 * MS);
    assert_eq!(rig.call(1, Request::StreamQuery { context, stream: 0 }), Reply::Error(cu::NOT_READY));
    let begin = rig.engine.now();
    assert_eq!(rig.call(1, done(context, 0, 7)), Reply::Done);
    rig.call(1, Request::StreamSync { context, stream: 0 });
    assert_eq!((rig.engine.now() - begin) / MS, 10, "the kernel begins when the work is done");
}

#[test]
fn a_process_is_told_of_its_work_in_the_order_streams_reach_it_and_not_before() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let stream = rig.handle(1, Request::StreamCreate { context });
    rig.launch(1, context, 0, 10, 50);
    rig.call(1, work(context, 0, 1));
    rig.launch(1, context, stream, 5, 50);
    rig.call(1, work(context, stream, 2));
    rig.call(1, work(context, stream, 3));
    let begin = rig.engine.now();
    assert_eq!(rig.call(1, Request::HostWorkNext), Reply::Handle(2));
    assert_eq!((rig.engine.now() - begin) / MS, 5);
    assert_eq!(rig.call(1, Request::HostWorkNext), Reply::Handle(1));
    assert_eq!((rig.engine.now() - begin) / MS, 10, "the third stands behind the second");
    rig.call(1, done(context, stream, 2));
    assert_eq!(rig.call(1, Request::HostWorkNext), Reply::Handle(3));
}

#[test]
fn only_its_own_process_is_told_and_only_it_can_say_that_work_is_done() {
    let mut rig = Rig::new();
    let (mine, others) = (rig.context(1), rig.context(2));
    let stranger = rig.start(2, Request::HostWorkNext);
    rig.call(1, work(mine, 0, 5));
    rig.run_for(MS);
    assert!(!rig.is_answered(stranger));
    assert_eq!(rig.call(2, done(mine, 0, 5)), Reply::Error(cu::INVALID_CONTEXT));
    assert_eq!(rig.call(2, done(others, 0, 5)), Reply::Error(cu::INVALID_HANDLE));
    assert_eq!(rig.call(1, done(mine, 0, 6)), Reply::Error(cu::INVALID_HANDLE), "another token");
    assert_eq!(rig.call(1, done(mine, 0, 5)), Reply::Done);
    assert_eq!(rig.call(1, done(mine, 0, 5)), Reply::Error(cu::INVALID_HANDLE), "it was done already");
}

#[test]
fn work_that_no_stream_has_reached_cannot_be_done() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.launch(1, context, 0, 10, 100);
    rig.call(1, work(context, 0, 5));
    assert_eq!(rig.call(1, done(context, 0, 5)), Reply::Error(cu::INVALID_HANDLE));
    rig.run_for(11 * MS);
    assert_eq!(rig.call(1, done(context, 0, 5)), Reply::Done);
}

#[test]
fn whoever_listens_anew_takes_the_place_of_the_one_before() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let (first, second) = (rig.start(1, Request::HostWorkNext), rig.start(1, Request::HostWorkNext));
    rig.call(1, work(context, 0, 5));
    assert_eq!(rig.wait(first).1, Reply::Error(cu::ILLEGAL_STATE));
    assert_eq!(rig.wait(second).1, Reply::Handle(5));
}

#[test]
fn a_lock_waits_for_host_work_and_does_not_keep_it_from_being_done() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.call(1, work(context, 0, 5));
    let lock = rig.start(9, Request::Checkpoint { pid: 1, op: CheckpointOp::Lock { timeout_ms: 0 } });
    rig.run_for(100 * MS);
    assert!(!rig.is_answered(lock));
    assert_eq!(rig.call(1, Request::HostWorkNext), Reply::Handle(5));
    assert_eq!(rig.call(1, done(context, 0, 5)), Reply::Done);
    assert_eq!(rig.wait(lock).1, Reply::Done);
}

#[test]
fn a_context_is_destroyed_once_its_host_work_is_done() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.call(1, work(context, 0, 5));
    let destroyed = rig.start(1, Request::ContextDestroy { context });
    rig.run_for(1_000 * MS);
    assert!(!rig.is_answered(destroyed));
    assert_eq!(rig.call(1, done(context, 0, 5)), Reply::Done);
    assert_eq!(rig.wait(destroyed).1, Reply::Done);
}

#[test]
fn a_process_that_ends_at_host_work_leaves_nothing_behind() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.call(1, work(context, 0, 5));
    assert_eq!(rig.call(1, Request::HostWorkNext), Reply::Handle(5));
    rig.start(1, Request::HostWorkNext);
    rig.engine.process_exited(1);
    rig.run_for(10_000 * MS);
    assert_eq!(rig.used_by(1), None);
    assert_eq!(rig.engine.next_event(), None);
}
