//! The links that exist on one GPU, and making them what a plan wants.
//!
//! Making a link costs a client some hundred microseconds (it has the driver map a page), so one that a plan does without for once is
//! kept for a while, with its word held down and its leader told not to raise it. When it is wanted again while its leader has work, the
//! daemon raises the word in the leader's place, whose library does so only with its next work. What the daemon raised it lowers when the
//! leader has none left.
//!
//! Both ends of a link can write its word, so a word alone is no evidence. The daemon's own counts while the daemon has it raised, and a leader's
//! while its ledger says that it has work: an honest library says so before it raises its words, and that it has none after it has lowered
//! them. One that is found up without work at two looks is set to 0, and told; who of the two wrote it nobody can say.
//!
//! One that may not lead any more is unlinked at once, whatever plans want. The pages of links that were taken away are looked at for a
//! while: whoever has lost a lead may not go on stopping others with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::shim::{ClientId, End, Link, Shim};
use berth_model::Mono;
use berth_proto::shim::{MOST_LEADS, MOST_YIELDS};

use super::CONTENDED;

/// How long a link is kept that no plan wants.
const KEPT: Duration = Duration::from_secs(2);
/// A leader that has not mapped the page by then cannot any more, since it is closed to others after a second: it gets another.
const LED_WITHIN: Duration = Duration::from_secs(2);
/// How long the page of a link is looked at that was taken away.
const LOOKED_AT: Duration = Duration::from_secs(10);
/// Pages that are looked at after their links; of more, the oldest are let go.
const MOST_LEFT: usize = 512;

#[derive(Debug, Default)]
pub(super) struct Links {
    all: BTreeMap<Pair, Kept>,
    left: Vec<Left>,
}

/// Who yields, and to whom; `None`: to the daemon.
pub(super) type Pair = (End, Option<End>);

#[derive(Debug)]
struct Kept {
    link: Link,
    made: Mono,
    unwanted_since: Option<Mono>,
    /// The daemon has raised it in its leader's place.
    is_lent: bool,
    /// The daemon's own: whether it is to be up. Its follower can write it, too.
    is_raised: bool,
    /// Since when it has been up while its leader has no work.
    idle_since: Option<Mono>,
    /// It was set to 0 for that. Its leader's library may think that it is up.
    is_owed: bool,
}

/// A link that was taken away.
#[derive(Debug)]
struct Left {
    link: Link,
    since: Mono,
    /// Looks at which its word was found raised again.
    found_up: u32,
}

/// What is known of a link by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub yields: End,
    pub leads: Option<End>,
    /// Looks at which its word was found raised after the link was taken away.
    pub found_up: u32,
}

impl Links {
    /// Makes what is missing and takes away what nobody has wanted for a while, or what is in the way of others.
    pub fn want(&mut self, wanted: &BTreeSet<Pair>, is_busy: &dyn Fn(End) -> bool, shim: &Shim, now: Mono) {
        for (_, kept) in self.all.iter_mut().filter(|(pair, _)| !wanted.contains(pair)) {
            if kept.unwanted_since.is_none() {
                kept.unwanted_since = Some(now);
                kept.let_go();
                kept.link.mute(true);
                kept.link.lower();
            }
        }
        let in_the_way = self.in_the_way(wanted);
        self.unlink(|pair, kept| kept.is_over(now) || in_the_way.contains(pair), shim, now);
        for pair in wanted {
            let is_led_now = pair.1.is_some_and(is_busy);
            if let Some(kept) = self.all.get_mut(pair) {
                if kept.unwanted_since.take().is_some() {
                    kept.link.mute(false);
                    kept.lend_if(is_led_now);
                }
            } else if let Some(link) = shim.link(pair.0, pair.1) {
                let mut kept = Kept::new(link, now);
                kept.lend_if(is_led_now);
                self.all.insert(*pair, kept);
            }
        }
    }

    /// Links that nobody wants now, of those who have no room for them beside what is wanted.
    fn in_the_way(&self, wanted: &BTreeSet<Pair>) -> BTreeSet<Pair> {
        let all: BTreeSet<&Pair> = self.all.keys().chain(wanted).collect();
        let (mut yields, mut leads) = (BTreeMap::<End, usize>::new(), BTreeMap::<End, usize>::new());
        for (follower, leader) in all {
            *yields.entry(*follower).or_default() += 1;
            leader.iter().for_each(|leader| *leads.entry(*leader).or_default() += 1);
        }
        let is_crowded = |(follower, leader): &&Pair| {
            yields[follower] > MOST_YIELDS || leader.is_some_and(|leader| leads[&leader] > MOST_LEADS)
        };
        let unwanted = self.all.iter().filter(|(_, kept)| kept.unwanted_since.is_some()).map(|(pair, _)| pair);
        unwanted.filter(is_crowded).copied().collect()
    }

    pub fn has(&self, pair: &Pair) -> bool {
        self.all.contains_key(pair)
    }

    /// Takes these links away. Both ends are told, and nobody is left standing.
    fn unlink(&mut self, which: impl Fn(&Pair, &Kept) -> bool, shim: &Shim, now: Mono) {
        for (_, kept) in self.all.extract_if(.., |pair, kept| which(pair, kept)) {
            shim.unlink(&kept.link);
            self.left.push(Left { link: kept.link, since: now, found_up: 0 });
        }
        let beyond = self.left.len().saturating_sub(MOST_LEFT);
        self.left.drain(..beyond);
    }

    /// Sets the daemon's own word for a client.
    pub fn stop(&mut self, who: End, is_stopped: bool) {
        if let Some(kept) = self.all.get_mut(&(who, None)) {
            kept.is_raised = is_stopped;
            match is_stopped {
                true => kept.link.raise(),
                false => _ = kept.link.lower(),
            }
        }
    }

    /// Nobody stands for a link that the plan does without, nor for a leader that has no work, nor for one that was taken away. Between whom
    /// a word was up without work: who yields, and who leads.
    pub fn free(&mut self, is_busy: &dyn Fn(End) -> bool, now: Mono) -> Vec<(End, End)> {
        let mut found = Vec::new();
        for kept in self.all.values_mut() {
            if kept.unwanted_since.is_some() {
                kept.link.lower();
            }
            if kept.is_lent && kept.link.leads.is_none_or(|leads| !is_busy(leads)) {
                kept.is_lent = false;
                kept.link.lower_own();
            }
            if let Some(leads) = kept.link.leads
                && kept.is_up_without_work(is_busy(leads), now)
            {
                found.push((kept.link.yields, leads));
            }
        }
        self.left.retain(|left| now.since(left.since) < LOOKED_AT);
        for left in self.left.iter_mut().filter(|left| left.link.is_up()) {
            left.link.lower();
            left.found_up += 1;
        }
        found
    }

    /// It leads nobody from now on.
    pub fn part(&mut self, leads: End, shim: &Shim, now: Mono) {
        self.unlink(|(_, leader), _| *leader == Some(leads), shim, now);
    }

    /// These two are not linked from now on.
    pub fn part_two(&mut self, yields: End, leads: End, shim: &Shim, now: Mono) {
        self.unlink(|pair, _| *pair == (yields, Some(leads)), shim, now);
    }

    /// Whether one has to be looked at soon: the daemon has raised it in a leader's place, or it is up without work.
    pub fn wait_for_a_look(&self) -> bool {
        self.all.values().any(|kept| kept.is_lent || kept.idle_since.is_some())
    }

    pub fn known(&self, link: u64) -> Option<Known> {
        let here = self.all.values().map(|kept| (&kept.link, 0));
        let left = self.left.iter().map(|left| (&left.link, left.found_up));
        let found = here.chain(left).find(|(one, _)| one.id == link);
        found.map(|(link, found_up)| Known { yields: link.yields, leads: link.leads, found_up })
    }

    /// Whether a link of this client is known, or was until lately.
    pub fn remember(&self, client: ClientId) -> bool {
        let links = self.all.values().map(|kept| &kept.link).chain(self.left.iter().map(|left| &left.link));
        links.into_iter().any(|link| link.yields.client == client || link.leads.is_some_and(|end| end.client == client))
    }

    /// Those that this one keeps stopped now by its own word.
    pub fn stopped_by(&self, leads: End, is_busy: &dyn Fn(End) -> bool) -> impl Iterator<Item = End> {
        let led = self.all.values().filter(move |kept| kept.link.leads == Some(leads));
        led.filter(|kept| kept.counts(is_busy)).map(|kept| kept.link.yields)
    }

    /// Whether this one has to wait now, for whoever it yields to.
    pub fn is_stopped(&self, yields: End, is_busy: &dyn Fn(End) -> bool) -> bool {
        let own = self.all.range((yields, None)..).take_while(|((end, _), _)| *end == yields);
        own.into_iter().any(|(_, kept)| kept.counts(is_busy))
    }

    /// Whether the daemon itself has this one wait now.
    pub fn is_stopped_by_daemon(&self, yields: End) -> bool {
        self.all.get(&(yields, None)).is_some_and(|kept| kept.counts(&|_| false))
    }

    /// To whom this one yields.
    pub fn leaders_of(&self, yields: End) -> impl Iterator<Item = ClientId> {
        let own = self.all.range((yields, None)..).take_while(move |((end, _), _)| *end == yields);
        own.filter(|(_, kept)| kept.unwanted_since.is_none()).filter_map(|((_, leads), _)| Some((*leads)?.client))
    }

    /// A client is gone; its links go with it.
    pub fn forget(&mut self, client: ClientId, shim: &Shim, now: Mono) {
        let is_its = |(yields, leads): &Pair| yields.client == client || leads.is_some_and(|end| end.client == client);
        self.unlink(|pair, _| is_its(pair), shim, now);
    }

    pub fn clear(&mut self, shim: &Shim, now: Mono) {
        self.unlink(|_, _| true, shim, now);
    }
}

impl Kept {
    fn new(link: Link, now: Mono) -> Self {
        let (unwanted_since, idle_since) = (None, None);
        Self { link, made: now, unwanted_since, is_lent: false, is_raised: false, idle_since, is_owed: false }
    }

    /// Nothing the daemon did with its word counts any more.
    fn let_go(&mut self) {
        (self.is_lent, self.is_raised, self.is_owed, self.idle_since) = (false, false, false, None);
    }

    /// Nobody has wanted it for a while, or its leader came too late.
    fn is_over(&self, now: Mono) -> bool {
        self.unwanted_since.is_some_and(|since| now.since(since) >= KEPT)
            || !self.link.is_led() && now.since(self.made) >= LED_WITHIN
    }

    /// Once: what is lowered afterwards was lowered rightly.
    fn lend_if(&mut self, is_led: bool) {
        self.is_lent = is_led;
        if is_led {
            self.link.raise();
        }
    }

    /// Whether its word was up throughout two looks at which its leader had no work. It is set to 0 then, and raised in its leader's place
    /// when that has some.
    fn is_up_without_work(&mut self, is_busy: bool, now: Mono) -> bool {
        if is_busy && std::mem::take(&mut self.is_owed) {
            self.lend_if(true);
        }
        if is_busy || self.unwanted_since.is_some() || !self.link.is_up() {
            self.idle_since = None;
            return false;
        }
        let since = *self.idle_since.get_or_insert(now);
        let is_so = now.since(since) >= CONTENDED;
        if is_so {
            self.link.lower();
            (self.idle_since, self.is_owed) = (None, true);
        }
        is_so
    }

    /// Whether it stops the one that yields, and rightly. Whoever sets the daemon's own to 0 runs, and that is counted.
    fn counts(&self, is_busy: &dyn Fn(End) -> bool) -> bool {
        let may_be_up = self.link.leads.map_or(self.is_raised, is_busy);
        may_be_up && self.unwanted_since.is_none() && self.link.is_up()
    }
}
