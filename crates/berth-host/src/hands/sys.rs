//! The ptrace calls that hold one thread of another process.

use std::io;
use std::ptr;

/// A thread that is held, or will be as soon as it could run; dropped, it goes on. Belongs to the thread that made it.
#[derive(Debug)]
pub struct Tracee {
    thread: libc::pid_t,
    /// ptrace is of the thread that attached.
    _here: std::marker::PhantomData<*const ()>,
}

impl Tracee {
    /// Returns at once: a thread that is frozen or stopped is held when that is over, before it executes anything.
    pub fn seize(thread: u32) -> io::Result<Tracee> {
        let thread = libc::pid_t::try_from(thread).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        request(libc::PTRACE_SEIZE, thread)?;
        let tracee = Tracee { thread, _here: std::marker::PhantomData };
        request(libc::PTRACE_INTERRUPT, thread)?;
        Ok(tracee)
    }

    /// It has ended, and whoever waits for its process is told so only when it is no longer traced.
    pub fn has_ended(&self) -> bool {
        let mut status = 0;
        // SAFETY: `status` outlives the call, which does not wait.
        let waited = unsafe { libc::waitpid(self.thread, &raw mut status, libc::WNOHANG | libc::__WALL) };
        waited == self.thread && (libc::WIFEXITED(status) || libc::WIFSIGNALED(status))
    }
}

impl Drop for Tracee {
    /// Detaching works only on a thread that is held by now; it is, within microseconds of being able to run. If it is not to
    /// be had, the end of this thread detaches it.
    fn drop(&mut self) {
        const ATTEMPTS: u32 = 100;
        for _ in 0..ATTEMPTS {
            match request(libc::PTRACE_DETACH, self.thread) {
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                _ => return,
            }
        }
    }
}

fn request(request: libc::c_uint, thread: libc::pid_t) -> io::Result<()> {
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: none of the requests made here reads or writes memory; both pointers are null, as the manual asks.
    let answer = unsafe { libc::ptrace(request, thread, nothing, nothing) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
