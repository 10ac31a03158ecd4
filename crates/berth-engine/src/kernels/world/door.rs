//! Who comes and goes: those who ask are let attach or refused, put on their GPUs, and forgotten when they are gone.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use berth_host::shim::{ClientClock, ClientId, End, Told};
use berth_model::kernels::KernelNews;
use berth_model::{Event, Mono, ProcKey, ProcessFacts, TenantKey};
use berth_proto::shim::message::Refusal;

use super::super::client::Client;
use super::super::gpu::Gpu;
use super::super::places;
use super::super::standing::Standing;
use super::World;

/// How long a process may be attached of whose container nothing is known; then it goes on without berth.
pub(super) const KNOWN_WITHIN: Duration = Duration::from_secs(5);

impl World {
    pub fn hear(&mut self, told: Told, now: Mono) {
        match told {
            Told::Asks { client, facts, clock } => self.asks(client, facts, clock, now),
            Told::Lane { client, lane } => {
                let Some(known) = self.clients.get_mut(&client) else { return };
                if known.add_lane(lane) && known.takes_part {
                    self.put_on_gpus(client);
                }
            }
            Told::Gone { client } => self.forget(client, now),
        }
    }

    /// A process waits for no more than a moment, and less is known of its container then: it is let attach, and orders come when it is known
    /// that it takes part.
    fn asks(&mut self, client: ClientId, facts: Arc<ProcessFacts>, clock: ClientClock, now: Mono) {
        let takes_part = self.standings.get(&facts.tenant).and_then(|standing| standing.takes_part);
        if takes_part == Some(false) || self.refused.contains(&facts.tenant) {
            return self.refuse(client, Refusal::NotAsked, now);
        }
        if !self.has_place(&facts.tenant, client) {
            return self.refuse(client, Refusal::TooMany, now);
        }
        let Some(pages) = self.shim.welcome(client) else { return };
        self.clients.insert(client, Client::new(facts, clock, pages, now));
        self.want_to_know();
        if takes_part == Some(true) {
            self.take_in(client, now);
        }
    }

    /// Something is known of a tenant that was not.
    pub fn know(&mut self, tenant: TenantKey, standing: Standing, now: Mono) {
        let takes_part = standing.takes_part;
        self.standings.insert(tenant.clone(), standing);
        let own = self.clients.iter().filter(|(_, client)| !client.takes_part && client.facts.tenant == tenant);
        let own: Vec<ClientId> = own.map(|(id, _)| *id).collect();
        for client in own {
            match takes_part {
                None => {}
                Some(false) => self.refuse(client, Refusal::NotAsked, now),
                Some(true) => self.take_in(client, now),
            }
        }
    }

    fn take_in(&mut self, client: ClientId, now: Mono) {
        let Some(tenant) = self.clients.get(&client).map(|known| known.facts.tenant.clone()) else { return };
        // Whose it is may not have been known when it asked.
        if !self.has_place(&tenant, client) {
            return self.refuse(client, Refusal::TooMany, now);
        }
        self.clients.get_mut(&client).into_iter().for_each(|known| known.takes_part = true);
        tracing::debug!(client = client.0, %tenant, "a process takes part at the level of kernels");
        self.totals.attached += 1;
        self.put_on_gpus(client);
        if self.taking_part(&tenant) == 1 {
            self.tell(tenant, KernelNews::Joined, now);
        }
    }

    fn put_on_gpus(&mut self, client: ClientId) {
        let Some(known) = self.clients.get(&client) else { return };
        for (lane, of) in &known.lanes {
            let made = || Gpu::new(of.gpu.clone(), self.records.remove(&of.gpu).unwrap_or_default());
            let gpu = self.gpus.entry(of.gpu.clone()).or_insert_with(made);
            gpu.add(End { client, lane: *lane }, known);
        }
        self.find_strangers();
        self.shown_at = None;
    }

    /// It has no place from now on, though its hang-up is heard later.
    pub(super) fn refuse(&mut self, client: ClientId, why: Refusal, now: Mono) {
        self.totals.refused += 1;
        self.shim.refuse(client, why);
        self.forget(client, now);
    }

    /// Whether this tenant's owner may have one more, beside all but this client.
    fn has_place(&self, tenant: &TenantKey, but: ClientId) -> bool {
        let owner = |tenant: &TenantKey| {
            let known = self.standings.get(tenant).and_then(|standing| standing.owner.clone());
            known.unwrap_or_else(|| tenant.to_string())
        };
        let others = self.clients.iter().filter(|(id, _)| **id != but);
        let all: Vec<String> = others.map(|(_, client)| owner(&client.facts.tenant)).collect();
        places::has_place(&owner(tenant), all.iter().map(String::as_str))
    }

    /// A child may still have its socket.
    pub fn exited(&self, process: ProcKey) {
        let own = self.clients.iter().filter(|(_, client)| client.facts.process == process);
        own.for_each(|(client, _)| self.shim.drop_client(*client));
    }

    fn forget(&mut self, client: ClientId, now: Mono) {
        let Some(gone) = self.clients.remove(&client) else { return };
        for gpu in self.gpus.values_mut() {
            gpu.forget(client, &self.shim, now);
        }
        for (uuid, gpu) in self.gpus.extract_if(.., |_, gpu| gpu.ends.is_empty()) {
            self.records.insert(uuid, gpu.record);
        }
        // Only those on which the driver has seen somebody have any.
        self.records.values_mut().for_each(|record| record.forget(now));
        self.records.retain(|_, record| !record.is_empty());
        self.find_strangers();
        let tenant = &gone.facts.tenant;
        if gone.takes_part && self.taking_part(tenant) == 0 {
            self.tell(tenant.clone(), KernelNews::Left, now);
        }
        self.want_to_know();
    }

    /// Processes of a tenant that take part.
    fn taking_part(&self, tenant: &TenantKey) -> usize {
        let own = self.clients.values().filter(|client| client.takes_part && client.facts.tenant == *tenant);
        own.count()
    }

    /// The loop is asked what it knows of everybody who is here, and wakes for it.
    fn want_to_know(&mut self) {
        let tenants = self.clients.iter().rev().map(|(id, client)| (client.facts.tenant.clone(), *id)).collect();
        self.standings.retain(|tenant, _| self.clients.values().any(|client| client.facts.tenant == *tenant));
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).tenants = tenants;
        self.shown_at = None;
        self.wake(Event::Asked);
    }

    /// Of whom nothing came to be known.
    pub(super) fn refuse_unknown(&mut self, now: Mono) {
        let is_late = |client: &Client| !client.takes_part && now.since(client.attached_at) >= KNOWN_WITHIN;
        let late: Vec<ClientId> =
            self.clients.iter().filter(|(_, client)| is_late(client)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|client| self.refuse(client, Refusal::NotAsked, now));
    }
}
