//! The placer's book: who belongs to the cluster, what each node last said, and what is on its way there.
//!
//! Pure: what the engine and the nodes say comes in with its instant, and what to ask next goes out. Membership is the engine's: a node
//! that the engine no longer names is forgotten. Which node is best is `berth_policy::nodes`' to say.

mod places;
mod told;

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use berth_model::Mono;
use berth_model::cluster::api::{self, PlaceAnswer, PlaceRequest};
use berth_model::cluster::{Engine, NodeId, NotHere, Past, PlacementId, Refusals, Report};
use berth_policy::nodes::{Among, NodeList, NodesSettings, Place};

use super::constraint::{Constraint, Facts, InvalidConstraint};
use super::pasts::Pasts;
use crate::frame::Told;
use places::Kept;
pub use places::Placed;

/// Of the time between two questions, what it may differ by: nodes that came together are not asked together for ever.
const JITTER_PCT: u64 = 20;
/// How long a node that does not answer is left alone at most. Until then each silence doubles it: thousands of them do not take the others'
/// turns.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the engine says of one of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// As people call it, where that is not its id.
    pub name: Option<String>,
    pub engine: Engine,
    /// Where its daemon listens; `None` if the engine does not say.
    pub address: Option<SocketAddr>,
    pub facts: Facts,
}

/// A node to ask for a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub node: NodeId,
    pub address: SocketAddr,
}

#[derive(Debug)]
pub struct Book {
    list: NodeList,
    ask_every: Duration,
    /// How long a place is kept of which nobody tells.
    lasts: Duration,
    members: BTreeMap<NodeId, Entry>,
    /// Who is to be asked when; those that are being asked are not in it.
    due: BTreeSet<(Mono, NodeId)>,
    kept: BTreeMap<PlacementId, Kept>,
    pasts: Pasts,
}

#[derive(Debug)]
struct Entry {
    member: Member,
    report: Option<Arc<Report>>,
    made: Option<Mono>,
    /// When the last question went out that was answered with a report that could be believed.
    answered: Option<Mono>,
    /// Why the last answer was not believed, or did not come.
    refused: Option<String>,
    /// When it is to be asked again; `None` while it is being asked.
    next: Option<Mono>,
    asked: u64,
    /// Questions in a row that have brought nothing that could be believed.
    silences: u32,
}

impl Book {
    pub fn new(settings: NodesSettings, ask_every: Duration) -> Self {
        Self {
            list: NodeList::new(settings),
            ask_every,
            lasts: settings.reservation_lasts,
            members: BTreeMap::new(),
            due: BTreeSet::new(),
            kept: BTreeMap::new(),
            pasts: Pasts::default(),
        }
    }

    // === what the engine says ===

    /// All nodes the engine has.
    pub fn members(&mut self, members: BTreeMap<NodeId, Member>, now: Mono) {
        let gone: Vec<NodeId> = self.members.keys().filter(|node| !members.contains_key(*node)).cloned().collect();
        for node in gone {
            let entry = self.members.remove(&node);
            if let Some(at) = entry.and_then(|entry| entry.next) {
                self.due.remove(&(at, node.clone()));
            }
            self.list.remove(&node);
            self.pasts.remove(&node);
        }
        self.list.reserve_nodes(members.len().saturating_sub(self.members.len()));
        for (node, member) in members {
            let is_known = self.members.get(&node).is_some_and(|entry| entry.member == member);
            self.member_is(&node, member, now);
            if !is_known {
                // One that was silent may be back.
                self.members.get_mut(&node).into_iter().for_each(|entry| entry.silences = 0);
                self.ask_at(&node, now);
            }
        }
    }

    // === asking nodes ===

    /// At most `room` nodes whose turn it is. Each is to be answered for before it is asked again.
    pub fn questions(&mut self, room: usize, now: Mono) -> Vec<Question> {
        let mut questions = Vec::new();
        while questions.len() < room
            && let Some((at, node)) = self.due.first().cloned()
            && at <= now
        {
            self.due.pop_first();
            let Some(entry) = self.members.get_mut(&node) else { continue };
            (entry.next, entry.asked) = (None, entry.asked + 1);
            match entry.member.address {
                Some(address) => questions.push(Question { node, address }),
                None => {
                    entry.refused = Some("the engine does not say where it is".to_owned());
                    self.ask_at(&node, now + self.pause(&node));
                }
            }
        }
        questions
    }

    /// When the next question is due; `None` if nobody is to be asked.
    pub fn next_question(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The question for one node that is not to wait for its turn.
    pub fn question(&self, node: &NodeId) -> Option<Question> {
        let address = self.members.get(node)?.member.address?;
        Some(Question { node: node.clone(), address })
    }

    /// `asked`: when the question went out. What was answered is not older than that by more than the node says it is.
    pub fn answered(&mut self, node: &NodeId, asked: Mono, answer: Result<Told<Report>, String>, now: Mono) {
        let Some(entry) = self.members.get_mut(node) else { return };
        let before = entry.report.clone();
        let applied = answer.and_then(|Told { what, age }| {
            // Two questions were under way, and the node has answered this one first: what is known is newer.
            let is_older = |known: &Arc<Report>| {
                what.stamp.started_ms == known.stamp.started_ms && what.stamp.number < known.stamp.number
            };
            if entry.report.as_ref().is_some_and(is_older) {
                return Ok(());
            }
            let (report, made) = (Arc::new(what), asked.before(age));
            self.list.apply(Arc::clone(&report), made).map_err(|error| error.to_string())?;
            (entry.report, entry.made) = (Some(report), Some(made));
            Ok(())
        });
        match applied {
            Ok(()) => (entry.refused, entry.answered, entry.silences) = (None, entry.answered.max(Some(asked)), 0),
            Err(why) => (entry.refused, entry.silences) = (Some(why), entry.silences.saturating_add(1)),
        }
        self.ask_at(node, now + self.pause(node));
        before.into_iter().for_each(|before| self.keep_what_left(&before, now));
    }

    /// A question has ended without a word: the node is asked again in its turn.
    pub fn unanswered(&mut self, node: &NodeId, now: Mono) {
        if self.members.get(node).is_some_and(|entry| entry.next.is_none()) {
            self.ask_at(node, now + self.pause(node));
        }
    }

    /// Whether a report has come that was asked for then or later.
    pub fn has_answered(&self, node: &NodeId, asked: Mono) -> bool {
        self.members.get(node).and_then(|entry| entry.answered).is_some_and(|answered| answered >= asked)
    }

    /// Whether every node has been asked, and has answered or has not.
    pub fn has_asked_all(&self) -> bool {
        self.members.values().all(|entry| entry.report.is_some() || entry.refused.is_some())
    }

    /// Whether the node says that it knows more of the past than was asked of it.
    pub fn wants_pasts(&self, node: &NodeId) -> bool {
        let report = self.members.get(node).and_then(|entry| entry.report.as_ref());
        report.is_some_and(|report| self.pasts.version(node) != Some(report.pasts))
    }

    /// Which past the node's last report speaks of.
    pub fn pasts_version(&self, node: &NodeId) -> Option<u32> {
        self.members.get(node)?.report.as_ref().map(|report| report.pasts)
    }

    pub fn pasts(&mut self, node: &NodeId, version: u32, pasts: Vec<Past>) {
        if self.members.contains_key(node) {
            self.pasts.set(node, version, pasts);
        }
    }

    /// In place of when it was to be asked before.
    fn ask_at(&mut self, node: &NodeId, at: Mono) {
        let Some(entry) = self.members.get_mut(node) else { return };
        if let Some(before) = entry.next.replace(at) {
            self.due.remove(&(before, node.clone()));
        }
        self.due.insert((at, node.clone()));
    }

    /// The interval, longer for one that is silent, and moved by what the node is called and how often it was asked: the same for the same
    /// book.
    fn pause(&self, node: &NodeId) -> Duration {
        let (asked, silences) = self.members.get(node).map_or((0, 0), |entry| (entry.asked, entry.silences));
        let mut hasher = DefaultHasher::new();
        (node, asked).hash(&mut hasher);
        let pct = 100 - JITTER_PCT / 2 + hasher.finish() % (JITTER_PCT + 1);
        // The first may be a moment's.
        let times = 2_u32.saturating_pow(silences.saturating_sub(1));
        let every = self.ask_every.saturating_mul(times).min(LONGEST_PAUSE.max(self.ask_every));
        every * u32::try_from(pct).unwrap_or(100) / 100
    }

    // === placing ===

    /// What would be answered to a request now; nothing changes by it.
    pub fn place(&self, request: &PlaceRequest, now: Mono) -> Result<PlaceAnswer, InvalidConstraint> {
        let (wanted, among) = (self.pasts.wanted(request), self.among(&request.constraints)?);
        let best = self.list.choose(&wanted, of(among.as_deref()), now);
        let refusals = self.list.refusals(&wanted, of(among.as_deref()), now);
        let candidates = u32::try_from(self.members.len()).unwrap_or(u32::MAX).saturating_sub(refusals.total());
        let nodes = if request.detail { self.ranked(request, now)? } else { Vec::new() };
        let choice = best.map(|place| place.choice);
        let name = choice.as_ref().and_then(|choice| self.member(&choice.node)?.name.clone());
        Ok(PlaceAnswer { idle: None, choice, name, candidates, refusals, nodes })
    }

    /// The answer to a request that nobody takes. `silent` would, by what they said last, and did not answer when they were asked again.
    pub fn nobody(
        &self,
        request: &PlaceRequest,
        silent: &[NodeId],
        now: Mono,
    ) -> Result<PlaceAnswer, InvalidConstraint> {
        let mut answer = self.place(request, now)?;
        for node in silent.iter().filter(|node| self.why_not(node, request, now).is_none()) {
            answer.candidates = answer.candidates.saturating_sub(1);
            answer.refusals.add(&NotHere::NoReport);
            let listed = answer.nodes.iter_mut().find(|listed| listed.node == *node);
            listed.into_iter().for_each(|listed| (listed.why_not, listed.score) = (Some(NotHere::NoReport), None));
        }
        Ok(PlaceAnswer { choice: None, name: None, ..answer })
    }

    /// Every node, the best first for the request, those it may not go to last.
    pub fn ranked(&self, request: &PlaceRequest, now: Mono) -> Result<Vec<api::Node>, InvalidConstraint> {
        let (wanted, among) = (self.pasts.wanted(request), self.among(&request.constraints)?);
        let ranked = self.list.rank(&wanted, of(among.as_deref()), now);
        let judged: BTreeSet<&NodeId> = ranked.iter().map(|verdict| &verdict.node).collect();
        let excluded =
            self.members.keys().filter(|node| !judged.contains(node)).map(|node| (node, Err(&NotHere::Excluded)));
        let all = ranked.iter().map(|verdict| (&verdict.node, verdict.result.as_ref())).chain(excluded);
        Ok(all.filter_map(|(node, verdict)| self.node(node, verdict, now)).collect())
    }

    fn node(&self, node: &NodeId, verdict: Result<&Place, &NotHere>, now: Mono) -> Option<api::Node> {
        let entry = self.members.get(node)?;
        Some(api::Node {
            node: node.clone(),
            name: entry.member.name.clone(),
            engine: entry.member.engine,
            report: entry.report.as_deref().cloned(),
            age_seconds: entry.made.map(|made| now.since(made).as_secs_f64()),
            refused: entry.refused.clone(),
            reserved: u32::try_from(self.list.reserved(node)).unwrap_or(u32::MAX),
            why_not: verdict.err().cloned(),
            score: verdict.ok().map(|place| place.score),
        })
    }

    // === what is known ===

    pub fn member(&self, node: &NodeId) -> Option<&Member> {
        self.members.get(node).map(|entry| &entry.member)
    }

    /// By what the engine calls it or people do.
    pub fn name<'a>(&'a self, node: &'a NodeId) -> &'a str {
        self.member(node).and_then(|member| member.name.as_deref()).unwrap_or_else(|| node.as_str())
    }

    /// Why this node would not take it now; `None` if it would.
    pub fn why_not(&self, node: &NodeId, request: &PlaceRequest, now: Mono) -> Option<NotHere> {
        self.list.verdict(node, &self.pasts.wanted(request), now).err()
    }

    /// Whether the node is one of the engine's and meets them; constraints that cannot be read are the engine's to judge.
    pub fn meets(&self, node: &NodeId, constraints: &[String]) -> bool {
        let meets = |facts: &Facts| {
            constraints.iter().filter_map(|text| text.parse().ok()).all(|c: Constraint| c.is_met(facts))
        };
        self.member(node).is_some_and(|member| meets(&member.facts))
    }

    /// How many nodes have a given standing, for a container that needs nothing in particular.
    pub fn standing(&self, now: Mono) -> (u32, Refusals) {
        let wanted = berth_model::cluster::Wanted::anything();
        let refusals = self.list.refusals(&wanted, Among::All, now);
        (u32::try_from(self.members.len()).unwrap_or(u32::MAX).saturating_sub(refusals.total()), refusals)
    }

    pub fn reservations(&self) -> usize {
        self.members.keys().map(|node| self.list.reserved(node)).sum()
    }

    /// The nodes that meet the constraints; `None` if all do, since there are none.
    fn among(&self, constraints: &[String]) -> Result<Option<Vec<NodeId>>, InvalidConstraint> {
        if constraints.is_empty() {
            return Ok(None);
        }
        let constraints = constraints.iter().map(|text| text.parse()).collect::<Result<Vec<Constraint>, _>>()?;
        let meets = |entry: &Entry| constraints.iter().all(|constraint| constraint.is_met(&entry.member.facts));
        Ok(Some(self.members.iter().filter(|(_, entry)| meets(entry)).map(|(node, _)| node.clone()).collect()))
    }
}

impl Entry {
    fn new(member: Member) -> Self {
        Self { member, report: None, made: None, answered: None, refused: None, next: None, asked: 0, silences: 0 }
    }
}

fn of(among: Option<&[NodeId]>) -> Among<'_> {
    among.map_or(Among::All, Among::Only)
}

#[cfg(test)]
mod tests;
