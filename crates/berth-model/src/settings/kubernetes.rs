//! What a host needs to be a node of a Kubernetes cluster. The doc comment of a field is its manual.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::read::count;

/// This host as a node of a Kubernetes cluster: what its pods are called and ask for, and its GPUs as a resource. The node's name is
/// `cluster.node`, and `NODE_NAME` of the environment where that is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesSettings {
    /// Names, owners and deadlines of containers come from the pods of this node, in place of Docker; the node's report goes to the
    /// status of its `gpunodes.berth.dev`, and what happens to pods to their events.
    pub enabled: bool,
    /// File that says where the API server is and who asks; empty takes the account of the pod the daemon runs in.
    pub kubeconfig: PathBuf,
    /// Shares of `berth.dev/gpu` that each GPU is offered to pods as; 0 offers none.
    #[serde(deserialize_with = "count")]
    pub shares: u16,
    /// Directory of the kubelet's sockets for device plugins.
    pub device_plugins: PathBuf,
    /// Paths of this host that every container with a share sees at the same place, read-only, such as the driver's libraries where no
    /// runtime brings them.
    pub mounts: Vec<PathBuf>,
    /// Directory for a description of the GPUs by the Container Device Interface; empty writes none.
    pub cdi_dir: PathBuf,
}

impl Default for KubernetesSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            kubeconfig: PathBuf::new(),
            shares: 0,
            device_plugins: "/var/lib/kubelet/device-plugins".into(),
            mounts: Vec::new(),
            cdi_dir: PathBuf::new(),
        }
    }
}
