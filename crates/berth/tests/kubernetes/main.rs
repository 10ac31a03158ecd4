//! berth on a real Kubernetes: API server, scheduler and etcd as they are; nodes that are only objects, and one with a kubelet.
//!
//! `make test-kubernetes` builds them once and runs this; elsewhere these tests say that they were skipped. Each has a cluster of its own
//! (`scripts/kubernetes.sh`), which takes a few seconds to start, so they are run one after the other.

// A panic is how a test fails.
#![allow(clippy::unwrap_used)]

#[path = "../../../berth-cluster/tests/chart/render.rs"]
mod render;
mod support;

mod agent;
mod chart;
mod kubelet;
mod leading;
mod placing;
mod scale;
