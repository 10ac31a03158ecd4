//! Handing out the library's own functions: `cuGetProcAddress`, and the names of results.

use std::ffi::{c_char, c_int, c_void};

use berth_proto::cuda::{self, GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, result};
use berth_proto::functions::{Found, resolve};

use crate::edge::{Answer, Out, Text};
use crate::exports;

/// `CU_GET_PROC_ADDRESS_LEGACY_STREAM` and `…_PER_THREAD_DEFAULT_STREAM`; nothing else is a flag.
const KNOWN_FLAGS: u64 = 1 | GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

/// Works before `cuInit`: the runtime library asks for `cuInit` itself this way.
pub(crate) fn proc_address(
    name: Text,
    out: Out<*const c_void>,
    cuda_version: c_int,
    flags: u64,
    status: Option<Out<c_int>>,
) -> Answer {
    let name = name.get()?;
    out.check()?;
    if flags & !KNOWN_FLAGS != 0 {
        return Err(result::INVALID_VALUE);
    }
    let version = u32::try_from(cuda_version).map_err(|_| result::INVALID_VALUE)?;
    let found = resolve(name, version, flags & GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM != 0);
    let (address, code) = match found {
        Found::Symbol(symbol) => (exports::address(symbol), 0),
        Found::NoSuchName => (None, 1),
        Found::VersionTooOld => (None, 2),
    };
    if let Some(status) = status {
        status.set_if_wanted(code);
    }
    out.set(address.unwrap_or(std::ptr::null()))?;
    if address.is_some() { Ok(()) } else { Err(result::NOT_FOUND) }
}

/// What the `_ptsz` twin of `cuGetProcAddress` does with flags that name no kind of stream.
pub(crate) fn per_thread(flags: u64) -> u64 {
    if flags == 0 { GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM } else { flags }
}

pub(crate) fn error_name(code: u32, out: Out<*const c_char>) -> Answer {
    describe(code, out, |(name, _)| name.as_ptr())
}

pub(crate) fn error_string(code: u32, out: Out<*const c_char>) -> Answer {
    describe(code, out, |(_, words)| words.as_ptr())
}

fn describe(
    code: u32,
    out: Out<*const c_char>,
    part: impl FnOnce((&'static std::ffi::CStr, &'static std::ffi::CStr)) -> *const c_char,
) -> Answer {
    match cuda::describe(code) {
        Some(texts) => out.set(part(texts)),
        None => {
            out.set(std::ptr::null())?;
            Err(result::INVALID_VALUE)
        }
    }
}
