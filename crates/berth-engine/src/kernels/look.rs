//! Looking at one GPU: what its clients do, how much each tenant leads, and who raises words that it may not.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::shim::{ClientId, End, Shim};
use berth_model::{Mono, TenantKey};

use super::copies::Copied;
use super::gpu::{Cast, Gpu, News, Present};
use super::guests::{Doings, Guest};
use super::offences::{Stuck, Verdict};

impl Gpu {
    /// Takes in what the ledgers say, and counts the time that has passed. Who leads others for too long loses its lead, and who stands still
    /// leads nobody.
    pub fn look(&mut self, cast: &mut Cast<'_>, shim: &Shim, now: Mono) -> Vec<News> {
        let passed = self.looked_at.replace(now).map_or(Duration::ZERO, |at| now.since(at));
        self.present = self.who_is_present(cast, now);
        for end in self.ends.values() {
            if !self.present.contains_key(&end.client) {
                self.links.forget(end.client, shim, now);
            } else if cast.clients.get(&end.client).is_some_and(|client| client.is_still) {
                self.links.part(*end, shim, now);
            }
        }
        let present = &self.present;
        let is_busy = |end: End| present.get(&end.client).is_some_and(|one| one.busy);
        let doubted = self.links.free(&is_busy, now);
        let together = present.values().filter(|one| one.busy && one.may_run).count();
        for one in present.values() {
            let Some(client) = cast.clients.get_mut(&one.end.client).filter(|client| !client.is_still) else {
                continue;
            };
            let Some(lane) = client.lanes.get_mut(&one.end.lane) else { continue };
            lane.pass(one.may_run, together, passed, now);
        }
        let running = present.values().filter(|one| one.busy && one.may_run);
        let sms = |end: End| cast.clients.get(&end.client).and_then(|client| client.confined_to(end.lane));
        self.windows.look(running.map(|one| (one.end.client, sms(one.end))).collect(), now);
        let copied = present.values().filter_map(|one| {
            let lane = cast.clients.get(&one.end.client)?.lanes.get(&one.end.lane)?;
            let has_goal = self.leads_by_goal(&one.tenant, cast.standings, now);
            let (who, tenant, bytes) = (one.end.client, one.tenant.clone(), lane.totals.copied_bytes);
            Some(Copied { who, tenant, bytes, has_goal })
        });
        let copied: Vec<Copied> = copied.collect();
        self.copies.look(copied.into_iter(), now);
        let mut news = self.count(cast, shim, passed, now);
        news.extend(self.judge(cast, shim, now));
        news.extend(self.doubt(&doubted, shim, now));
        if !news.is_empty() {
            self.plan_anew();
        }
        news
    }

    fn who_is_present(&self, cast: &mut Cast<'_>, now: Mono) -> BTreeMap<ClientId, Present> {
        let mut present = BTreeMap::new();
        for (id, end) in &self.ends {
            let Some(client) = cast.clients.get_mut(id) else { continue };
            client.read(end.lane, now);
            let tenant = client.facts.tenant.clone();
            let is_seen = self.is_seen(&tenant, cast);
            let Some(lane) = cast.clients.get(id).and_then(|client| client.lanes.get(&end.lane)).filter(|_| is_seen)
            else {
                continue;
            };
            let (busy, may_run) = (lane.doing.busy, true);
            let demand = lane.book.profile(None).demand.unwrap_or(1.0);
            present.insert(*id, Present { end: *end, tenant, busy, may_run, demand });
        }
        // Who has to wait is known when all ledgers were read.
        let busy: BTreeSet<End> = present.values().filter(|one| one.busy).map(|one| one.end).collect();
        for one in present.values_mut() {
            one.may_run = !self.links.is_stopped(one.end, &|leader| busy.contains(&leader));
        }
        present
    }

    /// Counts for each tenant what its processes did, and whether it keeps to its share.
    fn count(&mut self, cast: &Cast<'_>, shim: &Shim, passed: Duration, now: Mono) -> Vec<News> {
        let mut doings: BTreeMap<TenantKey, Doings> = BTreeMap::new();
        for one in self.present.values() {
            let lane = cast.clients.get(&one.end.client).and_then(|client| client.lanes.get(&one.end.lane));
            let Some(totals) = lane.map(|lane| lane.totals) else { continue };
            let is_kept_off = |who: End| {
                let other = self.present.get(&who.client);
                other.is_some_and(|other| other.busy && other.tenant != one.tenant)
            };
            let own = doings.entry(one.tenant.clone()).or_default();
            own.busy |= one.busy;
            own.may_run |= one.busy && one.may_run;
            // Who stands in line behind an equal does so by the plan, which is made anew every few milliseconds.
            own.stops |= self.leads_by_goal(&one.tenant, cast.standings, now)
                && (self.links.stopped_by(one.end, &|end| self.is_busy(end)).any(is_kept_off)
                    || self.is_waited_for_by_parted(one));
            own.launches = own.launches.saturating_add(totals.launches);
            own.requests = own.requests.saturating_add(totals.requests);
        }
        self.guests.retain(|tenant, guest| {
            let stays = doings.contains_key(tenant);
            if !stays {
                self.meter.leaves(tenant, guest);
            }
            stays
        });
        self.record.forget_but(&doings.keys().collect(), now);
        let busy = doings.values().filter(|doings| doings.busy).count();
        let running = doings.values().filter(|doings| doings.may_run).count();
        let counted = self.meter.pass(doings.len(), busy > 0, passed);
        let mut news = Vec::new();
        let most = f64::from(cast.settings.lead_share.get()) / 100.0;
        for (tenant, doings) in doings {
            let come = || Guest::with(self.meter.comes(&tenant));
            let guest = self.guests.entry(tenant.clone()).or_insert_with(come);
            guest.pass(&doings, busy <= 1, running, passed, counted);
            if self.record.led(&tenant, doings.stops, most, passed, now) {
                let lost = self.record.lead(&tenant).lost_until(now);
                news.extend(lost.map(|until| News::LeadLost { tenant: tenant.clone(), until }));
                let own = self.present.values().filter(|one| one.tenant == tenant);
                own.for_each(|one| self.links.part(one.end, shim, now));
            }
        }
        news
    }

    /// Whether somebody who was parted from it has to wait for it by the daemon's word.
    fn is_waited_for_by_parted(&self, leader: &Present) -> bool {
        let is_parted = |other: &Present| self.record.are_parted(&(other.tenant.clone(), leader.tenant.clone()));
        let waits = |other: &Present| other.busy && self.links.is_stopped_by_daemon(other.end);
        leader.busy && self.present.values().any(|other| waits(other) && is_parted(other))
    }

    /// Parts those of whom one raises a word that it may not, and tells who takes part no more.
    fn judge(&mut self, cast: &Cast<'_>, shim: &Shim, now: Mono) -> Vec<News> {
        let stuck: Vec<Stuck> = self.present.values().filter_map(|one| self.stuck(one, cast)).collect();
        let met = &self.met;
        let stands_still = |tenant: &TenantKey| {
            let mut own = met.values().filter(|(of, _)| of == tenant).peekable();
            own.peek().is_some() && own.all(|(_, pid)| !(cast.runs)(*pid))
        };
        let verdicts = self.offences.look(&stuck, &stands_still, now);
        stuck.into_iter().for_each(|one| self.record.part_on(&(one.yields.1, one.leads.1), now));
        let mut news = Vec::new();
        for verdict in verdicts {
            match verdict {
                Verdict::Part { yields, leads } => {
                    self.links.part_two(yields.0, leads.0, shim, now);
                    news.extend(self.part(yields.1, leads.1, now));
                }
                Verdict::Refuse { tenant, reason } => news.push(News::Refused { tenant, reason }),
            }
        }
        news
    }

    /// Parts those between whom words were found up without work again and again. Either of them may have written these.
    fn doubt(&mut self, found: &[(End, End)], shim: &Shim, now: Mono) -> Vec<News> {
        let mut news = Vec::new();
        for (yields, leads) in found {
            let tenant = |end: &End| self.present.get(&end.client).map(|one| one.tenant.clone());
            let Some(pair) = tenant(yields).zip(tenant(leads)) else { continue };
            if self.record.doubt(&pair, now) {
                self.links.part_two(*yields, *leads, shim, now);
                news.extend(self.part(pair.0, pair.1, now));
            }
        }
        news
    }

    /// Whoever is parted again and again is told once.
    fn part(&mut self, yields: TenantKey, leads: TenantKey, now: Mono) -> Option<News> {
        let is_new = self.record.part((yields.clone(), leads.clone()), now);
        is_new.then(|| {
            self.plan_anew();
            News::Parted { tenant: yields, from: leads }
        })
    }

    /// What a follower says is believed of links it has, and had with others.
    fn stuck(&self, one: &Present, cast: &Cast<'_>) -> Option<Stuck> {
        let lane = cast.clients.get(&one.end.client)?.lanes.get(&one.end.lane)?;
        let link = lane.doing.stuck_link?;
        let known = self.links.known(link).filter(|known| known.yields == one.end)?;
        let leads = known.leads?;
        let (leader, _) = self.met.get(&leads.client)?;
        let found_up = known.found_up;
        Some(Stuck { link, yields: (one.end, one.tenant.clone()), leads: (leads, leader.clone()), found_up })
    }
}
