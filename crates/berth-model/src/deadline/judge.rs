//! Units of work, from their start to their verdict.
//!
//! Pure: what each tenant does, turn by turn, in; what became of each unit out. Everybody's units are followed, so that a deadline that
//! is set in the middle of one counts from that one's start. All instants are monotonic: a clock that jumps changes nothing.
//!
//! A unit is a task, as paper 3 has it: start when the tenant comes to the GPUs, end when it has left. Of one that serves requests it is
//! a burst: from a launch after a pause until the last work before the next pause is done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Deadline, Terms, Unit, UnitRule, Verdict};
use crate::event::Evidence;
use crate::history::Why;
use crate::id::{ProcKey, TaskId, TenantKey};
use crate::settings::Deadlines;
use crate::time::Mono;

/// Of a unit's time that must be known for it to be said how long it computed.
const LEAST_KNOWN: f64 = 0.8;
/// Names kept of those one unit waited for.
const MOST_BEHIND: usize = 16;

/// What a tenant does, as far as it matters for its units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pulse {
    /// Something of it runs on a GPU, as one of `crowd` there.
    Computes { since: Mono, crowd: u32 },
    /// It is kept from going on; `behind` is for whom, as people call it. `since`: it has wanted to compute since then, `None` where it
    /// stands elsewhere than at a launch.
    Waits { since: Option<Mono>, behind: Option<String> },
    /// It has computed, and nothing of it has run since then.
    Quiet { since: Mono },
    /// It has not computed yet: makes its context, copies.
    Loads,
    /// Nobody can tell.
    Unknown,
}

/// A tenant in a task, at one turn.
#[derive(Debug, Clone)]
pub struct Sitting<'a> {
    pub tenant: &'a TenantKey,
    pub task: TaskId,
    pub task_started: Mono,
    pub evidence: Evidence,
    pub processes: BTreeSet<ProcKey>,
    /// What its units are, whether or not it has a deadline.
    pub unit: UnitRule,
    pub terms: Option<&'a Terms>,
    pub pulse: Pulse,
}

/// A unit under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Open {
    pub unit: Unit,
    pub started: Mono,
    /// How the start is known.
    pub evidence: Evidence,
    /// When it first wanted to compute.
    pub first_busy: Option<Mono>,
    /// Since when it has not computed, if it has before.
    quiet_since: Option<Mono>,
    /// When it was last seen busy: it did not end before that, whoever of its processes tells.
    #[serde(default)]
    last_busy: Mono,
    /// GPU time, as if alone: of *k* that compute each has a *k*-th.
    active: Duration,
    /// Time lost by computing beside others.
    contended: Duration,
    held: Duration,
    unknown: Duration,
    behind: BTreeMap<String, Duration>,
}

/// A unit under way as policies and people see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Work {
    pub unit: Unit,
    pub started: Mono,
    pub due: Mono,
    /// GPU time so far, as if alone.
    pub active: Duration,
    /// Since when nothing of it computes, if it has before.
    pub quiet_since: Option<Mono>,
}

/// A unit that is over.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub tenant: TenantKey,
    pub task: TaskId,
    pub unit: Unit,
    pub deadline: Deadline,
    pub started: Mono,
    pub due: Mono,
    /// `None`: nobody saw it.
    pub ended: Option<Mono>,
    /// What was left until it was due; `None` where start or end is not known well enough to say.
    pub float_seconds: Option<f64>,
    /// GPU time, as if alone; `None` where it was not seen.
    pub active_seconds: Option<f64>,
    pub held_seconds: f64,
    pub contended_seconds: f64,
    /// Why it was missed, as far as berth knows.
    pub why: Option<Why>,
}

#[derive(Debug)]
struct Account {
    task: TaskId,
    terms: Option<Terms>,
    processes: BTreeSet<ProcKey>,
    pulse: Pulse,
    at: Mono,
    /// When its task began, or its last unit in it ended: no other begins before.
    last_end: Mono,
    rule: UnitRule,
    /// No burst of it begins before it has been seen to pause: the start of the one under way is not known.
    awaits_pause: bool,
    /// Since when it is followed.
    since: Mono,
    /// It has been idle and computed again in this task.
    serves: bool,
    open: Option<Open>,
}

#[derive(Debug)]
pub struct Judge {
    settings: Deadlines,
    accounts: BTreeMap<TenantKey, Account>,
    /// Units of an earlier daemon that may go on.
    left: Vec<(TenantKey, Left)>,
}

/// A tenant in a task when an earlier daemon was last heard of, with its unit under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Left {
    pub processes: BTreeSet<ProcKey>,
    /// When that was, in this boot.
    pub heard: Mono,
    pub deadline: Option<Deadline>,
    /// It is judged by its bursts.
    #[serde(default)]
    pub serves: bool,
    /// `None` between bursts.
    pub open: Option<Open>,
}

// === impl Judge ===

impl Judge {
    pub fn new(settings: Deadlines) -> Self {
        Self { settings, accounts: BTreeMap::new(), left: Vec::new() }
    }

    /// It may go on.
    pub fn recall(&mut self, tenant: TenantKey, left: Left) {
        self.left.push((tenant, left));
    }

    /// Of those that were recalled, the ones nobody has come back for, and bursts, which are over or others now: their end was not seen.
    /// Those who are on their way to a GPU again (`is_coming`) are still waited for.
    pub fn lost(&mut self, is_coming: impl Fn(&TenantKey) -> bool) -> Vec<(TenantKey, Left)> {
        let is_lost = |(tenant, left): &mut (TenantKey, Left)| left.processes.is_empty() || !is_coming(tenant);
        self.left.extract_if(.., is_lost).collect()
    }

    /// Takes in what a tenant does; a unit that is over by that is told.
    pub fn sit(&mut self, sitting: Sitting<'_>, now: Mono) -> Option<Judged> {
        let Sitting { tenant, task, task_started, evidence, processes, unit, terms, pulse } = sitting;
        let resumed = self.resumed(tenant, &processes, now);
        let account = self.accounts.entry(tenant.clone()).or_insert_with(|| Account::new(task, task_started, now));
        if account.task != task {
            *account = Account::new(task, task_started, now);
        }
        account.charge(now);
        account.processes = processes;
        account.rule = unit;
        account.meet(terms, self.settings.serves_after.get(), now);
        if let Some(Left { serves, open, .. }) = resumed {
            account.serves |= serves;
            // A burst that was under way when nobody looked has no start any more.
            account.awaits_pause = account.serves;
            account.open = open.or(account.open.take());
        }
        let closed = if account.is_by_burst() {
            account.burst(&pulse, self.settings.burst_gap.get(), now)
        } else {
            account.task(&pulse, || Open::new(Unit::Task, task_started, evidence), &self.settings)
        };
        account.pulse = pulse;
        let (open, ended) = closed?;
        account.judged(tenant, open, Some(ended))
    }

    /// Its task has ended.
    pub fn task_ended(&mut self, tenant: &TenantKey, at: Mono) -> Option<Judged> {
        let mut account = self.accounts.remove(tenant)?;
        account.charge(at);
        let open = account.open.take()?;
        let ended = match open.unit {
            Unit::Task => at,
            Unit::Burst => open.quiet_since.unwrap_or(at),
        };
        account.judged(tenant, open, Some(ended))
    }

    /// A tenant in a task, for the next daemon.
    pub fn open(&self, tenant: &TenantKey, now: Mono) -> Option<Left> {
        let Account { processes, terms, open, serves, .. } = self.accounts.get(tenant)?;
        Some(Left {
            processes: processes.clone(),
            heard: now,
            deadline: terms.as_ref().map(|terms| terms.deadline),
            serves: *serves,
            open: open.clone(),
        })
    }

    /// A tenant's unit under way; `None` without a deadline, and between bursts.
    pub fn work(&self, tenant: &TenantKey) -> Option<Work> {
        let account = self.accounts.get(tenant)?;
        let (open, terms) = (account.open.as_ref()?, account.terms.as_ref()?);
        Some(Work {
            unit: open.unit,
            started: open.started,
            due: open.started + terms.deadline.get(),
            active: open.active,
            quiet_since: open.quiet_since,
        })
    }

    /// What a tenant is judged by.
    pub fn unit(&self, tenant: &TenantKey) -> Option<Unit> {
        let account = self.accounts.get(tenant)?;
        Some(if account.is_by_burst() { Unit::Burst } else { Unit::Task })
    }

    /// When a burst is known to be over though nothing happens.
    pub fn again_at(&self) -> Option<Mono> {
        let ends = self.accounts.values().filter_map(|account| {
            let open = account.open.as_ref().filter(|open| open.unit == Unit::Burst)?;
            Some(open.quiet_since? + self.settings.burst_gap.get())
        });
        ends.min()
    }

    /// What an earlier daemon knew of it, if it is of the same processes.
    fn resumed(&mut self, tenant: &TenantKey, processes: &BTreeSet<ProcKey>, now: Mono) -> Option<Left> {
        let is_same = |(whose, left): &(TenantKey, Left)| {
            whose.is(tenant) && left.processes.intersection(processes).next().is_some()
        };
        let at = self.left.iter().position(is_same)?;
        let (whose, mut left) = self.left.swap_remove(at);
        match &mut left.open {
            // It may have gone on since then: what was a pause says nothing.
            Some(open) if open.unit == Unit::Task => {
                open.unknown += now.since(left.heard);
                open.quiet_since = None;
            }
            Some(_) => {
                let burst = Left { processes: BTreeSet::new(), open: left.open.take(), ..left.clone() };
                self.left.push((whose, burst));
            }
            None => {}
        }
        Some(left)
    }
}

// === impl Account ===

impl Account {
    fn new(task: TaskId, started: Mono, at: Mono) -> Self {
        let (terms, processes, pulse) = (None, BTreeSet::new(), Pulse::Unknown);
        let (rule, since) = (UnitRule::Task, at);
        Self {
            task,
            terms,
            processes,
            pulse,
            at,
            last_end: started,
            rule,
            awaits_pause: false,
            since,
            serves: false,
            open: None,
        }
    }

    fn is_by_burst(&self) -> bool {
        match self.rule {
            UnitRule::Burst => true,
            UnitRule::Auto => self.serves,
            UnitRule::Task => false,
        }
    }

    /// Who gets a deadline in the middle of its task was not watched call by call before: of its burst under way the start is not known, and
    /// its next is judged. What the engine tells of a newcomer's labels comes a moment after it.
    fn meet(&mut self, terms: Option<&Terms>, newcomer_for: Duration, now: Mono) {
        let is_given = self.terms.is_none() && terms.is_some();
        if is_given && self.is_by_burst() && now.since(self.since) >= newcomer_for {
            self.open = None;
            self.awaits_pause = true;
        }
        self.terms = terms.cloned();
    }

    /// What it did since the last turn counts for the unit under way.
    fn charge(&mut self, now: Mono) {
        let (passed, seen) = (now.since(self.at), self.at);
        self.at = self.at.max(now);
        let Some(open) = &mut self.open else { return };
        if self.pulse.busy_since().is_some() {
            open.last_busy = open.last_busy.max(seen);
        }
        match &self.pulse {
            Pulse::Computes { crowd, .. } => {
                let own = passed / (*crowd).max(1);
                open.active += own;
                open.contended += passed.saturating_sub(own);
            }
            Pulse::Waits { behind, .. } => {
                open.held += passed;
                if let Some(name) = behind
                    && (open.behind.len() < MOST_BEHIND || open.behind.contains_key(name))
                {
                    *open.behind.entry(name.clone()).or_default() += passed;
                }
            }
            Pulse::Quiet { .. } | Pulse::Loads => {}
            Pulse::Unknown => open.unknown += passed,
        }
    }

    /// The unit is the task. One that computes again after having been idle serves requests: what it did until then was one burst.
    fn task(&mut self, pulse: &Pulse, begin: impl Fn() -> Open, settings: &Deadlines) -> Option<(Open, Mono)> {
        if self.open.as_ref().is_none_or(|open| open.unit == Unit::Burst) {
            self.open = Some(begin());
        }
        let open = self.open.as_mut()?;
        let Some(since) = pulse.busy_since() else {
            open.rest(pulse);
            return None;
        };
        let idle = open.quiet_since.filter(|quiet| since.since(*quiet) >= settings.serves_after.get());
        if let Some(ended) = idle
            && self.rule == UnitRule::Auto
        {
            self.serves = true;
            let first = open.clone().into_burst()?;
            self.last_end = ended;
            self.open = Some(Open::burst(since.max(ended)));
            return Some((first, ended));
        }
        open.stir(since);
        None
    }

    /// The unit is a burst, which is over when nothing more has come for as long as `gap`.
    fn burst(&mut self, pulse: &Pulse, gap: Duration, now: Mono) -> Option<(Open, Mono)> {
        self.open = self.open.take().and_then(Open::into_burst);
        let seen = pulse.busy_since().unwrap_or(now);
        let over = self.open.as_ref().and_then(|open| open.quiet_since).filter(|quiet| seen.since(*quiet) >= gap);
        let closed = over.and_then(|ended| Some((self.open.take()?, ended)));
        self.last_end = closed.as_ref().map_or(self.last_end, |(_, ended)| *ended);
        match (pulse.busy_since(), &mut self.open) {
            (Some(_), None) if self.awaits_pause => {}
            (Some(since), None) => self.open = Some(Open::burst(since.max(self.last_end))),
            (Some(since), Some(open)) => open.stir(since),
            (None, Some(open)) => open.rest(pulse),
            (None, None) => {}
        }
        self.awaits_pause &= pulse.busy_since().is_some();
        closed
    }

    fn judged(&self, tenant: &TenantKey, open: Open, ended: Option<Mono>) -> Option<Judged> {
        let terms = self.terms.as_ref()?;
        Some(open.judged(tenant, self.task, terms.deadline, ended))
    }
}

// === impl Open ===

impl Open {
    pub fn new(unit: Unit, started: Mono, evidence: Evidence) -> Self {
        Self {
            unit,
            started,
            evidence,
            first_busy: None,
            quiet_since: None,
            last_busy: started,
            active: Duration::ZERO,
            contended: Duration::ZERO,
            held: Duration::ZERO,
            unknown: Duration::ZERO,
            behind: BTreeMap::new(),
        }
    }

    fn burst(since: Mono) -> Self {
        Self { first_busy: Some(since), ..Self::new(Unit::Burst, since, Evidence::Probe) }
    }

    /// It wants to compute since then.
    fn stir(&mut self, since: Mono) {
        self.first_busy.get_or_insert(since.max(self.started));
        self.quiet_since = None;
    }

    fn rest(&mut self, pulse: &Pulse) {
        // What it did before this unit is not of it: a process that comes back with a new context has been quiet since its last.
        let Some(first) = self.first_busy else { return };
        let since = match pulse {
            Pulse::Quiet { since } => *since,
            // Whoever of it computed has left, and the others never did.
            Pulse::Loads => self.last_busy,
            Pulse::Computes { .. } | Pulse::Waits { .. } | Pulse::Unknown => return,
        };
        self.quiet_since.get_or_insert(first.max(since).max(self.last_busy));
    }

    /// From when it first wanted to compute; `None` if it never did.
    fn into_burst(self) -> Option<Self> {
        let started = if self.unit == Unit::Burst { self.started } else { self.first_busy? };
        Some(Self { unit: Unit::Burst, started, ..self })
    }

    /// What becomes of it by this deadline.
    pub fn judged(self, tenant: &TenantKey, task: TaskId, deadline: Deadline, ended: Option<Mono>) -> Judged {
        let due = self.started + deadline.get();
        let float = ended.map(|ended| due.since(ended).as_secs_f64() - ended.since(due).as_secs_f64());
        // Of one that was there before anybody looked the start is too early: in time is in time, late may not be.
        let float_seconds = float.filter(|float| self.evidence != Evidence::Process || *float >= 0.0);
        let why =
            (Verdict::of(float_seconds) == Verdict::Miss).then(|| self.why(deadline, float_seconds.unwrap_or(0.0)));
        let active_seconds = ended.and_then(|ended| self.active_seconds(ended));
        // Turns come a little after what they tell of: no part is said to be more than the whole.
        let took = ended.map_or(Duration::MAX, |ended| ended.since(self.started));
        let held = self.held.min(took);
        let contended = self.contended.as_secs_f64().min((took - held).as_secs_f64() - active_seconds.unwrap_or(0.0));
        Judged {
            tenant: tenant.clone(),
            task,
            unit: self.unit,
            deadline,
            started: self.started,
            due,
            ended,
            float_seconds,
            active_seconds,
            held_seconds: held.as_secs_f64(),
            contended_seconds: contended,
            why: why.flatten(),
        }
    }

    /// What is not known of it is taken to have been as the rest, if it is little. Turns come a little after what they tell of, so that its sum may be
    /// above all the time there was.
    fn active_seconds(&self, ended: Mono) -> Option<f64> {
        let stay = ended.since(self.started).saturating_sub(self.held).as_secs_f64();
        let known = stay - self.unknown.as_secs_f64();
        (known >= stay * LEAST_KNOWN)
            .then(|| (self.active.as_secs_f64() * if known > 0.0 { stay / known } else { 1.0 }).min(stay))
    }

    /// The first of these without which it would have been in time.
    fn why(&self, deadline: Deadline, float_seconds: f64) -> Option<Why> {
        let late = Duration::try_from_secs_f64(-float_seconds).ok()?;
        let behind = self.behind.iter().max_by_key(|(_, time)| **time).map(|(name, _)| name.clone());
        if self.active > deadline.get() {
            Some(Why::TooShort)
        } else if self.held >= late {
            Some(Why::Held { behind })
        } else if self.held + self.contended >= late {
            Some(Why::Contended)
        } else if self.unknown.is_zero() {
            Some(Why::OffGpu)
        } else {
            None
        }
    }
}

// === impl Pulse ===

impl Pulse {
    fn busy_since(&self) -> Option<Mono> {
        match self {
            Pulse::Computes { since, .. } => Some(*since),
            Pulse::Waits { since, .. } => *since,
            Pulse::Quiet { .. } | Pulse::Loads | Pulse::Unknown => None,
        }
    }
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
