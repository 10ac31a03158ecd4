//! Streams, among them the default ones: the context's own and each thread's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};

use berth_proto::cuda::{STREAM_LEGACY, STREAM_PER_THREAD, result};
use berth_proto::sim::Request;

use crate::context;
use crate::edge::{Answer, Out};
use crate::objects::{self, Stream};
use crate::process::{self, demand, obtain, post};

/// What stream 0 means to the function that was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Default {
    /// The context's default stream.
    Legacy,
    /// The calling thread's: the `_ptsz` and `_ptds` twins.
    PerThread,
}

/// A stream argument together with what 0 means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamArgument {
    default: Default,
    handle: u64,
}

impl Default {
    pub(crate) fn of(self, handle: u64) -> StreamArgument {
        StreamArgument { default: self, handle }
    }
}

thread_local! {
    /// The server's handle of this thread's default stream in each context that was used by it.
    static OWN: RefCell<HashMap<u64, u64>> = RefCell::new(HashMap::new());
}

impl StreamArgument {
    /// Where work goes: a stream of its own context, or a default stream of the current one.
    pub(crate) fn place(self) -> Answer<Stream> {
        process::get()?;
        match (self.handle, self.default) {
            (0, Default::Legacy) | (STREAM_LEGACY, _) => {
                Ok(Stream { context: context::current()?, stream: 0, flags: 0, priority: 0 })
            }
            (0, Default::PerThread) | (STREAM_PER_THREAD, _) => per_thread(context::current()?),
            (handle, _) => objects::lock().stream(handle),
        }
    }
}

fn per_thread(context: u64) -> Answer<Stream> {
    let known = OWN.try_with(|own| own.borrow().get(&context).copied());
    let known = known.map_err(|_| result::DEINITIALIZED)?;
    let stream = match known {
        Some(stream) => stream,
        None => {
            let stream = obtain(Request::StreamCreate { context })?;
            OWN.with(|own| own.borrow_mut().insert(context, stream));
            stream
        }
    };
    Ok(Stream { context, stream, flags: 0, priority: 0 })
}

pub(crate) fn create(out: Out<u64>, flags: c_uint, priority: c_int) -> Answer {
    out.check()?;
    let context = context::current()?;
    let stream = obtain(Request::StreamCreate { context })?;
    let handle = objects::lock().add_stream(Stream { context, stream, flags, priority });
    out.set(handle)
}

pub(crate) fn destroy(handle: u64) -> Answer {
    process::get()?;
    let Stream { context, stream, .. } = objects::lock().remove_stream(handle)?;
    demand(Request::StreamDestroy { context, stream })
}

pub(crate) fn synchronize(stream: StreamArgument) -> Answer {
    let Stream { context, stream, .. } = stream.place()?;
    demand(Request::StreamSync { context, stream })
}

pub(crate) fn query(stream: StreamArgument) -> Answer {
    let Stream { context, stream, .. } = stream.place()?;
    demand(Request::StreamQuery { context, stream })
}

pub(crate) fn wait_event(stream: StreamArgument, event: u64) -> Answer {
    let Stream { context, stream, .. } = stream.place()?;
    objects::lock().event(event)?;
    post(Request::StreamWait { context, stream, event })
}

pub(crate) fn priority(stream: StreamArgument, out: Out<c_int>) -> Answer {
    out.set(stream.place()?.priority)
}

pub(crate) fn flags(stream: StreamArgument, out: Out<c_uint>) -> Answer {
    out.set(stream.place()?.flags)
}

pub(crate) fn context(stream: StreamArgument, out: Out<u64>) -> Answer {
    out.set(stream.place()?.context)
}

/// Capture is not modelled, so no stream is ever capturing.
pub(crate) fn is_capturing(stream: StreamArgument, out: Out<c_int>) -> Answer {
    stream.place()?;
    out.set(0)
}
