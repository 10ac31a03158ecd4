//! Who places for a cluster: one placer at a time, by a Lease of the API server (`coordination.k8s.io`).
//!
//! Two placers would not know of the places that the other has promised, and both give away the last. A Deployment of one does not keep
//! them apart: on a node that is cut off the old one runs on beside the new. A write that names an outdated version is refused, so that of
//! two who take the lease at once one has it.

use std::sync::Arc;
use std::time::Duration;

use berth_model::Mono;
use k8s_openapi::api::coordination::v1::{Lease as Object, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, Error};

use super::client::ApiError;
use crate::placer::{Acting, Claim, Held, LASTS, Placer, RENEW_EVERY};

const NAME: &str = "berth-placer";
/// Of a call: less than the holder may act without an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

pub(super) struct Lease {
    leases: Api<Object>,
    claim: Claim,
    placer: Arc<Placer>,
    /// Who had it last, of others.
    holder: Option<String>,
}

#[derive(Debug, thiserror::Error)]
enum LeaseError {
    #[error("{doing} the lease")]
    Api { doing: &'static str, source: ApiError },
    #[error("{doing} the lease: no answer within {} s", ANSWER_WITHIN.as_secs())]
    Late { doing: &'static str },
}

impl Lease {
    /// In the namespace the placer runs in. `place`: where the placer is, for people.
    pub fn new(client: &Client, place: &str, placer: Arc<Placer>) -> Self {
        placer.act(Acting::Not { because: "it has not asked yet who places for this cluster".to_owned() });
        Self { leases: Api::default_namespaced(client.clone()), claim: Claim::new(place), placer, holder: None }
    }

    /// Takes it and renews it, for ever. While that fails, leave to act ends by itself.
    pub async fn hold(&mut self) {
        loop {
            match self.take().await {
                Ok(held) => self.tell(held),
                Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "the lease cannot be renewed"),
            }
            tokio::time::sleep(RENEW_EVERY).await;
        }
    }

    fn tell(&mut self, held: Held) {
        let holder = match held {
            Held::Ours => None,
            Held::By(other) => Some(other),
        };
        match (&holder, self.claim.acts_until()) {
            (None, Some(end)) => self.placer.act(Acting::Until(end)),
            (None, None) => {}
            (Some(other), _) => self.placer.act(Acting::Not { because: format!("{other} places for this cluster") }),
        }
        if self.holder != holder || (holder.is_none() && self.claim.renewals() == 1) {
            match &holder {
                None => tracing::info!("places for this cluster"),
                Some(other) => tracing::info!(holder = other, "another places for this cluster"),
            }
        }
        self.holder = holder;
    }

    async fn take(&mut self) -> Result<Held, LeaseError> {
        let began = self.claim.tries();
        let Some(found) = within("reading", self.leases.get_opt(NAME)).await? else {
            return self.write(began, Object::default(), true).await;
        };
        let version = found.metadata.resource_version.as_deref().unwrap_or_default();
        let holder = holder(&found).to_owned();
        match self.claim.is_free(&holder, version, began) {
            true => self.write(began, found, false).await,
            false => Ok(Held::By(holder)),
        }
    }

    async fn write(&mut self, began: Mono, before: Object, is_new: bool) -> Result<Held, LeaseError> {
        let is_ours = holder(&before) == self.claim.me();
        let lease = lease(self.claim.me(), is_ours, before);
        let params = PostParams::default();
        let written = match is_new {
            true => within("making", self.leases.create(&params, &lease)).await,
            false => within("renewing", self.leases.replace(NAME, &params, &lease)).await,
        };
        match written {
            Ok(_) => Ok(self.claim.is_taken(began)),
            Err(LeaseError::Api { source, .. }) if source.is_out_of_date() => Ok(self.claim.is_lost()),
            Err(error) => Err(error),
        }
    }

    /// Gives it up, so that the next one need not wait until it is over. From here on nothing is placed.
    pub async fn give_up(mut self) {
        self.placer.act(Acting::Not { because: "it is stopping".to_owned() });
        if self.claim.acts_until().is_none() {
            return;
        }
        let given_up = async {
            let Some(found) = within("reading", self.leases.get_opt(NAME)).await? else { return Ok(()) };
            if holder(&found) != self.claim.me() {
                return Ok(());
            }
            let lease = lease("", true, found);
            within("giving up", self.leases.replace(NAME, &PostParams::default(), &lease)).await.map(drop)
        };
        if let Err(error) = given_up.await {
            let error: LeaseError = error;
            tracing::warn!(error = &error as &dyn std::error::Error, "the next placer waits until the lease is over");
        }
        self.claim.is_lost();
    }
}

fn holder(lease: &Object) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// As it is to be written over what it was, by the version of that.
fn lease(holder: &str, is_same: bool, before: Object) -> Object {
    let now = Timestamp::now();
    let spec = before.spec.unwrap_or_default();
    let transitions = spec.lease_transitions.unwrap_or_default();
    let acquired = spec.acquire_time.clone().filter(|_| is_same);
    Object {
        metadata: ObjectMeta { name: Some(NAME.to_owned()), ..before.metadata },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            // For people and tools that read it; nobody here compares wall clocks.
            lease_duration_seconds: i32::try_from(LASTS.as_secs()).ok(),
            acquire_time: acquired.or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(if is_same { transitions } else { transitions.saturating_add(1) }),
            ..spec
        }),
    }
}

async fn within<T>(doing: &'static str, call: impl Future<Output = Result<T, Error>>) -> Result<T, LeaseError> {
    match tokio::time::timeout(ANSWER_WITHIN, call).await {
        Ok(answer) => answer.map_err(|error| LeaseError::Api { doing, source: error.into() }),
        Err(_) => Err(LeaseError::Late { doing }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_keeps_since_when_it_is_held_and_names_the_version_it_goes_by() {
        let mut first = lease("a", false, Object::default());
        first.metadata.resource_version = Some("7".to_owned());
        let renewed = lease("a", true, first.clone());
        let [one, two] = [&first, &renewed].map(|lease| lease.spec.clone().unwrap());
        assert_eq!((one.acquire_time, one.lease_transitions), (two.acquire_time, two.lease_transitions));
        assert_eq!((renewed.metadata.resource_version.as_deref(), holder(&renewed)), (Some("7"), "a"));
        let taken = lease("b", false, renewed).spec.unwrap();
        assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("b"), Some(2)));
    }
}
