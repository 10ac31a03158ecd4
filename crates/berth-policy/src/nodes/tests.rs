//! What a list of nodes answers in the cases people ask about, and the laws it keeps.

mod cases;
mod laws;
mod paper;

use super::*;
use berth_model::cluster::report::UnderWay;
use berth_model::cluster::{GpuReport, LoadReport, Stamp};
use berth_model::deadline::{Deadline, Spread, Unit};
use berth_model::id::GpuUuid;
use berth_model::quantity::{Bytes, Percent};

const SETTINGS: NodesSettings = NodesSettings {
    strategy: Strategy::Fit,
    order: Order::Spread,
    stale_after: Duration::from_secs(5),
    miss_window: Duration::from_secs(60),
    reservation_lasts: Duration::from_secs(30),
};
const PAPER: NodesSettings = NodesSettings { strategy: Strategy::Paper, ..SETTINGS };
const PACK: NodesSettings = NodesSettings { order: Order::Pack, ..SETTINGS };
/// When reports are made.
const START: Mono = Mono(1_000_000_000_000);

fn after(seconds: f64) -> Mono {
    START + Duration::from_secs_f64(seconds)
}

fn gib(gib: u64) -> Bytes {
    Bytes(gib << 30)
}

fn id(name: &str) -> NodeId {
    name.parse().unwrap()
}

/// Takes exactly so long.
fn exactly(seconds: f64) -> Option<Spread> {
    Spread::of([seconds])
}

/// An idle GPU of 80 GiB with so much of it free.
fn gpu(free_gib: u64) -> GpuReport {
    GpuReport {
        uuid: GpuUuid("GPU-0".into()),
        is_lost: false,
        memory_total_bytes: Some(gib(80)),
        memory_used_bytes: Some(gib(80 - free_gib)),
        memory_promised_bytes: Bytes(0),
        core_pct: Percent::checked(0),
        queue: 0,
        others: 0,
        share: 1.0,
        loads: vec![],
        has_more: false,
        missed_by_present: 0,
        misses_ago_seconds: vec![],
        past_float_seconds: 0.0,
        placed: vec![],
    }
}

fn busy(free_gib: u64, loads: Vec<LoadReport>) -> GpuReport {
    GpuReport { loads, ..gpu(free_gib) }
}

fn task(due_in_seconds: f64, takes: Option<Spread>) -> LoadReport {
    let under_way = Some(UnderWay { due_in_seconds, done_seconds: 0.0 });
    LoadReport { unit: Unit::Task, deadline_seconds: 100.0, under_way, takes }
}

fn server(deadline_seconds: f64, takes: Option<Spread>) -> LoadReport {
    LoadReport { unit: Unit::Burst, deadline_seconds, under_way: None, takes }
}

/// The GPUs are called by their number.
fn report(name: &str, number: u64, gpus: Vec<GpuReport>) -> Arc<Report> {
    let named = |(number, gpu)| GpuReport { uuid: GpuUuid(format!("GPU-{number}")), ..gpu };
    Arc::new(Report {
        node: id(name),
        stamp: Stamp { started_ms: 1, number, at_ms: number },
        berth: "0.1.0".into(),
        policy: None,
        means: vec![],
        gpus: gpus.into_iter().enumerate().map(named).collect(),
        pasts: 0,
    })
}

/// Nodes that have just reported.
fn list<const N: usize>(settings: NodesSettings, nodes: [(&str, Vec<GpuReport>); N]) -> NodeList {
    let mut list = NodeList::new(settings);
    for (name, gpus) in nodes {
        list.engine(&id(name), Engine::Ready);
        list.apply(report(name, 1, gpus), START).unwrap();
    }
    list
}

fn wanted(deadline_seconds: f64, takes: Option<Spread>, memory: Bytes) -> Wanted {
    let deadline = Deadline::new(Duration::from_secs_f64(deadline_seconds));
    Wanted { deadline, memory_bytes: Some(memory), takes, run: takes, ..Wanted::anything() }
}

/// `node/GPU-number`, or that nobody takes it.
fn chosen(list: &NodeList, wanted: &Wanted, now: Mono) -> String {
    let place = list.choose(wanted, Among::All, now);
    place.map_or("nobody".to_owned(), |place| shown(&place.choice))
}

fn shown(choice: &Choice) -> String {
    let gpus: Vec<&str> = choice.gpus.iter().map(|gpu| gpu.0.as_str()).collect();
    format!("{}/{}", choice.node, gpus.join("+"))
}

fn why(list: &NodeList, node: &str, wanted: &Wanted, now: Mono) -> String {
    list.verdict(&id(node), wanted, now).map_or_else(|why| why.to_string(), |place| shown(&place.choice))
}
