//! Everybody who has attached, by GPU: looks, plans, and lets go. Who comes and goes is in `door`, what is told in `tell`.

mod door;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_host::clock;
use berth_host::shim::{ClientId, Shim};
use berth_model::kernels::KernelTotals;
use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_model::{BandwidthUse, Event, GpuIndex, GpuReading, GpuUuid, Mono, Sample, TenantKey};

use super::client::{Client, Ended};
use super::gpu::{Cast, Gpu};
use super::memory::Seen;
use super::policies::Policies;
use super::record::Record;
use super::standing::Standing;
use super::still::Still;
use super::{SHOWN_EVERY, Shared};
use door::KNOWN_WITHIN;

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

    /// Everybody is free before the socket is gone.
    pub fn end(mut self) {
        for gpu in self.gpus.values_mut() {
            gpu.links.clear(&self.shim, clock::now());
        }
    }
}
