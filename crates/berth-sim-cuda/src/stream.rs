//! Streams, among them the default ones: the context's own and each thread's.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{c_int, c_uint};

use berth_proto::cuda::{STREAM_LEGACY, STREAM_PER_THREAD, result};
use berth_proto::sim::{Request, Sms};

use crate::capture;
use crate::context::{self, PRIORITIES};
use crate::edge::{Answer, Out};
use crate::green;
use crate::objects::{self, Stream};
use crate::process::{self, demand, obtain, post};

/// `CU_STREAM_NON_BLOCKING`: the legacy stream does not wait for it.
pub(crate) const NON_BLOCKING: c_uint = 1;

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
    /// The server's handle of this thread's default stream in each context, by the program's handle, that was used by it.
    static OWN: RefCell<HashMap<u64, u64>> = RefCell::new(HashMap::new());
}

impl StreamArgument {
    /// Where work goes: a stream of its own context, or a default stream of the current one.
    pub(crate) fn place(self) -> Answer<Stream> {
        process::get()?;
        match (self.handle, self.default) {
            (0, Default::Legacy) | (STREAM_LEGACY, _) => match context::current_handle()? {
                (handle, context) if handle == context => Ok(default_stream(context, 0)),
                // A green context has one of its own; that of each thread will do.
                green => per_thread(green),
            },
            (0, Default::PerThread) | (STREAM_PER_THREAD, _) => per_thread(context::current_handle()?),
            (handle, _) => objects::lock().stream(handle),
        }
    }
}

fn default_stream(context: u64, stream: u64) -> Stream {
    Stream { context, stream, handle: 0, flags: 0, priority: 0 }
}

fn per_thread((handle, context): (u64, u64)) -> Answer<Stream> {
    let known = OWN.try_with(|own| own.borrow().get(&handle).copied());
    let known = known.map_err(|_| result::DEINITIALIZED)?;
    let stream = match known {
        Some(stream) => stream,
        None => {
            let sms = green::sms_of(handle);
            let stream = obtain(Request::StreamCreateWith { context, priority: 0, sms })?;
            OWN.with(|own| own.borrow_mut().insert(handle, stream));
            stream
        }
    };
    Ok(default_stream(context, stream))
}

pub(crate) fn create(out: Out<u64>, flags: c_uint, priority: c_int) -> Answer {
    out.check()?;
    let (handle, context) = context::current_handle()?;
    out.set(make(context, flags, priority, green::sms_of(handle))?)
}

/// A stream on some SMs; a priority beyond the range is taken for its end.
pub(crate) fn make(context: u64, flags: c_uint, priority: c_int, sms: Sms) -> Answer<u64> {
    let (least, greatest) = PRIORITIES;
    let priority = priority.clamp(greatest, least);
    let stream = obtain(Request::StreamCreateWith { context, priority, sms })?;
    Ok(objects::lock().add_stream(Stream { context, stream, handle: 0, flags, priority }))
}

/// A number no other stream of this driver has.
pub(crate) fn id(stream: StreamArgument, out: Out<u64>) -> Answer {
    let Stream { context, stream, .. } = stream.place()?;
    out.set(if stream == 0 { context } else { stream })
}

pub(crate) fn destroy(handle: u64) -> Answer {
    process::get()?;
    let Stream { context, stream, .. } = objects::lock().remove_stream(handle)?;
    demand(Request::StreamDestroy { context, stream })
}

pub(crate) fn synchronize(stream: StreamArgument) -> Answer {
    let Stream { context, stream, .. } = waits_for(stream)?;
    demand(Request::StreamSync { context, stream })
}

pub(crate) fn query(stream: StreamArgument) -> Answer {
    let Stream { context, stream, .. } = waits_for(stream)?;
    demand(Request::StreamQuery { context, stream })
}

/// A stream whose end is asked about: it must not capture.
fn waits_for(stream: StreamArgument) -> Answer<Stream> {
    let place = stream.place()?;
    capture::forbid_in(place)?;
    capture::forbid_unsafe()?;
    Ok(place)
}

pub(crate) fn wait_event(stream: StreamArgument, event: u64) -> Answer {
    let place = stream.place()?;
    objects::lock().event(event)?;
    if capture::wait(place, event)? {
        return Ok(());
    }
    let Stream { context, stream, .. } = place;
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
