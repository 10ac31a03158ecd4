//! Kubernetes: kube-scheduler asks the placer where a pod may go, the API server whether its annotations can be read.
//!
//! The cluster's own parts stay as they are: nodes and pods are the API server's, scheduling is kube-scheduler's, and what a node's
//! daemon reports is kept in the status of an object of its own ([`gpunode`]). What a pod wants is in its annotations ([`annotations`])
//! and in what its containers request ([`pod`]).

#[macro_use]
mod resource;

pub mod agent;
pub mod annotations;
pub mod ask;
pub mod cdi;
mod client;
pub mod device_plugin;
mod events;
pub mod extender;
pub mod gpunode;
mod lease;
pub mod node;
pub mod pod;
mod pods;
mod ready;
mod reports;
mod routes;
mod serve;
#[cfg(test)]
mod testing;
pub mod tls;
mod waiting;
mod watch;
pub mod webhook;

use berth_model::cluster::PlacementId;

pub use serve::{ServeError, serve};

/// The resource of which a pod requests shares; the device plugin of each node offers them.
pub const RESOURCE: &str = "berth.dev/gpu";

/// The placement that a pod is, from its uid: the placer and the node agree on it without telling each other, also where a cgroup's
/// name writes the uid with underscores. Uids are random, so that two pods of one cluster do not meet by chance.
pub fn placement_of(uid: &str) -> PlacementId {
    // FNV-1a: the same in every version of berth, which the hashes of the standard library need not be.
    let bytes = uid.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase());
    PlacementId(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_the_same_placement_however_its_uid_is_written() {
        let placement = placement_of("6f2cb1a6-9a63-4d06-9a32-2f1a5bd2a1c3");
        assert_eq!(placement, placement_of("6f2cb1a6_9a63_4d06_9a32_2f1a5bd2a1c3"));
        assert_eq!(placement, placement_of("6F2CB1A69A634D069A322F1A5BD2A1C3"));
        assert_ne!(placement, placement_of("6f2cb1a6-9a63-4d06-9a32-2f1a5bd2a1c4"));
    }

    /// A node of another version of berth must come to the same.
    #[test]
    fn a_placement_does_not_change_between_versions() {
        assert_eq!(placement_of("6f2cb1a6-9a63-4d06-9a32-2f1a5bd2a1c3").to_string(), "818d17153b81d1eb");
    }
}
