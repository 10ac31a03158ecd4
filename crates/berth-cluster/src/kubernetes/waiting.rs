//! Pods that no node would take, and when one would.
//!
//! kube-scheduler tries such a pod again when a node or a pod changes, and else after minutes. What berth goes by changes without its knowing: a
//! task ends, memory is given back. So when a node would take the pod, the pod is *touched*, by an annotation: a change of the pod itself
//! makes the scheduler try it. It may still leave that node out by rules of its own; so a pod is touched ever more seldom.
//!
//! Which pods those are the scheduler's questions tell, and the API server: a placer that has just begun to act was asked nothing.
//!
//! Pure: what is refused and what has settled comes in, whom to touch goes out.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use berth_model::Mono;
use berth_model::cluster::PlacementId;
use berth_model::cluster::api::PlaceRequest;

use super::pod::Pod;

/// From a refusal until a pod is first touched, and between two touches at most.
const SOON: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(60);
/// Pods that are remembered; more are left to the scheduler.
const MOST_PODS: usize = 10_000;
/// Pods that are touched at a time: each is a write to the API server.
const MOST_TOUCHED: usize = 32;

/// A pod that is to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Touch {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

#[derive(Debug, Default)]
pub struct Waiting {
    pods: HashMap<PlacementId, Waits>,
}

#[derive(Debug)]
struct Waits {
    pod: Touch,
    request: PlaceRequest,
    /// Not to be touched before.
    due: Mono,
    pause: Duration,
}

impl Waiting {
    /// No node takes it now.
    pub fn refused(&mut self, pod: &Pod, request: PlaceRequest, now: Mono) {
        if let Some(waits) = self.waits(pod, request, now) {
            waits.due = now + waits.pause;
        }
    }

    /// The API server tells that no place was found for it. It does so on every change, also on a touch: when it is due stays as it is.
    pub fn told(&mut self, pod: &Pod, request: PlaceRequest, now: Mono) {
        self.waits(pod, request, now);
    }

    /// What is remembered of it from now on.
    fn waits(&mut self, pod: &Pod, request: PlaceRequest, now: Mono) -> Option<&mut Waits> {
        let (id, uid) = (pod.placement()?, pod.meta.uid.clone()?);
        let has_room = self.pods.len() < MOST_PODS;
        match self.pods.entry(id) {
            Entry::Occupied(known) => {
                let waits = known.into_mut();
                waits.request = request;
                Some(waits)
            }
            Entry::Vacant(new) if has_room => {
                let pod = Touch { namespace: pod.namespace().to_owned(), name: pod.name().to_owned(), uid };
                Some(new.insert(Waits { pod, request, due: now + SOON, pause: SOON }))
            }
            Entry::Vacant(_) => None,
        }
    }

    /// It is bound, or gone.
    pub fn settled(&mut self, id: PlacementId) {
        self.pods.remove(&id);
    }

    /// Others are bound or gone; one that is younger than the list is told after it.
    pub fn are_only(&mut self, unbound: &BTreeSet<PlacementId>) {
        self.pods.retain(|id, _| unbound.contains(id));
    }

    /// Those that a node would take now, as `fits` says.
    pub(super) fn touched(&mut self, now: Mono, fits: impl Fn(&PlaceRequest) -> bool) -> Vec<Touch> {
        let due = self.pods.values_mut().filter(|waits| waits.due <= now);
        let fitting = due.filter(|waits| fits(&waits.request)).take(MOST_TOUCHED);
        let touch = |waits: &mut Waits| {
            waits.pause = (waits.pause * 2).min(SELDOM);
            waits.due = now + waits.pause;
            waits.pod.clone()
        };
        fitting.map(touch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(seconds: u64) -> Mono {
        Mono::from_nanos(seconds * 1_000_000_000)
    }

    fn pod(uid: &str) -> (Pod, PlaceRequest) {
        let pod = json!({"metadata": {"name": uid, "namespace": "n", "uid": uid}});
        (serde_json::from_value(pod).unwrap(), serde_json::from_value(json!({"image": uid})).unwrap())
    }

    fn refused(waiting: &mut Waiting, uid: &str, now: Mono) {
        let (pod, request) = pod(uid);
        waiting.refused(&pod, request, now);
    }

    fn names(touched: Vec<Touch>) -> Vec<String> {
        let mut names: Vec<_> = touched.into_iter().map(|touch| touch.name).collect();
        names.sort();
        names
    }

    #[test]
    fn a_pod_is_touched_when_a_node_would_take_it() {
        let mut waiting = Waiting::default();
        refused(&mut waiting, "a", at(0));
        refused(&mut waiting, "b", at(0));
        assert_eq!(names(waiting.touched(at(0), |_| true)), [] as [&str; 0], "not at once");
        assert_eq!(names(waiting.touched(at(1), |_| false)), [] as [&str; 0]);
        assert_eq!(names(waiting.touched(at(1), |request| request.image.as_deref() == Some("a"))), ["a"]);
        waiting.settled(crate::kubernetes::placement_of("b"));
        assert_eq!(names(waiting.touched(at(2), |_| true)), [] as [&str; 0]);
    }

    #[test]
    fn one_that_the_scheduler_still_does_not_place_is_touched_ever_more_seldom() {
        let mut waiting = Waiting::default();
        let mut touched = Vec::new();
        refused(&mut waiting, "a", at(0));
        for second in 0..300 {
            if !waiting.touched(at(second), |_| true).is_empty() {
                touched.push(second);
                refused(&mut waiting, "a", at(second));
            }
        }
        assert_eq!(touched, [1, 3, 7, 15, 31, 63, 123, 183, 243]);
    }

    #[test]
    fn one_that_is_told_again_is_not_touched_more_often_for_it() {
        let mut waiting = Waiting::default();
        let mut touched = Vec::new();
        for second in 0..70 {
            let (pod, request) = pod("a");
            waiting.told(&pod, request, at(second));
            touched.extend((!waiting.touched(at(second), |_| true).is_empty()).then_some(second));
        }
        assert_eq!(touched, [1, 3, 7, 15, 31, 63]);
    }

    #[test]
    fn what_is_remembered_and_touched_at_once_is_bounded() {
        let mut waiting = Waiting::default();
        (0..MOST_PODS + 5).for_each(|n| refused(&mut waiting, &format!("p{n}"), at(0)));
        assert_eq!(waiting.pods.len(), MOST_PODS);
        assert_eq!(waiting.touched(at(1), |_| true).len(), MOST_TOUCHED);
    }
}
