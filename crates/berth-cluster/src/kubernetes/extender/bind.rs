//! `bind`: takes the place, writes the chosen GPUs on the pod, and binds it.
//!
//! The scheduler decided by what it was told before; here it is judged again, and the place taken, under one lock. It may ask again for a
//! pod that it has bound, since an answer can get lost: a pod that stands where it is wanted is bound.

use std::future::Future;

use berth_model::cluster::{Choice, NodeId, NotHere, PlacementId};
use berth_model::id::GpuUuid;

use super::types::ExtenderBindingArgs;
use crate::kubernetes::annotations::Unread;
use crate::kubernetes::pod::Pod;
use crate::kubernetes::{RESOURCE, placement_of};
use crate::placer::Placer;

/// The pods of the API server.
pub trait Pods: Sync {
    type Error: std::error::Error + Send + Sync + 'static;

    /// `None`: there is no such pod.
    fn get(&self, namespace: &str, name: &str) -> impl Future<Output = Result<Option<Pod>, Self::Error>> + Send;

    /// Writes the chosen GPUs on the pod with this uid. May be called again.
    fn choose(
        &self,
        namespace: &str,
        name: &str,
        uid: &str,
        gpus: &[GpuUuid],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Binds the pod with this uid. Fails where it is bound already, also to the same node.
    fn bind(&self, args: &ExtenderBindingArgs) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// It is bound to that node, by this call or before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// `None` where it wants nothing of berth, or was bound before.
    pub choice: Option<Choice>,
}

#[derive(Debug, thiserror::Error)]
pub enum NotBound<E: std::error::Error + 'static> {
    #[error("pod {pod} is gone")]
    Gone { pod: String },
    #[error("pod {pod} is bound to {node} already")]
    Elsewhere { pod: String, node: String },
    #[error(
        "pod {pod} requests no {RESOURCE}: its scheduler is to bind it itself (`managedResources` of the extender)"
    )]
    NotOurs { pod: String },
    #[error("`{node}` names no node")]
    NoNode { node: String },
    #[error("node {node} does not take pod {pod}: {why}")]
    Refused { pod: String, node: NodeId, why: NotHere },
    #[error("what pod {pod} wants cannot be read: {unread}")]
    Unread { pod: String, unread: Unread },
    #[error("{doing} pod {pod}")]
    Api { doing: &'static str, pod: String, source: E },
}

/// Binds the pod, if the node still takes it.
pub async fn bind<P: Pods>(placer: &Placer, pods: &P, args: &ExtenderBindingArgs) -> Result<Bound, NotBound<P::Error>> {
    let pod = look(pods, args).await?;
    if pod.node.is_some() {
        return Ok(Bound { choice: None });
    }
    let name = shown(args);
    let wants = pod.wants().map_err(|unread| NotBound::Unread { pod: name.clone(), unread })?;
    let Some(wants) = wants else {
        // A scheduler hands over whatever names the resource, also with an amount of 0.
        if !pod.names_resource() {
            return Err(NotBound::NotOurs { pod: name });
        }
        finish(pods, args).await?;
        return Ok(Bound { choice: None });
    };
    let placement = placement_of(&args.pod_uid);
    let node: NodeId = args.node.parse().map_err(|_| NotBound::NoNode { node: args.node.clone() })?;
    let taken = placer.book().take(placement, &wants.request(), &node, placer.now());
    let choice = taken.map_err(|why| NotBound::Refused { pod: name, node, why })?;
    carry_out(placer, pods, args, placement, &choice).await?;
    Ok(Bound { choice: Some(choice) })
}

/// The pod, if it is the one that was meant and is not bound to another node.
async fn look<P: Pods>(pods: &P, args: &ExtenderBindingArgs) -> Result<Pod, NotBound<P::Error>> {
    let name = shown(args);
    let found = pods.get(&args.pod_namespace, &args.pod_name).await;
    let found = found.map_err(|source| NotBound::Api { doing: "looking for", pod: name.clone(), source })?;
    let meant = found.filter(|pod| pod.meta.uid.as_deref() == Some(args.pod_uid.as_str()) && !pod.is_leaving);
    match meant {
        None => Err(NotBound::Gone { pod: name }),
        Some(Pod { node: Some(node), .. }) if node != args.node => Err(NotBound::Elsewhere { pod: name, node }),
        Some(pod) => Ok(pod),
    }
}

/// Annotation first: whoever sees the pod on its node sees its GPUs. If it fails the place is given back, unless nobody knows whether the
/// pod is bound: then it is kept until the pod is seen, or for as long as a reservation lasts.
async fn carry_out<P: Pods>(
    placer: &Placer,
    pods: &P,
    args: &ExtenderBindingArgs,
    placement: PlacementId,
    choice: &Choice,
) -> Result<(), NotBound<P::Error>> {
    let chosen = pods.choose(&args.pod_namespace, &args.pod_name, &args.pod_uid, &choice.gpus).await;
    let chosen = chosen.map_err(|source| NotBound::Api { doing: "annotating", pod: shown(args), source });
    let done = match chosen {
        Ok(()) => finish(pods, args).await,
        Err(error) => Err(error),
    };
    // The pods' list may be late.
    let stands = || placer.book().taken(placement, placer.now());
    let Err(error) = done else {
        stands();
        return Ok(());
    };
    match look(pods, args).await {
        Ok(pod) if pod.node.is_some() => {
            stands();
            return Ok(());
        }
        // Nobody knows.
        Err(NotBound::Api { .. }) => stands(),
        Ok(_) | Err(_) => placer.book().release(placement),
    }
    Err(error)
}

async fn finish<P: Pods>(pods: &P, args: &ExtenderBindingArgs) -> Result<(), NotBound<P::Error>> {
    let bound = pods.bind(args).await;
    bound.map_err(|source| NotBound::Api { doing: "binding", pod: shown(args), source })
}

fn shown(args: &ExtenderBindingArgs) -> String {
    format!("{}/{}", args.pod_namespace, args.pod_name)
}
