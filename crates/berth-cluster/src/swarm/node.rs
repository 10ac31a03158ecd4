//! A node as the swarm's manager tells of it.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use berth_model::cluster::{Engine, NodeId};
use serde::Deserialize;

use crate::placer::{Facts, Member};

/// On a node whose daemon listens elsewhere than the swarm knows it by: an address with its port.
const ADDRESS_LABEL: &str = "berth.address";

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Node {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    description: Description,
    #[serde(default)]
    status: Status,
    manager_status: Option<ManagerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Spec {
    labels: Option<BTreeMap<String, String>>,
    role: String,
    availability: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Description {
    hostname: String,
    platform: Platform,
    engine: EngineDescription,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Platform {
    architecture: String,
    #[serde(rename = "OS")]
    os: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct EngineDescription {
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Status {
    state: String,
    addr: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ManagerStatus {
    addr: String,
}

impl Node {
    /// `None` if no daemon could have such an id.
    pub fn node_id(&self) -> Option<NodeId> {
        self.id.parse().ok()
    }

    /// The manager has given it up, and what ran there with it. A node of which it does not know yet (`unknown`, after an election) is not
    /// lost.
    pub fn is_lost(&self) -> bool {
        self.status.state == "down"
    }

    pub fn is_unknown(&self) -> bool {
        self.status.state == "unknown"
    }

    pub fn is_drained(&self) -> bool {
        self.spec.availability == "drain"
    }

    /// `port`: on which daemons listen.
    pub fn member(&self, port: u16) -> Member {
        let hostname = &self.description.hostname;
        Member {
            name: Some(hostname.clone()).filter(|name| !name.is_empty()),
            engine: self.engine(),
            address: self.address(port),
            facts: self.facts(),
        }
    }

    fn engine(&self) -> Engine {
        match (self.status.state.as_str(), self.spec.availability.as_str()) {
            ("ready", "active") => Engine::Ready,
            ("ready", "pause") => Engine::Paused,
            ("ready", _) => Engine::Drained,
            _ => Engine::Down,
        }
    }

    /// A manager may know itself by an address that means nothing to others.
    fn address(&self, port: u16) -> Option<SocketAddr> {
        let label = self.spec.labels.as_ref().and_then(|labels| labels.get(ADDRESS_LABEL));
        if let Some(address) = label.and_then(|text| text.parse().ok()) {
            return Some(address);
        }
        let said = self.status.addr.parse::<IpAddr>().ok().filter(|ip| !ip.is_unspecified());
        let as_manager = || self.manager_status.as_ref()?.addr.parse().ok().map(|address: SocketAddr| address.ip());
        said.or_else(as_manager).map(|ip| SocketAddr::new(ip, port))
    }

    fn facts(&self) -> Facts {
        let plain = [
            ("node.id", &self.id),
            ("node.hostname", &self.description.hostname),
            ("node.ip", &self.status.addr),
            ("node.role", &self.spec.role),
            ("node.platform.os", &self.description.platform.os),
            ("node.platform.arch", &self.description.platform.architecture),
        ];
        let labels = |prefix: &'static str, labels: &Option<BTreeMap<String, String>>| {
            let labels = labels.iter().flatten();
            labels.map(move |(name, value)| (format!("{prefix}{name}"), value.clone())).collect::<Vec<_>>()
        };
        let plain = plain.into_iter().map(|(key, value)| (key.to_owned(), value.clone()));
        plain
            .chain(labels("node.labels.", &self.spec.labels))
            .chain(labels("engine.labels.", &self.description.engine.labels))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(change: impl FnOnce(&mut serde_json::Value)) -> Node {
        let mut told = json!({
            "ID": "24ifsmvkjbyhk9xkblj1w4s2u",
            "Version": { "Index": 9 },
            "Spec": { "Labels": { "rack": "a" }, "Role": "manager", "Availability": "active" },
            "Description": {
                "Hostname": "n1",
                "Platform": { "Architecture": "x86_64", "OS": "linux" },
                "Engine": { "EngineVersion": "20.10.24", "Labels": { "storage": "ssd" } },
            },
            "Status": { "State": "ready", "Addr": "10.201.0.1" },
            "ManagerStatus": { "Leader": true, "Reachability": "reachable", "Addr": "10.201.0.1:2377" },
        });
        change(&mut told);
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn a_node_is_asked_where_the_swarm_knows_it_to_be() {
        let at = |node: Node| node.member(7277).address.map(|address| address.to_string());
        assert_eq!(at(node(|_| ())).as_deref(), Some("10.201.0.1:7277"));
        assert_eq!(at(node(|told| told["Status"]["Addr"] = json!("0.0.0.0"))).as_deref(), Some("10.201.0.1:7277"));
        let label = |told: &mut serde_json::Value| told["Spec"]["Labels"]["berth.address"] = json!("[fd00::1]:99");
        assert_eq!(at(node(label)).as_deref(), Some("[fd00::1]:99"));
        assert_eq!(at(node(|told| *told = json!({ "ID": "x" }))), None);
    }

    #[test]
    fn what_the_manager_says_decides_whether_anything_goes_there() {
        let engine = |state: &str, availability: &str| {
            let node = node(|told| {
                told["Status"]["State"] = json!(state);
                told["Spec"]["Availability"] = json!(availability);
            });
            (node.member(1).engine, node.is_lost())
        };
        assert_eq!(engine("ready", "active"), (Engine::Ready, false));
        assert_eq!(engine("ready", "pause"), (Engine::Paused, false));
        assert_eq!(engine("ready", "drain"), (Engine::Drained, false));
        assert_eq!(engine("unknown", "active"), (Engine::Down, false));
        assert_eq!(engine("down", "active"), (Engine::Down, true));
    }

    #[test]
    fn its_labels_are_what_constraints_are_about() {
        let facts = node(|_| ()).member(1).facts;
        for (key, value) in [
            ("node.hostname", "n1"),
            ("node.role", "manager"),
            ("node.platform.arch", "x86_64"),
            ("node.labels.rack", "a"),
            ("engine.labels.storage", "ssd"),
        ] {
            assert_eq!(facts.get(key).map(String::as_str), Some(value), "{key}");
        }
    }
}
