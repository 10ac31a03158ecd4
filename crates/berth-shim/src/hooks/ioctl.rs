//! `ioctl`: how libcuda speaks to the kernel's driver. It is passed on as it came; channel groups that come and go are noted.
//!
//! Not in the library's own unit tests, which are a program and no preloaded library.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::state::guarded;
use crate::sys::groups::{self, GROUPS, Ioctl};

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// `ioctl` of the whole process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    let known = REAL.load(Ordering::Relaxed);
    let real = if known.is_null() {
        // A process without a C library's `ioctl` cannot have called this one.
        let Some(real) = groups::real_ioctl() else { return -1 };
        REAL.store(real as *mut c_void, Ordering::Relaxed);
        real
    } else {
        // SAFETY: it was stored above.
        unsafe { std::mem::transmute::<*mut c_void, Ioctl>(known) }
    };
    // SAFETY: the caller's own arguments.
    let answer = unsafe { real(descriptor, request, argument) };
    if answer == 0 && groups::matters(request) {
        guarded(|| {
            // SAFETY: the driver has just taken it.
            unsafe { GROUPS.note(descriptor, request, argument) };
            Some(())
        });
    }
    answer
}
