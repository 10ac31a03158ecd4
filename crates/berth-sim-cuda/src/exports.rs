//! The C edge: every function of the driver API under its own symbol.
//!
//! Each has code of its own (its own call counter, at least), so that no linker or compiler can fold two of them and a
//! probe on one symbol never sees another's calls. What the list has and this file does not define does not compile;
//! what is not implemented answers "not supported" and is counted. The contract of all of them is the driver API's:
//! every pointer is null or good for what the function does with it.
#![allow(non_snake_case, non_upper_case_globals)] // the driver API's names

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use berth_proto::cuda::{
    BatchMemoryOp, CheckpointLockArgs, CheckpointRestoreArgs, ContextParams, CuResult, DRIVER_VERSION, DeviceResource,
    GraphInstantiateParams, LaunchConfig, Uuid, result,
};
use berth_proto::sim::CheckpointOp;

use crate::capture::InfoPlaces;
use crate::cost::Shape;
use crate::edge::{Arguments, Image, In, InArray, InOut, Out, OutArray, OutText, Pointers, Text, guard};
use crate::green::Split;
use crate::memory::Ends;
use crate::stream::Default;
use crate::{
    capture, checkpoint, context, device, event, graph, green, host, launch, log, lookup, memory, memory_op, module,
    primary, process, stream,
};

/// One exported function.
struct Export {
    symbol: &'static str,
    address: *const c_void,
    calls: &'static AtomicU64,
}

// SAFETY: the address is of code and is never written through.
unsafe impl Sync for Export {}

/// The address of one of our functions, by its ELF symbol.
pub(crate) fn address(symbol: &str) -> Option<*const c_void> {
    find(symbol).map(|export| export.address)
}

fn find(symbol: &str) -> Option<&'static Export> {
    EXPORTS.iter().find(|export| export.symbol == symbol)
}

fn unsupported(calls: &AtomicU64, symbol: &str) -> CuResult {
    if calls.fetch_add(1, Ordering::Relaxed) == 0 {
        log::say(format_args!("{symbol} is not supported"));
    }
    result::NOT_SUPPORTED
}

macro_rules! library {
    (
        implemented { $($name:ident $symbol:ident $since:literal $($twin:ident $twin_since:literal)?;)* }
        unsupported { $($stub:ident $stub_symbol:ident $stub_since:literal $($stub_twin:ident $stub_twin_since:literal)?;)* }
    ) => {
        /// How often each function was called.
        mod calls {
            use std::sync::atomic::AtomicU64;
            $(
                pub static $symbol: AtomicU64 = AtomicU64::new(0);
                $(pub static $twin: AtomicU64 = AtomicU64::new(0);)?
            )*
            $(
                pub static $stub_symbol: AtomicU64 = AtomicU64::new(0);
                $(pub static $stub_twin: AtomicU64 = AtomicU64::new(0);)?
            )*
        }

        $(
            #[unsafe(no_mangle)]
            pub extern "C" fn $stub_symbol() -> CuResult {
                unsupported(&calls::$stub_symbol, stringify!($stub_symbol))
            }
            $(
                #[unsafe(no_mangle)]
                pub extern "C" fn $stub_twin() -> CuResult {
                    unsupported(&calls::$stub_twin, stringify!($stub_twin))
                }
            )?
        )*

        static EXPORTS: &[Export] = &[
            $(
                Export { symbol: stringify!($symbol), address: $symbol as *const c_void, calls: &calls::$symbol },
                $(Export { symbol: stringify!($twin), address: $twin as *const c_void, calls: &calls::$twin },)?
            )*
            $(
                Export {
                    symbol: stringify!($stub_symbol),
                    address: $stub_symbol as *const c_void,
                    calls: &calls::$stub_symbol,
                },
                $(Export {
                    symbol: stringify!($stub_twin),
                    address: $stub_twin as *const c_void,
                    calls: &calls::$stub_twin,
                },)?
            )*
        ];
    };
}

berth_proto::driver_functions!(library);

/// How often the function with this ELF symbol was called in this process; all ones for a name that is not ours. Not
/// part of the driver API: for tests, and for whoever wonders what a program uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn berthSimCalls(symbol: Text) -> u64 {
    let found = symbol.get().ok().and_then(find);
    found.map_or(u64::MAX, |export| export.calls.load(Ordering::Relaxed))
}

/// One function: `symbol(arguments) => answer;`, or with its twin and what stream 0 means in each:
/// `symbol / twin |default| (arguments) => answer;`.
macro_rules! export {
    () => {};
    ($symbol:ident ($($arg:ident: $type:ty),* $(,)?) => $answer:expr; $($rest:tt)*) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($arg: $type),*) -> CuResult {
            calls::$symbol.fetch_add(1, Ordering::Relaxed);
            guard(|| $answer)
        }
        export! { $($rest)* }
    };
    ($symbol:ident / $twin:ident |$default:ident| ($($arg:ident: $type:ty),* $(,)?) => $answer:expr; $($rest:tt)*) => {
        export! {
            $symbol($($arg: $type),*) => { let $default = Default::Legacy; $answer };
            $twin($($arg: $type),*) => { let $default = Default::PerThread; $answer };
            $($rest)*
        }
    };
}

// The driver and its functions.
export! {
    cuInit(flags: c_uint) => process::init(flags);
    cuDriverGetVersion(out: Out<c_int>) => out.set(DRIVER_VERSION.cast_signed());
    cuGetErrorName(code: c_uint, out: Out<*const c_char>) => lookup::error_name(code, out);
    cuGetErrorString(code: c_uint, out: Out<*const c_char>) => lookup::error_string(code, out);
    cuGetProcAddress(name: Text, out: Out<*const c_void>, version: c_int, flags: u64) =>
        lookup::proc_address(name, out, version, flags, None);
    cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz |default| (
        name: Text, out: Out<*const c_void>, version: c_int, flags: u64, status: Out<c_int>,
    ) => {
        let flags = if default == Default::PerThread { lookup::per_thread(flags) } else { flags };
        lookup::proc_address(name, out, version, flags, Some(status))
    };
}

// Devices.
export! {
    cuDeviceGet(out: Out<c_int>, device: c_int) => device::get(out, device);
    cuDeviceGetCount(out: Out<c_int>) => device::count(out);
    cuDeviceGetName(out: OutText, room: c_int, device: c_int) => device::name(out, room, device);
    cuDeviceGetUuid(out: Out<Uuid>, device: c_int) => device::uuid(out, device);
    cuDeviceGetUuid_v2(out: Out<Uuid>, device: c_int) => device::uuid(out, device);
    cuDeviceTotalMem_v2(out: Out<usize>, device: c_int) => device::total_memory(out, device);
    cuDeviceGetAttribute(out: Out<c_int>, attribute: c_int, device: c_int) => device::attribute(out, attribute, device);
    cuDeviceGetPCIBusId(out: OutText, room: c_int, device: c_int) => device::pci_bus_id(out, room, device);
    cuDeviceGetByPCIBusId(out: Out<c_int>, bus_id: Text) => device::by_pci_bus_id(out, bus_id);
    cuDeviceComputeCapability(major: Out<c_int>, minor: Out<c_int>, device: c_int) =>
        device::compute_capability(major, minor, device);
}

// Contexts.
export! {
    cuCtxCreate_v2(out: Out<u64>, flags: c_uint, device: c_int) => context::create(out, flags, device);
    cuCtxCreate_v4(out: Out<u64>, _params: In<ContextParams>, flags: c_uint, device: c_int) =>
        context::create(out, flags, device);
    cuCtxDestroy_v2(context: u64) => context::destroy(context);
    cuCtxPushCurrent_v2(context: u64) => context::push(context);
    cuCtxPopCurrent_v2(out: Out<u64>) => context::pop(out);
    cuCtxSetCurrent(context: u64) => context::set_current(context);
    cuCtxGetCurrent(out: Out<u64>) => context::get_current(out);
    cuCtxGetDevice(out: Out<c_int>) => context::device(out, 0);
    cuCtxGetDevice_v2(out: Out<c_int>, context: u64) => context::device(out, context);
    cuCtxSynchronize() => context::synchronize(0);
    cuCtxSynchronize_v2(context: u64) => context::synchronize(context);
    cuCtxGetApiVersion(context: u64, out: Out<c_uint>) => context::api_version(context, out);
    cuCtxGetId(context: u64, out: Out<u64>) => context::id(context, out);
    cuCtxGetFlags(out: Out<c_uint>) => context::flags(out);
    cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) => context::priority_range(least, greatest);
    cuDevicePrimaryCtxRetain(out: Out<u64>, device: c_int) => primary::retain(out, device);
    cuDevicePrimaryCtxRelease_v2(device: c_int) => primary::release(device);
    cuDevicePrimaryCtxReset_v2(device: c_int) => primary::reset(device);
    cuDevicePrimaryCtxGetState(device: c_int, flags: Out<c_uint>, active: Out<c_int>) =>
        primary::state(device, flags, active);
    cuDevicePrimaryCtxSetFlags_v2(device: c_int, flags: c_uint) => primary::set_flags(device, flags);
}

// Images and kernels.
export! {
    cuModuleLoadData(out: Out<u64>, image: Image) => module::load(out, image);
    cuModuleLoadDataEx(out: Out<u64>, image: Image, _count: c_uint, _options: Pointers, _values: Pointers) =>
        module::load(out, image);
    cuModuleLoadFatBinary(out: Out<u64>, image: Image) => module::load(out, image);
    cuModuleUnload(module: u64) => module::unload(module);
    cuModuleGetFunction(out: Out<u64>, module: u64, name: Text) => module::function(out, module, name);
    cuModuleGetLoadingMode(out: Out<c_int>) => module::loading_mode(out);
    cuLibraryLoadData(
        out: Out<u64>, image: Image, _jit_options: Pointers, _jit_values: Pointers, _jit_count: c_uint,
        _options: Pointers, _values: Pointers, _count: c_uint,
    ) => module::load_library(out, image);
    cuLibraryUnload(library: u64) => module::unload(library);
    cuLibraryGetKernel(out: Out<u64>, library: u64, name: Text) => module::function(out, library, name);
    cuLibraryGetModule(out: Out<u64>, library: u64) => module::module_of_library(out, library);
    cuKernelGetFunction(out: Out<u64>, kernel: u64) => module::function_of_kernel(out, kernel);
    cuKernelGetAttribute(out: Out<c_int>, attribute: c_int, kernel: u64, _device: c_int) =>
        module::attribute(out, attribute, kernel);
    cuFuncGetAttribute(out: Out<c_int>, attribute: c_int, function: u64) => module::attribute(out, attribute, function);
    cuFuncSetAttribute(function: u64, _attribute: c_int, _value: c_int) => module::accept(function);
    cuFuncSetCacheConfig(function: u64, _config: c_int) => module::accept(function);
    cuFuncGetName(out: Out<*const c_char>, function: u64) => module::name(out, function);
    cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Out<c_int>, function: u64, threads: c_int, _shared: usize) =>
        module::blocks_per_sm(out, function, threads);
    cuKernelGetName(out: Out<*const c_char>, kernel: u64) => module::name(out, kernel);
    cuFuncGetModule(out: Out<u64>, function: u64) => module::module_of_function(out, function);
}

// Memory.
export! {
    cuMemAlloc_v2(out: Out<u64>, bytes: usize) => memory::allocate_current(out, bytes);
    cuMemFree_v2(pointer: u64) => memory::free(pointer);
    cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) => memory::info(free, total);
    cuMemGetAddressRange_v2(base: Out<u64>, size: Out<usize>, pointer: u64) =>
        memory::address_range(base, size, pointer);
    cuMemAllocAsync / cuMemAllocAsync_ptsz |default| (out: Out<u64>, bytes: usize, stream: u64) =>
        memory::allocate_async(out, bytes, default.of(stream));
    cuMemFreeAsync / cuMemFreeAsync_ptsz |default| (pointer: u64, stream: u64) =>
        memory::free_async(pointer, default.of(stream));
    cuMemAllocHost_v2(out: Out<*mut c_void>, bytes: usize) => host::allocate(out, bytes, 0);
    cuMemFreeHost(memory: *mut c_void) => host::free(memory);
    cuMemHostAlloc(out: Out<*mut c_void>, bytes: usize, flags: c_uint) => host::allocate(out, bytes, flags);
    cuMemHostRegister_v2(memory: *mut c_void, bytes: usize, flags: c_uint) => host::register(memory, bytes, flags);
    cuMemHostUnregister(memory: *mut c_void) => host::unregister(memory);
    cuMemHostGetDevicePointer_v2(out: Out<u64>, memory: *mut c_void, flags: c_uint) =>
        host::device_pointer(out, memory, flags);
    cuMemHostGetFlags(out: Out<c_uint>, memory: *mut c_void) => host::flags(out, memory);
}

// Copies and fills.
export! {
    cuMemcpy / cuMemcpy_ptds |default| (to: u64, from: u64, bytes: usize) =>
        memory::copy(Ends::of(to, from)?, bytes, default.of(0));
    cuMemcpyAsync / cuMemcpyAsync_ptsz |default| (to: u64, from: u64, bytes: usize, stream: u64) =>
        memory::copy_async(Ends::of(to, from)?, bytes, default.of(stream));
    cuMemcpyHtoD_v2 / cuMemcpyHtoD_v2_ptds |default| (to: u64, _from: *const c_void, bytes: usize) =>
        memory::copy(Ends::ToDevice { to }, bytes, default.of(0));
    cuMemcpyDtoH_v2 / cuMemcpyDtoH_v2_ptds |default| (_to: *mut c_void, from: u64, bytes: usize) =>
        memory::copy(Ends::FromDevice { from }, bytes, default.of(0));
    cuMemcpyDtoD_v2 / cuMemcpyDtoD_v2_ptds |default| (to: u64, from: u64, bytes: usize) =>
        memory::copy(Ends::Within { to, from }, bytes, default.of(0));
    cuMemcpyHtoDAsync_v2 / cuMemcpyHtoDAsync_v2_ptsz |default| (
        to: u64, _from: *const c_void, bytes: usize, stream: u64,
    ) => memory::copy_async(Ends::ToDevice { to }, bytes, default.of(stream));
    cuMemcpyDtoHAsync_v2 / cuMemcpyDtoHAsync_v2_ptsz |default| (
        _to: *mut c_void, from: u64, bytes: usize, stream: u64,
    ) => memory::copy_async(Ends::FromDevice { from }, bytes, default.of(stream));
    cuMemcpyDtoDAsync_v2 / cuMemcpyDtoDAsync_v2_ptsz |default| (to: u64, from: u64, bytes: usize, stream: u64) =>
        memory::copy_async(Ends::Within { to, from }, bytes, default.of(stream));
    cuMemsetD8_v2 / cuMemsetD8_v2_ptds |default| (pointer: u64, _value: c_uchar, count: usize) =>
        memory::fill(pointer, count, 1, default.of(0));
    cuMemsetD16_v2 / cuMemsetD16_v2_ptds |default| (pointer: u64, _value: c_ushort, count: usize) =>
        memory::fill(pointer, count, 2, default.of(0));
    cuMemsetD32_v2 / cuMemsetD32_v2_ptds |default| (pointer: u64, _value: c_uint, count: usize) =>
        memory::fill(pointer, count, 4, default.of(0));
    cuMemsetD8Async / cuMemsetD8Async_ptsz |default| (pointer: u64, _value: c_uchar, count: usize, stream: u64) =>
        memory::fill(pointer, count, 1, default.of(stream));
    cuMemsetD16Async / cuMemsetD16Async_ptsz |default| (pointer: u64, _value: c_ushort, count: usize, stream: u64) =>
        memory::fill(pointer, count, 2, default.of(stream));
    cuMemsetD32Async / cuMemsetD32Async_ptsz |default| (pointer: u64, _value: c_uint, count: usize, stream: u64) =>
        memory::fill(pointer, count, 4, default.of(stream));
}

// Streams and events.
export! {
    cuStreamCreate(out: Out<u64>, flags: c_uint) => stream::create(out, flags, 0);
    cuStreamCreateWithPriority(out: Out<u64>, flags: c_uint, priority: c_int) => stream::create(out, flags, priority);
    cuStreamDestroy_v2(stream: u64) => stream::destroy(stream);
    cuStreamSynchronize / cuStreamSynchronize_ptsz |default| (stream: u64) => stream::synchronize(default.of(stream));
    cuStreamQuery / cuStreamQuery_ptsz |default| (stream: u64) => stream::query(default.of(stream));
    cuStreamWaitEvent / cuStreamWaitEvent_ptsz |default| (stream: u64, event: u64, _flags: c_uint) =>
        stream::wait_event(default.of(stream), event);
    cuStreamGetPriority / cuStreamGetPriority_ptsz |default| (stream: u64, out: Out<c_int>) =>
        stream::priority(default.of(stream), out);
    cuStreamGetFlags / cuStreamGetFlags_ptsz |default| (stream: u64, out: Out<c_uint>) =>
        stream::flags(default.of(stream), out);
    cuStreamGetCtx / cuStreamGetCtx_ptsz |default| (stream: u64, out: Out<u64>) =>
        stream::context(default.of(stream), out);
    cuStreamIsCapturing / cuStreamIsCapturing_ptsz |default| (stream: u64, out: Out<c_int>) =>
        capture::is_capturing(default.of(stream), out);
    cuStreamGetId / cuStreamGetId_ptsz |default| (stream: u64, out: Out<u64>) => stream::id(default.of(stream), out);
    cuEventCreate(out: Out<u64>, flags: c_uint) => event::create(out, flags);
    cuEventDestroy_v2(event: u64) => event::destroy(event);
    cuEventRecord / cuEventRecord_ptsz |default| (event: u64, stream: u64) => event::record(event, default.of(stream));
    cuEventRecordWithFlags / cuEventRecordWithFlags_ptsz |default| (event: u64, stream: u64, _flags: c_uint) =>
        event::record(event, default.of(stream));
    cuEventQuery(event: u64) => event::query(event);
    cuEventSynchronize(event: u64) => event::synchronize(event);
    cuEventElapsedTime(out: Out<f32>, start: u64, end: u64) => event::elapsed(out, start, end);
    cuEventElapsedTime_v2(out: Out<f32>, start: u64, end: u64) => event::elapsed(out, start, end);
}

// Words of memory.
export! {
    cuStreamWaitValue32 / cuStreamWaitValue32_ptsz |default| (stream: u64, address: u64, value: u32, flags: c_uint) =>
        memory_op::wait(default.of(stream), address, value.into(), flags, false);
    cuStreamWaitValue32_v2 / cuStreamWaitValue32_v2_ptsz |default| (
        stream: u64, address: u64, value: u32, flags: c_uint,
    ) => memory_op::wait(default.of(stream), address, value.into(), flags, false);
    cuStreamWaitValue64 / cuStreamWaitValue64_ptsz |default| (stream: u64, address: u64, value: u64, flags: c_uint) =>
        memory_op::wait(default.of(stream), address, value, flags, true);
    cuStreamWaitValue64_v2 / cuStreamWaitValue64_v2_ptsz |default| (
        stream: u64, address: u64, value: u64, flags: c_uint,
    ) => memory_op::wait(default.of(stream), address, value, flags, true);
    cuStreamWriteValue32 / cuStreamWriteValue32_ptsz |default| (stream: u64, address: u64, value: u32, flags: c_uint) =>
        memory_op::write(default.of(stream), address, value.into(), flags, false);
    cuStreamWriteValue32_v2 / cuStreamWriteValue32_v2_ptsz |default| (
        stream: u64, address: u64, value: u32, flags: c_uint,
    ) => memory_op::write(default.of(stream), address, value.into(), flags, false);
    cuStreamWriteValue64 / cuStreamWriteValue64_ptsz |default| (stream: u64, address: u64, value: u64, flags: c_uint) =>
        memory_op::write(default.of(stream), address, value, flags, true);
    cuStreamWriteValue64_v2 / cuStreamWriteValue64_v2_ptsz |default| (
        stream: u64, address: u64, value: u64, flags: c_uint,
    ) => memory_op::write(default.of(stream), address, value, flags, true);
    cuStreamBatchMemOp / cuStreamBatchMemOp_ptsz |default| (
        stream: u64, count: c_uint, ops: InArray<BatchMemoryOp>, flags: c_uint,
    ) => memory_op::batch(default.of(stream), count, ops, flags);
    cuStreamBatchMemOp_v2 / cuStreamBatchMemOp_v2_ptsz |default| (
        stream: u64, count: c_uint, ops: InArray<BatchMemoryOp>, flags: c_uint,
    ) => memory_op::batch(default.of(stream), count, ops, flags);
}

// Launches.
export! {
    cuLaunchKernel / cuLaunchKernel_ptsz |default| (
        function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        _shared_bytes: c_uint, stream: u64, pointers: Pointers, extra: Pointers,
    ) => {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z] };
        launch::launch(function, shape, default.of(stream), Arguments { pointers, extra })
    };
    cuLaunchCooperativeKernel / cuLaunchCooperativeKernel_ptsz |default| (
        function: u64, grid_x: c_uint, grid_y: c_uint, grid_z: c_uint, block_x: c_uint, block_y: c_uint, block_z: c_uint,
        _shared_bytes: c_uint, stream: u64, pointers: Pointers,
    ) => {
        let shape = Shape { grid: [grid_x, grid_y, grid_z], block: [block_x, block_y, block_z] };
        launch::launch(function, shape, default.of(stream), Arguments { pointers, extra: Pointers::NONE })
    };
    cuLaunchKernelEx / cuLaunchKernelEx_ptsz |default| (
        config: In<LaunchConfig>, function: u64, pointers: Pointers, extra: Pointers,
    ) => launch::launch_config(config, function, default, pointers, extra);
}

// Capturing and graphs.
export! {
    cuStreamBeginCapture / cuStreamBeginCapture_ptsz |default| (stream: u64) => capture::begin(default.of(stream), 0);
    cuStreamBeginCapture_v2 / cuStreamBeginCapture_v2_ptsz |default| (stream: u64, mode: c_int) =>
        capture::begin(default.of(stream), mode);
    cuStreamEndCapture / cuStreamEndCapture_ptsz |default| (stream: u64, graph: Out<u64>) =>
        capture::end(default.of(stream), graph);
    cuStreamGetCaptureInfo / cuStreamGetCaptureInfo_ptsz |default| (stream: u64, status: Out<c_int>, id: Out<u64>) =>
        capture::info(default.of(stream), status, id, InfoPlaces { graph: None, dependencies: None });
    cuStreamGetCaptureInfo_v2 / cuStreamGetCaptureInfo_v2_ptsz |default| (
        stream: u64, status: Out<c_int>, id: Out<u64>, graph: Out<u64>, _nodes: *mut c_void, count: Out<usize>,
    ) => {
        let places = InfoPlaces { graph: Some(graph), dependencies: Some(count) };
        capture::info(default.of(stream), status, id, places)
    };
    cuStreamGetCaptureInfo_v3 / cuStreamGetCaptureInfo_v3_ptsz |default| (
        stream: u64, status: Out<c_int>, id: Out<u64>, graph: Out<u64>, _nodes: *mut c_void, _edges: *mut c_void,
        count: Out<usize>,
    ) => {
        let places = InfoPlaces { graph: Some(graph), dependencies: Some(count) };
        capture::info(default.of(stream), status, id, places)
    };
    cuThreadExchangeStreamCaptureMode(mode: InOut<c_int>) => capture::exchange_mode(mode);
    cuGraphInstantiate(out: Out<u64>, graph: u64, _node: *mut u64, _log: *mut c_char, _room: usize) =>
        graph::instantiate(out, graph);
    cuGraphInstantiate_v2(out: Out<u64>, graph: u64, _node: *mut u64, _log: *mut c_char, _room: usize) =>
        graph::instantiate(out, graph);
    cuGraphInstantiateWithFlags(out: Out<u64>, graph: u64, _flags: u64) => graph::instantiate(out, graph);
    cuGraphInstantiateWithParams / cuGraphInstantiateWithParams_ptsz |_default| (
        out: Out<u64>, graph: u64, params: InOut<GraphInstantiateParams>,
    ) => graph::instantiate_with(out, graph, params);
    cuGraphGetNodes(graph: u64, nodes: OutArray<u64>, count: InOut<usize>) => graph::nodes(graph, nodes, count);
    cuGraphLaunch / cuGraphLaunch_ptsz |default| (executable: u64, stream: u64) =>
        graph::launch(executable, default.of(stream));
    cuGraphUpload / cuGraphUpload_ptsz |default| (executable: u64, stream: u64) =>
        graph::upload(executable, default.of(stream));
    cuGraphExecDestroy(executable: u64) => graph::destroy_executable(executable);
    cuGraphDestroy(graph: u64) => graph::destroy(graph);
}

// Parts of a device.
export! {
    cuDeviceGetDevResource(device: c_int, out: Out<DeviceResource>, kind: c_uint) =>
        green::of_device(device, out, kind);
    cuCtxGetDevResource(context: u64, out: Out<DeviceResource>, kind: c_uint) => green::of_context(context, out, kind);
    cuGreenCtxGetDevResource(green: u64, out: Out<DeviceResource>, kind: c_uint) => green::of_green(green, out, kind);
    cuDevSmResourceSplitByCount(
        groups: OutArray<DeviceResource>, count: InOut<c_uint>, from: In<DeviceResource>, rest: Out<DeviceResource>,
        flags: c_uint, least: c_uint,
    ) => green::split(Split { groups, count, rest }, from, flags, least);
    cuDevResourceGenerateDesc(out: Out<u64>, parts: InArray<DeviceResource>, count: c_uint) =>
        green::describe(out, parts, count);
    cuGreenCtxCreate(out: Out<u64>, description: u64, device: c_int, flags: c_uint) =>
        green::create(out, description, device, flags);
    cuGreenCtxDestroy(green: u64) => green::destroy(green);
    cuCtxFromGreenCtx(out: Out<u64>, green: u64) => green::context_of(out, green);
    cuGreenCtxStreamCreate(out: Out<u64>, green: u64, flags: c_uint, priority: c_int) =>
        green::create_stream(out, green, flags, priority);
    cuStreamGetGreenCtx(stream: u64, out: Out<u64>) => green::of_stream(Default::Legacy.of(stream), out);
}

// Other processes.
export! {
    cuCheckpointProcessGetState(pid: c_int, out: Out<c_uint>) => checkpoint::state(pid, out);
    cuCheckpointProcessLock(pid: c_int, arguments: In<CheckpointLockArgs>) => checkpoint::lock(pid, arguments);
    cuCheckpointProcessCheckpoint(pid: c_int, _arguments: *const c_void) =>
        checkpoint::act(pid, CheckpointOp::Checkpoint);
    cuCheckpointProcessRestore(pid: c_int, arguments: In<CheckpointRestoreArgs>) => checkpoint::restore(pid, arguments);
    cuCheckpointProcessUnlock(pid: c_int, _arguments: *const c_void) => checkpoint::act(pid, CheckpointOp::Unlock);
    cuCheckpointProcessGetRestoreThreadId(pid: c_int, out: Out<c_int>) => checkpoint::restore_thread(pid, out);
}
