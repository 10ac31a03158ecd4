//! The loop: from one instant at which something changes to the next.

use std::collections::BTreeMap;

use berth_proto::sim::{Reply, Request as Call};

use super::client::Client;
use super::{Confined, Machine, Order, Program, Report, Seen, Sight, Steward};
use crate::engine::{Completion, Engine, Outcome, Sharing};
use crate::scenario::FIRST_PID;

/// Nobody begins anything for so long although there is work: nobody ever will.
const STUCK_NS: u64 = 10_000_000_000;

/// Runs the programs until all is done, or to `until_ns`.
pub fn run(machine: &Machine, programs: &[Program], steward: &mut dyn Steward, until_ns: Option<u64>) -> Report {
    let mut world = World::new(machine, programs);
    let end = until_ns.unwrap_or(u64::MAX);
    while world.now() < end && !world.is_done() && !world.is_stuck() {
        world.clients.iter_mut().for_each(|client| client.come(world.engine.now() - world.epoch));
        world.look(steward);
        world.begin();
        world.pass(end);
    }
    world.report()
}

struct World<'a> {
    machine: &'a Machine,
    engine: Engine,
    /// When all contexts were there: the run's time begins.
    epoch: u64,
    clients: Vec<Client<'a>>,
    order: Order,
    /// Counts from then on.
    coming: Option<(u64, Order)>,
    looked_at: Option<u64>,
    /// When anything was begun last.
    moved_at: u64,
    launches: u64,
    looks: u64,
    orders: u64,
}

impl<'a> World<'a> {
    fn new(machine: &'a Machine, programs: &'a [Program]) -> Self {
        let mut engine = Engine::with_sharing(machine.profile.clone(), 1, 1, machine.sharing);
        let pids = (FIRST_PID..).zip(programs);
        let clients: Vec<Client<'_>> =
            pids.map(|(pid, program)| Client::new(pid, open(&mut engine, pid), program)).collect();
        Self {
            machine,
            epoch: engine.now(),
            engine,
            clients,
            order: Order::default(),
            coming: None,
            looked_at: None,
            moved_at: 0,
            launches: 0,
            looks: 0,
            orders: 0,
        }
    }

    fn now(&self) -> u64 {
        self.engine.now() - self.epoch
    }

    fn is_done(&self) -> bool {
        self.clients.iter().all(Client::is_done)
    }

    fn is_stuck(&self) -> bool {
        let waits =
            self.clients.iter().any(Client::waits) && !self.clients.iter().any(|one| one.seen.busy && !one.waits());
        waits && self.now() > self.moved_at + STUCK_NS
    }

    /// Takes an order that counts from now on, and has the steward look if it is time.
    fn look(&mut self, steward: &mut dyn Steward) {
        let now = self.now();
        if let Some((_, order)) = self.coming.take_if(|(at, _)| *at <= now) {
            self.order = order;
        }
        if self.next_look().is_none_or(|at| at > now) {
            return;
        }
        self.looked_at = Some(now);
        self.looks += 1;
        let stopped: Vec<bool> = (0..self.clients.len()).map(|program| self.is_stopped(program)).collect();
        let seen: Vec<Seen> = self
            .clients
            .iter_mut()
            .zip(stopped)
            .map(|(client, stopped)| {
                let seen = Seen { may_run: !stopped, ..client.seen.clone() };
                client.seen.finished.clear();
                client.seen.samples.clear();
                seen
            })
            .collect();
        if let Some(order) = steward.look(&Sight { now_ns: now, programs: &seen }) {
            self.orders += 1;
            self.coming = Some((now + self.machine.plan_ns, order));
        }
    }

    /// On a grid, while anybody has work; an order that is on its way is waited for.
    fn next_look(&self) -> Option<u64> {
        let work = self.clients.iter().any(|client| client.seen.busy || !client.seen.finished.is_empty());
        let Some(last) = self.looked_at else { return Some(0) };
        (work && self.coming.is_none()).then(|| last + self.machine.look_every_ns).map(|at| at.max(self.now()))
    }

    /// Whether orders make it look at stops at all.
    fn has_stops(&self, program: usize) -> bool {
        self.order.members.len() < self.clients.len() || self.order.yields.iter().any(|(who, _)| *who == program)
    }

    fn linger_ns(&self, leader: usize) -> u64 {
        if self.order.no_linger.contains(&leader) { 0 } else { self.machine.linger_ns }
    }

    fn is_stopped(&self, program: usize) -> bool {
        let now = self.now();
        let is_member = self.order.members.iter().any(|part| part.program == program);
        let raised = |leader: usize| {
            let client = &self.clients[leader];
            client.seen.busy || client.last_busy.is_some_and(|last| now < last + self.linger_ns(leader))
        };
        !is_member || self.order.yields.iter().any(|(who, to)| *who == program && raised(*to))
    }

    /// Whoever may begins its next piece of work.
    fn begin(&mut self) {
        let now = self.now();
        for program in 0..self.clients.len() {
            if !self.clients[program].waits() || self.clients[program].goes_on_at > now {
                continue;
            }
            let stopped = self.is_stopped(program);
            let on = self.confined(program);
            let client = &mut self.clients[program];
            if stopped {
                client.is_stopped = true;
            } else if client.is_stopped {
                client.is_stopped = false;
                client.goes_on_at = now + self.machine.resume_ns;
            } else {
                client.launch(&mut self.engine, self.machine, now, on, &mut self.launches);
                self.moved_at = now;
            }
        }
    }

    /// Of a GPU that runs one process at a time there are no parts.
    fn confined(&self, program: usize) -> Option<Confined> {
        let part = self.order.members.iter().find(|part| part.program == program)?;
        part.confined.filter(|on| on.until_ns > self.now() && self.machine.sharing == Sharing::Mps)
    }

    /// Lets time pass to the next change, and takes in what was done by then.
    fn pass(&mut self, end: u64) {
        let now = self.now();
        let next = self.next_change().map_or(now + 1, |at| at.max(now)).min(end);
        let pids: BTreeMap<u32, usize> =
            self.clients.iter().enumerate().map(|(place, client)| (client.pid, place)).collect();
        for Completion { ticket, pid, .. } in self.engine.advance(self.epoch + next) {
            let Some(place) = pids.get(&pid).copied() else { continue };
            let has_stops = self.has_stops(place);
            self.clients[place].answered(self.machine, ticket, next, has_stops);
        }
    }

    /// What can still happen at this very instant counts too: time stands still until it has.
    fn next_change(&self) -> Option<u64> {
        let now = self.now();
        let engine = self.engine.next_event().map(|at| at.saturating_sub(self.epoch));
        let later = |at: u64| (at > now).then_some(at);
        let requests = self.clients.iter().filter_map(|client| client.next_request_at());
        let waiting = self.clients.iter().filter(|client| client.waits());
        let going_on = waiting.filter_map(|client| later(client.goes_on_at));
        let leaders = self.order.yields.iter().map(|(_, to)| *to);
        let lingers = leaders.filter_map(|to| later(self.clients[to].last_busy? + self.linger_ns(to)));
        let orders = self.coming.as_ref().and_then(|(at, _)| later(*at));
        let looks = self.next_look().filter(|at| *at > now || self.looked_at != Some(now));
        engine.into_iter().chain(requests).chain(going_on).chain(lingers).chain(orders).chain(looks).min()
    }

    fn report(self) -> Report {
        let (ended_ns, is_stuck) = (self.now(), self.is_stuck());
        let Self { engine, clients, looks, orders, .. } = self;
        let programs = clients.into_iter().map(|mut client| {
            client.account.on_gpu = engine.kernels_done(client.pid);
            client.account
        });
        Report { ended_ns, looks, orders, is_stuck, programs: programs.collect() }
    }
}

/// A context of a process, which exists before anything is measured.
fn open(engine: &mut Engine, pid: u32) -> u64 {
    let mut handle = 0;
    for call in [Call::Init, Call::ContextCreate { device: 0 }] {
        let mut outcome = engine.request(pid, call);
        while let Outcome::Later(ticket) = outcome {
            let Some(at) = engine.next_event() else { break };
            let answers = engine.advance(at);
            if let Some(answer) = answers.into_iter().find(|answer| answer.ticket == ticket) {
                outcome = Outcome::Now(answer.reply);
            }
        }
        if let Outcome::Now(Reply::Handle(context)) = outcome {
            handle = context;
        }
    }
    handle
}
