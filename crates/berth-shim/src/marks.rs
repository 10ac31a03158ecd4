//! Events of ours in the program's streams, by which it is known how far these are.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::capture::CAPTURES;
use crate::client::{Client, Seen};

/// Records the stream's events behind its work: the one for its end if that is wanted, the other once per round.
pub(crate) fn mark(client: &Client, seen: &Seen, place: usize, handle: u64, pieces: Option<u32>) {
    let stream = client.streams.get(place);
    if let Some(pieces) = pieces
        && record(client, seen.context, &stream.event, handle)
    {
        stream.marked_at.store(pieces, Ordering::Release);
    }
    let round = client.lanes[seen.lane].round.load(Ordering::Relaxed);
    if stream.round.load(Ordering::Relaxed) != round {
        let slot = stream.round_slot(round);
        if record(client, seen.context, &slot.event, handle) {
            slot.number.store(round, Ordering::Release);
            stream.round.store(round, Ordering::Relaxed);
        }
    }
}

/// Records the event behind all that a stream has, so many pieces; its context need not be the one that is current.
pub(crate) fn record_behind_all(client: &Client, place: usize, handle: u64) -> Option<u32> {
    let stream = client.streams.get(place);
    let (pieces, context) = (stream.pieces.load(Ordering::Acquire), stream.context.load(Ordering::Relaxed));
    let can_record = || !CAPTURES.has(&client.driver, handle);
    let recorded = client.driver.within(context, || can_record() && record(client, context, &stream.event, handle));
    (recorded == Some(true)).then_some(pieces)
}

/// Makes the event at the first time.
pub(crate) fn record(client: &Client, context: u64, known: &AtomicU64, stream: u64) -> bool {
    let mut event = known.load(Ordering::Acquire);
    if event == 0 {
        let Some(Some(new)) = client.driver.within(context, || client.driver.create_event(false)) else { return false };
        match known.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => event = new,
            Err(other) => {
                client.driver.destroy_event(new, context);
                event = other;
            }
        }
    }
    client.driver.record(event, stream)
}
