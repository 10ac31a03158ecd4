//! The pods of a node as the API server tells of them: which containers come, change and go. Pure.
//!
//! A container ends with its pod, or when the node has made another in its place. One that is asked about before the API server has told
//! of it is not gone: the node tells of a container a moment after it runs.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::hold::Signal;
use berth_model::{ContainerFacts, ContainerId, Event, Mono};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::watcher;

use super::choices::Choices;
use super::facts::containers_of;

/// A pod by its uid: one of the same name may have been there before.
type Uid = String;

#[derive(Debug, Default)]
pub(super) struct Pods {
    pods: BTreeMap<Uid, Known>,
    /// Pods of a list that is being told, until it is complete.
    listed: Option<BTreeSet<Uid>>,
    choices: Choices,
}

/// Who a pod is, to tell it something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PodName {
    pub namespace: String,
    pub name: String,
    pub uid: Uid,
}

#[derive(Debug, Default)]
struct Known {
    name: PodName,
    containers: BTreeMap<ContainerId, ContainerFacts>,
    is_leaving: bool,
}

impl Pods {
    pub fn new(choices: Choices) -> Self {
        Self { choices, ..Self::default() }
    }

    /// What follows for the loop. The order of the API server is kept.
    pub fn told(&mut self, event: watcher::Event<Pod>, now: Mono) -> Vec<Event> {
        match event {
            watcher::Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => self.apply(&pod, now),
            watcher::Event::InitDone => self.forget_unlisted(),
            watcher::Event::Delete(pod) => pod.metadata.uid.map(|uid| self.remove(&uid)).unwrap_or_default(),
        }
    }

    fn apply(&mut self, pod: &Pod, now: Mono) -> Vec<Event> {
        let Some(uid) = pod.metadata.uid.clone() else { return Vec::new() };
        if let Some(listed) = &mut self.listed {
            listed.insert(uid.clone());
        }
        self.choices.told(&uid, pod);
        let name = PodName {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: uid.clone(),
        };
        let containers: BTreeMap<_, _> =
            containers_of(pod).into_iter().map(|facts| (facts.id.clone(), facts)).collect();
        let is_leaving = pod.metadata.deletion_timestamp.is_some();
        let known =
            self.pods.insert(uid, Known { name, containers: containers.clone(), is_leaving }).unwrap_or_default();
        let gone = known.containers.keys().filter(|id| !containers.contains_key(*id));
        let mut events: Vec<_> = gone.map(|id| Event::ContainerGone { id: id.clone() }).collect();
        let news = containers.values().filter(|facts| known.containers.get(&facts.id) != Some(facts));
        events.extend(news.map(|facts| Event::Container(Box::new(facts.clone()))));
        if is_leaving && !known.is_leaving {
            events.extend(containers.into_values().map(|facts| stopped(facts, now)));
        }
        events
    }

    fn remove(&mut self, uid: &str) -> Vec<Event> {
        self.choices.gone(uid);
        let known = self.pods.remove(uid).unwrap_or_default();
        known.containers.into_keys().map(|id| Event::ContainerGone { id }).collect()
    }

    fn forget_unlisted(&mut self) -> Vec<Event> {
        let Some(listed) = self.listed.take() else { return Vec::new() };
        let gone: Vec<Uid> = self.pods.keys().filter(|uid| !listed.contains(*uid)).cloned().collect();
        gone.iter().flat_map(|uid| self.remove(uid)).collect()
    }

    /// The container with this id or name, or the one whose id begins so.
    pub fn named(&self, text: &str) -> Option<&ContainerFacts> {
        let all = || self.pods.values().flat_map(|known| known.containers.values());
        let exact = all().find(|facts| facts.id.0 == text || facts.name == text);
        exact.or_else(|| all().find(|facts| !text.is_empty() && facts.id.0.starts_with(text)))
    }

    /// The pod a container belongs to.
    pub fn pod_of(&self, id: &ContainerId) -> Option<&PodName> {
        self.pods.values().find(|known| known.containers.contains_key(id)).map(|known| &known.name)
    }
}

/// The node is about to end it: it must be able to take the signal.
fn stopped(facts: ContainerFacts, at: Mono) -> Event {
    Event::Signalled { id: facts.id, signal: Some(Signal::TERM), at }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Mono = Mono(7);

    fn pod(uid: &str, containers: &[&str]) -> Pod {
        let status = |id: &&str| {
            let id = format!("containerd://{id}");
            json!({"name": "main", "containerID": id, "image": "i", "imageID": "", "ready": true, "restartCount": 0})
        };
        let statuses: Vec<_> = containers.iter().map(status).collect();
        let spec = json!({"containers": [{"name": "main", "image": "i"}]});
        serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "n", "uid": uid}, "spec": spec,
            "status": {"containerStatuses": statuses}}))
        .unwrap()
    }

    fn told(pods: &mut Pods, event: watcher::Event<Pod>) -> Vec<String> {
        let short = |event| match event {
            Event::Container(facts) => format!("+{}", facts.id),
            Event::ContainerGone { id } => format!("-{id}"),
            Event::Signalled { id, signal, at } => format!("{signal:?} {id} {}", at.0),
            other => format!("{other:?}"),
        };
        pods.told(event, NOW).into_iter().map(short).collect()
    }

    #[test]
    fn a_container_is_told_once_and_its_end_too() {
        let mut pods = Pods::default();
        assert_eq!(told(&mut pods, watcher::Event::Apply(pod("1", &[]))), [""; 0]);
        assert_eq!(told(&mut pods, watcher::Event::Apply(pod("1", &["a"]))), ["+a"]);
        assert_eq!(told(&mut pods, watcher::Event::Apply(pod("1", &["a"]))), [""; 0], "nothing new");
        assert_eq!(told(&mut pods, watcher::Event::Apply(pod("1", &["b"]))), ["-a", "+b"], "started anew");
        assert_eq!(told(&mut pods, watcher::Event::Delete(pod("1", &["b"]))), ["-b"]);
        assert_eq!(pods.named("b"), None);
    }

    #[test]
    fn what_is_not_in_the_next_list_is_gone() {
        let mut pods = Pods::default();
        for event in [watcher::Event::Init, watcher::Event::InitApply(pod("1", &["a"])), watcher::Event::InitDone] {
            told(&mut pods, event);
        }
        told(&mut pods, watcher::Event::Apply(pod("2", &["b"])));
        assert_eq!(told(&mut pods, watcher::Event::Init), [""; 0]);
        assert_eq!(told(&mut pods, watcher::Event::InitApply(pod("2", &["b"]))), [""; 0]);
        assert_eq!(told(&mut pods, watcher::Event::InitDone), ["-a"]);
    }

    #[test]
    fn a_pod_that_is_deleted_is_signalled_once() {
        let mut pods = Pods::default();
        told(&mut pods, watcher::Event::Apply(pod("1", &["a"])));
        let mut leaving = pod("1", &["a"]);
        leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-11-16T04:00:00Z")).unwrap();
        assert_eq!(told(&mut pods, watcher::Event::Apply(leaving.clone())), ["Some(Signal(15)) a 7"]);
        assert_eq!(told(&mut pods, watcher::Event::Apply(leaving)), [""; 0]);
    }

    #[test]
    fn a_pod_of_the_same_name_is_another() {
        let mut pods = Pods::default();
        told(&mut pods, watcher::Event::Apply(pod("1", &["a"])));
        assert_eq!(told(&mut pods, watcher::Event::Apply(pod("2", &["b"]))), ["+b"]);
        assert_eq!(pods.pod_of(&ContainerId("b".into())).unwrap().uid, "2");
        assert_eq!(told(&mut pods, watcher::Event::Delete(pod("1", &["a"]))), ["-a"]);
    }
}
