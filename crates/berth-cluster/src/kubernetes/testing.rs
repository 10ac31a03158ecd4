//! A placer that asks nobody, and nodes that have reported, for tests.

use std::sync::Arc;

use berth_model::cluster::report::{GpuReport, Report, Stamp};
use berth_model::cluster::{Engine, NodeId, Past};
use berth_model::id::GpuUuid;
use berth_model::quantity::Bytes;
use berth_model::settings::PlacerSettings;

use crate::frame::Told;
use crate::placer::{AskNodes, Asked, Facts, Member, Placer, Question};

#[derive(Debug)]
struct Nobody;

impl AskNodes for Nobody {
    fn report<'a>(&'a self, _: &'a Question) -> Asked<'a, Told<Report>> {
        Box::pin(async { Err("nobody is asked".to_owned()) })
    }

    fn pasts<'a>(&'a self, _: &'a Question) -> Asked<'a, Vec<Past>> {
        Box::pin(async { Err("nobody is asked".to_owned()) })
    }
}

pub fn placer() -> Arc<Placer> {
    Placer::new(&PlacerSettings::default(), Box::new(Nobody))
}

pub fn gpu(uuid: String, free_gib: u64) -> GpuReport {
    GpuReport {
        uuid: GpuUuid(uuid),
        is_lost: false,
        memory_total_bytes: Some(Bytes(80 << 30)),
        memory_used_bytes: Some(Bytes((80 - free_gib) << 30)),
        memory_promised_bytes: Bytes(0),
        core_pct: None,
        queue: 0,
        others: 0,
        share: 1.0,
        loads: Vec::new(),
        has_more: false,
        missed_by_present: 0,
        misses_ago_seconds: Vec::new(),
        past_float_seconds: 0.0,
        placed: Vec::new(),
    }
}

/// A node with one GPU of 80 GiB, of which so much is free.
pub fn joins(placer: &Placer, name: &str, free_gib: u64) {
    member(placer, name, vec![gpu(format!("GPU-{name}"), free_gib)]);
}

pub fn member(placer: &Placer, name: &str, gpus: Vec<GpuReport>) {
    let node: NodeId = name.parse().unwrap();
    let (mut book, now) = (placer.book(), placer.now());
    book.member_is(&node, Member { name: None, engine: Engine::Ready, address: None, facts: Facts::new() }, now);
    book.reported(&node, Ok(report(name, gpus)), now);
}

/// The first of its node.
pub fn report(name: &str, gpus: Vec<GpuReport>) -> Report {
    Report {
        node: name.parse().unwrap(),
        stamp: Stamp { started_ms: 1, number: 1, at_ms: 1 },
        berth: "0".to_owned(),
        policy: None,
        means: Vec::new(),
        gpus,
        pasts: 0,
    }
}
