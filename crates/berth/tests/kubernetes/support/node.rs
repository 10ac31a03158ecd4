//! A node that is two objects: a Node that is ready, and a `gpunode` whose status holds a report that is signed as a daemon would.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_cluster::frame::{ClusterKey, encode_report};
use berth_cluster::kubernetes::gpunode;
use berth_model::cluster::report::UnderWay;
use berth_model::cluster::{GpuReport, LoadReport, NodeId, PlacementId, Report, Stamp};
use berth_model::deadline::{Spread, Unit};
use berth_model::{Bytes, GpuUuid};
use serde_json::{Value, json};

use super::Cluster;

/// How a node stands.
#[derive(Debug, Clone)]
pub struct Facts {
    pub memory_free_gib: u64,
    /// Deadlines of what runs there, each of which takes all of its time: (deadline in seconds, GPU time left in seconds).
    pub loads: Vec<(f64, f64)>,
    /// What was placed and is seen there.
    pub placed: Vec<PlacementId>,
}

/// Signs for nodes.
#[derive(Debug, Clone)]
pub struct Reporter {
    key: ClusterKey,
    started_ms: u64,
    number: u64,
}

/// One node.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
    pub gpu: String,
}

impl Facts {
    /// Nobody is there.
    pub fn empty() -> Self {
        Self { memory_free_gib: 80, loads: Vec::new(), placed: Vec::new() }
    }

    pub fn with_free(gib: u64) -> Self {
        Self { memory_free_gib: gib, ..Self::empty() }
    }

    pub fn busy(loads: &[(f64, f64)]) -> Self {
        Self { loads: loads.to_vec(), ..Self::empty() }
    }
}

impl Node {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), gpu: format!("GPU-{name}") }
    }

    /// Ready, without the taint that the API server puts on a newcomer.
    pub fn object(&self) -> Value {
        let amounts = json!({"cpu": "64", "memory": "512Gi", "pods": "110", "berth.dev/gpu": "20"});
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        json!({"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": self.name, "labels": {"kubernetes.io/hostname": self.name}},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}})
    }

    pub fn gpu_node(&self) -> Value {
        json!({"apiVersion": "berth.dev/v1alpha1", "kind": "GpuNode", "metadata": {"name": self.name}})
    }

    /// Makes the node, empty of reports.
    pub fn join(&self, cluster: &Cluster) {
        cluster.create("/api/v1/nodes", &self.object()).unwrap();
        cluster.merge(&self.path(), &json!({"spec": {"taints": null}})).unwrap();
        cluster.create("/apis/berth.dev/v1alpha1/gpunodes", &self.gpu_node()).unwrap();
    }

    pub fn path(&self) -> String {
        format!("/api/v1/nodes/{}", self.name)
    }

    pub fn status_path(&self) -> String {
        format!("/apis/berth.dev/v1alpha1/gpunodes/{}/status", self.name)
    }

    pub fn tell(&self, cluster: &Cluster, frame: &[u8]) {
        cluster.merge(&self.status_path(), &status(frame)).unwrap();
    }
}

/// What a daemon writes.
pub fn status(frame: &[u8]) -> Value {
    json!({"status": {"frame": gpunode::encode(frame)}})
}

impl Reporter {
    pub fn new(key: ClusterKey) -> Self {
        Self { key, started_ms: now_ms(), number: 0 }
    }

    /// A report of this instant, signed by the node.
    pub fn frame(&mut self, node: &Node, facts: &Facts) -> Vec<u8> {
        self.frame_at(node, facts, now_ms())
    }

    /// The same, of another instant by the node's clock.
    pub fn frame_at(&mut self, node: &Node, facts: &Facts, at_ms: u64) -> Vec<u8> {
        let mut report = self.report(node, facts);
        report.stamp.at_ms = at_ms;
        encode_report(&report, Duration::ZERO, None, &self.key.node(&report.node)).unwrap()
    }

    pub fn report(&mut self, node: &Node, facts: &Facts) -> Report {
        self.number += 1;
        let stamp = Stamp { started_ms: self.started_ms, number: self.number, at_ms: now_ms() };
        report(node.name.parse().unwrap(), node, facts, stamp)
    }
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis().try_into().unwrap()
}

fn report(id: NodeId, node: &Node, facts: &Facts, stamp: Stamp) -> Report {
    let total = 80_u64;
    let load = |(deadline_seconds, left): &(f64, f64)| LoadReport {
        unit: Unit::Task,
        deadline_seconds: *deadline_seconds,
        under_way: Some(UnderWay { due_in_seconds: *deadline_seconds, done_seconds: 0.0 }),
        takes: Some(Spread::of([*left]).unwrap()),
    };
    let gpu = GpuReport {
        uuid: GpuUuid(node.gpu.clone()),
        is_lost: false,
        memory_total_bytes: Some(Bytes(total << 30)),
        memory_used_bytes: Some(Bytes((total - facts.memory_free_gib) << 30)),
        memory_promised_bytes: Bytes(0),
        core_pct: None,
        queue: 0,
        others: 0,
        share: 1.0,
        loads: facts.loads.iter().map(load).collect(),
        has_more: false,
        missed_by_present: 0,
        misses_ago_seconds: Vec::new(),
        past_float_seconds: 0.0,
        placed: facts.placed.clone(),
    };
    Report { node: id, stamp, berth: "0.1.0".into(), policy: None, means: Vec::new(), gpus: vec![gpu], pasts: 0 }
}
