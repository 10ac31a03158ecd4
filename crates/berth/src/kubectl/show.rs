//! What `kubectl berth` prints: columns as kubectl has them, in capitals and apart by three spaces.

use std::fmt;

use berth_cluster::kubernetes::RESOURCE;
use berth_cluster::kubernetes::pod::{Pod, Wants};
use berth_model::cluster::api::{Node, Nodes};
use berth_model::cluster::{Engine, Refusals, Report};
use berth_model::quantity::Bytes;
use serde::Serialize;

/// Between two columns.
const GAP: usize = 3;
const HEAD: [&str; 7] = ["NODE", "STATUS", "GPUS", "FREE", "FLOAT", "AGE", "WHY NOT"];

/// The answer to `place`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placed {
    /// `None`: no node takes it.
    pub node: Option<String>,
    /// Nodes that would take it.
    pub candidates: usize,
    pub nodes: usize,
    pub refusals: Refusals,
}

/// The answer to `why`.
#[derive(Debug, Serialize)]
pub struct Why<'a> {
    pub pod: String,
    pub bound_to: Option<&'a str>,
    pub gpus: Option<Vec<String>>,
    pub wants: berth_model::cluster::api::PlaceRequest,
    pub nodes: &'a [Node],
}

pub fn nodes(nodes: &Nodes) -> String {
    if nodes.nodes.is_empty() {
        return "No nodes found.".to_owned();
    }
    table(&nodes.nodes)
}

fn table(nodes: &[Node]) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(nodes.iter().map(row));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..HEAD.len()).map(width).collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}", width = width + GAP));
        cells.collect::<String>().trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn row(node: &Node) -> [String; 7] {
    let unknown = || "-".to_owned();
    let report = node.report.as_ref();
    let status = match node.engine {
        Engine::Ready => "Ready",
        Engine::Paused | Engine::Drained => "Cordoned",
        Engine::Down => "NotReady",
    };
    [
        node.name.clone().unwrap_or_else(|| node.node.to_string()),
        status.to_owned(),
        report.map_or_else(unknown, |report| report.gpus.len().to_string()),
        report.and_then(most_free).map_or_else(unknown, |free| free.to_string()),
        report
            .and_then(|report| least_float(report, node.age_seconds))
            .map_or_else(unknown, |float| format!("{float:.1}s")),
        node.age_seconds.map_or_else(unknown, |age| format!("{age:.0}s")),
        why_not(node),
    ]
}

fn why_not(node: &Node) -> String {
    match (&node.why_not, &node.refused) {
        (None, _) => "-".to_owned(),
        (Some(why), Some(refused)) => format!("{why}; its last was refused: {refused}"),
        (Some(why), None) => why.to_string(),
    }
}

fn most_free(report: &Report) -> Option<Bytes> {
    report.gpus.iter().filter_map(berth_model::cluster::GpuReport::free_bytes).max()
}

/// What is left until the first unit under way is due; `None` if nothing is.
fn least_float(report: &Report, age_seconds: Option<f64>) -> Option<f64> {
    let units = report.gpus.iter().flat_map(|gpu| &gpu.loads).filter_map(|load| load.under_way);
    units.map(|unit| unit.due_in_seconds - age_seconds.unwrap_or_default()).min_by(f64::total_cmp)
}

// === impl Placed ===

impl Placed {
    pub fn of(nodes: &Nodes) -> Self {
        let mut refusals = Refusals::default();
        nodes.nodes.iter().filter_map(|node| node.why_not.as_ref()).for_each(|why| refusals.add(why));
        let takers: Vec<&Node> = nodes.nodes.iter().filter(|node| node.why_not.is_none()).collect();
        Self {
            node: takers.first().map(|node| node.node.to_string()),
            candidates: takers.len(),
            nodes: nodes.nodes.len(),
            refusals,
        }
    }
}

impl fmt::Display for Placed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node} ({} of {} nodes would take it)", self.candidates, self.nodes)?,
            None => write!(f, "no node takes it ({} asked)", self.nodes)?,
        }
        for (word, count) in &self.refusals.0 {
            write!(f, "\n  {count} {word}")?;
        }
        Ok(())
    }
}

// === why ===

impl<'a> Why<'a> {
    pub fn of(pod: &'a Pod, wants: &Wants, nodes: &'a Nodes) -> Self {
        let gpus = pod.annotations.chosen().map(|gpus| gpus.into_iter().map(|gpu| gpu.0).collect());
        Self { pod: full_name(pod), bound_to: pod.node.as_deref(), gpus, wants: wants.request(), nodes: &nodes.nodes }
    }
}

pub fn why(pod: &Pod, wants: &Wants, nodes: &Nodes) -> String {
    let gpus = pod.annotations.chosen().map(|gpus| gpus.iter().map(|gpu| gpu.0.clone()).collect::<Vec<_>>().join(", "));
    let stands = match (&pod.node, gpus) {
        (Some(node), Some(gpus)) => format!("is on {node}, with {gpus}"),
        (Some(node), None) => format!("is on {node}; its GPUs were not chosen by berth"),
        (None, _) => format!("waits; {}", Placed::of(nodes).to_string().replace('\n', ",").replace(",  ", ", ")),
    };
    format!("pod {} {stands}\nit wants {}\n\n{}", full_name(pod), asked(wants), self::nodes(nodes))
}

pub fn wants_nothing(pod: &Pod) -> String {
    format!("pod {} wants nothing of berth: none of its containers requests {RESOURCE}", full_name(pod))
}

fn full_name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace(), pod.name())
}

fn asked(wants: &Wants) -> String {
    let asks = &wants.asks;
    let gpus = if wants.gpus == 1 { "1 GPU".to_owned() } else { format!("{} GPUs", wants.gpus) };
    let parts = [
        Some(gpus),
        asks.memory_bytes.map(|memory| format!("{memory} of its memory")),
        asks.deadline.map(|deadline| format!("a deadline of {deadline}")),
        asks.takes.map(|takes| format!("{takes} of GPU time")),
        wants.image.as_ref().map(|image| format!("for image {image}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn answer() -> Nodes {
        let gpu = json!({
            "uuid": "GPU-a", "is_lost": false, "memory_total_bytes": 85_899_345_920_u64, "memory_used_bytes": 42_949_672_960_u64,
            "memory_promised_bytes": 0, "core_pct": null, "queue": 0, "others": 0, "share": 1.0, "has_more": false,
            "loads": [{"unit": "task", "deadline_seconds": 9.0, "under_way": {"due_in_seconds": 5.2, "done_seconds": 1.0}, "takes": null}],
            "missed_by_present": 0, "misses_ago_seconds": [], "past_float_seconds": 0.0, "placed": [],
        });
        let report = json!({
            "node": "node-a", "stamp": {"started_ms": 1, "number": 1, "at_ms": 1}, "berth": "0.1.0", "policy": null, "means": [],
            "gpus": [gpu], "pasts": 0,
        });
        let node = |name: &str, engine: &str, report: Value, why: Value| {
            json!({"node": name, "name": null, "engine": engine, "age_seconds": report.is_object().then_some(2.0), "report": report,
                "refused": null, "reserved": 0, "why_not": why, "score": null})
        };
        let nodes = json!([
            node("node-a", "ready", report, Value::Null),
            node("node-b", "paused", Value::Null, json!({"reason": "engine", "engine": "paused"})),
            node("node-c", "ready", Value::Null, json!({"reason": "no_report"})),
        ]);
        serde_json::from_value(json!({"engine": "kubernetes", "strategy": "fit", "nodes": nodes})).unwrap()
    }

    fn pod(node: Option<&str>) -> Pod {
        let annotations =
            json!({"berth.dev/deadline": "9s", "berth.dev/memory": "20Gi", "berth.dev/gpus-chosen": "GPU-a"});
        let meta = json!({"name": "trainer", "namespace": "team", "annotations": annotations});
        let container = json!({"image": "solver:3", "resources": {"limits": {"berth.dev/gpu": "1"}}});
        serde_json::from_value(json!({"metadata": meta, "spec": {"nodeName": node, "containers": [container]}}))
            .unwrap()
    }

    #[test]
    fn nodes_are_listed_as_kubectl_does() {
        let lines: Vec<String> = nodes(&answer()).lines().map(ToOwned::to_owned).collect();
        assert_eq!(
            lines,
            [
                "NODE     STATUS     GPUS   FREE       FLOAT   AGE   WHY NOT",
                "node-a   Ready      1      40.0 GiB   3.2s    2s    -",
                "node-b   Cordoned   -      -          -       -     its engine is paused",
                "node-c   Ready      -      -          -       -     its berth has not reported",
            ]
        );
    }

    #[test]
    fn the_place_is_told_with_why_not_the_others() {
        assert_eq!(Placed::of(&answer()).to_string(), "node-a (1 of 3 nodes would take it)\n  1 no-report\n  1 paused");
        let mut none = answer();
        none.nodes.remove(0);
        assert_eq!(Placed::of(&none).to_string(), "no node takes it (2 asked)\n  1 no-report\n  1 paused");
    }

    #[test]
    fn a_pod_is_told_where_it_stands_and_what_it_wants() {
        let (waits, stands) = (pod(None), pod(Some("node-a")));
        let told = |pod: &Pod| why(pod, &pod.wants().unwrap().unwrap(), &answer());
        let told_waiting = told(&waits);
        let lines: Vec<&str> = told_waiting.lines().collect();
        assert_eq!(lines[0], "pod team/trainer waits; node-a (1 of 3 nodes would take it), 1 no-report, 1 paused");
        assert_eq!(lines[1], "it wants 1 GPU, 20.0 GiB of its memory, a deadline of 9s, for image solver:3");
        assert!(told(&stands).starts_with("pod team/trainer is on node-a, with GPU-a\n"));
    }
}
