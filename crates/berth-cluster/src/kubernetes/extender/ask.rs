//! A request as a question to the placer's book.

use std::collections::HashSet;

use berth_model::cluster::api::PlaceRequest;
use berth_model::cluster::{Choice, NodeId, NotHere};
use berth_model::time::Mono;
use berth_policy::nodes::Verdict;

use super::types::{ExtenderArgs, Nodes};
use crate::kubernetes::pod::Pod;
use crate::placer::Book;

/// The names of the nodes in question.
pub(super) fn names(args: &ExtenderArgs) -> Vec<String> {
    match (&args.node_names, &args.nodes) {
        (Some(names), _) => names.clone(),
        (None, Some(nodes)) => nodes.items.iter().filter_map(|item| Nodes::name(item)).collect(),
        (None, None) => Vec::new(),
    }
}

/// The verdicts on these nodes, best first, as if the pod had no place yet.
pub(super) fn verdicts(
    book: &mut Book,
    pod: &Pod,
    request: &PlaceRequest,
    names: &[String],
    now: Mono,
) -> Vec<Verdict> {
    if let Some(placement) = pod.placement() {
        book.reconsider(placement);
    }
    let nodes: Vec<NodeId> = names.iter().filter_map(|name| name.parse().ok()).collect();
    let mut verdicts = book.verdicts(request, &nodes, now);
    if verdicts.len() == nodes.len() {
        return verdicts;
    }
    // The scheduler may have heard of a node before the placer has.
    let judged: HashSet<&NodeId> = verdicts.iter().map(|verdict| &verdict.node).collect();
    let unheard: Vec<NodeId> = nodes.iter().filter(|node| !judged.contains(node)).cloned().collect();
    verdicts.extend(unheard.into_iter().map(|node| Verdict { node, result: Err(NotHere::NoReport) }));
    verdicts
}

/// Keeps the place where the pod is expected to go, until it is seen there or asked for again.
pub(super) fn keep(book: &mut Book, pod: &Pod, request: &PlaceRequest, choice: &Choice, now: Mono) {
    if let Some(placement) = pod.placement() {
        book.keep(placement, request, choice, now);
    }
}
