//! A node, as far as placing on it needs: whether its kubelet takes anything, and by what it can be told from others.

use std::collections::BTreeMap;

use berth_model::cluster::Engine;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use crate::placer::{Facts, Member};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Wire")]
pub struct Node {
    /// Its name and version; nothing else.
    pub meta: ObjectMeta,
    labels: BTreeMap<String, String>,
    is_unschedulable: bool,
    /// `None`: nothing says so.
    is_ready: Option<bool>,
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
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    unschedulable: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    conditions: Option<Vec<Condition>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

// === impl Node ===

impl Node {
    pub fn name(&self) -> &str {
        self.meta.name.as_deref().unwrap_or_default()
    }

    /// Taints are the scheduler's to judge: they are for some pods and not for others.
    pub fn engine(&self) -> Engine {
        match (self.is_ready, self.is_unschedulable) {
            (Some(false), _) => Engine::Down,
            (_, true) => Engine::Paused,
            (Some(true) | None, false) => Engine::Ready,
        }
    }

    pub fn member(&self) -> Member {
        let mut facts: Facts =
            self.labels.iter().map(|(name, value)| (format!("node.labels.{name}"), value.clone())).collect();
        facts.insert("node.id".to_owned(), self.name().to_owned());
        facts.insert("node.hostname".to_owned(), self.name().to_owned());
        Member { name: None, engine: self.engine(), address: None, facts }
    }
}

impl From<Wire> for Node {
    fn from(wire: Wire) -> Self {
        let WireMeta { name, resource_version, labels } = wire.metadata;
        let conditions = wire.status.conditions.unwrap_or_default();
        let ready = conditions.iter().find(|condition| condition.r#type == "Ready");
        Self {
            meta: ObjectMeta { name, resource_version, ..ObjectMeta::default() },
            labels: labels.unwrap_or_default(),
            is_unschedulable: wire.spec.unschedulable,
            is_ready: ready.map(|condition| condition.status == "True"),
        }
    }
}

resource!(Node, ClusterResourceScope, "Node", "", "v1", "nodes");

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn engine(spec: Value, ready: &str) -> Engine {
        let conditions = json!([{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}]);
        let node = json!({"metadata": {"name": "n"}, "spec": spec, "status": {"conditions": conditions}});
        serde_json::from_value::<Node>(node).unwrap().engine()
    }

    #[test]
    fn a_node_that_is_cordoned_or_silent_takes_nothing() {
        assert_eq!(engine(json!({}), "True"), Engine::Ready);
        assert_eq!(engine(json!({"unschedulable": true}), "True"), Engine::Paused);
        for silent in ["False", "Unknown"] {
            assert_eq!(engine(json!({"unschedulable": true}), silent), Engine::Down);
        }
    }

    #[test]
    fn constraints_find_a_node_by_name_and_label() {
        let node = json!({"metadata": {"name": "n", "labels": {"rack": "a"}}});
        let facts = serde_json::from_value::<Node>(node).unwrap().member().facts;
        assert_eq!((facts["node.id"].as_str(), facts["node.labels.rack"].as_str()), ("n", "a"));
    }
}
