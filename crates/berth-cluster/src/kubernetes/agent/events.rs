//! What happens to a pod, as events of it that `kubectl describe pod` shows: that it is held, that it will miss its deadline.
//!
//! A tenant may be held many times a second. A pod is told of each kind of thing at most once in [`QUIET`], and how often it happened
//! since it was last told.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::cluster::NodeId;
use berth_model::{Change, Mono, TenantKey};
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::mpsc;

use super::calls::{Complaint, answered, in_full};
use super::pods::{PodName, Pods};
use crate::kubernetes::events::beginning;

/// Between two events of one kind about one pod.
const QUIET: Duration = Duration::from_secs(60);
/// Pods whose last events are remembered. With more, all are forgotten, and told again.
const MOST_PODS: usize = 4096;
/// Letters of a message that the API server takes.
const LONGEST_MESSAGE: usize = 1024;

/// Whether pods are told of such a thing at all.
pub(super) fn is_told(change: &Change) -> bool {
    told(change).is_some()
}

/// One event to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Post {
    pod: PodName,
    word: &'static str,
    /// Something a person may have to act upon.
    is_warning: bool,
    message: String,
}

/// When pods were last told of what.
#[derive(Debug, Default)]
pub(super) struct Limits {
    last: BTreeMap<(String, &'static str), Last>,
}

#[derive(Debug, Clone, Copy)]
struct Last {
    at: Mono,
    untold: u32,
}

struct Told<'a> {
    tenant: &'a TenantKey,
    word: &'static str,
    is_warning: bool,
    message: String,
}

fn told(change: &Change) -> Option<Told<'_>> {
    match change {
        Change::TenantHeld { tenant, means, reason, .. } => {
            let message = format!("waits for the GPU, held by {}: {reason}", means.as_str());
            Some(Told { tenant, word: "Held", is_warning: false, message })
        }
        Change::DeadlineEndangered { tenant, deadline, reason, .. } => {
            let message = format!("will probably miss its deadline of {deadline}: {reason}");
            Some(Told { tenant, word: "WillMiss", is_warning: true, message })
        }
        _ => None,
    }
}

impl Limits {
    /// The event a change becomes; `None` for what is of no interest, of no pod, or was told just now.
    pub fn post(&mut self, change: &Change, pods: &Pods, now: Mono) -> Option<Post> {
        let Told { tenant, word, is_warning, message } = told(change)?;
        let pod = pods.pod_of(tenant.container_id()?)?.clone();
        if self.last.len() >= MOST_PODS {
            self.last.clear();
        }
        let key = (pod.uid.clone(), word);
        let untold = match self.last.get_mut(&key) {
            Some(last) if now.since(last.at) < QUIET => {
                last.untold = last.untold.saturating_add(1);
                return None;
            }
            last => last.map_or(0, |last| last.untold),
        };
        self.last.insert(key, Last { at: now, untold: 0 });
        let message =
            if untold == 0 { message } else { format!("{message} ({untold} times more since it was last told)") };
        let message = message.chars().take(LONGEST_MESSAGE / 4).collect();
        Some(Post { pod, word, is_warning, message })
    }
}

/// Writes what comes, one after the other. What the API server refuses is not tried again: by then it is not news.
pub(super) async fn keep_posting(client: Client, node: NodeId, mut posts: mpsc::Receiver<Post>) {
    let mut complaint = Complaint::default();
    while let Some(post) = posts.recv().await {
        let events: Api<Event> = Api::namespaced(client.clone(), &post.pod.namespace);
        match answered(events.create(&PostParams::default(), &event(&post, &node))).await {
            Ok(_) => {
                complaint.is_over();
            }
            Err(error) if complaint.is_new(&error) => {
                tracing::warn!(pod = %post.pod.name, error = in_full(&error), "pods are not told what happens to them");
            }
            Err(error) => tracing::debug!(pod = %post.pod.name, %error, "a pod is not told what happens to it"),
        }
    }
}

fn event(post: &Post, node: &NodeId) -> Event {
    let PodName { namespace, name, uid } = post.pod.clone();
    let now = Time(jiff::Timestamp::now());
    // The API server makes it unique.
    let generate_name = Some(format!("{}.", beginning(&name)));
    Event {
        metadata: ObjectMeta { generate_name, namespace: Some(namespace.clone()), ..ObjectMeta::default() },
        involved_object: ObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(name),
            namespace: Some(namespace),
            uid: Some(uid),
            ..ObjectReference::default()
        },
        reason: Some(post.word.into()),
        message: Some(post.message.clone()),
        type_: Some(if post.is_warning { "Warning" } else { "Normal" }.into()),
        source: Some(EventSource { component: Some("berth".into()), host: Some(node.to_string()) }),
        first_timestamp: Some(now.clone()),
        last_timestamp: Some(now),
        count: Some(1),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use berth_model::hold::Means;
    use berth_model::{ContainerId, Runtime};
    use kube::runtime::watcher;
    use serde_json::json;

    use super::*;

    fn pods() -> Pods {
        let status = json!({"name": "main", "containerID": "containerd://a", "image": "i", "imageID": "", "ready": true, "restartCount": 0});
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "1"}, "spec": {"containers": []},
            "status": {"containerStatuses": [status]}});
        let mut pods = Pods::default();
        pods.told(watcher::Event::Apply(serde_json::from_value(pod).unwrap()), Mono(0));
        pods
    }

    fn held(id: &str) -> Change {
        Change::TenantHeld {
            tenant: TenantKey::Container { runtime: Runtime::Containerd, id: ContainerId(id.into()) },
            name: "p".into(),
            means: Means::Gate,
            by_uid: None,
            reason: "`b` computes".into(),
            at: Mono(0),
        }
    }

    #[test]
    fn a_pod_is_told_once_a_minute_and_how_often_it_was_not() {
        let (mut limits, pods) = (Limits::default(), pods());
        let at = |seconds: u64| Mono(0) + Duration::from_secs(seconds);
        let first = limits.post(&held("a"), &pods, at(0)).unwrap();
        assert_eq!((first.word, first.pod.name.as_str(), first.is_warning), ("Held", "p", false));
        assert_eq!(first.message, "waits for the GPU, held by gate: `b` computes");
        for seconds in 1..60 {
            assert_eq!(limits.post(&held("a"), &pods, at(seconds)), None);
        }
        let next = limits.post(&held("a"), &pods, at(60)).unwrap();
        assert!(next.message.ends_with("(59 times more since it was last told)"), "{}", next.message);
    }

    #[test]
    fn what_is_of_no_pod_is_told_to_none() {
        let (mut limits, pods) = (Limits::default(), pods());
        assert_eq!(limits.post(&held("b"), &pods, Mono(0)), None);
        assert!(!is_told(&Change::GpuBack { gpu: berth_model::GpuIndex(0) }));
    }

    #[test]
    fn an_event_of_a_pod_with_the_longest_name_has_a_name_that_is_taken() {
        let pod =
            PodName { namespace: "n".into(), name: format!("{}-{}", "a".repeat(199), "b".repeat(53)), uid: "1".into() };
        let post = Post { pod, word: "Held", is_warning: false, message: String::new() };
        let name = event(&post, &"node-a".parse().unwrap()).metadata.generate_name.unwrap();
        assert_eq!(name, format!("{}.", "a".repeat(199)), "no part of it ends in a dash");
    }

    #[test]
    fn a_message_without_end_is_cut() {
        let (mut limits, pods) = (Limits::default(), pods());
        let Change::TenantHeld { tenant, name, means, by_uid, at, .. } = held("a") else { unreachable!() };
        let long = Change::TenantHeld { tenant, name, means, by_uid, at, reason: "é".repeat(100_000) };
        assert!(limits.post(&long, &pods, Mono(0)).unwrap().message.len() <= LONGEST_MESSAGE);
    }
}
