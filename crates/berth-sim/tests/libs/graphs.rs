//! Capturing streams into graphs, launching those, and what is forbidden meanwhile.

use std::ffi::{c_int, c_uint};

use berth_proto::cuda::{GraphInstantiateParams, result};

use crate::client::Driver;
use crate::support::{Client, Sim};

/// `CUstreamCaptureMode`.
const GLOBAL: c_int = 0;
const THREAD_LOCAL: c_int = 1;
const RELAXED: c_int = 2;

/// In the client: `capture VERB [NUMBER]`.
pub fn in_client(driver: &mut Driver, line: &str) -> (u32, u64) {
    let mut words = line.split_whitespace().skip(1);
    let verb = words.next().unwrap();
    let n = words.next().map_or(0, |word| word.parse::<u64>().unwrap());
    let (stream, other) = (driver.stream, driver.other);
    let library = &driver.library;
    macro_rules! call {
        ($name:literal ($($type:ty),*) $(, $arg:expr)*) => {{
            // SAFETY: the types are those of the driver API's header.
            unsafe {
                let function: libloading::Symbol<unsafe extern "C" fn($($type),*) -> u32> = library.get($name).unwrap();
                function($($arg),*)
            }
        }};
    }
    let (mut out, mut small) = (0_u64, 0 as c_int);
    let code = match verb {
        "stream" => call!(b"cuStreamCreate"(*mut u64, c_uint), &mut driver.stream, 1),
        "other" => call!(b"cuStreamCreate"(*mut u64, c_uint), &mut driver.other, 1),
        "begin" => call!(b"cuStreamBeginCapture_v2"(u64, c_int), stream, n as c_int),
        "begin-legacy" => call!(b"cuStreamBeginCapture"(u64), 0),
        "end" => call!(b"cuStreamEndCapture"(u64, *mut u64), stream, &mut driver.graph),
        "end-other" => call!(b"cuStreamEndCapture"(u64, *mut u64), other, &mut driver.graph),
        "status" => {
            let code = call!(b"cuStreamIsCapturing"(u64, *mut c_int), stream, &mut small);
            out = small as u64;
            code
        }
        "id" => call!(b"cuStreamGetCaptureInfo"(u64, *mut c_int, *mut u64), stream, &mut small, &mut out),
        "mode" => {
            small = n as c_int;
            let code = call!(b"cuThreadExchangeStreamCaptureMode"(*mut c_int), &mut small);
            out = small as u64;
            code
        }
        "instantiate" => {
            let executable = &mut driver.executable;
            match n {
                0 => call!(b"cuGraphInstantiateWithFlags"(*mut u64, u64, u64), executable, driver.graph, 0),
                1 => {
                    let (node, log) = (std::ptr::null_mut(), std::ptr::null_mut());
                    call!(
                        b"cuGraphInstantiate_v2"(*mut u64, u64, *mut u64, *mut u8, usize),
                        executable, driver.graph, node, log, 0
                    )
                }
                _ => {
                    let mut params = GraphInstantiateParams { flags: 0, upload_stream: 0, error_node: 9, result: 9 };
                    let code = call!(
                        b"cuGraphInstantiateWithParams"(*mut u64, u64, *mut GraphInstantiateParams),
                        executable, driver.graph, &mut params
                    );
                    assert_eq!((params.error_node, params.result), (0, 0));
                    code
                }
            }
        }
        "nodes" => {
            let mut count = 0;
            let code =
                call!(b"cuGraphGetNodes"(u64, *mut u64, *mut usize), driver.graph, std::ptr::null_mut(), &mut count);
            out = count as u64;
            code
        }
        "upload" => call!(b"cuGraphUpload"(u64, u64), driver.executable, stream),
        "launch" => call!(b"cuGraphLaunch"(u64, u64), driver.executable, stream),
        "drop" => call!(b"cuGraphDestroy"(u64), driver.graph),
        "drop-executable" => call!(b"cuGraphExecDestroy"(u64), driver.executable),
        // The other stream goes beside the first from here on, and back into it.
        "fork" => {
            call!(b"cuEventRecord"(u64, u64), driver.events[0], stream)
                | call!(b"cuStreamWaitEvent"(u64, u64, c_uint), other, driver.events[0], 0)
        }
        "join" => {
            call!(b"cuEventRecord"(u64, u64), driver.events[1], other)
                | call!(b"cuStreamWaitEvent"(u64, u64, c_uint), stream, driver.events[1], 0)
        }
        "launch-other" => driver.launch(n, other),
        "query-event" => call!(b"cuEventQuery"(u64), driver.events[n as usize]),
        "wait-event" => call!(b"cuStreamWaitEvent"(u64, u64, c_uint), stream, driver.events[n as usize], 0),
        // What another thread gets from a call that a capture may forbid it, in its mode.
        "thread" => std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let mut mode = n as c_int;
                call!(b"cuThreadExchangeStreamCaptureMode"(*mut c_int), &mut mode);
                call!(b"cuEventQuery"(u64), driver.events[0])
            });
            asked.join().unwrap()
        }),
        other => panic!("no such command: {other}"),
    };
    (code, out)
}

/// With two streams that the legacy one does not wait for, and events.
fn ready(sim: &Sim) -> Client {
    let mut client = sim.client().ready();
    for command in ["capture stream", "capture other", "events"] {
        client.must(command);
    }
    client
}

fn begin(mode: c_int) -> String {
    format!("capture begin {mode}")
}

#[test]
fn what_is_captured_runs_when_it_is_launched_and_as_often() {
    let sim = Sim::start();
    for abi in 0..3 {
        let mut client = ready(&sim);
        client.must(&begin(GLOBAL));
        assert_eq!(client.must("capture status"), 1);
        assert!(client.must("capture id") > 0);
        for _ in 0..4 {
            client.must("launch-stream 100");
        }
        client.must("capture end");
        assert_eq!(client.must("capture status"), 0);
        assert_eq!(client.must("capture nodes"), 4);
        client.must("stream-query");
        client.must(&format!("capture instantiate {abi}"));
        client.must("capture upload");
        client.must("stream-query");
        // A kernel keeps the stream busy until all of it is queued.
        client.must("launch-stream 5000");
        client.must("record-stream 0");
        client.must("capture launch");
        client.must("capture launch");
        client.must("capture drop");
        client.must("record-stream 1");
        client.must("stream-sync");
        // 4 · 20 ms, twice.
        let took_us = client.must("elapsed-us");
        assert!((160_000..175_000).contains(&took_us), "{took_us}");
        client.must("capture drop-executable");
        assert_eq!(client.ask("capture launch").code, result::INVALID_VALUE);
    }
}

#[test]
fn streams_join_a_capture_by_events_and_must_come_back() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    client.must(&begin(GLOBAL));
    client.must("launch-stream 1");
    client.must("capture fork");
    client.must("capture launch-other 1");
    assert_eq!(client.ask("capture query-event 0").code, result::CAPTURED_EVENT);
    client.must("capture join");
    client.must("capture end");
    assert_eq!(client.must("capture nodes"), 2);
    client.must("capture instantiate");
    client.must("capture launch");
    client.must("stream-sync");
    client.must(&begin(GLOBAL));
    client.must("capture fork");
    client.must("capture launch-other 1");
    assert_eq!(client.ask("capture end").code, result::STREAM_CAPTURE_UNJOINED);
    assert_eq!(client.must("capture status"), 0);
    // The other stream is free again.
    client.must("capture launch-other 1");
    client.must("sync");
}

#[test]
fn waiting_for_a_stream_that_captures_fails_and_spoils_the_capture() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    for call in ["stream-sync", "stream-query", "sync"] {
        client.must(&begin(RELAXED));
        assert_eq!(client.ask(call).code, result::STREAM_CAPTURE_UNSUPPORTED, "{call}");
        assert_eq!(client.must("capture status"), 2);
        assert_eq!(client.ask("launch-stream 1").code, result::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(client.ask("capture end").code, result::STREAM_CAPTURE_INVALIDATED);
        assert_eq!(client.must("capture status"), 0);
    }
    client.must("sync");
}

#[test]
fn calls_that_could_disturb_a_capture_are_forbidden_by_its_mode() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    let forbidden = result::STREAM_CAPTURE_UNSUPPORTED;
    for (mode, own, others) in [(GLOBAL, forbidden, forbidden), (THREAD_LOCAL, forbidden, 0), (RELAXED, 0, 0)] {
        for (call, answer) in [("alloc 4096", own), ("capture query-event 0", own), ("capture thread 0", others)] {
            client.must(&begin(mode));
            assert_eq!(client.ask(call).code, answer, "{call} in mode {mode}");
            let ended = if answer == 0 { 0 } else { result::STREAM_CAPTURE_INVALIDATED };
            assert_eq!(client.ask("capture end").code, ended);
        }
    }
    // A thread that asked to be left alone may always.
    client.must(&begin(GLOBAL));
    client.must(&format!("capture thread {RELAXED}"));
    assert_eq!(client.must(&format!("capture mode {RELAXED}")), 0);
    client.must("alloc 4096");
    assert_eq!(client.must(&format!("capture mode {GLOBAL}")), 2);
    client.must("capture end");
}

#[test]
fn the_legacy_stream_neither_captures_nor_meets_a_stream_that_waits_for_it() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    assert_eq!(client.ask("capture begin-legacy").code, result::STREAM_CAPTURE_UNSUPPORTED);
    client.must(&begin(GLOBAL));
    client.must("launch 1");
    client.must("capture end");
    // One that was created plainly waits for the legacy stream.
    client.must("stream");
    client.must(&begin(GLOBAL));
    assert_eq!(client.ask("launch 1").code, result::STREAM_CAPTURE_IMPLICIT);
    assert_eq!(client.ask("capture end").code, result::STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn only_the_stream_that_began_a_capture_ends_it_and_nothing_else_enters() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    assert_eq!(client.ask("capture end").code, result::ILLEGAL_STATE);
    client.must("record 0");
    client.must(&begin(GLOBAL));
    assert_eq!(client.ask(&begin(GLOBAL)).code, result::ILLEGAL_STATE);
    assert_eq!(client.ask("capture end-other").code, result::ILLEGAL_STATE);
    assert_eq!(client.ask("capture wait-event 0").code, result::STREAM_CAPTURE_ISOLATION);
    assert_eq!(client.ask("capture end").code, result::STREAM_CAPTURE_INVALIDATED);
}

#[test]
fn a_graph_that_is_launched_into_a_capture_becomes_part_of_it() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    client.must(&begin(GLOBAL));
    client.must("launch-stream 1");
    client.must("launch-stream 1");
    client.must("capture end");
    client.must("capture instantiate");
    client.must(&begin(GLOBAL));
    client.must("capture launch");
    client.must("launch-stream 1");
    client.must("capture end");
    assert_eq!(client.must("capture nodes"), 3);
}
