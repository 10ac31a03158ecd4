//! What is known of each stream: a fixed table without locks.
//!
//! Named streams are found by their handle, default streams by a key made of context and thread. A place is given back when its
//! context is destroyed, or when its stream is destroyed or its thread has ended and its work is done. Streams beyond the table have no
//! place: before each of their work a wait is put, and they count as busy for as long as the estimates say.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use berth_proto::cuda::STREAM_LEGACY;

use crate::estimate::{mix, place_of};

/// Places; a multiple of 64.
pub(crate) const PLACES: usize = 2048;
/// Rounds of a GPU that are under way at the same time.
pub(crate) const ROUNDS: usize = 4;
/// How far from its hash a key is looked for.
const REACH: usize = 32;
/// The thread of a default stream whose own has ended.
const NOBODY: u64 = u64::MAX;
/// Given back: can be taken again, but the search goes on behind it.
const GIVEN_BACK: u64 = 1;
/// Keys of streams that were destroyed while they had work.
const FIRST_ORPHAN: u64 = 16;
/// The default stream of a context, and that of a thread in it: bits of their keys.
const DEFAULT: u64 = 1 << 63;
/// Once in so many waits a stream's gate has to be passed; so at most twice as many are in a stream.
const WAITS_PER_GATE: u32 = 256;

#[derive(Debug)]
pub(crate) struct Streams {
    places: Box<[Stream]>,
    /// A bit for each place with work that may not be done.
    active: [AtomicU64; PLACES / 64],
    /// Some may have been destroyed, or their threads may have ended.
    has_orphans: AtomicBool,
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Stream {
    key: AtomicU64,
    pub(crate) context: AtomicU64,
    /// The thread whose own default stream it is; 0 is nobody's.
    thread: AtomicU64,
    pub(crate) lane: AtomicU32,
    /// Pieces of work ever, and how many there were when the program last waited for the stream.
    pub(crate) pieces: AtomicU32,
    pub(crate) waited_at: AtomicU32,
    /// The event that is recorded behind its work; 0 until the first time. And how many pieces it is behind.
    pub(crate) event: AtomicU64,
    pub(crate) marked_at: AtomicU32,
    /// Waits that were put into it.
    waits: AtomicU32,
    /// A third event, recorded once in so many waits: no more are put than can be told to have passed.
    pub(crate) gate: AtomicU64,
    /// Others, recorded once per round of the GPU, and the round in which one was last recorded.
    rounds: [Round; ROUNDS],
    pub(crate) round: AtomicU64,
    /// Estimated work since the last wait was put.
    since_wait_ns: AtomicU64,
}

/// An event behind what a stream had when a round began.
#[derive(Debug, Default)]
pub(crate) struct Round {
    pub(crate) number: AtomicU64,
    pub(crate) event: AtomicU64,
}

/// Who a stream is, when it is first seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    pub(crate) context: u64,
    pub(crate) thread: u64,
    pub(crate) lane: usize,
}

/// The key of a default stream: that of a context, or a thread's own in it.
pub(crate) fn default_key(context: u64, thread: u64) -> u64 {
    mix(context ^ mix(thread)) | DEFAULT
}

// === impl Streams ===

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            places: (0..PLACES).map(|_| Stream::default()).collect(),
            active: [const { AtomicU64::new(0) }; _],
            has_orphans: AtomicBool::new(false),
        }
    }

    pub(crate) fn get(&self, place: usize) -> &Stream {
        &self.places[place]
    }

    /// The place of a stream that is known.
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        for place in reach(key) {
            match self.places[place].key.load(Ordering::Acquire) {
                0 => return None,
                found if found == key => return Some(place),
                _ => {}
            }
        }
        None
    }

    /// A place for a new stream; `None` where there is none left in reach.
    pub(crate) fn insert(&self, key: u64, identity: Identity) -> Option<usize> {
        let free = |place: &usize| {
            let stream = &self.places[*place];
            let key_now = stream.key.load(Ordering::Relaxed);
            // Taken by a key nobody looks for until the rest is written.
            key_now <= GIVEN_BACK
                && stream.key.compare_exchange(key_now, u64::MAX, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let place = reach(key).find(free)?;
        let stream = &self.places[place];
        stream.context.store(identity.context, Ordering::Relaxed);
        stream.thread.store(identity.thread, Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)] // one of a few lanes
        stream.lane.store(identity.lane as u32, Ordering::Relaxed);
        for number in [&stream.pieces, &stream.waited_at, &stream.marked_at, &stream.waits] {
            number.store(0, Ordering::Relaxed);
        }
        stream.event.store(0, Ordering::Relaxed);
        stream.gate.store(0, Ordering::Relaxed);
        for round in &stream.rounds {
            round.number.store(0, Ordering::Relaxed);
            round.event.store(0, Ordering::Relaxed);
        }
        stream.round.store(0, Ordering::Relaxed);
        stream.since_wait_ns.store(0, Ordering::Relaxed);
        stream.key.store(key, Ordering::Release);
        Some(place)
    }

    /// Gives back all places that match, with the events they had and their contexts.
    pub(crate) fn forget(&self, matches: impl Fn(&Stream) -> bool) -> Vec<(u64, u64)> {
        let mut events = Vec::new();
        for (place, stream) in self.places.iter().enumerate() {
            let key = stream.key.load(Ordering::Acquire);
            if key > GIVEN_BACK && key != u64::MAX && matches(stream) {
                events.extend(self.give_back(place));
            }
        }
        events
    }

    /// The streams of a thread that ends go when their work is done.
    pub(crate) fn abandon(&self, thread: u64) {
        for stream in self.places.iter().filter(|stream| stream.thread.load(Ordering::Relaxed) == thread) {
            if stream.thread.compare_exchange(thread, NOBODY, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                self.has_orphans.store(true, Ordering::Release);
            }
        }
    }

    /// Gives back the places of those that are abandoned and done, with the events they had and their contexts.
    pub(crate) fn forget_orphans(&self, is_done: impl Fn(&Stream) -> bool) -> Vec<(u64, u64)> {
        if !self.has_orphans.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        self.forget(|stream| {
            let (is_left, is_done) = (stream.is_abandoned(), stream.is_abandoned() && is_done(stream));
            if is_left && !is_done {
                self.has_orphans.store(true, Ordering::Release);
            }
            is_done
        })
    }

    /// Its handle means another stream from now on; what is under way in it still counts.
    pub(crate) fn orphan(&self, place: usize) {
        let stream = &self.places[place];
        stream.thread.store(NOBODY, Ordering::Relaxed);
        // Below any handle and any key of a default stream.
        stream.key.store(FIRST_ORPHAN + place as u64, Ordering::Release);
        self.has_orphans.store(true, Ordering::Release);
    }

    /// The events it had, and their context.
    pub(crate) fn give_back(&self, place: usize) -> impl Iterator<Item = (u64, u64)> {
        self.set_done(place);
        let stream = &self.places[place];
        let context = stream.context.load(Ordering::Relaxed);
        let rounds = stream.rounds.iter().map(|round| &round.event);
        let events = [&stream.event, &stream.gate].into_iter().chain(rounds);
        let events: Vec<u64> =
            events.map(|event| event.swap(0, Ordering::Relaxed)).filter(|event| *event != 0).collect();
        stream.key.store(GIVEN_BACK, Ordering::Release);
        events.into_iter().map(move |event| (event, context))
    }

    /// Whether it was thought to be idle.
    pub(crate) fn set_active(&self, place: usize) -> bool {
        let (word, bit) = (&self.active[place / 64], 1 << (place % 64));
        word.load(Ordering::Relaxed) & bit == 0 && word.fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    pub(crate) fn set_done(&self, place: usize) {
        self.active[place / 64].fetch_and(!(1 << (place % 64)), Ordering::SeqCst);
    }

    pub(crate) fn is_active(&self, place: usize, lane: usize) -> bool {
        self.active[place / 64].load(Ordering::SeqCst) & 1 << (place % 64) != 0
            && self.places[place].lane.load(Ordering::Relaxed) as usize == lane
    }

    /// Places of a GPU's streams that may have work.
    pub(crate) fn active(&self, lane: usize) -> impl Iterator<Item = usize> {
        let words = self.active.iter().enumerate();
        let bits = words.flat_map(|(index, word)| Bits(word.load(Ordering::SeqCst)).map(move |bit| index * 64 + bit));
        bits.filter(move |place| self.places[*place].lane.load(Ordering::Relaxed) as usize == lane)
    }
}

// === impl Stream ===

impl Stream {
    /// The handle by which another thread can name it; `None` for a thread's own default stream and for one that is destroyed.
    pub(crate) fn handle(&self) -> Option<u64> {
        match (self.key.load(Ordering::Acquire), self.thread.load(Ordering::Relaxed)) {
            (key, 0) if key & DEFAULT != 0 => Some(STREAM_LEGACY),
            (key, 0) if key > FIRST_ORPHAN + PLACES as u64 && key != u64::MAX => Some(key),
            _ => None,
        }
    }

    /// A thread's own default stream, which no other thread can name; or that of one that has ended.
    pub(crate) fn is_own(&self) -> bool {
        self.thread.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn is_default(&self) -> bool {
        self.key.load(Ordering::Acquire) & DEFAULT != 0
    }

    /// Where the event of a round belongs.
    #[allow(clippy::cast_possible_truncation)] // the remainder is small
    pub(crate) fn round_slot(&self, round: u64) -> &Round {
        &self.rounds[(round % ROUNDS as u64) as usize]
    }

    /// Whether one of its events is behind what it had when this round began, and done.
    pub(crate) fn has_passed(&self, round: u64, is_done: impl Fn(&AtomicU64) -> bool) -> bool {
        let is_later = |slot: &&Round| slot.number.load(Ordering::Acquire) >= round;
        is_done(&self.event) || self.rounds.iter().filter(is_later).any(|slot| is_done(&slot.event))
    }

    /// Counts a wait. True: the gate comes with it, and the last time it did must have passed before.
    pub(crate) fn is_gate_due(&self) -> bool {
        self.waits.fetch_add(1, Ordering::Relaxed) % WAITS_PER_GATE == WAITS_PER_GATE - 1
    }

    /// An event is behind all pieces.
    pub(crate) fn is_marked(&self) -> bool {
        self.event.load(Ordering::Acquire) != 0
            && self.marked_at.load(Ordering::Acquire) == self.pieces.load(Ordering::Acquire)
    }

    /// Its thread has ended or it was destroyed; its work may go on.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.thread.load(Ordering::Relaxed) == NOBODY
    }

    /// Adds work to what was submitted since the last wait. True: a wait comes before it, and the count begins anew.
    pub(crate) fn needs_wait(&self, estimate_ns: u64, grain_ns: u64, was_idle: bool) -> bool {
        let since = self.since_wait_ns.load(Ordering::Relaxed);
        let waits = was_idle || since.saturating_add(estimate_ns) > grain_ns && since > 0;
        let sum = if waits { estimate_ns } else { since.saturating_add(estimate_ns) };
        // Never 0 once there was work: a single piece longer than a grain is followed by a wait.
        self.since_wait_ns.store(sum.max(1), Ordering::Relaxed);
        waits
    }
}

fn reach(key: u64) -> impl Iterator<Item = usize> {
    let start = place_of(mix(key), PLACES);
    (0..REACH).map(move |step| (start + step) % PLACES)
}

/// The bits that are set, lowest first.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let bit = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

#[cfg(test)]
mod tests;
