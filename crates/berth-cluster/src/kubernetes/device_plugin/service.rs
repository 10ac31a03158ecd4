//! The answers to the kubelet.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use berth_model::GpuUuid;
use futures_util::Stream;
use futures_util::stream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::allocate::Ways;
use super::pod_resources;
use super::shares::prefer;
use super::v1beta1::device_plugin_server::DevicePlugin;
use super::v1beta1::{
    AllocateRequest, AllocateResponse, ContainerPreferredAllocationResponse, Device, DevicePluginOptions, Empty,
    ListAndWatchResponse, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse,
};
use crate::kubernetes::agent::{Choices, Meant};

/// What the kubelet is told of us: that it should ask which shares to take.
pub(super) const OPTIONS: DevicePluginOptions =
    DevicePluginOptions { pre_start_required: false, get_preferred_allocation_available: true };

/// How long a kubelet waits for a pod of which the API server has told it and not us yet, or for the placer's choice.
const WAIT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub(super) struct Service {
    pub devices: watch::Receiver<Vec<Device>>,
    pub choices: Choices,
    pub ways: Arc<Ways>,
    /// Where the kubelet says what it has given.
    pub kubelet: PathBuf,
}

type Devices = Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(&self, _: Request<Empty>) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(OPTIONS))
    }

    type ListAndWatchStream = Devices;

    /// What there is now, and again whenever that changes.
    async fn list_and_watch(&self, _: Request<Empty>) -> Result<Response<Devices>, Status> {
        let mut devices = self.devices.clone();
        devices.mark_changed();
        let changes = stream::unfold(devices, |mut devices| async move {
            devices.changed().await.ok()?;
            let now = ListAndWatchResponse { devices: devices.borrow_and_update().clone() };
            Some((Ok(now), devices))
        });
        Ok(Response::new(Box::pin(changes)))
    }

    /// The kubelet does not say for which pod it asks: [`Choices`] says who is meant. Where the chosen GPUs have too few shares left, others are
    /// taken.
    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let mut answer = PreferredAllocationResponse::default();
        for wanted in request.into_inner().container_requests {
            let size = usize::try_from(wanted.allocation_size).unwrap_or_default();
            let chosen = self.chosen(size).await;
            let device_ids = prefer(&wanted.available_device_i_ds, &wanted.must_include_device_i_ds, size, &chosen);
            answer.container_responses.push(ContainerPreferredAllocationResponse { device_i_ds: device_ids });
        }
        Ok(Response::new(answer))
    }

    async fn allocate(&self, request: Request<AllocateRequest>) -> Result<Response<AllocateResponse>, Status> {
        let mut answer = AllocateResponse::default();
        for wanted in request.into_inner().container_requests {
            let takes_part = self.takes_part(wanted.devices_i_ds.len()).await;
            answer.container_responses.push(self.ways.container(&wanted.devices_i_ds, takes_part));
        }
        Ok(Response::new(answer))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}

impl Service {
    /// Whether the container that gets so many shares now is of a pod that takes part at the level of kernels.
    async fn takes_part(&self, shares: usize) -> bool {
        if !self.ways.asks_who_takes_part() {
            return false;
        }
        let given = pod_resources::given(&self.kubelet).await.ok();
        self.choices.takes_part(shares, given.as_ref())
    }

    /// The GPUs of whoever is meant, for whom is waited a little; empty if nobody can say.
    async fn chosen(&self, shares: usize) -> Vec<GpuUuid> {
        let mut changes = self.choices.changes();
        let meant = async {
            loop {
                let given = pod_resources::given(&self.kubelet).await;
                let given = given.inspect_err(|error| tracing::debug!(%error, "which pod is meant is guessed")).ok();
                if let Meant::Chosen(gpus) = self.choices.meant(shares, given.as_ref()) {
                    return gpus;
                }
                changes.next().await;
            }
        };
        let chosen = tokio::time::timeout(WAIT, meant).await;
        chosen
            .inspect_err(|_| tracing::warn!(shares, "a container gets GPUs that nobody chose for it"))
            .unwrap_or_default()
    }
}
