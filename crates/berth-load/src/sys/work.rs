//! What programs that work in streams need besides the product's few functions: events, graphs, and kernels of a chosen length.

pub mod abuse;
pub mod order;

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::ptr;

use super::{Api, Code, Device, Finder, Function, Handle, LoadError, Memory, Stream, check};
use crate::options::Lookup;

/// The API version asked of `cuGetProcAddress`: the first in which every name used here exists.
const API_VERSION: c_int = 11_040;
const MULTIPROCESSOR_COUNT: c_int = 16;
/// `CU_EVENT_DISABLE_TIMING`.
const UNTIMED: c_uint = 2;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: c_int = 1;

functions! {
    /// Never unloaded, as [`Api`].
    WorkApi
    primary_set_flags: c"cuDevicePrimaryCtxSetFlags", c"cuDevicePrimaryCtxSetFlags_v2", (c_int, c_uint);
    primary_retain: c"cuDevicePrimaryCtxRetain", c"cuDevicePrimaryCtxRetain", (*mut Handle, c_int);
    primary_release: c"cuDevicePrimaryCtxRelease", c"cuDevicePrimaryCtxRelease_v2", (c_int);
    ctx_set_current: c"cuCtxSetCurrent", c"cuCtxSetCurrent", (Handle);
    device_get_attribute: c"cuDeviceGetAttribute", c"cuDeviceGetAttribute", (*mut c_int, c_int, c_int);
    event_create: c"cuEventCreate", c"cuEventCreate", (*mut Handle, c_uint);
    event_record: c"cuEventRecord", c"cuEventRecord", (Handle, Handle);
    event_synchronize: c"cuEventSynchronize", c"cuEventSynchronize", (Handle);
    event_elapsed_time: c"cuEventElapsedTime", c"cuEventElapsedTime", (*mut f32, Handle, Handle);
    stream_begin_capture: c"cuStreamBeginCapture", c"cuStreamBeginCapture_v2", (Handle, c_int);
    stream_end_capture: c"cuStreamEndCapture", c"cuStreamEndCapture", (Handle, *mut Handle);
    graph_instantiate: c"cuGraphInstantiateWithFlags", c"cuGraphInstantiateWithFlags", (*mut Handle, Handle, u64);
    graph_launch: c"cuGraphLaunch", c"cuGraphLaunch", (Handle, Handle);
}

#[derive(Debug)]
pub struct Event(Handle);
/// Work that was recorded and not done yet.
#[derive(Debug)]
pub struct Graph(Handle);
/// A graph that can be launched. Lives as long as its context.
#[derive(Debug)]
pub struct Replay(Handle);

/// How a thread waits for the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// Looks again and again: knows at once, and takes a core.
    Spinning = 1,
    /// Sleeps until it is woken.
    Sleeping = 4,
}

/// A launch along x alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    pub blocks: u32,
    pub threads: u32,
}

impl Api {
    /// Launches the kernel that turns for so many rounds; see `ptx::SPIN`.
    pub fn launch_spin(
        &self,
        function: &Function,
        stream: &Stream,
        line: Line,
        loops: u32,
        out: &Memory,
    ) -> Result<(), Code> {
        let (mut loops, mut blocks, mut out) = (loops, line.blocks, out.0);
        let mut pointers: [*mut c_void; 3] = [(&raw mut loops).cast(), (&raw mut blocks).cast(), (&raw mut out).cast()];
        // SAFETY: the three pointers match the kernel's parameters in order and size and are read before this returns.
        check(unsafe { self.launch_line(function, stream, line, pointers.as_mut_ptr()) })
    }

    /// Launches a kernel without parameters.
    pub fn launch_empty(&self, function: &Function, stream: &Stream) -> Result<(), Code> {
        // SAFETY: there are no parameters to be read.
        check(unsafe { self.launch_line(function, stream, Line { blocks: 1, threads: 32 }, ptr::null_mut()) })
    }

    /// # Safety
    ///
    /// `pointers` match the function's parameters.
    unsafe fn launch_line(&self, function: &Function, stream: &Stream, line: Line, pointers: *mut *mut c_void) -> u32 {
        let Line { blocks, threads } = line;
        // SAFETY: function and stream live; the parameters are the caller's promise.
        unsafe { (self.launch_kernel)(function.0, blocks, 1, 1, threads, 1, 1, 0, stream.0, pointers, ptr::null_mut()) }
    }
}

impl WorkApi {
    pub fn load(path: &Path, lookup: Lookup) -> Result<Self, LoadError> {
        let library = super::open(path)?;
        let api = Self::resolve(&Finder::new(path, &library, lookup, API_VERSION)?)?;
        std::mem::forget(library);
        Ok(api)
    }

    /// Makes the device's primary context current, as frameworks do.
    pub fn enter_primary(&self, device: &Device, waiting: Waiting) -> Result<(), Code> {
        let mut context = ptr::null_mut();
        // SAFETY: no pointers.
        check(unsafe { (self.primary_set_flags)(device.0, waiting as c_uint) })?;
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.primary_retain)(&raw mut context, device.0) })?;
        // SAFETY: the context was just retained.
        check(unsafe { (self.ctx_set_current)(context) })
    }

    /// Everything in it is gone afterwards, if nobody else has retained it.
    pub fn leave_primary(&self, device: &Device) -> Result<(), Code> {
        // SAFETY: no pointers.
        check(unsafe { (self.primary_release)(device.0) })
    }

    pub fn multiprocessors(&self, device: &Device) -> Result<u32, Code> {
        let mut count = 0;
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.device_get_attribute)(&raw mut count, MULTIPROCESSOR_COUNT, device.0) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    pub fn create_event(&self, timed: bool) -> Result<Event, Code> {
        let mut event = ptr::null_mut();
        let flags = if timed { 0 } else { UNTIMED };
        // SAFETY: the result is ours to be written.
        check(unsafe { (self.event_create)(&raw mut event, flags) })?;
        Ok(Event(event))
    }

    pub fn record(&self, event: &Event, stream: &Stream) -> Result<(), Code> {
        // SAFETY: both live.
        check(unsafe { (self.event_record)(event.0, stream.0) })
    }

    /// Returns when what was in the stream before the event is done.
    pub fn await_event(&self, event: &Event) -> Result<(), Code> {
        // SAFETY: the event lives.
        check(unsafe { (self.event_synchronize)(event.0) })
    }

    /// Between two timed events that have passed.
    pub fn elapsed_ms(&self, from: &Event, to: &Event) -> Result<f32, Code> {
        let mut elapsed = 0.0;
        // SAFETY: both live, and the result is ours to be written.
        check(unsafe { (self.event_elapsed_time)(&raw mut elapsed, from.0, to.0) })?;
        Ok(elapsed)
    }

    /// What is submitted to the stream from now on is recorded instead.
    pub fn begin_capture(&self, stream: &Stream) -> Result<(), Code> {
        // SAFETY: the stream lives.
        check(unsafe { (self.stream_begin_capture)(stream.0, THREAD_LOCAL) })
    }

    pub fn end_capture(&self, stream: &Stream) -> Result<Graph, Code> {
        let mut graph = ptr::null_mut();
        // SAFETY: the stream lives, and the result is ours to be written.
        check(unsafe { (self.stream_end_capture)(stream.0, &raw mut graph) })?;
        Ok(Graph(graph))
    }

    pub fn instantiate(&self, graph: &Graph) -> Result<Replay, Code> {
        let mut replay = ptr::null_mut();
        // SAFETY: the graph lives, and the result is ours to be written.
        check(unsafe { (self.graph_instantiate)(&raw mut replay, graph.0, 0) })?;
        Ok(Replay(replay))
    }

    pub fn launch_graph(&self, replay: &Replay, stream: &Stream) -> Result<(), Code> {
        // SAFETY: both live.
        check(unsafe { (self.graph_launch)(replay.0, stream.0) })
    }
}
