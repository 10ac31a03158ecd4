//! Who places for a swarm: one placer at a time, by a lease in the swarm's own storage.
//!
//! The lease is a config object without content, whose labels say who has it. It is renewed by changing a label, with the version the
//! engine demands: of two that try at once, one is told that it is out of date.

use base64::Engine as _;
use berth_model::Mono;
use serde_json::{Value, json};

use super::engine::{EngineError, Manager};
use crate::placer::{Claim, Held};

const NAME: &str = "berth-placer";
const HOLDER: &str = "berth.holder";
/// Changes at each renewal, so that the version does.
const RENEWED: &str = "berth.renewed";

#[derive(Debug)]
pub struct Lease {
    claim: Claim,
}

impl Lease {
    /// `place`: where the placer is, for people.
    pub fn new(place: &str) -> Self {
        Self { claim: Claim::new(place) }
    }

    /// Until when it may act without asking again; `None` if it may not.
    pub fn acts_until(&self) -> Option<Mono> {
        self.claim.acts_until()
    }

    /// Whether it is time to take it, renew it, or see who has it.
    pub fn is_due(&self) -> bool {
        self.claim.is_due()
    }

    /// Takes the lease, or renews it, or says who has it.
    pub async fn take(&mut self, manager: &Manager) -> Result<Held, EngineError> {
        let began = self.claim.tries();
        let found = match manager.get::<Value>(&format!("/configs/{NAME}")).await {
            Ok(found) => found,
            Err(error) if error.is_missing() => return self.make(manager, began).await,
            Err(error) => return Err(error),
        };
        let version = found["Version"]["Index"].as_u64().unwrap_or_default();
        let holder = found["Spec"]["Labels"][HOLDER].as_str().unwrap_or_default();
        if !self.claim.is_free(holder, &version.to_string(), began) {
            return Ok(Held::By(holder.to_owned()));
        }
        let id = found["ID"].as_str().unwrap_or(NAME);
        let mut spec = found["Spec"].clone();
        spec["Labels"] = self.labels();
        match manager.post(&format!("/configs/{id}/update?version={version}"), &spec).await {
            Ok(_) => Ok(self.claim.is_taken(began)),
            Err(error) if error.is_out_of_date() => Ok(self.claim.is_lost()),
            Err(error) => Err(error),
        }
    }

    async fn make(&mut self, manager: &Manager, began: Mono) -> Result<Held, EngineError> {
        let data =
            base64::engine::general_purpose::STANDARD.encode("Who places containers with deadlines: see its labels.\n");
        let spec = json!({ "Name": NAME, "Labels": self.labels(), "Data": data });
        match manager.post("/configs/create", &spec).await {
            Ok(_) => Ok(self.claim.is_taken(began)),
            Err(error) if error.is_out_of_date() => Ok(self.claim.is_lost()),
            Err(error) => Err(error),
        }
    }

    /// Gives it up, if it has it, so that the next one need not wait until it is over.
    pub async fn give_up(&mut self, manager: &Manager) -> Result<(), EngineError> {
        if self.acts_until().is_none() {
            return Ok(());
        }
        self.claim.is_lost();
        let found: Value = manager.get(&format!("/configs/{NAME}")).await?;
        if found["Spec"]["Labels"][HOLDER].as_str() != Some(self.claim.me()) {
            return Ok(());
        }
        let (id, version) = (found["ID"].as_str().unwrap_or(NAME), &found["Version"]["Index"]);
        let mut spec = found["Spec"].clone();
        spec["Labels"][HOLDER] = json!("");
        manager.post(&format!("/configs/{id}/update?version={version}"), &spec).await.map(drop)
    }

    fn labels(&self) -> Value {
        json!({ HOLDER: self.claim.me(), RENEWED: self.claim.renewals().to_string() })
    }
}
