//! The monitor as people see it.

use std::collections::{BTreeMap, BTreeSet};

use super::stay::Stay;
use super::{Gpu, Monitor, Naming};
use crate::cluster::PLACEMENT_LABEL;
use crate::event::{ContainerFacts, ProcessKind};
use crate::hold::MEMORY_LABEL;
use crate::id::{GpuIndex, ProcKey, TenantKey};
use crate::quantity::{Bytes, Percent};
use crate::snapshot::{DeadlineTotals, GpuView, Snapshot, SourceView, TaskRow, TaskState};
use crate::time::{Anchor, Mono};
use crate::watch::WatchTotals;

impl Monitor {
    /// The host at `now`, which is the anchor's own instant. Counts of the probes and holds are others' to add.
    pub fn snapshot(&mut self, now: &Anchor) -> Snapshot {
        let ended = self.ended_views.of(&self.ended, now);
        Snapshot {
            taken_at: now.wall,
            gpus: self.gpus.iter().map(|(index, gpu)| self.gpu_view(*index, gpu)).collect(),
            tasks: self.rows(now),
            ended,
            sources: self
                .sources
                .iter()
                .map(|(source, status)| SourceView { source: *source, status: status.clone() })
                .collect(),
            counters: self.counters,
            probes: None,
            management: None,
            deadlines: DeadlineTotals::default(),
            kernels: None,
            watch: WatchTotals::default(),
        }
    }

    /// What a tenant's container is labelled with; `None` if it is no container, or the engine has not told.
    pub fn labels_of(&self, tenant: &TenantKey) -> Option<&BTreeMap<String, String>> {
        self.container_of(tenant).map(|facts| &facts.labels)
    }

    /// The tenant's processes that are on a GPU or on their way there.
    pub fn processes_of(&self, tenant: &TenantKey) -> BTreeSet<ProcKey> {
        let own = self.stays.iter().filter(|(_, stay)| stay.facts.tenant.is(tenant) && stay.is_present());
        own.map(|(process, _)| *process).collect()
    }

    /// The users the tenant's processes run as, one per process; `None` where it is not known.
    pub fn uids_of(&self, tenant: &TenantKey) -> Vec<Option<u32>> {
        let own = self.stays.values().filter(|stay| stay.facts.tenant.is(tenant));
        own.map(|stay| stay.facts.uid).collect()
    }

    /// Processes that compute for the clients of MPS, and are not tenants'.
    pub fn mps_servers(&self) -> BTreeSet<u32> {
        let is_server = |stay: &&Stay| stay.on_gpus.values().any(|presence| presence.kind == ProcessKind::MpsServer);
        self.stays.values().filter(is_server).map(|stay| stay.facts.process.pid).collect()
    }

    pub(super) fn tenants_on(&self, gpu: GpuIndex) -> BTreeSet<&TenantKey> {
        let here = self.stays.values().filter(|stay| stay.on_gpus.contains_key(&gpu));
        here.map(|stay| &stay.facts.tenant).collect()
    }

    pub(super) fn name_of(&self, tenant: &TenantKey) -> String {
        if let Some(facts) = self.container_of(tenant) {
            return facts.name.clone();
        }
        match tenant {
            TenantKey::Container { id, .. } => id.short().to_owned(),
            TenantKey::Cgroup { path } => path.clone(),
            TenantKey::User { uid } => self.user_of(tenant).unwrap_or_else(|| uid.to_string()),
        }
    }

    /// Who a tenant belongs to: its container's owner if one is told, else the user its processes run as.
    pub(super) fn owner_of(&self, tenant: &TenantKey) -> Option<String> {
        self.container_of(tenant).and_then(|facts| facts.owner.clone()).or_else(|| self.user_of(tenant))
    }

    pub(super) fn image_of(&self, tenant: &TenantKey) -> Option<String> {
        self.container_of(tenant).map(|facts| facts.image.clone())
    }

    fn container_of(&self, tenant: &TenantKey) -> Option<&ContainerFacts> {
        match self.containers.get(tenant.container_id()?)? {
            Naming::Known(facts) => Some(facts),
            Naming::Asked => None,
        }
    }

    fn user_of(&self, tenant: &TenantKey) -> Option<String> {
        let facts = &self.stays.values().find(|stay| stay.facts.tenant == *tenant)?.facts;
        facts.user.clone().or_else(|| facts.uid.map(|uid| uid.to_string()))
    }

    fn gpu_view(&self, index: GpuIndex, gpu: &Gpu) -> GpuView {
        let info = gpu.info.as_ref();
        GpuView {
            index,
            uuid: info.map(|info| info.uuid.clone()),
            name: info.map(|info| info.name.clone()),
            memory_used_bytes: gpu.memory_used,
            memory_total_bytes: info.and_then(|info| info.memory_total),
            core_pct: gpu.core,
            tenants: u32::try_from(self.tenants_on(index).len()).unwrap_or(u32::MAX),
            lost: gpu.lost.clone(),
            blind: gpu.blind.clone(),
            mig: info.and_then(|info| info.mig),
        }
    }

    /// One row per tenant and GPU it is listed on; one without a GPU for a tenant the driver does not list yet.
    fn rows(&self, now: &Anchor) -> Vec<TaskRow> {
        let mut by_tenant: BTreeMap<&TenantKey, Vec<&Stay>> = BTreeMap::new();
        for stay in self.stays.values() {
            by_tenant.entry(&stay.facts.tenant).or_default().push(stay);
        }
        let mut rows = Vec::new();
        for (tenant, stays) in by_tenant {
            let gpus: BTreeSet<GpuIndex> = stays.iter().flat_map(|stay| stay.on_gpus.keys().copied()).collect();
            rows.extend(gpus.iter().map(|gpu| self.row(tenant, &stays, Some(*gpu), now)));
            if gpus.is_empty() && stays.iter().any(|stay| stay.is_present()) {
                rows.push(self.row(tenant, &stays, None, now));
            }
        }
        rows.sort_by(|a, b| {
            (a.gpu_index, a.task_started_at, &a.tenant).cmp(&(b.gpu_index, b.task_started_at, &b.tenant))
        });
        rows
    }

    fn row(&self, tenant: &TenantKey, stays: &[&Stay], gpu: Option<GpuIndex>, now: &Anchor) -> TaskRow {
        let is_here = |stay: &&Stay| match gpu {
            Some(gpu) => stay.on_gpus.contains_key(&gpu),
            None => stay.is_present(),
        };
        let stays: Vec<&Stay> = stays.iter().copied().filter(is_here).collect();
        let presences = || stays.iter().filter_map(|stay| stay.on_gpus.get(&gpu?));
        let task = self.tasks.get(tenant);
        let container = self.container_of(tenant);
        let label = |name: &str| container.and_then(|facts| facts.labels.get(name));
        TaskRow {
            tenant: tenant.clone(),
            container_id: tenant.container_id().cloned(),
            container_name: self.name_of(tenant),
            owner: self.owner_of(tenant),
            image: self.image_of(tenant),
            container_started_at: container.and_then(|facts| facts.started_at),
            command: stays.first().map(|stay| stay.facts.command.clone()).unwrap_or_default(),
            pids: stays.iter().map(|stay| stay.facts.process.pid).collect(),
            process_kinds: presences().map(|p| p.kind).collect::<BTreeSet<_>>().into_iter().collect(),
            gpu_uuid: gpu.and_then(|gpu| self.gpus.get(&gpu)?.info.as_ref()).map(|info| info.uuid.clone()),
            gpu_index: gpu,
            gpu_memory_bytes: presences()
                .map(|presence| presence.memory)
                .sum::<Option<Bytes>>()
                .filter(|_| gpu.is_some_and(|gpu| !self.is_lost(gpu))),
            gpu_core_pct: gpu.and_then(|gpu| self.core_of(&stays, gpu, now.mono)),
            state: self.state_of(&stays, gpu, task.is_some(), now.mono),
            task_id: task.map(|task| task.id),
            task_started_at: task.map(|task| now.wall_at(task.started)),
            task_seconds: task.map(|task| now.mono.since(task.started).as_secs_f64()),
            task_start_evidence: task.map(|task| task.evidence),
            hold: None,
            held_seconds: None,
            deadline: None,
            memory_needed_bytes: label(MEMORY_LABEL).and_then(|text| text.parse().ok()),
            placement: label(PLACEMENT_LABEL).and_then(|text| text.parse().ok()),
        }
    }

    /// What a tenant had on a lost GPU says nothing about now.
    fn is_lost(&self, gpu: GpuIndex) -> bool {
        self.gpus.get(&gpu).is_some_and(|gpu| gpu.lost.is_some())
    }

    fn core_of(&self, stays: &[&Stay], gpu: GpuIndex, now: Mono) -> Option<Percent> {
        if self.is_lost(gpu) {
            return None;
        }
        if let Some(core) = self.sole_core(gpu, now) {
            return Some(core);
        }
        let fresh = self.settings.utilisation_interval.get() * 3;
        let shares = stays.iter().map(|stay| stay.on_gpus.get(&gpu)?.core.filter(|(_, at)| now.since(*at) < fresh));
        shares
            .map(|share| share.map(|(core, _)| core))
            .try_fold(Percent::default(), |sum, core| Some(sum.saturating_add(core?)))
    }

    fn state_of(&self, stays: &[&Stay], gpu: Option<GpuIndex>, has_task: bool, now: Mono) -> TaskState {
        let is_lost = gpu.is_some_and(|gpu| self.is_lost(gpu));
        let computed_at = stays.iter().filter_map(|stay| stay.computed_at).max();
        match computed_at {
            _ if is_lost => TaskState::Lost,
            _ if !has_task => TaskState::Opening,
            None => TaskState::Loaded,
            Some(at) if now.since(at) < self.settings.idle_after.get() => TaskState::Computing,
            Some(_) => TaskState::Idle,
        }
    }
}
