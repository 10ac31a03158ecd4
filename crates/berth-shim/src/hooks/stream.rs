//! Streams: captures that begin, spread and end, waits of the program, streams that go.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::MutexGuard;

use berth_proto::cuda::{STREAM_PER_THREAD, result};

use crate::capture::CAPTURES;
use crate::state::{self, WORK, guarded};
use crate::sys::process;
use crate::told::{self, Awaited};

/// With which a capture goes; 0 where nobody knows.
fn context_of(stream: u64) -> u64 {
    let context = || {
        let driver = &state::attached()?.driver;
        if stream > STREAM_PER_THREAD { driver.context_of(stream) } else { driver.current_context() }
    };
    guarded(context).unwrap_or(0)
}

/// Whether a capture that was to be ended is under way still: the call may have been one that the driver refuses.
fn goes_on(stream: u64) -> bool {
    guarded(|| Some(state::attached()?.driver.is_capturing(stream))).unwrap_or(false)
}

/// A thread's own default stream is another one in each.
fn captured(stream: u64) -> u64 {
    if stream == STREAM_PER_THREAD { state::own_stream(process::thread_number()) } else { stream }
}

fn waited_for(stream: u64) {
    if state::minds(WORK) && !CAPTURES.any() {
        guarded(|| {
            state::client(WORK)?.waited_for(stream);
            Some(())
        });
    }
}

fn goes(stream: u64) {
    CAPTURES.destroyed(stream);
    guarded(|| {
        state::attached()?.forget_stream(stream);
        Some(())
    });
}

/// Until this is dropped who looks at the GPU puts nothing into any stream: it asks before that whether the stream captures, which is about to change.
fn without_looks() -> Option<MutexGuard<'static, ()>> {
    guarded(|| state::attached()?.events())
}

/// Counts a capture before it begins: no work of ours may come into it.
macro_rules! begin {
    ($stream:expr, $call:expr) => {{
        let stream = captured($stream);
        CAPTURES.begun(stream, context_of($stream));
        let held = without_looks();
        // SAFETY: the caller's own arguments.
        let answer = unsafe { $call };
        drop(held);
        if answer != result::SUCCESS {
            CAPTURES.ended(stream);
        }
        answer
    }};
}

crate::hooks::hooks! {
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz: (stream: u64) |real, default| begin!(default.of(stream), real(stream));
    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz: (stream: u64, mode: c_int) |real, default|
        begin!(default.of(stream), real(stream, mode));
    cuStreamBeginCaptureToGraph / cuStreamBeginCaptureToGraph_ptsz: (
        stream: u64, graph: u64, dependencies: *const u64, data: *const c_void, count: usize, mode: c_int,
    ) |real, default| begin!(default.of(stream), real(stream, graph, dependencies, data, count, mode));
    cuStreamEndCapture / cuStreamEndCapture_ptsz: (stream: u64, graph: *mut u64) |real, default| {
        // SAFETY: the caller's own arguments.
        let answer = unsafe { real(stream, graph) };
        let stream = default.of(stream);
        if answer == result::SUCCESS || !goes_on(stream) {
            CAPTURES.ended(captured(stream));
        }
        answer
    };
    // A stream that waits for what is captured takes part from then on.
    cuStreamWaitEvent / cuStreamWaitEvent_ptsz: (stream: u64, event: u64, flags: c_uint) |real, _default| {
        let held = if CAPTURES.any() { without_looks() } else { None };
        // SAFETY: the caller's own arguments.
        let answer = unsafe { real(stream, event, flags) };
        drop(held);
        answer
    };
    cuStreamSynchronize / cuStreamSynchronize_ptsz: (stream: u64) |real, default| {
        let stream_of = default.of(stream);
        let waiting = told::begin(Awaited::Stream(stream_of));
        // SAFETY: the caller's own arguments.
        let answer = unsafe { real(stream) };
        told::end(waiting, answer == result::SUCCESS);
        waited_for(stream_of);
        answer
    };
    cuStreamDestroy: (stream: u64) |real, _default| {
        goes(stream);
        // SAFETY: the caller's own arguments.
        unsafe { real(stream) }
    };
    cuStreamDestroy_v2: (stream: u64) |real, _default| {
        goes(stream);
        // SAFETY: the caller's own arguments.
        unsafe { real(stream) }
    };
}
