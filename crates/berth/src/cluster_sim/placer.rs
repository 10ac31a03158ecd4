//! Who chooses where containers go. All of them see the same: reports, and what they have placed themselves.
//!
//! The strategies of the product are used as they are. `random` and `least-memory` are what they are measured against, and live here
//! only: both leave out GPUs with too little free memory, as an engine does that counts a resource; then one takes any, the other the GPU
//! with the most that is free.

use std::collections::BTreeMap;
use std::sync::Arc;

use berth_model::cluster::{Choice, Engine, GpuReport, NodeId, PlacementId, Report, Strategy, Wanted};
use berth_model::{Bytes, GpuUuid, Mono};
use berth_policy::nodes::{Among, NodeList, NodesSettings};
use serde::Serialize;

use crate::bench::edf::load::Dice;

/// By what containers are placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    Random,
    LeastMemory,
    Paper,
    Fit,
}

#[derive(Debug)]
pub enum Placer {
    Plain(Plain),
    List(Box<NodeList>),
}

/// The strategies that look at memory alone.
#[derive(Debug)]
pub struct Plain {
    way: Way,
    dice: Dice,
    nodes: BTreeMap<NodeId, Seen>,
}

#[derive(Debug)]
struct Seen {
    engine: Engine,
    report: Option<Arc<Report>>,
    /// Placed and in no report yet.
    on_their_way: Vec<(PlacementId, GpuUuid, Bytes)>,
}

// === impl Way ===

impl Way {
    pub const ALL: [Way; 4] = [Way::Random, Way::LeastMemory, Way::Paper, Way::Fit];

    pub fn as_str(self) -> &'static str {
        match self {
            Way::Random => "random",
            Way::LeastMemory => "least-memory",
            Way::Paper => "paper",
            Way::Fit => "fit",
        }
    }

    fn strategy(self) -> Option<Strategy> {
        match self {
            Way::Random | Way::LeastMemory => None,
            Way::Paper => Some(Strategy::Paper),
            Way::Fit => Some(Strategy::Fit),
        }
    }
}

// === impl Placer ===

impl Placer {
    pub fn new(way: Way, settings: NodesSettings, seed: u64) -> Self {
        match way.strategy() {
            Some(strategy) => Placer::List(Box::new(NodeList::new(NodesSettings { strategy, ..settings }))),
            None => Placer::Plain(Plain { way, dice: Dice::new(seed), nodes: BTreeMap::new() }),
        }
    }

    pub fn engine(&mut self, node: &NodeId, engine: Engine) {
        match self {
            Placer::Plain(plain) => plain.engine(node, engine),
            Placer::List(list) => list.engine(node, engine),
        }
    }

    /// What came too late to be news is left out by whoever is told.
    pub fn apply(&mut self, report: Arc<Report>, made: Mono) {
        match self {
            Placer::Plain(plain) => plain.apply(report),
            Placer::List(list) => drop(list.apply(report, made)),
        }
    }

    pub fn choose(&mut self, wanted: &Wanted, now: Mono) -> Option<Choice> {
        match self {
            Placer::Plain(plain) => plain.choose(wanted),
            Placer::List(list) => list.choose(wanted, Among::All, now).map(|place| place.choice),
        }
    }

    pub fn reserve(&mut self, id: PlacementId, wanted: &Wanted, choice: &Choice, now: Mono) {
        match self {
            Placer::Plain(plain) => plain.reserve(id, wanted, choice),
            Placer::List(list) => list.reserve(id, wanted, choice, now),
        }
    }

    pub fn release(&mut self, id: PlacementId) {
        match self {
            Placer::Plain(plain) => plain.release(id),
            Placer::List(list) => list.release(id),
        }
    }

    pub fn expire(&mut self, now: Mono) {
        if let Placer::List(list) = self {
            list.expire(now);
        }
    }
}

// === impl Plain ===

impl Plain {
    fn engine(&mut self, node: &NodeId, engine: Engine) {
        let unseen = || Seen { engine, report: None, on_their_way: Vec::new() };
        self.nodes.entry(node.clone()).or_insert_with(unseen).engine = engine;
    }

    fn apply(&mut self, report: Arc<Report>) {
        let Some(seen) = self.nodes.get_mut(&report.node) else { return };
        let is_there = |id: &PlacementId| report.gpus.iter().any(|gpu| gpu.placed.contains(id));
        seen.on_their_way.retain(|(id, ..)| !is_there(id));
        seen.report = Some(report);
    }

    fn choose(&mut self, wanted: &Wanted) -> Option<Choice> {
        let needs = wanted.memory_bytes.unwrap_or_default();
        let ready = self.nodes.values().filter(|seen| seen.engine == Engine::Ready);
        let gpus = ready.filter_map(|seen| Some((seen, seen.report.as_ref()?)));
        let gpus = gpus.flat_map(|(seen, report)| report.gpus.iter().map(move |gpu| (report, gpu, seen.free(gpu))));
        let fitting: Vec<(&Arc<Report>, &GpuReport, Bytes)> = gpus.filter(|(.., free)| *free >= needs).collect();
        let place = match self.way {
            Way::Random if fitting.is_empty() => None,
            Way::Random => fitting.get(self.dice.whole(0, fitting.len() - 1)),
            _ => fitting.iter().rev().max_by_key(|(.., free)| *free),
        };
        place.map(|(report, gpu, _)| Choice { node: report.node.clone(), gpus: vec![gpu.uuid.clone()] })
    }

    fn reserve(&mut self, id: PlacementId, wanted: &Wanted, choice: &Choice) {
        let Some(seen) = self.nodes.get_mut(&choice.node) else { return };
        let needs = wanted.memory_bytes.unwrap_or_default();
        seen.on_their_way.extend(choice.gpus.iter().map(|gpu| (id, gpu.clone(), needs)));
    }

    fn release(&mut self, id: PlacementId) {
        self.nodes.values_mut().for_each(|seen| seen.on_their_way.retain(|(other, ..)| *other != id));
    }
}

// === impl Seen ===

impl Seen {
    fn free(&self, gpu: &GpuReport) -> Bytes {
        let coming = self.on_their_way.iter().filter(|(_, uuid, _)| *uuid == gpu.uuid).map(|(.., bytes)| *bytes);
        let coming: Bytes = coming.sum();
        Bytes(gpu.free_bytes().unwrap_or_default().0.saturating_sub(coming.0))
    }
}
