//! Pods that were placed: their places are kept until they are seen on their node, or are over.
//!
//! After a restart every pod that stands somewhere is told anew, with the GPUs that were chosen for it in its annotation: places are
//! rebuilt by that, and nothing is stored. A pod that was bound by others, as while no placer ran, is given GPUs where it is; so is one whose
//! annotation names GPUs that its node has not. One that its node sees on another GPU than was chosen is there: its annotation is corrected.
//! Those for which no place was found are told of, too: they wait.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use berth_model::GpuUuid;
use berth_model::cluster::{Choice, NodeId, PlacementId};
use tokio::sync::mpsc;

use super::pod::{Pod, Wants};
use super::waiting::Waiting;
use super::watch::Follow;
use crate::placer::{Book, Placed, Placer};

/// GPUs that are to be written on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Adopted {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub choice: Choice,
}

/// What the API server tells of pods.
pub(super) struct PlacedPods {
    /// Bound to nodes.
    told: BTreeSet<PlacementId>,
    /// Bound to none.
    unbound: BTreeSet<PlacementId>,
    waiting: Arc<Mutex<Waiting>>,
    standing: Standing,
}

/// Who stands where.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    placer: Arc<Placer>,
    adopted: mpsc::Sender<Adopted>,
    /// Those of which their nodes do not tell: on which GPUs they are is not known.
    unsettled: Arc<Mutex<HashMap<PlacementId, Unsettled>>>,
}

#[derive(Debug)]
struct Unsettled {
    pod: Pod,
    /// Which GPUs its node has is not known either.
    is_unreported: bool,
}

// === impl Standing ===

impl Standing {
    pub fn new(placer: Arc<Placer>, adopted: mpsc::Sender<Adopted>) -> Self {
        Self { placer, adopted, unsettled: Arc::default() }
    }

    /// Settles those of which their node tells by now, or which GPUs it has.
    pub fn settle(&self) {
        let is_told = |book: &Book, id: PlacementId, Unsettled { pod, is_unreported }: &Unsettled| {
            let node = pod.node.as_deref().and_then(|node| node.parse::<NodeId>().ok());
            node.is_some_and(|node| (*is_unreported && book.stamp(&node).is_some()) || book.sees(&node, id))
        };
        let told: Vec<(PlacementId, Unsettled)> = {
            let book = self.placer.book();
            self.unsettled().extract_if(|id, one| is_told(&book, *id, one)).collect()
        };
        told.iter().for_each(|(id, one)| self.stands(*id, &one.pod));
    }

    fn stands(&self, id: PlacementId, pod: &Pod) {
        self.unsettled().remove(&id);
        let node = pod.node.as_deref().and_then(|node| node.parse().ok());
        let (Some(node), Some(wants)) = (node, pod.takes()) else { return };
        let (now, request) = (self.placer.now(), wants.request());
        let mut book = self.placer.book();
        let seen = book.seen_on(&node, id);
        if seen.is_empty() {
            let is_unreported = book.stamp(&node).is_none();
            self.unsettled().insert(id, Unsettled { pod: pod.clone(), is_unreported });
        }
        let choice = match believed(&book, pod, &wants, &node) {
            Some(choice) if seen.iter().all(|gpu| choice.gpus.contains(gpu)) => choice,
            Some(chosen) => {
                let choice = truly(&chosen, seen);
                let pod_name = format!("{}/{}", pod.namespace(), pod.name());
                tracing::warn!(pod = pod_name, chosen = ?chosen.gpus, is = ?choice.gpus, "it is on another GPU than was chosen");
                self.adopt(pod, &choice);
                choice
            }
            // It knows on which GPU it is.
            None if !seen.is_empty() => return,
            None => {
                let choice = book.take(id, &request, &node, now).or_else(|why| {
                    let pod = format!("{}/{}", pod.namespace(), pod.name());
                    tracing::warn!(pod, %node, %why, "bound without the placer, where it would not have gone");
                    book.emptiest(&request, &node).ok_or(why)
                });
                let Ok(choice) = choice else { return };
                self.adopt(pod, &choice);
                choice
            }
        };
        book.stands(Placed { id, request, choice, is_started: pod.is_running }, now);
    }

    fn adopt(&self, pod: &Pod, choice: &Choice) {
        let Some(uid) = pod.meta.uid.clone() else { return };
        let (namespace, name) = (pod.namespace().to_owned(), pod.name().to_owned());
        // Who is not told in time is told when the pod is seen next.
        let _ = self.adopted.try_send(Adopted { namespace, name, uid, choice: choice.clone() });
    }

    fn unsettled(&self) -> MutexGuard<'_, HashMap<PlacementId, Unsettled>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the pod's annotation says, if it is as many as it wants and its node has them; a node that has not reported may.
fn believed(book: &Book, pod: &Pod, wants: &Wants, node: &NodeId) -> Option<Choice> {
    let gpus = pod.annotations.chosen().filter(|gpus| gpus.len() == wants.gpus as usize)?;
    (book.has_gpus(node, &gpus) != Some(false)).then(|| Choice { node: node.clone(), gpus })
}

/// As many GPUs as were chosen: those on which it was seen, and of the chosen ones as many as are left.
fn truly(chosen: &Choice, seen: Vec<GpuUuid>) -> Choice {
    let others: Vec<GpuUuid> = chosen.gpus.iter().filter(|gpu| !seen.contains(gpu)).cloned().collect();
    Choice { node: chosen.node.clone(), gpus: seen.into_iter().chain(others).take(chosen.gpus.len()).collect() }
}

// === impl PlacedPods ===

impl PlacedPods {
    pub fn new(standing: Standing, waiting: Arc<Mutex<Waiting>>) -> Self {
        Self { told: BTreeSet::new(), unbound: BTreeSet::new(), waiting, standing }
    }

    fn is_unbound(&mut self, id: PlacementId, pod: &Pod) {
        let Ok(Some(wants)) = pod.wants() else { return };
        self.unbound.insert(id);
        if pod.is_unplaced {
            self.waiting().told(pod, wants.request(), self.standing.placer.now());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Follow<Pod> for PlacedPods {
    fn there(&mut self, pod: Pod) {
        let Some(id) = pod.placement() else { return };
        if pod.is_leaving {
            return self.gone(pod);
        }
        if pod.node.is_none() {
            return self.is_unbound(id, &pod);
        }
        // None of ours.
        if pod.takes().is_none() {
            return;
        }
        self.told.insert(id);
        self.unbound.remove(&id);
        self.waiting().settled(id);
        self.standing.stands(id, &pod);
    }

    fn gone(&mut self, pod: Pod) {
        let Some(id) = pod.placement() else { return };
        self.told.remove(&id);
        self.unbound.remove(&id);
        self.waiting().settled(id);
        self.standing.unsettled().remove(&id);
        self.standing.placer.book().release(id);
    }

    fn told_all(&mut self) {
        self.waiting().are_only(&self.unbound);
        self.standing.unsettled().retain(|id, _| self.told.contains(id));
        self.standing.placer.book().placed_are_only(&self.told);
    }

    fn anew(&mut self) {
        self.told.clear();
        self.unbound.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::placement_of;
    use crate::kubernetes::testing::{gpu, joins, member, placer, report};
    use berth_model::quantity::Bytes;
    use serde_json::{Value, json};
    use std::time::Duration;

    struct Stage {
        placer: Arc<Placer>,
        pods: PlacedPods,
        adopted: mpsc::Receiver<Adopted>,
    }

    fn stage() -> Stage {
        let placer = placer();
        joins(&placer, "node-a", 80);
        joins(&placer, "node-b", 80);
        let (sender, adopted) = mpsc::channel(8);
        let pods = PlacedPods::new(Standing::new(Arc::clone(&placer), sender), Arc::default());
        Stage { pods, placer, adopted }
    }

    impl Stage {
        fn reserved(&self) -> (usize, usize) {
            let on = |node: &str| self.placer.book().reserved_on(&node.parse().unwrap());
            (on("node-a"), on("node-b"))
        }
    }

    fn pod(uid: &str, node: &str, phase: &str, annotations: Value) -> Pod {
        let meta = json!({"name": uid, "namespace": "n", "uid": uid, "annotations": annotations});
        let spec = json!({"nodeName": node, "containers": [{"resources": {"limits": {"berth.dev/gpu": "1"}}}]});
        serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": {"phase": phase}})).unwrap()
    }

    fn chosen(node: &str) -> Value {
        json!({"berth.dev/memory": "20Gi", "berth.dev/gpus-chosen": format!("GPU-{node}")})
    }

    #[test]
    fn places_are_rebuilt_from_what_stands_where() {
        let mut stage = stage();
        stage.pods.anew();
        stage.pods.there(pod("one", "node-a", "Pending", chosen("node-a")));
        stage.pods.there(pod("two", "node-b", "Pending", chosen("node-b")));
        stage.pods.there(pod("three", "", "Pending", json!({})));
        stage.pods.told_all();
        assert_eq!(stage.reserved(), (1, 1));
        // Told anew after a break, without one of them.
        stage.pods.anew();
        stage.pods.there(pod("one", "node-a", "Pending", chosen("node-a")));
        stage.pods.told_all();
        assert_eq!(stage.reserved(), (1, 0));
    }

    #[test]
    fn a_pod_that_waited_before_this_placer_was_there_still_waits() {
        let mut stage = stage();
        let bare = |uid: &str| pod(uid, "", "Pending", json!({"berth.dev/memory": "20Gi"}));
        let unplaced = |uid: &str| Pod { is_unplaced: true, ..bare(uid) };
        ["waits", "bound", "deleted", "unlisted"].iter().for_each(|uid| stage.pods.there(unplaced(uid)));
        stage.pods.there(bare("untried"));
        stage.pods.there(pod("bound", "node-a", "Pending", chosen("node-a")));
        stage.pods.gone(unplaced("deleted"));
        let touched = |stage: &Stage, seconds| {
            let later = stage.placer.now() + Duration::from_secs(seconds);
            let touched = stage.pods.waiting().touched(later, |request| request.memory_bytes == Some(Bytes(20 << 30)));
            touched.into_iter().map(|touch| touch.name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
        };
        assert_eq!(touched(&stage, 2), ["unlisted", "waits"]);
        // Told anew after a break, without one of them.
        stage.pods.anew();
        stage.pods.there(unplaced("waits"));
        stage.pods.told_all();
        assert_eq!(touched(&stage, 60), ["waits"]);
    }

    #[test]
    fn a_place_is_given_back_when_the_pod_ends_or_is_gone() {
        let mut stage = stage();
        stage.pods.there(pod("one", "node-a", "Pending", chosen("node-a")));
        stage.pods.there(pod("one", "node-a", "Succeeded", chosen("node-a")));
        assert_eq!(stage.reserved(), (0, 0));
        stage.pods.there(pod("two", "node-b", "Running", chosen("node-b")));
        stage.pods.gone(pod("two", "node-b", "Running", chosen("node-b")));
        assert_eq!(stage.reserved(), (0, 0));
    }

    #[test]
    fn a_pod_that_its_node_tells_of_needs_no_place() {
        let mut stage = stage();
        let mut seen = gpu("GPU-node-c".to_owned(), 40);
        seen.placed.push(placement_of("one"));
        member(&stage.placer, "node-c", vec![seen]);
        stage.pods.there(pod("one", "node-c", "Running", chosen("node-c")));
        assert_eq!(stage.placer.book().reserved_on(&"node-c".parse().unwrap()), 0);
    }

    #[test]
    fn a_pod_on_another_gpu_than_was_chosen_counts_where_it_is_and_its_annotation_is_corrected() {
        let mut stage = stage();
        let gpus = || ["GPU-1", "GPU-2"].map(|uuid| gpu(uuid.to_owned(), 80));
        member(&stage.placer, "node-c", gpus().into());
        let asks = json!({"berth.dev/memory": "20Gi", "berth.dev/gpus-chosen": "GPU-1"});
        stage.pods.there(pod("one", "node-c", "Running", asks));
        let reserved = |stage: &Stage| stage.placer.book().reserved_on(&"node-c".parse().unwrap());
        assert_eq!(reserved(&stage), 1);
        stage.pods.standing.settle();
        assert!(stage.adopted.try_recv().is_err(), "nobody has seen it");
        let mut seen = report("node-c", gpus().into());
        seen.gpus[1].placed.push(placement_of("one"));
        seen.stamp.number += 1;
        let now = stage.placer.now();
        stage.placer.book().reported(&"node-c".parse().unwrap(), Ok(seen), now);
        stage.pods.standing.settle();
        assert_eq!(stage.adopted.try_recv().unwrap().choice.gpus[0].0, "GPU-2");
        assert_eq!(reserved(&stage), 0, "it is not on its way to the other");
    }

    #[test]
    fn who_was_bound_by_others_is_given_gpus_where_it_is() {
        let mut stage = stage();
        stage.pods.there(pod("one", "node-b", "Pending", json!({"berth.dev/memory": "20Gi"})));
        let adopted = stage.adopted.try_recv().unwrap();
        assert_eq!((adopted.name.as_str(), adopted.choice.gpus[0].0.as_str()), ("one", "GPU-node-b"));
        assert_eq!(stage.reserved(), (0, 1));
        // Too much for that node, and there all the same: it counts.
        stage.pods.there(pod("two", "node-b", "Pending", json!({"berth.dev/memory": "200Gi"})));
        assert_eq!(stage.adopted.try_recv().unwrap().choice.gpus[0].0, "GPU-node-b");
        assert_eq!(stage.reserved(), (0, 2));
    }

    #[test]
    fn of_one_that_was_bound_by_others_counts_what_can_be_read() {
        let mut stage = stage();
        let unread = json!({"berth.dev/memory": "70Gi", "berth.dev/deadline": "junk", "berth.dev/gpus": "4"});
        stage.pods.there(pod("one", "node-b", "Pending", unread));
        assert_eq!(stage.adopted.try_recv().unwrap().choice.gpus[0].0, "GPU-node-b");
        assert_eq!(stage.reserved(), (0, 1));
        let twenty = serde_json::from_value(json!({"memory_bytes": 20_u64 << 30})).unwrap();
        let (book, now) = (stage.placer.book(), stage.placer.now());
        let verdicts = book.verdicts(&twenty, &["node-b".parse().unwrap()], now);
        assert!(verdicts[0].result.is_err(), "10 GiB are left");
    }

    #[test]
    fn gpus_that_its_node_has_not_are_chosen_anew() {
        let mut stage = stage();
        // Annotated for one node, and bound to another while the placer was away; and twice what it wants.
        for (uid, gpus) in [("stale", "GPU-node-a"), ("greedy", "GPU-node-b,GPU-node-b")] {
            let annotations = json!({"berth.dev/memory": "20Gi", "berth.dev/gpus-chosen": gpus});
            stage.pods.there(pod(uid, "node-b", "Pending", annotations));
            let adopted = stage.adopted.try_recv().unwrap();
            assert_eq!((adopted.name.as_str(), adopted.choice.gpus[0].0.as_str()), (uid, "GPU-node-b"));
        }
        assert_eq!(stage.reserved(), (0, 2));
    }

    #[test]
    fn on_a_node_that_has_not_reported_it_is_settled_when_that_has() {
        let mut stage = stage();
        for (uid, annotations) in [("bare", json!({"berth.dev/memory": "20Gi"})), ("stale", chosen("node-a"))] {
            stage.pods.there(pod(uid, "node-c", "Pending", annotations));
        }
        stage.pods.standing.settle();
        assert!(stage.adopted.try_recv().is_err());
        joins(&stage.placer, "node-c", 80);
        stage.pods.standing.settle();
        let gpus: Vec<_> =
            std::iter::from_fn(|| stage.adopted.try_recv().ok()).map(|adopted| adopted.choice.gpus).collect();
        assert_eq!(gpus.iter().map(|gpus| gpus[0].0.as_str()).collect::<Vec<_>>(), ["GPU-node-c"; 2]);
        let on_it = || stage.placer.book().reserved_on(&"node-c".parse().unwrap());
        assert_eq!(on_it(), 2);
        stage.pods.standing.settle();
        assert_eq!(on_it(), 2);
    }

    #[test]
    fn a_node_that_was_deleted_and_made_anew_has_the_places_it_had() {
        let mut stage = stage();
        stage.pods.there(pod("one", "node-a", "Pending", chosen("node-a")));
        stage.placer.book().member_is_gone(&"node-a".parse().unwrap());
        assert_eq!(stage.reserved(), (0, 0));
        joins(&stage.placer, "node-a", 80);
        assert_eq!(stage.reserved(), (1, 0));
        stage.pods.there(pod("one", "node-a", "Running", chosen("node-a")));
        assert_eq!(stage.reserved(), (1, 0));
    }
}
