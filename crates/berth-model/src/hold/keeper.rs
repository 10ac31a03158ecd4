//! The state of all holds: wishes and outcomes in, orders, notes and changes out.
//!
//! Wishes (of a policy or a person), outcomes of steps and what others did to a tenant come in through methods; [`Keeper::turn`]
//! then says everything that follows: what to write down, which steps to begin, what to tell. Each tenant has at most one
//! step in flight. Whoever turns it **writes the notes first and begins the orders after**; a step whose note could not
//! be written is told as failed, unless it sets free.
//!
//! A failure that passes is tried again a few times. A hold that fails is undone, and policies leave the tenant alone for
//! a while. An undoing is never given up. Who may wish what is not judged here, only that a person's word beats a policy's.

#[cfg(test)]
mod tests;
#[cfg(test)]
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::handing::Checks;
use super::holding::Holding;
use super::leave::{Lasting, Leaves, Sent, Word};
use super::{Freezer, Grip, Means, Step, Want};
use crate::event::StepFailure;
use crate::id::{ProcKey, TenantKey};
use crate::time::Mono;

/// After a signal, the engine's word of an unpause within this time is of the one that came with it: some 15 ms, when it is idle.
const SIGNAL_ECHO: Duration = Duration::from_secs(2);
/// Said of a grace that leaves nothing for another.
const OFTEN: &str = ", and has so often of late that the next will be taken at its turn";

/// All tenants that are held, were held in this task, or may be.
#[derive(Debug, Clone, Default)]
pub struct Keeper {
    tenants: BTreeMap<TenantKey, Holding>,
    patience: Patience,
    leaves: Leaves,
    /// Changes that came with an input, told at the next turn.
    changes: Vec<HoldChange>,
}

/// Who wants a tenant to be where it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "lowercase")]
pub enum By {
    Policy,
    Person { uid: u32 },
}

/// How failures are met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// How often a step that failed in passing is tried again.
    pub tries: u32,
    /// Before the first further try; doubled before each one after it.
    pub first_pause: Duration,
    /// No pause is longer than this.
    pub longest_pause: Duration,
    /// How long policies leave a tenant alone that could not be held.
    pub leave_alone: Duration,
}

/// What follows from everything that came in: to be used in this order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Turn {
    /// To be written down before any order is begun; `None`: to be removed from what is written.
    pub notes: Vec<(TenantKey, Option<Note>)>,
    pub orders: Vec<Order>,
    pub changes: Vec<HoldChange>,
    /// Turn again by then even if nothing happens.
    pub again_at: Option<Mono>,
}

/// A step to begin; its outcome comes back through [`Keeper::step`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    pub tenant: TenantKey,
    pub step: Step,
}

/// What must be on record about a tenant while anything may have hold of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    pub grip: Grip,
    pub want: Want,
    pub by: By,
    pub reason: String,
    /// When the want became what it is.
    pub since: Mono,
}

/// What a person may want to be told about holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldChange {
    /// It is kept off the GPU now, confirmed.
    Held { tenant: TenantKey, means: Means, by: By, reason: String, at: Mono },
    /// Nothing keeps it off any more.
    Released { tenant: TenantKey, by: By, reason: String, at: Mono },
    /// It could not be come to what was wanted. A hold is then undone; an undoing ([`Want::Free`]) goes on being tried.
    HoldFailed { tenant: TenantKey, wanted: Want, message: String, at: Mono },
}

/// How far a hold is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Free,
    /// It runs, and will be stopped at its next launch.
    Armed,
    Held,
    /// Steps are under way, or wait for another try.
    Moving,
}

/// One tenant's hold, as policies and people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldView {
    pub stage: Stage,
    pub want: Want,
    pub by: By,
    pub reason: String,
    /// When the want became what it is.
    pub since: Mono,
    /// Since when it has been kept off the GPU; `None` while it is not.
    pub held_since: Option<Mono>,
    /// Time it was kept off in this task, up to now.
    pub held: Duration,
    pub is_frozen_by_others: bool,
    /// Holding it failed, or somebody wants it to run for a while: policies leave it alone until then.
    pub left_alone_until: Option<Mono>,
}

/// Why a wish is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("user {uid} has decided about it")]
    PersonDecided { uid: u32 },
    #[error("someone else has paused it")]
    FrozenByOthers,
    #[error("holding it has failed lately")]
    FailedLately { until: Mono },
    #[error("no such tenant is known")]
    Unknown,
}

impl Keeper {
    pub fn new(patience: Patience) -> Self {
        Self { patience, ..Self::default() }
    }

    pub fn with_leaves(self, leaves: Leaves) -> Self {
        Self { leaves, ..self }
    }

    // === who is there ===

    /// What the tenant consists of now: its processes that use a GPU or are about to, and whether it can be frozen.
    /// Newcomers of a tenant that is held are held too.
    pub fn meet(&mut self, tenant: &TenantKey, processes: &BTreeSet<ProcKey>, can_freeze: bool, at: Mono) {
        let holding = self.holding(tenant, at);
        holding.is_gone = false;
        holding.can_freeze = can_freeze;
        if holding.processes != *processes {
            holding.processes.clone_from(processes);
        }
    }

    /// Who keeps it frozen: after so long not the cgroup any more but its engine, which then shows it as paused, and sooner or later
    /// than that so as not to be in the way of the engine's checks. `None`: always the cgroup.
    pub fn pause_after(&mut self, tenant: &TenantKey, after: Option<Duration>, checks: Option<Checks>) {
        if let Some(holding) = self.tenants.get_mut(tenant) {
            (holding.handing.after, holding.handing.checks) = (after, checks);
        }
    }

    /// What an earlier daemon left behind, to be carried on or, with [`Want::Free`], undone. With an empty grip its note is
    /// removed.
    pub fn adopt(&mut self, tenant: &TenantKey, note: Note, can_freeze: bool, at: Mono) {
        let holding = self.holding(tenant, at);
        holding.can_freeze = can_freeze;
        holding.set_grip(note.grip, at);
        holding.wish(note.want, note.by, note.reason, note.since);
        holding.write_anew();
    }

    pub fn exited(&mut self, process: ProcKey, at: Mono) {
        for holding in self.tenants.values_mut() {
            holding.exited(process, at);
        }
    }

    /// The tenant itself is no more: its container removed, its cgroup gone, the last process of a user ended.
    pub fn gone(&mut self, tenant: &TenantKey, at: Mono) {
        if let Some(holding) = self.tenants.get_mut(tenant) {
            holding.vanish(at);
        }
    }

    /// Its task is over: how long it was held. A person's word about it ends too, and with it any hold.
    pub fn task_ended(&mut self, tenant: &TenantKey, at: Mono) -> Duration {
        let Some(holding) = self.tenants.get_mut(tenant) else { return Duration::ZERO };
        holding.left_alone_until = None;
        holding.wish(Want::Free, By::Policy, "its task is over".into(), at);
        holding.end_task(at)
    }

    // === what is wanted ===

    /// `Err`: it stays as it is, and why. Wishing the same again changes nothing but the reason.
    pub fn want(&mut self, tenant: &TenantKey, want: Want, by: By, reason: &str, at: Mono) -> Result<(), Refused> {
        let holding = self.tenants.get_mut(tenant).filter(|holding| !holding.is_gone).ok_or(Refused::Unknown)?;
        if want != Want::Free && holding.frozen_by_others {
            return Err(Refused::FrozenByOthers);
        }
        match (by, holding.by) {
            (By::Policy, By::Person { uid }) => return Err(Refused::PersonDecided { uid }),
            (By::Policy, By::Policy) => {
                let until = holding.left_alone_until.filter(|until| at < *until && want != Want::Free);
                until.map_or(Ok(()), |until| Err(Refused::FailedLately { until }))?;
            }
            (By::Person { .. }, _) => holding.left_alone_until = None,
        }
        holding.wish(want, by, reason.to_owned(), at);
        Ok(())
    }

    /// A person gives the tenant back to the policies: it is free until they say otherwise.
    pub fn hand_back(&mut self, tenant: &TenantKey, at: Mono) {
        if let Some(holding) = self.tenants.get_mut(tenant) {
            holding.wish(Want::Free, By::Policy, "left to the policy again".into(), at);
        }
    }

    // === what happened ===

    /// The outcome of an order. One that was not given, or whose tenant is gone, changes nothing.
    pub fn step(&mut self, tenant: &TenantKey, step: Step, outcome: Result<(), StepFailure>, at: Mono) {
        let Some(holding) = self.tenants.get_mut(tenant) else { return };
        if let Some(failure) = holding.end(step, outcome, at, &self.patience) {
            let (tenant, wanted, message) = (tenant.clone(), failure.wanted, failure.message);
            self.changes.push(HoldChange::HoldFailed { tenant, wanted, message, at });
        }
    }

    /// The gate stopped a process. It is taken note of even if nothing was asked for, so that it is set free again.
    pub fn halted(&mut self, tenant: &TenantKey, process: ProcKey, at: Mono) {
        self.holding(tenant, at).halted(process, at);
    }

    /// Its engine has paused it or let it go on, at our wish or at somebody else's, which it does not say. `uid` stands for
    /// somebody else: whoever unpauses what berth had paused wants it to run, and for how long that counts the leaves say; what
    /// they paused berth takes its hands off, and will not thaw.
    pub fn engine_told(&mut self, tenant: &TenantKey, paused: bool, uid: u32, at: Mono) {
        if self.tenants.get(tenant).is_some_and(|holding| holding.is_own_doing(at)) {
            return;
        }
        match paused {
            true => self.frozen_by_others(tenant, at),
            false => self.thawed_by_others(tenant, uid, at),
        }
    }

    fn thawed_by_others(&mut self, tenant: &TenantKey, uid: u32, at: Mono) {
        let Some(holding) = self.tenants.get_mut(tenant) else { return };
        let is_theirs = std::mem::take(&mut holding.frozen_by_others);
        if is_theirs || holding.grip.frozen != Some(Freezer::Docker) {
            return;
        }
        holding.lose_freeze(at);
        // An engine lets a container go on that it sends any signal to.
        let echoes = |sent: &Mono| at.since(*sent) < SIGNAL_ECHO;
        let (word, reason) = match holding.signalled_at.filter(echoes) {
            Some(_) => (Word::Signalled(Sent::UNKNOWN), "its engine unpaused it to send it a signal"),
            None => (Word::Unpaused, "someone unpaused it"),
        };
        self.let_go(tenant, word, uid, reason.to_owned(), at);
    }

    fn frozen_by_others(&mut self, tenant: &TenantKey, at: Mono) {
        let holding = self.holding(tenant, at);
        // Of a pause of ours that failed: if it comes true late, it is taken back, and that is told too.
        if holding.certain().frozen == Some(Freezer::Docker) {
            return;
        }
        holding.frozen_by_others = true;
        holding.lose_freeze(at);
        holding.wish(Want::Free, By::Policy, "someone else paused it".into(), at);
    }

    /// Someone sent it a signal, which it cannot take while it stands still.
    pub fn signalled(&mut self, tenant: &TenantKey, sent: Sent, uid: u32, at: Mono) {
        let Some(holding) = self.tenants.get_mut(tenant).filter(|holding| at >= holding.fresh_since) else { return };
        holding.signalled_at = Some(at);
        let is_heard = !sent.may_end_it() && (sent.can_wait() || !holding.grip.is_still());
        let is_free_by_word = holding.want == Want::Free && holding.by != By::Policy && holding.leave_until().is_none();
        if !is_heard && !is_free_by_word {
            self.let_go(tenant, Word::Signalled(sent), uid, sent.reason(), at);
        }
    }

    /// Its engine would take it for dead if it stood still for longer: it is let go for `breath`, whoever holds it.
    pub fn breathe(&mut self, tenant: &TenantKey, breath: Duration, at: Mono) {
        let held = self.tenants.get_mut(tenant).filter(|holding| holding.leave_until().is_none_or(|until| until <= at));
        if let Some(holding) = held {
            holding.let_go(0, "its engine checks that it is alive".to_owned(), Lasting::Until(at + breath), at);
        }
    }

    /// It is free only now for whom it was let go, a thaw having taken its time: what is left of that lasts until then.
    pub fn free_until(&mut self, tenant: &TenantKey, until: Mono) {
        if let Some(holding) = self.tenants.get_mut(tenant) {
            holding.lengthen_leave(until);
        }
    }

    fn let_go(&mut self, tenant: &TenantKey, word: Word, uid: u32, reason: String, at: Mono) {
        let Some(holding) = self.tenants.get_mut(tenant) else { return };
        let until = holding.leave_until();
        match self.leaves.lasting(word, &mut holding.account, until, at) {
            // What is wanted of it stays so; what its engine has undone is done again.
            Lasting::NotAtAll => {}
            lasting if holding.account.is_empty() => holding.let_go(uid, reason + OFTEN, lasting, at),
            lasting => holding.let_go(uid, reason, lasting, at),
        }
    }

    // === what follows ===

    pub fn turn(&mut self, now: Mono) -> Turn {
        let mut turn = Turn { changes: std::mem::take(&mut self.changes), ..Turn::default() };
        for (tenant, holding) in &mut self.tenants {
            turn.take(tenant, holding, now, &self.patience);
        }
        self.tenants.retain(|_, holding| !holding.is_over(now));
        turn
    }

    pub fn view(&self, tenant: &TenantKey, now: Mono) -> Option<HoldView> {
        self.tenants.get(tenant).map(|holding| holding.view(now))
    }

    /// What must be on record about a tenant now; `None` if nothing has hold of it.
    pub fn note(&self, tenant: &TenantKey) -> Option<Note> {
        self.tenants.get(tenant)?.note()
    }

    /// Those that anything may have hold of.
    pub fn gripped(&self) -> impl Iterator<Item = &TenantKey> {
        self.tenants.iter().filter(|(_, holding)| !holding.grip.is_empty()).map(|(tenant, _)| tenant)
    }

    /// Wants everybody free, as when the daemon stops; persons' holds too.
    pub fn release_all(&mut self, reason: &str, at: Mono) {
        for holding in self.tenants.values_mut() {
            holding.wish(Want::Free, holding.by, reason.to_owned(), at);
        }
    }

    fn holding(&mut self, tenant: &TenantKey, at: Mono) -> &mut Holding {
        self.tenants.entry(tenant.clone()).or_insert_with(|| Holding::new(at))
    }
}

impl Turn {
    fn take(&mut self, tenant: &TenantKey, holding: &mut Holding, now: Mono, patience: &Patience) {
        // When somebody's leave is over the policy is to be asked.
        let leave_over = holding.end_leave(now).then_some(now);
        // A hold that turns out to be impossible is undone in the same turn.
        for _ in 0..2 {
            if let Some(step) = holding.begin(now, patience) {
                self.orders.push(Order { tenant: tenant.clone(), step });
            }
            self.changes.extend(holding.settle(tenant, now, patience));
        }
        self.notes.extend(holding.unwritten().map(|note| (tenant.clone(), note)));
        let times = [self.again_at, holding.retry_at(), holding.hands_over_at(now), holding.leave_until(), leave_over];
        self.again_at = times.into_iter().flatten().min();
    }
}

impl Patience {
    /// Before try number `tries`, counted from 1.
    pub(super) fn pause(&self, tries: u32) -> Duration {
        let factor = 2_u32.saturating_pow(tries.saturating_sub(1));
        self.first_pause.saturating_mul(factor).min(self.longest_pause)
    }
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            tries: 4,
            first_pause: Duration::from_millis(5),
            longest_pause: Duration::from_secs(1),
            leave_alone: Duration::from_secs(30),
        }
    }
}
