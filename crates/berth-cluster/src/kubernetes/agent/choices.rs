//! Which pods of this node want GPUs, and which the placer chose for them, for the device plugin. Pure but for a lock.
//!
//! The kubelet asks for shares without a word about the pod. It does tell, on another socket, which pods it knows and what it has given to
//! each of their containers; and it comes to know a pod just before it asks for it. So the container is meant that it knows and has given
//! nothing. Where it does not tell, the oldest is taken that waits for as many shares and was not answered for. What was given in the end is
//! what counts: a pod that got other GPUs than were chosen is told in the node's report.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use berth_model::GpuUuid;
use berth_model::cluster::Report;
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::sync::watch;

use super::strays::Stray;
use crate::kubernetes::annotations::{Annotations, Asks};
use crate::kubernetes::pod::STAYS;
use crate::kubernetes::{RESOURCE, placement_of};

type Uid = String;

/// Shared by the agent, which sees the pods, and the device plugin, which is asked.
#[derive(Debug, Clone, Default)]
pub struct Choices {
    pods: watch::Sender<BTreeMap<Uid, Wanting>>,
    strays: Arc<Mutex<BTreeMap<Uid, Stray>>>,
    /// For whom the kubelet was answered last, and not yet asked what it is to give.
    answered: Arc<Mutex<Option<(Uid, usize)>>>,
}

/// Tells that pods have come, changed or gone.
#[derive(Debug)]
pub struct Changes(watch::Receiver<BTreeMap<Uid, Wanting>>);

/// What the kubelet says it has given: to each container its GPUs, by the pod's namespace and name. Pods that got none are in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Given(pub BTreeMap<(String, String), BTreeMap<String, BTreeSet<GpuUuid>>>);

/// Whom the kubelet asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// No pod is known that waits for that many shares.
    Nobody,
    /// One for which the placer has chosen nothing yet.
    Unchosen,
    /// One for which these GPUs were chosen.
    Chosen(Vec<GpuUuid>),
}

/// A pod that wants shares and has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanting {
    /// Namespace and name.
    name: (String, String),
    /// In seconds since 1970.
    made: i64,
    /// A container of it was made: it has what it gets.
    has_begun: bool,
    wants: Vec<Want>,
    /// By the placer; `None` if it has not chosen yet.
    gpus: Option<Vec<GpuUuid>>,
    asks: Asks,
}

/// A container that wants shares.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Want {
    container: String,
    shares: usize,
    /// It runs before the others, and leaves them its shares. A sidecar keeps its own.
    is_init: bool,
    /// How often the kubelet was answered for it.
    answered: u32,
}

/// Of two the lesser is meant: who was answered for least, for whom something was chosen, whose pod the kubelet is at, who is older.
type Rank = (u32, bool, bool, i64);

impl Choices {
    /// The pod is as told.
    pub(in crate::kubernetes) fn told(&self, uid: &str, pod: &Pod) {
        self.pods.send_if_modified(|pods| {
            let before = pods.remove(uid);
            let now = Wanting::of(pod).map(|now| now.answered_like(before.as_ref()));
            let is_news = now != before;
            pods.extend(now.map(|now| (uid.to_owned(), now)));
            is_news
        });
    }

    pub(super) fn gone(&self, uid: &str) {
        self.pods.send_if_modified(|pods| pods.remove(uid).is_some());
    }

    /// From now on.
    pub fn changes(&self) -> Changes {
        Changes(self.pods.subscribe())
    }

    /// Whose container is meant by whoever wants so many shares; it counts as answered for if there is a choice. `given` is what the
    /// kubelet says it has given, `None` where it does not say.
    pub fn meant(&self, shares: usize, given: Option<&Given>) -> Meant {
        let mut meant = Meant::Nobody;
        self.pods.send_if_modified(|pods| {
            let each = pods.iter_mut().filter_map(|(uid, pod)| Some((pod.next(shares, given)?, uid, pod)));
            if let Some(((_, at), uid, pod)) = each.min_by_key(|((rank, _), ..)| *rank) {
                meant = pod.answer(at);
                *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = Some((uid.clone(), shares));
            }
            // Nothing that anybody waits for.
            false
        });
        meant
    }

    /// Whether the pod takes part at the level of kernels to whose container so many shares are given now. The kubelet gives right after it has
    /// asked which to take; where it did not ask, all pods that wait for as many must want the same.
    pub fn takes_part(&self, shares: usize, given: Option<&Given>) -> bool {
        let answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner).take();
        let pods = self.pods.borrow();
        let wants = |pod: &Wanting| pod.asks.kernel_level == Some(true);
        match answered.filter(|(_, asked)| *asked == shares).and_then(|(uid, _)| pods.get(&uid)) {
            Some(pod) => wants(pod),
            None => {
                let mut waiting = pods.values().filter(|pod| pod.next(shares, given).is_some()).peekable();
                waiting.peek().is_some() && waiting.all(wants)
            }
        }
    }

    /// Whether anybody is here to whom something was given or will be.
    pub fn is_wanted(&self) -> bool {
        !self.pods.borrow().is_empty()
    }

    /// What the kubelet has given so far.
    pub fn given(&self, given: &Given) {
        let pods = self.pods.borrow();
        let mut strays = self.strays();
        strays.retain(|uid, stray| pods.get(uid).is_some_and(|pod| pod.got(given).as_ref() == Some(&stray.gpus)));
        for (uid, pod) in pods.iter() {
            let Some(gpus) = pod.got(given).filter(|gpus| pod.is_astray(gpus)) else { continue };
            strays.entry(uid.clone()).or_insert_with(|| {
                let (namespace, name) = &pod.name;
                tracing::warn!(pod = format!("{namespace}/{name}"), chosen = ?pod.gpus, ?gpus, "the kubelet gave other GPUs than were chosen");
                Stray { id: placement_of(uid), gpus, asks: pod.asks.clone(), since: Instant::now(), is_seen: false }
            });
        }
    }

    /// Adds to the node's report who got other GPUs than were chosen, until it is seen there.
    pub fn tell(&self, report: &mut Report) {
        self.strays().values_mut().for_each(|stray| stray.tell(report));
    }

    fn strays(&self) -> MutexGuard<'_, BTreeMap<Uid, Stray>> {
        // Whoever panicked left a whole map.
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Changes {
    /// Waits for the next. Ends at once when nobody is left to tell.
    pub async fn next(&mut self) {
        let _ = self.0.changed().await;
    }
}

impl Wanting {
    fn of(pod: &Pod) -> Option<Self> {
        let annotations: Annotations = pod.metadata.annotations.clone().unwrap_or_default().into_iter().collect();
        let status = pod.status.as_ref();
        let has_ended = status.is_some_and(|status| matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")));
        let statuses = status.and_then(|status| status.container_statuses.as_ref());
        let spec = pod.spec.as_ref()?;
        let is_init = |container: &Container| container.restart_policy.as_deref() != Some(STAYS);
        let init = spec.init_containers.iter().flatten();
        let init = init.filter_map(|container| Want::of(container, is_init(container)));
        let wanting = Self {
            name: (pod.metadata.namespace.clone()?, pod.metadata.name.clone()?),
            made: pod.metadata.creation_timestamp.as_ref().map_or(0, |at| at.0.as_second()),
            has_begun: statuses.into_iter().flatten().any(|status| status.container_id.is_some()),
            wants: init.chain(spec.containers.iter().filter_map(|container| Want::of(container, false))).collect(),
            gpus: annotations.chosen(),
            asks: annotations.readable(),
        };
        (!has_ended && !wanting.wants.is_empty()).then_some(wanting)
    }

    fn answered_like(mut self, before: Option<&Self>) -> Self {
        for (want, before) in self.wants.iter_mut().zip(before.into_iter().flat_map(|before| &before.wants)) {
            want.answered = before.answered;
        }
        self
    }

    /// The container of it that could be meant.
    fn next(&self, shares: usize, given: Option<&Given>) -> Option<(Rank, usize)> {
        // One the kubelet does not know yet is not asked for.
        let given = given.map(|given| given.0.get(&self.name).ok_or(())).transpose().ok()?;
        let has = |want: &Want| given.and_then(|given| given.get(&want.container)).is_some_and(|gpus| !gpus.is_empty());
        let is_under_way = self.wants.iter().any(|want| has(want) || want.answered > 0);
        let rank = |want: &Want| (want.answered, self.gpus.is_none(), !is_under_way, self.made);
        let wants = self.wants.iter().enumerate().filter(|(_, want)| want.shares == shares && !has(want));
        wants.filter(|_| !self.has_begun).map(|(at, want)| (rank(want), at)).min()
    }

    /// The GPUs of all its containers; `None` until each that wants some has them.
    fn got(&self, given: &Given) -> Option<BTreeSet<GpuUuid>> {
        let given = given.0.get(&self.name)?;
        let mut all = BTreeSet::new();
        for want in self.wants.iter().filter(|want| !want.is_init) {
            all.extend(given.get(&want.container).filter(|gpus| !gpus.is_empty())?.iter().cloned());
        }
        Some(all)
    }

    fn is_astray(&self, got: &BTreeSet<GpuUuid>) -> bool {
        self.gpus.as_ref().is_some_and(|chosen| !got.iter().all(|gpu| chosen.contains(gpu)))
    }

    fn answer(&mut self, at: usize) -> Meant {
        let Some(gpus) = self.gpus_of(at) else { return Meant::Unchosen };
        self.wants[at].answered += 1;
        Meant::Chosen(gpus)
    }

    /// Of the chosen GPUs those of one container: where there is one for each share, in the order of containers.
    fn gpus_of(&self, at: usize) -> Option<Vec<GpuUuid>> {
        let gpus = self.gpus.as_ref()?;
        let shares = |wants: &[Want]| wants.iter().filter(|want| !want.is_init).map(|want| want.shares).sum::<usize>();
        let want = &self.wants[at];
        if want.is_init || shares(&self.wants) != gpus.len() {
            return Some(gpus.clone());
        }
        Some(gpus.iter().skip(shares(&self.wants[..at])).take(want.shares).cloned().collect())
    }
}

impl Want {
    fn of(container: &Container, is_init: bool) -> Option<Self> {
        let shares = container.resources.as_ref()?.limits.as_ref()?.get(RESOURCE)?.0.parse().ok()?;
        (shares > 0).then(|| Self { container: container.name.clone(), shares, is_init, answered: 0 })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::kubernetes::testing::{gpu, report};

    /// `shares`: of each container.
    fn pod(name: &str, made: u32, gpus: &str, shares: &[&str]) -> Pod {
        let meta = json!({"name": name, "namespace": "n", "creationTimestamp": format!("2026-11-16T04:00:{made:02}Z"),
            "annotations": {"berth.dev/gpus-chosen": gpus}});
        let container = |(number, shares): (usize, &&str)| json!({"name": format!("c{number}"), "resources": {"limits": {"berth.dev/gpu": shares}}});
        let containers: Vec<Value> = shares.iter().enumerate().map(container).collect();
        serde_json::from_value(json!({"metadata": meta, "spec": {"containers": containers}})).unwrap()
    }

    fn with_status(mut pod: Pod, status: Value) -> Pod {
        pod.status = Some(serde_json::from_value(status).unwrap());
        pod
    }

    fn told(pods: &[Pod]) -> Choices {
        let choices = Choices::default();
        pods.iter().for_each(|pod| choices.told(pod.metadata.name.as_deref().unwrap(), pod));
        choices
    }

    /// `("one", "c0=GPU-a")`: the pod is known, and that container has that GPU.
    fn given(pods: &[(&str, &str)]) -> Given {
        let of = |has: &str| {
            let each = has.split_whitespace().map(|has| has.split_once('=').unwrap());
            each.map(|(container, gpu)| (container.to_owned(), BTreeSet::from([GpuUuid(gpu.to_owned())]))).collect()
        };
        Given(pods.iter().map(|(name, has)| (("n".to_owned(), (*name).to_owned()), of(has))).collect())
    }

    fn meant(choices: &Choices, shares: usize, given: Option<&Given>) -> Vec<String> {
        match choices.meant(shares, given) {
            Meant::Chosen(gpus) => gpus.into_iter().map(|gpu| gpu.0).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    #[test]
    fn the_pod_is_meant_that_the_kubelet_knows_and_has_given_nothing() {
        let choices = told(&[pod("old", 1, "GPU-a", &["1"]), pod("young", 9, "GPU-b", &["1"])]);
        assert_eq!(
            meant(&choices, 1, Some(&given(&[("young", ""), ("plain", "")]))),
            ["GPU-b"],
            "it does not know the old one"
        );
        let both = given(&[("young", "c0=GPU-b"), ("old", "")]);
        assert_eq!(meant(&choices, 1, Some(&both)), ["GPU-a"]);
        let full = given(&[("young", "c0=GPU-b"), ("old", "c0=GPU-a")]);
        assert_eq!(meant(&choices, 1, Some(&full)), ["Nobody"], "it waits for one that was not told yet");
    }

    #[test]
    fn who_takes_part_is_told_by_whom_the_kubelet_was_answered_for() {
        let asks = |mut pod: Pod| {
            let ours = [("berth.dev/kernel-level".to_owned(), "true".to_owned())];
            pod.metadata.annotations.get_or_insert_default().extend(ours);
            pod
        };
        let choices = told(&[asks(pod("old", 1, "GPU-a", &["1"])), pod("young", 9, "GPU-b", &["1"])]);
        let known = |names: &[&str]| given(&names.iter().map(|name| (*name, "")).collect::<Vec<_>>());
        choices.meant(1, Some(&known(&["young"])));
        assert!(!choices.takes_part(1, Some(&known(&["young", "old"]))), "it gives to whom it asked for");
        choices.meant(1, Some(&known(&["old"])));
        assert!(choices.takes_part(1, Some(&known(&["young", "old"]))));
        assert!(
            !choices.takes_part(1, Some(&known(&["young", "old"]))),
            "nobody was asked for, and one of two does not"
        );
        assert!(choices.takes_part(1, Some(&known(&["old"]))), "nobody was asked for, and it waits alone");
        assert!(!choices.takes_part(2, None), "nobody waits");
    }

    #[test]
    fn one_that_has_its_gpus_and_waits_for_its_image_is_not_taken_for_a_newcomer_after_a_restart() {
        let waits = json!({"containerStatuses": [{"name": "c0", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff"}}}]});
        let stuck = with_status(pod("stuck", 1, "GPU-a", &["1"]), waits);
        let choices = told(&[stuck, pod("new", 9, "GPU-b", &["1"])]);
        assert_eq!(meant(&choices, 1, Some(&given(&[("stuck", "c0=GPU-a"), ("new", "")]))), ["GPU-b"]);
    }

    #[test]
    fn without_the_kubelet_s_word_the_oldest_that_waits_for_as_many_is_meant_and_each_is_once() {
        let choices = told(&[
            pod("young", 9, "GPU-b", &["1"]),
            pod("old", 1, "GPU-a", &["1"]),
            pod("two", 0, "GPU-a,GPU-c", &["2"]),
        ]);
        assert_eq!(meant(&choices, 1, None), ["GPU-a"]);
        assert_eq!(meant(&choices, 1, None), ["GPU-b"]);
        assert_eq!(meant(&choices, 2, None), ["GPU-a", "GPU-c"]);
        assert_eq!(meant(&choices, 1, None), ["GPU-a"], "asked again, the oldest again");
        assert_eq!(meant(&choices, 3, None), ["Nobody"]);
    }

    #[test]
    fn all_containers_of_a_pod_are_answered_for_before_the_next_pod_each_with_its_own() {
        let pods = [pod("pair", 5, "GPU-a,GPU-b", &["1", "1"]), pod("old", 1, "GPU-c", &["1"])];
        let choices = told(&pods);
        assert_eq!(meant(&choices, 1, None), ["GPU-c"]);
        assert_eq!([meant(&choices, 1, None), meant(&choices, 1, None)], [["GPU-a"], ["GPU-b"]]);
        let choices = told(&pods);
        let known = [given(&[("pair", "")]), given(&[("pair", "c0=GPU-a"), ("old", "")])];
        assert_eq!(
            known.map(|known| meant(&choices, 1, Some(&known))),
            [["GPU-a"], ["GPU-b"]],
            "though the other is older"
        );
    }

    #[test]
    fn a_sidecar_has_gpus_of_its_own_and_one_that_runs_before_leaves_the_others_its() {
        let with_init = |policy: Option<&str>| {
            let mut one = pod("one", 1, "GPU-a,GPU-b", &["1", "1"]);
            let spec = one.spec.as_mut().unwrap();
            let mut init = spec.containers.remove(0);
            init.restart_policy = policy.map(str::to_owned);
            spec.init_containers = Some(vec![init]);
            one
        };
        let sidecar = told(&[with_init(Some("Always"))]);
        assert_eq!([meant(&sidecar, 1, None), meant(&sidecar, 1, None)], [["GPU-a"], ["GPU-b"]]);
        let before = told(&[with_init(None)]);
        assert_eq!(meant(&before, 1, None), ["GPU-a", "GPU-b"]);
    }

    #[test]
    fn a_pod_for_which_nothing_was_chosen_is_waited_for() {
        let choices = told(&[pod("one", 1, "", &["1"])]);
        let known = given(&[("one", "")]);
        assert_eq!(meant(&choices, 1, Some(&known)), ["Unchosen"]);
        let mut changes = choices.changes();
        choices.told("one", &pod("one", 1, "GPU-a", &["1"]));
        assert!(changes.0.has_changed().unwrap());
        assert_eq!(meant(&choices, 1, Some(&known)), ["GPU-a"]);
        changes.0.mark_unchanged();
        choices.told("one", &pod("one", 1, "GPU-a", &["1"]));
        assert!(!changes.0.has_changed().unwrap(), "nothing new");
    }

    #[test]
    fn who_got_another_gpu_is_in_the_report_with_what_it_asks_for_until_it_is_seen_there() {
        let (free, node) = (gpu("GPU-a".to_owned(), 80), "node-a");
        let mut asks = pod("one", 1, "GPU-a", &["1"]);
        let annotations = asks.metadata.annotations.as_mut().unwrap();
        annotations.extend(
            [("berth.dev/deadline", "9s"), ("berth.dev/memory", "20Gi")]
                .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let choices = told(&[asks, pod("right", 2, "GPU-a", &["1"])]);
        let told = |choices: &Choices, seen: bool| {
            let mut other = gpu("GPU-b".to_owned(), 80);
            other.placed.extend(seen.then(|| placement_of("one")));
            let mut report = report(node, vec![free.clone(), other]);
            choices.tell(&mut report);
            report
                .gpus
                .into_iter()
                .map(|gpu| (gpu.placed.len(), gpu.loads.len(), gpu.memory_promised_bytes.0 >> 30))
                .collect::<Vec<_>>()
        };
        choices.given(&given(&[("one", ""), ("right", "c0=GPU-a")]));
        assert_eq!(told(&choices, false), [(0, 0, 0), (0, 0, 0)], "who is where it should be is no news");
        let astray = given(&[("one", "c0=GPU-b"), ("right", "c0=GPU-a")]);
        choices.given(&astray);
        assert_eq!(told(&choices, false), [(0, 0, 0), (1, 1, 20)]);
        // The placer has corrected what is written on it, and it has not opened the GPU yet.
        choices.told("one", &pod("one", 1, "GPU-b", &["1"]));
        choices.given(&astray);
        assert_eq!(told(&choices, false), [(0, 0, 0), (1, 1, 20)]);
        assert_eq!(told(&choices, true), [(0, 0, 0), (1, 0, 0)], "it is seen, and counted by that");
        assert_eq!(told(&choices, false), [(0, 0, 0), (0, 0, 0)], "and has closed it again");
        choices.gone("one");
        choices.given(&given(&[]));
        assert!(choices.strays().is_empty());
    }

    #[test]
    fn one_that_has_begun_has_ended_or_is_gone_waits_no_more() {
        let begun = json!({"containerStatuses": [{"name": "c0", "containerID": "containerd://a", "image": "", "imageID": "",
            "ready": true, "restartCount": 0}]});
        for status in [begun, json!({"phase": "Failed"})] {
            let choices = told(&[pod("one", 1, "GPU-a", &["1"])]);
            choices.told("one", &with_status(pod("one", 1, "GPU-a", &["1"]), status));
            assert_eq!(meant(&choices, 1, None), ["Nobody"]);
        }
        let choices = told(&[pod("one", 1, "GPU-a", &["1"])]);
        choices.gone("one");
        assert_eq!(meant(&choices, 1, None), ["Nobody"]);
    }
}
