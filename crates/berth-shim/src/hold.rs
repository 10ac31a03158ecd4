//! Before work of one that yields: its stream waits while any stop is up, on the GPU where that is possible.
//!
//! Bounded in number: once in so many waits a stream must have passed those before, so that it is never far from free.

use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_proto::shim::Stop;

use crate::capture::CAPTURES;
use crate::client::{Client, Seen};
use crate::marks::record;
use crate::sys::driver::{MOST_WAITS, Progress};
use crate::sys::process;
use crate::sys::stop::Reading;

/// Where no grain is ordered.
const GRAIN_NS: u64 = 50_000;
/// The longest that a call waits on its CPU, where the orders name no bound.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;
const LOOK_AGAIN: Duration = Duration::from_micros(20);

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Held {
    /// Waits of ours are in the stream.
    pub(crate) on_gpu: bool,
    /// Some it could not be given: this thread waits in their place, until what was submitted before is done.
    pub(crate) here: bool,
}

pub(crate) fn needs_wait(client: &Client, seen: &Seen, estimate_ns: u64, was_idle: bool) -> bool {
    let grain_ns = match client.orders(seen.lane).grain_ns.load(Ordering::Relaxed) {
        0 => GRAIN_NS,
        ordered => ordered.into(),
    };
    seen.place.is_none_or(|place| client.streams.get(place).needs_wait(estimate_ns, grain_ns, was_idle))
}

pub(crate) fn hold_back(client: &Client, seen: &Seen, stream: u64, reading: &Reading<'_>) -> Held {
    let lane = &client.lanes[seen.lane];
    client.ledger(seen.lane).stops.fetch_add(1, Ordering::Relaxed);
    let on_gpu = lane.waits_on_gpu.load(Ordering::Relaxed) && may_add_wait(client, seen, stream);
    let (mut addresses, mut count, mut all_on_gpu) = ([0; MOST_WAITS], 0, on_gpu);
    for slot in lane.yields.iter().filter(|slot| on_gpu && !slot.is_free.load(Ordering::Relaxed)) {
        let Some(stop) = slot.stop.get(reading) else { continue };
        let memory = std::ptr::from_ref(stop).cast_mut().cast();
        let register = || register(client, seen.context, memory);
        match slot.address(seen.context, register, || client.driver.unregister(memory, seen.context)) {
            Some(address) => {
                addresses[count] = address;
                count += 1;
            }
            None => all_on_gpu = false,
        }
    }
    let is_put = client.driver.wait_for_zero(stream, &addresses[..count]);
    let here = !is_put || !all_on_gpu;
    if here {
        wait_here(client, seen, stream, reading);
    }
    // Of several, some may have been put.
    Held { on_gpu: count > 0, here }
}

/// Whether few enough waits are in the stream.
fn may_add_wait(client: &Client, seen: &Seen, handle: u64) -> bool {
    let Some(place) = seen.place else { return client.blind.has_room() };
    let stream = client.streams.get(place);
    if !stream.is_gate_due() {
        return true;
    }
    let until = longest_wait(client, seen);
    let gate = stream.gate.load(Ordering::Acquire);
    let is_under_way = || client.driver.relaxed(|| client.driver.progress(gate, seen.context)) == Progress::UnderWay;
    while gate != 0 && is_under_way() {
        if process::now_ns() > until || CAPTURES.has(&client.driver, handle) || !client.is_up() {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    record(client, seen.context, &stream.gate, handle)
}

fn register(client: &Client, context: u64, memory: *mut u8) -> Option<u64> {
    client
        .driver
        .relaxed(|| client.driver.within(context, || client.driver.register(memory, size_of::<Stop>())))
        .flatten()
}

fn longest_wait(client: &Client, seen: &Seen) -> u64 {
    let longest_ns = match client.orders(seen.lane).longest_stop_ns.load(Ordering::Relaxed) {
        0 => LONGEST_WAIT_NS,
        ordered => ordered,
    };
    process::now_ns().saturating_add(longest_ns)
}

/// Waits on the CPU: until what was submitted is done, so that little is outstanding, and then until no stop is up. Bounded; and a stream that
/// begins to capture meanwhile is let go.
fn wait_here(client: &Client, seen: &Seen, stream: u64, reading: &Reading<'_>) {
    let lane = &client.lanes[seen.lane];
    let until = longest_wait(client, seen);
    let event = seen.place.map_or(0, |place| client.streams.get(place).event.load(Ordering::Acquire));
    // Another thread's capture would not allow it.
    let progress = || client.driver.relaxed(|| client.driver.progress(event, seen.context));
    let is_behind = || event != 0 && progress() == Progress::UnderWay;
    let is_stopped = || {
        let obeyed = lane.yields.iter().filter(|slot| !slot.is_free.load(Ordering::Relaxed));
        let mut stops = obeyed.filter_map(|slot| slot.stop.get(reading));
        stops.any(|stop| stop.word.load(Ordering::Acquire) != 0)
    };
    let captures = || CAPTURES.has(&client.driver, stream);
    while !captures() && (is_stopped() || is_behind()) && process::now_ns() < until && client.is_up() {
        std::thread::sleep(LOOK_AGAIN);
    }
}
