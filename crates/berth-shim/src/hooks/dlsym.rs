//! `dlsym`: how programs find the driver's functions by symbol. It answers with ours where there is one.
//!
//! Not in the library's own unit tests, which are a program and no preloaded library.

use std::ffi::{CStr, c_char, c_void};

use crate::hooks::Hook;
use crate::state::guarded;
use crate::sys::dl;

/// `dlsym` of the whole process. Almost always the C library's own, reached by a jump: what `RTLD_NEXT` means
/// depends on who calls, and that must not become this library.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        choose = sym choose,
    )
}

/// As above.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    std::arch::naked_asm!(
        "stp x0, x1, [sp, #-32]!",
        "str x30, [sp, #16]",
        "bl {choose}",
        "mov x16, x0",
        "ldr x30, [sp, #16]",
        "ldp x0, x1, [sp], #32",
        "br x16",
        choose = sym choose,
    )
}

/// The function that answers this search: the real `dlsym`, or ours for names of the driver.
unsafe extern "C" fn choose(handle: *mut c_void, name: *const c_char) -> *const c_void {
    // SAFETY: not null, so the caller promised a name; the second character is only read if there is a first.
    let is_drivers = !name.is_null() && unsafe { *name.cast::<u8>() == b'c' && *name.add(1).cast::<u8>() == b'u' };
    // SAFETY: as above. Other names are none of ours, and where they are looked for may depend on who asks, too.
    let is_hooked = || Hook::find(unsafe { CStr::from_ptr(name) }).is_some();
    if is_drivers && handle != libc::RTLD_NEXT && is_hooked() {
        return search_driver as *const c_void;
    }
    // Without a real one there is nothing to find.
    dl::real_dlsym().map_or(find_nothing as *const c_void, |dlsym| dlsym as *const c_void)
}

unsafe extern "C" fn find_nothing(_: *mut c_void, _: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}

unsafe extern "C" fn search_driver(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: `choose` has seen that it is a name.
    let name = unsafe { CStr::from_ptr(name) };
    let found = dl::search(handle, name);
    let replaced = guarded(|| {
        let hook = Hook::find(name)?;
        // Found here only because we are preloaded: is there a driver at all?
        let is_ours = found.cast_const() == hook.address;
        let is_there = !found.is_null() && (!is_ours || !dl::driver_function(name).is_null());
        Some(if is_there { hook.replace(found) } else { std::ptr::null_mut() })
    });
    replaced.unwrap_or(found)
}
