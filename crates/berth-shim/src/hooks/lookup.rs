//! `cuGetProcAddress`: how programs find the driver's functions by version and kind of default stream. It answers with ours where there
//! is one; which ABI is meant is for the one list to say.

use std::ffi::{CStr, c_char, c_int, c_void};

use berth_proto::cuda::{CuResult, DRIVER_VERSION, GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, result};
use berth_proto::functions::{Found, resolve};

use crate::hooks::{Default, Hook};
use crate::state::guarded;

/// Longer than the name of any driver function.
const LONGEST_NAME: usize = 96;

crate::hooks::hooks! {
    cuGetProcAddress: (name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64) |real, default| {
        // SAFETY: the caller's own arguments.
        let answer = unsafe { real(name, out, version, flags) };
        // SAFETY: as above.
        replace(answer, name, out, version, per_thread(flags, default), |out| unsafe {
            real(name, out, DRIVER_VERSION.cast_signed(), flags)
        })
    };
    cuGetProcAddress_v2 / cuGetProcAddress_v2_ptsz: (
        name: *const c_char, out: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_int,
    ) |real, default| {
        // SAFETY: the caller's own arguments.
        let answer = unsafe { real(name, out, version, flags, status) };
        // SAFETY: as above; the status may be left out.
        replace(answer, name, out, version, per_thread(flags, default), |out| unsafe {
            real(name, out, DRIVER_VERSION.cast_signed(), flags, std::ptr::null_mut())
        })
    };
}

/// Flags that name no kind of stream leave it to the function.
fn per_thread(flags: u64, default: Default) -> bool {
    match default {
        Default::Legacy => flags & GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0,
        Default::PerThread => flags == 0 || flags & GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0,
    }
}

/// Puts our function where the driver has put its own. `ask` asks again, for the newest version that our list covers.
fn replace(
    answer: CuResult,
    name: *const c_char,
    out: *mut *mut c_void,
    version: c_int,
    per_thread: bool,
    ask: impl FnOnce(*mut *mut c_void) -> CuResult,
) -> CuResult {
    if answer != result::SUCCESS || name.is_null() || out.is_null() {
        return answer;
    }
    guarded(|| {
        // SAFETY: the driver has succeeded, so `name` is a name and `out` has its answer.
        let (name, found) = unsafe { (CStr::from_ptr(name), *out) };
        let version = u32::try_from(version).ok()?;
        let Found::Symbol(symbol) = resolve(name.to_str().ok()?, version, per_thread) else { return None };
        let hook = Hook::find(&c_name(symbol)?)?;
        if version > DRIVER_VERSION {
            // A driver newer than the list may mean an ABI that the list does not have.
            let mut listed = std::ptr::null_mut();
            if ask(&raw mut listed) != result::SUCCESS || listed != found {
                return None;
            }
        }
        if !found.is_null() {
            // SAFETY: as above.
            unsafe { *out = hook.replace(found) };
        }
        Some(())
    });
    answer
}

/// A copy that ends with a zero, without allocating: a search may come from within an allocator.
fn c_name(symbol: &str) -> Option<Name> {
    let mut name = Name([0; LONGEST_NAME]);
    name.0.get_mut(..symbol.len()).filter(|_| symbol.len() < LONGEST_NAME)?.copy_from_slice(symbol.as_bytes());
    Some(name)
}

struct Name([u8; LONGEST_NAME]);

impl std::ops::Deref for Name {
    type Target = CStr;

    fn deref(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or(c"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_function_has_a_name_that_fits() {
        for function in berth_proto::functions::DRIVER_FUNCTIONS {
            assert_eq!(c_name(function.symbol).unwrap().to_str(), Ok(function.symbol));
        }
    }

    #[test]
    fn the_kind_of_default_stream_is_told_by_flags_or_else_by_the_function() {
        assert!(!per_thread(0, Default::Legacy) && per_thread(2, Default::Legacy));
        assert!(per_thread(0, Default::PerThread) && per_thread(2, Default::PerThread));
        assert!(!per_thread(1, Default::PerThread) && !per_thread(1, Default::Legacy));
    }
}
