//! Events: marks in a stream.

use std::ffi::c_uint;

use berth_proto::cuda::result;
use berth_proto::sim::{Reply, Request};

use crate::capture;
use crate::context;
use crate::edge::{Answer, Out};
use crate::objects::{self, Event, Stream};
use crate::process::{self, call, demand, obtain, post, unexpected};
use crate::stream::StreamArgument;

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;
/// `CU_EVENT_INTERPROCESS`, and all flags there are.
const INTERPROCESS: c_uint = 4;
const FLAGS: c_uint = 1 | NO_TIMING | INTERPROCESS;

pub(crate) fn create(out: Out<u64>, flags: c_uint) -> Answer {
    out.check()?;
    // One that other processes see cannot be timed, and here none do.
    if flags & !FLAGS != 0 || flags & (INTERPROCESS | NO_TIMING) == INTERPROCESS {
        return Err(result::INVALID_VALUE);
    }
    let context = context::current()?;
    let event = obtain(Request::EventCreate { context })?;
    objects::lock().events.insert(event, Event { context, flags });
    out.set(event)
}

pub(crate) fn destroy(event: u64) -> Answer {
    process::get()?;
    let Event { context, .. } = objects::lock().event(event)?;
    objects::lock().events.remove(&event);
    demand(Request::EventDestroy { context, event })
}

pub(crate) fn record(event: u64, stream: StreamArgument) -> Answer {
    let place = stream.place()?;
    let Stream { context, stream, .. } = place;
    if objects::lock().event(event)?.context != context {
        return Err(result::INVALID_HANDLE);
    }
    if capture::record(place, event)? {
        return Ok(());
    }
    post(Request::EventRecord { context, stream, event })
}

pub(crate) fn query(event: u64) -> Answer {
    process::get()?;
    let Event { context, .. } = objects::lock().event(event)?;
    capture::forbid_captured(event)?;
    capture::forbid_unsafe()?;
    demand(Request::EventQuery { context, event })
}

pub(crate) fn synchronize(event: u64) -> Answer {
    process::get()?;
    let Event { context, .. } = objects::lock().event(event)?;
    capture::forbid_captured(event)?;
    capture::forbid_unsafe()?;
    demand(Request::EventSync { context, event })
}

/// Milliseconds between two events.
pub(crate) fn elapsed(out: Out<f32>, start: u64, end: u64) -> Answer {
    process::get()?;
    let first = objects::lock().event(start)?;
    let second = objects::lock().event(end)?;
    if (first.flags | second.flags) & NO_TIMING != 0 || first.context != second.context {
        return Err(result::INVALID_HANDLE);
    }
    match call(Request::EventElapsed { context: first.context, start, end })? {
        Reply::Nanos(nanos) => out.set(milliseconds(nanos)),
        reply => Err(unexpected(&reply)),
    }
}

#[allow(clippy::cast_possible_truncation)] // the driver API says it with a float's precision
fn milliseconds(nanos: u64) -> f32 {
    (nanos as f64 / 1e6) as f32
}
