//! What is known of a piece of work before anything is done about it. Most often that is all there is to do.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::capture::CAPTURES;
use crate::client::{Client, Seen};
use crate::estimate::Place;
use crate::hold::needs_wait;
use crate::state::{self, WORK};
use crate::sys::process::{self, KeepErrno};
use crate::work::Work;

/// The longest that a copy is held back for its budget, and how often it is looked whether there still is one.
const LONGEST_PACE_NS: u64 = 60_000_000_000;
const PACE_AGAIN_NS: u64 = 10_000_000;
/// Of a thread's own default stream, which no other thread can name, one piece of work in so many has an event behind it.
const OWN_MARKED_EVERY: u32 = 16;

/// Work that was counted: what is known of it before anything is done about it.
pub(crate) struct Counted {
    pub(crate) client: &'static Client,
    pub(crate) seen: Seen,
    pub(crate) place: Option<&'static Place>,
    /// What it is thought to take, and whether anything like it was measured.
    pub(crate) estimate_ns: u64,
    pub(crate) known: bool,
    /// It is to be measured.
    pub(crate) due: bool,
    /// Its stream was thought to be idle.
    pub(crate) was_idle: bool,
    /// Everything before it was known to be done.
    pub(crate) is_next: bool,
    /// How many pieces of work the stream has with this one.
    pub(crate) pieces: u32,
    /// A wait comes before it.
    pub(crate) waits: bool,
    /// An event is to be recorded behind it.
    pub(crate) marks: bool,
}

impl Counted {
    /// `None`: it is passed on untouched.
    #[inline]
    pub(crate) fn of(client: &'static Client, stream: u64, work: &Work) -> Option<Self> {
        if CAPTURES.has(&client.driver, stream) {
            return None;
        }
        let seen = client.stream(stream)?;
        let (lane, orders, ledger) = (&client.lanes[seen.lane], client.orders(seen.lane), client.ledger(seen.lane));
        let place = client.estimates.place(work.shape);
        let known_ns = place.and_then(Place::known_ns);
        let estimate_ns = known_ns.unwrap_or_else(|| client.estimates.guess_ns(work.shape));
        if work.is_of_host(client) {
            pace(client, &seen, work.shape.bytes);
            // It may have slept.
            if CAPTURES.has(&client.driver, stream) {
                return None;
            }
        }
        let before = lane.started.fetch_add(1, Ordering::SeqCst);
        let done_ns = lane.told.done_ns(before);
        if let Some(done_ns) = done_ns {
            lane.linger.note(process::now_ns().saturating_sub(done_ns));
        }
        ledger.launches.fetch_add(1, Ordering::Relaxed);
        ledger.submitted_ns.fetch_add(estimate_ns, Ordering::Relaxed);
        let begins = lane.begin_request(process::now_ns);
        if ledger.busy.load(Ordering::Relaxed) == 0 {
            ledger.busy_since_ns.store(process::now_ns(), Ordering::Relaxed);
            ledger.busy.store(1, Ordering::Release);
        }
        let was_idle = seen.place.is_none_or(|place| client.streams.set_active(place));
        let known = seen.place.map(|place| client.streams.get(place));
        let pieces = known.map_or(0, |stream| stream.pieces.fetch_add(1, Ordering::Relaxed).wrapping_add(1));
        let due = place.is_some_and(|place| place.is_due(orders.sample_every.load(Ordering::Relaxed)));
        if begins {
            client.ring();
        }
        // An event behind each piece of work costs every launch another call to the driver. The thread that looks records one when no more
        // comes, where it can name the stream.
        let is_linked = lane.is_leading() || lane.is_yielding();
        let marks = known.is_none_or(|stream| stream.is_own() && (is_linked || pieces % OWN_MARKED_EVERY == 1));
        Some(Self {
            client,
            seen,
            place,
            estimate_ns,
            known: known_ns.is_some(),
            due,
            was_idle,
            is_next: done_ns.is_some(),
            pieces,
            waits: lane.is_yielding() && needs_wait(client, &seen, estimate_ns, was_idle),
            marks,
        })
    }

    /// Nothing is to be raised, waited for, measured, moved or told.
    #[inline]
    pub(crate) fn is_plain(&self, work: &Work) -> bool {
        let Self { client, seen, estimate_ns, .. } = self;
        let (lane, orders) = (&client.lanes[seen.lane], client.orders(seen.lane));
        let Some(stream) = seen.place.map(|place| client.streams.get(place)) else { return false };
        let is_long = |from: &AtomicU32| match from.load(Ordering::Relaxed) {
            0 => false,
            from_ns => *estimate_ns >= from_ns.into(),
        };
        let is_marked = stream.round.load(Ordering::Relaxed) == lane.round.load(Ordering::Relaxed);
        if self.due || self.marks || self.waits || !is_marked || work.can_move && is_long(&orders.long_ns) {
            return false;
        }
        let (is_leading, is_yielding) = (lane.is_leading(), lane.is_yielding());
        let tells = self.was_idle && (is_leading || is_yielding);
        let raises = is_leading && (self.is_next || !lane.is_raised());
        let is_preempted = is_yielding && is_long(&orders.preempt_ns);
        !(tells || raises || is_preempted)
    }
}

/// Keeps copies within their budget. What it sleeps is bounded, and written down; a budget that is taken away frees whoever sleeps for it.
#[cold]
fn pace(client: &Client, seen: &Seen, bytes: u64) {
    let ledger = client.ledger(seen.lane);
    ledger.copied_bytes.fetch_add(bytes, Ordering::Relaxed);
    let budget = || client.orders(seen.lane).copy_bytes_per_second.load(Ordering::Relaxed);
    if budget() == 0 {
        return;
    }
    let begun = process::now_ns();
    let (mut now, mut owed) = (begun, client.lanes[seen.lane].pace.book(begun, bytes, budget()));
    let _errno = KeepErrno::new();
    // The budget may change meanwhile.
    while budget() != 0 && now - begun < LONGEST_PACE_NS && client.is_up() && state::minds(WORK) {
        let (last, rate) = (now, budget());
        let left_ns = owed.wait_ns(rate);
        if left_ns == 0 {
            break;
        }
        std::thread::sleep(Duration::from_nanos(left_ns.min(PACE_AGAIN_NS)));
        now = process::now_ns();
        owed = owed.after(now - last, rate);
    }
    client.ledger(seen.lane).paced_ns.fetch_add(now - begun, Ordering::Relaxed);
}
