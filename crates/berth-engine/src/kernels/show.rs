//! What is shown of everybody who takes part.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::shim::{ClientId, End};
use berth_model::kernels::{
    AutoChoice, GpuWindow, KernelCounters, KernelLevel, KernelRole, KernelRow, KernelTotals, MemoryFigures, SlowedBy,
};
use berth_model::settings::KernelSettings;
use berth_model::{Anchor, Bytes, GpuIndex, GpuUuid, TenantKey};
use berth_policy::kernels::Reason;
use berth_policy::kernels::interference::Rho;

use super::client::{Client, Lane};
use super::gpu::Gpu;
use super::memory::Room;
use super::policies::Policies;
use super::standing::Standing;

pub(super) struct Scene<'a> {
    pub clients: &'a BTreeMap<ClientId, Client>,
    pub standings: &'a BTreeMap<TenantKey, Standing>,
    pub gpus: &'a BTreeMap<GpuUuid, Gpu>,
    pub indices: &'a BTreeMap<GpuUuid, GpuIndex>,
    pub policies: &'a Policies,
    pub settings: &'a KernelSettings,
    pub anchor: Anchor,
}

/// What a window came to says nothing of now for longer.
const WINDOW_SHOWN_FOR: Duration = Duration::from_secs(60);

impl Scene<'_> {
    pub fn level(&self, totals: KernelTotals) -> KernelLevel {
        let mut rows: Vec<KernelRow> = self.gpus.iter().flat_map(|(uuid, gpu)| self.rows(uuid, gpu)).collect();
        rows.sort_by(|one, other| {
            (one.gpu_index, &one.gpu_uuid, &one.name).cmp(&(other.gpu_index, &other.gpu_uuid, &other.name))
        });
        let mut auto: Vec<AutoChoice> = self.gpus.keys().filter_map(|uuid| self.choice(uuid)).collect();
        auto.sort_by_key(|choice| choice.gpu_index);
        let mut windows: Vec<GpuWindow> = self.gpus.iter().filter_map(|(uuid, gpu)| self.window(uuid, gpu)).collect();
        windows.sort_by_key(|window| window.gpu_index);
        let (policy, gpu_policies) = (self.policies.for_all(), self.policies.shown(self.indices));
        KernelLevel { policy, gpu_policies, auto, windows, rows, totals }
    }

    fn window(&self, uuid: &GpuUuid, gpu: &Gpu) -> Option<GpuWindow> {
        let (figures, ended) = gpu.latest.filter(|(_, ended)| self.anchor.mono.since(*ended) <= WINDOW_SHOWN_FOR)?;
        let gpu_index = self.indices.get(uuid).copied();
        Some(GpuWindow { gpu_index, gpu_uuid: uuid.clone(), ended_at: self.anchor.wall_at(ended), figures })
    }

    /// What `auto` has in place there; `None` where a policy was named.
    fn choice(&self, uuid: &GpuUuid) -> Option<AutoChoice> {
        self.policies.choice(uuid, self.indices.get(uuid).copied(), self.settings, &self.anchor)
    }

    fn rows(&self, uuid: &GpuUuid, gpu: &Gpu) -> Vec<KernelRow> {
        let mut by_tenant: BTreeMap<&TenantKey, Vec<(ClientId, &Lane)>> = BTreeMap::new();
        for (id, end) in &gpu.ends {
            let Some(client) = self.clients.get(id) else { continue };
            let Some(lane) = client.lanes.get(&end.lane) else { continue };
            by_tenant.entry(&client.facts.tenant).or_default().push((*id, lane));
        }
        by_tenant.into_iter().map(|(tenant, lanes)| self.row(uuid, gpu, tenant, &lanes)).collect()
    }

    fn row(&self, uuid: &GpuUuid, gpu: &Gpu, tenant: &TenantKey, lanes: &[(ClientId, &Lane)]) -> KernelRow {
        let standing = self.standings.get(tenant).cloned().unwrap_or_default();
        let now = self.anchor.mono;
        let leaders: BTreeSet<ClientId> = lanes
            .iter()
            .flat_map(|(id, _)| gpu.ends.get(id).into_iter().flat_map(|end| gpu.links.leaders_of(*end)))
            .filter(|id| self.clients.get(id).is_some_and(|client| self.has_lead(gpu, &client.facts.tenant)))
            .collect();
        let guest = gpu.guests.get(tenant);
        let attainment = guest.and_then(|guest| guest.goals.attained(&standing.slo).combined());
        // Of the process that has been measured most.
        let book = lanes.iter().map(|(_, lane)| &lane.book).max_by_key(|book| book.samples());
        let profile = book.map(|book| book.profile(None)).unwrap_or_default();
        let is_stopped = |(id, lane): &(ClientId, &Lane)| {
            lane.doing.busy && gpu.ends.get(id).is_some_and(|end| gpu.is_stopped(*end))
        };
        KernelRow {
            tenant: tenant.clone(),
            name: if standing.name.is_empty() { tenant.to_string() } else { standing.name },
            gpu_index: self.indices.get(uuid).copied(),
            gpu_uuid: uuid.clone(),
            clients: u32::try_from(lanes.len()).unwrap_or(u32::MAX),
            role: role(gpu, self.has_lead(gpu, tenant), lanes, &leaders),
            yields_to: leaders.iter().filter_map(|id| self.name_of(*id)).collect::<BTreeSet<_>>().into_iter().collect(),
            is_busy: lanes.iter().any(|(_, lane)| lane.doing.busy),
            is_stopped: lanes.iter().any(is_stopped),
            reason: lanes.iter().find_map(|(id, _)| gpu.reason(*id)).map(|reason| self.words(reason)),
            chosen: self.choice(uuid).map(|choice| format!("{}: {}", choice.policy.as_str(), choice.reason)),
            urged_by: standing.urged_by,
            slo: standing.slo,
            unread_labels: standing.wrong,
            attainment,
            lead_lost_until: gpu.record.lead(tenant).lost_until(now).map(|until| self.anchor.wall_at(until)),
            served_seconds: lanes.iter().map(|(_, lane)| lane.served_ns as f64 / 1e9).sum(),
            wanted_seconds: guest.map(|guest| guest.wanted).unwrap_or_default(),
            stopped_seconds: guest.map(|guest| guest.stopped).unwrap_or_default(),
            kernel_kinds: book.map_or(0, |book| book.kinds() as u64),
            kernel_seconds: profile.kernel.map(|time| time.as_secs_f64()),
            kernel_spread: book.and_then(|book| book.spread()),
            longest_kernel_seconds: profile.longest.map(|time| time.as_secs_f64()),
            prediction_error: book.and_then(|book| book.error()),
            prediction_off: book.and_then(|book| book.off()),
            sm_share: profile.demand,
            bandwidth_share: lanes.iter().filter_map(|(id, _)| gpu.bandwidth.of(*id)).max_by(f64::total_cmp),
            confined_to_sms: gpu_lanes(gpu, lanes)
                .filter_map(|end| self.clients.get(&end.client)?.confined_to(end.lane))
                .min(),
            slowed_by: self.slowed_by(gpu, lanes),
            memory: memory(gpu.memory.room(tenant)),
            requests: guest.map(|guest| guest.goals.figures()).unwrap_or_default(),
            counters: counters(lanes),
        }
    }

    /// Whether those that yield to it do for what it was promised, and not in their turn.
    fn has_lead(&self, gpu: &Gpu, tenant: &TenantKey) -> bool {
        gpu.leads_by_goal(tenant, self.standings, self.anchor.mono)
    }

    /// Of each other tenant, by the two processes of which most was seen.
    fn slowed_by(&self, gpu: &Gpu, lanes: &[(ClientId, &Lane)]) -> Vec<SlowedBy> {
        let mut by_name: BTreeMap<String, SlowedBy> = BTreeMap::new();
        for (other, Rho { mean, error, confidence }) in lanes.iter().flat_map(|(id, _)| gpu.slowed_by(*id)) {
            let Some(name) = self.name_of(other) else { continue };
            let seen = SlowedBy { name: name.clone(), rho: mean, error, confidence };
            let known = by_name.entry(name).or_insert_with(|| seen.clone());
            if seen.confidence > known.confidence {
                *known = seen;
            }
        }
        by_name.into_values().collect()
    }

    fn name_of(&self, client: ClientId) -> Option<String> {
        let tenant = &self.clients.get(&client)?.facts.tenant;
        let name = self.standings.get(tenant).map(|standing| standing.name.clone());
        Some(name.filter(|name| !name.is_empty()).unwrap_or_else(|| tenant.to_string()))
    }

    /// A reason names clients by their numbers; people know them by their tenants.
    fn words(&self, reason: Reason) -> String {
        let text = reason.to_string();
        let named = self.clients.keys().filter_map(|id| Some((format!("client {}", id.0), self.name_of(*id)?)));
        let found = named.filter(|(number, _)| {
            let rest = text.split_once(number.as_str()).map(|(_, rest)| rest);
            rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        });
        found
            .max_by_key(|(number, _)| number.len())
            .map_or(text.clone(), |(number, name)| text.replace(&number, &format!("`{name}`")))
    }
}

fn role(gpu: &Gpu, has_lead: bool, lanes: &[(ClientId, &Lane)], leaders: &BTreeSet<ClientId>) -> KernelRole {
    if !gpu.is_shared() {
        KernelRole::Alone
    } else if has_lead && lanes.iter().any(|(id, _)| gpu.leads(*id)) {
        KernelRole::Leads
    } else if leaders.is_empty() {
        KernelRole::Equal
    } else {
        KernelRole::Yields
    }
}

/// Where these are on the GPU.
fn gpu_lanes<'a>(gpu: &'a Gpu, lanes: &'a [(ClientId, &Lane)]) -> impl Iterator<Item = &'a End> {
    lanes.iter().filter_map(|(id, _)| gpu.ends.get(id))
}

fn memory(room: Room) -> MemoryFigures {
    MemoryFigures {
        memory_allocated_bytes: Some(Bytes(room.has)),
        memory_limit_bytes: room.limit.map(Bytes),
        memory_kept_bytes: room.kept.map(Bytes),
        memory_missing_bytes: room.missing.map(Bytes),
    }
}

fn counters(lanes: &[(ClientId, &Lane)]) -> KernelCounters {
    let mut sum = KernelCounters::default();
    for (_, lane) in lanes {
        let totals = &lane.totals;
        sum.add(&KernelCounters {
            launches: totals.launches,
            stops: totals.stops,
            stops_given_up: totals.stops_given_up,
            preempted: totals.preempted,
            copied_bytes: totals.copied_bytes,
            memory_refused: totals.memory_refused,
            samples: lane.book.samples(),
        });
    }
    sum
}
