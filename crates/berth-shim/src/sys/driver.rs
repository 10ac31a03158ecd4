//! Calls that the library itself makes to the driver. Their errors stay here: a call that failed answers `None` or false.
//!
//! Handles come from the driver or from the program. Those of contexts and events are only used while their context lives: who
//! destroys a context passes our hooks first, which take it out of everything.

use std::ffi::{CStr, c_int, c_uint, c_void};

use berth_proto::cuda::{CuResult, Uuid, result};

use super::dl;

mod green;
mod memory;
mod streams;

use green::Resource;
pub(crate) use memory::POOL_THRESHOLD;
use streams::WaitOp;
pub(crate) use streams::{MOST_WAITS, Progress};

/// `CU_DEVICE_ATTRIBUTE_…`
const MULTIPROCESSOR_COUNT: c_int = 16;
const CAN_USE_STREAM_MEM_OPS_V1: c_int = 92;
const CAN_USE_STREAM_WAIT_VALUE_NOR: c_int = 123;
/// `CU_STREAM_CAPTURE_STATUS_NONE`
const CAPTURES_NOTHING: c_int = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: c_int = 2;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: c_uint = 1;

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
        // Also where it panics: the thread is the program's.
        let _popped = Finally(|| {
            let mut popped = 0;
            // SAFETY: the driver writes one handle; what is popped is what was pushed.
            unsafe { (self.context_pop)(&raw mut popped) };
        });
        Some(run())
    }

    /// A call about what is of this context, by a thread that may be in none, as ours are.
    fn by_any_thread(&self, context: u64, call: impl Fn() -> CuResult) -> CuResult {
        match call() {
            result::INVALID_CONTEXT => self.within(context, call).unwrap_or(result::UNKNOWN),
            told => told,
        }
    }

    /// Runs something that another thread's capture would not allow.
    pub(crate) fn relaxed<T>(&self, run: impl FnOnce() -> T) -> T {
        let before = self.set_capture_mode(RELAXED);
        let _as_before = Finally(|| {
            if let Some(before) = before {
                self.set_capture_mode(before);
            }
        });
        run()
    }

    /// The mode it was in.
    pub(crate) fn set_capture_mode(&self, mut mode: c_int) -> Option<c_int> {
        // SAFETY: the driver reads one number and writes another in its place.
        (unsafe { self.exchange_capture_mode?(&raw mut mode) } == result::SUCCESS).then_some(mode)
    }

    /// How many blocks of a function fit on an SM at once.
    pub(crate) fn blocks_per_sm(&self, function: u64, threads_per_block: u32, shared_bytes: u64) -> Option<u32> {
        let ask_driver = self.occupancy?;
        let (threads, shared) = (c_int::try_from(threads_per_block).ok()?, usize::try_from(shared_bytes).ok()?);
        // SAFETY: the function is the program's own, which is about to be launched; the driver writes one number.
        let blocks: c_int = ask(|out| unsafe { ask_driver(out, function, threads, shared) })?;
        u32::try_from(blocks).ok()
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

    fn attribute(&self, device: c_int, attribute: c_int) -> Option<c_int> {
        // SAFETY: the driver writes one number.
        ask(|out| unsafe { (self.device_attribute)(out, attribute, device) })
    }
}

/// Done when it is dropped.
struct Finally<F: Fn()>(F);

impl<F: Fn()> Drop for Finally<F> {
    fn drop(&mut self) {
        self.0();
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
