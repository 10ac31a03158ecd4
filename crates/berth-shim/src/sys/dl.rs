//! The real functions: the dynamic linker's own `dlsym`, and the driver library's symbols.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

pub(crate) type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, symbol: *const c_char, version: *const c_char) -> *mut c_void;
}

/// The symbol versions under which C libraries have had `dlsym`.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.2.5", c"GLIBC_2.17"];

static REAL_DLSYM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// A handle of the driver library, once one of its functions was seen.
static DRIVER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// `None` only in a process whose C library has no `dlsym`, where nobody can call ours either.
pub(crate) fn real_dlsym() -> Option<Dlsym> {
    let mut address = REAL_DLSYM.load(Ordering::Relaxed);
    if address.is_null() {
        // SAFETY: the names are C strings; the call only searches what is loaded.
        let found = |version: &CStr| unsafe { dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        address = VERSIONS.iter().map(|version| found(version)).find(|address| !address.is_null())?;
        REAL_DLSYM.store(address, Ordering::Relaxed);
    }
    // SAFETY: it is the C library's function of that name, whose type is part of the C library's interface.
    Some(unsafe { std::mem::transmute::<*mut c_void, Dlsym>(address) })
}

/// What the real `dlsym` finds; null for nothing.
pub(crate) fn search(handle: *mut c_void, symbol: &CStr) -> *mut c_void {
    // SAFETY: the handle is one of the linker's own, or one that a caller of `dlsym` passed; the name is a C string.
    real_dlsym().map_or(std::ptr::null_mut(), |dlsym| unsafe { dlsym(handle, symbol.as_ptr()) })
}

/// Remembers the library that this function is in as the driver's.
pub(crate) fn remember(function: *mut c_void) {
    if !DRIVER.load(Ordering::Relaxed).is_null() {
        return;
    }
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: `info` is written by the call, and its name belongs to the loaded library.
    let known = unsafe { libc::dladdr(function, &raw mut info) } != 0 && !info.dli_fname.is_null();
    if known {
        // SAFETY: the name is a C string. The library is loaded; this only adds a reference, which is kept for good.
        let handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        DRIVER.store(handle, Ordering::Relaxed);
    }
}

/// A function of the driver library, past our own of the same name; null if there is none in this process.
pub(crate) fn driver_function(symbol: &CStr) -> *mut c_void {
    let mut driver = DRIVER.load(Ordering::Relaxed);
    if driver.is_null() {
        // SAFETY: the name is a C string; nothing is loaded by this.
        driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        DRIVER.store(driver, Ordering::Relaxed);
    }
    let found = if driver.is_null() { driver } else { search(driver, symbol) };
    if found.is_null() { search(libc::RTLD_NEXT, symbol) } else { found }
}
