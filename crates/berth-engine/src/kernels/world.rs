//! Everybody who has attached, by GPU: answers those who ask, looks, plans, and lets go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_host::clock;
use berth_host::shim::{ClientClock, ClientId, End, Shim, Told};
use berth_model::kernels::{KernelNews, KernelTotals, PolicyChosen};
use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_model::{BandwidthUse, Event, GpuIndex, GpuReading, GpuUuid, Mono, ProcKey, ProcessFacts, Sample, TenantKey};
use berth_proto::shim::message::Refusal;

use super::client::{Client, Ended};
use super::gpu::{Cast, Gpu, News};
use super::memory::Seen;
use super::policies::Policies;
use super::record::Record;
use super::standing::Standing;
use super::still::Still;
use super::{SHOWN_EVERY, Shared, places, show};

/// How long a process may be attached of whose container nothing is known; then it goes on without berth.
const KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// Between two readings of samples: what a client could have the daemon read in vain is bounded by it.
const SAMPLED_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct World {
    settings: KernelSettings,
    policies: Policies,
    still: Still,
    shim: Shim,
    event_tx: Sender<Event>,
    shared: Arc<Mutex<Shared>>,
    /// Those who take part no more.
    refused: BTreeSet<TenantKey>,
    clients: BTreeMap<ClientId, Client>,
    standings: BTreeMap<TenantKey, Standing>,
    gpus: BTreeMap<GpuUuid, Gpu>,
    /// Of GPUs that nobody uses now.
    records: BTreeMap<GpuUuid, Record>,
    indices: BTreeMap<GpuUuid, GpuIndex>,
    /// The processes that the driver sees on each.
    pids: BTreeMap<GpuUuid, BTreeSet<u32>>,
    totals: KernelTotals,
    sampled_at: Option<Mono>,
    shown_at: Option<Mono>,
}

impl World {
    pub fn new(
        settings: KernelSettings,
        still: Still,
        shim: Shim,
        event_tx: Sender<Event>,
        shared: Arc<Mutex<Shared>>,
    ) -> Self {
        let mut world = Self {
            policies: Policies::new(&settings),
            settings,
            still,
            shim,
            event_tx,
            shared,
            refused: BTreeSet::new(),
            clients: BTreeMap::new(),
            standings: BTreeMap::new(),
            gpus: BTreeMap::new(),
            records: BTreeMap::new(),
            indices: BTreeMap::new(),
            pids: BTreeMap::new(),
            totals: KernelTotals::default(),
            sampled_at: None,
            shown_at: None,
        };
        world.show(clock::now());
        world
    }

    /// How long nothing has to be done; `None`: for ever.
    pub fn wait(&self, now: Mono) -> Option<Duration> {
        let unknown = self.clients.values().filter(|client| !client.takes_part);
        let answers: Vec<Duration> =
            unknown.map(|client| KNOWN_WITHIN.saturating_sub(now.since(client.attached_at))).collect();
        self.gpus.values().map(Gpu::pace).chain(answers).min()
    }

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
    fn refuse(&mut self, client: ClientId, why: Refusal, now: Mono) {
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

    /// `None`: on all GPUs.
    pub fn set_policy(&mut self, gpu: Option<GpuUuid>, policy: KernelPolicyName, now: Mono) {
        for (_, gpu) in self.gpus.iter_mut().filter(|(uuid, _)| gpu.as_ref().is_none_or(|gpu| gpu == *uuid)) {
            gpu.plan_anew();
            gpu.measure_anew(now);
        }
        self.policies.set(gpu, policy, &self.settings);
        self.shown_at = None;
    }

    /// The GPUs there are, by the driver's own list, and who is on them.
    pub fn meet_gpus(&mut self, gpus: BTreeMap<GpuUuid, GpuIndex>, pids: BTreeMap<GpuUuid, BTreeSet<u32>>) {
        self.policies.meet(&gpus, &self.settings);
        (self.indices, self.pids) = (gpus, pids);
        self.find_strangers();
        self.shown_at = None;
    }

    /// Who takes no part, or not any more.
    fn find_strangers(&mut self) {
        let own = self.clients.values().filter(|client| client.takes_part);
        let own: BTreeSet<u32> = own.map(|client| client.facts.process.pid).collect();
        for (uuid, gpu) in &mut self.gpus {
            let has_strangers = self.pids.get(uuid).is_some_and(|pids| !pids.is_subset(&own));
            if gpu.has_strangers != has_strangers {
                gpu.has_strangers = has_strangers;
                gpu.plan_anew();
            }
        }
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

    /// Looks, plans and carries out.
    pub fn turn(&mut self, now: Mono) {
        self.refuse_unknown(now);
        self.see_who_stands_still(now);
        self.take_samples(now);
        let (mut news, mut chosen) = (Vec::new(), Vec::new());
        let Self { gpus, clients, standings, settings, policies, shim, totals, still, .. } = self;
        let runs = |pid: u32| still.runs(pid);
        let mut cast = Cast { clients, standings, settings, runs: &runs };
        for (uuid, gpu) in gpus.iter_mut() {
            let told = gpu.look(&mut cast, shim, now);
            news.extend(told.into_iter().map(|news| (uuid.clone(), news)));
            if let Some(seen) = gpu.window(&cast, now) {
                gpu.latest = Some((seen.figures(policies.in_place(uuid)), now));
                if let Some(change) = policies.window(uuid, &seen, settings, now) {
                    gpu.plan_anew();
                    chosen.push(change);
                }
            }
            totals.plans += u64::from(gpu.plan(policies.of(uuid), &mut cast, shim, now));
        }
        news.into_iter().for_each(|(gpu, news)| self.tell_of(&gpu, news, now));
        chosen.into_iter().for_each(|chosen| self.tell_of_policy(chosen));
        self.ask_to_keep_off();
        self.ask_what_is_free();
        if self.shown_at.is_none_or(|at| now.since(at) >= SHOWN_EVERY) {
            self.show(now);
        }
    }

    /// What was used of GPUs' memory bandwidth.
    pub fn see_bandwidth(&mut self, uses: &[BandwidthUse]) {
        for seen in uses {
            let uuid = self.indices.iter().find(|(_, index)| **index == seen.gpu).map(|(uuid, _)| uuid);
            let Some(gpu) = uuid.and_then(|uuid| self.gpus.get_mut(uuid)) else { continue };
            let cast = Cast {
                clients: &mut self.clients,
                standings: &self.standings,
                settings: &self.settings,
                runs: &|_| true,
            };
            gpu.saw_bandwidth(&cast, seen);
        }
    }

    /// What is free on each GPU, and who has how much, as the driver tells.
    pub fn see_memory(&mut self, sample: &Sample) {
        for seen in &sample.gpus {
            let uuid = self.indices.iter().find(|(_, index)| **index == seen.index).map(|(uuid, _)| uuid);
            let Some(gpu) = uuid.and_then(|uuid| self.gpus.get_mut(uuid)) else { continue };
            let GpuReading::Ok { memory_free: Some(free), processes, .. } = &seen.reading else { continue };
            let processes = processes.iter().flatten();
            let by_pid = processes.filter_map(|one| Some((one.process.pid, one.memory?.0))).collect();
            gpu.memory.see(Seen { at: sample.at, free: free.0, by_pid });
        }
    }

    fn see_who_stands_still(&mut self, now: Mono) {
        if self.gpus.values().any(Gpu::is_shared) {
            self.still.look(&self.clients, now);
        }
        for (id, client) in &mut self.clients {
            let is_held = self.standings.get(&client.facts.tenant).is_some_and(|standing| standing.is_held);
            client.is_still = is_held || self.still.is_so(*id);
        }
    }

    /// The loop is told whom to hold, where that has changed.
    fn ask_to_keep_off(&self) {
        let keep_off: BTreeMap<TenantKey, String> = self.gpus.values().flat_map(|gpu| gpu.offences.to_hold()).collect();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.keep_off != keep_off {
            shared.keep_off = keep_off;
            drop(shared);
            self.wake(Event::Asked);
        }
    }

    /// The loop is told whether somebody goes by what is free.
    fn ask_what_is_free(&self) {
        let keeps_memory = self.gpus.values().any(|gpu| gpu.memory.is_reserved());
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.keeps_memory != keeps_memory {
            shared.keeps_memory = keeps_memory;
            drop(shared);
            self.wake(Event::Asked);
        }
    }

    /// Of whom nothing came to be known.
    fn refuse_unknown(&mut self, now: Mono) {
        let is_late = |client: &Client| !client.takes_part && now.since(client.attached_at) >= KNOWN_WITHIN;
        let late: Vec<ClientId> =
            self.clients.iter().filter(|(_, client)| is_late(client)).map(|(id, _)| *id).collect();
        late.into_iter().for_each(|client| self.refuse(client, Refusal::NotAsked, now));
    }

    fn take_samples(&mut self, now: Mono) {
        let is_time = self.sampled_at.is_none_or(|at| now.since(at) >= SAMPLED_EVERY);
        let mut ended: BTreeMap<GpuUuid, Vec<(ClientId, Ended)>> = BTreeMap::new();
        for (id, client) in &mut self.clients {
            for one in client.take_requests(now) {
                let Some(lane) = client.lanes.get(&one.lane) else { continue };
                ended.entry(lane.gpu.clone()).or_default().push((*id, one));
            }
            let samples = if is_time { client.take_samples() } else { Vec::new() };
            for sample in samples {
                let Some(lane) = client.lanes.get_mut(&sample.lane) else { continue };
                let Some(gpu) = self.gpus.get_mut(&lane.gpu) else { continue };
                gpu.sampled(*id, lane, &sample, Mono(client.clock.to_own(sample.at_ns)));
            }
        }
        let Self { gpus, clients, standings, settings, .. } = self;
        let cast = Cast { clients, standings, settings, runs: &|_| true };
        for (uuid, ended) in ended {
            gpus.get_mut(&uuid).into_iter().for_each(|gpu| gpu.ended(&ended, &cast, now));
        }
        if is_time {
            gpus.values_mut().for_each(|gpu| gpu.learn_company(&cast));
            self.sampled_at = Some(now);
        }
    }

    fn tell_of(&mut self, gpu: &GpuUuid, news: News, now: Mono) {
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

    fn tell_of_policy(&mut self, chosen: PolicyChosen) {
        self.shown_at = None;
        let gpu = self.indices.get(&chosen.gpu_uuid).copied();
        self.wake(Event::PolicyChosen(Box::new(PolicyChosen { gpu, ..chosen })));
    }

    fn show(&mut self, now: Mono) {
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

    fn tell(&mut self, tenant: TenantKey, news: KernelNews, at: Mono) {
        self.shown_at = None;
        self.wake(Event::Kernels { tenant, news, at });
    }

    fn wake(&self, event: Event) {
        // Gone only with the loop, which ends this thread first.
        let _ = self.event_tx.send(event);
    }

    /// Everybody is free before the socket is gone.
    pub fn end(mut self) {
        for gpu in self.gpus.values_mut() {
            gpu.links.clear(&self.shim, clock::now());
        }
    }
}
