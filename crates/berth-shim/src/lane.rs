//! One GPU of the client: the links it has there, and whether it has work.
//!
//! Calls of the program and our thread meet here, on atomics alone. Who submits counts first and raises after; who lowers looks at the
//! count again afterwards. So no work is submitted with the words down and left like that.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use berth_proto::shim::Stop;

use crate::linger::Linger;
use crate::long::Long;
use crate::pace::Pace;
use crate::sys::driver::MOST_WAITS;
use crate::sys::futex;
use crate::sys::stop::{Reading, StopSlot};
use crate::told::Told;

/// The most that one client is yielded to by on a GPU. Links beyond are passed over: those clients are not stopped.
const MOST_LEADS: usize = 64;
/// An address that the GPU does not know yet, and one it will not.
const UNREGISTERED: u64 = 0;
const UNREGISTRABLE: u64 = 1;

#[derive(Debug)]
pub(crate) struct Lane {
    /// Negative until the GPU is used.
    device: AtomicI32,
    pub(crate) uuid: OnceLock<[u8; 16]>,
    pub(crate) waits_on_gpu: AtomicBool,
    pub(crate) divides: AtomicBool,
    pub(crate) sm_count: AtomicU32,
    /// The daemon has been told of it, and has had time to answer.
    pub(crate) is_ordered: AtomicBool,
    pub(crate) leads: [StopSlot; MOST_LEADS],
    pub(crate) yields: [YieldSlot; MOST_WAITS],
    leading: AtomicU32,
    yielding: AtomicU32,
    raised: AtomicU32,
    raises: AtomicU32,
    /// Pieces of work whose call has begun, and has ended.
    pub(crate) started: AtomicU64,
    pub(crate) finished: AtomicU64,
    /// Until when work in streams without a place is thought to last.
    pub(crate) blind_until_ns: AtomicU64,
    /// When the request that is under way began; 0 if none is.
    pub(crate) request_began_ns: AtomicU64,
    /// Nothing is thought to be under way.
    pub(crate) is_idle: AtomicBool,
    /// Each round, an event is recorded behind what every stream had when it began. By then old waits have passed.
    pub(crate) round: AtomicU64,
    /// The last round that all streams have passed, and when that was seen.
    pub(crate) passed: AtomicU64,
    pub(crate) passed_at_ns: AtomicU64,
    pub(crate) pace: Pace,
    pub(crate) told: Told,
    pub(crate) linger: Linger,
    pub(crate) long: Mutex<Long>,
}

/// A link on which the client yields.
#[derive(Debug, Default)]
pub(crate) struct YieldSlot {
    pub(crate) stop: StopSlot,
    /// Not waited for: its stop was given up, or the daemon has freed this client.
    pub(crate) is_free: AtomicBool,
    /// The page is closed to others, so that the GPU may look at it.
    pub(crate) is_closed: AtomicBool,
    address: AtomicU64,
    /// The context in which the GPU was told of it.
    context: AtomicU64,
}

/// The side of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Leads,
    Yields,
}

impl Lane {
    pub(crate) fn new() -> Self {
        Self {
            device: AtomicI32::new(-1),
            uuid: OnceLock::new(),
            waits_on_gpu: AtomicBool::new(false),
            divides: AtomicBool::new(false),
            sm_count: AtomicU32::new(0),
            is_ordered: AtomicBool::new(false),
            leads: std::array::from_fn(|_| StopSlot::default()),
            yields: std::array::from_fn(|_| YieldSlot::default()),
            leading: AtomicU32::new(0),
            yielding: AtomicU32::new(0),
            raised: AtomicU32::new(0),
            raises: AtomicU32::new(0),
            started: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            blind_until_ns: AtomicU64::new(0),
            request_began_ns: AtomicU64::new(0),
            is_idle: AtomicBool::new(true),
            round: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            passed_at_ns: AtomicU64::new(0),
            pace: Pace::default(),
            told: Told::default(),
            linger: Linger::default(),
            long: Mutex::default(),
        }
    }

    pub(crate) fn device(&self) -> Option<c_int> {
        Some(self.device.load(Ordering::Acquire)).filter(|device| *device >= 0)
    }

    pub(crate) fn open(&self, device: c_int) {
        self.device.store(device, Ordering::Release);
    }

    pub(crate) fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_yielding(&self) -> bool {
        self.yielding.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst) != 0
    }

    /// Before work is submitted and after it was counted; true if the words were down.
    pub(crate) fn raise(&self, reading: &Reading<'_>) -> bool {
        if self.is_raised() || self.raised.swap(1, Ordering::SeqCst) != 0 {
            return false;
        }
        self.store_all(reading);
        true
    }

    /// Another request has begun while the words are still up: whoever listens may have come back to the GPU in between, and is told.
    pub(crate) fn raise_anew(&self, reading: &Reading<'_>) {
        let value = self.next_raise();
        let stops = self.leads.iter().filter_map(|slot| slot.get(reading)).filter(|stop| !is_muted(stop));
        for stop in stops.filter(|stop| stop.listens.load(Ordering::SeqCst) != 0 && self.is_raised()) {
            stop.word.store(value, Ordering::SeqCst);
            futex::wake(&stop.word);
        }
    }

    /// Lowers the words, unless work has begun since `started` was read; true if they stay down.
    pub(crate) fn lower(&self, reading: &Reading<'_>, started: u64) -> bool {
        self.let_go(reading);
        if self.started.load(Ordering::SeqCst) == started {
            return true;
        }
        self.raised.store(1, Ordering::SeqCst);
        self.store_all(reading);
        false
    }

    /// A number that differs each time, so that whoever is stopped sees that it was let go in between. Odd: the daemon's are even.
    fn store_all(&self, reading: &Reading<'_>) {
        let value = self.next_raise();
        for stop in self.leads.iter().filter_map(|slot| slot.get(reading)).filter(|stop| !is_muted(stop)) {
            stop.word.store(value, Ordering::SeqCst);
            wake(stop);
        }
    }

    fn next_raise(&self) -> u32 {
        self.raises.fetch_add(2, Ordering::Relaxed) | 1
    }

    /// While the words are up: raises those anew that somebody has let go of. Who was freed for a while has had that while.
    pub(crate) fn raise_again(&self, reading: &Reading<'_>) {
        let value = self.next_raise();
        for stop in self.leads.iter().filter_map(|slot| slot.get(reading)).filter(|stop| !is_muted(stop)) {
            if stop.word.compare_exchange(0, value, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
                wake(stop);
            }
        }
        if !self.is_raised() {
            // Lowered meanwhile, by the process's end.
            self.let_go(reading);
        }
    }

    /// Of a page that is put in while the words are up.
    pub(crate) fn raise_one(&self, stop: &Stop) {
        if self.is_raised() && !is_muted(stop) {
            stop.word.store(self.next_raise(), Ordering::SeqCst);
            wake(stop);
        }
    }

    /// Sets all words of those that yield to this client to 0, whatever is under way.
    pub(crate) fn let_go(&self, reading: &Reading<'_>) {
        self.raised.store(0, Ordering::SeqCst);
        for stop in self.leads.iter().filter_map(|slot| slot.get(reading)) {
            stop.word.store(0, Ordering::SeqCst);
        }
    }

    /// Sets all words that this client waits for to 0.
    pub(crate) fn free(&self, reading: &Reading<'_>) {
        for stop in self.yields.iter().filter_map(|slot| slot.stop.get(reading)) {
            stop.word.store(0, Ordering::SeqCst);
        }
    }

    /// One link more or less on this side.
    pub(crate) fn count(&self, side: Side, more: bool) {
        let counter = match side {
            Side::Leads => &self.leading,
            Side::Yields => &self.yielding,
        };
        if more {
            counter.fetch_add(1, Ordering::SeqCst)
        } else {
            counter.fetch_sub(1, Ordering::SeqCst)
        };
    }

    /// What was registered with a context is gone with it.
    pub(crate) fn forget_addresses(&self, context: u64) {
        for slot in self.yields.iter().filter(|slot| slot.context.load(Ordering::SeqCst) == context) {
            slot.address.store(UNREGISTERED, Ordering::SeqCst);
        }
    }
}

/// After its word went up: whoever yields may want to be told (`preempt.rs`).
fn wake(stop: &Stop) {
    if stop.listens.load(Ordering::SeqCst) != 0 {
        futex::wake(&stop.word);
    }
}

fn is_muted(stop: &Stop) -> bool {
    stop.muted.load(Ordering::Relaxed) != 0
}

impl YieldSlot {
    /// Where the GPU finds the word, registered in this context at the first use; `None` if it cannot, or may not yet. What was registered in
    /// another context goes with that one, however many waits are left in streams of this.
    pub(crate) fn address(
        &self,
        context: u64,
        register: impl FnOnce() -> Option<u64>,
        unregister: impl FnOnce(),
    ) -> Option<u64> {
        let known = self.address.load(Ordering::Acquire);
        if known > UNREGISTRABLE {
            return (self.context.load(Ordering::Acquire) == context).then_some(known);
        }
        if !self.is_closed.load(Ordering::Acquire) {
            return None;
        }
        // Whoever comes second waits on its CPU this once.
        let first = self.address.compare_exchange(UNREGISTERED, UNREGISTRABLE, Ordering::AcqRel, Ordering::Relaxed);
        let address = first.ok().and_then(|_| register())?;
        self.context.store(context, Ordering::SeqCst);
        let exchange = |from, to| self.address.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let is_kept = exchange(UNREGISTRABLE, address);
        if is_kept && !self.stop.is_empty() {
            return Some(address);
        }
        // The link was taken out meanwhile. Whoever did so has seen the address, or it is for us to take back.
        if !is_kept || exchange(address, UNREGISTERED) {
            unregister();
        }
        None
    }

    /// Where the GPU knows its page, and in which context.
    pub(crate) fn clear(&self) -> Option<(u64, u64)> {
        self.stop.take_out();
        let address = self.address.swap(UNREGISTERED, Ordering::SeqCst);
        (address > UNREGISTRABLE).then(|| (address, self.context.load(Ordering::SeqCst)))
    }

    /// For a link that has just been put in.
    pub(crate) fn begin(&self, is_closed: bool) {
        self.is_free.store(false, Ordering::SeqCst);
        self.is_closed.store(is_closed, Ordering::SeqCst);
    }

    pub(crate) fn known_address(&self) -> Option<(u64, u64)> {
        let address = self.address.load(Ordering::SeqCst);
        (address > UNREGISTRABLE).then(|| (address, self.context.load(Ordering::SeqCst)))
    }
}

#[cfg(test)]
mod tests;
