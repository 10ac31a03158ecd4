//! Of this process: clock, errno, fork and exit, signals of our own thread, the log.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

unsafe extern "C" {
    // What `pthread_atfork` and `atexit` call; unlike these they are in the shared C library since long ago.
    fn __register_atfork(
        prepare: Option<extern "C" fn()>,
        parent: Option<extern "C" fn()>,
        child: Option<extern "C" fn()>,
        library: *mut c_void,
    ) -> c_int;
    fn __cxa_atexit(function: extern "C" fn(*mut c_void), argument: *mut c_void, library: *mut c_void) -> c_int;
}

/// `CLOCK_MONOTONIC`.
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is written by the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec.cast_unsigned())
}

/// Restores errno when it goes: what we do must not be seen in it.
#[derive(Debug)]
pub(crate) struct KeepErrno(c_int);

impl KeepErrno {
    pub(crate) fn new() -> Self {
        // SAFETY: the location is this thread's own.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// A number of this thread that no other thread of the process ever has.
pub(crate) fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NUMBER: Leaving = Leaving(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    NUMBER.try_with(|number| number.0).unwrap_or(0)
}

/// Its default stream's place is given back with a thread.
struct Leaving(u64);

impl Drop for Leaving {
    fn drop(&mut self) {
        crate::state::thread_ended(self.0);
    }
}

/// Has `child` run in every forked child, and `exit` before the driver's own end. Once, however often it is called.
pub(crate) fn watch_fork_and_exit(child: extern "C" fn(), exit: extern "C" fn(*mut c_void)) {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    if WATCHED.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: the functions are code of this library, which is never unloaded: it is preloaded.
    unsafe {
        __register_atfork(None, None, Some(child), std::ptr::null_mut());
        __cxa_atexit(exit, std::ptr::null_mut(), std::ptr::null_mut());
    }
}

/// Runs `start` with all signals blocked, so that a thread started by it inherits that.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are written before they are read, and are this frame's own.
    let mut before = unsafe { std::mem::zeroed::<libc::sigset_t>() };
    // SAFETY: as above.
    unsafe {
        let mut all = std::mem::zeroed::<libc::sigset_t>();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let started = start();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    started
}

/// This thread's sleeps end within a microsecond of what they ask for, not 50.
pub(crate) fn sleep_exactly() {
    // SAFETY: the call takes integers only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000, 0, 0, 0) };
}

/// To standard error, if asked for; never to standard output.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    if crate::state::is_logging() {
        let line = format!("berth-shim: {text}\n");
        // SAFETY: the pointer and the length are of the same text.
        unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
    }
}
