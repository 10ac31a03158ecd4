//! `filter`: which of these nodes may take the pod, and why not the others.

use std::collections::{BTreeMap, HashSet};

use berth_model::cluster::{NotHere, Refusals};
use berth_model::time::Mono;
use berth_policy::nodes::Verdict;

use super::ask::{keep, names, verdicts};
use super::lately::Lately;
use super::types::{ExtenderArgs, ExtenderFilterResult, Nodes};
use crate::placer::Book;

/// The scheduler joins equal reasons and counts them in what it tells the pod's owner. Of so many nodes each is told with its figures; of
/// more only the reason is.
const MOST_TOLD_APART: usize = 8;

/// The answer, and how many nodes were refused for what, where none is left.
pub fn filter(
    book: &mut Book,
    lately: &mut Lately,
    args: ExtenderArgs,
    now: Mono,
) -> (ExtenderFilterResult, Option<Refusals>) {
    let names = names(&args);
    let request = match args.pod.wants() {
        Ok(None) => return (all(args), None),
        Err(unread) => return (none(&args, names, &format!("berth: {unread}")), None),
        Ok(Some(wants)) => wants.request(),
    };
    let mut verdicts = verdicts(book, &args.pod, &request, &names, now);
    let mut fitting = verdicts.iter().filter_map(|verdict| verdict.result.as_ref().ok());
    // With one node left the scheduler does not ask which is best.
    if let (Some(only), None) = (fitting.next(), fitting.next()) {
        keep(book, &args.pod, &request, &only.choice, now);
    }
    let refusals = verdicts.iter().all(|verdict| verdict.result.is_err()).then(|| refusals(&verdicts));
    let pod = args.pod.placement();
    let answer = judged(args, names, &verdicts);
    pod.into_iter().for_each(|pod| lately.keep(pod, request.clone(), std::mem::take(&mut verdicts), now));
    (answer, refusals)
}

/// It wants nothing of berth.
fn all(args: ExtenderArgs) -> ExtenderFilterResult {
    ExtenderFilterResult { nodes: args.nodes, node_names: args.node_names, ..ExtenderFilterResult::default() }
}

/// No node takes it, and none will.
fn none(args: &ExtenderArgs, names: Vec<String>, reason: &str) -> ExtenderFilterResult {
    let failed: BTreeMap<_, _> = names.into_iter().map(|name| (name, reason.to_owned())).collect();
    let is_by_name = args.node_names.is_some();
    ExtenderFilterResult {
        node_names: is_by_name.then(Vec::new),
        nodes: (!is_by_name).then(Nodes::default),
        failed_nodes: failed.clone(),
        failed_and_unresolvable_nodes: failed,
        ..ExtenderFilterResult::default()
    }
}

fn judged(args: ExtenderArgs, names: Vec<String>, verdicts: &[Verdict]) -> ExtenderFilterResult {
    let mut answer = ExtenderFilterResult::default();
    let refused = verdicts.iter().filter_map(|verdict| Some((&verdict.node, verdict.result.as_ref().err()?)));
    let has_figures = refused.clone().take(MOST_TOLD_APART + 1).count() <= MOST_TOLD_APART;
    for (node, why) in refused {
        let reason = if has_figures { format!("berth: {why}") } else { format!("berth: {}", why.word()) };
        answer.failed_nodes.insert(node.to_string(), reason);
    }
    answer.failed_and_unresolvable_nodes.clone_from(&answer.failed_nodes);
    let fits = verdicts.iter().filter(|verdict| verdict.result.is_ok()).map(|verdict| verdict.node.as_str());
    let fits: HashSet<&str> = fits.collect();
    match args.nodes.filter(|_| args.node_names.is_none()) {
        Some(mut nodes) => {
            nodes.items.retain(|item| Nodes::name(item).is_some_and(|name| fits.contains(name.as_str())));
            answer.nodes = Some(nodes);
        }
        None => answer.node_names = Some(names.into_iter().filter(|name| fits.contains(name.as_str())).collect()),
    }
    answer
}

fn refusals(verdicts: &[Verdict]) -> Refusals {
    let mut refusals = Refusals::default();
    let whys = verdicts.iter().filter_map(|verdict| verdict.result.as_ref().err());
    whys.for_each(|why: &NotHere| refusals.add(why));
    refusals
}
