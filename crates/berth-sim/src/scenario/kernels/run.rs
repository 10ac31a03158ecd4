//! The loop: from one instant at which something changes to the next.

use super::rates::{Running, speeds};
use super::{Account, Done, Kernel, Machine, Order, Program, Report, Seen, Sight, Steward};
use crate::engine::nanos;

/// Runs the programs until all is done, or to `until_ns`.
pub fn run(machine: &Machine, programs: &[Program], steward: &mut dyn Steward, until_ns: Option<u64>) -> Report {
    let mut world = World::new(machine, programs);
    let end = until_ns.unwrap_or(u64::MAX);
    while world.now < end && !world.is_done() {
        world.come();
        world.ask(steward);
        world.begin();
        let next = world.next_change().min(end);
        world.pass(next);
    }
    world.report()
}

struct World<'a> {
    machine: &'a Machine,
    programs: &'a [Program],
    now: u64,
    lives: Vec<Life>,
    seen: Vec<Seen>,
    accounts: Vec<Account>,
    order: Order,
    /// Counts from then on.
    coming: Option<(u64, Order)>,
    /// Somebody came or is done since the last order.
    changed: bool,
    orders: u64,
}

/// Where a program is.
#[derive(Debug, Clone, Default)]
struct Life {
    /// Requests that came, and the one under way.
    came: usize,
    request: usize,
    /// Kernels of it that are done, and what is left of the one that runs, as if alone.
    place: u64,
    running: Option<(Kernel, f64)>,
    /// Work begun since it looked at its stops.
    since_look: u64,
    /// It stands at a stop; when that is lifted, it goes on at this instant.
    stopped: bool,
    resumes: Option<u64>,
    /// When it last had work, for those who yield to it.
    last_busy: Option<u64>,
}

impl<'a> World<'a> {
    fn new(machine: &'a Machine, programs: &'a [Program]) -> Self {
        let count = programs.len();
        Self {
            machine,
            programs,
            now: 0,
            lives: vec![Life::default(); count],
            seen: vec![Seen::default(); count],
            accounts: vec![Account::default(); count],
            order: Order::default(),
            coming: None,
            changed: true,
            orders: 0,
        }
    }

    fn is_done(&self) -> bool {
        let done = |(life, program): (&Life, &Program)| life.request == program.requests.len();
        self.lives.iter().zip(self.programs).all(done)
    }

    /// Requests whose time has come.
    fn come(&mut self) {
        for place in 0..self.lives.len() {
            let (life, requests) = (&mut self.lives[place], &self.programs[place].requests);
            while requests.get(life.came).is_some_and(|request| request.at_ns <= self.now) {
                life.came += 1;
            }
            let busy = life.request < life.came;
            let seen = &mut self.seen[place];
            if busy && !seen.busy {
                seen.waiting_since_ns = Some(self.now);
                self.changed = true;
            }
            seen.busy = busy;
            seen.request = busy.then_some(life.request);
            if busy {
                seen.came_ns = requests[life.request].at_ns;
                life.last_busy = Some(self.now);
            }
        }
    }

    /// Takes an order that counts from now on, and asks for the next.
    fn ask(&mut self, steward: &mut dyn Steward) {
        if let Some((_, order)) = self.coming.take_if(|(at, _)| *at <= self.now) {
            self.order = order;
        }
        let is_time = self.changed || self.order.until_ns <= self.now;
        if self.coming.is_some() || !is_time {
            return;
        }
        let order = steward.order(&Sight { now_ns: self.now, programs: &self.seen });
        debug_assert!(order.until_ns > self.now, "an order that is over before it counts would be asked for for ever");
        self.orders += 1;
        self.changed = false;
        for seen in &mut self.seen {
            (seen.ran_ns, seen.got_ns) = (0.0, 0.0);
            seen.finished.clear();
        }
        self.coming = Some((self.now + self.machine.plan_ns, order));
    }

    fn is_stopped(&self, program: usize) -> bool {
        let member = self.order.members.iter().any(|part| part.program == program);
        let raised = |leader: usize| {
            let last = self.lives[leader].last_busy;
            last.is_some_and(|last| self.now < last + self.machine.linger_ns || self.seen[leader].busy)
        };
        !member || self.order.yields.iter().any(|(who, to)| *who == program && raised(*to))
    }

    /// Whoever may begins its next kernel.
    fn begin(&mut self) {
        for program in 0..self.lives.len() {
            if self.lives[program].running.is_some() || !self.seen[program].busy {
                continue;
            }
            let request = &self.programs[program].requests[self.lives[program].request];
            let Some(kernel) = request.kernel(self.lives[program].place) else { continue };
            let looks = self.lives[program].since_look + kernel.alone_ns > self.machine.grain_ns;
            let cost = if looks { self.machine.look_ns } else { 0 };
            if (looks || self.lives[program].stopped) && !self.may_go_on(program) {
                continue;
            }
            let life = &mut self.lives[program];
            life.since_look = if looks { kernel.alone_ns } else { life.since_look + kernel.alone_ns };
            life.running = Some((kernel, (kernel.alone_ns + cost) as f64));
            self.accounts[program].begun += 1;
            let waited = self.seen[program].waiting_since_ns.take().map_or(0, |since| self.now - since);
            let longest = &mut self.accounts[program].longest_wait_ns;
            *longest = (*longest).max(waited);
        }
    }

    fn may_go_on(&mut self, program: usize) -> bool {
        let stopped = self.is_stopped(program);
        let (now, resume) = (self.now, self.machine.resume_ns);
        let life = &mut self.lives[program];
        if stopped {
            (life.stopped, life.resumes) = (true, None);
            let seen = &mut self.seen[program];
            seen.waiting_since_ns = seen.waiting_since_ns.or(Some(now));
            return false;
        }
        if life.stopped && *life.resumes.get_or_insert(now + resume) > now {
            return false;
        }
        (life.stopped, life.resumes) = (false, None);
        true
    }

    fn running(&self) -> (Vec<usize>, Vec<Running>) {
        let each = self.lives.iter().enumerate();
        each.filter_map(|(program, life)| {
            let (kernel, _) = life.running?;
            let part = self.order.members.iter().find(|part| part.program == program);
            let confined =
                part.and_then(|part| part.confined).filter(|(_, until)| self.now < *until).map(|(sms, _)| sms);
            Some((program, Running { kernel, confined }))
        })
        .unzip()
    }

    /// The next instant at which anything can be different; at least the next nanosecond.
    fn next_change(&self) -> u64 {
        let (who, running) = self.running();
        let ends = who.iter().zip(speeds(self.machine, &running)).filter_map(|(program, speed)| {
            let (_, left) = self.lives[*program].running?;
            Some(self.now + nanos((left / speed.max(1e-6)).ceil()))
        });
        let arrivals = self.lives.iter().zip(self.programs);
        let arrivals = arrivals.filter_map(|(life, program)| Some(program.requests.get(life.came)?.at_ns));
        let resumes = self.lives.iter().filter_map(|life| life.resumes);
        let lingers = self.lives.iter().filter_map(|life| Some(life.last_busy? + self.machine.linger_ns));
        let confined = self.order.members.iter().filter_map(|part| Some(part.confined?.1));
        let orders = [Some(self.order.until_ns), self.coming.as_ref().map(|(at, _)| *at)].into_iter().flatten();
        let all = ends.chain(arrivals).chain(resumes).chain(lingers).chain(confined).chain(orders);
        all.filter(|at| *at > self.now).min().unwrap_or(self.now + 1)
    }

    /// Lets time pass; kernels whose time is up are done.
    fn pass(&mut self, to: u64) {
        let passed = (to - self.now) as f64;
        let (who, running) = self.running();
        let speeds = speeds(self.machine, &running);
        self.now = to;
        for (program, speed) in who.into_iter().zip(speeds) {
            let Some((kernel, left)) = self.lives[program].running else { continue };
            let got = (passed * speed).min(left);
            let seen = &mut self.seen[program];
            (seen.ran_ns, seen.got_ns) = (seen.ran_ns + passed, seen.got_ns + got);
            self.lives[program].running = Some((kernel, left - got));
            if left - got < 0.5 {
                self.kernel_done(program, kernel);
            }
        }
    }

    fn kernel_done(&mut self, program: usize, kernel: Kernel) {
        let (life, seen, account) = (&mut self.lives[program], &mut self.seen[program], &mut self.accounts[program]);
        life.running = None;
        life.place += 1;
        account.ended += 1;
        account.served_ns += kernel.alone_ns;
        (seen.served_ns, seen.done_ns) = (seen.served_ns + kernel.alone_ns, seen.done_ns + kernel.alone_ns);
        let request = &self.programs[program].requests[life.request];
        if life.place == request.kernel_count() {
            let done = Done { request: life.request, came_ns: request.at_ns, done_ns: self.now };
            seen.finished.push(done);
            account.finished.push(done);
            (life.request, life.place, seen.done_ns) = (life.request + 1, 0, 0);
            self.changed = true;
            if life.request < life.came {
                seen.waiting_since_ns = Some(self.now);
            } else {
                (seen.busy, seen.request, life.since_look) = (false, None, 0);
                life.last_busy = Some(self.now);
            }
        }
    }

    fn report(self) -> Report {
        Report { ended_ns: self.now, orders: self.orders, programs: self.accounts }
    }
}
