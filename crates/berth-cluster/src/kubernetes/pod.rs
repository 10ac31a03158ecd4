//! A pod, as far as placing it needs: who it is, what it wants, where it is.
//!
//! Everything else of it is read over. The scheduler, the API server and the watch send the same object, so that this one type reads all.

use berth_model::cluster::PlacementId;
use berth_model::cluster::api::PlaceRequest;
use berth_model::cluster::report::MOST_GPUS;
use berth_model::deadline::Unit;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::annotations::{Annotations, Asks, GPUS, Unread, short};
use super::{RESOURCE, placement_of};

/// The restart policy of an init container that is a sidecar.
pub(super) const STAYS: &str = "Always";

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Wire")]
pub struct Pod {
    /// Its name, namespace, uid and version; nothing else.
    pub meta: ObjectMeta,
    pub annotations: Annotations,
    /// The node it is bound to.
    pub node: Option<String>,
    pub containers: Vec<Container>,
    /// Those that begin before them, one after the other: each ends before the next begins, or stays, as a sidecar.
    pub init_containers: Vec<Container>,
    /// Its containers were started.
    pub is_running: bool,
    /// It has ended, or is being deleted.
    pub is_leaving: bool,
    /// A scheduler has tried to place it, and could not.
    pub is_unplaced: bool,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    pub image: Option<String>,
    resources: Resources,
    restart_policy: Option<String>,
}

/// What a pod wants of berth.
#[derive(Debug, Clone, PartialEq)]
pub struct Wants {
    pub asks: Asks,
    pub gpus: u32,
    /// Of the container that uses the GPU: whose history tells how long it takes.
    pub image: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: Option<Amounts>,
    limits: Option<Amounts>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Amounts {
    #[serde(rename = "berth.dev/gpu")]
    gpu: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Wire {
    metadata: WireMeta,
    spec: WireSpec,
    status: WireStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<IgnoredAny>,
    annotations: Annotations,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireSpec {
    node_name: Option<String>,
    containers: Option<Vec<Container>>,
    init_containers: Option<Vec<Container>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    phase: Option<String>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
    reason: Option<String>,
}

// === impl Pod ===

impl Pod {
    /// `None`: none of its containers requests a share of a GPU. Whatever its annotations say, it is given none, and may go anywhere.
    pub fn wants(&self) -> Result<Option<Wants>, Unread> {
        let asks = self.annotations.asks()?;
        let Some(gpus) = self.requested()? else { return Ok(None) };
        if let Some(asked) = asks.gpus.filter(|asked| *asked != gpus) {
            let problem = format!("{GPUS}: it says {asked}, and its containers request {gpus} of {RESOURCE}");
            return Err(Unread(vec![problem]));
        }
        Ok(Some(Wants { asks, gpus, image: self.image() }))
    }

    /// What it takes where it stands. It was bound with whatever it asks for, as while nobody looked: what can be read of it counts.
    pub fn takes(&self) -> Option<Wants> {
        let gpus = self.requested().ok().flatten()?;
        Some(Wants { asks: self.annotations.readable(), gpus, image: self.image() })
    }

    fn image(&self) -> Option<String> {
        let mut all = self.containers.iter().chain(&self.init_containers);
        all.find(|container| container.amount().is_some()).and_then(|container| container.image.clone())
    }

    /// Shares of GPUs that it needs at a time, as the kubelet counts them; `None` if its containers request none.
    pub fn requested(&self) -> Result<Option<u32>, Unread> {
        let (mut sidecars, mut most) = (0, 0_u32);
        for container in &self.init_containers {
            let beside = container.shares()?.saturating_add(sidecars);
            most = most.max(beside);
            if container.is_sidecar() {
                sidecars = beside;
            }
        }
        let mut at_once = sidecars;
        for container in &self.containers {
            at_once = at_once.saturating_add(container.shares()?);
        }
        Ok(Some(at_once.max(most)).filter(|shares| *shares > 0))
    }

    /// Whether a scheduler takes it for ours: a container names the resource, with whatever amount.
    pub fn names_resource(&self) -> bool {
        self.containers.iter().chain(&self.init_containers).any(|container| container.amount().is_some())
    }

    /// `None` before the API server has given it a uid.
    pub fn placement(&self) -> Option<PlacementId> {
        self.meta.uid.as_deref().map(placement_of)
    }

    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.meta.namespace.as_deref().unwrap_or("default")
    }
}

impl From<Wire> for Pod {
    fn from(wire: Wire) -> Self {
        let WireMeta { name, namespace, uid, resource_version, deletion_timestamp, annotations } = wire.metadata;
        let phase = wire.status.phase.as_deref();
        let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
        let is_unplaced = wire.status.conditions.iter().flatten().any(Condition::is_unplaced);
        Self {
            meta: ObjectMeta { name, namespace, uid, resource_version, ..ObjectMeta::default() },
            annotations,
            node: wire.spec.node_name.filter(|node| !node.is_empty()),
            containers: wire.spec.containers.unwrap_or_default(),
            init_containers: wire.spec.init_containers.unwrap_or_default(),
            is_running: phase == Some("Running"),
            is_leaving: has_ended || deletion_timestamp.is_some(),
            is_unplaced,
        }
    }
}

resource!(Pod, NamespaceResourceScope, "Pod", "", "v1", "pods");

// === impl Condition ===

impl Condition {
    /// One with scheduling gates has been tried by nobody yet.
    fn is_unplaced(&self) -> bool {
        let is_gated = self.reason.as_deref() == Some("SchedulingGated");
        self.r#type == "PodScheduled" && self.status == "False" && !is_gated
    }
}

// === impl Container ===

impl Container {
    fn amount(&self) -> Option<&str> {
        // A limit alone is a request, too; the API server writes it so, others need not.
        let Resources { requests, limits } = &self.resources;
        [requests, limits].into_iter().flatten().find_map(|amounts| amounts.gpu.as_deref())
    }

    fn shares(&self) -> Result<u32, Unread> {
        self.amount().map_or(Ok(0), shares)
    }

    /// Of an init container: the others begin when it has, and it stays beside them.
    fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some(STAYS)
    }
}

fn shares(text: &str) -> Result<u32, Unread> {
    let count = text.parse().ok().filter(|count| *count as usize <= MOST_GPUS);
    count.ok_or_else(|| Unread(vec![format!("{RESOURCE}: `{}` is not a number of GPUs", short(text))]))
}

// === impl Wants ===

impl Wants {
    pub fn unit(&self) -> Unit {
        self.asks.unit.unwrap_or(Unit::Task)
    }

    /// As anybody asks the placer.
    pub fn request(&self) -> PlaceRequest {
        let Asks { deadline, unit: _, memory_bytes, takes, gpus: _, kernel_level: _ } = self.asks;
        PlaceRequest {
            deadline,
            unit: self.unit(),
            memory_bytes,
            gpus: self.gpus,
            image: self.image.clone(),
            takes,
            constraints: Vec::new(),
            detail: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: serde_json::Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn container(image: &str, gpus: &str) -> serde_json::Value {
        json!({"image": image, "resources": {"requests": {"cpu": "1", "berth.dev/gpu": gpus}}})
    }

    #[test]
    fn a_pod_that_requests_no_gpu_wants_nothing_whatever_its_annotations_say() {
        for spec in [
            json!({}),
            json!({"metadata": {"annotations": null, "labels": {"a": "b"}}, "spec": {"containers": []}}),
            json!({"metadata": {"annotations": {"berth.dev/deadline": "9s", "berth.dev/gpus": "2"}}}),
            json!({"spec": {"containers": [container("x", "0")]}}),
        ] {
            assert_eq!(pod(spec).wants(), Ok(None));
        }
    }

    #[test]
    fn the_image_is_that_of_the_container_that_uses_the_gpu() {
        let pod = pod(json!({"spec": {"containers": [
            {"image": "proxy:1"},
            {"image": "model:3", "resources": {"limits": {"berth.dev/gpu": "2"}}},
        ]}}));
        let wants = pod.wants().unwrap().unwrap();
        assert_eq!((wants.image.as_deref(), wants.gpus), (Some("model:3"), 2));
    }

    #[test]
    fn what_its_containers_request_is_added_up_as_the_kubelet_does() {
        let gpus = |containers: &[&str], init: &[&str]| {
            let each = |amounts: &[&str]| amounts.iter().map(|amount| container("x", amount)).collect::<Vec<_>>();
            let spec = json!({"containers": each(containers), "initContainers": each(init)});
            pod(json!({"spec": spec})).wants().unwrap().map(|wants| wants.gpus)
        };
        assert_eq!(gpus(&["1", "1"], &[]), Some(2));
        assert_eq!(gpus(&["1", "1"], &["1", "3"]), Some(3), "one after the other, before the others");
        assert_eq!(gpus(&["0"], &["0"]), None);
    }

    #[test]
    fn a_sidecar_is_added_to_all_that_begin_after_it() {
        let gpus = |containers: &[&str], init: &[&str]| {
            // `+1` is a sidecar's.
            let one = |amount: &&str| {
                let mut one = container("x", amount.trim_start_matches('+'));
                if amount.starts_with('+') {
                    one["restartPolicy"] = json!("Always");
                }
                one
            };
            let each = |amounts: &[&str]| amounts.iter().map(one).collect::<Vec<_>>();
            let spec = json!({"containers": each(containers), "initContainers": each(init)});
            pod(json!({"spec": spec})).requested().unwrap()
        };
        assert_eq!(gpus(&["1"], &["+1"]), Some(2));
        assert_eq!(gpus(&["1"], &["+1", "+2"]), Some(4));
        assert_eq!(gpus(&["1"], &["+1", "3"]), Some(4), "the sidecar is there already");
        assert_eq!(gpus(&["1"], &["3", "+1"]), Some(3), "that one has ended");
        assert_eq!(gpus(&["0"], &["+1"]), Some(1));
    }

    #[test]
    fn two_numbers_of_gpus_are_none() {
        let pod = |gpus: &str| {
            pod(json!({
                "metadata": {"annotations": {"berth.dev/gpus": gpus, "berth.dev/unit": "burst"}},
                "spec": {"containers": [container("x", "1")]},
            }))
        };
        let told = pod("4").wants().unwrap_err().to_string();
        assert_eq!(told, "berth.dev/gpus: it says 4, and its containers request 1 of berth.dev/gpu");
        let request = pod("1").wants().unwrap().unwrap().request();
        assert_eq!((request.gpus, request.unit), (1, Unit::Burst));
    }

    #[test]
    fn a_pod_that_has_ended_or_is_deleted_is_leaving() {
        assert!(pod(json!({"status": {"phase": "Succeeded"}})).is_leaving);
        assert!(pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})).is_leaving);
        assert!(!pod(json!({"status": {"phase": "Running"}})).is_leaving);
    }

    #[test]
    fn a_pod_that_a_scheduler_has_tried_in_vain_is_unplaced() {
        let is_unplaced = |r#type: &str, status: &str, reason: &str| {
            let condition = json!({"type": r#type, "status": status, "reason": reason});
            pod(json!({"status": {"conditions": [{"type": "Ready", "status": "False"}, condition]}})).is_unplaced
        };
        assert!(is_unplaced("PodScheduled", "False", "Unschedulable"));
        assert!(is_unplaced("PodScheduled", "False", "SchedulerError"), "the extender did not answer");
        assert!(!is_unplaced("PodScheduled", "False", "SchedulingGated"));
        assert!(!is_unplaced("PodScheduled", "True", ""));
        assert!(!is_unplaced("Initialized", "False", ""));
        assert!(!pod(json!({"status": {"conditions": null}})).is_unplaced);
    }
}
