//! Parts of the GPU: green contexts, priorities of streams, and what MPS says of a client.

use std::ffi::{CStr, c_char, c_int, c_uint};

use berth_proto::cuda::{DeviceResource, RESOURCE_SM, result};
use berth_proto::sim_dir;
use berth_sim::Sharing;

use crate::client::Driver;
use crate::support::{Client, Sim};

const NOTHING: DeviceResource = DeviceResource {
    kind: 0,
    device: 0,
    first_sm: 0,
    internal: [0; 84],
    sm_count: 0,
    min_partition: 0,
    alignment: 0,
    reserved: [0; 36],
};

/// In the client: `green VERB [NUMBER]`.
pub fn in_client(driver: &mut Driver, line: &str) -> (u32, u64) {
    let mut words = line.split_whitespace().skip(1);
    let verb = words.next().unwrap();
    let n = words.next().map_or(0, |word| word.parse::<i64>().unwrap());
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
    let mut all = NOTHING;
    call!(b"cuDeviceGetDevResource"(c_int, *mut DeviceResource, c_uint), 0, &mut all, RESOURCE_SM);
    let split = |groups: *mut DeviceResource, count: &mut c_uint, rest: &mut DeviceResource| {
        call!(
            b"cuDevSmResourceSplitByCount"(
                *mut DeviceResource, *mut c_uint, *const DeviceResource, *mut DeviceResource, c_uint, c_uint
            ),
            groups, count, &all, rest, 0, n as c_uint
        )
    };
    let (mut out, mut count, mut rest) = (0_u64, 0, NOTHING);
    let code = match verb {
        "sms" => {
            out = all.sm_count.into();
            0
        }
        // How many groups, and what is left.
        "groups" => {
            let code = split(std::ptr::null_mut(), &mut count, &mut rest);
            out = u64::from(count) * 1000 + u64::from(rest.sm_count);
            code
        }
        // A green context of the first group, and a stream of it.
        "create" => {
            let (mut part, mut description) = (NOTHING, 0);
            count = 1;
            let code = split(&mut part, &mut count, &mut rest)
                | call!(b"cuDevResourceGenerateDesc"(*mut u64, *mut DeviceResource, c_uint), &mut description, &mut part, 1)
                | call!(b"cuGreenCtxCreate"(*mut u64, u64, c_int, c_uint), &mut driver.graph, description, 0, 1)
                | call!(b"cuGreenCtxStreamCreate"(*mut u64, u64, c_uint, c_int), &mut driver.stream, driver.graph, 1, 0);
            out = part.sm_count.into();
            code
        }
        "wrong-flags" => {
            call!(b"cuGreenCtxStreamCreate"(*mut u64, u64, c_uint, c_int), &mut out, driver.graph, 0, 0)
        }
        "destroy" => call!(b"cuStreamDestroy_v2"(u64), driver.stream) | call!(b"cuGreenCtxDestroy"(u64), driver.graph),
        // Makes it current, and a stream as any program does.
        "use" => {
            let mut context = 0;
            call!(b"cuCtxFromGreenCtx"(*mut u64, u64), &mut context, driver.graph)
                | call!(b"cuCtxSetCurrent"(u64), context)
                | call!(b"cuStreamCreate"(*mut u64, c_uint), &mut driver.stream, 1)
        }
        "own-sms" => {
            let code = call!(b"cuCtxGetDevResource"(u64, *mut DeviceResource, c_uint), 0, &mut rest, RESOURCE_SM);
            out = rest.sm_count.into();
            code
        }
        "of-stream" => {
            let code = call!(b"cuStreamGetGreenCtx"(u64, *mut u64), driver.stream, &mut out);
            out = u64::from(out == driver.graph);
            code
        }
        // A stream of a priority; what it says of itself.
        "priority" => {
            let mut priority = 0 as c_int;
            let code = call!(b"cuStreamCreateWithPriority"(*mut u64, c_uint, c_int), &mut driver.stream, 1, n as c_int)
                | call!(b"cuStreamGetPriority"(u64, *mut c_int), driver.stream, &mut priority);
            out = u64::from(priority.unsigned_abs());
            code
        }
        "ids" => {
            let (mut first, mut second, mut context) = (0_u64, 0_u64, 0_u64);
            let code = call!(b"cuStreamGetId"(u64, *mut u64), driver.stream, &mut first)
                | call!(b"cuStreamGetId"(u64, *mut u64), 0, &mut second)
                | call!(b"cuCtxGetId"(u64, *mut u64), 0, &mut context);
            out = u64::from(first != second && context != 0);
            code
        }
        "name" => {
            let mut name: *const c_char = std::ptr::null();
            let code = call!(b"cuFuncGetName"(*mut *const c_char, u64), &mut name, driver.kernel);
            // SAFETY: the driver has just said where a text is.
            out = u64::from(code == 0 && unsafe { CStr::from_ptr(name) } == c"work");
            code
        }
        "untimed" => call!(b"cuEventCreate"(*mut u64, c_uint), &mut driver.events[1], 2),
        "event" => call!(b"cuEventCreate"(*mut u64, c_uint), &mut out, n as c_uint),
        "attribute" => {
            let mut value = 0 as c_int;
            let code = call!(b"cuDeviceGetAttribute"(*mut c_int, c_int, c_int), &mut value, n as c_int, 0);
            out = value as u64;
            code
        }
        other => panic!("no such command: {other}"),
    };
    (code, out)
}

/// With the primary context current, which green ones are part of, and a kernel.
fn ready(sim: &Sim, environment: &[(&str, &str)]) -> Client {
    let mut client = Client::start(&sim.library(sim_dir::CUDA_SONAME), environment);
    client.must("init");
    let context = client.must("retain 0");
    client.must(&format!("use {context}"));
    client.must("module");
    client
}

/// How long 500 GFLOP take by the events around them, in the stream that the commands with this ending mean. The kernel before keeps
/// the stream busy until all of it is queued.
fn timed_us(client: &mut Client, ending: &str) -> u64 {
    client.must("events");
    for command in ["launch 500", "record 0", "launch 500", "record 1"] {
        let (verb, number) = command.split_once(' ').unwrap();
        client.must(&format!("{verb}{ending} {number}"));
    }
    client.must("event-sync 1");
    client.must("elapsed-us")
}

fn in_real_time() -> Sim {
    Sim::with(|options| options.time_scale = 1.0)
}

#[test]
fn an_h200_is_divided_in_steps_of_eight() {
    let sim = Sim::start();
    let mut client = ready(&sim, &[]);
    assert_eq!(client.must("green sms"), 132);
    for (least, found) in [(8, 15_012), (16, 8_004), (32, 4_004), (72, 1_060)] {
        assert_eq!(client.must(&format!("green groups {least}")), found, "{least}");
    }
    assert_eq!(client.ask("green groups 133").code, result::INVALID_VALUE);
}

#[test]
fn work_of_a_green_context_has_its_sms_alone() {
    let sim = in_real_time();
    let mut client = ready(&sim, &[]);
    assert_eq!(client.must("green create 60"), 64);
    assert_eq!(client.must("green of-stream"), 1);
    assert_eq!(client.ask("green wrong-flags").code, result::INVALID_VALUE);
    // 500 GFLOP: 100 ms on all SMs, 206 on 64.
    let took_us = timed_us(&mut client, "-stream");
    assert!((206_000..230_000).contains(&took_us), "{took_us}");
    client.must("green destroy");
    assert_eq!(client.ask("green of-stream").code, result::INVALID_HANDLE);
}

#[test]
fn a_green_context_that_is_current_makes_streams_of_its_own() {
    let sim = in_real_time();
    let mut client = ready(&sim, &[]);
    client.must("green create 60");
    client.must("green use");
    assert_eq!(client.must("green own-sms"), 64);
    for stream in ["-stream", ""] {
        let took_us = timed_us(&mut client, stream);
        assert!((206_000..230_000).contains(&took_us), "{took_us}");
    }
}

#[test]
fn streams_have_the_priority_they_are_given_within_the_range() {
    let sim = Sim::start();
    let mut client = ready(&sim, &[]);
    for (given, has) in [(0, 0), (-3, 3), (-9, 5), (7, 0)] {
        assert_eq!(client.must(&format!("green priority {given}")), has, "{given}");
    }
    assert_eq!(client.must("green ids"), 1);
    assert_eq!(client.must("green name"), 1);
}

#[test]
fn a_client_of_mps_has_the_share_its_environment_says() {
    let sim = Sim::with(|options| {
        options.time_scale = 1.0;
        options.sharing = Sharing::Mps;
    });
    let mut half = ready(&sim, &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")]);
    assert_eq!(half.must("green attribute 133"), 1);
    let took_us = timed_us(&mut half, "");
    assert!((200_000..220_000).contains(&took_us), "{took_us}");
}

#[test]
fn events_without_timing_cannot_be_timed_and_unknown_flags_are_refused() {
    let sim = Sim::start();
    let mut client = ready(&sim, &[]);
    client.must("events");
    client.must("green untimed");
    client.must("record 0");
    client.must("record 1");
    client.must("event-sync 1");
    assert_eq!(client.ask("elapsed-us").code, result::INVALID_HANDLE);
    assert_eq!(client.ask("green event 4").code, result::INVALID_VALUE, "shared between processes, and timed");
    client.must("green event 6");
    assert_eq!(client.ask("green event 64").code, result::INVALID_VALUE);
}
