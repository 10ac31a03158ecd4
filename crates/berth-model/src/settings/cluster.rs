//! What a host needs to be a node of a cluster, and what the placer of one goes by. The doc comment of a field is its manual.

use core::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::read::{choice, count};
use crate::cluster::{NodeId, Order, Strategy};
use crate::time::Span;

/// This host as a node of a cluster: its daemon tells the placer what goes on here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterSettings {
    /// Address and port on which the placer may ask, such as `0.0.0.0:7277`; empty listens nowhere. Who asks must have this node's key.
    pub listen: String,
    /// The id its engine has for this host: Swarm's node id, or Kubernetes' node name. Empty takes the name in the key file; where that
    /// holds the cluster's key, what Docker's swarm calls this node, and the host's own name where Docker is in none.
    pub node: String,
    /// File with this node's own key (`berth cluster key node NAME` makes it), readable by the daemon's user alone. The cluster's key does,
    /// too, but then whoever breaks into this host can speak for every node.
    pub key_file: PathBuf,
    /// Between two reports this node sends unasked, where it does (the status of a Kubernetes node).
    pub report_every: Span,
}

/// The placer (`berth cluster serve`), beside a manager of the engine: where a container can meet its deadline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlacerSettings {
    /// Unix socket it answers on; its path has at most 107 bytes.
    pub socket: PathBuf,
    /// Whose nodes they are: `swarm` or `kubernetes`.
    #[serde(deserialize_with = "choice")]
    pub engine: EngineName,
    /// Unix socket of a Docker engine that is a manager of the swarm.
    pub engine_socket: PathBuf,
    /// File with the cluster's key (`berth cluster key new` makes it), readable by the placer's user alone.
    pub key_file: PathBuf,
    /// Port on which the daemons of the nodes listen (`cluster.listen`).
    #[serde(deserialize_with = "count")]
    pub node_port: u16,
    /// Between two questions to a node.
    pub ask_every: Span,
    /// A node whose last report is older than this gets nothing. Of a Kubernetes at least 15s: its nodes tell every 10 s that they live.
    pub stale_after: Span,
    /// How nodes are ranked: `fit` goes where every deadline is met, `paper` as published.
    #[serde(deserialize_with = "choice")]
    pub strategy: Strategy,
    /// Of nodes that would do, `spread` takes the emptiest and `pack` the fullest.
    #[serde(deserialize_with = "choice")]
    pub order: Order,
    /// How long a deadline that was missed counts against a GPU.
    pub miss_window: Span,
    /// How long a place is kept for a container that does not come.
    pub reservation_lasts: Span,
    /// Address and port for kube-scheduler and the API server (TLS), such as `0.0.0.0:7278`; empty listens nowhere.
    pub listen: String,
    /// File with the certificates it shows there, in PEM.
    pub tls_certificate: PathBuf,
    /// File with their key, in PEM, readable by the placer's user alone.
    pub tls_key: PathBuf,
    /// File with the certificates of who may sign for kube-scheduler, in PEM: only who shows a certificate signed by them is answered where
    /// pods are placed. Empty asks nobody who they are.
    pub client_ca: PathBuf,
    /// By which name the API server knows the placer, such as `system:serviceaccount:berth-system:berth-placer`: nobody else may write which
    /// GPUs were chosen for a pod. Empty lets others do so until the pod is bound.
    pub user: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineName {
    Swarm,
    Kubernetes,
}

// === defaults ===

impl Default for ClusterSettings {
    fn default() -> Self {
        Self {
            listen: String::new(),
            node: String::new(),
            key_file: "/etc/berth/node.key".into(),
            report_every: Span::from_millis(1_000),
        }
    }
}

impl Default for PlacerSettings {
    fn default() -> Self {
        Self {
            socket: "/run/berth/placer.sock".into(),
            engine: EngineName::Swarm,
            engine_socket: "/var/run/docker.sock".into(),
            key_file: "/etc/berth/cluster.key".into(),
            node_port: 7277,
            ask_every: Span::from_millis(1_000),
            stale_after: Span::from_millis(5_000),
            strategy: Strategy::Fit,
            order: Order::Spread,
            miss_window: Span::from_millis(600_000),
            reservation_lasts: Span::from_millis(120_000),
            listen: String::new(),
            tls_certificate: "/etc/berth/tls/tls.crt".into(),
            tls_key: "/etc/berth/tls/tls.key".into(),
            client_ca: PathBuf::new(),
            user: String::new(),
        }
    }
}

// === impl ClusterSettings ===

impl ClusterSettings {
    /// Where to listen; `None` if nowhere, and where what is written is no address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }

    /// The node's id, where it is set and is one.
    pub fn node_id(&self) -> Option<NodeId> {
        self.node.parse().ok()
    }
}

// === impl PlacerSettings ===

impl PlacerSettings {
    /// Where to listen with TLS; `None` if nowhere, and where what is written is no address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok()
    }
}

// === impl EngineName ===

impl EngineName {
    /// As in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            EngineName::Swarm => "swarm",
            EngineName::Kubernetes => "kubernetes",
        }
    }
}
