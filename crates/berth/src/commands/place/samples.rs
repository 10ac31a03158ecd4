//! Nodes of a cluster, for tests of what is shown of them.

use berth_model::cluster::api::Node;
use berth_model::cluster::report::UnderWay;
use berth_model::cluster::{Engine, GpuReport, LoadReport, NotHere, Report, Stamp};
use berth_model::deadline::{Spread, Unit};
use berth_model::hold::Means;
use berth_model::settings::PolicyName;
use berth_model::{Bytes, GpuUuid, Percent};

/// Two that would take it, then four that would not.
pub fn nodes() -> Vec<Node> {
    let refused = |id: &str, why: NotHere| Node { why_not: Some(why), score: None, ..node(id, None, 1) };
    vec![
        node("24ifsmvkjbyhk9xkblj1w4s2u", Some("worker-1"), 2),
        Node { reserved: 2, score: Some(0.5), ..node("worker-2", None, 4) },
        refused("worker-3", NotHere::WouldBeLate { due_seconds: 12.5, room_seconds: 9.0 }),
        Node { age_seconds: Some(12.0), ..refused("worker-4", NotHere::Stale { age_seconds: 12.0 }) },
        Node { engine: Engine::Drained, ..refused("worker-5", NotHere::Engine { engine: Engine::Drained }) },
        Node {
            report: None,
            age_seconds: None,
            refused: Some("its key is another".into()),
            ..refused("worker-6", NotHere::NoReport)
        },
    ]
}

fn node(id: &str, name: Option<&str>, gpus: u32) -> Node {
    Node {
        node: id.parse().unwrap(),
        name: name.map(str::to_owned),
        engine: Engine::Ready,
        report: Some(report(id, gpus)),
        age_seconds: Some(0.4),
        refused: None,
        reserved: 0,
        why_not: None,
        score: Some(0.93),
    }
}

fn report(id: &str, gpus: u32) -> Report {
    Report {
        node: id.parse().unwrap(),
        stamp: Stamp { started_ms: 1, number: 7, at_ms: 2 },
        berth: "0.1.0".into(),
        policy: Some(PolicyName::Edf),
        means: vec![Means::Freeze],
        gpus: (0..gpus).map(gpu).collect(),
        pasts: 1,
    }
}

fn gpu(number: u32) -> GpuReport {
    let takes = Spread { units: 9, median_seconds: 2.0, p90_seconds: 2.5, most_seconds: 3.0 };
    let under_way = Some(UnderWay { due_in_seconds: 4.0, done_seconds: 0.5 });
    GpuReport {
        uuid: GpuUuid(format!("GPU-00000000-0000-0000-0000-00000000000{number}")),
        is_lost: false,
        memory_total_bytes: Some(Bytes::from_mib(80 << 10)),
        memory_used_bytes: Some(Bytes::from_mib(u64::from(number + 1) << 14)),
        memory_promised_bytes: Bytes(0),
        core_pct: Percent::checked(40 + number * 10),
        queue: 0,
        others: 1,
        share: 0.9,
        loads: vec![LoadReport { unit: Unit::Task, deadline_seconds: 9.0, under_way, takes: Some(takes) }],
        has_more: false,
        missed_by_present: 0,
        misses_ago_seconds: Vec::new(),
        past_float_seconds: 0.0,
        placed: Vec::new(),
    }
}
