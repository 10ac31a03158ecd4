//! A driver library that does nothing, for tests of the C edge: the tests compile this file to a shared object.
//!
//! It writes one line per call to the file named by `FAKE_CUDA_LOG`, fails the call named by `FAKE_CUDA_FAIL` and, by
//! `--cfg`, has the newer `cuGetProcAddress_v2` (`entry_v2`), the older `cuGetProcAddress` (`entry_v1`) or neither.
//! Handles are numbers it checks when they come back.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io::Write;

const CONTEXT: usize = 0xC0;
const MODULE: usize = 0xD0;
const FUNCTION: usize = 0xF0;
const STREAM: usize = 0x50;
const OUT_OF_MEMORY: u32 = 2;
const NO_DEVICE: u32 = 100;
const INVALID_HANDLE: u32 = 400;
const TOTAL: usize = 1 << 30;

fn call(name: &str, detail: &str, valid: bool) -> u32 {
    if let Ok(path) = std::env::var("FAKE_CUDA_LOG") {
        let mut log = std::fs::File::options().create(true).append(true).open(path).unwrap();
        log.write_all(format!("{name} {detail}\n").as_bytes()).unwrap();
    }
    match std::env::var("FAKE_CUDA_FAIL") {
        Ok(failing) if failing == name && name == "cuInit" => NO_DEVICE,
        Ok(failing) if failing == name => 719,
        _ if valid => 0,
        _ => INVALID_HANDLE,
    }
}

macro_rules! exported {
    ($($name:ident($($argument:ident: $type:ty),*) $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            extern "C" fn $name($($argument: $type),*) -> u32 $body
        )*

        /// By exported symbol.
        #[cfg(any(entry_v1, entry_v2))]
        fn address(symbol: &str) -> *const c_void {
            match symbol {
                $(stringify!($name) => $name as *const c_void,)*
                _ => std::ptr::null(),
            }
        }
    };
}

fn put<T>(place: *mut T, value: T) {
    // SAFETY: the driver API's contract: the caller gives a place for the result.
    unsafe { place.write(value) }
}

exported! {
    cuInit(_flags: c_uint) { call("cuInit", "", true) }
    cuDriverGetVersion(version: *mut c_int) {
        put(version, 12_345);
        call("cuDriverGetVersion", "", true)
    }
    cuGetErrorName(code: u32, name: *mut *const c_char) {
        let text = match code {
            OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
            NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
            719 => c"CUDA_ERROR_LAUNCH_FAILED",
            _ => return 1,
        };
        put(name, text.as_ptr());
        0
    }
    cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        put(device, ordinal);
        if ordinal > 0 { 101 } else { call("cuDeviceGet", "", true) }
    }
    cuDeviceGetName(name: *mut c_char, room: c_int, _device: c_int) {
        for (index, byte) in b"fake\0".iter().enumerate().take(room as usize) {
            // SAFETY: within the room the caller gave.
            unsafe { name.add(index).write(*byte as c_char) }
        }
        call("cuDeviceGetName", "", true)
    }
    cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) {
        put(bytes, TOTAL);
        call("cuDeviceTotalMem", "", true)
    }
    cuCtxCreate_v2(context: *mut usize, flags: c_uint, _device: c_int) {
        put(context, CONTEXT);
        call("cuCtxCreate", "", flags == 4)
    }
    cuCtxDestroy_v2(context: usize) { call("cuCtxDestroy", "", context == CONTEXT) }
    cuModuleLoadData(module: *mut usize, image: *const c_char) {
        put(module, MODULE);
        // SAFETY: PTX is zero-terminated text.
        let text = unsafe { CStr::from_ptr(image) };
        call("cuModuleLoadData", "", text.to_bytes().ends_with(b"ret;\n}\n"))
    }
    cuModuleUnload(module: usize) { call("cuModuleUnload", "", module == MODULE) }
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char) {
        put(function, FUNCTION);
        // SAFETY: names are zero-terminated text.
        let name = unsafe { CStr::from_ptr(name) };
        call("cuModuleGetFunction", "", module == MODULE && name == c"matmul")
    }
    cuStreamCreate(stream: *mut usize, _flags: c_uint) {
        put(stream, STREAM);
        call("cuStreamCreate", "", true)
    }
    cuStreamDestroy_v2(stream: usize) { call("cuStreamDestroy", "", stream == STREAM) }
    cuStreamSynchronize(stream: usize) { call("cuStreamSynchronize", "", stream == STREAM) }
    cuMemAlloc_v2(memory: *mut u64, bytes: usize) {
        if bytes > TOTAL {
            return OUT_OF_MEMORY;
        }
        put(memory, 0xA000 + bytes as u64);
        call("cuMemAlloc", &bytes.to_string(), true)
    }
    cuMemFree_v2(memory: u64) { call("cuMemFree", "", memory > 0xA000) }
    cuMemcpyHtoD_v2(to: u64, _from: *const c_void, bytes: usize) {
        call("cuMemcpyHtoD", &bytes.to_string(), to == 0xA000 + bytes as u64)
    }
    cuMemcpyDtoH_v2(_to: *mut c_void, from: u64, bytes: usize) {
        call("cuMemcpyDtoH", &bytes.to_string(), from == 0xA000 + bytes as u64)
    }
    cuLaunchKernel(
        function: usize, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, _shared: c_uint,
        stream: usize, parameters: *mut *mut c_void, _extra: *mut *mut c_void
    ) {
        // SAFETY: the kernel has four parameters, the fourth a u32.
        let n = unsafe { (*parameters.add(3)).cast::<u32>().read() };
        let detail = format!("{gx}x{gy}x{gz} {bx}x{by}x{bz} n={n}");
        call("cuLaunchKernel", &detail, function == FUNCTION && stream == STREAM)
    }
}

/// What the real driver answers: the newest ABI of the name that the version asked for knows.
#[cfg(any(entry_v1, entry_v2))]
fn find(name: *const c_char, found: *mut *const c_void, version: c_int) -> u32 {
    // SAFETY: names are zero-terminated text.
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
    call("cuGetProcAddress", &format!("{name} {version}"), true);
    let second = address(&format!("{name}_v2"));
    put(found, if second.is_null() { address(name) } else { second });
    0
}

#[cfg(entry_v1)]
#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress(name: *const c_char, found: *mut *const c_void, version: c_int, _flags: u64) -> u32 {
    find(name, found, version)
}

#[cfg(entry_v2)]
#[unsafe(no_mangle)]
extern "C" fn cuGetProcAddress_v2(
    name: *const c_char,
    found: *mut *const c_void,
    version: c_int,
    _flags: u64,
    status: *mut c_int,
) -> u32 {
    put(status, 0);
    find(name, found, version)
}
