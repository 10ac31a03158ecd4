//! Pages of links that were taken away, until nobody looks at them any more.
//!
//! The thread that frees keeps their words at 0; the one that looks at the GPU says when its streams have passed, and unregisters them.
//! The list is never locked during a call to the driver.

use std::sync::atomic::Ordering;

use berth_proto::shim::Stop;
use berth_proto::shim::sys::Page;

use crate::capture::CAPTURES;
use crate::client::Client;
use crate::lane::Side;
use crate::links::{FOUGHT_OFTEN, Found, STUCK_AFTER_NS};
use crate::streams::ROUNDS;

/// How often a word is set to 0 in a row where somebody sets it to something else as often: the GPU looks at it every few
/// microseconds, and one look is enough for a wait to pass.
const BLOWS: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) id: u64,
    pub(crate) lane: usize,
    pub(crate) side: Side,
    pub(crate) slot: usize,
    /// Where the GPU knows it, and in which context: waits for it may be in streams.
    pub(crate) registered: Option<(u64, u64)>,
    pub(crate) page: Page<Stop>,
    pub(crate) generation: u64,
    /// The round that the GPU's streams have to pass.
    pub(crate) round: Option<u64>,
    pub(crate) since_ns: u64,
    pub(crate) fought: u64,
}

/// Sets a word to 0 again and again, for a moment.
pub(crate) fn fight(page: &Page<Stop>) {
    for _ in 0..BLOWS {
        page.word.store(0, Ordering::SeqCst);
        std::hint::spin_loop();
    }
}

/// By the thread that frees: keeps words at 0, and drops pages that the GPU never knew.
pub(crate) fn keep_free(client: &Client, found: &mut [Found], now_ns: u64) {
    let mut leaving = client.leaving();
    if leaving.is_empty() {
        return;
    }
    client.readers.turn();
    for it in leaving.iter_mut() {
        if it.page.word.load(Ordering::Relaxed) != 0 {
            it.page.word.store(0, Ordering::SeqCst);
            // Its leader may not have heard yet that it is no more.
            it.fought += 1;
            found[it.lane].fought += 1;
            if it.is_late(now_ns) {
                fight(&it.page);
            }
        }
        if it.is_late(now_ns) && it.fought >= FOUGHT_OFTEN {
            found[it.lane].stuck.get_or_insert((it.id, it.since_ns));
        }
    }
    leaving.retain(|it| it.registered.is_some() || !client.readers.all_left(it.generation));
}

/// By the thread that looks at the GPU: begins rounds for those that wait for one, and unregisters what all streams have passed. Not while
/// anything is captured: the driver may wait for all streams then, which one that captures does not survive.
pub(crate) fn unregister(client: &Client) {
    if CAPTURES.any() {
        return;
    }
    let mut passed = Vec::new();
    {
        let mut leaving = client.leaving();
        for it in leaving.iter().filter(|it| it.registered.is_some()) {
            if let (Some(round), Some((_, context))) = (it.round, it.registered)
                && client.lanes[it.lane].passed.load(Ordering::SeqCst) >= round
            {
                passed.push((it.page.address(), context));
            }
        }
        for (index, lane) in client.lanes.iter().enumerate() {
            let is_next = |it: &&mut Leaving| it.lane == index && it.registered.is_some() && it.round.is_none();
            let all_left = |it: &&mut Leaving| client.readers.all_left(it.generation);
            let mut next = leaving.iter_mut().filter(is_next).filter(all_left).peekable();
            let under_way = lane.round.load(Ordering::SeqCst) - lane.passed.load(Ordering::SeqCst);
            if next.peek().is_some() && under_way < ROUNDS as u64 {
                // At once: those that are under way began before the last call went, and this one must not wait for them.
                let begun = lane.round.fetch_add(1, Ordering::SeqCst) + 1;
                next.for_each(|it| it.round = Some(begun));
            }
        }
    }
    // The GPU may still store to it.
    passed.retain(|(_, context)| !client.freeing.is_under_way(client, *context));
    // A capture that begins meanwhile is not waited for.
    passed.retain(|(address, context)| {
        let is_free = !CAPTURES.any();
        if is_free {
            client.driver.unregister(*address, *context);
        }
        is_free
    });
    client.leaving().retain(|it| passed.iter().all(|(address, _)| *address != it.page.address()));
}

/// Where the GPU knows the words that streams may still wait for after a while, and in which contexts.
pub(crate) fn late(client: &Client, now_ns: u64) -> Vec<(u64, u64)> {
    client.leaving().iter().filter(|it| it.is_late(now_ns)).filter_map(|it| it.registered).collect()
}

impl Leaving {
    /// Waits for it may still be in streams. It can be a long kernel before them.
    fn is_late(&self, now_ns: u64) -> bool {
        self.registered.is_some()
            && self.round.is_some()
            && self.side == Side::Yields
            && now_ns.saturating_sub(self.since_ns) > STUCK_AFTER_NS
    }
}
