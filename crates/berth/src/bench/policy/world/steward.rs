//! A policy as the steward of a run: what the daemon does around it, in virtual time.

use berth_model::Mono;
use berth_model::settings::KernelSettings;
use berth_policy::kernels::{self, Client, ClientId, KernelPolicy, Learned, Phi, Place, Plan, Scene, Settled, squad};
use berth_sim::Sharing;
use berth_sim::scenario::kernels::{Confined, Machine, Order, Part, Sight, Steward};

use super::Tenant;
use super::known::{Read, Watch};

/// Plans by a policy that may be another each time.
pub struct Managed {
    chooses: Box<dyn Chooses>,
    settings: KernelSettings,
    place: Place,
    learned: Learned,
    watch: Watch,
    /// Whose part of the SMs has settled, by client.
    settled: Vec<Settled>,
    /// As it is carried out: with the parts that are given.
    plan: Option<Plan>,
    /// Who had work when it was made, begun when.
    planned_for: Vec<(ClientId, Option<Mono>)>,
}

/// Says which policy plans next.
pub trait Chooses {
    fn policy(&mut self, clients: &[Client], now: Mono) -> &dyn KernelPolicy;
}

/// All in turn, each for one plan.
#[derive(Debug)]
pub struct InTurn {
    pub policies: Vec<Box<dyn KernelPolicy>>,
    pub plans: usize,
}

impl Chooses for InTurn {
    fn policy(&mut self, _: &[Client], _: Mono) -> &dyn KernelPolicy {
        self.plans += 1;
        self.policies[self.plans % self.policies.len()].as_ref()
    }
}

impl Managed {
    pub fn new(chooses: Box<dyn Chooses>, settings: KernelSettings, machine: &Machine, tenants: &[Tenant]) -> Self {
        let concurrent = machine.sharing == Sharing::Mps;
        let place = Place { sms: machine.profile.gpu.sm_count, divides: concurrent, concurrent };
        Self {
            chooses,
            settings,
            place,
            learned: Learned::default(),
            watch: Watch::new(tenants),
            settled: vec![Settled::default(); tenants.len()],
            plan: None,
            planned_for: Vec::new(),
        }
    }

    /// As if kernels of different tenants could not run at the same time.
    pub fn one_at_a_time(mut self) -> Self {
        self.place = Place { divides: false, concurrent: false, ..self.place };
        self
    }

    /// When each request came is told, also of those that queue inside a program.
    pub fn told(mut self) -> Self {
        self.watch = self.watch.told();
        self
    }

    /// What work beside others says of who slows whom.
    fn learn(&mut self, read: Vec<Read>, clients: &[Client]) {
        for Read { who, beside, alone, took } in read.into_iter().filter(|read| !read.beside.is_empty()) {
            let Some(plan) = &self.plan else { continue };
            let running: Vec<&Client> = beside.iter().chain([&who]).map(|who| &clients[*who]).collect();
            let held = squad::held(plan, self.place, &running);
            self.learned.interference.saw_work(&clients[who], alone, took, &held, Phi::of(&self.settings));
        }
    }

    /// Leaves members the parts that were wanted for so long that a daemon gives them.
    fn settle(&mut self, plan: &mut Plan) {
        for (settled, id) in self.settled.iter_mut().zip(0..) {
            let member = plan.squad.members.iter_mut().find(|member| member.who == ClientId(id));
            let (_, is_given) = settled.want(member.as_ref().and_then(|member| member.part), self.place.sms);
            if let Some(member) = member.filter(|_| !is_given) {
                member.part = None;
            }
        }
    }
}

impl Steward for Managed {
    fn look(&mut self, sight: &Sight<'_>) -> Option<Order> {
        let read = self.watch.look(sight);
        let now = Mono(sight.now_ns);
        let clients = self.watch.clients(now);
        self.learn(read, &clients);
        let busy: Vec<(ClientId, Option<Mono>)> =
            clients.iter().map(|client| (client.id, client.work.map(|work| work.began))).collect();
        let is_over = self.plan.as_ref().is_none_or(|plan| plan.squad.until <= now);
        if !is_over && self.planned_for == busy {
            return None;
        }
        self.planned_for = busy;
        self.learned.weights.follow(&clients, &self.settings, now);
        let scene = Scene { now, gpu: self.place, clients: &clients, learned: &self.learned };
        let mut plan = self.chooses.policy(&clients, now).plan(&scene);
        self.settle(&mut plan);
        let order = order(&plan, &clients, self.place.sms);
        self.plan = Some(plan);
        Some(order)
    }
}

/// Whoever need not be kept from beginning may, and yields where it has to.
fn order(plan: &Plan, clients: &[Client], sms: u32) -> Order {
    let confined = |part: kernels::Part| {
        let range = part.range(sms);
        let until_ns = part.until.map_or(u64::MAX, |until| until.0);
        Confined { first: range.start, count: range.end - range.start, until_ns }
    };
    let part =
        |who: ClientId| plan.squad.members.iter().find(|member| member.who == who).and_then(|member| member.part);
    let is_busy = |who: ClientId| clients[index(who)].busy;
    let may_begin = clients.iter().map(|client| client.id).filter(|who| !plan.waits(*who, is_busy));
    let members = may_begin.map(|who| Part { program: index(who), confined: part(who).map(confined) });
    let yields = plan.yields.iter().map(|link| (index(link.who), index(link.to)));
    let no_linger = plan.orders.iter().filter(|(_, orders)| orders.linger.is_zero()).map(|(who, _)| index(*who));
    Order { members: members.collect(), yields: yields.collect(), no_linger: no_linger.collect() }
}

pub fn index(who: ClientId) -> usize {
    usize::try_from(who.0).unwrap_or(usize::MAX)
}
