//! What `filter` has found for a pod, for the `prioritize` that follows it in a moment: nearly all of what either takes is judging nodes.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use berth_model::cluster::PlacementId;
use berth_model::cluster::api::PlaceRequest;
use berth_model::time::Mono;
use berth_policy::nodes::Verdict;

use crate::placer::Book;

/// The scheduler asks for one pod after the other.
const MOST_PODS: usize = 4;
/// Between the two questions.
const LASTS: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub struct Lately(VecDeque<Found>);

#[derive(Debug)]
struct Found {
    pod: PlacementId,
    request: PlaceRequest,
    /// Of the nodes that take it, best first.
    verdicts: Vec<Verdict>,
    at: Mono,
}

impl Lately {
    pub(super) fn keep(&mut self, pod: PlacementId, request: PlaceRequest, verdicts: Vec<Verdict>, at: Mono) {
        self.0.retain(|found| found.pod != pod);
        self.0.truncate(MOST_PODS - 1);
        let verdicts = verdicts.into_iter().filter(|verdict| verdict.result.is_ok()).collect();
        self.0.push_front(Found { pod, request, verdicts, at });
    }

    /// The verdicts on these nodes, if all of them were found to take it a moment ago and the best is the best still: that one is judged
    /// anew, since its place is about to be kept.
    pub(super) fn verdicts(
        &mut self,
        book: &Book,
        pod: PlacementId,
        request: &PlaceRequest,
        names: &[String],
        now: Mono,
    ) -> Option<Vec<Verdict>> {
        let at = self.0.iter().position(|found| found.pod == pod)?;
        let found = self.0.remove(at).filter(|found| found.request == *request && now.since(found.at) < LASTS)?;
        let asked: HashSet<&str> = names.iter().map(String::as_str).collect();
        let mut verdicts = found.verdicts;
        verdicts.retain(|verdict| asked.contains(verdict.node.as_str()));
        if verdicts.len() != asked.len() {
            return None;
        }
        let anew = book.verdicts(request, &[verdicts.first()?.node.clone()], now).pop()?;
        let score = |verdict: &Verdict| verdict.result.as_ref().ok().map(|place| place.score);
        let is_best = score(&anew)? >= verdicts.get(1).and_then(score).unwrap_or(f64::MIN);
        *verdicts.first_mut()? = anew;
        is_best.then_some(verdicts)
    }
}
