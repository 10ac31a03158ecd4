//! Where in a cluster one more container goes, and why not elsewhere: pure, from what nodes have reported.
//!
//! A [`NodeList`] holds of each node what its engine says, its latest [`Report`], and what was placed there and has not been seen there
//! yet (a *reservation*, which counts as if it was there). A strategy judges each GPU ([`fit`], [`paper`]); a node is as good as the
//! worst of its GPUs that the container would get. Time comes in with each question. Nothing is asked, started or stored here.

mod fit;
mod index;
mod judge;
mod line;
mod listing;
mod node;
mod paper;
mod reservation;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use berth_model::Mono;
use berth_model::cluster::report::Impossible;
use berth_model::cluster::{Choice, Engine, NodeId, NotHere, Order, PlacementId, Refusals, Report, Strategy, Wanted};

use judge::Asked;
use listing::Listing;
use node::Node;
use reservation::Reservation;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodesSettings {
    pub strategy: Strategy,
    pub order: Order,
    /// Reports that are older are not gone by.
    pub stale_after: Duration,
    /// `fit`: for so long a missed deadline makes a GPU come after those without one.
    pub miss_window: Duration,
    /// After so long something that was placed and never seen is given up.
    pub reservation_lasts: Duration,
}

/// Of which nodes is spoken.
#[derive(Debug, Clone, Copy)]
pub enum Among<'a> {
    All,
    /// The others are excluded by the engine's own rules.
    Only(&'a [NodeId]),
}

/// A place that would do.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    pub choice: Choice,
    /// Higher is better, 0 to 1; of one strategy and order it can be compared.
    pub score: f64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    pub node: NodeId,
    pub result: Result<Place, NotHere>,
}

/// Why a report was not taken.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NotApplied {
    #[error("a report of {node}, which is no node of the cluster")]
    Unknown { node: NodeId },
    #[error("a report of {node} that is not newer than the last one")]
    NotNewer { node: NodeId },
    /// From now on the node counts as one that has not reported.
    #[error("a report of {node} that cannot be")]
    Impossible { node: NodeId, source: Impossible },
}

/// What is known of a cluster.
#[derive(Debug)]
pub struct NodeList {
    settings: NodesSettings,
    /// `None` where one has left: its place is for the next one. Of equals the one with the lower place is chosen.
    nodes: Vec<Option<Node>>,
    vacant: BinaryHeap<Reverse<usize>>,
    places: HashMap<NodeId, usize>,
    reservations: HashMap<PlacementId, usize>,
    listing: Listing,
}

// === impl NodeList ===

impl NodeList {
    pub fn new(settings: NodesSettings) -> Self {
        let listing = Listing::new(settings.strategy);
        Self {
            settings,
            nodes: Vec::new(),
            vacant: BinaryHeap::new(),
            places: HashMap::new(),
            reservations: HashMap::new(),
            listing,
        }
    }

    /// So many more nodes are about to join.
    pub fn reserve_nodes(&mut self, more: usize) {
        self.nodes.reserve(more);
        self.places.reserve(more);
    }

    /// A node joins, or what its engine says of it changes.
    pub fn engine(&mut self, node: &NodeId, engine: Engine) {
        match self.places.get(node) {
            Some(&at) => self.change(at, |node| node.engine = engine),
            None => self.join(Node::new(node.clone(), engine)),
        }
    }

    /// It is no node of the cluster any more; what was on its way there is not.
    pub fn remove(&mut self, node: &NodeId) {
        let Some(at) = self.places.remove(node) else { return };
        self.nodes[at] = None;
        self.vacant.push(Reverse(at));
        self.listing.update(at, None, &self.settings);
        self.reservations.retain(|_, on| *on != at);
    }

    /// `made` is the instant of the report by the clock of whoever asks.
    pub fn apply(&mut self, report: Arc<Report>, made: Mono) -> Result<(), NotApplied> {
        let Some(&at) = self.places.get(&report.node) else {
            return Err(NotApplied::Unknown { node: report.node.clone() });
        };
        let settings = self.settings;
        let arrived = self.change(at, |node| node.apply(report, made, &settings))?;
        for id in arrived {
            self.reservations.remove(&id);
        }
        Ok(())
    }

    /// The best place, if there is one.
    pub fn choose(&self, wanted: &Wanted, among: Among<'_>, now: Mono) -> Option<Place> {
        let asked = Asked::new(wanted, &self.settings);
        let (at, found) = match among {
            Among::All => self.listing.choose(&self.nodes, &asked, now)?,
            Among::Only(_) => {
                let places = self.places_of(among).into_iter();
                let place = |at: usize| asked.place(self.nodes[at].as_ref()?, self.listing.lines(at), now);
                let found = places.filter_map(|at| Some((at, place(at)?)));
                found.min_by_key(|(at, found)| (found.rank, *at))?
            }
        };
        Some(asked.to_place(self.nodes[at].as_ref()?, &found))
    }

    /// Something is on its way there: from now on it counts as if it was, unless the node's report tells of it already.
    pub fn reserve(&mut self, id: PlacementId, wanted: &Wanted, choice: &Choice, now: Mono) {
        self.release(id);
        let Some(&at) = self.places.get(&choice.node) else { return };
        let reservation = Reservation::new(id, wanted, &choice.gpus, now);
        if self.change(at, |node| node.reserve(reservation)) {
            self.reservations.insert(id, at);
        }
    }

    pub fn release(&mut self, id: PlacementId) {
        let Some(at) = self.reservations.remove(&id) else { return };
        self.change(at, |node| node.reservations.retain(|reservation| reservation.id != id));
    }

    /// How many are on their way to a node.
    pub fn reserved(&self, node: &NodeId) -> usize {
        self.node(node).map_or(0, |node| node.reservations.len())
    }

    /// Gives up what was placed too long ago and never seen: until this is called it counts. Nodes that have not reported lately are put
    /// aside until they do, so that no choice comes across them. A pass over all nodes.
    pub fn expire(&mut self, now: Mono) -> Vec<PlacementId> {
        let stale_after = self.settings.stale_after;
        for at in 0..self.nodes.len() {
            if self.nodes[at].as_ref().is_some_and(|node| node.goes_stale(now, stale_after)) {
                self.change(at, |node| node.is_stale = true);
            }
        }
        self.listing.renew();
        let lasts = self.settings.reservation_lasts;
        let is_over = |at: &usize, id: &PlacementId| {
            let node = self.nodes[*at].as_ref().expect("reservations are on nodes that are there");
            node.reservations.iter().any(|one| one.id == *id && now.since(one.at) > lasts)
        };
        let mut over: Vec<PlacementId> =
            self.reservations.iter().filter(|(id, at)| is_over(at, id)).map(|(id, _)| *id).collect();
        over.sort_unstable();
        for id in &over {
            self.release(*id);
        }
        over
    }

    /// The last report of a node that could be believed, and its instant.
    pub fn report(&self, node: &NodeId) -> Option<(&Arc<Report>, Mono)> {
        let latest = self.node(node)?.latest.as_ref()?;
        Some((&latest.report, latest.made))
    }

    pub fn verdict(&self, node: &NodeId, wanted: &Wanted, now: Mono) -> Result<Place, NotHere> {
        let asked = Asked::new(wanted, &self.settings);
        let at = *self.places.get(node).ok_or(NotHere::NoReport)?;
        let node = self.nodes[at].as_ref().ok_or(NotHere::NoReport)?;
        let lines = self.listing.lines(at);
        let found = asked.place(node, lines, now).ok_or_else(|| asked.why_not(node, lines, now))?;
        Ok(asked.to_place(node, &found))
    }

    /// Whether something that is on its way to a place would be given that very place now, beside everybody else who is there or on
    /// their way.
    pub fn holds(&self, id: PlacementId, wanted: &Wanted, choice: &Choice, now: Mono) -> Result<(), NotHere> {
        let node = self.node(&choice.node).ok_or(NotHere::NoReport)?;
        Asked::new(wanted, &self.settings).holds(&node.without(id), &choice.gpus, now)
    }

    /// Best first, then the refused in the order in which they joined. A pass over all of them.
    pub fn rank(&self, wanted: &Wanted, among: Among<'_>, now: Mono) -> Vec<Verdict> {
        let asked = Asked::new(wanted, &self.settings);
        let (mut found, mut refused) = (Vec::new(), Vec::new());
        for at in self.places_of(among) {
            let node = self.nodes[at].as_ref().expect("a place that is known is taken");
            let lines = self.listing.lines(at);
            match asked.place(node, lines, now) {
                Some(place) => found.push((place.rank, at, asked.to_place(node, &place))),
                None => refused.push(Verdict { node: node.id.clone(), result: Err(asked.why_not(node, lines, now)) }),
            }
        }
        found.sort_unstable_by_key(|(rank, at, _)| (*rank, *at));
        let found =
            found.into_iter().map(|(_, _, place)| Verdict { node: place.choice.node.clone(), result: Ok(place) });
        found.chain(refused).collect()
    }

    /// How many are refused, and why. A pass over all of them.
    pub fn refusals(&self, wanted: &Wanted, among: Among<'_>, now: Mono) -> Refusals {
        let asked = Asked::new(wanted, &self.settings);
        let mut refusals = Refusals::default();
        let places = self.places_of(among);
        for _ in places.len()..self.places.len() {
            refusals.add(&NotHere::Excluded);
        }
        for (at, node) in places.into_iter().filter_map(|at| Some((at, self.nodes[at].as_ref()?))) {
            let lines = self.listing.lines(at);
            if asked.place(node, lines, now).is_none() {
                refusals.add(&asked.why_not(node, lines, now));
            }
        }
        refusals
    }

    /// In ascending order, each once.
    fn places_of(&self, among: Among<'_>) -> Vec<usize> {
        let mut places: Vec<usize> = match among {
            Among::All => self.places.values().copied().collect(),
            Among::Only(nodes) => nodes.iter().filter_map(|node| self.places.get(node).copied()).collect(),
        };
        places.sort_unstable();
        places.dedup();
        places
    }

    fn node(&self, node: &NodeId) -> Option<&Node> {
        self.nodes[*self.places.get(node)?].as_ref()
    }

    fn join(&mut self, node: Node) {
        let at = self.vacant.pop().map_or(self.nodes.len(), |Reverse(at)| at);
        if at == self.nodes.len() {
            self.nodes.push(None);
        }
        self.places.insert(node.id.clone(), at);
        self.nodes[at] = Some(node);
    }

    /// Changes what is known of a node, and where it is listed.
    fn change<T>(&mut self, at: usize, change: impl FnOnce(&mut Node) -> T) -> T {
        let node = self.nodes[at].as_mut().expect("a place that is known is taken");
        let outcome = change(node);
        self.listing.update(at, Some(node), &self.settings);
        outcome
    }
}

#[cfg(test)]
mod tests;
