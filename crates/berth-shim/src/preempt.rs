//! Work that a stop does not reach, because it has begun and takes long, is preempted while a stop is up.
//!
//! A thread of its own sleeps until work that takes long is submitted, and then until a word that this client waits for goes up: the page says
//! that it listens, and whoever raises the word wakes it. While a word is up it has the GPU take this process off, again and again, since the
//! GPU comes back to it whenever the other one has a pause. The call goes to the kernel's driver and not to libcuda, so no call of the program
//! waits for it. Where it cannot be done the thread ends, and long work keeps the GPU until it is over.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::client::Client;
use crate::sys::groups::{self, GROUPS};
use crate::sys::{futex, process};

/// Work that takes long and was submitted so long ago counts as under way: nobody knows when it was done.
const ARMED_FOR_NS: u64 = 500_000_000;
/// How often the GPU is taken from this process while a stop is up. A call takes 100 to 170 µs.
const AGAIN_NS: u64 = 150_000;
/// How long it sleeps at most: links come and go.
const LOOK_AGAIN_NS: u64 = 20_000_000;
const LOOK_WHILE_UP: Duration = Duration::from_micros(20);
const REST: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 128 << 10;

/// What the threads of the program tell this one.
#[derive(Debug, Default)]
pub(crate) struct Preemption {
    is_started: AtomicBool,
    last_long_ns: AtomicU64,
    /// 1 while the thread waits for work that takes long.
    rests: AtomicU32,
}

impl Preemption {
    fn is_armed(&self, now: u64) -> bool {
        now.saturating_sub(self.last_long_ns.load(Ordering::Acquire)) < ARMED_FOR_NS
    }

    fn rest(&self) {
        self.rests.store(1, Ordering::SeqCst);
        if !self.is_armed(process::now_ns()) {
            futex::wait(&self.rests, 1, REST);
        }
        self.rests.store(0, Ordering::SeqCst);
    }
}

/// Work that takes long is about to be submitted by one that yields. The first of it starts the thread.
pub(crate) fn note_long(client: &'static Client) {
    let of = &client.preemption;
    of.last_long_ns.store(process::now_ns(), Ordering::Release);
    if !of.is_started.swap(true, Ordering::SeqCst) {
        let builder = std::thread::Builder::new().name("berth-preempt".to_owned()).stack_size(STACK_BYTES);
        if let Err(why) = process::without_signals(|| builder.spawn(move || run(client))) {
            process::say(format_args!("long work is not preempted: start a thread: {why}"));
        }
    } else if of.rests.load(Ordering::SeqCst) != 0 && of.rests.swap(0, Ordering::SeqCst) != 0 {
        futex::wake(&of.rests);
    }
}

fn run(client: &'static Client) {
    let done = crate::state::guarded(|| {
        preempt(client);
        Some(())
    });
    if done.is_none() {
        process::say(format_args!("long work is not preempted any more"));
    }
}

fn preempt(client: &Client) {
    let Some(ioctl) = groups::real_ioctl() else { return };
    process::sleep_exactly();
    while client.is_up() {
        let begun = process::now_ns();
        if !client.preemption.is_armed(begun) {
            client.preemption.rest();
        } else if let Some(lane) = stopped(client) {
            if !GROUPS.preempt_all(|group| group.preempt(ioctl)) {
                return process::say(format_args!("long work is not preempted: the driver does not"));
            }
            client.ledger(lane).preempted.fetch_add(1, Ordering::Relaxed);
            while stopped(client).is_some() && process::now_ns().saturating_sub(begun) < AGAIN_NS {
                std::thread::sleep(LOOK_WHILE_UP);
            }
        } else {
            listen(client, begun);
        }
    }
}

/// The GPU on which the client has work and a stop is up.
fn stopped(client: &Client) -> Option<usize> {
    let reading = client.readers.enter();
    let is_up = |index: &usize| {
        let mut stops = client.lanes[*index].yields.iter().filter_map(|slot| slot.stop.get(&reading));
        stops.any(|stop| stop.word.load(Ordering::Acquire) != 0)
    };
    (0..client.lanes.len()).filter(|lane| client.ledger(*lane).busy.load(Ordering::Relaxed) != 0).find(is_up)
}

/// Sleeps until a word goes up, or for a while. A page that goes meanwhile only ends the sleep.
fn listen(client: &Client, now: u64) {
    let mut words = [std::ptr::null(); futex::MOST];
    let mut count = 0;
    let reading = client.readers.enter();
    let stops = client.lanes.iter().flat_map(|lane| &lane.yields).filter_map(|slot| slot.stop.get(&reading));
    for (word, stop) in words.iter_mut().zip(stops) {
        stop.listens.store(1, Ordering::SeqCst);
        *word = &raw const stop.word;
        count += 1;
    }
    drop(reading);
    if count == 0 {
        std::thread::sleep(Duration::from_nanos(LOOK_AGAIN_NS));
    } else {
        futex::wait_while_zero(&words[..count], now.saturating_add(LOOK_AGAIN_NS), now);
    }
}
