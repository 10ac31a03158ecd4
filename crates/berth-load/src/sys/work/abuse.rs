//! What a program can do to the libraries inside of it.

use std::ffi::c_int;

use rustix::process::Pid;

unsafe extern "C" {
    fn fork() -> c_int;
    fn close(descriptor: c_int) -> c_int;
}

/// Standard input, output and error are the program's own.
const FIRST_OF_OTHERS: c_int = 3;
const LAST: c_int = 1_023;

/// Runs `work` in a child that has only this thread; the child ends with what it answers, by the usual way out.
pub fn in_a_child(work: impl FnOnce() -> i32) -> Option<Pid> {
    // SAFETY: the child has one thread. What it calls may find locks held for ever that other threads had; that is what is tried here,
    // and whoever calls this waits for it with a bound.
    match unsafe { fork() } {
        0 => std::process::exit(work()),
        pid => Pid::from_raw(pid),
    }
}

/// Closes every descriptor but the first three, whoever opened it.
pub fn close_all() {
    for descriptor in FIRST_OF_OTHERS..=LAST {
        // SAFETY: no memory is touched. Owners of these descriptors get errors, or others' files; nobody of this program is one of them.
        unsafe { close(descriptor) };
    }
}
