//! A policy as the steward of a run: what the daemon does around it, in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use berth_model::settings::KernelSettings;
use berth_model::slo::Throughput;
use berth_model::{Mono, TenantKey};
use berth_policy::kernels::interference::{demand, solo};
use berth_policy::kernels::{
    Attained, Client, ClientId, CoRun, Kept, KernelPolicy, Learned, Place, Plan, Profile, Scene, Work,
};
use berth_sim::scenario::kernels::{Machine, Order, Part, Seen, Sight, Steward};

use super::Tenant;

/// SMs of the GPU; shares are given in whole ones.
const SMS: u32 = 132;
/// Requests over which attainment is taken.
const REMEMBERED: usize = 200;
/// Of fewer, nothing is said.
const FEW: usize = 20;
/// A shorter time beside others says nothing of interference.
const LEAST_SEEN_NS: f64 = 200_000.0;

#[derive(Debug)]
pub struct Managed {
    /// One after the other, each for so many plans.
    policies: Vec<Box<dyn KernelPolicy>>,
    switch_every: u64,
    plans: u64,
    settings: KernelSettings,
    place: Place,
    learned: Learned,
    tenants: Vec<Known>,
    /// Who runs by the last plan, with its share.
    running: Vec<(ClientId, f64)>,
}

/// A tenant as the daemon knows it.
#[derive(Debug)]
struct Known {
    tenant: Tenant,
    profile: Profile,
    /// In time, of the last requests.
    kept: VecDeque<bool>,
    wanted_ns: u64,
    last_ns: u64,
    arrived: Option<Mono>,
}

impl Managed {
    /// Several policies take turns, each for `switch_every` plans.
    pub fn new(
        policies: Vec<Box<dyn KernelPolicy>>,
        switch_every: u64,
        settings: KernelSettings,
        machine: &Machine,
        tenants: &[Tenant],
    ) -> Self {
        let known = |tenant: &Tenant| Known {
            profile: tenant.profile(),
            tenant: tenant.clone(),
            kept: VecDeque::new(),
            wanted_ns: 0,
            last_ns: 0,
            arrived: None,
        };
        let place = Place { sms: SMS, divides: machine.divides, concurrent: machine.concurrent };
        Self {
            policies,
            switch_every: switch_every.max(1),
            plans: 0,
            settings,
            place,
            learned: Learned::default(),
            tenants: tenants.iter().map(known).collect(),
            running: Vec::new(),
        }
    }

    /// What was seen since the last plan.
    fn learn(&mut self, sight: &Sight<'_>) {
        let ran = |who: ClientId| sight.programs.get(index(who)).map_or(0.0, |seen| seen.ran_ns);
        let beside: Vec<(ClientId, f64)> =
            self.running.iter().copied().filter(|(who, _)| ran(*who) >= LEAST_SEEN_NS).collect();
        for (who, share) in beside.clone() {
            let seen = &sight.programs[index(who)];
            let alone = solo(&self.tenants[index(who)].profile, share).max(0.01);
            let speed = seen.got_ns / seen.ran_ns / alone;
            let beside = beside.iter().copied().filter(|(other, _)| *other != who).collect();
            self.learned.interference.saw(&CoRun { who, share, speed, beside });
        }
        for (known, seen) in self.tenants.iter_mut().zip(sight.programs) {
            known.saw(sight.now_ns, seen);
        }
        let kept = |(place, known): (usize, &Known)| Kept {
            who: id(place),
            target: known.tenant.slo.target().get(),
            actual: known.attainment(&sight.programs[place]),
        };
        let kept: Vec<Kept> = self.tenants.iter().enumerate().map(kept).collect();
        self.learned.weights.squad_over(&kept, f64::from(self.settings.alpha_milli) / 1_000.0);
    }

    fn client(&self, place: usize, seen: &Seen) -> Client {
        let known = &self.tenants[place];
        let takes = |request: usize| known.tenant.program.requests.get(request).map(|one| known.tenant.told(one));
        Client {
            id: id(place),
            tenant: TenantKey::Cgroup { path: format!("/{place}") },
            owner: Some(known.tenant.owner.clone()),
            slo: known.tenant.slo.clone(),
            arrived: known.arrived.unwrap_or_default(),
            busy: seen.busy,
            waiting_since: seen.waiting_since_ns.filter(|_| seen.busy).map(Mono),
            profile: known.profile,
            work: seen.request.map(|request| Work {
                began: Mono(seen.came_ns),
                done: Duration::from_nanos(seen.done_ns),
                takes: takes(request),
            }),
            attainment: known.attainment(seen),
            served_ns: seen.served_ns,
        }
    }

    /// Shares as the GPU gives them where nobody divides.
    fn shares(&self, plan: &Plan, clients: &[Client]) -> Vec<(ClientId, f64)> {
        let busy = plan.squad.members.iter().filter(|member| clients[index(member.who)].busy);
        let wants: Vec<(ClientId, Option<u32>, f64)> = busy
            .map(|member| {
                (member.who, member.part.map(|part| part.sms(SMS)), demand(&self.tenants[index(member.who)].profile))
            })
            .collect();
        let crowd = wants.iter().map(|(.., want)| want).sum::<f64>().max(1.0);
        let share = |sms: Option<u32>, want: f64| sms.map_or(want / crowd, |sms| f64::from(sms) / f64::from(SMS));
        wants.into_iter().map(|(who, sms, want)| (who, share(sms, want))).collect()
    }
}

impl Steward for Managed {
    fn order(&mut self, sight: &Sight<'_>) -> Order {
        self.learn(sight);
        let clients: Vec<Client> =
            sight.programs.iter().enumerate().map(|(place, seen)| self.client(place, seen)).collect();
        let turn = usize::try_from(self.plans / self.switch_every).unwrap_or(0) % self.policies.len();
        self.plans += 1;
        let scene = Scene { now: Mono(sight.now_ns), gpu: self.place, clients: &clients, learned: &self.learned };
        let plan = self.policies[turn].plan(&scene);
        self.running = self.shares(&plan, &clients);
        order(&plan)
    }
}

impl Known {
    fn saw(&mut self, now_ns: u64, seen: &Seen) {
        if seen.busy {
            self.wanted_ns += now_ns - self.last_ns;
            self.arrived.get_or_insert(Mono(seen.came_ns));
        }
        self.last_ns = now_ns;
        for done in &seen.finished {
            self.kept.push_back(self.tenant.is_in_time(done));
        }
        while self.kept.len() > REMEMBERED {
            self.kept.pop_front();
        }
    }

    fn attainment(&self, seen: &Seen) -> Option<f64> {
        let slo = &self.tenant.slo;
        let in_time = self.kept.iter().filter(|kept| **kept).count() as f64 / self.kept.len() as f64;
        let throughput = match slo.throughput {
            Some(Throughput::OfAlone(share)) if self.wanted_ns > 0 => {
                Some(seen.served_ns as f64 / self.wanted_ns as f64 / share.get())
            }
            Some(Throughput::OfAlone(_) | Throughput::MilliPerSecond(_)) | None => None,
        };
        let latency = (slo.within().is_some() && self.kept.len() >= FEW).then_some(in_time);
        Attained { latency, throughput, availability: None }.combined()
    }
}

fn order(plan: &Plan) -> Order {
    let part = |sms: u32| f64::from(sms) / f64::from(SMS);
    let until = plan.squad.until;
    let members = plan.squad.members.iter().map(|member| Part {
        program: index(member.who),
        confined: member.part.map(|own| (part(own.sms(SMS)), own.until.unwrap_or(until + Duration::from_secs(1)).0)),
    });
    let yields = plan.yields.iter().map(|link| (index(link.who), index(link.to)));
    Order { members: members.collect(), yields: yields.collect(), until_ns: until.0 }
}

fn id(place: usize) -> ClientId {
    ClientId(place as u64)
}

fn index(who: ClientId) -> usize {
    usize::try_from(who.0).unwrap_or(usize::MAX)
}
