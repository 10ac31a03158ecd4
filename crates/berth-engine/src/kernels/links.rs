//! The links that exist on one GPU, and making them what a plan wants.
//!
//! Making a link costs a client some hundred microseconds (it has the driver map a page), so one that a plan does without for once is
//! kept for a while, with its word held down.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_host::shim::{ClientId, End, Link, Shim};
use berth_model::Mono;

/// How long a link is kept that no plan wants.
const KEPT: Duration = Duration::from_secs(2);
/// Links on one GPU; more pairs than that do not yield to each other.
const MOST: usize = 2_048;

#[derive(Debug, Default)]
pub(super) struct Links {
    all: BTreeMap<Pair, Kept>,
}

/// Who yields, and to whom; `None`: to the daemon.
pub(super) type Pair = (End, Option<End>);

#[derive(Debug)]
struct Kept {
    link: Link,
    unwanted_since: Option<Mono>,
}

impl Links {
    /// Makes what is missing and takes away what nobody has wanted for a while.
    pub fn want(&mut self, wanted: &[Pair], shim: &Shim, now: Mono) {
        for pair in wanted {
            if let Some(kept) = self.all.get_mut(pair) {
                kept.unwanted_since = None;
            } else if self.all.len() < MOST
                && let Some(link) = shim.link(pair.0, pair.1)
            {
                self.all.insert(*pair, Kept { link, unwanted_since: None });
            }
        }
        for (pair, kept) in &mut self.all {
            if !wanted.contains(pair) {
                kept.unwanted_since.get_or_insert(now);
            }
        }
        let is_over = |kept: &Kept| kept.unwanted_since.is_some_and(|since| now.since(since) >= KEPT);
        let over: Vec<Pair> = self.all.iter().filter(|(_, kept)| is_over(kept)).map(|(pair, _)| *pair).collect();
        over.into_iter().for_each(|pair| self.unlink(pair, shim));
    }

    fn unlink(&mut self, pair: Pair, shim: &Shim) {
        if let Some(kept) = self.all.remove(&pair) {
            shim.unlink(kept.link);
        }
    }

    /// Sets the daemon's own word for a client.
    pub fn stop(&self, who: End, is_stopped: bool) {
        if let Some(kept) = self.all.get(&(who, None)) {
            kept.link.set(is_stopped);
        }
    }

    /// Nobody stands for a link that the plan does without.
    pub fn free_unwanted(&self) {
        let unwanted = self.all.values().filter(|kept| kept.unwanted_since.is_some());
        unwanted.filter(|kept| kept.link.is_up()).for_each(|kept| kept.link.set(false));
    }

    /// Those that this one keeps stopped now by its own word.
    pub fn stopped_by(&self, leads: End) -> impl Iterator<Item = End> {
        let led = self.all.values().filter(move |kept| kept.link.leads == Some(leads));
        led.filter(|kept| kept.unwanted_since.is_none() && kept.link.is_up()).map(|kept| kept.link.yields)
    }

    /// Whether this one has to wait now, for whoever it yields to.
    pub fn is_stopped(&self, yields: End) -> bool {
        let own = self.all.range((yields, None)..).take_while(|((end, _), _)| *end == yields);
        own.into_iter().any(|(_, kept)| kept.unwanted_since.is_none() && kept.link.is_up())
    }

    /// To whom this one yields.
    pub fn leaders_of(&self, yields: End) -> impl Iterator<Item = ClientId> {
        let own = self.all.range((yields, None)..).take_while(move |((end, _), _)| *end == yields);
        own.filter(|(_, kept)| kept.unwanted_since.is_none()).filter_map(|((_, leads), _)| Some((*leads)?.client))
    }

    /// A client is gone; its links go with it.
    pub fn forget(&mut self, client: ClientId, shim: &Shim) {
        let is_its = |(yields, leads): &Pair| yields.client == client || leads.is_some_and(|end| end.client == client);
        let its: Vec<Pair> = self.all.keys().filter(|pair| is_its(pair)).copied().collect();
        its.into_iter().for_each(|pair| self.unlink(pair, shim));
    }

    pub fn clear(&mut self, shim: &Shim) {
        let all: Vec<Pair> = self.all.keys().copied().collect();
        all.into_iter().for_each(|pair| self.unlink(pair, shim));
    }
}
