//! The nodes of the cluster as a table, and one of them in detail.

use std::path::Path;

use berth_model::cluster::api::Node;
use berth_model::cluster::{Engine, GpuReport};

use super::{Look, Popup, Status, TABLE_FRAME, TablePanel, text_or_unknown, unknown};
use crate::columns::{cut, printable};
use crate::commands::nodes::table::{columns, name, verdict};
use crate::tui::cluster::Cluster;
use crate::words::deadline::brief;

pub fn table(cluster: &Cluster, width: usize) -> TablePanel {
    let nodes = cluster.nodes();
    let title = match &cluster.told {
        Some(told) => {
            let takers = nodes.iter().filter(|node| node.why_not.is_none()).count();
            let all = nodes.len();
            format!("Nodes of {} ({takers} of {all} take a container, by {})", told.engine, told.strategy.as_str())
        }
        None => "Nodes".to_owned(),
    };
    TablePanel {
        title,
        columns: columns(nodes, Some(width.saturating_sub(TABLE_FRAME))),
        looks: nodes.iter().map(look).collect(),
        selected: cluster.selected_index(),
        nothing: nothing(cluster),
    }
}

pub fn status(cluster: &Cluster, socket: &Path) -> Status {
    let idle = cluster.told.as_ref().and_then(|told| told.idle.as_ref());
    match (&cluster.trouble, idle) {
        (Some(trouble), _) => Status { text: format!("{trouble}; trying again"), is_alarm: true },
        (None, Some(idle)) => Status { text: printable(&format!("places nothing: {idle}")), is_alarm: true },
        (None, None) => Status { text: format!("placer on {}", socket.display()), is_alarm: false },
    }
}

pub fn details(cluster: &Cluster) -> Option<Popup> {
    let node = cluster.nodes().get(cluster.selected_index()?)?;
    let report = node.report.as_ref();
    let policy = report.map(|report| report.policy.map_or("off", |policy| policy.as_str()));
    let means = report.map(|report| report.means.iter().map(|means| means.as_str()).collect::<Vec<_>>().join(" "));
    let facts = [
        ("node", node.node.to_string()),
        ("engine", engine(node.engine).to_owned()),
        ("takes one", verdict(node)),
        ("berth", text_or_unknown(report.map(|report| &report.berth))),
        ("policy", text_or_unknown(policy)),
        ("means", text_or_unknown(means)),
        ("report", node.age_seconds.map_or_else(unknown, |age| format!("{} ago", brief(age)))),
        ("coming", node.reserved.to_string()),
    ];
    let gpus = report.iter().flat_map(|report| report.gpus.iter().enumerate());
    let gpus = gpus.map(|(number, report)| (format!("GPU {number}"), gpu(report)));
    let facts = facts.into_iter().map(|(key, value)| (key.to_owned(), printable(&value)));
    Some(Popup { title: cut(&printable(name(node)), 60), lines: facts.chain(gpus).collect(), gauges: Vec::new() })
}

/// `64.0 GiB free of 80.0 GiB, core 40 %, 1 with a deadline, 2 without, 0 wait`.
fn gpu(gpu: &GpuReport) -> String {
    if gpu.is_lost {
        return "does not answer".to_owned();
    }
    let missed = match gpu.misses_ago_seconds.first() {
        Some(ago) => format!(", a deadline missed {} ago", brief(*ago)),
        None => String::new(),
    };
    let (free, total) = (text_or_unknown(gpu.free_bytes()), text_or_unknown(gpu.memory_total_bytes));
    let (core, with, without) = (text_or_unknown(gpu.core_pct), gpu.loads.len(), gpu.others);
    let queue = gpu.queue;
    format!("{free} free of {total}, core {core}, {with} with a deadline, {without} without, {queue} wait{missed}")
}

fn engine(engine: Engine) -> &'static str {
    match engine {
        Engine::Ready => "ready",
        Engine::Paused => "paused",
        Engine::Drained => "drained",
        Engine::Down => "down",
    }
}

fn look(node: &Node) -> Look {
    if node.why_not.is_none() { Look::Open } else { Look::Closed }
}

fn nothing(cluster: &Cluster) -> Option<String> {
    match &cluster.told {
        Some(told) => told.nodes.is_empty().then(|| format!("{} has told of no nodes", told.engine)),
        None if cluster.trouble.is_some() => {
            Some("no placer answers: `berth cluster serve` is one, beside the engine's manager".to_owned())
        }
        None => Some("waiting for the placer".to_owned()),
    }
}
