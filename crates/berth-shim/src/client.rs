//! This process as a client of the daemon: what it was given, the GPUs it uses, the streams it is known by.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use berth_proto::cuda::{STREAM_LEGACY, STREAM_PER_THREAD};
use berth_proto::shim::message::Lane as LaneMessage;
use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromClient, LANES, LaneLedger, LaneOrders, Ledger, Orders};

use crate::book::Book;
use crate::estimate::{Estimates, mix};
use crate::lane::Lane;
use crate::samples::Samples;
use crate::state::{self, MEMORY, WORK};
use crate::streams::{Identity, Stream, Streams};
use crate::sys::driver::Driver;
use crate::sys::process;
use crate::sys::socket::{Bell, Socket};
use crate::sys::stop::Readers;

/// How long a GPU's first use waits for its orders, so that a cap counts from the first allocation on.
const ORDERS_WAIT: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) driver: Driver,
    pub(crate) socket: Socket,
    pub(crate) bell: Bell,
    ledger: Page<Ledger>,
    orders: Page<Orders>,
    pub(crate) lanes: [Lane; LANES],
    pub(crate) streams: Streams,
    pub(crate) estimates: Estimates,
    pub(crate) samples: Samples,
    pub(crate) readers: Readers,
    book: Mutex<Book>,
    opening: Mutex<()>,
    /// Held by our thread while it uses events, and by whoever takes them away.
    events: Mutex<()>,
    ended: AtomicBool,
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
    pub(crate) fn new(driver: Driver, socket: Socket, bell: Bell, ledger: Page<Ledger>, orders: Page<Orders>) -> Self {
        Self {
            driver,
            socket,
            bell,
            ledger,
            orders,
            lanes: std::array::from_fn(|_| Lane::new()),
            streams: Streams::new(),
            estimates: Estimates::new(),
            samples: Samples::new(),
            readers: Readers::default(),
            book: Mutex::default(),
            opening: Mutex::default(),
            events: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    pub(crate) fn orders(&self, lane: usize) -> &LaneOrders {
        &self.orders.lanes[lane]
    }

    pub(crate) fn ledger(&self, lane: usize) -> &LaneLedger {
        &self.ledger.lanes[lane]
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` at the process's end.
    pub(crate) fn events(&self) -> Option<MutexGuard<'_, ()>> {
        let held = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        (!self.ended.load(Ordering::SeqCst)).then_some(held)
    }

    pub(crate) fn harvest(&self) {
        self.samples.harvest(&self.driver, &self.estimates, &self.ledger);
    }

    /// The GPU of this thread's context, which is announced at its first use.
    pub(crate) fn current_lane(&self) -> Option<usize> {
        let device = self.driver.current_device()?;
        self.lane_of(device)
    }

    /// `None` for the ninth GPU and those after.
    pub(crate) fn lane_of(&self, device: c_int) -> Option<usize> {
        let known = || self.lanes.iter().position(|lane| lane.device() == Some(device));
        known().or_else(|| {
            let _opening = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
            known().or_else(|| self.open_lane(device))
        })
    }

    fn open_lane(&self, device: c_int) -> Option<usize> {
        let index = self.lanes.iter().position(|lane| lane.device().is_none())?;
        let uuid = self.driver.uuid(device)?;
        let lane = &self.lanes[index];
        lane.waits_on_gpu.store(self.driver.can_wait_on_gpu(device), Ordering::Relaxed);
        lane.divides.store(self.driver.can_divide(device), Ordering::Relaxed);
        let ledger = self.ledger(index);
        for (word, half) in ledger.uuid.iter().zip(uuid.chunks_exact(8)) {
            word.store(half.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)), Ordering::Relaxed);
        }
        ledger.uuid_known.store(1, Ordering::Release);
        self.ledger.lane_count.fetch_add(1, Ordering::Release);
        let changes = self.orders.changes.load(Ordering::Acquire);
        lane.open(device);
        let told = self.socket.send(
            &FromClient::Lane(LaneMessage {
                lane: u8::try_from(index).ok()?,
                uuid,
                sm_count: self.driver.sm_count(device),
                waits_on_gpu: lane.waits_on_gpu.load(Ordering::Relaxed),
                divides: lane.divides.load(Ordering::Relaxed),
            })
            .to_packet(),
        );
        if told.is_ok() {
            self.wait_for_orders(changes);
        }
        Some(index)
    }

    fn wait_for_orders(&self, changes: u32) {
        let until = process::now_ns().saturating_add(u64::try_from(ORDERS_WAIT.as_nanos()).unwrap_or(u64::MAX));
        while self.orders.changes.load(Ordering::Acquire) == changes && process::now_ns() < until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// The stream that a handle means, which is never 0 here: `None` without a context, or on a GPU that is not minded.
    pub(crate) fn stream(&self, handle: u64) -> Option<Seen> {
        let (key, thread) = match handle {
            STREAM_LEGACY => (mix(self.driver.current_context()?) | 1 << 63, 0),
            STREAM_PER_THREAD => {
                let thread = process::thread_number();
                (mix(self.driver.current_context()? ^ thread << 48) | 1 << 63, thread)
            }
            named => (named, 0),
        };
        if let Some(place) = self.streams.find(key) {
            let stream = self.streams.get(place);
            let lane = stream.lane.load(Ordering::Relaxed) as usize;
            return Some(Seen { key, place: Some(place), lane, context: stream.context.load(Ordering::Relaxed) });
        }
        self.meet(handle, key, thread)
    }

    /// A stream that is seen for the first time.
    #[cold]
    fn meet(&self, handle: u64, key: u64, thread: u64) -> Option<Seen> {
        let current = self.driver.current_context();
        let is_named = handle > STREAM_PER_THREAD;
        let context = if is_named { self.driver.context_of(handle).or(current)? } else { current? };
        let device = if Some(context) == current {
            self.driver.current_device()?
        } else {
            self.driver.within(context, || self.driver.current_device())??
        };
        let lane = self.lane_of(device)?;
        let place = self.streams.insert(key, Identity { context, thread, lane });
        Some(Seen { key, place, lane, context })
    }

    /// The program has waited for the stream: what it launches next is first again.
    pub(crate) fn waited_for(&self, handle: u64) {
        if let Some(place) = self.stream(handle).and_then(|seen| seen.place) {
            self.streams.get(place).position.store(0, Ordering::Relaxed);
        }
    }

    /// Streams that are about to go.
    pub(crate) fn forget_streams(&self, matches: impl Fn(&Stream) -> bool) {
        if let Some(_held) = self.events() {
            for event in self.streams.forget(matches) {
                self.driver.destroy_event(event);
            }
        }
    }

    pub(crate) fn forget_stream(&self, handle: u64) {
        if let Some(_held) = self.events()
            && let Some(place) = self.streams.find(handle)
        {
            for event in self.streams.give_back(place) {
                self.driver.destroy_event(event);
            }
        }
    }

    /// Before a context is destroyed: nothing of it is used again.
    pub(crate) fn forget_context(&self, context: u64) {
        self.forget_streams(|stream| stream.context.load(Ordering::Relaxed) == context);
        self.samples.forget(|gone| gone == context);
        let device = self.driver.within(context, || self.driver.current_device()).flatten();
        if let Some(lane) = device.and_then(|device| self.lanes.iter().position(|lane| lane.device() == Some(device))) {
            self.lanes[lane].forget_addresses();
            self.forget_memory(lane);
        }
    }

    /// Before the primary context of a device may go.
    pub(crate) fn forget_device(&self, device: c_int, with_memory: bool) {
        let Some(lane) = self.lanes.iter().position(|lane| lane.device() == Some(device)) else { return };
        self.forget_streams(|stream| stream.lane.load(Ordering::Relaxed) as usize == lane);
        self.samples.forget(|_| true);
        self.lanes[lane].forget_addresses();
        if let Ok(mut long) = self.lanes[lane].long.lock() {
            long.forget();
        }
        if with_memory {
            self.forget_memory(lane);
        }
    }

    fn forget_memory(&self, lane: usize) {
        let mut book = self.book();
        book.forget(lane);
        self.ledger(lane).memory_bytes.store(book.used(lane), Ordering::Relaxed);
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

    /// At the process's end.
    pub(crate) fn end(&self) {
        let _held = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.store(true, Ordering::SeqCst);
        let reading = self.readers.enter();
        for lane in self.lanes.iter().filter(|lane| lane.is_raised()) {
            lane.lower(&reading, lane.started.load(Ordering::SeqCst));
        }
    }
}
