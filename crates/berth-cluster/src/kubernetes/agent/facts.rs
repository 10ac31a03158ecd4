//! From a pod to what the model knows about its containers. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::cluster::PLACEMENT_LABEL;
use berth_model::hold::MEMORY_LABEL;
use berth_model::{ContainerFacts, ContainerId, Endurance, Stop};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodSpec, Probe};

use crate::kubernetes::annotations::{LABELLED, PREFIX, goals, memory};
use crate::kubernetes::placement_of;

/// Bytes of an annotation that is kept.
const LONGEST_LABEL: usize = 256;
/// What a node takes where a pod does not say.
const PERIOD: i32 = 10;
const TIMEOUT: i32 = 1;
const FAILURES: i32 = 3;
const GRACE: Duration = Duration::from_secs(30);

/// The pod's containers that have been made. The others have no id yet.
pub(super) fn containers_of(pod: &Pod) -> Vec<ContainerFacts> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let status = pod.status.clone().unwrap_or_default();
    let lists = [status.init_container_statuses, status.container_statuses, status.ephemeral_container_statuses];
    let labels = labels_of(pod);
    let statuses = lists.iter().flatten().flatten();
    statuses.filter_map(|status| facts(pod, spec, status, &labels)).collect()
}

fn facts(
    pod: &Pod,
    spec: &PodSpec,
    status: &ContainerStatus,
    labels: &BTreeMap<String, String>,
) -> Option<ContainerFacts> {
    // `containerd://<id>`, `cri-o://<id>`, `docker://<id>`.
    let (_, id) = status.container_id.as_ref()?.split_once("://")?;
    let namespace = pod.metadata.namespace.as_deref()?;
    let name = pod.metadata.name.as_deref()?;
    let all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let container = all.into_iter().find(|container| container.name == status.name);
    let image = container.and_then(|container| container.image.clone()).filter(|image| !image.is_empty());
    let running = status.state.as_ref().and_then(|state| state.running.as_ref());
    Some(ContainerFacts {
        id: ContainerId(id.to_owned()),
        name: format!("{namespace}/{name}/{}", status.name),
        image: image.unwrap_or_else(|| status.image.clone()),
        labels: labels.clone(),
        owner: Some(namespace.to_owned()),
        started_at: running.and_then(|running| running.started_at.as_ref()).map(|at| at.0),
        // A node's checks are not suspended by anything berth could do.
        health: None,
        endurance: container.and_then(endurance),
        stop: Stop { kills_after: grace(spec), ..Stop::default() },
    })
}

/// `berth.dev/deadline: 9s` is `berth.deadline=9s`, as on a Docker container; and the placement the pod is.
fn labels_of(pod: &Pod) -> BTreeMap<String, String> {
    let label = |name: &&'static str| {
        let value = pod.metadata.annotations.as_ref()?.get(*name).filter(|value| value.len() <= LONGEST_LABEL)?;
        Some((format!("berth.{}", name.strip_prefix(PREFIX)?), value.clone()))
    };
    let mut labels: BTreeMap<_, _> = LABELLED.iter().filter_map(label).collect();
    labels.extend(pod.metadata.annotations.iter().flat_map(goals));
    // Kubernetes' way to write memory (`20Gi`) is not that of labels.
    let memory = labels.get(MEMORY_LABEL).and_then(|text| memory(text).ok());
    labels.extend(memory.map(|bytes| (MEMORY_LABEL.to_owned(), format!("{}B", bytes.0))));
    if let Some(uid) = &pod.metadata.uid {
        labels.insert(PLACEMENT_LABEL.to_owned(), placement_of(uid).to_string());
    }
    labels
}

/// How long it can stand still. Probes of readiness only take it out of service; those of a start and of life get it killed.
fn endurance(container: &Container) -> Option<Endurance> {
    let probes = [&container.liveness_probe, &container.startup_probe];
    let each = probes.into_iter().flatten().map(of_probe);
    each.reduce(|one, other| Endurance { still: one.still.min(other.still), breath: one.breath.max(other.breath) })
}

/// The last probe it may fail begins after all others have failed, and has half of its time left to be answered. Within a breath one
/// probe begins and ends.
fn of_probe(probe: &Probe) -> Endurance {
    let seconds = |given: Option<i32>, default: i32| {
        let given = given.filter(|given| *given > 0).unwrap_or(default);
        Duration::from_secs(u64::from(given.unsigned_abs()))
    };
    let (period, timeout) = (seconds(probe.period_seconds, PERIOD), seconds(probe.timeout_seconds, TIMEOUT));
    let failures = probe.failure_threshold.filter(|failures| *failures > 0).unwrap_or(FAILURES);
    Endurance { still: period * (failures.unsigned_abs() - 1) + timeout / 2, breath: period + timeout }
}

fn grace(spec: &PodSpec) -> Duration {
    let seconds = spec.termination_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    seconds.map_or(GRACE, Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ID: &str = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";

    fn pod(annotations: Value, container: Value) -> Pod {
        let mut spec = json!({"name": "main", "image": "solver:3"});
        spec.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let started = json!({"running": {"startedAt": "2026-11-16T04:00:00Z"}});
        let status = json!({"name": "main", "containerID": format!("containerd://{ID}"), "image": "sha256:1", "imageID": "",
            "ready": true, "restartCount": 0, "state": started});
        let meta = json!({"name": "trainer", "namespace": "team-a", "uid": "6f2cb1a6", "annotations": annotations});
        let pod = json!({"metadata": meta, "spec": {"containers": [spec], "terminationGracePeriodSeconds": 60},
            "status": {"containerStatuses": [status]}});
        serde_json::from_value(pod).unwrap()
    }

    fn only(pod: &Pod) -> ContainerFacts {
        let [facts] = containers_of(pod).try_into().unwrap();
        facts
    }

    #[test]
    fn a_container_is_called_by_its_pod_and_owned_by_its_namespace() {
        let facts = only(&pod(json!({"berth.dev/deadline": "9s", "other.dev/x": "1"}), json!({})));
        assert_eq!((facts.id.0.as_str(), facts.name.as_str()), (ID, "team-a/trainer/main"));
        assert_eq!((facts.image.as_str(), facts.owner.as_deref()), ("solver:3", Some("team-a")));
        assert_eq!(facts.labels.get("berth.deadline").map(String::as_str), Some("9s"));
        assert_eq!(facts.labels.len(), 2, "its deadline and its placement");
        assert_eq!(facts.started_at, Some("2026-11-16T04:00:00Z".parse().unwrap()));
        assert_eq!((facts.health, facts.endurance, facts.stop.kills_after), (None, None, Duration::from_secs(60)));
    }

    #[test]
    fn no_annotation_names_the_owner_or_the_placement_and_a_gang_is_one() {
        let annotations = json!({"berth.dev/owner": "ada", "berth.dev/placement": "0000000000000001",
            "berth.dev/gang": "job-7", "berth.dev/anything": "else"});
        let facts = only(&pod(annotations, json!({})));
        assert_eq!((facts.owner.as_deref(), facts.labels["berth.gang"].as_str()), (Some("team-a"), "job-7"));
        assert_eq!(facts.labels.len(), 2, "{:?}", facts.labels);
        assert_eq!(facts.labels[PLACEMENT_LABEL], placement_of("6f2cb1a6").to_string());
    }

    #[test]
    fn memory_is_told_as_labels_are_read_however_it_is_written() {
        for (written, read) in [("20Gi", Some(20 << 30)), ("20GiB", Some(20 << 30)), ("lots", None)] {
            let facts = only(&pod(json!({"berth.dev/memory": written}), json!({})));
            let bytes = facts.labels[MEMORY_LABEL].parse::<berth_model::Bytes>().ok();
            assert_eq!(bytes.map(|bytes| bytes.0), read, "{written}");
        }
    }

    #[test]
    fn a_container_that_was_not_made_yet_is_nobody() {
        let mut pod = pod(json!({}), json!({}));
        pod.status.as_mut().unwrap().container_statuses.as_mut().unwrap()[0].container_id = None;
        assert_eq!(containers_of(&pod), []);
        assert_eq!(containers_of(&Pod::default()), []);
    }

    #[test]
    fn a_million_annotations_become_a_few_labels() {
        let many = (0..100_000).map(|number| (format!("berth.dev/x{number}"), json!("y"))).collect();
        assert_eq!(only(&pod(Value::Object(many), json!({}))).labels.len(), 1, "its placement");
        let long = json!({"berth.dev/deadline": "9".repeat(100_000)});
        assert_eq!(only(&pod(long, json!({}))).labels.get("berth.deadline"), None);
    }

    #[test]
    fn who_is_probed_can_stand_still_until_the_last_probe_it_may_fail() {
        let endurance = |container: Value| {
            let endurance = only(&pod(json!({}), container)).endurance;
            endurance.map(|endurance| (endurance.still.as_millis(), endurance.breath.as_millis()))
        };
        let get = json!({"path": "/", "port": 80});
        assert_eq!(endurance(json!({"livenessProbe": {"httpGet": get}})), Some((20_500, 11_000)), "by default");
        let strict = json!({"httpGet": get, "periodSeconds": 1, "timeoutSeconds": 2, "failureThreshold": 1});
        assert_eq!(endurance(json!({"livenessProbe": strict})), Some((1_000, 3_000)));
        let both = json!({"livenessProbe": strict, "startupProbe": {"httpGet": get, "periodSeconds": 5}});
        assert_eq!(endurance(both), Some((1_000, 6_000)), "the stricter of both");
        assert_eq!(endurance(json!({"readinessProbe": strict})), None, "nobody is killed by it");
    }
}
