//! Kernels, copies, streams and events.

use std::time::{Duration, Instant};

use berth_proto::sim::{Direction, KernelCost, Reply, Request, cu};
use berth_sim::Sharing;

use super::{MS, Rig, input};

/// How long until everything now queued by the processes is done, each counted from now.
fn drain_ms(rig: &mut Rig, processes: &[(u32, u64)]) -> Vec<u64> {
    let begin = rig.engine.now();
    let tickets: Vec<_> =
        processes.iter().map(|(pid, context)| rig.start(*pid, Request::ContextSync { context: *context })).collect();
    tickets.into_iter().map(|ticket| (rig.wait(ticket).0 - begin) / MS).collect()
}

#[test]
fn kernels_of_two_processes_take_turns_and_pay_for_switching() {
    let mut rig = Rig::new();
    let processes = [(1, rig.context(1)), (2, rig.context(2))];
    for (pid, context) in processes {
        rig.launch(pid, context, 0, 100, 100);
    }
    assert_eq!(drain_ms(&mut rig, &processes), [224, 224], "12 % more than 2 × 100 ms");
}

#[test]
fn kernels_of_two_processes_run_in_order_of_arrival_under_mps() {
    let mut rig = Rig::with(1, Sharing::Mps);
    let processes = [(1, rig.context(1)), (2, rig.context(2))];
    for (pid, context) in processes {
        rig.launch(pid, context, 0, 100, 100);
    }
    assert_eq!(drain_ms(&mut rig, &processes), [100, 200]);
}

#[test]
fn small_kernels_in_two_streams_overlap_and_in_one_stream_do_not() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let stream = rig.handle(1, Request::StreamCreate { context });
    rig.launch(1, context, 0, 100, 50);
    rig.launch(1, context, stream, 100, 50);
    assert_eq!(drain_ms(&mut rig, &[(1, context)]), [100]);
    rig.launch(1, context, stream, 100, 50);
    rig.launch(1, context, stream, 100, 50);
    assert_eq!(drain_ms(&mut rig, &[(1, context)]), [200]);
}

#[test]
fn memory_bound_kernel_takes_its_bytes_over_the_bandwidth() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let cost = KernelCost { flops: 1.0, bytes: 4e9, blocks: 1 << 20 };
    let begin = rig.engine.now();
    rig.call(1, Request::Launch { context, stream: 0, cost });
    rig.call(1, Request::StreamSync { context, stream: 0 });
    assert_eq!(rig.engine.now() - begin, MS + 3_000, "4 GB at 4,000 GB/s and the launch");
}

#[test]
fn launch_without_a_sane_cost_is_refused() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let sane = rig.kernel(1, 100);
    let bad = [
        KernelCost { blocks: 0, ..sane },
        KernelCost { flops: f64::NAN, ..sane },
        KernelCost { bytes: -1.0, ..sane },
        KernelCost { flops: f64::INFINITY, ..sane },
    ];
    for cost in bad {
        let reply = rig.call(1, Request::Launch { context, stream: 0, cost });
        assert_eq!(reply, Reply::Error(cu::INVALID_VALUE), "{cost:?}");
    }
    assert_eq!(rig.call(1, Request::ContextSync { context }), Reply::Done);
}

#[test]
fn copies_each_way_do_not_disturb_each_other_or_kernels() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let bytes = 1_000_000_000;
    let streams = [0, 1].map(|_| rig.handle(1, Request::StreamCreate { context }));
    rig.launch(1, context, 0, 200, 100);
    for (stream, direction) in streams.into_iter().zip([Direction::HostToDevice, Direction::DeviceToHost]) {
        rig.call(1, Request::Copy { context, stream, direction, bytes, wait: false });
    }
    let begin = rig.engine.now();
    let ends = [0, streams[0], streams[1]].map(|stream| rig.start(1, Request::StreamSync { context, stream }));
    let ends = ends.map(|ticket| (rig.wait(ticket).0 - begin) / MS);
    let copy = &rig.engine.profile().copy;
    assert_eq!(ends[0], 200);
    for (end, gbps) in ends[1..].iter().zip([copy.h2d_process_gbps, copy.d2h_process_gbps]) {
        assert!((*end as f64 - 1_000.0 / gbps).abs() < 1.0, "{end} ms at {gbps} GB/s is not as long as alone");
    }
}

#[test]
fn many_processes_share_the_copy_engine() {
    let mut rig = Rig::new();
    let contexts: Vec<(u32, u64)> = (1..=10).map(|pid| (pid, rig.context(pid))).collect();
    let begin = rig.engine.now();
    let tickets: Vec<_> =
        contexts.iter().map(|(pid, context)| rig.start(*pid, input(*context, 1_000_000_000))).collect();
    for ticket in tickets {
        assert_eq!((rig.wait(ticket).0 - begin) / MS, 200, "10 GB over an engine of 50 GB/s");
    }
}

#[test]
fn waiting_copy_is_answered_after_what_was_queued_before_it() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.launch(1, context, 0, 100, 100);
    let begin = rig.engine.now();
    let copied = rig.start(1, input(context, 10_000_000));
    assert_eq!((rig.wait(copied).0 - begin) / MS, 101);
}

#[test]
fn events_order_streams_and_measure_time() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let stream = rig.handle(1, Request::StreamCreate { context });
    let [start, end] = [0, 1].map(|_| rig.handle(1, Request::EventCreate { context }));
    rig.call(1, Request::EventRecord { context, stream: 0, event: start });
    rig.launch(1, context, 0, 100, 50);
    rig.call(1, Request::EventRecord { context, stream: 0, event: end });
    rig.call(1, Request::StreamWait { context, stream, event: end });
    rig.launch(1, context, stream, 50, 50);

    assert_eq!(rig.call(1, Request::EventQuery { context, event: start }), Reply::Done);
    assert_eq!(rig.call(1, Request::EventQuery { context, event: end }), Reply::Error(cu::NOT_READY));
    assert_eq!(rig.call(1, Request::StreamQuery { context, stream }), Reply::Error(cu::NOT_READY));
    assert_eq!(rig.call(1, Request::EventElapsed { context, start, end }), Reply::Error(cu::NOT_READY));
    let begin = rig.engine.now();
    assert_eq!(rig.call(1, Request::EventSync { context, event: end }), Reply::Done);
    assert_eq!((rig.engine.now() - begin) / MS, 100);
    assert_eq!(rig.call(1, Request::EventElapsed { context, start, end }), Reply::Nanos(rig.engine.now() - begin));
    assert_eq!(rig.call(1, Request::StreamSync { context, stream }), Reply::Done);
    assert_eq!((rig.engine.now() - begin) / MS, 150, "the second stream waited for the event");
}

#[test]
fn destroyed_stream_finishes_its_work_and_takes_no_more() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let stream = rig.handle(1, Request::StreamCreate { context });
    rig.launch(1, context, stream, 100, 100);
    assert_eq!(rig.call(1, Request::StreamDestroy { context, stream }), Reply::Done);
    let cost = rig.kernel(1, 100);
    assert_eq!(rig.call(1, Request::Launch { context, stream, cost }), Reply::Error(cu::INVALID_HANDLE));
    assert_eq!(drain_ms(&mut rig, &[(1, context)]), [100]);
}

/// How long it takes to use a thousand streams of so many, one after another.
fn thousand_used(of: usize) -> Duration {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let streams: Vec<u64> = (0..of).map(|_| rig.handle(1, Request::StreamCreate { context })).collect();
    let begin = Instant::now();
    for stream in &streams[..1_000] {
        let cost = KernelCost { flops: 1e6, bytes: 0.0, blocks: 1 };
        rig.call(1, Request::Launch { context, stream: *stream, cost });
        rig.call(1, Request::StreamSync { context, stream: *stream });
        assert_eq!(rig.call(1, Request::StreamDestroy { context, stream: *stream }), Reply::Done);
    }
    begin.elapsed()
}

#[test]
fn streams_that_have_nothing_to_do_cost_next_to_nothing() {
    let (few, many) = (thousand_used(1_000), thousand_used(50_000));
    assert!(many < 20 * few, "{many:?} beside fifty thousand, {few:?} beside a thousand");
}

#[test]
fn unknown_handles_are_refused() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    let (stream, event) = (12_345, 12_345);
    for request in [
        Request::StreamSync { context, stream },
        Request::StreamQuery { context, stream },
        Request::StreamDestroy { context, stream: 0 },
        Request::EventRecord { context, stream: 0, event },
        Request::EventSync { context, event },
        Request::EventDestroy { context, event },
        Request::StreamWait { context, stream: 0, event },
    ] {
        assert_eq!(rig.call(1, request), Reply::Error(cu::INVALID_HANDLE), "{request:?}");
    }
    assert_eq!(rig.call(1, Request::ContextSync { context }), Reply::Done, "nothing was left in a queue");
}
