//! `gpunodes.berth.dev`: what a node's daemon reports, as an object of the API server that is named like the node.
//!
//! The frame is what counts; it is signed by the node, so that who may write the object still cannot speak for it. The other fields are
//! for people and `kubectl get gpunodes`, and nothing goes by them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

pub const GROUP: &str = "berth.dev";
pub const VERSION: &str = "v1alpha1";
pub const KIND: &str = "GpuNode";

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct GpuNode {
    #[serde(rename = "metadata")]
    pub meta: ObjectMeta,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Status {
    /// A report, signed, without a nonce (`berth_cluster::frame`), in Base64.
    pub frame: String,
    /// What the node knows of images, signed likewise; absent until it knows something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pasts: Option<String>,
    /// Whether the node would take anything, by the rule of the paper: `placeable`, or why not in a word.
    pub state: String,
    /// Float time, such as `5.2s`; empty where nothing is due.
    pub float: String,
    /// Free memory of the GPU that has most of it.
    pub memory_free: String,
    pub gpus: u32,
    /// Version of the node's berth.
    pub berth: String,
    /// When the report was made, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<String>,
}

// === impl Status ===

impl Status {
    /// The bytes of the frame; `None` if it is no Base64.
    pub fn frame_bytes(&self) -> Option<Vec<u8>> {
        STANDARD.decode(&self.frame).ok()
    }

    /// The bytes of what is known of images.
    pub fn pasts_bytes(&self) -> Option<Vec<u8>> {
        STANDARD.decode(self.pasts.as_ref()?).ok()
    }
}

/// Bytes as they stand in a status.
pub fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

// === impl GpuNode ===

resource!(GpuNode, ClusterResourceScope, KIND, GROUP, VERSION, "gpunodes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_back_from_a_status_as_it_went_in() {
        let status = Status { frame: encode(&[0, 255, 7]), ..Status::default() };
        let read: Status = serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap();
        assert_eq!(read.frame_bytes(), Some(vec![0, 255, 7]));
        assert_eq!(read.pasts_bytes(), None);
    }

    #[test]
    fn what_is_no_base64_is_no_frame() {
        assert_eq!(Status { frame: "<>".to_owned(), ..Status::default() }.frame_bytes(), None);
    }
}
