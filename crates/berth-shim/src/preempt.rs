//! Work that a stop does not reach, because it has begun and takes long, is preempted while a stop is up.
//!
//! A thread of its own sleeps until work that takes long is submitted, and then until a word that this client waits for goes up: the page says
//! that it listens, and whoever raises the word wakes it. While a word is up it has the GPU take this process off, again and again, since the
//! GPU comes back to it whenever the other one has a pause; with a short slice of its own (`slices.rs`) once with each raise. The call goes
//! to the kernel's driver and not to libcuda, so no call of the program waits for it. Where it cannot be done the thread ends, and long work
//! keeps the GPU until it is over.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::client::Client;
use crate::lane::Lane;
use crate::sys::groups::{self, GROUPS};
use crate::sys::{futex, process};

/// Work that takes long and was submitted so long ago counts as under way: nobody knows when it was done.
const ARMED_FOR_NS: u64 = 500_000_000;
/// How often the GPU is taken from this process while a stop is up; with a slice of its own only when one is raised anew. A call takes 100 to
/// 170 µs.
const AGAIN_NS: u64 = 150_000;
/// How long it sleeps at most: links come and go.
const LOOK_AGAIN_NS: u64 = 20_000_000;
const REST: Duration = Duration::from_secs(1);
/// Tries in a row that fail before it is not tried any more.
const GIVEN_UP_AFTER: u32 = 50;
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
    /// Such work may be under way: it was submitted a short while ago, or since when the client has work without a pause.
    pub(crate) fn is_armed(&self, client: &Client, now: u64) -> bool {
        let last_ns = self.last_long_ns.load(Ordering::Acquire);
        let has_had_work_since = |(index, lane): (usize, &Lane)| {
            let ledger = client.ledger(index);
            let is_busy = ledger.busy.load(Ordering::Relaxed) != 0;
            lane.is_yielding() && is_busy && ledger.busy_since_ns.load(Ordering::Relaxed) <= last_ns
        };
        let is_recent = now.saturating_sub(last_ns) < ARMED_FOR_NS;
        last_ns > 0 && (is_recent || client.lanes.iter().enumerate().any(has_had_work_since))
    }
}

fn rest(client: &Client) {
    let of = &client.preemption;
    of.rests.store(1, Ordering::SeqCst);
    if !of.is_armed(client, process::now_ns()) {
        listen(client, false);
        futex::wait(&of.rests, 1, REST);
    }
    of.rests.store(0, Ordering::SeqCst);
}

/// Whoever raises a word need not wake anybody while nobody listens.
fn listen(client: &Client, listens: bool) {
    let reading = client.readers.enter();
    let slots = client.lanes.iter().flat_map(|lane| &lane.yields);
    slots
        .filter_map(|slot| slot.stop.get(&reading))
        .for_each(|stop| stop.listens.store(listens.into(), Ordering::SeqCst));
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
    // What was up when it was last preempted, and when that was.
    let (mut last, mut last_ns, mut failed) = (0, 0, 0);
    while client.is_up() {
        let now = process::now_ns();
        if !client.preemption.is_armed(client, now) {
            rest(client);
            continue;
        }
        let words = Words::look(client);
        let Some(lane) = words.stopped else {
            last = 0;
            words.wait(now + LOOK_AGAIN_NS, now);
            continue;
        };
        let has_slice = client.orders(lane).yield_slice_us.load(Ordering::Relaxed) != 0;
        let due_ns = last_ns + if has_slice { LOOK_AGAIN_NS } else { AGAIN_NS };
        if words.up == last && now < due_ns {
            words.wait(due_ns, now);
            continue;
        }
        if !GROUPS.preempt_all(|group| group.preempt(ioctl)) {
            failed += 1;
            if failed == GIVEN_UP_AFTER {
                listen(client, false);
                return process::say(format_args!("long work is not preempted: the driver does not"));
            }
            // Groups come and go with contexts.
            std::thread::sleep(Duration::from_nanos(LOOK_AGAIN_NS));
            continue;
        }
        failed = 0;
        client.ledger(lane).preempted.fetch_add(1, Ordering::Relaxed);
        (last, last_ns) = (words.up, process::now_ns());
    }
}

/// The words that this client waits for, as they were at a look.
struct Words {
    all: [(*const AtomicU32, u32); futex::MOST],
    count: usize,
    /// What is up, as one number that differs with each raise; 0 where nothing is.
    up: u32,
    /// A GPU on which the client has work and a stop is up.
    stopped: Option<usize>,
}

impl Words {
    /// From now on whoever raises one of them wakes this thread.
    fn look(client: &Client) -> Self {
        let mut words = Self { all: [(std::ptr::null(), 0); futex::MOST], count: 0, up: 0, stopped: None };
        let reading = client.readers.enter();
        for (index, lane) in client.lanes.iter().enumerate().filter(|(_, lane)| lane.is_yielding()) {
            let is_busy = client.ledger(index).busy.load(Ordering::Relaxed) != 0;
            // Whoever was freed obeys none, and need not get out of its way.
            let obeyed = lane.yields.iter().filter(|slot| !slot.is_free.load(Ordering::Relaxed));
            for stop in obeyed.filter_map(|slot| slot.stop.get(&reading)) {
                stop.listens.store(1, Ordering::SeqCst);
                let value = stop.word.load(Ordering::SeqCst);
                if let Some(place) = words.all.get_mut(words.count) {
                    *place = (&raw const stop.word, value);
                    words.count += 1;
                }
                if value != 0 && is_busy {
                    // Not 0, whatever they add up to.
                    words.up = words.up.wrapping_add(value).max(1);
                    words.stopped = Some(index);
                }
            }
        }
        words
    }

    /// Sleeps until one of them changes, or until then. A page that goes meanwhile only ends the sleep.
    fn wait(&self, until_ns: u64, now: u64) {
        if self.count == 0 {
            std::thread::sleep(Duration::from_nanos(until_ns.saturating_sub(now)));
        } else {
            futex::wait_while(&self.all[..self.count], until_ns, now);
        }
    }
}
