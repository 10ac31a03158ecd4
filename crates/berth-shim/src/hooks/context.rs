//! Contexts that go: what we have in them is taken away first.

use std::ffi::c_int;

use crate::state::{self, guarded};

fn context_goes(context: u64) {
    guarded(|| {
        state::attached()?.forget_context(context);
        Some(())
    });
}

fn device_goes(device: c_int, with_memory: bool) {
    guarded(|| {
        state::attached()?.forget_device(device, with_memory);
        Some(())
    });
}

crate::hooks::hooks! {
    cuCtxDestroy: (context: u64) |real, _default| {
        context_goes(context);
        // SAFETY: the caller's own arguments, as in all of these.
        unsafe { real(context) }
    };
    cuCtxDestroy_v2: (context: u64) |real, _default| {
        context_goes(context);
        // SAFETY: as above.
        unsafe { real(context) }
    };
    // Others may still have the primary context, so its memory may stay: it is freed by name.
    cuDevicePrimaryCtxRelease: (device: c_int) |real, _default| {
        device_goes(device, false);
        // SAFETY: as above.
        unsafe { real(device) }
    };
    cuDevicePrimaryCtxRelease_v2: (device: c_int) |real, _default| {
        device_goes(device, false);
        // SAFETY: as above.
        unsafe { real(device) }
    };
    cuDevicePrimaryCtxReset: (device: c_int) |real, _default| {
        device_goes(device, true);
        // SAFETY: as above.
        unsafe { real(device) }
    };
    cuDevicePrimaryCtxReset_v2: (device: c_int) |real, _default| {
        device_goes(device, true);
        // SAFETY: as above.
        unsafe { real(device) }
    };
}
