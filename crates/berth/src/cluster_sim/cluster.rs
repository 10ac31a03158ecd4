//! Everything there is at an instant, and how time passes. What each event makes of it is in `happens`.

mod happens;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use berth_model::Mono;
use berth_model::cluster::{Engine, NodeId, PlacementId, Report};

use super::Setup;
use super::agenda::Agenda;
use super::demand::{Container, Demand};
use super::life::Life;
use super::node::Node;
use super::outcome::Outcome;
use super::placer::Placer;
use super::run::Progress;
use super::score::Score;
use crate::bench::edf::load::Dice;

/// Between two times at which those that wait are offered again.
const OFFER_EVERY: Duration = Duration::from_secs(1);
/// How long those that are still there are waited for after the last has come, in times of [`Setup::lasts`].
const LONGEST_WAIT: u32 = 3;

#[derive(Debug)]
pub enum Event {
    /// The next container.
    Comes,
    /// Those that wait are offered again.
    Offer,
    /// A node is asked.
    Ask(usize),
    /// What it says is heard, and when that was so.
    Heard(Arc<Report>, Mono),
    /// A container comes to its GPU, if it is still the same placement.
    Starts(usize, PlacementId),
    /// One that serves is asked.
    Request(usize),
    /// A GPU has something to do, if it still has.
    Slice(usize, usize),
    Fails(usize),
    Noticed(usize),
    Back(usize),
    /// Somebody wants to know how far it is.
    Tell,
}

pub struct Cluster<'a> {
    setup: &'a Setup,
    now: Mono,
    agenda: Agenda<Event>,
    nodes: Vec<Node>,
    by_id: BTreeMap<NodeId, usize>,
    placer: Placer,
    /// Of each node the last report that was made, and when the last one that was heard was made.
    made: Vec<Option<Arc<Report>>>,
    heard: Vec<Option<Mono>>,
    demand: Demand,
    next: Option<Container>,
    lives: Vec<Life>,
    /// How many of them are not gone.
    there: usize,
    whose: BTreeMap<PlacementId, usize>,
    /// For when each GPU's next slice is noted, node after node.
    slices: Vec<Option<Mono>>,
    /// In the order they came.
    waiting: Vec<usize>,
    placements: u64,
    /// For what befalls nodes and reports: the same whoever places.
    dice: Dice,
    score: Score,
}

impl<'a> Cluster<'a> {
    pub fn new(setup: &'a Setup) -> Self {
        let nodes: Vec<Node> =
            (0..setup.nodes).map(|number| Node::new(number, setup.gpus_each, setup.memory, setup.rule)).collect();
        let mut cluster = Self {
            setup,
            now: Mono(0),
            agenda: Agenda::new(),
            by_id: nodes.iter().enumerate().map(|(number, node)| (node.id.clone(), number)).collect(),
            placer: Placer::new(setup.way, setup.nodes_settings(), setup.seed),
            made: vec![None; setup.nodes],
            heard: vec![None; setup.nodes],
            nodes,
            demand: Demand::new(setup.seed, setup.load * setup.gpus() as f64),
            next: None,
            lives: Vec::new(),
            there: 0,
            whose: BTreeMap::new(),
            slices: vec![None; setup.gpus()],
            waiting: Vec::new(),
            placements: 0,
            dice: Dice::new(!setup.seed),
            score: Score::new(setup),
        };
        cluster.begin();
        cluster
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            self.placer.engine(&self.nodes[node].id, Engine::Ready);
            // Not all at once: a placer spreads its questions.
            let first = self.setup.report_every.mul_f64(node as f64 / self.setup.nodes as f64);
            self.note_in(first, Event::Ask(node));
        }
        for _ in 0..self.setup.failures {
            let node = self.dice.whole(0, self.setup.nodes - 1);
            let at = self.setup.lasts.mul_f64(self.dice.between(0.2, 0.8));
            self.note_in(at, Event::Fails(node));
        }
        self.note_in(OFFER_EVERY, Event::Offer);
        self.await_next();
    }

    pub fn note_in(&mut self, after: Duration, event: Event) {
        self.agenda.note(self.now + after, event);
    }

    pub fn pop(&mut self) -> Option<Event> {
        let (at, event) = self.agenda.pop()?;
        self.now = at;
        Some(event)
    }

    /// Nobody comes any more, and nobody is there.
    pub fn is_over(&self) -> bool {
        let last = Mono(0) + self.setup.lasts * (1 + LONGEST_WAIT);
        self.next.is_none() && (self.there == 0 || self.now >= last)
    }

    pub fn progress(&self) -> Progress {
        Progress {
            seconds: self.now.since(Mono(0)).as_secs_f64(),
            of_seconds: self.setup.lasts.as_secs_f64(),
            containers: self.lives.len(),
            waiting: self.waiting.len(),
            deadlines: self.score.outcome.all(),
        }
    }

    /// What is not done by now has missed what was due by now; what is due later is not counted.
    pub fn finish(mut self, is_complete: bool) -> Outcome {
        for life in &self.lives {
            self.score.unfinished(life, self.now);
        }
        self.score.finish(self.now, is_complete)
    }

    fn await_next(&mut self) {
        let end = Mono(0) + self.setup.lasts;
        self.next = self.demand.next().filter(|container| container.comes < end);
        if let Some(container) = &self.next {
            self.agenda.note(container.comes, Event::Comes);
        }
    }
}
