//! The links of this client, as the thread that frees keeps them: their pages, which stops are up since when, and pages that are to go.
//!
//! Nothing here calls the driver or waits for anybody who does: words are set to 0 by plain stores. A page that was taken out is kept
//! until nobody can look at it any more: no call of the program, and, where the client yielded, no wait that is still in a stream. Until
//! then its word is kept at 0.
//!
//! A stop is *given up* when it has lasted too long: the streams have not got on for so long, whatever the word was in between. That
//! counts for one raise: it ends when the word has another value and the streams have got on.

use std::fs::File;
use std::sync::atomic::Ordering;

use berth_proto::shim::sys::{Page, close_to_others};
use berth_proto::shim::{LANES, Stop};

use crate::client::Client;
use crate::lane::{Lane, Side};
use crate::leaving::Leaving;

/// Pages that wait for a GPU's streams; with more, those of new links are not shown to the GPU, and their stops are obeyed on the CPU.
const MOST_LEAVING: usize = 256;
/// A page is closed to others when its leader has mapped it, or after this: one that never does is not waited for.
const CLOSED_AFTER_NS: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub(crate) struct Links {
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    id: u64,
    lane: usize,
    side: Side,
    slot: usize,
    page: Page<Stop>,
    /// Until the page is closed to others.
    file: Option<File>,
    added_ns: u64,
    /// When the word was last seen at 0, unless it was set to that here.
    down_at_ns: u64,
    stop: Obeyed,
}

/// Whether a client obeys a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obeyed {
    Yes,
    /// Not this raise of it.
    GivenUp {
        value: u32,
        at_ns: u64,
        fought: u64,
    },
}

/// What was found on one GPU at a look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Since when a stop that is obeyed has kept the streams; 0: none does.
    pub(crate) stopped_since_ns: u64,
    pub(crate) given_up: u32,
    pub(crate) newly_given_up: u64,
    /// Words that were up although they had been set to 0 here.
    pub(crate) fought: u64,
    /// The link that keeps the streams although its word was set to 0, and since when.
    pub(crate) stuck: Option<(u64, u64)>,
}

/// What a look needs to know of a GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) longest_ns: u64,
    /// The daemon says that no stop is to be obeyed.
    pub(crate) is_freed: bool,
    pub(crate) is_idle: bool,
    /// When its streams last got on, or had nothing to do before.
    pub(crate) got_on_ns: u64,
}

/// Streams that stand for so long after their words were set to 0 do not see it.
pub(crate) const STUCK_AFTER_NS: u64 = 20_000_000;
/// A word that is found raised so often after it was set to 0 is raised by somebody who will not let go.
pub(crate) const FOUGHT_OFTEN: u64 = 3;

impl Links {
    /// False: there is no room for it, so it counts for nothing.
    pub(crate) fn add(
        &mut self,
        client: &Client,
        id: u64,
        lane: usize,
        side: Side,
        (page, file): (Page<Stop>, File),
        now_ns: u64,
    ) -> bool {
        let known = &client.lanes[lane];
        let leaving = client.leaving();
        let was_there = |it: &&Leaving, slot| (it.lane, it.side, it.slot) == (lane, side, slot);
        let is_left = |slot: usize| {
            leaving.iter().filter(|it| was_there(it, slot)).all(|it| client.readers.all_left(it.generation))
        };
        let free = match side {
            Side::Leads => (0..known.leads.len()).find(|slot| known.leads[*slot].is_empty() && is_left(*slot)),
            Side::Yields => (0..known.yields.len()).find(|slot| known.yields[*slot].stop.is_empty() && is_left(*slot)),
        };
        let Some(slot) = free.filter(|_| known.device().is_some()) else { return false };
        drop(leaving);
        let has_room = has_room(client);
        match side {
            Side::Leads => {
                page.is_led.store(1, Ordering::SeqCst);
                known.leads[slot].put(&page);
                known.raise_one(&page);
            }
            Side::Yields => {
                known.yields[slot].begin(false);
                known.yields[slot].stop.put(&page);
            }
        }
        known.count(side, true);
        let file = (side == Side::Yields).then_some(file);
        let mut link =
            Link { id, lane, side, slot, page, file, added_ns: now_ns, down_at_ns: now_ns, stop: Obeyed::Yes };
        link.close(known, has_room, now_ns);
        self.links.push(link);
        true
    }

    /// Lets go of all links that match.
    pub(crate) fn remove(&mut self, client: &Client, matches: impl Fn(u64, usize, Side) -> bool, now_ns: u64) {
        let generation = client.readers.generation();
        for link in self.links.extract_if(.., |link| matches(link.id, link.lane, link.side)) {
            let lane = &client.lanes[link.lane];
            let registered = match link.side {
                Side::Leads => {
                    lane.leads[link.slot].take_out();
                    None
                }
                Side::Yields => lane.yields[link.slot].clear(),
            };
            lane.count(link.side, false);
            link.page.word.store(0, Ordering::SeqCst);
            let Link { id, lane, side, slot, page, .. } = link;
            let leaving = Leaving {
                id,
                lane,
                side,
                slot,
                registered,
                page,
                generation,
                round: None,
                since_ns: now_ns,
                fought: 0,
            };
            client.leaving().push(leaving);
        }
    }

    /// Looks at all words, gives up what lasts too long, and keeps what is free at 0.
    pub(crate) fn look(
        &mut self,
        client: &Client,
        standing: impl Fn(usize) -> Standing,
        now_ns: u64,
    ) -> [Found; LANES] {
        let mut found = [Found::default(); LANES];
        let has_room = self.links.iter().any(|link| link.file.is_some()) && has_room(client);
        for link in self.links.iter_mut().filter(|link| link.side == Side::Yields) {
            let lane = &client.lanes[link.lane];
            link.close(lane, has_room, now_ns);
            // The word first: whoever raises it when the client is idle must not find it taken for busy still.
            let word = link.page.word.load(Ordering::SeqCst);
            let standing = standing(link.lane);
            link.look(word, standing, now_ns, &mut found[link.lane]);
            let is_free = link.stop != Obeyed::Yes || standing.is_freed;
            lane.yields[link.slot].is_free.store(is_free, Ordering::Relaxed);
        }
        found
    }

    /// Whether a word has to be looked at often.
    pub(crate) fn is_stopped(&self) -> bool {
        let is_up = |link: &Link| link.stop != Obeyed::Yes || link.page.word.load(Ordering::Relaxed) != 0;
        self.links.iter().any(|link| link.side == Side::Yields && (link.file.is_some() || is_up(link)))
    }

    pub(crate) fn are_yielding(&self) -> bool {
        self.links.iter().any(|link| link.side == Side::Yields)
    }
}

/// Whether the GPU may be shown another page.
fn has_room(client: &Client) -> bool {
    client.leaving().iter().filter(|it| it.registered.is_some()).count() < MOST_LEAVING
}

impl Link {
    fn close(&mut self, lane: &Lane, has_room: bool, now_ns: u64) {
        let is_due =
            self.page.is_led.load(Ordering::SeqCst) != 0 || now_ns.saturating_sub(self.added_ns) > CLOSED_AFTER_NS;
        if is_due
            && has_room
            && let Some(file) = self.file.take()
        {
            // One that cannot be closed is never waited for on the GPU.
            let is_closed = close_to_others(&file).is_ok();
            lane.yields[self.slot].is_closed.store(is_closed, Ordering::SeqCst);
        }
    }

    fn look(&mut self, word: u32, standing: Standing, now_ns: u64, found: &mut Found) {
        if standing.is_freed {
            (self.stop, self.down_at_ns) = (Obeyed::Yes, now_ns);
            if word != 0 {
                self.page.word.store(0, Ordering::SeqCst);
            }
            return;
        }
        if word == 0 && self.stop == Obeyed::Yes || standing.is_idle {
            self.down_at_ns = now_ns;
        }
        match self.stop {
            Obeyed::Yes => {
                let since = self.down_at_ns.max(standing.got_on_ns);
                if word == 0 || standing.is_idle {
                    return;
                }
                if standing.longest_ns == 0 || now_ns.saturating_sub(since) <= standing.longest_ns {
                    let before = Some(found.stopped_since_ns).filter(|since| *since > 0);
                    found.stopped_since_ns = before.unwrap_or(u64::MAX).min(since);
                    return;
                }
                self.stop = Obeyed::GivenUp { value: word, at_ns: now_ns, fought: 0 };
                found.newly_given_up += 1;
                found.given_up += 1;
                self.free(word);
            }
            Obeyed::GivenUp { value, at_ns, fought } => {
                let got_on = standing.got_on_ns > at_ns || standing.is_idle;
                if word != 0 && word != value && got_on {
                    (self.stop, self.down_at_ns) = (Obeyed::Yes, now_ns);
                    return;
                }
                found.given_up += 1;
                let is_fought = word != 0;
                if is_fought {
                    self.stop = Obeyed::GivenUp { value, at_ns, fought: fought + 1 };
                    found.fought += 1;
                    self.free(word);
                }
                if !got_on && now_ns.saturating_sub(at_ns) > STUCK_AFTER_NS {
                    if fought >= FOUGHT_OFTEN {
                        found.stuck.get_or_insert((self.id, at_ns));
                    }
                    if is_fought {
                        crate::leaving::fight(&self.page);
                    }
                }
            }
        }
    }

    /// Only this raise of it: another that has come meanwhile counts.
    fn free(&self, word: u32) {
        let _ = self.page.word.compare_exchange(word, 0, Ordering::SeqCst, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use berth_proto::shim::sys::Writers;

    use super::*;

    const MS: u64 = 1_000_000;
    const LONGEST: u64 = 50 * MS;

    fn link() -> Link {
        let (page, file) = Page::create(c"stop", Writers::All).unwrap();
        let (side, stop) = (Side::Yields, Obeyed::Yes);
        Link { id: 4, lane: 0, side, slot: 0, page, file: Some(file), added_ns: 0, down_at_ns: 0, stop }
    }

    /// A look at this time, with the streams having got on at that time.
    fn look(link: &mut Link, now_ms: u64, got_on_ms: u64) -> Found {
        let standing = Standing { longest_ns: LONGEST, is_freed: false, is_idle: false, got_on_ns: got_on_ms * MS };
        let mut found = Found::default();
        link.look(word(link), standing, now_ms * MS, &mut found);
        found
    }

    fn set(link: &Link, word: u32) {
        link.page.word.store(word, Ordering::SeqCst);
    }

    fn word(link: &Link) -> u32 {
        link.page.word.load(Ordering::SeqCst)
    }

    #[test]
    fn a_stop_is_given_up_when_the_streams_have_not_got_on_for_too_long_whatever_the_word_was() {
        let mut link = link();
        look(&mut link, 10, 0);
        for (at, value) in [(20, 3), (40, 5), (60, 7)] {
            set(&link, value);
            assert_eq!(look(&mut link, at, 0).stopped_since_ns, 10 * MS);
        }
        set(&link, 9);
        let found = look(&mut link, 61, 0);
        assert_eq!((found.newly_given_up, found.given_up, word(&link)), (1, 1, 0));
    }

    #[test]
    fn streams_that_get_on_in_between_give_up_nothing() {
        let mut link = link();
        set(&link, 3);
        for at in (0..1000).step_by(10) {
            assert_eq!(look(&mut link, at, at.saturating_sub(20)).given_up, 0);
        }
        assert_eq!(word(&link), 3);
    }

    #[test]
    fn a_stop_that_was_given_up_counts_again_with_another_raise_once_the_streams_have_got_on() {
        let mut link = link();
        set(&link, 3);
        assert_eq!(look(&mut link, 60, 0).newly_given_up, 1);
        assert_eq!(look(&mut link, 61, 0).given_up, 1);
        set(&link, 3);
        assert_eq!((look(&mut link, 62, 61).fought, word(&link)), (1, 0), "the same raise stays free");
        set(&link, 5);
        assert_eq!((look(&mut link, 63, 0).given_up, word(&link)), (1, 0), "they have not got on yet");
        set(&link, 7);
        assert_eq!((look(&mut link, 64, 61).given_up, word(&link)), (0, 7));
    }

    #[test]
    fn a_word_that_is_raised_again_and_again_while_the_streams_stand_is_told() {
        let mut link = link();
        set(&link, 3);
        look(&mut link, 60, 0);
        let mut stuck = Vec::new();
        for at in (65..100).step_by(5) {
            set(&link, 2 * at + 1);
            stuck.push(look(&mut link, at.into(), 0).stuck);
        }
        assert_eq!(stuck[..4], [None; 4], "it may be under way");
        assert_eq!(stuck[4..], [Some((4, 60 * MS)); 3]);
        assert_eq!(look(&mut link, 110, 105).stuck, None, "they have got on");
    }

    #[test]
    fn a_long_kernel_before_the_wait_is_nobodys_doing() {
        let mut link = link();
        set(&link, 3);
        look(&mut link, 60, 0);
        assert!((61..500).all(|at| look(&mut link, at, 0).stuck.is_none()));
    }

    #[test]
    fn who_is_freed_by_the_daemon_has_all_words_down() {
        let mut link = link();
        set(&link, 3);
        let standing = Standing { longest_ns: 0, is_freed: true, is_idle: false, got_on_ns: 0 };
        let mut found = Found::default();
        link.look(word(&link), standing, 5, &mut found);
        assert_eq!((word(&link), found), (0, Found::default()));
    }
}
