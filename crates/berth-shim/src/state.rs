//! Whether anything is to be minded: the one word that every hooked call looks at first.
//!
//! In the beginning it says that nobody has tried to attach yet; the first call does. Afterwards it says what our threads last found
//! to be wanted, or nothing, for good. While a daemon that has hung up is waited for, memory is minded: it is counted when the next comes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use berth_proto::cuda::STREAM_PER_THREAD;

use crate::attach::Connection;
use crate::capture::CAPTURES;
use crate::client::Client;
use crate::sys::driver::Driver;
use crate::sys::groups::GROUPS;
use crate::sys::process::KeepErrno;
use crate::sys::{current, process, socket};
use crate::{attach, environment};

/// Nobody has tried to attach yet.
const FIRST: u32 = 1;
/// Work is to be counted, measured, stopped or signalled.
pub(crate) const WORK: u32 = 2;
/// Memory is to be counted.
pub(crate) const MEMORY: u32 = 4 | ATTACHING;
/// A thread attaches, if there is nothing else: calls about memory wait for it, so that a cap counts from the first allocation on.
const ATTACHING: u32 = 8;
const LOOK_AGAIN: Duration = Duration::from_micros(100);

static MIND: AtomicU32 = AtomicU32::new(FIRST);
static LOGGING: AtomicU32 = AtomicU32::new(0);

/// One load: the whole cost of a call when there is nothing to mind.
#[inline]
pub(crate) fn minds(what: u32) -> bool {
    MIND.load(Ordering::Relaxed) & (FIRST | what) != 0
}

/// The client, if this is still wanted of it. The first call of a process attaches.
pub(crate) fn client(what: u32) -> Option<&'static Client> {
    let mind = MIND.load(Ordering::Relaxed);
    if mind & FIRST != 0 {
        let _errno = KeepErrno::new();
        attach_once();
    }
    if what == MEMORY && MIND.load(Ordering::Relaxed) == ATTACHING {
        wait_for_attachment();
    }
    match MIND.load(Ordering::Acquire) {
        0 | ATTACHING => None,
        mind if mind & what == 0 => None,
        _ => current::get(),
    }
}

/// The client, whatever is wanted of it, for those who take something away.
pub(crate) fn attached() -> Option<&'static Client> {
    current::get()
}

/// Whether there is anything left to mind; not after a panic.
pub(crate) fn is_minded() -> bool {
    MIND.load(Ordering::Relaxed) != 0
}

/// By our thread.
pub(crate) fn set(what: u32) {
    MIND.store(what, Ordering::Release);
}

pub(crate) fn is_logging() -> bool {
    LOGGING.load(Ordering::Relaxed) != 0
}

/// Runs what is our own in a call of the program: a panic ends our part for good and not the program, errno stays as it is.
pub(crate) fn guarded<T>(run: impl FnOnce() -> Option<T>) -> Option<T> {
    let _errno = KeepErrno::new();
    caught(run)
}

/// The same for what makes no system call, or keeps errno where it does.
#[inline]
pub(crate) fn caught<T>(run: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        set(0);
        if let Some(client) = current::get() {
            // What was begun may never be ended, so nothing waits for it.
            client.set_broken();
        }
        None
    })
}

/// Bounded: in a child that was forked meanwhile nobody attaches.
#[cold]
fn wait_for_attachment() {
    let _errno = KeepErrno::new();
    let until = Instant::now() + 2 * environment::wait();
    while MIND.load(Ordering::Relaxed) == ATTACHING {
        if Instant::now() > until {
            let _ = MIND.compare_exchange(ATTACHING, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Others that launch at the same time go on without.
fn attach_once() {
    let path = environment::socket();
    let driver = path.is_some().then(attach::driver_that_is_ready);
    if matches!(driver, Some(None))
        || MIND.compare_exchange(FIRST, ATTACHING, Ordering::Relaxed, Ordering::Relaxed).is_err()
    {
        // The driver is not there yet, or another thread is at it.
        return;
    }
    match path.zip(driver.flatten()) {
        Some((path, driver)) => attach(driver, path),
        None => set(0),
    }
    // Neither a daemon nor hope for one.
    let _ = MIND.compare_exchange(ATTACHING, 0, Ordering::Relaxed, Ordering::Relaxed);
}

fn attach(driver: Driver, path: PathBuf) {
    LOGGING.store(environment::wants_log().into(), Ordering::Relaxed);
    // Of this library's own runtime; a Rust program has another.
    std::panic::set_hook(Box::new(|why| process::say(format_args!("goes on without berth: {why}"))));
    let connection = attach::attach(&path).or_else(|why| {
        process::say(format_args!("goes on without berth: {why}"));
        // A daemon that is not there, or has too much to do, may be later.
        why.may_pass().then(|| Connection::none().ok()).flatten().ok_or(why)
    });
    let Ok(connection) = connection else { return };
    let is_there = connection.socket.is_some();
    process::watch_fork_and_exit(forked, ending);
    let client = current::set(Client::new(driver, connection));
    client.current_lane();
    match is_there {
        true => client.refresh_state(),
        false => set(MEMORY),
    }
    attach::start_threads(client, path);
}

/// In a forked child: it begins anew, and leaves what is the parent's alone.
extern "C" fn forked() {
    current::forget();
    CAPTURES.clear();
    GROUPS.clear();
    socket::close_in_child();
    MIND.store(FIRST, Ordering::Relaxed);
}

/// At the process's end, before the driver's own: nobody is kept stopped by us, and our thread leaves the driver alone.
extern "C" fn ending(_: *mut std::ffi::c_void) {
    MIND.store(0, Ordering::Relaxed);
    if let Some(client) = current::get() {
        client.end();
    }
}

/// What a thread's own default stream is called where it is told from those of others.
pub(crate) fn own_stream(thread: u64) -> u64 {
    thread << 8 | STREAM_PER_THREAD
}

/// A thread's own default stream goes with it.
pub(crate) fn thread_ended(number: u64) {
    CAPTURES.destroyed(own_stream(number));
    guarded(|| {
        attached()?.streams.abandon(number);
        Some(())
    });
}
