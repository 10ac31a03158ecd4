//! This process as a client of the daemon: what it was given, the GPUs it uses, the streams it is known by.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use berth_proto::cuda::{STREAM_LEGACY, STREAM_PER_THREAD};
use berth_proto::shim::message::Lane as LaneMessage;
use berth_proto::shim::{FromClient, LANES, LaneLedger, LaneOrders, Ledger};

use crate::attach::Connection;
use crate::blind::Blind;
use crate::book::Book;
use crate::capture::CAPTURES;
use crate::estimate::Estimates;
use crate::freeing::Freeing;
use crate::lane::Lane;
use crate::leaving::Leaving;
use crate::pools::Pools;
use crate::preempt::Preemption;
use crate::samples::Samples;
use crate::state::{self, MEMORY, WORK};
use crate::streams::{Identity, Streams, default_key};
use crate::sys::current::Kept;
use crate::sys::driver::Driver;
use crate::sys::process::{self, KeepErrno};
use crate::sys::stop::Readers;

/// How long a GPU's first use waits for its orders, so that a cap counts from the first allocation on.
const ORDERS_WAIT: Duration = Duration::from_millis(20);
/// How long the process's end waits for a call of ours to the driver.
const END_WAIT: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) driver: Driver,
    connection: Kept<Connection>,
    pub(crate) lanes: [Lane; LANES],
    pub(crate) streams: Streams,
    pub(crate) estimates: Estimates,
    pub(crate) samples: Samples,
    pub(crate) readers: Readers,
    pub(crate) preemption: Preemption,
    pub(crate) blind: Blind,
    leaving: Mutex<Vec<Leaving>>,
    book: Mutex<Book>,
    opening: Mutex<()>,
    meeting: Mutex<()>,
    /// Held by the thread that looks at the GPU while it uses events, and by whoever takes them away.
    events: Mutex<()>,
    /// Held by that thread while it gives pages back, and by whoever destroys a context. Taken after `events` where both are.
    contexts: Mutex<()>,
    pub(crate) freeing: Freeing,
    pub(crate) pools: Pools,
    looker: OnceLock<Thread>,
    /// When the thread that looks at the GPU last came to an end of it.
    pub(crate) looked_at_ns: AtomicU64,
    ended: AtomicBool,
    is_broken: AtomicBool,
}

/// A stream as a call finds it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) key: u64,
    /// `None`: the table is full.
    pub(crate) place: Option<usize>,
    pub(crate) lane: usize,
    pub(crate) context: u64,
}

impl Client {
    pub(crate) fn new(driver: Driver, connection: Connection) -> Self {
        Self {
            driver,
            connection: Kept::new(connection),
            lanes: std::array::from_fn(|_| Lane::new()),
            streams: Streams::new(),
            estimates: Estimates::new(),
            samples: Samples::new(),
            readers: Readers::default(),
            preemption: Preemption::default(),
            blind: Blind::default(),
            leaving: Mutex::default(),
            book: Mutex::default(),
            opening: Mutex::default(),
            meeting: Mutex::default(),
            events: Mutex::default(),
            contexts: Mutex::default(),
            freeing: Freeing::default(),
            pools: Pools::default(),
            looker: OnceLock::new(),
            looked_at_ns: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            is_broken: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn connection(&self) -> &'static Connection {
        self.connection.get()
    }

    /// Another daemon, or none: what was given before is not looked at any more.
    pub(crate) fn exchange(&self, connection: Connection) {
        self.connection.exchange(connection);
        for index in (0..LANES).filter(|index| self.lanes[*index].device().is_some()) {
            self.announce(index);
            self.ledger(index).memory_bytes.store(self.allocated(index), Ordering::Relaxed);
        }
    }

    /// What it has of a GPU's memory, with what its pools keep.
    pub(crate) fn allocated(&self, lane: usize) -> u64 {
        let used = self.book().used(lane);
        used.saturating_add(self.pools.kept(&self.driver, lane))
    }

    /// Who looks at the GPU, from now on.
    pub(crate) fn look_here(&self) {
        let _ = self.looker.set(std::thread::current());
    }

    /// Has the GPU be looked at soon. No descriptor is in it that a program could close.
    pub(crate) fn ring(&self) {
        if let Some(thread) = self.looker.get() {
            let _errno = KeepErrno::new();
            thread.unpark();
        }
    }

    /// Something of ours has gone wrong: everything is let go of, for good.
    pub(crate) fn set_broken(&self) {
        self.is_broken.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }

    pub(crate) fn leaving(&self) -> MutexGuard<'_, Vec<Leaving>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn orders(&self, lane: usize) -> &LaneOrders {
        &self.connection().orders.lanes[lane]
    }

    pub(crate) fn ledger(&self, lane: usize) -> &LaneLedger {
        &self.connection().ledger.lanes[lane]
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` at the process's end.
    pub(crate) fn events(&self) -> Option<MutexGuard<'_, ()>> {
        let held = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.ended.load(Ordering::SeqCst)).then_some(held)
    }

    /// `None` also where somebody has them.
    pub(crate) fn events_now(&self) -> Option<MutexGuard<'_, ()>> {
        let held = self.events.try_lock().ok()?;
        (!self.ended.load(Ordering::SeqCst)).then_some(held)
    }

    /// `None` at the process's end.
    pub(crate) fn contexts(&self) -> Option<MutexGuard<'_, ()>> {
        let held = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.ended.load(Ordering::SeqCst)).then_some(held)
    }

    pub(crate) fn whole_ledger(&self) -> &Ledger {
        &self.connection().ledger
    }

    pub(crate) fn harvest(&self) {
        self.samples.harvest(&self.driver, &self.estimates, self.whole_ledger());
    }

    /// The GPU of this thread's context, which is announced at its first use.
    pub(crate) fn current_lane(&self) -> Option<usize> {
        let device = self.driver.current_device()?;
        self.lane_of(device)
    }

    /// `None` for the ninth GPU and those after.
    pub(crate) fn lane_of(&self, device: c_int) -> Option<usize> {
        let known = || self.lanes.iter().position(|lane| lane.device() == Some(device));
        // Before its orders are there another thread waits for them, too.
        known().filter(|lane| self.lanes[*lane].is_ordered.load(Ordering::Acquire)).or_else(|| {
            let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
            known().or_else(|| self.open_lane(device))
        })
    }

    fn open_lane(&self, device: c_int) -> Option<usize> {
        let index = self.lanes.iter().position(|lane| lane.device().is_none())?;
        let lane = &self.lanes[index];
        let _ = lane.uuid.set(self.driver.uuid(device)?);
        lane.waits_on_gpu.store(self.driver.can_wait_on_gpu(device), Ordering::Relaxed);
        lane.divides.store(self.driver.can_divide(device), Ordering::Relaxed);
        lane.sm_count.store(self.driver.sm_count(device), Ordering::Relaxed);
        let changes = self.connection().orders.changes.load(Ordering::Acquire);
        lane.open(device);
        if self.announce(index) {
            self.wait_for_orders(changes);
        }
        self.pools.see_default(&self.driver, device, index);
        lane.is_ordered.store(true, Ordering::Release);
        Some(index)
    }

    /// Tells this daemon of a GPU, once. Whether it could be told.
    fn announce(&self, index: usize) -> bool {
        let (connection, lane, ledger) = (self.connection(), &self.lanes[index], self.ledger(index));
        let (Some(uuid), Ok(number)) = (lane.uuid.get().copied(), u8::try_from(index)) else { return false };
        if connection.told[index].swap(true, Ordering::SeqCst) {
            return true;
        }
        for (word, half) in ledger.uuid.iter().zip(uuid.chunks_exact(8)) {
            word.store(half.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)), Ordering::Relaxed);
        }
        ledger.uuid_known.store(1, Ordering::Release);
        connection.ledger.lane_count.fetch_add(1, Ordering::Release);
        let message = FromClient::Lane(LaneMessage {
            lane: number,
            uuid,
            sm_count: lane.sm_count.load(Ordering::Relaxed),
            waits_on_gpu: lane.waits_on_gpu.load(Ordering::Relaxed),
            divides: lane.divides.load(Ordering::Relaxed),
        });
        connection.socket.as_ref().is_some_and(|socket| socket.send(&message.to_packet()).is_ok())
    }

    fn wait_for_orders(&self, changes: u32) {
        let until = process::now_ns().saturating_add(u64::try_from(ORDERS_WAIT.as_nanos()).unwrap_or(u64::MAX));
        while self.connection().orders.changes.load(Ordering::Acquire) == changes && process::now_ns() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The stream that a handle means, which is never 0 here: `None` without a context, or on a GPU that is not minded.
    pub(crate) fn stream(&self, handle: u64) -> Option<Seen> {
        let (key, thread) = match handle {
            STREAM_LEGACY => (default_key(self.driver.current_context()?, 0), 0),
            STREAM_PER_THREAD => {
                let thread = process::thread_number();
                (default_key(self.driver.current_context()?, thread), thread)
            }
            named => (named, 0),
        };
        self.seen(key).or_else(|| self.meet(handle, key, thread))
    }

    fn seen(&self, key: u64) -> Option<Seen> {
        let place = self.streams.find(key)?;
        let stream = self.streams.get(place);
        let lane = stream.lane.load(Ordering::Relaxed) as usize;
        Some(Seen { key, place: Some(place), lane, context: stream.context.load(Ordering::Relaxed) })
    }

    /// A stream that is seen for the first time.
    #[cold]
    fn meet(&self, handle: u64, key: u64, thread: u64) -> Option<Seen> {
        let _errno = KeepErrno::new();
        let current = self.driver.current_context();
        let is_named = handle > STREAM_PER_THREAD;
        let context = if is_named { self.driver.context_of(handle).or(current)? } else { current? };
        let device = if Some(context) == current {
            self.driver.current_device()?
        } else {
            self.driver.within(context, || self.driver.current_device())??
        };
        let lane = self.lane_of(device)?;
        // Another thread may be meeting it, too.
        let _meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = self.seen(key) {
            return Some(seen);
        }
        let place = self.streams.insert(key, Identity { context, thread, lane });
        Some(Seen { key, place, lane, context })
    }

    /// The program has waited for the stream: what it launches next is first again.
    pub(crate) fn waited_for(&self, handle: u64) {
        if let Some(place) = self.stream(handle).and_then(|seen| seen.place) {
            let stream = self.streams.get(place);
            stream.waited_at.store(stream.pieces.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Before a stream goes: what is under way in it still counts, and its handle may soon mean another.
    pub(crate) fn forget_stream(&self, handle: u64) {
        if let Some(_held) = self.events()
            && let Some(place) = self.streams.find(handle)
        {
            // Nobody can name it afterwards.
            let stream = self.streams.get(place);
            if self.streams.is_active(place, stream.lane.load(Ordering::Relaxed) as usize)
                && !stream.is_marked()
                && let Some(pieces) = crate::marks::record_behind_all(self, place, handle)
            {
                stream.marked_at.store(pieces, Ordering::Release);
            }
            self.streams.orphan(place);
        }
    }

    /// Destroys a context by `destroy`, which says whether it is gone; then nothing of it is used again.
    pub(crate) fn destroy(&self, context: Option<u64>, destroy: impl FnOnce() -> bool) {
        // Nobody asks for events of it meanwhile.
        let held = (self.events(), self.contexts());
        let is_gone = destroy();
        if let Some(context) = context.filter(|_| is_gone) {
            // Its events are gone with it.
            drop(self.streams.forget(|stream| stream.context.load(Ordering::Relaxed) == context));
            self.samples.forget(|gone| gone == context);
            CAPTURES.lost(context);
            self.blind.forget(context);
            self.freeing.forget(context);
            for (index, lane) in self.lanes.iter().enumerate() {
                lane.forget_addresses(context);
                if let Ok(mut long) = lane.long.lock() {
                    long.forget(context);
                }
                self.book().forget(context);
                self.ledger(index).memory_bytes.store(self.allocated(index), Ordering::Relaxed);
            }
            for leaving in self.leaving().iter_mut() {
                leaving.registered = leaving.registered.filter(|(_, of)| *of != context);
            }
        }
        drop(held);
    }

    /// What calls are to mind from now on.
    pub(crate) fn refresh_state(&self) {
        let wanted = |(index, lane): (usize, &Lane)| {
            let orders = self.orders(index);
            lane.is_leading()
                || lane.is_yielding()
                || orders.sample_every.load(Ordering::Relaxed) > 0
                || orders.copy_bytes_per_second.load(Ordering::Relaxed) > 0
        };
        let work = self.lanes.iter().enumerate().filter(|(_, lane)| lane.device().is_some()).any(wanted);
        state::set(if work { WORK | MEMORY } else { MEMORY });
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.ended.load(Ordering::SeqCst)
    }

    /// At the process's end: words first, by plain stores, and only then is it waited for that our calls to the driver end.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
        {
            let reading = self.readers.enter();
            for lane in &self.lanes {
                lane.let_go(&reading);
                lane.free(&reading);
            }
        }
        let until = process::now_ns().saturating_add(u64::try_from(END_WAIT.as_nanos()).unwrap_or(u64::MAX));
        let is_held = |lock: &Mutex<()>| matches!(lock.try_lock(), Err(std::sync::TryLockError::WouldBlock));
        while (is_held(&self.events) || is_held(&self.contexts)) && process::now_ns() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}
