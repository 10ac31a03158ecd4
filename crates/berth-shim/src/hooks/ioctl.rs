//! `ioctl`: how libcuda speaks to the kernel's driver. It is passed on as it came; channel groups that come and go are noted.
//!
//! Not in the library's own unit tests, which are a program and no preloaded library.

use std::ffi::{c_int, c_ulong, c_void};

use crate::state::guarded;
use crate::sys::groups::{self, GROUPS};

/// `ioctl` of the whole process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(descriptor: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
    // A process without a C library's `ioctl` cannot have called this one.
    let Some(real) = groups::real_ioctl() else { return -1 };
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
