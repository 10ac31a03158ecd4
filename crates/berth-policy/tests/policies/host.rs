//! A host in virtual time: tenants that load, allocate, compute in bursts, rest and leave; holds that take effect late;
//! evidence that comes late or never.
//!
//! Kernels of several tenants on one GPU share it evenly and lose a share to each other. A kernel that was begun is never
//! stopped. It knows nothing of any policy, and asks it twice each time: the second answer must be the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use berth_model::hold::Means;
use berth_model::{Bytes, GpuIndex, Mono, Percent, TenantKey};
use berth_policy::{Action, Activity, Decision, Gpu, Past, Policy, Reason, Stand, Tenant, Verdict, View};

use crate::units::{Due, Units, computes, exactly};

pub const MS: u64 = 1_000_000;
/// The driver's averages are taken over this long.
const AVERAGE: u64 = 200 * MS;
/// What two that compute at once lose to each other.
const LOSS: f64 = 1.12;

/// One thing a tenant does; times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Do {
    /// Makes its context. All that do so at once share the driver, and are ready together.
    Open(u64),
    Load(u64),
    /// Allocates so many MiB.
    Take(u64),
    /// Launches work and goes on at once.
    Submit(u64),
    /// Launches work and waits for it and all before it.
    Compute(u64),
    /// Copies, prepares, cleans up: on the CPU only.
    Rest(u64),
}

/// A tenant to come.
#[derive(Clone)]
pub struct Job {
    pub name: String,
    pub owner: Option<String>,
    pub gang: Option<String>,
    pub gpus: Vec<u32>,
    pub at: u64,
    pub script: Vec<Do>,
    pub means: BTreeSet<Means>,
    pub past: Option<Past>,
    pub needs: Option<Bytes>,
    pub by_person: bool,
    /// Nanoseconds by which the end of its bursts is seen late; `None`: it never is.
    pub lateness: Option<u64>,
    pub due: Option<Due>,
}

/// On one line, so that a failing host can be read.
impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Job { name, owner, gang, gpus, at, script, means, past, needs, by_person, lateness, due } = self;
        write!(f, "{name} at {at} on {gpus:?}: {script:?}; {means:?}")?;
        write!(
            f,
            " owner {owner:?} gang {gang:?} past {past:?} needs {needs:?} by person {by_person} late {lateness:?} due {due:?}"
        )
    }
}

impl Job {
    pub fn new(name: &str, at: u64, script: &[Do]) -> Self {
        Job {
            name: name.to_owned(),
            owner: None,
            gang: None,
            gpus: vec![0],
            at,
            script: script.to_vec(),
            means: BTreeSet::from([Means::Gate, Means::Lock, Means::Freeze]),
            past: None,
            needs: None,
            by_person: false,
            lateness: Some(0),
            due: None,
        }
    }

    /// All of it is to be done within so many milliseconds, and it is known how long it takes.
    pub fn due(mut self, within: u64) -> Self {
        self.due = Some(Due { within, is_each: false, kernels: 1, takes: exactly(computes(&self.script)) });
        self
    }

    /// The same, and nothing is known of it.
    pub fn due_unknown(mut self, within: u64) -> Self {
        self.due = Some(Due { within, is_each: false, kernels: 1, takes: None });
        self
    }

    /// Each burst is to be done within so many milliseconds of its launch, and takes so many.
    pub fn due_each(mut self, within: u64, takes: u64) -> Self {
        self.due = Some(Due { within, is_each: true, kernels: 1, takes: exactly(takes) });
        self
    }

    pub fn owner(mut self, owner: &str) -> Self {
        self.owner = Some(owner.to_owned());
        self
    }

    pub fn gang(mut self, gang: &str) -> Self {
        self.gang = Some(gang.to_owned());
        self
    }

    pub fn gpus(mut self, gpus: &[u32]) -> Self {
        self.gpus = gpus.to_vec();
        self
    }

    pub fn means(mut self, means: &[Means]) -> Self {
        self.means = means.iter().copied().collect();
        self
    }

    /// Its like computed for so long, all at once.
    pub fn known(mut self, seconds: f64) -> Self {
        self.past = Some(Past { active_seconds: seconds, peak_memory: None, duty: 0.9, burst_seconds: Some(seconds) });
        self
    }

    pub fn past(mut self, active_seconds: f64, duty: f64) -> Self {
        self.past = Some(Past { active_seconds, peak_memory: None, duty, burst_seconds: None });
        self
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    Coming,
    /// In a part of its script, with so many nanoseconds of it left.
    Doing {
        left: f64,
    },
    AtContext,
    AtLaunch {
        since: Mono,
    },
    AtAllocation {
        since: Mono,
    },
    Gone,
}

#[derive(Debug)]
pub struct Being {
    pub job: Job,
    step: usize,
    place: Where,
    stand: Stand,
    is_gated: bool,
    is_barred: bool,
    /// Stands still, but for kernels that were begun.
    is_still: bool,
    effect: Option<(u64, Action)>,
    /// It was let through to be told that there is no memory.
    may_fail: bool,
    /// Nanoseconds of work it has submitted and does not wait for yet.
    queued: f64,
    activity: Activity,
    /// When it will be seen to be quiet.
    evidence: Option<(u64, Mono)>,
    memory: u64,
    /// What the last look saw of it.
    seen: u64,
    parked: u64,
    // What the laws are about.
    pub finished: Option<u64>,
    pub has_failed: bool,
    pub holds: Vec<u64>,
    pub releases: Vec<u64>,
    held_since: Option<u64>,
    /// How long it was kept from going on each time, in nanoseconds; without waits for memory.
    pub waits: Vec<u64>,
    pub units: Units,
    /// GPU time it has had, in nanoseconds.
    pub computed: u64,
}

#[derive(Debug)]
pub struct Host {
    pub now: u64,
    pub beings: Vec<Being>,
    gpus: BTreeMap<u32, Card>,
    /// From a decision to its effect.
    pub delay: u64,
    pub park_delay: u64,
    /// Memory is seen as old as core use is.
    pub sees_memory_late: bool,
    again_at: Option<u64>,
    pub verdict: Verdict,
    /// Time during which several units that are not light computed on one GPU.
    pub crowded: u64,
    pub trace: String,
}

#[derive(Debug)]
struct Card {
    total: u64,
    /// Memory in use at the last look.
    seen: u64,
    busy: u64,
    core: u32,
}

pub fn key(name: &str) -> TenantKey {
    TenantKey::Cgroup { path: name.to_owned() }
}

impl Host {
    /// A host with GPUs of `total` MiB each.
    pub fn new(gpus: u32, total: u64, jobs: Vec<Job>) -> Self {
        let gpus = (0..gpus).map(|gpu| (gpu, Card { total, seen: 0, busy: 0, core: 0 })).collect();
        let beings = jobs.into_iter().map(Being::new).collect();
        let (verdict, trace) = (Verdict::default(), String::new());
        Host {
            now: 0,
            beings,
            gpus,
            delay: 0,
            park_delay: 500 * MS,
            sees_memory_late: false,
            again_at: None,
            verdict,
            crowded: 0,
            trace,
        }
    }

    /// Runs until everyone has left, or until so many milliseconds have passed.
    pub fn run(&mut self, policy: &mut dyn Policy, until_ms: u64) {
        while self.now < until_ms * MS {
            while self.settle() {}
            self.ask(policy);
            if self.settle() {
                continue;
            }
            let Some(next) = self.next_instant() else { return };
            self.pass(next.min(until_ms * MS));
        }
    }

    pub fn being(&self, name: &str) -> &Being {
        self.beings.iter().find(|being| being.job.name == name).expect("a job of that name")
    }

    pub fn finished_ms(&self, name: &str) -> Option<u64> {
        self.being(name).finished.map(|at| at / MS)
    }

    fn tell(&mut self, who: &str, what: &str) {
        let millis = self.now / MS;
        let _ = writeln!(self.trace, "{:>4}.{:03}  {who:<9} {what}", millis / 1000, millis % 1000);
    }

    fn ask(&mut self, policy: &mut dyn Policy) {
        let (view, now) = (self.view(), Mono(self.now));
        let verdict = policy.decide(&view, now);
        assert_eq!(verdict, policy.decide(&view, now), "asked twice at {} ms", self.now / MS);
        self.again_at = verdict.again_at.map(|at| at.0);
        assert!(self.again_at.is_none_or(|at| at > self.now), "asks to be asked in the past");
        for decision in &verdict.decisions {
            self.take(decision);
        }
        self.verdict = verdict;
    }

    fn take(&mut self, decision: &Decision) {
        let being = self.beings.iter().position(|being| key(&being.job.name) == decision.tenant).expect("known");
        let (now, delay, park_delay) = (self.now, self.delay, self.park_delay);
        let being = &mut self.beings[being];
        being.check(decision);
        let (to, what) = match decision.action {
            Action::Hold(means) => (Some(means), format!("hold by {}", word(means))),
            Action::Bar => (Some(Means::Gate), "bar".to_owned()),
            Action::Release => (None, "release".to_owned()),
        };
        match to {
            Some(_) => being.holds.push(now),
            None => being.releases.push(now),
        }
        let is_parking = to == Some(Means::Park) || matches!(being.stand, Stand::Held { means: Means::Park, .. });
        let delay = if is_parking { park_delay } else { delay };
        being.stand = Stand::Moving { to, since: Mono(now) };
        being.effect = Some((now + delay, decision.action));
        being.may_fail = matches!(decision.reason, Reason::NeverFits { .. } | Reason::NobodyYields { .. });
        let (name, text) = (being.job.name.clone(), format!("{what:<15} {}", decision.reason));
        self.tell(&name, &text);
    }

    /// Does one thing that is due; false if there is none.
    fn settle(&mut self) -> bool {
        let now = self.now;
        for index in 0..self.beings.len() {
            if self.beings[index].effect.is_some_and(|(at, _)| at <= now) {
                self.effect(index);
                return true;
            }
            if let Some((_, since)) = self.beings[index].evidence.filter(|(at, _)| *at <= now) {
                self.beings[index].evidence = None;
                self.beings[index].activity = Activity::Quiet { since };
                return true;
            }
            if self.beings[index].place == Where::Coming && self.beings[index].job.at * MS <= now {
                self.begin_step(index);
                return true;
            }
            if matches!(self.beings[index].place, Where::Doing { left } if left < 0.5) {
                self.end_step(index);
                return true;
            }
        }
        false
    }

    fn effect(&mut self, index: usize) {
        let now = Mono(self.now);
        let Some((_, action)) = self.beings[index].effect.take() else { return };
        let being = &mut self.beings[index];
        match action {
            Action::Hold(Means::Gate) | Action::Bar => {
                (being.is_gated, being.is_barred) = (true, action == Action::Bar);
                being.stand = match being.place {
                    Where::AtAllocation { since } => Stand::Held { means: Means::Gate, since },
                    _ => Stand::Gated { since: now },
                };
            }
            // The driver's lock comes when the queue is empty; looked at again at the end of the burst.
            Action::Hold(Means::Lock) if being.is_computing() => being.effect = Some((u64::MAX, action)),
            Action::Hold(means) => {
                if means == Means::Park {
                    (being.parked, being.memory) = (being.memory, 0);
                }
                being.is_still = means != Means::Lock;
                being.is_gated |= means == Means::Lock;
                being.stand = Stand::Held { means, since: now };
                being.held_since = (means != Means::Park).then_some(now.0);
            }
            Action::Release => self.let_go(index),
        }
    }

    fn let_go(&mut self, index: usize) {
        let now = self.now;
        let (parked, gpus) = (self.beings[index].parked, self.beings[index].job.gpus.clone());
        if gpus.iter().any(|gpu| self.used(*gpu) + parked > self.gpus[gpu].total) {
            self.beings[index].stand = Stand::Held { means: Means::Park, since: Mono(now) };
            return;
        }
        let being = &mut self.beings[index];
        let at_allocation = being.activity;
        being.memory += std::mem::take(&mut being.parked);
        if let Some(since) = being.held_since.take() {
            being.waits.push(now - since);
        }
        (being.is_gated, being.is_barred, being.is_still, being.stand) = (false, false, false, Stand::Free);
        match being.place {
            Where::AtContext => self.begin_step(index),
            Where::AtLaunch { .. } => self.launch(index),
            Where::AtAllocation { .. } => {
                being.activity = Activity::Loading;
                if !self.allocate(index) {
                    self.fail_or_halt(index, at_allocation);
                }
            }
            Where::Coming | Where::Doing { .. } | Where::Gone => {}
        }
    }

    /// What it was let go for is not there: it fails if that was meant, else it stands there again.
    fn fail_or_halt(&mut self, index: usize, activity: Activity) {
        let being = &mut self.beings[index];
        match activity {
            Activity::AtAllocation { since, .. } if !being.may_fail => {
                being.activity = activity;
                being.halt_at_allocation(since);
            }
            _ => self.leave(index, true),
        }
    }

    fn begin_step(&mut self, index: usize) {
        let now = Mono(self.now);
        let being = &mut self.beings[index];
        being.begin_unit(now);
        match being.job.script.get(being.step).copied() {
            None => self.leave(index, false),
            Some(Do::Open(_)) if being.is_barred => {
                (being.place, being.activity) = (Where::AtContext, Activity::AtContext { since: now });
                being.held_since.get_or_insert(now.0);
                if let Stand::Gated { .. } = being.stand {
                    being.stand = Stand::Held { means: Means::Gate, since: now };
                }
                let name = being.job.name.clone();
                self.tell(&name, "- stands before its context");
            }
            Some(Do::Open(millis)) => {
                being.activity = Activity::Opening { since: now };
                being.place = Where::Doing { left: nanos(millis) };
            }
            Some(Do::Load(millis) | Do::Rest(millis)) => being.place = Where::Doing { left: nanos(millis) },
            Some(Do::Compute(_) | Do::Submit(_)) if being.is_gated => {
                being.place = Where::AtLaunch { since: now };
                let before = if let Activity::Computing { since } = being.activity { Some(since) } else { None };
                (being.activity, being.evidence) = (Activity::AtLaunch { since: now, computing_since: before }, None);
                being.held_since.get_or_insert(now.0);
                if let Stand::Gated { .. } = being.stand {
                    being.stand = Stand::Held { means: Means::Gate, since: now };
                }
                let name = being.job.name.clone();
                self.tell(&name, "- stands at its launch");
            }
            Some(Do::Compute(_) | Do::Submit(_)) => self.launch(index),
            Some(Do::Take(_)) => {
                if !self.allocate(index) {
                    self.stand_at_allocation(index);
                }
            }
        }
    }

    fn launch(&mut self, index: usize) {
        let now = Mono(self.now);
        let being = &mut self.beings[index];
        being.activity = match being.activity {
            Activity::Computing { since } | Activity::AtLaunch { computing_since: Some(since), .. } => {
                Activity::Computing { since }
            }
            _ => Activity::Computing { since: now },
        };
        being.evidence = None;
        match being.job.script.get(being.step).copied() {
            Some(Do::Compute(millis)) => {
                being.place = Where::Doing { left: std::mem::take(&mut being.queued) + nanos(millis) };
                let name = being.job.name.clone();
                if millis >= 1000 {
                    self.tell(&name, "- computes");
                }
            }
            Some(Do::Submit(millis)) => {
                being.queued += nanos(millis);
                being.step += 1;
                self.begin_step(index);
            }
            _ => unreachable!("at a launch"),
        }
    }

    fn end_step(&mut self, index: usize) {
        let now = self.now;
        let being = &mut self.beings[index];
        if let Some(Do::Open(_)) = being.job.script.get(being.step) {
            (being.activity, being.is_barred) = (Activity::Loading, false);
        }
        if let Some(Do::Compute(_)) = being.job.script.get(being.step) {
            if let Some(due) = being.job.due {
                being.units.end_kernel(due, Mono(now));
            }
            match being.job.lateness {
                Some(0) => being.activity = Activity::Quiet { since: Mono(now) },
                late => being.evidence = late.map(|late| (now + late, Mono(now))),
            }
            if let Some((at, Action::Hold(Means::Lock))) = &mut being.effect {
                *at = now;
            }
        }
        being.step += 1;
        self.begin_step(index);
    }

    fn allocate(&mut self, index: usize) -> bool {
        let being = &self.beings[index];
        let Some(Do::Take(mib)) = being.job.script.get(being.step).copied() else { unreachable!("at an allocation") };
        if being.job.gpus.iter().any(|gpu| self.used(*gpu) + mib > self.gpus[gpu].total) {
            return false;
        }
        self.beings[index].memory += mib;
        self.beings[index].step += 1;
        self.begin_step(index);
        true
    }

    fn stand_at_allocation(&mut self, index: usize) {
        let now = Mono(self.now);
        let being = &mut self.beings[index];
        let Some(Do::Take(mib)) = being.job.script.get(being.step).copied() else { unreachable!("at an allocation") };
        if !being.job.means.contains(&Means::Gate) {
            return self.leave(index, true);
        }
        being.place = Where::AtAllocation { since: now };
        being.activity = Activity::AtAllocation { since: now, bytes: Bytes::from_mib(mib) };
        if being.effect.is_none() {
            being.halt_at_allocation(now);
        }
        let name = being.job.name.clone();
        self.tell(&name, &format!("- stands at an allocation of {}", Bytes::from_mib(mib)));
    }

    fn leave(&mut self, index: usize, has_failed: bool) {
        let being = &mut self.beings[index];
        (being.place, being.memory, being.effect, being.evidence) = (Where::Gone, 0, None, None);
        being.queued = 0.0;
        (being.finished, being.has_failed) = (Some(self.now), has_failed);
        if let Some(due) = being.job.due {
            being.units.end(due, Mono(self.now));
        }
        let float = being.units.floats.last().copied().filter(|_| being.job.due.is_some_and(|due| !due.is_each));
        let name = being.job.name.clone();
        self.tell(&name, if has_failed { "- out of memory" } else { "- has left" });
        if let Some(float) = float {
            let what = if float < 0 { "late" } else { "in time" };
            self.tell(&name, &format!("- {what} by {} ms", float.abs() / i128::from(MS)));
        }
    }

    fn used(&self, gpu: u32) -> u64 {
        self.beings.iter().filter(|being| being.job.gpus.contains(&gpu)).map(|being| being.memory).sum()
    }

    fn computing_on(&self, gpu: u32) -> impl Iterator<Item = &Being> {
        self.beings.iter().filter(move |being| being.is_computing() && being.job.gpus.contains(&gpu))
    }

    /// Speed of a being's work on its GPUs.
    fn share(&self, being: &Being) -> f64 {
        let crowd = being.job.gpus.iter().map(|gpu| self.computing_on(*gpu).count()).max().unwrap_or(1);
        match u32::try_from(crowd) {
            Ok(crowd) if crowd > 1 => 1.0 / (f64::from(crowd) * LOSS),
            _ => 1.0,
        }
    }

    /// How many make their contexts on the GPUs of one that does; 1 for others.
    fn opening_beside(&self, being: &Being) -> f64 {
        let opens =
            |other: &&Being| other.is_opening() && other.job.gpus.iter().any(|gpu| being.job.gpus.contains(gpu));
        let count = self.beings.iter().filter(opens).count();
        if being.is_opening() { f64::from(u32::try_from(count).expect("few")) } else { 1.0 }
    }

    /// Speed of a being in its part of the script.
    fn speed(&self, being: &Being) -> f64 {
        match being.waits_for_gpu() {
            true => self.share(being),
            false if being.is_still => 0.0,
            false => 1.0 / self.opening_beside(being),
        }
    }

    fn next_instant(&self) -> Option<u64> {
        let alive = self.beings.iter().filter(|being| being.place != Where::Gone);
        let mut next: Vec<u64> = alive.clone().filter_map(|being| being.effect).map(|(at, _)| at).collect();
        next.extend(alive.clone().filter_map(|being| being.evidence).map(|(at, _)| at));
        for being in alive.clone() {
            match (being.place, self.speed(being)) {
                (Where::Coming, _) => next.push(being.job.at * MS),
                (Where::Doing { left }, speed) if speed > 0.0 => next.push(self.now + whole((left / speed).ceil())),
                _ => {}
            }
            if being.queued > 0.0 {
                next.push(self.now + whole((being.queued / self.share(being)).ceil()));
            }
        }
        next.extend(self.again_at);
        next.push((self.now / AVERAGE + 1) * AVERAGE);
        alive.clone().next()?;
        next.into_iter().filter(|at| *at > self.now && *at < u64::MAX).min()
    }

    fn pass(&mut self, to: u64) {
        let passed = to - self.now;
        let speeds: Vec<_> = self.beings.iter().map(|being| (self.speed(being), self.share(being))).collect();
        let units_on = |gpu: &u32| {
            let heavy = self.computing_on(*gpu).filter(|being| !being.is_light());
            heavy.map(|being| being.job.gang.as_ref().unwrap_or(&being.job.name)).collect::<BTreeSet<_>>().len()
        };
        let is_crowded = self.gpus.keys().any(|gpu| units_on(gpu) > 1);
        self.crowded += if is_crowded { passed } else { 0 };
        let busy: Vec<u32> = self.gpus.keys().copied().filter(|gpu| self.computing_on(*gpu).next().is_some()).collect();
        for (being, (speed, share)) in self.beings.iter_mut().zip(speeds) {
            if let Where::Doing { left } = &mut being.place {
                *left -= whole_f(passed) * speed;
            }
            let computed = if being.is_computing() { whole_f(passed) * share } else { 0.0 };
            being.computed += whole(computed);
            being.units.pass(computed);
            being.queued = (being.queued - whole_f(passed) * share).max(0.0);
        }
        let used: BTreeMap<u32, u64> = self.gpus.keys().map(|gpu| (*gpu, self.used(*gpu))).collect();
        let is_look = to.is_multiple_of(AVERAGE);
        for being in self.beings.iter_mut().filter(|_| is_look) {
            being.seen = being.memory;
        }
        for (gpu, card) in &mut self.gpus {
            card.busy += if busy.contains(gpu) { passed } else { 0 };
            if is_look {
                card.seen = used[gpu];
                card.core = u32::try_from(std::mem::take(&mut card.busy) * 100 / AVERAGE).expect("a share");
            }
        }
        self.now = to;
    }

    pub fn view(&self) -> View {
        let gpu = |(index, card): (&u32, &Card)| Gpu {
            index: GpuIndex(*index),
            memory_total: Some(Bytes::from_mib(card.total)),
            memory_used: Some(Bytes::from_mib(if self.sees_memory_late { card.seen } else { self.used(*index) })),
            core: Percent::checked(card.core),
            core_at: Some(Mono(self.now)),
        };
        let is_there = |being: &&Being| !matches!(being.place, Where::Coming | Where::Gone);
        View {
            gpus: self.gpus.iter().map(gpu).collect(),
            tenants: self.beings.iter().filter(is_there).map(|being| being.tenant(self.sees_memory_late)).collect(),
        }
    }
}

impl Being {
    fn new(job: Job) -> Self {
        let first = match job.script.iter().any(|part| matches!(part, Do::Open(_))) {
            true => Activity::Opening { since: Mono(job.at * MS) },
            false => Activity::Loading,
        };
        Being {
            stand: if job.by_person { Stand::ByPerson } else { Stand::Free },
            job,
            step: 0,
            place: Where::Coming,
            is_gated: false,
            is_barred: false,
            is_still: false,
            effect: None,
            may_fail: false,
            queued: 0.0,
            activity: first,
            evidence: None,
            memory: 0,
            seen: 0,
            parked: 0,
            finished: None,
            has_failed: false,
            holds: Vec::new(),
            releases: Vec::new(),
            held_since: None,
            waits: Vec::new(),
            units: Units::default(),
            computed: 0,
        }
    }

    fn halt_at_allocation(&mut self, since: Mono) {
        (self.stand, self.is_gated) = (Stand::Held { means: Means::Gate, since }, true);
    }

    fn begin_unit(&mut self, now: Mono) {
        let is_launch = matches!(self.job.script.get(self.step), Some(Do::Compute(_) | Do::Submit(_)));
        if self.job.due.is_some_and(|due| is_launch || !due.is_each) {
            self.units.begin(now);
        }
    }

    fn is_computing(&self) -> bool {
        self.queued > 0.0 || self.waits_for_gpu()
    }

    fn waits_for_gpu(&self) -> bool {
        matches!(self.place, Where::Doing { .. }) && matches!(self.job.script.get(self.step), Some(Do::Compute(_)))
    }

    fn is_opening(&self) -> bool {
        let is_at_it = matches!(self.job.script.get(self.step), Some(Do::Open(_)));
        is_at_it && matches!(self.place, Where::Doing { .. }) && !self.is_still
    }

    pub fn is_light(&self) -> bool {
        self.job.past.is_some_and(|past| past.duty <= 0.25)
    }

    /// What no policy may do.
    fn check(&self, decision: &Decision) {
        let name = &self.job.name;
        assert!(!self.job.by_person, "{name} is in a person's hands: {decision:?}");
        assert!(!self.job.means.is_empty(), "{name} is exempt: {decision:?}");
        assert!(!matches!(self.stand, Stand::Moving { .. }), "{name} is moving: {decision:?}");
        match decision.action {
            Action::Hold(means) => {
                assert!(self.job.means.contains(&means), "{name} cannot be held like that: {decision:?}");
                assert!(means == Means::Park || self.stand == Stand::Free, "{name} is held: {decision:?}");
            }
            Action::Bar => {
                assert!(self.job.means.contains(&Means::Gate), "{name} cannot be stopped: {decision:?}");
                assert_eq!(self.stand, Stand::Free, "{name} is held: {decision:?}");
            }
            Action::Release => assert_ne!(self.stand, Stand::Free, "{name} is free: {decision:?}"),
        }
    }

    fn tenant(&self, sees_memory_late: bool) -> Tenant {
        Tenant {
            key: key(&self.job.name),
            name: self.job.name.clone(),
            owner: self.job.owner.clone(),
            gpus: self.job.gpus.iter().copied().map(GpuIndex).collect(),
            gang: self.job.gang.clone(),
            arrived: Mono(self.job.at * MS),
            activity: self.activity,
            memory: Some(Bytes::from_mib(if sees_memory_late { self.seen } else { self.memory })),
            needs: self.job.needs,
            core: None,
            stand: self.stand,
            means: self.job.means.clone(),
            past: self.job.past,
            work: self.job.due.and_then(|due| self.units.work(due)),
        }
    }
}

fn word(means: Means) -> &'static str {
    match means {
        Means::Freeze => "freeze",
        Means::Lock => "lock",
        Means::Gate => "gate",
        Means::Park => "park",
    }
}

fn nanos(millis: u64) -> f64 {
    whole_f(millis * MS)
}

#[expect(clippy::cast_precision_loss, reason = "virtual times are far below 2^53 ns")]
fn whole_f(nanos: u64) -> f64 {
    nanos as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "virtual times are small and positive")]
fn whole(nanos: f64) -> u64 {
    nanos as u64
}
