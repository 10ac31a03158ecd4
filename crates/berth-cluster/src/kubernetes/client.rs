//! The API server, as the placer calls it: a pod read, annotated, bound; an event told.

use berth_model::id::GpuUuid;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use serde_json::{Value, json};

use super::annotations::{GPUS_CHOSEN, TRY_AGAIN};
use super::extender::Pods;
use super::extender::types::ExtenderBindingArgs;
use super::pod::Pod;

/// Who has written what, in the managed fields of objects.
pub const MANAGER: &str = "berth";
/// HTTP's code for what goes by an outdated version.
const CONFLICT: u16 = 409;

/// What the API server said, in its own words, or why it could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct ApiError {
    why: String,
    is_out_of_date: bool,
}

impl ApiError {
    /// What was written goes by a version that is no longer the last, or is there already.
    pub fn is_out_of_date(&self) -> bool {
        self.is_out_of_date
    }
}

impl From<Error> for ApiError {
    /// Without the whole of the answer, which the client's own words repeat.
    fn from(error: Error) -> Self {
        let is_out_of_date = matches!(&error, Error::Api(status) if status.code == CONFLICT);
        let why = match error {
            Error::Api(status) => status.message.clone(),
            Error::Service(source) => format!("the API server cannot be reached: {source}"),
            other => other.to_string(),
        };
        Self { why, is_out_of_date }
    }
}

/// Pods of all namespaces.
#[derive(Clone)]
pub struct ApiPods {
    client: Client,
}

impl std::fmt::Debug for ApiPods {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiPods").finish_non_exhaustive()
    }
}

impl ApiPods {
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    fn of(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Changes the pod with this uid, so that the scheduler tries it again.
    pub async fn touch(&self, namespace: &str, name: &str, uid: &str) -> Result<(), ApiError> {
        let patch = json!({"metadata": {"uid": uid, "annotations": {TRY_AGAIN: Timestamp::now().to_string()}}});
        self.of(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Makes the event, or writes over the one of that name.
    pub async fn tell(&self, namespace: &str, name: &str, event: &Event) -> Result<(), ApiError> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        events.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(event)).await?;
        Ok(())
    }
}

impl Pods for ApiPods {
    type Error = ApiError;

    async fn get(&self, namespace: &str, name: &str) -> Result<Option<Pod>, ApiError> {
        Ok(self.of(namespace).get_opt(name).await?)
    }

    /// With the uid in it the API server refuses the patch where another pod has come to have that name.
    async fn choose(&self, namespace: &str, name: &str, uid: &str, gpus: &[GpuUuid]) -> Result<(), ApiError> {
        let chosen = gpus.iter().map(|gpu| gpu.0.as_str()).collect::<Vec<_>>().join(",");
        let patch = json!({"metadata": {"uid": uid, "annotations": {GPUS_CHOSEN: chosen}}});
        self.of(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    async fn bind(&self, args: &ExtenderBindingArgs) -> Result<(), ApiError> {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": args.pod_name, "namespace": args.pod_namespace, "uid": args.pod_uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": args.node},
        });
        let pods = self.of(&args.pod_namespace);
        pods.create_subresource::<_, Value>("binding", &args.pod_name, &PostParams::default(), &binding).await?;
        Ok(())
    }
}
