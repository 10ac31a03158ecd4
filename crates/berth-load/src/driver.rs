//! What the workload asks of a CUDA driver, as a trait, and the real one behind it.
//!
//! All calls are made on one thread and may block. A context made is current until it is destroyed; kernels, streams
//! and memory belong to it. [`Held`] owns them and gives back what is left, in the right order, when it is dropped.

use std::ffi::CStr;
use std::fmt::Debug;
use std::path::Path;

use crate::options::Lookup;
use crate::plan::Buffer;
use crate::sys::{self, Api, Arguments, Code, LoadError};

/// A driver call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with {name} ({code})")]
pub struct CallError {
    pub call: &'static str,
    pub code: u32,
    /// As the driver names it.
    pub name: String,
}

impl CallError {
    /// `CUDA_ERROR_NO_DEVICE` and `CUDA_ERROR_INVALID_DEVICE`: there is nothing to run on.
    pub fn is_no_device(&self) -> bool {
        matches!(self.code, 100 | 101)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    pub name: String,
    pub total_bytes: u64,
    /// As `cuDriverGetVersion` gives it: 13000 is 13.0.
    pub driver_version: i32,
}

/// A kernel on a square grid of square blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Blocks along each side.
    pub grid: u32,
    /// Threads along each side of a block.
    pub block: u32,
}

impl Shape {
    /// Enough blocks for one thread per element.
    pub fn covering(n: u32, block: u32) -> Self {
        Self { grid: n.div_ceil(block), block }
    }
}

pub trait Driver {
    type Context: Debug;
    type Kernel: Debug;
    type Stream: Debug;
    type Memory: Debug;

    /// Opens the driver; may be called again.
    fn init(&self) -> Result<(), CallError>;
    fn device_info(&self, ordinal: u32) -> Result<DeviceInfo, CallError>;
    /// Makes a context current on this thread.
    fn create_context(&self, ordinal: u32) -> Result<Self::Context, CallError>;
    /// Everything still in the context is gone afterwards.
    fn destroy_context(&self, context: Self::Context) -> Result<(), CallError>;
    fn load_kernel(&self, text: &CStr, entry: &CStr) -> Result<Self::Kernel, CallError>;
    fn unload_kernel(&self, kernel: Self::Kernel) -> Result<(), CallError>;
    fn create_stream(&self) -> Result<Self::Stream, CallError>;
    fn destroy_stream(&self, stream: Self::Stream) -> Result<(), CallError>;
    fn alloc(&self, bytes: u64) -> Result<Self::Memory, CallError>;
    fn free(&self, memory: Self::Memory) -> Result<(), CallError>;
    /// Returns when the data is taken.
    fn copy_in(&self, to: &Self::Memory, from: &[f32]) -> Result<(), CallError>;
    /// Waits for the copy.
    fn copy_out(&self, to: &mut [f32], from: &Self::Memory) -> Result<(), CallError>;
    /// Queues `c = a × b` of side n; does not wait.
    fn launch(
        &self,
        kernel: &Self::Kernel,
        stream: &Self::Stream,
        shape: Shape,
        matrices: [&Self::Memory; 3],
        n: u32,
    ) -> Result<(), CallError>;
    /// Returns when the stream is empty.
    fn synchronize(&self, stream: &Self::Stream) -> Result<(), CallError>;
}

/// What a task has on the device. Dropping it gives everything back, memory first, context last; errors on that way
/// are not reported, since a drop happens only after a first error.
#[derive(Debug)]
pub struct Held<'d, D: Driver> {
    driver: &'d D,
    pub context: Option<D::Context>,
    pub kernel: Option<D::Kernel>,
    pub streams: Vec<D::Stream>,
    pub memory: Vec<(Buffer, D::Memory)>,
}

impl<'d, D: Driver> Held<'d, D> {
    pub fn new(driver: &'d D) -> Self {
        Self { driver, context: None, kernel: None, streams: Vec::new(), memory: Vec::new() }
    }

    pub fn buffer(&self, buffer: Buffer) -> Option<&D::Memory> {
        self.memory.iter().find(|(held, _)| *held == buffer).map(|(_, memory)| memory)
    }

    /// Frees the buffer and says whether there was one: a run that was stopped may not have come to allocate it.
    pub fn free(&mut self, buffer: Buffer) -> Result<bool, CallError> {
        match self.memory.iter().position(|(held, _)| *held == buffer) {
            Some(index) => self.driver.free(self.memory.remove(index).1).map(|()| true),
            None => Ok(false),
        }
    }

    /// Streams, kernel, then the context; the first error ends it and the rest is left to the context's destruction.
    pub fn destroy(&mut self) -> Result<(), CallError> {
        for stream in self.streams.drain(..) {
            self.driver.destroy_stream(stream)?;
        }
        if let Some(kernel) = self.kernel.take() {
            self.driver.unload_kernel(kernel)?;
        }
        match self.context.take() {
            Some(context) => self.driver.destroy_context(context),
            None => Ok(()),
        }
    }
}

impl<D: Driver> Drop for Held<'_, D> {
    fn drop(&mut self) {
        for (_, memory) in self.memory.drain(..) {
            let _ = self.driver.free(memory);
        }
        let _ = self.destroy();
        if let Some(context) = self.context.take() {
            let _ = self.driver.destroy_context(context);
        }
    }
}

/// The driver behind a `libcuda.so.1`, real or simulated.
#[derive(Debug)]
pub struct CudaDriver {
    api: Api,
}

/// A loaded module and the entry in it.
#[derive(Debug)]
pub struct CudaKernel {
    module: sys::Module,
    function: sys::Function,
}

impl CudaDriver {
    pub fn load(library: &Path, lookup: Lookup) -> Result<Self, LoadError> {
        Ok(Self { api: Api::load(library, lookup)? })
    }

    fn named<T>(&self, call: &'static str, result: Result<T, Code>) -> Result<T, CallError> {
        result.map_err(|code| CallError {
            call,
            code: code.0,
            name: self.api.error_name(code).unwrap_or_else(|| "an unnamed error".to_owned()),
        })
    }
}

impl Driver for CudaDriver {
    type Context = sys::Context;
    type Kernel = CudaKernel;
    type Stream = sys::Stream;
    type Memory = sys::Memory;

    fn init(&self) -> Result<(), CallError> {
        self.named("cuInit", self.api.init())
    }

    fn device_info(&self, ordinal: u32) -> Result<DeviceInfo, CallError> {
        let device = self.named("cuDeviceGet", self.api.device(ordinal))?;
        Ok(DeviceInfo {
            name: self.named("cuDeviceGetName", self.api.device_name(&device))?,
            total_bytes: self.named("cuDeviceTotalMem", self.api.device_memory(&device))?,
            driver_version: self.named("cuDriverGetVersion", self.api.version())?,
        })
    }

    fn create_context(&self, ordinal: u32) -> Result<sys::Context, CallError> {
        let device = self.named("cuDeviceGet", self.api.device(ordinal))?;
        self.named("cuCtxCreate", self.api.create_context(&device))
    }

    fn destroy_context(&self, context: sys::Context) -> Result<(), CallError> {
        self.named("cuCtxDestroy", self.api.destroy_context(context))
    }

    fn load_kernel(&self, text: &CStr, entry: &CStr) -> Result<CudaKernel, CallError> {
        let module = self.named("cuModuleLoadData", self.api.load_module(text))?;
        let function = self.named("cuModuleGetFunction", self.api.function(&module, entry))?;
        Ok(CudaKernel { module, function })
    }

    fn unload_kernel(&self, kernel: CudaKernel) -> Result<(), CallError> {
        self.named("cuModuleUnload", self.api.unload_module(kernel.module))
    }

    fn create_stream(&self) -> Result<sys::Stream, CallError> {
        self.named("cuStreamCreate", self.api.create_stream())
    }

    fn destroy_stream(&self, stream: sys::Stream) -> Result<(), CallError> {
        self.named("cuStreamDestroy", self.api.destroy_stream(stream))
    }

    fn alloc(&self, bytes: u64) -> Result<sys::Memory, CallError> {
        self.named("cuMemAlloc", self.api.alloc(bytes))
    }

    fn free(&self, memory: sys::Memory) -> Result<(), CallError> {
        self.named("cuMemFree", self.api.free(memory))
    }

    fn copy_in(&self, to: &sys::Memory, from: &[f32]) -> Result<(), CallError> {
        self.named("cuMemcpyHtoD", self.api.copy_in(to, from))
    }

    fn copy_out(&self, to: &mut [f32], from: &sys::Memory) -> Result<(), CallError> {
        self.named("cuMemcpyDtoH", self.api.copy_out(to, from))
    }

    fn launch(
        &self,
        kernel: &CudaKernel,
        stream: &sys::Stream,
        shape: Shape,
        [a, b, c]: [&sys::Memory; 3],
        n: u32,
    ) -> Result<(), CallError> {
        let arguments = Arguments { a, b, c, n };
        let launched = self.api.launch(&kernel.function, stream, (shape.grid, shape.block), &arguments);
        self.named("cuLaunchKernel", launched)
    }

    fn synchronize(&self, stream: &sys::Stream) -> Result<(), CallError> {
        self.named("cuStreamSynchronize", self.api.synchronize(stream))
    }
}
