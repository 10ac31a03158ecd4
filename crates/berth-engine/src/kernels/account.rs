//! What requests on one GPU and its windows come to: `measure` tallies, and what it needs of who is there is found here.

use std::collections::BTreeMap;

use berth_host::shim::ClientId;
use berth_model::{Mono, TenantKey};
use berth_policy::kernels::hybrid::finish_time_fairness;
use berth_policy::kernels::{self, Crowd, Place, Scene, Work};

use super::client::Ended;
use super::gpu::{Cast, Gpu};
use super::measure::{Seen, Tally};

impl Gpu {
    /// Requests of clients have ended. How fair an end was is found of each client's last alone: it takes a look at everybody, and a client may tell
    /// of as many as it likes.
    pub fn ended(&mut self, ended: &[(ClientId, Ended)], cast: &Cast<'_>, now: Mono) {
        let mut clients = self.clients(cast, now);
        let last: BTreeMap<ClientId, usize> = ended.iter().enumerate().map(|(at, (who, _))| (*who, at)).collect();
        for (at, (who, ended)) in ended.iter().enumerate() {
            let Some(tenant) = cast.clients.get(who).map(|client| &client.facts.tenant) else { continue };
            let latency = cast.standings.get(tenant).and_then(|standing| standing.slo.latency);
            let is_last = last.get(who) == Some(&at);
            let finish = is_last.then(|| self.finish(&mut clients, *who, *ended)).flatten();
            if let Some(guest) = self.guests.get_mut(tenant) {
                guest.goals.ended(ended.at, ended.took);
                if ended.at.since(self.meter.began()) >= ended.took {
                    guest.tally.ended(ended, latency.map(|latency| latency.within.get()), finish);
                }
            }
        }
    }

    /// How fair the end of a request was, among those who had work with it.
    fn finish(&self, clients: &mut [kernels::Client], who: ClientId, ended: Ended) -> Option<f64> {
        let place = clients.iter().position(|client| client.id.0 == who.0)?;
        let began = ended.at.before(ended.took);
        let work = Some(Work { began, came: began, done: ended.usual, takes: None });
        let as_it_was = kernels::Client { busy: true, work, ..clients[place].clone() };
        let now = std::mem::replace(&mut clients[place], as_it_was);
        let gpu = Place { sms: 0, divides: false, concurrent: false };
        let scene = Scene { now: ended.at, gpu, clients, learned: &self.learned };
        let finish = finish_time_fairness(&scene, &Crowd::of(&scene), &clients[place]);
        clients[place] = now;
        finish
    }

    /// What the policy in place came to, if a window is over; then the next begins.
    pub fn window(&mut self, cast: &Cast<'_>, now: Mono) -> Option<Seen> {
        let mut meter = std::mem::take(&mut self.meter);
        let slo = |tenant: &TenantKey| cast.standings.get(tenant).map(|standing| standing.slo.clone());
        let clients = if meter.may_be_over() { self.clients(cast, now) } else { Vec::new() };
        let scene = Scene { now, gpu: self.place(cast), clients: &clients, learned: &self.learned };
        let crowd = Crowd::of(&scene);
        let so_far = |tenant: &TenantKey| {
            let own = clients.iter().filter(|client| client.tenant == *tenant);
            own.filter_map(|client| finish_time_fairness(&scene, &crowd, client)).max_by(f64::total_cmp)
        };
        let seen = meter.window(&self.guests, &slo, &so_far);
        self.meter = meter;
        seen.inspect(|_| self.measure_anew(now))
    }

    /// What was tallied in the window under way counts no longer.
    pub fn measure_anew(&mut self, now: Mono) {
        self.meter.restart(now);
        self.guests.values_mut().for_each(|guest| guest.tally = Tally::default());
    }
}
