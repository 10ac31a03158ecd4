//! Streams that wait for words of the program's memory, and write them.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use berth_proto::cuda::{BatchMemoryOp, host_register, memory_op, result, wait_value};
use libloading::Library;

use crate::support::{Client, Sim, until};

/// The client's page of words: the first is waited for, the second is written.
#[repr(align(4096))]
struct Page([AtomicU32; 1024]);

static PAGE: Page = Page([const { AtomicU32::new(0) }; 1024]);

fn address(index: usize) -> u64 {
    PAGE.0[index].as_ptr() as u64
}

/// In the client: `word VERB [NUMBER [NUMBER]]`.
pub fn in_client(library: &Library, stream: u64, line: &str) -> (u32, u64) {
    let mut words = line.split_whitespace().skip(1);
    let verb = words.next().unwrap();
    let mut number = || words.next().map_or(0, |word| word.parse::<u64>().unwrap());
    let page = address(0) as *mut c_void;
    macro_rules! call {
        ($name:literal ($($type:ty),*) $(, $arg:expr)*) => {{
            // SAFETY: the types are those of the driver API's header.
            unsafe {
                let function: libloading::Symbol<unsafe extern "C" fn($($type),*) -> u32> = library.get($name).unwrap();
                function($($arg),*)
            }
        }};
    }
    let mut out = 0;
    let code = match verb {
        "register" => call!(b"cuMemHostRegister_v2"(*mut c_void, usize, c_uint), page, 4096, number() as c_uint),
        "unregister" => call!(b"cuMemHostUnregister"(*mut c_void), page),
        "pointer" => {
            let code = call!(b"cuMemHostGetDevicePointer_v2"(*mut u64, *mut c_void, c_uint), &mut out, page, 0);
            out = u64::from(code == 0 && out == address(0));
            code
        }
        "store" => {
            PAGE.0[0].store(number() as u32, Ordering::SeqCst);
            0
        }
        "load" => {
            out = PAGE.0[1].load(Ordering::SeqCst).into();
            0
        }
        "wait" => {
            let (value, flags) = (number() as u32, number() as c_uint);
            call!(b"cuStreamWaitValue32_v2"(u64, u64, u32, c_uint), stream, address(0), value, flags)
        }
        "write" => {
            call!(b"cuStreamWriteValue32_v2"(u64, u64, u32, c_uint), stream, address(1), number() as u32, 0)
        }
        "wait-at" => {
            let at = number();
            call!(b"cuStreamWaitValue32"(u64, u64, u32, c_uint), stream, at, 0, wait_value::EQ)
        }
        "batch" => {
            let op = |operation, index, value, flags| BatchMemoryOp {
                operation,
                address: address(index),
                value,
                flags,
                alias: 0,
                reserved: 0,
            };
            let ops = [
                op(memory_op::WAIT_VALUE_32, 0, 7, wait_value::EQ),
                op(memory_op::BARRIER, 0, 0, 0),
                op(memory_op::WRITE_VALUE_32, 1, 9, 0),
                op(memory_op::WAIT_VALUE_32, 1, 9, wait_value::GEQ),
                op(memory_op::WRITE_VALUE_32, 0, 1, 0),
            ];
            let count = ops.len() as c_uint;
            call!(b"cuStreamBatchMemOp_v2"(u64, c_uint, *const BatchMemoryOp, c_uint), stream, count, ops.as_ptr(), 0)
        }
        "first" => {
            out = PAGE.0[0].load(Ordering::SeqCst).into();
            0
        }
        other => panic!("no such command: {other}"),
    };
    (code, out)
}

/// With a stream and the page registered.
fn ready(sim: &Sim) -> Client {
    let mut client = sim.client().ready();
    client.must("stream");
    client.must(&format!("word register {}", host_register::PORTABLE | host_register::DEVICE_MAP));
    client
}

#[test]
fn a_stream_stands_until_its_word_has_the_value() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    assert_eq!(client.must("word pointer"), 1, "a device address of it is its own");
    client.must("word store 1");
    client.must(&format!("word wait 0 {}", wait_value::EQ));
    client.must("launch-stream 1");
    client.must("launch 1");
    // The other stream goes on.
    assert_eq!(client.ask("stream-query").code, result::NOT_READY);
    client.must("word store 2");
    assert_eq!(client.ask("stream-query").code, result::NOT_READY);
    client.must("word store 0");
    client.must("stream-sync");
}

#[test]
fn what_counts_is_the_word_when_the_stream_comes_to_it() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    let mut client = ready(&sim);
    // The word has the value now, but not any more 201 ms later.
    client.must("events");
    client.must("launch-stream 1000");
    client.must("record-stream 0");
    client.must(&format!("word wait 0 {}", wait_value::EQ));
    client.must("word write 5");
    client.must("word store 1");
    client.must("event-sync 0");
    assert_eq!(client.ask("stream-query").code, result::NOT_READY);
    assert_eq!(client.must("word load"), 0, "the stream did not go past the wait");
    client.must("word store 0");
    until("the write", || (client.must("word load") == 5).then_some(()));
}

#[test]
fn a_written_word_is_there_when_the_stream_is_done_and_not_before() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    let mut client = ready(&sim);
    client.must("launch-stream 1000");
    client.must("word write 5");
    assert_eq!(client.must("word load"), 0);
    client.must("stream-sync");
    assert_eq!(client.must("word load"), 5);
}

#[test]
fn a_batch_is_done_in_its_order() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    client.must("word batch");
    assert_eq!(client.ask("stream-query").code, result::NOT_READY);
    assert_eq!(client.must("word load"), 0);
    client.must("word store 7");
    client.must("stream-sync");
    assert_eq!((client.must("word load"), client.must("word first")), (9, 1));
}

#[test]
fn all_conditions_hold_when_they_do() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    for (flags, value, not_yet, then) in [
        (wait_value::GEQ, 5_u32, 4_u32, 6_u32),
        (wait_value::EQ, 5, 6, 5),
        (wait_value::AND, 2, 1, 3),
        (wait_value::NOR, 0xffff_fffe, 1, 2),
        (wait_value::EQ | wait_value::FLUSH, 5, 6, 5),
    ] {
        client.must(&format!("word store {not_yet}"));
        client.must(&format!("word wait {value} {flags}"));
        assert_eq!(client.ask("stream-query").code, result::NOT_READY, "{flags}");
        client.must(&format!("word store {then}"));
        client.must("stream-sync");
    }
}

#[test]
fn words_the_device_cannot_reach_are_refused() {
    let sim = Sim::start();
    let mut client = sim.client().ready();
    client.must("stream");
    let wait = format!("word wait 0 {}", wait_value::EQ);
    assert_eq!(client.ask(&wait).code, result::INVALID_VALUE, "not registered");
    assert_eq!(client.ask("word pointer").code, result::INVALID_VALUE);
    assert_eq!(client.ask("word unregister").code, result::HOST_MEMORY_NOT_REGISTERED);
    client.must(&format!("word register {}", host_register::READ_ONLY));
    assert_eq!(client.ask("word register 0").code, result::HOST_MEMORY_ALREADY_REGISTERED);
    client.must(&wait);
    assert_eq!(client.ask("word write 1").code, result::INVALID_VALUE, "for reading only");
    assert_eq!(client.ask("word wait-at 4096").code, result::INVALID_VALUE);
    let on_device = client.must("alloc 4096");
    assert_eq!(client.ask(&format!("word wait-at {on_device}")).code, result::NOT_SUPPORTED);
    assert_eq!(client.ask("word wait 0 9").code, result::INVALID_VALUE, "no such condition");
    client.must("stream-sync");
    client.must("word unregister");
    assert_eq!(client.ask(&wait).code, result::INVALID_VALUE);
}

#[test]
fn many_waits_one_after_the_other_are_all_passed() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    for _ in 0..500 {
        client.must(&format!("word wait 0 {}", wait_value::EQ));
        client.must("launch-stream 0");
    }
    client.must("stream-sync");
    client.must("word unregister");
}

#[test]
fn a_program_that_is_killed_at_a_wait_leaves_the_gpu() {
    let sim = Sim::start();
    let mut client = ready(&sim);
    client.must(&format!("word wait 1 {}", wait_value::EQ));
    let pid = client.pid();
    client.signal(libc::SIGKILL);
    until("the process to be unlisted", || sim.listed(pid).is_none().then_some(()));
}
