//! One context, a stream and the kernels in it: what a role works with. Used on one thread.

use std::cell::Cell;

use super::{Place, RoleError};
use crate::driver::CallError;
use crate::ptx::spin::{EMPTY_ENTRY, SPIN, SPIN_ENTRY, SPIN_THREADS};
use crate::sys::work::{Event, Line, Replay, Waiting, WorkApi};
use crate::sys::{Api, Code, Device, Function, Memory, Stream};

/// The driver cannot do it.
const NOT_SUPPORTED: u32 = 801;

#[derive(Debug)]
pub struct Gpu {
    api: Api,
    work: WorkApi,
    device: Device,
    stream: Stream,
    spin: Function,
    empty: Function,
    out: Memory,
    submitted: Cell<u64>,
    pub multiprocessors: u32,
}

/// A kernel that takes some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spin {
    pub blocks: u32,
    pub rounds: u32,
}

/// Kernels that are launched as one.
#[derive(Debug)]
pub struct Recorded {
    replay: Replay,
    kernels: u64,
}

impl Gpu {
    pub fn open(place: &Place, waiting: Waiting) -> Result<Self, RoleError> {
        let api = Api::load(&place.library, place.lookup)?;
        let work = WorkApi::load(&place.library, place.lookup)?;
        let name = |call: &'static str| named(&api, call);
        api.init().map_err(name("cuInit"))?;
        let device = api.device(place.device).map_err(name("cuDeviceGet"))?;
        let multiprocessors = work.multiprocessors(&device).map_err(name("cuDeviceGetAttribute"))?;
        work.enter_primary(&device, waiting).map_err(name("cuDevicePrimaryCtxRetain"))?;
        // Gone with the context, as everything else in it.
        let module = api.load_module(SPIN).map_err(name("cuModuleLoadData"))?;
        let spin = api.function(&module, SPIN_ENTRY).map_err(name("cuModuleGetFunction"))?;
        let empty = api.function(&module, EMPTY_ENTRY).map_err(name("cuModuleGetFunction"))?;
        let stream = api.create_stream().map_err(name("cuStreamCreate"))?;
        let out = api.alloc(4).map_err(name("cuMemAlloc"))?;
        Ok(Self { api, work, device, stream, spin, empty, out, submitted: Cell::new(0), multiprocessors })
    }

    pub fn launch(&self, spin: Spin) -> Result<(), CallError> {
        self.launch_in(spin, &self.stream)
    }

    pub fn launch_in(&self, spin: Spin, stream: &Stream) -> Result<(), CallError> {
        let line = Line { blocks: spin.blocks, threads: SPIN_THREADS };
        let launched = self.api.launch_spin(&self.spin, stream, line, spin.rounds, &self.out);
        launched.map_err(self.named("cuLaunchKernel"))?;
        self.submitted.update(|count| count + 1);
        Ok(())
    }

    pub fn launch_empty(&self) -> Result<(), CallError> {
        self.api.launch_empty(&self.empty, &self.stream).map_err(self.named("cuLaunchKernel"))?;
        self.submitted.update(|count| count + 1);
        Ok(())
    }

    /// The same past whatever stands before the driver's function.
    pub fn launch_empty_past(&self, past: &Api) -> Result<(), CallError> {
        past.launch_empty(&self.empty, &self.stream).map_err(self.named("cuLaunchKernel"))?;
        self.submitted.update(|count| count + 1);
        Ok(())
    }

    /// Kernels given to the driver since the beginning, by themselves or in graphs.
    pub fn submitted(&self) -> u64 {
        self.submitted.get()
    }

    /// The one that everything goes to unless another is named.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    pub fn another_stream(&self) -> Result<Stream, CallError> {
        self.api.create_stream().map_err(self.named("cuStreamCreate"))
    }

    /// Returns when everything submitted is done.
    pub fn synchronize(&self) -> Result<(), CallError> {
        self.api.synchronize(&self.stream).map_err(self.named("cuStreamSynchronize"))
    }

    pub fn event(&self, timed: bool) -> Result<Event, CallError> {
        self.work.create_event(timed).map_err(self.named("cuEventCreate"))
    }

    pub fn record(&self, event: &Event) -> Result<(), CallError> {
        self.record_in(event, &self.stream)
    }

    pub fn record_in(&self, event: &Event, stream: &Stream) -> Result<(), CallError> {
        self.work.record(event, stream).map_err(self.named("cuEventRecord"))
    }

    pub fn await_event(&self, event: &Event) -> Result<(), CallError> {
        self.work.await_event(event).map_err(self.named("cuEventSynchronize"))
    }

    /// How long this kernel runs, by the GPU's clock.
    pub fn time_us(&self, spin: Spin, (from, to): (&Event, &Event)) -> Result<f64, CallError> {
        self.record(from)?;
        self.launch(spin)?;
        self.record(to)?;
        self.await_event(to)?;
        let elapsed = self.work.elapsed_ms(from, to).map_err(self.named("cuEventElapsedTime"))?;
        Ok(f64::from(elapsed) * 1e3)
    }

    /// These kernels as one graph; `None` where the driver has none.
    pub fn graph(&self, kernels: &[Spin]) -> Result<Option<Recorded>, CallError> {
        let before = self.submitted.get();
        match self.work.begin_capture(&self.stream) {
            Err(Code(NOT_SUPPORTED)) => return Ok(None),
            begun => begun.map_err(self.named("cuStreamBeginCapture"))?,
        }
        for kernel in kernels {
            self.launch(*kernel)?;
        }
        let graph = self.work.end_capture(&self.stream).map_err(self.named("cuStreamEndCapture"))?;
        let replay = self.work.instantiate(&graph).map_err(self.named("cuGraphInstantiateWithFlags"))?;
        // Captured, not given to the GPU yet.
        let captured = self.submitted.replace(before) - before;
        Ok(Some(Recorded { replay, kernels: captured }))
    }

    pub fn replay(&self, graph: &Recorded) -> Result<(), CallError> {
        self.replay_in(graph, &self.stream)
    }

    pub fn replay_in(&self, graph: &Recorded, stream: &Stream) -> Result<(), CallError> {
        self.work.launch_graph(&graph.replay, stream).map_err(self.named("cuGraphLaunch"))?;
        self.submitted.update(|count| count + graph.kernels);
        Ok(())
    }

    pub fn named(&self, call: &'static str) -> impl FnOnce(Code) -> CallError {
        named(&self.api, call)
    }
}

fn named(api: &Api, call: &'static str) -> impl FnOnce(Code) -> CallError {
    move |code| CallError {
        call,
        code: code.0,
        name: api.error_name(code).unwrap_or_else(|| "an unnamed error".to_owned()),
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Whatever went wrong before is what is told.
        let _ = self.work.leave_primary(&self.device);
    }
}
