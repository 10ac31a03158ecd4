//! What the kubelet has given to whom, by its own word: its interface for pod resources, v1, of which one question is asked.
//!
//! Only the fields that are read are named here; the numbers are the kubelet's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_model::GpuUuid;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, client, transport};
use tonic_prost::ProstCodec;

use super::shares::gpus_of;
use crate::kubernetes::RESOURCE;
use crate::kubernetes::agent::Given;

const LIST: PathAndQuery = PathAndQuery::from_static("/v1.PodResourcesLister/List");
/// Beside the directory for device plugins.
const SOCKET: &str = "pod-resources/kubelet.sock";
/// A kubelet that asks us something must not wait for itself.
const WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(super) enum Untold {
    #[error("the kubelet cannot be asked for what it gave")]
    Away(#[from] transport::Error),
    #[error("the kubelet does not say what it gave: {}", .0.message())]
    Refused(Box<tonic::Status>),
    #[error("the kubelet did not say within {} ms what it gave", WITHIN.as_millis())]
    Slow,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Nothing {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Listed {
    #[prost(message, repeated, tag = "1")]
    pub pods: Vec<ListedPod>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListedPod {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ListedContainer>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListedContainer {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ListedDevices>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListedDevices {
    #[prost(string, tag = "1")]
    pub resource: String,
    #[prost(string, repeated, tag = "2")]
    pub ids: Vec<String>,
}

/// Where it is asked, from where it looks for device plugins.
pub(super) fn socket(device_plugins: &Path) -> PathBuf {
    device_plugins.parent().unwrap_or(device_plugins).join(SOCKET)
}

/// What it has given of our resource.
pub(super) async fn given(socket: &Path) -> Result<Given, Untold> {
    let asked = async {
        let channel = super::channel(socket).await?;
        let mut kubelet = client::Grpc::new(channel);
        kubelet.ready().await?;
        let answer = kubelet.unary(Request::new(Nothing {}), LIST, ProstCodec::<Nothing, Listed>::default()).await;
        answer.map(|answer| Given::from(answer.into_inner())).map_err(|status| Untold::Refused(Box::new(status)))
    };
    tokio::time::timeout(WITHIN, asked).await.map_err(|_| Untold::Slow)?
}

impl From<Listed> for Given {
    fn from(listed: Listed) -> Self {
        let gpus = |container: &ListedContainer| -> BTreeSet<GpuUuid> {
            let ours = container.devices.iter().filter(|devices| devices.resource == RESOURCE);
            ours.flat_map(|devices| gpus_of(&devices.ids)).collect()
        };
        let of = |pod: ListedPod| {
            let containers = pod.containers.iter().map(|container| (container.name.clone(), gpus(container)));
            ((pod.namespace, pod.name), containers.collect())
        };
        Self(listed.pods.into_iter().map(of).collect())
    }
}
