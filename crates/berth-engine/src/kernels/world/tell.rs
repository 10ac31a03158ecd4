//! What others are told: news, what the loop is to do and to ask, and what is shown.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use berth_host::clock;
use berth_host::shim::ClientId;
use berth_model::kernels::{KernelNews, PolicyChosen};
use berth_model::{Event, GpuUuid, Mono, TenantKey};
use berth_proto::shim::message::Refusal;

use super::super::gpu::News;
use super::super::show;
use super::World;

impl World {
    pub(super) fn tell_of(&mut self, gpu: &GpuUuid, news: News, now: Mono) {
        match news {
            News::LeadLost { tenant, until } => {
                self.totals.leads_lost += 1;
                let (gpu, for_seconds) = (self.indices.get(gpu).copied(), until.since(now).as_secs());
                self.tell(tenant, KernelNews::LeadLost { gpu, for_seconds }, now);
            }
            News::Parted { tenant, from } => {
                let name =
                    self.standings.get(&from).map(|standing| standing.name.clone()).filter(|name| !name.is_empty());
                let (gpu, from) = (self.indices.get(gpu).copied(), name.unwrap_or_else(|| from.to_string()));
                self.tell(tenant, KernelNews::Parted { gpu, from }, now);
            }
            News::Refused { tenant, reason } => {
                if self.refused.insert(tenant.clone()) {
                    self.tell(tenant.clone(), KernelNews::Refused { reason }, now);
                }
                let own = self.clients.iter().filter(|(_, client)| client.facts.tenant == tenant);
                let own: Vec<ClientId> = own.map(|(id, _)| *id).collect();
                own.into_iter().for_each(|client| self.refuse(client, Refusal::NotAsked, now));
            }
        }
    }

    pub(super) fn tell_of_policy(&mut self, chosen: PolicyChosen) {
        self.shown_at = None;
        let gpu = self.indices.get(&chosen.gpu_uuid).copied();
        self.wake(Event::PolicyChosen(Box::new(PolicyChosen { gpu, ..chosen })));
    }

    pub(super) fn tell(&mut self, tenant: TenantKey, news: KernelNews, at: Mono) {
        self.shown_at = None;
        self.wake(Event::Kernels { tenant, news, at });
    }

    /// The loop is told whom to hold, where that has changed.
    pub(super) fn ask_to_keep_off(&self) {
        let keep_off: BTreeMap<TenantKey, String> = self.gpus.values().flat_map(|gpu| gpu.offences.to_hold()).collect();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.keep_off != keep_off {
            shared.keep_off = keep_off;
            drop(shared);
            self.wake(Event::Asked);
        }
    }

    /// The loop is told whether somebody goes by what is free.
    pub(super) fn ask_what_is_free(&self) {
        let keeps_memory = self.gpus.values().any(|gpu| gpu.memory.is_reserved());
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.keeps_memory != keeps_memory {
            shared.keeps_memory = keeps_memory;
            drop(shared);
            self.wake(Event::Asked);
        }
    }

    pub(super) fn show(&mut self, now: Mono) {
        self.shown_at = Some(now);
        let scene = show::Scene {
            clients: &self.clients,
            standings: &self.standings,
            gpus: &self.gpus,
            indices: &self.indices,
            policies: &self.policies,
            settings: &self.settings,
            anchor: clock::anchor(),
        };
        let level = scene.level(self.totals);
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).level = Some(level);
    }

    pub(super) fn wake(&self, event: Event) {
        // Gone only with the loop, which ends this thread first.
        let _ = self.event_tx.send(event);
    }
}
