//! Nodes, reports and requests for tests.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::cluster::api::PlaceRequest;
use berth_model::cluster::{Engine, GpuReport, NodeId, PlacementId, Report, Stamp};
use berth_model::id::GpuUuid;
use berth_model::quantity::{Bytes, Percent};

use super::{Facts, Member};
use crate::frame::Told;

pub fn id(name: &str) -> NodeId {
    name.parse().unwrap()
}

/// Nodes `n1`, `n2`, …, all ready, in the rack of their own name.
pub fn members(count: u8) -> BTreeMap<NodeId, Member> {
    let member = |number: u8| {
        let name = format!("n{number}");
        let facts: Facts = [("node.hostname", &name), ("node.labels.rack", &name)]
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .into();
        let address = Some(([10, 0, 0, number], 7277).into());
        (id(&name), Member { name: Some(name), engine: Engine::Ready, address, facts })
    };
    (1..=count).map(member).collect()
}

/// A report that was true when it was signed.
pub fn fresh(report: Report) -> Told<Report> {
    Told { what: report, age: Duration::ZERO }
}

/// Of a node with one GPU of 80 GiB of which so much is free.
pub fn report(node: &str, number: u64, free_gib: u64, placed: &[PlacementId]) -> Report {
    let gpu = GpuReport {
        uuid: GpuUuid(format!("GPU-{node}")),
        is_lost: false,
        memory_total_bytes: Some(Bytes(80 << 30)),
        memory_used_bytes: Some(Bytes((80 - free_gib) << 30)),
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
        placed: placed.to_vec(),
    };
    let stamp = Stamp { started_ms: 1, number, at_ms: 1 };
    Report { node: id(node), stamp, berth: "test".into(), policy: None, means: vec![], gpus: vec![gpu], pasts: 0 }
}

/// For so much memory.
pub fn wanting(gib: u64) -> PlaceRequest {
    serde_json::from_value(serde_json::json!({ "memory_bytes": gib << 30 })).unwrap()
}
