//! Calls that the library itself makes to the driver. Their errors stay here: a call that failed answers `None` or false.
//!
//! Handles come from the driver or from the program. Those of contexts and events are only used while their context lives: who
//! destroys a context passes our hooks first, which take it out of everything.

use std::ffi::{CStr, c_int, c_uint, c_void};

use berth_proto::cuda::{CuResult, Uuid, result};

use super::dl;

/// `CU_DEVICE_ATTRIBUTE_…`
const MULTIPROCESSOR_COUNT: c_int = 16;
const CAN_USE_STREAM_MEM_OPS_V1: c_int = 92;
const CAN_USE_STREAM_WAIT_VALUE_NOR: c_int = 123;
/// `CU_EVENT_DISABLE_TIMING`
const DISABLE_TIMING: c_uint = 2;
/// `CU_STREAM_CAPTURE_STATUS_NONE`
const CAPTURES_NOTHING: c_int = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_int = 2;
/// `CU_MEMHOSTREGISTER_PORTABLE | …_DEVICEMAP`
const PORTABLE_AND_MAPPED: c_uint = 3;
/// `CU_STREAM_WAIT_VALUE_EQ`
const EQUAL: c_uint = 1;
/// `CU_STREAM_MEM_OP_WAIT_VALUE_32`
const WAIT_VALUE_32: c_uint = 1;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, `…_USED_MEM_CURRENT`
const POOL_RESERVED: c_int = 5;
const POOL_USED: c_int = 7;
/// `CU_DEV_RESOURCE_TYPE_SM`
const RESOURCE_SM: c_int = 1;
/// `CU_GREEN_CTX_DEFAULT_STREAM` and `CU_STREAM_NON_BLOCKING`, which both are required.
const GREEN_DEFAULT_STREAM: c_uint = 1;
const NON_BLOCKING: c_uint = 1;
/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`, and the answer `CU_MEMORYTYPE_DEVICE`
const MEMORY_TYPE: c_int = 2;
const DEVICE_MEMORY: c_uint = 2;
/// Where a resource of SMs has their number.
const SM_COUNT_AT: usize = 96;
/// The most waits that are put at once.
pub(crate) const MOST_WAITS: usize = 16;

/// `CUstreamBatchMemOpParams` of a wait.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WaitOp {
    operation: c_uint,
    address: u64,
    value: u64,
    flags: c_uint,
    alias: u64,
    pad: u64,
}

/// `CUdevResource`: opaque but for its size.
#[repr(C, align(8))]
#[derive(Debug, Clone, Copy)]
struct Resource([u8; 144]);

impl Resource {
    fn sm_count(&self) -> u32 {
        let bytes = self.0.get(SM_COUNT_AT..SM_COUNT_AT + 4).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u32::from_ne_bytes)
    }
}

macro_rules! functions {
    (
        needed { $($need:ident: $need_symbol:ident ($($need_type:ty),*);)* }
        wanted { $($want:ident: $want_symbol:ident $(or $old_symbol:ident)? ($($want_type:ty),*);)* }
    ) => {
        /// The driver's functions that we call: without the first group we do nothing at all.
        #[derive(Debug)]
        #[allow(clippy::type_complexity)] // the driver's own signatures
        pub(crate) struct Driver {
            $($need: unsafe extern "C" fn($($need_type),*) -> CuResult,)*
            $($want: Option<unsafe extern "C" fn($($want_type),*) -> CuResult>,)*
        }

        $(const _: () = assert!(crate::hooks::is_listed(stringify!($need_symbol)));)*
        $(
            const _: () = assert!(crate::hooks::is_listed(stringify!($want_symbol)));
            $(const _: () = assert!(crate::hooks::is_listed(stringify!($old_symbol)));)?
        )*

        impl Driver {
            /// `None` in a process without a driver, or with one that lacks something we need.
            pub(crate) fn find() -> Option<Self> {
                Some(Self {
                    // SAFETY: a function of the driver under its own symbol has the type that its header gives it.
                    $($need: unsafe { function(name(concat!(stringify!($need_symbol), "\0")))? },)*
                    $($want: {
                        // SAFETY: as above.
                        let found = unsafe { function(name(concat!(stringify!($want_symbol), "\0"))) };
                        // SAFETY: as above; the older symbol has the same parameters.
                        $(let found = found.or_else(|| unsafe { function(name(concat!(stringify!($old_symbol), "\0"))) });)?
                        found
                    },)*
                })
            }
        }
    };
}

functions! {
    needed {
        device_count: cuDeviceGetCount(*mut c_int);
        device_uuid: cuDeviceGetUuid(*mut Uuid, c_int);
        device_attribute: cuDeviceGetAttribute(*mut c_int, c_int, c_int);
        context_current: cuCtxGetCurrent(*mut u64);
        context_push: cuCtxPushCurrent_v2(u64);
        context_pop: cuCtxPopCurrent_v2(*mut u64);
        context_device: cuCtxGetDevice(*mut c_int);
        event_create: cuEventCreate(*mut u64, c_uint);
        event_destroy: cuEventDestroy_v2(u64);
        event_record: cuEventRecord(u64, u64);
        event_query: cuEventQuery(u64);
        event_elapsed: cuEventElapsedTime(*mut f32, u64, u64);
        stream_wait_event: cuStreamWaitEvent(u64, u64, c_uint);
    }
    wanted {
        stream_context: cuStreamGetCtx(u64, *mut u64);
        stream_is_capturing: cuStreamIsCapturing(u64, *mut c_int);
        stream_wait_value: cuStreamWaitValue32_v2 or cuStreamWaitValue32 (u64, u64, u32, c_uint);
        stream_batch: cuStreamBatchMemOp_v2 or cuStreamBatchMemOp (u64, c_uint, *mut WaitOp, c_uint);
        host_register: cuMemHostRegister_v2 or cuMemHostRegister (*mut c_void, usize, c_uint);
        host_unregister: cuMemHostUnregister(*mut c_void);
        host_device_pointer: cuMemHostGetDevicePointer_v2(*mut u64, *mut c_void, c_uint);
        exchange_capture_mode: cuThreadExchangeStreamCaptureMode(*mut c_int);
        device_resource: cuDeviceGetDevResource(c_int, *mut Resource, c_int);
        resource_split: cuDevSmResourceSplitByCount(*mut Resource, *mut c_uint, *const Resource, *mut Resource, c_uint, c_uint);
        resource_describe: cuDevResourceGenerateDesc(*mut u64, *mut Resource, c_uint);
        green_create: cuGreenCtxCreate(*mut u64, u64, c_int, c_uint);
        green_destroy: cuGreenCtxDestroy(u64);
        green_stream: cuGreenCtxStreamCreate(*mut u64, u64, c_uint, c_int);
        stream_destroy: cuStreamDestroy_v2(u64);
        stream_create: cuStreamCreate(*mut u64, c_uint);
        stream_synchronize: cuStreamSynchronize(u64);
        stream_write_value: cuStreamWriteValue32_v2 or cuStreamWriteValue32 (u64, u64, u32, c_uint);
        occupancy: cuOccupancyMaxActiveBlocksPerMultiprocessor(*mut c_int, u64, c_int, usize);
        pointer_attribute: cuPointerGetAttribute(*mut c_void, c_int, u64);
        pool_attribute: cuMemPoolGetAttribute(u64, c_int, *mut c_void);
        pool_trim: cuMemPoolTrimTo(u64, usize);
        pool_default: cuDeviceGetDefaultMemPool(*mut u64, c_int);
        pool_current: cuDeviceGetMemPool(*mut u64, c_int);
        primary_state: cuDevicePrimaryCtxGetState(c_int, *mut c_uint, *mut c_int);
        primary_retain: cuDevicePrimaryCtxRetain(*mut u64, c_int);
        primary_release: cuDevicePrimaryCtxRelease_v2 or cuDevicePrimaryCtxRelease (c_int);
    }
}

/// What became of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Done,
    UnderWay,
    /// The driver does not say: an error of the program's, or the end of the driver.
    Unknown,
}

impl Driver {
    pub(crate) fn is_ready(&self) -> bool {
        ask(|out| {
            // SAFETY: the driver writes one number.
            unsafe { (self.device_count)(out) }
        })
        .is_some_and(|count: c_int| count > 0)
    }

    pub(crate) fn uuid(&self, device: c_int) -> Option<[u8; 16]> {
        // SAFETY: the driver writes one UUID.
        ask(|out: *mut [u8; 16]| unsafe { (self.device_uuid)(out.cast::<Uuid>(), device) })
    }

    pub(crate) fn sm_count(&self, device: c_int) -> u32 {
        self.attribute(device, MULTIPROCESSOR_COUNT).and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
    }

    pub(crate) fn can_wait_on_gpu(&self, device: c_int) -> bool {
        let has_functions = self.stream_wait_value.is_some() && self.host_register.is_some();
        let can = [CAN_USE_STREAM_MEM_OPS_V1, CAN_USE_STREAM_WAIT_VALUE_NOR];
        has_functions && can.into_iter().any(|attribute| self.attribute(device, attribute).is_some_and(|can| can > 0))
    }

    pub(crate) fn can_divide(&self, device: c_int) -> bool {
        self.green_stream.is_some() && self.sm_resource(device).is_some()
    }

    /// The context of this thread; `None` without one.
    pub(crate) fn current_context(&self) -> Option<u64> {
        // SAFETY: the driver writes one handle.
        ask(|out| unsafe { (self.context_current)(out) }).filter(|context| *context != 0)
    }

    pub(crate) fn current_device(&self) -> Option<c_int> {
        // SAFETY: the driver writes one number.
        ask(|out| unsafe { (self.context_device)(out) })
    }

    pub(crate) fn context_of(&self, stream: u64) -> Option<u64> {
        let function = self.stream_context?;
        // SAFETY: the stream is the program's own, which is about to use it; the driver writes one handle.
        ask(|out| unsafe { function(stream, out) }).filter(|context| *context != 0)
    }

    /// Whether what is put into a stream goes into a graph; also where the driver does not say.
    pub(crate) fn is_capturing(&self, stream: u64) -> bool {
        let Some(function) = self.stream_is_capturing else { return true };
        // SAFETY: the stream is the program's own, which is about to use it or has not destroyed it; the driver writes one number.
        ask(|out| unsafe { function(stream, out) }) != Some(CAPTURES_NOTHING)
    }

    /// Runs something with this context current.
    pub(crate) fn within<T>(&self, context: u64, run: impl FnOnce() -> T) -> Option<T> {
        // SAFETY: the context lives (see the head of this file).
        if unsafe { (self.context_push)(context) } != result::SUCCESS {
            return None;
        }
        let done = run();
        let mut popped = 0;
        // SAFETY: the driver writes one handle; what is popped is what was pushed.
        unsafe { (self.context_pop)(&raw mut popped) };
        Some(done)
    }

    /// Runs something that another thread's capture would not allow.
    pub(crate) fn relaxed<T>(&self, run: impl FnOnce() -> T) -> T {
        let before = self.set_capture_mode(RELAXED);
        let done = run();
        if let Some(before) = before {
            self.set_capture_mode(before);
        }
        done
    }

    /// The mode it was in.
    pub(crate) fn set_capture_mode(&self, mut mode: c_int) -> Option<c_int> {
        // SAFETY: the driver reads one number and writes another in its place.
        (unsafe { self.exchange_capture_mode?(&raw mut mode) } == result::SUCCESS).then_some(mode)
    }

    /// In the current context.
    pub(crate) fn create_event(&self, timed: bool) -> Option<u64> {
        // SAFETY: the driver writes one handle.
        ask(|out| unsafe { (self.event_create)(out, if timed { 0 } else { DISABLE_TIMING }) })
    }

    pub(crate) fn destroy_event(&self, event: u64) {
        // SAFETY: the event is our own, and nobody uses it after this.
        unsafe { (self.event_destroy)(event) };
    }

    pub(crate) fn record(&self, event: u64, stream: u64) -> bool {
        // SAFETY: the event is our own; the stream is the one the program has just used.
        unsafe { (self.event_record)(event, stream) == result::SUCCESS }
    }

    pub(crate) fn progress(&self, event: u64, context: u64) -> Progress {
        // SAFETY: the event is our own and its context lives.
        let answer = || unsafe { (self.event_query)(event) };
        let told = match answer() {
            result::INVALID_CONTEXT => self.within(context, answer).unwrap_or(result::UNKNOWN),
            told => told,
        };
        match told {
            result::SUCCESS => Progress::Done,
            result::NOT_READY => Progress::UnderWay,
            _ => Progress::Unknown,
        }
    }

    pub(crate) fn elapsed_ns(&self, start: u64, end: u64) -> Option<u64> {
        // SAFETY: both events are our own; the driver writes one number.
        let ms: f32 = ask(|out| unsafe { (self.event_elapsed)(out, start, end) })?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates; negative becomes 0
        Some((f64::from(ms) * 1e6) as u64)
    }

    pub(crate) fn wait_event(&self, stream: u64, event: u64) -> bool {
        // SAFETY: as for `record`.
        unsafe { (self.stream_wait_event)(stream, event, 0) == result::SUCCESS }
    }

    /// Has the stream wait until all these words are 0.
    pub(crate) fn wait_for_zero(&self, stream: u64, addresses: &[u64]) -> bool {
        match (addresses, self.stream_wait_value, self.stream_batch) {
            ([], ..) => true,
            ([address], Some(wait), _) => {
                // SAFETY: the address is of registered memory, which stays registered until the stream has passed.
                unsafe { wait(stream, *address, 0, EQUAL) == result::SUCCESS }
            }
            (_, _, Some(batch)) if addresses.len() <= MOST_WAITS => {
                let mut ops = [WaitOp::default(); MOST_WAITS];
                for (op, address) in ops.iter_mut().zip(addresses) {
                    *op = WaitOp { operation: WAIT_VALUE_32, address: *address, flags: EQUAL, ..WaitOp::default() };
                }
                let count = c_uint::try_from(addresses.len()).unwrap_or(0);
                // SAFETY: as above; the array has at least `count` elements.
                unsafe { batch(stream, count, ops.as_mut_ptr(), 0) == result::SUCCESS }
            }
            _ => addresses.iter().all(|address| self.wait_for_zero(stream, std::slice::from_ref(address))),
        }
    }

    /// Makes host memory known to the GPU; the address it has there. In the current context.
    pub(crate) fn register(&self, memory: *mut u8, bytes: usize) -> Option<u64> {
        let (register, pointer) = (self.host_register?, self.host_device_pointer?);
        // SAFETY: the memory is a page of a link, mapped until after it was unregistered.
        if unsafe { register(memory.cast(), bytes, PORTABLE_AND_MAPPED) } != result::SUCCESS {
            return None;
        }
        // SAFETY: as above; the driver writes one address.
        let address = ask(|out| unsafe { pointer(out, memory.cast(), 0) });
        if address.is_none() {
            self.unregister(memory);
        }
        address
    }

    pub(crate) fn unregister(&self, memory: *mut u8) {
        if let Some(unregister) = self.host_unregister {
            // SAFETY: the driver looks the address up and refuses what it does not know.
            unsafe { unregister(memory.cast()) };
        }
    }

    /// A stream of our own in the current context.
    pub(crate) fn create_stream(&self) -> Option<u64> {
        let function = self.stream_create?;
        // SAFETY: the driver writes one handle.
        ask(|out| unsafe { function(out, NON_BLOCKING) })
    }

    /// Waits on the CPU.
    pub(crate) fn synchronize(&self, stream: u64) -> bool {
        // SAFETY: the stream is our own.
        self.stream_synchronize.is_some_and(|function| unsafe { function(stream) } == result::SUCCESS)
    }

    /// Has the GPU itself store 0 there.
    pub(crate) fn write_zero(&self, stream: u64, address: u64) -> bool {
        // SAFETY: the stream is our own; the address is of registered memory, which stays so until the stream has passed.
        self.stream_write_value.is_some_and(|function| unsafe { function(stream, address, 0, 0) } == result::SUCCESS)
    }

    /// How many blocks of a function fit on an SM at once.
    pub(crate) fn blocks_per_sm(&self, function: u64, threads_per_block: u32, shared_bytes: u64) -> Option<u32> {
        let ask_driver = self.occupancy?;
        let (threads, shared) = (c_int::try_from(threads_per_block).ok()?, usize::try_from(shared_bytes).ok()?);
        // SAFETY: the function is the program's own, which is about to be launched; the driver writes one number.
        let blocks: c_int = ask(|out| unsafe { ask_driver(out, function, threads, shared) })?;
        u32::try_from(blocks).ok()
    }

    /// Whether an address is of device memory. What the driver does not know is the host's.
    pub(crate) fn is_on_device(&self, address: u64) -> bool {
        let Some(function) = self.pointer_attribute else { return false };
        // SAFETY: the driver writes one number, and refuses addresses that it does not know.
        ask(|out: *mut c_uint| unsafe { function(out.cast(), MEMORY_TYPE, address) }) == Some(DEVICE_MEMORY)
    }

    /// What a pool has of the GPU's memory without anything in it.
    pub(crate) fn kept_by_pool(&self, pool: u64) -> u64 {
        let Some(function) = self.pool_attribute else { return 0 };
        // SAFETY: the pool lives (see `pools.rs`); the driver writes one number.
        let told = |attribute| ask(|out: *mut u64| unsafe { function(pool, attribute, out.cast()) }).unwrap_or(0);
        self.relaxed(|| told(POOL_RESERVED).saturating_sub(told(POOL_USED)))
    }

    /// Gives back what a pool keeps.
    pub(crate) fn trim_pool(&self, pool: u64) {
        if let Some(trim) = self.pool_trim {
            // SAFETY: as above.
            self.relaxed(|| unsafe { trim(pool, 0) });
        }
    }

    /// The pool that a device has from the beginning,
    pub(crate) fn default_pool(&self, device: c_int) -> Option<u64> {
        let function = self.pool_default?;
        // SAFETY: the driver writes one handle.
        ask(|out| unsafe { function(out, device) })
    }

    /// and the one that allocations in its streams come from.
    pub(crate) fn current_pool(&self, device: c_int) -> Option<u64> {
        let function = self.pool_current?;
        // SAFETY: as above.
        ask(|out| unsafe { function(out, device) })
    }

    /// A green context with at least so many SMs, or with the others; and how many it has.
    pub(crate) fn create_green(&self, device: c_int, sms: u32, others: bool) -> Option<(u64, u32)> {
        let all = self.sm_resource(device)?;
        let (mut part, mut rest, mut groups) = (Resource([0; 144]), Resource([0; 144]), 1);
        let split = self.resource_split?;
        // SAFETY: the driver writes one resource to `part`, one to `rest` and their number.
        let told = unsafe { split(&raw mut part, &raw mut groups, &raw const all, &raw mut rest, 0, sms) };
        if told != result::SUCCESS || groups != 1 {
            return None;
        }
        let (describe, create) = (self.resource_describe?, self.green_create?);
        let mut part = if others { rest } else { part };
        let sms = match part.sm_count() {
            0 if others => return None,
            0 => sms,
            counted => counted,
        };
        // SAFETY: the driver reads one resource and writes one handle.
        let description = ask(|out| unsafe { describe(out, &raw mut part, 1) })?;
        // SAFETY: the description has just been made; the driver writes one handle.
        let green = ask(|out| unsafe { create(out, description, device, GREEN_DEFAULT_STREAM) })?;
        Some((green, sms))
    }

    pub(crate) fn has_primary(&self, device: c_int) -> bool {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the driver writes two numbers.
        let told = self.primary_state.map(|state| unsafe { state(device, &raw mut flags, &raw mut active) });
        told == Some(result::SUCCESS) && active != 0
    }

    /// The device's primary context, if there is one.
    pub(crate) fn primary(&self, device: c_int) -> Option<u64> {
        let (Some(retain), Some(release)) = (self.primary_retain, self.primary_release) else { return None };
        if !self.has_primary(device) {
            return None;
        }
        // SAFETY: the driver writes one handle; what is retained here is released at once, and somebody else retains it, too.
        let primary = ask(|out| unsafe { retain(out, device) });
        if primary.is_some() {
            // SAFETY: it was just retained.
            unsafe { release(device) };
        }
        primary
    }

    /// Whether this thread's context is the device's primary one, the one that green contexts are parts of.
    pub(crate) fn is_in_primary(&self, device: c_int) -> bool {
        let primary = self.primary(device);
        primary.is_some() && primary == self.current_context()
    }

    pub(crate) fn create_green_stream(&self, green: u64) -> Option<u64> {
        let function = self.green_stream?;
        // SAFETY: the green context is our own; the driver writes one handle.
        ask(|out| unsafe { function(out, green, NON_BLOCKING, 0) })
    }

    pub(crate) fn destroy_green(&self, green: u64, streams: impl IntoIterator<Item = u64>) {
        if let (Some(destroy_stream), Some(destroy)) = (self.stream_destroy, self.green_destroy) {
            for stream in streams {
                // SAFETY: the stream is our own, and nobody uses it after this.
                unsafe { destroy_stream(stream) };
            }
            // SAFETY: as above.
            unsafe { destroy(green) };
        }
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Option<c_int> {
        // SAFETY: the driver writes one number.
        ask(|out| unsafe { (self.device_attribute)(out, attribute, device) })
    }

    fn sm_resource(&self, device: c_int) -> Option<Resource> {
        let function = self.device_resource?;
        let mut resource = Resource([0; 144]);
        // SAFETY: the driver writes one resource.
        (unsafe { function(device, &raw mut resource, RESOURCE_SM) } == result::SUCCESS).then_some(resource)
    }
}

/// What a function writes, if it succeeds.
fn ask<T: Default>(call: impl FnOnce(*mut T) -> CuResult) -> Option<T> {
    let mut value = T::default();
    (call(&raw mut value) == result::SUCCESS).then_some(value)
}

/// # Safety
/// The driver's function of this name has the type `F`, which is that of a function.
unsafe fn function<F: Copy>(symbol: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let address = dl::driver_function(symbol);
    // SAFETY: an address that is not null, as a function pointer; the caller vouches for its type.
    (!address.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&address) })
}

/// A name that ends with its only zero.
fn name(text: &'static str) -> &'static CStr {
    CStr::from_bytes_with_nul(text.as_bytes()).unwrap_or(c"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_the_official_headers() {
        assert_eq!(size_of::<WaitOp>(), 48);
        assert_eq!(std::mem::offset_of!(WaitOp, address), 8);
        assert_eq!(std::mem::offset_of!(WaitOp, value), 16);
        assert_eq!(std::mem::offset_of!(WaitOp, flags), 24);
        assert_eq!(size_of::<Resource>(), 144);
    }
}
