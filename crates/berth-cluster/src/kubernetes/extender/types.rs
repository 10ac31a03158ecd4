//! What kube-scheduler sends and wants back (`k8s.io/kube-scheduler/extender/v1`), as far as it is used.
//!
//! Its Go types have no JSON names: it writes fields as they are called and reads them in any case. Older schedulers wrote them in lower
//! case, so that both are read.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::kubernetes::pod::Pod;

/// Nodes that a question may be about: ten times what Kubernetes is made for. Each takes more memory than its name has letters.
pub const MOST_NODES: usize = 50_000;

/// Asked of `filter` and `prioritize`.
#[derive(Debug, Deserialize)]
pub struct ExtenderArgs {
    #[serde(rename = "Pod", alias = "pod")]
    pub pod: Pod,
    /// Where the extender is not `nodeCacheCapable`.
    #[serde(rename = "Nodes", alias = "nodes", default)]
    pub nodes: Option<Nodes>,
    /// Where it is.
    #[serde(rename = "NodeNames", alias = "nodenames", default, deserialize_with = "few_names")]
    pub node_names: Option<Vec<String>>,
}

/// Whole nodes, of which only the names are looked at; they go back as they came.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Nodes {
    #[serde(default, deserialize_with = "few")]
    pub items: Vec<Box<RawValue>>,
}

#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderFilterResult {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Nodes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_names: Option<Vec<String>>,
    /// Why not, by node. For one that is only here the scheduler tries to evict pods, without asking us whether that would help.
    pub failed_nodes: BTreeMap<String, String>,
    /// The same: where it reads this it leaves pods alone. That of 1.20 does not, and finds the reasons above.
    pub failed_and_unresolvable_nodes: BTreeMap<String, String>,
    /// Our own fault; the scheduler goes on without us where we are `ignorable`.
    pub error: String,
}

/// One of the answer to `prioritize`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct HostPriority {
    pub host: String,
    /// 0 to [`MOST_PRIORITY`].
    pub score: i64,
}

/// What the scheduler calls `MaxExtenderPriority`.
pub const MOST_PRIORITY: i64 = 10;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ExtenderBindingArgs {
    #[serde(rename = "PodName", alias = "podName")]
    pub pod_name: String,
    #[serde(rename = "PodNamespace", alias = "podNamespace")]
    pub pod_namespace: String,
    #[serde(rename = "PodUID", alias = "podUID", alias = "podUid")]
    pub pod_uid: String,
    #[serde(rename = "Node", alias = "node")]
    pub node: String,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct ExtenderBindingResult {
    /// Empty: it is bound.
    pub error: String,
}

// === impl Nodes ===

impl Nodes {
    /// The name of one of them; `None` where it has none.
    pub fn name(item: &RawValue) -> Option<String> {
        #[derive(Deserialize)]
        struct Named {
            metadata: Name,
        }
        #[derive(Deserialize)]
        struct Name {
            name: String,
        }
        serde_json::from_str::<Named>(item.get()).ok().map(|node| node.metadata.name)
    }
}

// === reading no more than there may be ===

fn few_names<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    struct Names(Vec<String>);
    impl<'de> Deserialize<'de> for Names {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            few(from).map(Self)
        }
    }
    Option::<Names>::deserialize(from).map(|names| names.map(|names| names.0))
}

/// Gives up at the first that is too much, before all are in memory.
fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    struct Few<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(formatter, "at most {MOST_NODES} nodes")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<Vec<T>, A::Error> {
            let mut read = Vec::new();
            while let Some(node) = nodes.next_element()? {
                if read.len() == MOST_NODES {
                    return Err(A::Error::custom(format_args!("more than {MOST_NODES} nodes")));
                }
                read.push(node);
            }
            Ok(read)
        }
    }
    from.deserialize_seq(Few(PhantomData))
}
