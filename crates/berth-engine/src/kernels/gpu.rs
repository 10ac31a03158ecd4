//! One GPU: its clients, and what the policy plans for them. `look` sees what they do, `carry` does what the plan says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::shim::{ClientId, End, Shim};
use berth_model::kernels::WindowFigures;
use berth_model::settings::KernelSettings;
use berth_model::{BandwidthUse, Bytes, GpuUuid, Mono, Slo, TenantKey};
use berth_policy::kernels::interference::Rho;
use berth_policy::kernels::{self, KernelPolicy, Learned, Phi, Place, Plan, Profile, Reason, Scene, Work};
use berth_proto::shim::Sample;

use super::bandwidth::Bandwidth;
use super::client::{Client, Lane};
use super::copies::Copies;
use super::guests::{Beside, Crew, Guest};
use super::links::Links;
use super::measure::Meter;
use super::memory::Memory;
use super::offences::Offences;
use super::profile::took_ns;
use super::record::Record;
use super::sms;
use super::standing::Standing;
use super::windows::{Company, Windows};

/// One GPU that clients use.
#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) uuid: GpuUuid,
    /// Everybody who says that it uses it.
    pub ends: BTreeMap<ClientId, End>,
    /// Those of them whose tenants the driver has seen there. Nobody else is linked or waited for.
    pub(super) present: BTreeMap<ClientId, Present>,
    pub links: Links,
    pub guests: BTreeMap<TenantKey, Guest>,
    pub record: Record,
    pub(super) offences: Offences,
    /// A process is there that does not take part, as far as the driver tells.
    pub(super) has_strangers: bool,
    /// Of whom links are remembered.
    pub(super) met: BTreeMap<ClientId, (TenantKey, u32)>,
    pub(super) learned: Learned,
    pub(super) bandwidth: Bandwidth,
    pub memory: Memory,
    pub(super) copies: Copies,
    pub(super) windows: Windows,
    pub(super) meter: Meter,
    /// What the latest window came to, and when it was over.
    pub latest: Option<(WindowFigures, Mono)>,
    /// What is carried out now; `None` where nothing has to be ordered.
    pub(super) plan: Option<Plan>,
    /// What it was made for.
    planned_for: Vec<(kernels::ClientId, Option<Mono>, bool)>,
    /// Of each pair of the plan that has no link, both. The daemon's word is in its place.
    pub(super) unlinked: BTreeSet<End>,
    /// When the SMs that are split for the plan's first part are to be one again.
    pub(super) lifts_at: Option<Mono>,
    pub(super) looked_at: Option<Mono>,
}

/// One client at the last look.
#[derive(Debug, Clone)]
pub(super) struct Present {
    pub end: End,
    pub tenant: TenantKey,
    pub busy: bool,
    pub may_run: bool,
    pub demand: f64,
}

/// Everybody, and what is known of their tenants.
pub(super) struct Cast<'a> {
    pub clients: &'a mut BTreeMap<ClientId, Client>,
    pub standings: &'a BTreeMap<TenantKey, Standing>,
    pub settings: &'a KernelSettings,
    /// Whether a process is neither stopped nor gone.
    pub runs: &'a dyn Fn(u32) -> bool,
}

/// What is worth telling of a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    LeadLost { tenant: TenantKey, until: Mono },
    Parted { tenant: TenantKey, from: TenantKey },
    Refused { tenant: TenantKey, reason: String },
}

impl Gpu {
    pub fn new(uuid: GpuUuid, record: Record) -> Self {
        Self {
            uuid,
            ends: BTreeMap::new(),
            present: BTreeMap::new(),
            links: Links::default(),
            guests: BTreeMap::new(),
            record,
            unlinked: BTreeSet::new(),
            offences: Offences::default(),
            has_strangers: false,
            met: BTreeMap::new(),
            learned: Learned::default(),
            bandwidth: Bandwidth::default(),
            memory: Memory::default(),
            copies: Copies::default(),
            windows: Windows::default(),
            meter: Meter::default(),
            latest: None,
            plan: None,
            planned_for: Vec::new(),
            lifts_at: None,
            looked_at: None,
        }
    }

    /// A client says that it uses this GPU.
    pub fn add(&mut self, end: End, client: &Client) {
        self.ends.insert(end.client, end);
        self.met.insert(end.client, (client.facts.tenant.clone(), client.facts.process.pid));
    }

    /// The plan that is carried out counts no longer.
    pub fn plan_anew(&mut self) {
        self.planned_for.clear();
    }

    /// Whether the driver has seen this tenant here.
    pub(super) fn is_seen(&self, tenant: &TenantKey, cast: &Cast<'_>) -> bool {
        cast.standings.get(tenant).is_some_and(|standing| standing.gpus.contains(&self.uuid))
    }

    /// Whether there is anything to plan: two tenants that could be in each other's way.
    pub fn is_shared(&self) -> bool {
        let mut tenants = self.present.values().map(|one| &one.tenant);
        tenants.next().is_some_and(|first| tenants.any(|other| other != first))
    }

    /// When to look again: often while two have work at the same time, and while one has that stands for the other by the daemon's word alone.
    pub fn pace(&self) -> Duration {
        let busy = self.present.values().filter(|one| one.busy).count();
        let is_unlinked = || self.present.values().any(|one| one.busy && self.unlinked.contains(&one.end));
        match (self.is_shared(), busy) {
            _ if self.links.wait_for_a_look() => super::CONTENDED,
            (true, 1) if is_unlinked() => super::CONTENDED,
            (false, _) => super::ALONE,
            (true, 0 | 1) => super::CALM,
            (true, _) => super::CONTENDED,
        }
    }

    /// Plans anew where the last plan is over or somebody it counted on has come, gone, begun or ended; and carries it out.
    /// Whether it did.
    pub fn plan(&mut self, policy: Option<&dyn KernelPolicy>, cast: &mut Cast<'_>, shim: &Shim, now: Mono) -> bool {
        self.order_memory(cast, now);
        let Some(policy) = policy.filter(|_| self.is_shared()) else {
            self.unlinked.clear();
            if self.plan.take().is_some() {
                self.links.clear(shim, now);
            }
            self.order_alone(cast, now);
            return false;
        };
        let clients = self.clients(cast, now);
        // Whoever begins another request without a pause is another to plan for.
        let begun = |client: &kernels::Client| client.work.map(|work| work.began).filter(|_| client.busy);
        let now_for: Vec<(kernels::ClientId, Option<Mono>, bool)> =
            clients.iter().map(|client| (client.id, begun(client), client.slo.promises())).collect();
        if self.plan.as_ref().is_some_and(|plan| plan.squad.until > now) && self.planned_for == now_for {
            self.lift(cast, now);
            return false;
        }
        self.planned_for = now_for;
        self.learned.weights.follow(&clients, cast.settings, now);
        let place = self.place(cast);
        let scene = Scene { now, gpu: place, clients: &clients, learned: &self.learned };
        let plan = self.undivided(policy.plan(&scene), cast);
        self.carry_out(&plan, &clients, cast, shim, now);
        self.plan = Some(plan);
        true
    }

    pub(super) fn clients(&self, cast: &Cast<'_>, now: Mono) -> Vec<kernels::Client> {
        let crews = self.crews(cast, now);
        let each = self.present.iter().filter_map(|(id, one)| {
            let client = cast.clients.get(id)?;
            let lane = client.lanes.get(&one.end.lane)?;
            let standing = cast.standings.get(&one.tenant);
            let beside = crews.get(&one.tenant).map(|crew| crew.without(lane, now)).unwrap_or_default();
            let mut slo = self.slo(client, beside, standing, now);
            // One that all of its processes that copy have together.
            let budget =
                self.copies.budget(&one.tenant).map(|bytes| Bytes((bytes / (beside.copying as u64 + 1)).max(1)));
            slo.constraints.copy = slo.constraints.copy.into_iter().chain(budget).min();
            // Who belongs to nobody shares with nobody but its own processes.
            let owner = standing.and_then(|standing| standing.owner.clone()).or_else(|| Some(one.tenant.to_string()));
            let is_misjudged = standing.is_some_and(|standing| standing.is_misjudged);
            let careful = if is_misjudged { lane.book.careful() } else { 1.0 };
            let profile = lane.book.profile(lane.takes);
            // Fairness is of the last seconds.
            let (had, arrived) = lane.had_lately(now);
            Some(kernels::Client {
                id: kernels::ClientId(id.0),
                tenant: one.tenant.clone(),
                owner,
                attainment: self.guests.get(&one.tenant).and_then(|guest| guest.goals.attainment(&slo)),
                slo,
                arrived,
                busy: one.busy,
                waiting_since: lane.waiting_since,
                profile: Profile {
                    bandwidth: self.bandwidth.of(*id),
                    longest: profile.longest.map(|longest| longest.mul_f64(careful)),
                    request: profile.request.map(|request| request.mul_f64(careful)),
                    ..profile
                },
                work: lane.work().map(|work| Work { takes: work.takes.map(|takes| takes.mul_f64(careful)), ..work }),
                served_ns: u64::try_from(had.as_nanos()).unwrap_or(u64::MAX),
                voice: standing.map(|standing| standing.voice).unwrap_or_default(),
            })
        });
        each.collect()
    }

    /// Nobody leads that has lost its lead or stands still; its limits stay. Of what a tenant may have each of its processes has a part.
    fn slo(&self, client: &Client, beside: Beside, standing: Option<&Standing>, now: Mono) -> Slo {
        let Some(standing) = standing else { return Slo::default() };
        let tenant = &client.facts.tenant;
        let has_lost = self.record.lead(tenant).is_lost(now);
        let slo = match has_lost || client.is_still {
            true => Slo { constraints: standing.slo.constraints, ..Slo::default() },
            false => standing.slo.clone(),
        };
        beside.part_of(&slo)
    }

    /// What each tenant has here, all of its processes together.
    pub(super) fn crews(&self, cast: &Cast<'_>, now: Mono) -> BTreeMap<TenantKey, Crew> {
        let mut crews: BTreeMap<TenantKey, Crew> = BTreeMap::new();
        for end in self.ends.values() {
            let Some(client) = cast.clients.get(&end.client) else { continue };
            let Some(lane) = client.lanes.get(&end.lane) else { continue };
            crews.entry(client.facts.tenant.clone()).or_default().add(lane, now);
        }
        crews
    }

    /// How many SMs there are each says for itself.
    pub(super) fn place(&self, cast: &Cast<'_>) -> Place {
        let lanes = || {
            let ends = self.present.values().map(|one| one.end);
            ends.filter_map(|end| cast.clients.get(&end.client)?.lanes.get(&end.lane))
        };
        let claims = self.present.values().filter_map(|one| {
            let lane = cast.clients.get(&one.end.client)?.lanes.get(&one.end.lane)?;
            Some((&one.tenant, lane.sms))
        });
        let mut tenants = self.present.values().map(|one| cast.standings.get(&one.tenant));
        Place {
            sms: sms::agreed(claims),
            // Who cannot be divided has all, and so have those that run beside it; see `Gpu::undivided`.
            divides: lanes().any(|lane| lane.divides),
            concurrent: tenants.all(|of| of.is_some_and(|of| of.is_mps)),
        }
    }

    /// Work of a client was measured, and had been submitted then.
    pub fn sampled(&mut self, who: ClientId, lane: &mut Lane, sample: &Sample, submitted: Mono) {
        if sample.sms > lane.sms {
            return;
        }
        let company = self.windows.company(who, submitted);
        lane.book.add(sample, lane.sms, company == Company::Nobody);
        if company != Company::Others {
            return;
        }
        let demand = |who: ClientId| self.present.get(&who).map_or(1.0, |one| one.demand);
        let share = self.windows.share(who, sample.sms, lane.sms, &demand);
        let narrow = || Some(lane.book.alone_ns(sample, 0)? / (share / demand(who).max(0.01)).clamp(0.01, 1.0));
        let same = if sample.sms > 0 { lane.book.alone_ns(sample, sample.sms) } else { None };
        if let Some(expected_ns) = same.or_else(narrow) {
            self.windows.add(who, sample.sms, expected_ns, took_ns(sample));
        }
    }

    /// What those who ran together have shown of each other since the last time. It is company only where they run at the same time.
    pub fn learn_company(&mut self, cast: &Cast<'_>) {
        let place = self.place(cast);
        let demand = |who: ClientId| self.present.get(&who).map_or(1.0, |one| one.demand);
        let (seen, phi) = (self.windows.close(place.sms, &demand), Phi::of(cast.settings));
        seen.iter().filter(|_| place.concurrent).for_each(|seen| self.learned.interference.saw(seen, phi));
    }

    /// So much of its memory's bandwidth was used. Whose it was is known only where everybody takes part, and where those who ran at the same time
    /// did not slow each other.
    pub fn saw_bandwidth(&mut self, cast: &Cast<'_>, seen: &BandwidthUse) {
        let lane = |end: &End| cast.clients.get(&end.client)?.lanes.get(&end.lane);
        let served = self.ends.iter().filter_map(|(id, end)| Some((*id, lane(end)?.served_ns))).collect();
        let (is_known, at_once) = (!self.has_strangers, self.place(cast).concurrent);
        self.bandwidth.saw(seen, served, is_known, at_once);
    }

    /// Whose company was seen to slow this one, and how much.
    pub fn slowed_by(&self, who: ClientId) -> impl Iterator<Item = (ClientId, Rho)> {
        let seen = self.learned.interference.seen(kernels::ClientId(who.0));
        seen.map(|(other, rho)| (ClientId(other.0), rho))
    }

    pub fn reason(&self, who: ClientId) -> Option<Reason> {
        let plan = self.plan.as_ref()?;
        plan.reasons.iter().find(|(of, _)| of.0 == who.0).map(|(_, reason)| *reason)
    }

    /// Whether it had work at the last look.
    pub fn is_busy(&self, end: End) -> bool {
        self.present.get(&end.client).is_some_and(|one| one.busy)
    }

    /// Whether it has to wait now, for whoever it yields to.
    pub fn is_stopped(&self, end: End) -> bool {
        self.links.is_stopped(end, &|leader| self.is_busy(leader))
    }

    /// Whether somebody is to yield to it.
    pub fn leads(&self, who: ClientId) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.yields.iter().any(|link| link.to.0 == who.0))
    }

    /// Whether those that yield to this tenant do for what it was promised, and not in their turn.
    pub fn leads_by_goal(&self, tenant: &TenantKey, standings: &BTreeMap<TenantKey, Standing>, now: Mono) -> bool {
        let promises = standings.get(tenant).is_some_and(|standing| standing.slo.promises());
        promises && !self.record.lead(tenant).is_lost(now)
    }

    /// Whoever is gone is remembered for as long as one of its links is.
    pub fn forget(&mut self, client: ClientId, shim: &Shim, now: Mono) {
        if self.ends.remove(&client).is_some() {
            self.present.remove(&client);
            self.links.forget(client, shim, now);
            self.learned.forget(kernels::ClientId(client.0));
            self.bandwidth.forget(client);
            self.windows.forget(client);
        }
        let (ends, links) = (&self.ends, &self.links);
        self.met.retain(|id, _| ends.contains_key(id) || links.remember(*id));
    }
}
