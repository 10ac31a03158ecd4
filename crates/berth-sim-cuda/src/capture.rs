//! Capturing streams: what they are given goes into a graph instead of to the GPU, and much else is forbidden meanwhile.
//!
//! As the driver: a call that cannot be captured, or that a capture forbids, fails and makes the capture worthless. Who asks when
//! nothing captures pays one atomic load.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use berth_proto::cuda::result;
use berth_proto::sim::{GraphWork, Request};

use crate::edge::{Answer, InOut, Out};
use crate::graph;
use crate::objects::{self, Stream};
use crate::process::{self, post};
use crate::sequence::{Mode, Place, Point, Sequence};
use crate::stream::{NON_BLOCKING, StreamArgument};

/// Captures under way: without any nobody looks further.
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
static CAPTURES: LazyLock<Mutex<Captures>> = LazyLock::new(Mutex::default);

thread_local! {
    /// Which captures forbid this thread what.
    static MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

#[derive(Debug, Default)]
struct Captures {
    sequences: Vec<Sequence>,
    /// Streams of captures for which the legacy stream would wait.
    blocking: Vec<Place>,
    /// Events that were last recorded in a capture.
    events: HashMap<u64, Point>,
    last_id: u64,
}

fn lock() -> MutexGuard<'static, Captures> {
    CAPTURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// `None` while nothing captures.
fn active() -> Option<MutexGuard<'static, Captures>> {
    (ACTIVE.load(Ordering::Acquire) > 0).then(lock)
}

impl Captures {
    fn of(&mut self, place: Place) -> Option<&mut Sequence> {
        self.sequences.iter_mut().find(|sequence| sequence.has(place))
    }

    /// Of the legacy stream: it would wait for streams that capture.
    fn check_legacy(&mut self, place: Place) -> Answer {
        if place.1 != 0 {
            return Ok(());
        }
        let blocking: Vec<Place> = self.blocking.iter().copied().filter(|other| other.0 == place.0).collect();
        for other in &blocking {
            self.invalidate(*other);
        }
        if blocking.is_empty() { Ok(()) } else { Err(result::STREAM_CAPTURE_IMPLICIT) }
    }

    fn invalidate(&mut self, place: Place) {
        if let Some(sequence) = self.of(place) {
            sequence.is_valid = false;
        }
    }

    fn remove(&mut self, id: u64) -> Option<Sequence> {
        let at = self.sequences.iter().position(|sequence| sequence.id == id)?;
        let gone = self.sequences.remove(at);
        self.blocking.retain(|place| !gone.has(*place));
        ACTIVE.store(self.sequences.len(), Ordering::Release);
        Some(gone)
    }
}

/// Puts a kernel or a copy into the stream, or into the graph if it captures.
pub(crate) fn queue(stream: Stream, work: GraphWork) -> Answer {
    let Stream { context, stream, .. } = stream;
    if let Some(mut captures) = active() {
        let place = (context, stream);
        captures.check_legacy(place)?;
        if let Some(sequence) = captures.of(place) {
            if !sequence.is_valid {
                return Err(result::STREAM_CAPTURE_INVALIDATED);
            }
            sequence.add(place, work);
            return Ok(());
        }
    }
    match work {
        GraphWork::Kernel(cost) => post(Request::Launch { context, stream, cost }),
        GraphWork::Copy { direction, bytes } => post(Request::Copy { context, stream, direction, bytes, wait: false }),
        GraphWork::After { .. } => Ok(()),
    }
}

/// Whether the stream takes part in a capture that is still good for something.
pub(crate) fn is_in_capture(stream: Stream) -> Answer<bool> {
    let Some(mut captures) = active() else { return Ok(false) };
    let place = (stream.context, stream.stream);
    captures.check_legacy(place)?;
    match captures.of(place) {
        Some(sequence) if !sequence.is_valid => Err(result::STREAM_CAPTURE_INVALIDATED),
        found => Ok(found.is_some()),
    }
}

/// For what cannot be captured: the stream must not.
pub(crate) fn forbid_in(stream: Stream) -> Answer {
    let Some(mut captures) = active() else { return Ok(()) };
    let place = (stream.context, stream.stream);
    captures.check_legacy(place)?;
    if captures.of(place).is_none() {
        return Ok(());
    }
    captures.invalidate(place);
    Err(result::STREAM_CAPTURE_UNSUPPORTED)
}

/// For what waits for a whole context.
pub(crate) fn forbid_in_context(context: u64) -> Answer {
    let Some(mut captures) = active() else { return Ok(()) };
    let of_context = |sequence: &&mut Sequence| sequence.places().any(|place| place.0 == context);
    let ended = captures.sequences.iter_mut().filter(of_context).map(|sequence| sequence.is_valid = false).count();
    if ended == 0 { Ok(()) } else { Err(result::STREAM_CAPTURE_UNSUPPORTED) }
}

/// For calls that a capture forbids because they may disturb it, though they are not about it.
pub(crate) fn forbid_unsafe() -> Answer {
    let Some(mut captures) = active() else { return Ok(()) };
    let (mode, thread) = (MODE.get(), std::thread::current().id());
    let forbids = |sequence: &&mut Sequence| {
        let own = sequence.thread == thread && sequence.mode != Mode::Relaxed;
        let global = sequence.mode == Mode::Global;
        match mode {
            Mode::Relaxed => false,
            Mode::ThreadLocal => own,
            Mode::Global => own || global,
        }
    };
    let ended = captures.sequences.iter_mut().filter(forbids).map(|sequence| sequence.is_valid = false).count();
    if ended == 0 { Ok(()) } else { Err(result::STREAM_CAPTURE_UNSUPPORTED) }
}

/// An event that was recorded in a capture stands for nothing outside of it.
pub(crate) fn forbid_captured(event: u64) -> Answer {
    let Some(captures) = active() else { return Ok(()) };
    if captures.events.contains_key(&event) { Err(result::CAPTURED_EVENT) } else { Ok(()) }
}

/// Records an event; `true` if that happened in a capture.
pub(crate) fn record(stream: Stream, event: u64) -> Answer<bool> {
    let Some(mut captures) = active() else { return Ok(false) };
    let place = (stream.context, stream.stream);
    captures.check_legacy(place)?;
    let Some(sequence) = captures.of(place) else {
        captures.events.remove(&event);
        return Ok(false);
    };
    if !sequence.is_valid {
        return Err(result::STREAM_CAPTURE_INVALIDATED);
    }
    let point = sequence.point(place);
    captures.events.extend(point.map(|point| (event, point)));
    Ok(true)
}

/// Has a stream wait for an event; `true` if that happened in a capture, which the stream may have joined by it.
pub(crate) fn wait(stream: Stream, event: u64) -> Answer<bool> {
    let Some(mut captures) = active() else { return Ok(false) };
    let place = (stream.context, stream.stream);
    captures.check_legacy(place)?;
    let own = captures.of(place).map(|sequence| sequence.id);
    let point = captures.events.get(&event).cloned();
    match (own, point) {
        (None, None) => Ok(false),
        (Some(_), None) => {
            captures.invalidate(place);
            Err(result::STREAM_CAPTURE_ISOLATION)
        }
        (own, Some(point)) => {
            if own.is_some_and(|own| own != point.sequence) {
                captures.invalidate(place);
                return Err(result::STREAM_CAPTURE_MERGE);
            }
            let sequence = captures.sequences.iter_mut().find(|sequence| sequence.id == point.sequence);
            let sequence = sequence.ok_or(result::INVALID_VALUE)?;
            if !sequence.is_valid {
                return Err(result::STREAM_CAPTURE_INVALIDATED);
            }
            sequence.wait(place, &point);
            if stream.flags & NON_BLOCKING == 0 && own.is_none() {
                captures.blocking.push(place);
            }
            Ok(true)
        }
    }
}

pub(crate) fn begin(stream: StreamArgument, mode: c_int) -> Answer {
    let stream = stream.place()?;
    let mode = Mode::from_number(mode)?;
    let place = (stream.context, stream.stream);
    if stream.stream == 0 {
        return Err(result::STREAM_CAPTURE_UNSUPPORTED);
    }
    let graph = objects::lock().fresh_handle();
    let mut captures = lock();
    if captures.of(place).is_some() {
        return Err(result::ILLEGAL_STATE);
    }
    captures.last_id += 1;
    let id = captures.last_id;
    captures.sequences.push(Sequence::begin(id, graph, place, mode, std::thread::current().id()));
    if stream.flags & NON_BLOCKING == 0 {
        captures.blocking.push(place);
    }
    ACTIVE.store(captures.sequences.len(), Ordering::Release);
    Ok(())
}

/// Ends the stream's capture, whatever comes of it, unless it is not this stream's or this thread's to end.
pub(crate) fn end(stream: StreamArgument, out: Out<u64>) -> Answer {
    let stream = stream.place()?;
    out.set(0)?;
    let place = (stream.context, stream.stream);
    let (ended, graph) = {
        let mut captures = lock();
        let sequence = captures.of(place).ok_or(result::ILLEGAL_STATE)?;
        if sequence.mode != Mode::Relaxed && sequence.thread != std::thread::current().id() {
            return Err(result::STREAM_CAPTURE_WRONG_THREAD);
        }
        let (id, graph) = (sequence.id, sequence.graph);
        let sequence = captures.remove(id).ok_or(result::ILLEGAL_STATE)?;
        captures.events.retain(|_, point| point.sequence != id);
        (sequence.end(place)?, graph)
    };
    graph::keep(graph, stream.context, ended);
    out.set(graph)
}

/// `CUstreamCaptureStatus`.
fn status(sequence: Option<&Sequence>) -> c_int {
    sequence.map_or(0, |sequence| if sequence.is_valid { 1 } else { 2 })
}

pub(crate) fn is_capturing(stream: StreamArgument, out: Out<c_int>) -> Answer {
    let stream = stream.place()?;
    let Some(mut captures) = active() else { return out.set(0) };
    if stream.stream == 0 && captures.blocking.iter().any(|place| place.0 == stream.context) {
        return Err(result::STREAM_CAPTURE_IMPLICIT);
    }
    out.set(status(captures.of((stream.context, stream.stream)).as_deref()))
}

/// What of a capture a caller may want beside its status and number; nodes that come next are not told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InfoPlaces {
    pub(crate) graph: Option<Out<u64>>,
    pub(crate) dependencies: Option<Out<usize>>,
}

pub(crate) fn info(stream: StreamArgument, status_out: Out<c_int>, id: Out<u64>, places: InfoPlaces) -> Answer {
    let stream = stream.place()?;
    let mut captures = lock();
    if stream.stream == 0 && captures.blocking.iter().any(|place| place.0 == stream.context) {
        return Err(result::STREAM_CAPTURE_IMPLICIT);
    }
    let sequence = captures.of((stream.context, stream.stream));
    status_out.set(status(sequence.as_deref()))?;
    if let Some(sequence) = sequence {
        id.set_if_wanted(sequence.id);
        places.graph.inspect(|graph| graph.set_if_wanted(sequence.graph));
        places.dependencies.inspect(|count| count.set_if_wanted(0));
    }
    Ok(())
}

/// Swaps the thread's mode for the caller's.
pub(crate) fn exchange_mode(mode: InOut<c_int>) -> Answer {
    process::get()?;
    let wanted = Mode::from_number(mode.get()?)?;
    mode.set(MODE.replace(wanted).number());
    Ok(())
}

/// The context is gone, and with it its captures.
pub(crate) fn forget_context(context: u64) {
    let Some(mut captures) = active() else { return };
    let of_context = |sequence: &&Sequence| sequence.places().any(|place| place.0 == context);
    let gone: Vec<u64> = captures.sequences.iter().filter(of_context).map(|sequence| sequence.id).collect();
    for id in gone {
        captures.remove(id);
    }
}
