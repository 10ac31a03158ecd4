//! The way of one piece of work: a kernel, a graph, a copy. What comes before it is given to the driver, and what after.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use berth_proto::cuda::{CuResult, result};
use berth_proto::shim::{Sample, SampleKind, Stop};

use crate::capture::CAPTURES;
use crate::client::{Client, Seen};
use crate::estimate::Shape;
use crate::long::Moved;
use crate::samples::Measuring;
use crate::state::{self, WORK};
use crate::sys::driver::{MOST_WAITS, Progress};
use crate::sys::process;
use crate::sys::stop::Reading;

/// Where no grain is ordered.
const GRAIN_NS: u64 = 50_000;
/// The longest that a call waits on its CPU, where the orders name no bound.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
const LOOK_AGAIN: Duration = Duration::from_micros(20);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub(crate) shape: Shape,
    /// It can be launched into another stream: no graph, no copy, nothing whose blocks wait for each other.
    pub(crate) can_move: bool,
}

/// Work that is about to be given to the driver.
struct Begun {
    client: &'static Client,
    seen: Seen,
    stream: u64,
    shape: Shape,
    estimate_ns: u64,
    known: bool,
    position: u32,
    /// An event is to be recorded behind it.
    marks: bool,
    /// Until its event is recorded, so that a wait of ours is never without one behind it.
    reading: Option<Reading<'static>>,
    measuring: Option<Measuring>,
    moved: Option<Moved<'static>>,
}

impl Work {
    pub(crate) fn kernel(function: u64, grid: [u32; 3], block: [u32; 3], can_move: bool) -> Self {
        let all = |sizes: [u32; 3]| sizes.into_iter().fold(1, u32::saturating_mul);
        let (blocks, threads_per_block) = (all(grid), all(block));
        Self { shape: Shape { kind: SampleKind::Kernel, function, blocks, threads_per_block, bytes: 0 }, can_move }
    }

    pub(crate) fn graph(graph: u64) -> Self {
        let shape = Shape { kind: SampleKind::Graph, function: graph, blocks: 0, threads_per_block: 0, bytes: 0 };
        Self { shape, can_move: false }
    }

    /// `kind` tells directions apart.
    pub(crate) fn copy(kind: u64, bytes: u64) -> Self {
        let shape = Shape { kind: SampleKind::Copy, function: kind, blocks: 0, threads_per_block: 0, bytes };
        Self { shape, can_move: false }
    }
}

/// Gives work to the driver. `real` does so, in another stream if it is told one; what it answers is what the program gets.
#[inline]
pub(crate) fn submit(stream: u64, work: impl FnOnce() -> Work, real: impl Fn(Option<u64>) -> CuResult) -> CuResult {
    if !state::minds(WORK) {
        return real(None);
    }
    minded(stream, work(), real)
}

fn minded(stream: u64, work: Work, real: impl Fn(Option<u64>) -> CuResult) -> CuResult {
    let Some(mut begun) = state::guarded(|| begin(state::client(WORK)?, stream, work)) else { return real(None) };
    let answer = match &begun.moved {
        None => real(None),
        Some(moved) => match real(Some(moved.stream())) {
            result::SUCCESS => result::SUCCESS,
            _ => {
                begun.moved = None;
                real(None)
            }
        },
    };
    state::guarded(|| {
        begun.finish(answer == result::SUCCESS);
        Some(())
    });
    answer
}

/// `None`: it is passed on untouched.
fn begin(client: &'static Client, stream: u64, work: Work) -> Option<Begun> {
    if CAPTURES.any() {
        return None;
    }
    let (seen, shape) = (client.stream(stream)?, work.shape);
    let (lane, orders, ledger) = (&client.lanes[seen.lane], client.orders(seen.lane), client.ledger(seen.lane));
    let place = client.estimates.place(shape);
    let known_ns = place.and_then(crate::estimate::Place::known_ns);
    let estimate_ns = known_ns.unwrap_or_else(|| shape.assumed_ns());
    if shape.kind == SampleKind::Copy {
        pace(client, &seen, shape.bytes);
    }
    lane.started.fetch_add(1, Ordering::SeqCst);
    ledger.launches.fetch_add(1, Ordering::Relaxed);
    ledger.submitted_ns.fetch_add(estimate_ns, Ordering::Relaxed);
    if ledger.busy.load(Ordering::Relaxed) == 0 {
        ledger.busy_since_ns.store(process::now_ns(), Ordering::Relaxed);
        ledger.busy.store(1, Ordering::Release);
    }
    let was_idle = seen.place.is_none_or(|place| client.streams.set_active(place));
    let (mut marks, mut kept) = (lane.is_leading(), None);
    if lane.is_leading() || lane.is_yielding() {
        let reading = client.readers.enter();
        let begins = lane.is_leading() && lane.raise(&reading);
        if begins || was_idle && seen.place.is_some() {
            client.bell.ring();
        }
        if lane.is_yielding() && needs_wait(client, &seen, estimate_ns, was_idle) {
            hold_back(client, &seen, stream, &reading);
            (marks, kept) = (true, Some(reading));
        }
    }
    let due = place.is_some_and(|place| place.is_due(orders.sample_every.load(Ordering::Relaxed)));
    let moved = if work.can_move { move_long(client, &seen, stream, estimate_ns) } else { None };
    let measured_in = moved.as_ref().map_or(stream, Moved::stream);
    let measuring = due.then(|| client.samples.begin(&client.driver, seen.context, measured_in)).flatten();
    let position = seen.place.map_or(0, |place| client.streams.get(place).position.fetch_add(1, Ordering::Relaxed));
    let known = known_ns.is_some();
    Some(Begun { client, seen, stream, shape, estimate_ns, known, position, marks, reading: kept, measuring, moved })
}

impl Begun {
    fn finish(self, went_well: bool) {
        let Self { client, seen, .. } = self;
        let sms = self.moved.as_ref().map_or(0, |moved| moved.sms);
        if let Some(measuring) = &self.measuring {
            let measured_in = self.moved.as_ref().map_or(self.stream, Moved::stream);
            let sample = went_well.then(|| (self.shape, self.sample(sms)));
            client.samples.end(&client.driver, measuring, measured_in, sample);
        }
        let (stream, marks, estimate_ns) = (self.stream, self.marks, self.estimate_ns);
        if let Some(moved) = self.moved {
            moved.end(&client.driver, stream);
        }
        let lane = &client.lanes[seen.lane];
        match seen.place {
            Some(place) => mark(client, &seen, place, stream, marks),
            None => {
                let until = process::now_ns().saturating_add(estimate_ns);
                lane.blind_until_ns.fetch_max(until, Ordering::SeqCst);
            }
        }
        lane.finished.fetch_add(1, Ordering::SeqCst);
        drop(self.reading);
    }

    fn sample(&self, sms: u32) -> Sample {
        Sample {
            kind: self.shape.kind,
            lane: u8::try_from(self.seen.lane).unwrap_or(0),
            function: self.shape.function,
            blocks: self.shape.blocks,
            threads_per_block: self.shape.threads_per_block,
            position: self.position,
            took_ns: 0,
            estimated_ns: if self.known { self.estimate_ns } else { 0 },
            at_ns: process::now_ns(),
            sms,
            blocks_per_sm: 0,
        }
    }
}

/// Records the stream's events behind its work: the one for its end if that is wanted, the other once per round.
fn mark(client: &Client, seen: &Seen, place: usize, handle: u64, marks: bool) {
    let stream = client.streams.get(place);
    if marks {
        record(client, seen.context, &stream.event, handle);
    }
    let round = client.lanes[seen.lane].round.load(Ordering::Relaxed);
    if stream.round.load(Ordering::Relaxed) != round && record(client, seen.context, &stream.round_event, handle) {
        stream.round.store(round, Ordering::Release);
    }
}

/// Makes the event at the first time.
fn record(client: &Client, context: u64, known: &AtomicU64, stream: u64) -> bool {
    let mut event = known.load(Ordering::Acquire);
    if event == 0 {
        let Some(Some(new)) = client.driver.within(context, || client.driver.create_event(false)) else { return false };
        match known.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => event = new,
            Err(other) => {
                client.driver.destroy_event(new);
                event = other;
            }
        }
    }
    client.driver.record(event, stream)
}

fn needs_wait(client: &Client, seen: &Seen, estimate_ns: u64, was_idle: bool) -> bool {
    let grain_ns = match client.orders(seen.lane).grain_ns.load(Ordering::Relaxed) {
        0 => GRAIN_NS,
        ordered => ordered.into(),
    };
    seen.place.is_none_or(|place| client.streams.get(place).needs_wait(estimate_ns, grain_ns, was_idle))
}

/// Has the stream wait while any stop is up, on the GPU where that is possible.
fn hold_back(client: &Client, seen: &Seen, stream: u64, reading: &Reading<'_>) {
    let lane = &client.lanes[seen.lane];
    let on_gpu = lane.waits_on_gpu.load(Ordering::Relaxed);
    let (mut addresses, mut count, mut all_on_gpu) = ([0; MOST_WAITS], 0, on_gpu);
    for slot in lane.yields.iter().filter(|_| on_gpu) {
        let Some(stop) = slot.stop.get(reading) else { continue };
        let memory = std::ptr::from_ref(stop).cast_mut().cast();
        match slot.address(|| register(client, seen.context, memory), || client.driver.unregister(memory)) {
            Some(address) => {
                addresses[count] = address;
                count += 1;
            }
            None => all_on_gpu = false,
        }
    }
    client.ledger(seen.lane).stops.fetch_add(1, Ordering::Relaxed);
    if seen.place.is_none() && count > 0 {
        lane.has_blind_waits.store(true, Ordering::SeqCst);
    }
    if !client.driver.wait_for_zero(stream, &addresses[..count]) || !all_on_gpu {
        wait_here(client, seen, reading);
    }
}

fn register(client: &Client, context: u64, memory: *mut u8) -> Option<u64> {
    client
        .driver
        .relaxed(|| client.driver.within(context, || client.driver.register(memory, size_of::<Stop>())))
        .flatten()
}

/// Waits on the CPU: until what was submitted is done, so that little is outstanding, and then until no stop is up. Bounded.
fn wait_here(client: &Client, seen: &Seen, reading: &Reading<'_>) {
    let lane = &client.lanes[seen.lane];
    let longest_ns = match client.orders(seen.lane).longest_stop_ns.load(Ordering::Relaxed) {
        0 => LONGEST_WAIT_NS,
        ordered => ordered,
    };
    let until = process::now_ns().saturating_add(longest_ns);
    let event = seen.place.map_or(0, |place| client.streams.get(place).event.load(Ordering::Acquire));
    let is_behind = || event != 0 && client.driver.progress(event, seen.context) == Progress::UnderWay;
    let is_stopped = || {
        let stops = lane.yields.iter().filter_map(|slot| slot.stop.get(reading));
        stops.into_iter().any(|stop| stop.word.load(Ordering::Acquire) != 0)
    };
    while (is_stopped() || is_behind()) && process::now_ns() < until && client.is_up() {
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Keeps copies within their budget. What it sleeps is bounded, and written down.
fn pace(client: &Client, seen: &Seen, bytes: u64) {
    let ledger = client.ledger(seen.lane);
    ledger.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    let budget = client.orders(seen.lane).copy_bytes_per_second.load(Ordering::Relaxed);
    if budget == 0 {
        return;
    }
    let wait_ns = client.lanes[seen.lane].pace.book(process::now_ns(), bytes, budget).min(LONGEST_WAIT_NS);
    if wait_ns > 0 {
        std::thread::sleep(Duration::from_nanos(wait_ns));
        ledger.paced_ns.fetch_add(wait_ns, Ordering::Relaxed);
    }
}

/// Where a long kernel goes instead, if it is long and there is a part of the GPU for such.
fn move_long(client: &'static Client, seen: &Seen, stream: u64, estimate_ns: u64) -> Option<Moved<'static>> {
    let (lane, orders) = (&client.lanes[seen.lane], client.orders(seen.lane));
    let (long_ns, sms) = (orders.long_ns.load(Ordering::Relaxed), orders.long_sms.load(Ordering::Relaxed));
    if long_ns == 0 || sms == 0 || estimate_ns < long_ns.into() || !lane.divides.load(Ordering::Relaxed) {
        return None;
    }
    let device = lane.device()?;
    // Events of another context do not order work in a green one.
    client.driver.is_in_primary(device).then_some(())?;
    Moved::begin(&lane.long, &client.driver, device, sms, stream, seen.key)
}
