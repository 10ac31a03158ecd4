//! The links of this client, as our thread keeps them: their pages, which stops are up since when, and pages that are to go.
//!
//! A page that was taken out is kept until nobody can look at it any more: no call of the program, and, where the client
//! yielded, no wait that is still in a stream. Until then its word is kept at 0.

use std::sync::atomic::Ordering;

use berth_proto::shim::sys::Page;
use berth_proto::shim::{LANES, Stop};

use crate::client::Client;
use crate::lane::Side;

/// Pages that wait for a GPU's streams; beyond, new links are passed over.
const MOST_LEAVING: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Links {
    links: Vec<Link>,
    leaving: Vec<Leaving>,
    /// GPUs whose streams are being asked whether they have passed.
    asking: [bool; LANES],
}

#[derive(Debug)]
struct Link {
    id: u64,
    lane: usize,
    side: Side,
    slot: usize,
    page: Page<Stop>,
    /// The word when it was last looked at, and since when it was that.
    word: u32,
    since_ns: u64,
}

#[derive(Debug)]
struct Leaving {
    lane: usize,
    side: Side,
    slot: usize,
    /// The GPU knows it, so waits for it may be in streams.
    is_registered: bool,
    page: Page<Stop>,
    generation: u64,
    /// The round in which the GPU's streams are asked about it.
    round: Option<u64>,
}

impl Links {
    /// False: there is no room for it, so it counts for nothing.
    pub(crate) fn add(
        &mut self,
        client: &Client,
        id: u64,
        lane: usize,
        side: Side,
        page: Page<Stop>,
        now_ns: u64,
    ) -> bool {
        let known = &client.lanes[lane];
        let is_left = |slot: usize| self.is_left(client, lane, side, slot);
        let free = match side {
            Side::Leads => (0..known.leads.len()).find(|slot| known.leads[*slot].is_empty() && is_left(*slot)),
            Side::Yields => (0..known.yields.len()).find(|slot| known.yields[*slot].stop.is_empty() && is_left(*slot)),
        };
        let Some(slot) = free.filter(|_| self.leaving.len() < MOST_LEAVING && known.device().is_some()) else {
            return false;
        };
        match side {
            Side::Leads => {
                known.leads[slot].put(&page);
                if known.is_raised() {
                    page.word.store(1, Ordering::SeqCst);
                }
            }
            Side::Yields => known.yields[slot].stop.put(&page),
        }
        known.count(side, true);
        let word = page.word.load(Ordering::Relaxed);
        self.links.push(Link { id, lane, side, slot, page, word, since_ns: now_ns });
        true
    }

    /// Whether no call can still be at what was in this slot before.
    fn is_left(&self, client: &Client, lane: usize, side: Side, slot: usize) -> bool {
        let was_there = |it: &&Leaving| (it.lane, it.side, it.slot) == (lane, side, slot);
        self.leaving.iter().filter(was_there).all(|it| client.readers.all_left(it.generation))
    }

    /// Lets go of all links that match.
    pub(crate) fn remove(&mut self, client: &Client, matches: impl Fn(u64, usize, Side) -> bool) {
        let generation = client.readers.generation();
        for link in self.links.extract_if(.., |link| matches(link.id, link.lane, link.side)) {
            let lane = &client.lanes[link.lane];
            let is_registered = match link.side {
                Side::Leads => {
                    lane.leads[link.slot].take_out();
                    false
                }
                Side::Yields => lane.yields[link.slot].clear(),
            };
            lane.count(link.side, false);
            link.page.word.store(0, Ordering::SeqCst);
            let Link { lane, side, slot, page, .. } = link;
            self.leaving.push(Leaving { lane, side, slot, is_registered, page, generation, round: None });
        }
    }

    /// A GPU on which a stop is obeyed for longer than `longest_ns` of it says; 0 has no end. Who has no work obeys none.
    pub(crate) fn overdue(
        &mut self,
        now_ns: u64,
        longest_ns: impl Fn(usize) -> u64,
        is_idle: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let mut overdue = None;
        for link in self.links.iter_mut().filter(|link| link.side == Side::Yields) {
            let word = link.page.word.load(Ordering::Relaxed);
            if word == 0 || word != link.word || is_idle(link.lane) {
                (link.word, link.since_ns) = (word, now_ns);
            }
            let longest = longest_ns(link.lane);
            if longest > 0 && now_ns.saturating_sub(link.since_ns) > longest {
                overdue = Some(link.lane);
            }
        }
        overdue
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.links.iter().any(|link| link.side == Side::Yields && link.word != 0)
    }

    /// Keeps the words of those that leave at 0, and frees those that nobody looks at any more. `has_passed` says of a GPU whether
    /// all its streams have passed what they had when a round began.
    pub(crate) fn sweep(&mut self, client: &Client, has_passed: impl Fn(usize, u64) -> bool) {
        if self.leaving.is_empty() {
            return;
        }
        client.readers.turn();
        let all_left = |leaving: &Leaving| client.readers.all_left(leaving.generation);
        for leaving in self.leaving.iter().filter(|leaving| leaving.page.word.load(Ordering::Relaxed) != 0) {
            leaving.page.word.store(0, Ordering::SeqCst);
        }
        self.leaving.retain(|leaving| leaving.is_registered || !all_left(leaving));
        for lane in 0..client.lanes.len() {
            let round = &client.lanes[lane].round;
            if self.asking[lane] && has_passed(lane, round.load(Ordering::SeqCst)) {
                self.asking[lane] = false;
                let asked = |leaving: &mut Leaving| leaving.lane == lane && leaving.round.is_some();
                for leaving in self.leaving.extract_if(.., asked) {
                    client.driver.unregister(leaving.page.address());
                }
            }
            let mut next =
                self.leaving.iter_mut().filter(|leaving| leaving.lane == lane && all_left(leaving)).peekable();
            if !self.asking[lane] && next.peek().is_some() {
                self.asking[lane] = true;
                let begun = round.fetch_add(1, Ordering::SeqCst) + 1;
                next.for_each(|leaving| leaving.round = Some(begun));
            }
        }
    }

    pub(crate) fn are_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }
}
