//! Carrying out a plan on one GPU: links, the daemon's own words, and what each client is told.

use std::collections::{BTreeMap, BTreeSet};

use berth_host::shim::{ClientId, End, Shim};
use berth_model::settings::Division;
use berth_model::slo::MemorySize;
use berth_model::{Mono, TenantKey};
use berth_policy::kernels::{self, Member, Orders, Plan};

use super::gpu::{Cast, Gpu};
use super::links::Pair;
use super::memory::Holder;
use super::orders::{Everybody, Told};
use super::room;

impl Gpu {
    pub(super) fn carry_out(
        &mut self,
        plan: &Plan,
        clients: &[kernels::Client],
        cast: &mut Cast<'_>,
        shim: &Shim,
        now: Mono,
    ) {
        let mut wanted = self.choose(plan);
        let waits = self.waits(plan, clients, &wanted);
        // Equals yield to the daemon from the first time that one of them has to wait.
        let turns = waits.values().any(|waits| *waits);
        wanted.extend(waits.keys().filter(|_| turns).map(|end| (*end, None)));
        let present = &self.present;
        let is_busy = |end: End| present.get(&end.client).is_some_and(|one| one.busy);
        self.links.want(&wanted, &is_busy, shim, now);
        waits.iter().for_each(|(end, waits)| self.links.stop(*end, *waits));
        self.unlinked = self.unlinked(plan);
        self.lifts_at = plan.squad.members.iter().filter_map(|member| member.part?.until).min();
        for (id, orders) in &plan.orders {
            let member = plan.squad.members.iter().find(|member| member.who == *id);
            self.order(*id, *orders, member, true, cast, now);
        }
    }

    /// Who says that it cannot be divided runs on all SMs, whatever it is told: whoever runs at the same time is confined to no side, which would
    /// be one it has to share. What one says of itself is of no weight for squads in which it has no work.
    pub(super) fn undivided(&self, mut plan: Plan, cast: &Cast<'_>) -> Plan {
        let runs_on_all = |member: &Member| {
            let one = self.present.get(&ClientId(member.who.0)).filter(|one| one.busy)?;
            let lane = cast.clients.get(&one.end.client)?.lanes.get(&one.end.lane)?;
            (!lane.divides).then_some(())
        };
        if plan.squad.members.iter().any(|member| runs_on_all(member).is_some()) {
            plan.squad.members.iter_mut().for_each(|member| member.part = None);
            plan.squad.division = Division::Unrestricted;
        }
        plan
    }

    /// At half time of a squad its members may use all SMs.
    pub(super) fn lift(&mut self, cast: &mut Cast<'_>, now: Mono) {
        if self.lifts_at.is_none_or(|at| at > now) {
            return;
        }
        self.lifts_at = None;
        let Some(plan) = self.plan.take() else { return };
        for (id, orders) in &plan.orders {
            let member = plan.squad.members.iter().find(|member| member.who == *id);
            self.order(*id, *orders, member, false, cast, now);
        }
        self.plan = Some(plan);
    }

    /// `is_planned`: the plan is a new one, and not carried out further.
    fn order(
        &self,
        id: kernels::ClientId,
        orders: Orders,
        member: Option<&Member>,
        is_planned: bool,
        cast: &mut Cast<'_>,
        now: Mono,
    ) {
        let Some(end) = self.present.get(&ClientId(id.0)).map(|one| one.end) else { return };
        let Some(client) = cast.clients.get_mut(&end.client) else { return };
        let Some(lane) = client.lanes.get_mut(&end.lane) else { return };
        let wanted = member.and_then(|member| member.part);
        let (part, is_given) = match is_planned {
            true => lane.settled.want(wanted, lane.sms),
            false => (lane.settled.given(), true),
        };
        let orders = Orders { long: orders.long.filter(|_| lane.divides), ..orders };
        let is_confined = is_given && wanted.is_some_and(|part| part.counts(now));
        let (is_free, everybody) = (self.offences.frees(end), Everybody::of(cast.settings, self.has_strangers));
        client.order(end.lane, Told { orders, part, is_confined, is_free, everybody });
    }

    /// Who is alone is ordered nothing but to measure and to keep its limits.
    pub(super) fn order_alone(&self, cast: &mut Cast<'_>, now: Mono) {
        let (settings, crews, gpu) = (cast.settings, self.crews(cast, now), self.place(cast));
        let told = |end: &End, cast: &Cast<'_>| {
            let client = cast.clients.get(&end.client)?;
            let lane = client.lanes.get(&end.lane)?;
            let slo = cast.standings.get(&client.facts.tenant).map(|of| of.slo.clone()).unwrap_or_default();
            let beside = crews.get(&client.facts.tenant).map(|crew| crew.without(lane, now)).unwrap_or_default();
            let limits = beside.part_of(&slo).constraints;
            let orders = Orders {
                grain: settings.grain.get(),
                linger: settings.linger.get(),
                long: kernels::limited(gpu, settings, &limits).filter(|_| lane.divides),
                longest_stop: settings.longest_stop.get(),
                copy_bytes_per_second: limits.copy.map(|bytes| bytes.0),
            };
            let (part, is_free) = (lane.settled.given(), self.offences.frees(*end));
            let everybody = Everybody::of(settings, self.has_strangers);
            Some(Told { orders, part, is_confined: false, is_free, everybody })
        };
        for end in self.ends.values() {
            if let Some(told) = told(end, cast)
                && let Some(client) = cast.clients.get_mut(&end.client)
            {
                client.order(end.lane, told);
            }
        }
    }

    /// How much memory each process may have is no matter of the plan: it follows what everybody has, look by look.
    pub(super) fn order_memory(&mut self, cast: &mut Cast<'_>, now: Mono) {
        let mut holders: BTreeMap<TenantKey, Holder> = BTreeMap::new();
        for (id, end) in &self.ends {
            let Some(client) = cast.clients.get(id) else { continue };
            let Some(lane) = client.lanes.get(&end.lane) else { continue };
            let tenant = &client.facts.tenant;
            let holder = holders.entry(tenant.clone()).or_insert_with(|| {
                let slo = cast.standings.get(tenant).map(|standing| &standing.slo);
                let stated = |size: Option<MemorySize>| size.and_then(MemorySize::stated).map(|bytes| bytes.0);
                let is_seen = self.is_seen(tenant, cast);
                let reserves = slo.and_then(|slo| stated(slo.memory_reserve)).filter(|_| is_seen);
                let cap = slo.and_then(|slo| stated(slo.constraints.memory));
                Holder { came: id.0, is_seen, cap, reserves: reserves.unwrap_or(0), ..Holder::default() }
            });
            holder.pids.insert(client.facts.process.pid);
            holder.has = holder.has.saturating_add(lane.doing.memory_bytes);
        }
        self.memory.look(&holders, now);
        for (id, end) in &self.ends {
            let Some(client) = cast.clients.get_mut(id) else { continue };
            let own = client.lanes.get(&end.lane).map_or(0, |lane| lane.doing.memory_bytes);
            let room = self.memory.room(&client.facts.tenant);
            // Of nothing left a byte is the least that is no freedom.
            let limit = room.limit.map(|limit| limit.saturating_sub(room.has.saturating_sub(own)).max(1));
            client.order_memory(end.lane, limit);
        }
    }

    /// The pairs of a plan that are to be linked.
    fn choose(&self, plan: &Plan) -> BTreeSet<Pair> {
        let may_be = plan.yields.iter().filter(|link| !self.are_parted(link.who, link.to));
        let wanted = may_be.filter_map(|link| {
            let leads = self.present.get(&ClientId(link.to.0))?;
            Some((self.end(link.who)?, leads.end, &leads.tenant))
        });
        room::choose(wanted, &|pair| self.links.has(pair))
    }

    /// Both of each pair of a plan that has no link.
    fn unlinked(&self, plan: &Plan) -> BTreeSet<End> {
        let pairs = plan.yields.iter().filter_map(|link| Some((self.end(link.who)?, self.end(link.to)?)));
        pairs.filter(|(who, to)| !self.links.has(&(*who, Some(*to)))).flat_map(|(who, to)| [who, to]).collect()
    }

    fn end(&self, id: kernels::ClientId) -> Option<End> {
        self.present.get(&ClientId(id.0)).map(|one| one.end)
    }

    /// Whether there may be no link between these.
    fn are_parted(&self, who: kernels::ClientId, to: kernels::ClientId) -> bool {
        let tenant = |id: kernels::ClientId| self.present.get(&ClientId(id.0)).map(|one| one.tenant.clone());
        tenant(who).zip(tenant(to)).is_some_and(|pair| self.record.are_parted(&pair))
    }

    /// Of those for whom a plan was made, whom the daemon has wait. One that yields to somebody who runs needs no word of the daemon's: it goes on the moment that one is
    /// done. One that is not linked to whom it yields does.
    fn waits(&self, plan: &Plan, clients: &[kernels::Client], linked: &BTreeSet<Pair>) -> BTreeMap<End, bool> {
        let members: BTreeSet<kernels::ClientId> = plan.squad.members.iter().map(|member| member.who).collect();
        let busy: BTreeSet<kernels::ClientId> = clients.iter().filter(|one| one.busy).map(|one| one.id).collect();
        let mut before: BTreeMap<kernels::ClientId, Vec<kernels::ClientId>> = BTreeMap::new();
        for link in plan.yields.iter().filter(|link| members.contains(&link.to) && busy.contains(&link.to)) {
            before.entry(link.who).or_default().push(link.to);
        }
        let each = clients.iter().filter_map(|client| {
            let end = self.end(client.id)?;
            let own = before.get(&client.id).map_or(&[][..], Vec::as_slice);
            let is_unlinked = own.iter().any(|to| !linked.contains(&(end, self.end(*to))));
            Some((end, (!members.contains(&client.id) && own.is_empty()) || is_unlinked))
        });
        each.collect()
    }
}
