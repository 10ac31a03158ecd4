//! What a daemon would know of the programs: not what they are, but what their libraries write down, some of it late and some of it wrong.
//!
//! It sees at each look who has work, since when, and who is stopped. GPU time is counted by looks: time in which a program had work and
//! might run, its part where others ran beside it. What a request takes is what those before it took. How many SMs a program can use and how
//! fast it was beside others comes from the few pieces of work that are measured, read every [`READ_EVERY_NS`], and off by some percent: one
//! error for each program, which stays ([`BIAS`]), and one for each piece ([`NOISE`]). What it uses of the memory's bandwidth nobody tells.
//!
//! The rules are those of `berth_engine::kernels`, which needs processes to look at and cannot be run here.

use std::collections::VecDeque;
use std::time::Duration;

use berth_model::{Mono, TenantKey};
use berth_policy::kernels::{Attained, Client, ClientId, Profile, Queue, Voice, Work};
use berth_sim::scenario::kernels::{Sample, Seen, Sight};

use super::Tenant;
use crate::bench::edf::load::Dice;

const READ_EVERY_NS: u64 = 50_000_000;
const BIAS: f64 = 0.1;
const NOISE: f64 = 0.05;
/// Requests over which attainment is taken, and the fewest that say anything.
const REMEMBERED: usize = 256;
const FEW: usize = 20;
/// Weight of the latest request in what one usually takes, and of the latest sample in what is usual.
const TAKES_FOLLOWS: f64 = 0.2;
const SAMPLES_FOLLOW: f64 = 0.05;

#[derive(Debug)]
pub struct Watch {
    programs: Vec<Known>,
    looked_at: u64,
    read_at: u64,
    /// Who ran at the last looks, the latest last.
    ran: VecDeque<(u64, Vec<usize>)>,
    /// Measured and not read yet.
    unread: Vec<(usize, Sample)>,
    dice: Dice,
    /// When requests came is told.
    is_told: bool,
}

/// A piece of work beside others, as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub who: usize,
    pub beside: Vec<usize>,
    pub alone: Duration,
    pub took: Duration,
}

#[derive(Debug)]
struct Known {
    tenant: Tenant,
    /// Estimates of it are off by this factor.
    bias: f64,
    arrived: Option<Mono>,
    busy: bool,
    since: Mono,
    served_ns: u64,
    began_served_ns: u64,
    waiting_since: Option<Mono>,
    takes: Option<Duration>,
    requests: usize,
    in_time: VecDeque<bool>,
    demand: Option<f64>,
    kernel_ns: Option<f64>,
    queue: Queue,
}

impl Watch {
    /// The same seed is wrong in the same way.
    pub fn new(tenants: &[Tenant]) -> Self {
        let mut dice = Dice::new(tenants.len() as u64 + 77);
        let programs = tenants.iter().map(|tenant| Known::new(tenant, dice.between(1.0 - BIAS, 1.0 + BIAS))).collect();
        Self { programs, looked_at: 0, read_at: 0, ran: VecDeque::new(), unread: Vec::new(), dice, is_told: false }
    }

    /// With what no library can see.
    pub fn told(self) -> Self {
        Self { is_told: true, ..self }
    }

    /// Takes in one look, and tells of the work that was read with it.
    pub fn look(&mut self, sight: &Sight<'_>) -> Vec<Read> {
        let passed = sight.now_ns - std::mem::replace(&mut self.looked_at, sight.now_ns);
        let runs = |seen: &Seen| seen.busy && seen.may_run;
        let together: Vec<usize> =
            (0..).zip(sight.programs).filter(|(_, seen)| runs(seen)).map(|(who, _)| who).collect();
        for (known, seen) in self.programs.iter_mut().zip(sight.programs) {
            known.look(seen, passed / together.len().max(1) as u64, Mono(sight.now_ns));
        }
        let measured = sight.programs.iter().enumerate();
        self.unread.extend(measured.flat_map(|(who, seen)| seen.samples.iter().map(move |sample| (who, *sample))));
        self.ran.push_back((sight.now_ns, together));
        while self.ran.front().is_some_and(|(at, _)| at + 2 * READ_EVERY_NS < sight.now_ns) {
            self.ran.pop_front();
        }
        if sight.now_ns < self.read_at + READ_EVERY_NS {
            return Vec::new();
        }
        self.read_at = sight.now_ns;
        let unread = std::mem::take(&mut self.unread);
        unread.into_iter().filter_map(|(who, sample)| self.read(who, &sample)).collect()
    }

    /// A piece of work counts for its company where that was the same before and after it.
    fn read(&mut self, who: usize, sample: &Sample) -> Option<Read> {
        let known = &mut self.programs[who];
        let noise = self.dice.between(1.0 - NOISE, 1.0 + NOISE);
        follow(&mut known.demand, (sample.demand * known.bias).clamp(0.01, 1.0));
        follow(&mut known.kernel_ns, sample.alone_ns as f64);
        let after = self.ran.iter().position(|(at, _)| *at >= sample.began_ns + sample.took_ns)?;
        let (_, company) = &self.ran[after];
        let is_steady = after > 0 && self.ran[after - 1].1 == *company && self.ran[after - 1].0 <= sample.began_ns;
        let beside = company.iter().copied().filter(|other| *other != who).collect();
        let alone = Duration::from_nanos(sample.alone_ns).mul_f64(noise);
        is_steady.then(|| Read { who, beside, alone, took: Duration::from_nanos(sample.took_ns) })
    }

    pub fn clients(&self, now: Mono) -> Vec<Client> {
        (0..).zip(&self.programs).map(|(place, known)| known.client(ClientId(place), now, self.is_told)).collect()
    }
}

impl Known {
    fn new(tenant: &Tenant, bias: f64) -> Self {
        Self {
            tenant: tenant.clone(),
            bias,
            arrived: None,
            busy: false,
            since: Mono(0),
            served_ns: 0,
            began_served_ns: 0,
            waiting_since: None,
            takes: None,
            requests: 0,
            in_time: VecDeque::new(),
            demand: None,
            kernel_ns: None,
            queue: Queue::default(),
        }
    }

    fn look(&mut self, seen: &Seen, part_ns: u64, now: Mono) {
        if self.busy && seen.may_run {
            self.served_ns += part_ns;
        }
        for done in &seen.finished {
            self.queue.ends(Mono(done.began_ns), Mono(done.done_ns));
            let took = Duration::from_nanos(done.done_ns - done.began_ns);
            let had = Duration::from_nanos(self.served_ns - self.began_served_ns);
            let was_seen = self.since == Mono(done.began_ns) && !had.is_zero();
            let takes = if was_seen { had.min(took) } else { took };
            let usual = self.takes.unwrap_or(takes);
            self.takes = Some(usual.mul_f64(1.0 - TAKES_FOLLOWS) + takes.mul_f64(TAKES_FOLLOWS));
            self.requests += 1;
            self.in_time.push_back(self.tenant.slo.within().is_none_or(|within| took <= within));
        }
        self.in_time.drain(..self.in_time.len().saturating_sub(REMEMBERED));
        if seen.busy && (!self.busy || self.since != Mono(seen.since_ns)) {
            self.arrived.get_or_insert(now);
            (self.since, self.began_served_ns) = (Mono(seen.since_ns), self.served_ns);
            self.queue.begins(self.since);
        }
        self.busy = seen.busy;
        let waits = seen.busy && !seen.may_run;
        self.waiting_since = waits.then(|| self.waiting_since.unwrap_or(now));
    }

    /// When the request under way came.
    fn really_came(&self) -> Option<Mono> {
        self.tenant.program.requests.get(self.requests).map(|request| Mono(request.at_ns.min(self.since.0)))
    }

    fn client(&self, id: ClientId, now: Mono, is_told: bool) -> Client {
        let kernel = self.kernel_ns.map(|ns| Duration::from_secs_f64(ns / 1e9));
        let done = Duration::from_nanos(self.served_ns - self.began_served_ns);
        let in_time = self.in_time.iter().filter(|in_time| **in_time).count() as f64 / self.in_time.len().max(1) as f64;
        let latency = (self.tenant.slo.within().is_some() && self.in_time.len() >= FEW).then_some(in_time);
        Client {
            id,
            tenant: TenantKey::Cgroup { path: format!("/{id}") },
            owner: Some(self.tenant.owner.clone()),
            slo: self.tenant.slo.clone(),
            arrived: self.arrived.unwrap_or(now),
            busy: self.busy,
            waiting_since: self.waiting_since,
            profile: Profile { kernel, longest: kernel, request: self.takes, demand: self.demand, bandwidth: None },
            work: self.busy.then_some(Work {
                began: self.since,
                came: self.really_came().filter(|_| is_told).unwrap_or_else(|| self.queue.came(self.since)),
                done,
                takes: self.takes,
            }),
            attainment: Attained { latency, throughput: None, availability: None }.combined(),
            served_ns: self.served_ns,
            voice: Voice::default(),
        }
    }
}

fn follow(usual: &mut Option<f64>, figure: f64) {
    *usual = Some(usual.map_or(figure, |usual| usual + SAMPLES_FOLLOW * (figure - usual)));
}
