//! One GPU: looks at its clients, has the policy plan, and carries the plan out.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_host::shim::{ClientId, End, Shim};
use berth_model::settings::KernelSettings;
use berth_model::{GpuUuid, Mono, Slo, TenantKey};
use berth_policy::kernels::{self, CoRun, Kept, KernelPolicy, Learned, Place, Plan, Reason, Scene};

use super::client::Client;
use super::links::{Links, Pair};
use super::standing::Standing;

/// One GPU that clients use.
#[derive(Debug, Default)]
pub(super) struct Gpu {
    pub ends: BTreeMap<ClientId, End>,
    pub links: Links,
    learned: Learned,
    /// What is carried out now; `None` where nothing has to be ordered.
    plan: Option<Plan>,
    /// Who had work when it was made.
    planned_for: Vec<(kernels::ClientId, bool)>,
    looked_at: Option<Mono>,
}

/// Everybody, and what is known of their tenants.
pub(super) struct Cast<'a> {
    pub clients: &'a mut BTreeMap<ClientId, Client>,
    pub standings: &'a BTreeMap<TenantKey, Standing>,
    pub settings: &'a KernelSettings,
}

/// What is worth telling of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LeadLost {
    pub client: ClientId,
    pub until: Mono,
}

impl Gpu {
    /// Takes in what the ledgers say, and counts the time that has passed. Who leads others for too long loses its lead.
    pub fn look(&mut self, uuid: &GpuUuid, cast: &mut Cast<'_>, now: Mono) -> Vec<LeadLost> {
        let passed = self.looked_at.replace(now).map_or(Duration::ZERO, |at| now.since(at));
        let mut busy = BTreeMap::new();
        for (id, end) in &self.ends {
            let Some(client) = cast.clients.get_mut(id) else { continue };
            client.read(end.lane, now);
            let is_busy = client.lanes.get(&end.lane).is_some_and(|lane| lane.doing.busy);
            busy.insert(*id, (is_busy, self.may_run(*end)));
        }
        let together = busy.values().filter(|(busy, may_run)| *busy && *may_run).count();
        let mut lost = Vec::new();
        for (id, end) in &self.ends {
            let Some((_, may_run)) = busy.get(id) else { continue };
            let stops = self.links.stopped_by(*end).any(|who| busy.get(&who.client).is_some_and(|(busy, _)| *busy));
            let Some(client) = cast.clients.get_mut(id) else { continue };
            let most = most_led(cast.standings.get(&client.facts.tenant), cast.settings);
            let Some(lane) = client.lanes.get_mut(&end.lane).filter(|lane| lane.gpu == *uuid) else { continue };
            lane.pass(*may_run, together, passed, now);
            if lane.lead.look(stops, most, passed, now) {
                lost.extend(lane.lead.lost_until(now).map(|until| LeadLost { client: *id, until }));
            }
        }
        self.links.free_unwanted();
        if !lost.is_empty() {
            self.plan_anew();
        }
        lost
    }

    /// The plan that is carried out counts no longer.
    pub fn plan_anew(&mut self) {
        self.planned_for.clear();
    }

    fn may_run(&self, end: End) -> bool {
        !self.links.is_stopped(end)
    }

    /// Whether there is anything to plan: two that could be in each other's way.
    pub fn is_shared(&self) -> bool {
        self.ends.len() > 1
    }

    /// When to look again: often while two have work at the same time.
    pub fn pace(&self, cast: &Cast<'_>) -> Duration {
        let is_busy = |(id, end): (&ClientId, &End)| {
            let lane = cast.clients.get(id).and_then(|client| client.lanes.get(&end.lane));
            lane.is_some_and(|lane| lane.doing.busy)
        };
        match (self.is_shared(), self.ends.iter().filter(|one| is_busy(*one)).count()) {
            (false, _) => super::ALONE,
            (true, 0 | 1) => super::CALM,
            (true, _) => super::CONTENDED,
        }
    }

    /// Plans anew where the last plan is over or somebody it counted on has come, gone, begun or ended; and carries it out.
    /// Whether it did.
    pub fn plan(&mut self, policy: Option<&dyn KernelPolicy>, cast: &mut Cast<'_>, shim: &Shim, now: Mono) -> bool {
        let Some(policy) = policy.filter(|_| self.is_shared()) else {
            if self.plan.take().is_some() {
                self.links.clear(shim);
            }
            self.order_alone(cast);
            return false;
        };
        let clients = self.clients(cast, now);
        let busy: Vec<(kernels::ClientId, bool)> = clients.iter().map(|client| (client.id, client.busy)).collect();
        if self.plan.as_ref().is_some_and(|plan| plan.squad.until > now) && self.planned_for == busy {
            return false;
        }
        self.planned_for = busy;
        let place = self.place(cast);
        let scene = Scene { now, gpu: place, clients: &clients, learned: &self.learned };
        let plan = policy.plan(&scene);
        self.learn(&clients, cast.settings, now);
        self.carry_out(&plan, &clients, cast, shim, now);
        self.plan = Some(plan);
        true
    }

    /// Who is alone is ordered nothing but to measure.
    fn order_alone(&self, cast: &mut Cast<'_>) {
        let settings = cast.settings;
        for (id, end) in &self.ends {
            let Some(client) = cast.clients.get_mut(id) else { continue };
            let constraints = cast.standings.get(&client.facts.tenant).map(|of| of.slo.constraints).unwrap_or_default();
            let orders = kernels::Orders {
                grain: settings.grain.get(),
                linger: settings.linger.get(),
                long: None,
                longest_stop: settings.longest_stop.get(),
                copy_bytes_per_second: constraints.copy.map(|bytes| bytes.0),
                memory_bytes: constraints.memory.map(|bytes| bytes.0),
            };
            client.order(end.lane, orders, None, settings.sample_every);
        }
    }

    fn clients(&self, cast: &Cast<'_>, now: Mono) -> Vec<kernels::Client> {
        let each = self.ends.iter().filter_map(|(id, end)| {
            let client = cast.clients.get(id)?;
            let lane = client.lanes.get(&end.lane)?;
            let standing = cast.standings.get(&client.facts.tenant);
            let slo = if lane.lead.is_lost(now) { Slo::default() } else { self.slo(standing, &lane.gpu) };
            Some(kernels::Client {
                id: kernels::ClientId(id.0),
                tenant: client.facts.tenant.clone(),
                owner: standing.and_then(|standing| standing.owner.clone()),
                attainment: lane.requests.attainment(&slo, now),
                slo,
                arrived: lane.arrived,
                busy: lane.doing.busy,
                waiting_since: lane.waiting_since,
                profile: lane.book.profile(lane.requests.takes()),
                work: lane.requests.work(lane.served_ns),
                served_ns: lane.served_ns,
            })
        });
        each.collect()
    }

    /// Nobody leads on a GPU on which the driver has not seen it: what it says of itself is not enough to stop others.
    fn slo(&self, standing: Option<&Standing>, gpu: &GpuUuid) -> Slo {
        let Some(standing) = standing else { return Slo::default() };
        if standing.gpus.contains(gpu) {
            return standing.slo.clone();
        }
        Slo { constraints: standing.slo.constraints, ..Slo::default() }
    }

    fn place(&self, cast: &Cast<'_>) -> Place {
        let lanes = || self.ends.iter().filter_map(|(id, end)| cast.clients.get(id)?.lanes.get(&end.lane));
        let tenants = self.ends.keys().filter_map(|id| Some(&cast.clients.get(id)?.facts.tenant));
        let concurrent = tenants.map(|tenant| cast.standings.get(tenant)).all(|of| of.is_some_and(|of| of.is_mps));
        Place {
            sms: lanes().map(|lane| lane.sms).min().unwrap_or(0),
            divides: lanes().all(|lane| lane.divides),
            concurrent,
        }
    }

    fn learn(&mut self, clients: &[kernels::Client], settings: &KernelSettings, now: Mono) {
        if self.plan.as_ref().is_none_or(|plan| plan.squad.until > now) {
            return;
        }
        let kept = |client: &kernels::Client| Kept {
            who: client.id,
            target: client.slo.target().get(),
            actual: client.attainment,
        };
        let kept: Vec<Kept> = clients.iter().map(kept).collect();
        self.learned.weights.squad_over(&kept, f64::from(settings.alpha_milli) / 1e3);
    }

    /// Work of `who` was measured while others ran beside it.
    pub fn co_ran(&mut self, who: ClientId, estimated_ns: u64, took_ns: u64) {
        let Some(plan) = &self.plan else { return };
        let members = &plan.squad.members;
        let who = kernels::ClientId(who.0);
        if members.len() < 2 || estimated_ns == 0 || took_ns == 0 || !plan.runs(who) {
            return;
        }
        let share = 1.0 / members.len() as f64;
        let beside = members.iter().map(|member| member.who).filter(|other| *other != who);
        let speed = (estimated_ns as f64 / took_ns as f64).min(1.0);
        self.learned.interference.saw(&CoRun {
            who,
            share,
            beside: beside.map(|other| (other, share)).collect(),
            speed,
        });
    }

    fn carry_out(&mut self, plan: &Plan, clients: &[kernels::Client], cast: &mut Cast<'_>, shim: &Shim, now: Mono) {
        let end = |id: kernels::ClientId| self.ends.get(&ClientId(id.0)).copied();
        let mut wanted: Vec<Pair> =
            plan.yields.iter().filter_map(|link| Some((end(link.who)?, Some(end(link.to)?)))).collect();
        let waits: BTreeMap<End, bool> =
            clients.iter().filter_map(|client| Some((end(client.id)?, waits(plan, clients, client)))).collect();
        // Equals yield to the daemon from the first time that one of them has to wait.
        let turns = waits.values().any(|waits| *waits);
        wanted.extend(waits.keys().filter(|_| turns).map(|end| (*end, None)));
        self.links.want(&wanted, shim, now);
        waits.iter().for_each(|(end, waits)| self.links.stop(*end, *waits));
        let place = self.place(cast);
        for (id, orders) in &plan.orders {
            let member = plan.squad.members.iter().find(|member| member.who == *id);
            let part = member.and_then(|member| member.part).filter(|part| part.counts(now));
            let sms = part.map(|part| part.sms(place.sms));
            let Some(end) = self.ends.get(&ClientId(id.0)).copied() else { continue };
            let Some(client) = cast.clients.get_mut(&end.client) else { continue };
            client.order(end.lane, *orders, sms, cast.settings.sample_every);
        }
    }

    pub fn reason(&self, who: ClientId) -> Option<Reason> {
        let plan = self.plan.as_ref()?;
        plan.reasons.iter().find(|(of, _)| of.0 == who.0).map(|(_, reason)| *reason)
    }

    pub fn leads(&self, who: ClientId) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.yields.iter().any(|link| link.to.0 == who.0))
    }

    pub fn forget(&mut self, client: ClientId, shim: &Shim) {
        if self.ends.remove(&client).is_some() {
            self.links.forget(client, shim);
            self.learned.forget(kernels::ClientId(client.0));
        }
    }
}

/// Whether the daemon has it wait. One that yields to somebody who runs needs no word of the daemon's: it goes on the moment that one is done.
fn waits(plan: &Plan, clients: &[kernels::Client], who: &kernels::Client) -> bool {
    let runs = |id: kernels::ClientId| plan.runs(id) && clients.iter().any(|client| client.id == id && client.busy);
    !plan.runs(who.id) && !plan.yields.iter().any(|link| link.who == who.id && runs(link.to))
}

/// The part of the time for which it may keep others stopped.
fn most_led(standing: Option<&Standing>, settings: &KernelSettings) -> f64 {
    let own = standing.and_then(|standing| standing.slo.constraints.most).map_or(1.0, |most| most.get());
    own.min(f64::from(settings.lead_share.get()) / 100.0)
}
