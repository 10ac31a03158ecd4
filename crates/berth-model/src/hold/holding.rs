//! One tenant in the keeper's hands: what has hold of it, what is wanted, the step in flight, and what went wrong.
//!
//! The grip kept here is what *may* have been done: a step counts as done from the moment it is ordered, and an undoing
//! as done only when its success is told. So what is written down from it is never too little. What is in doubt, because
//! its step is in flight or failed, is kept beside it: nobody counts as held by a step that may not have happened.

use std::collections::BTreeSet;
use std::time::Duration;

use super::handing::Handing;
use super::keeper::{By, HoldChange, HoldView, Note, Patience, Stage};
use super::leave::{Account, Lasting, Leave};
use super::{Body, Freezer, Grip, Means, Step, Want, next};
use crate::event::StepFailure;
use crate::id::{ProcKey, TenantKey};
use crate::time::Mono;

#[derive(Debug, Clone)]
pub(super) struct Holding {
    pub grip: Grip,
    pub want: Want,
    pub by: By,
    pub reason: String,
    /// When the want became what it is.
    pub since: Mono,
    pub processes: BTreeSet<ProcKey>,
    pub can_freeze: bool,
    pub handing: Handing,
    /// When it was met, or its last task ended: what someone did before was not done to these processes.
    pub fresh_since: Mono,
    /// Someone else keeps it frozen: what is frozen then is not berth's.
    pub frozen_by_others: bool,
    pub flight: Option<Flight>,
    /// Steps that count as done in the grip, and may not have been, or no longer be.
    doubts: BTreeSet<Step>,
    /// The tenant itself is no more; nothing of it can or need be undone.
    pub is_gone: bool,
    /// Policies leave it alone until then.
    pub left_alone_until: Option<Mono>,
    /// It is somebody's for a while.
    leave: Option<Leave>,
    /// What it has had of that in this task.
    pub account: Account,
    /// When somebody last sent it a signal.
    pub signalled_at: Option<Mono>,
    trouble: Trouble,
    told: Option<Means>,
    /// Who last wanted it free, and why: the release may be complete only when it is wanted elsewhere again.
    let_go: (By, String),
    held: Stopwatch,
    is_unwritten: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub step: Step,
    /// Its process ended meanwhile.
    is_void: bool,
}

/// Steps that failed, and when to try again.
#[derive(Debug, Clone, Default)]
struct Trouble {
    tries: u32,
    retry_at: Option<Mono>,
    /// Processes that cannot be set free for now; the others do not wait for them.
    aside: BTreeSet<ProcKey>,
    /// The step that cannot be undone and of which others have been told: it may go on for hours, until there is room.
    told: Option<Step>,
}

/// Time it could not use a GPU, in this task.
#[derive(Debug, Clone, Copy, Default)]
struct Stopwatch {
    since: Option<Mono>,
    before: Duration,
}

impl Holding {
    pub fn new(at: Mono) -> Self {
        Self {
            grip: Grip::default(),
            want: Want::Free,
            by: By::Policy,
            reason: String::new(),
            since: at,
            processes: BTreeSet::new(),
            can_freeze: false,
            handing: Handing::default(),
            fresh_since: at,
            frozen_by_others: false,
            flight: None,
            doubts: BTreeSet::new(),
            is_gone: false,
            left_alone_until: None,
            leave: None,
            account: Account::default(),
            signalled_at: None,
            trouble: Trouble::default(),
            told: None,
            let_go: (By::Policy, String::new()),
            held: Stopwatch::default(),
            is_unwritten: false,
        }
    }

    pub fn wish(&mut self, want: Want, by: By, reason: String, at: Mono) {
        self.leave = None;
        if (want, by, reason.as_str()) == (self.want, self.by, self.reason.as_str()) {
            return;
        }
        if want == Want::Free {
            self.let_go = (by, reason.clone());
        }
        if want != self.want {
            self.since = at;
            self.trouble = Trouble::default();
        }
        (self.want, self.by, self.reason) = (want, by, reason);
        self.is_unwritten |= !self.grip.is_empty();
    }

    /// Somebody wants it to run, for as long as that lasts.
    pub fn let_go(&mut self, uid: u32, reason: String, lasting: Lasting, at: Mono) {
        let before = match self.leave.take() {
            Some(leave) => leave.before,
            None => Some((self.want, self.by, self.reason.clone())).filter(|(_, by, _)| *by != By::Policy),
        };
        self.wish(Want::Free, By::Person { uid }, reason, at);
        if let Lasting::Until(until) = lasting {
            self.leave = Some(Leave { until, before });
        }
    }

    /// The end of a grace under way.
    pub fn leave_until(&self) -> Option<Mono> {
        self.leave.as_ref().map(|leave| leave.until)
    }

    /// A grace under way lasts until then, or longer.
    pub fn lengthen_leave(&mut self, until: Mono) {
        if let Some(leave) = &mut self.leave {
            leave.until = leave.until.max(until);
        }
    }

    /// What was wanted before a grace is wanted again when it is over; whether it is over now.
    pub fn end_leave(&mut self, now: Mono) -> bool {
        let Some(leave) = self.leave.take_if(|leave| leave.until <= now) else { return false };
        let policy = || (Want::Free, By::Policy, "left to the policy again".to_owned());
        let (want, by, reason) = leave.before.unwrap_or_else(policy);
        self.wish(want, by, reason, now);
        true
    }

    /// Whatever is known to have changed, and the time held that follows from it.
    pub fn set_grip(&mut self, grip: Grip, at: Mono) {
        self.is_unwritten |= grip != self.grip;
        self.grip = grip;
        self.doubts.retain(|step| self.grip.without(*step) != self.grip);
        self.handing.set_frozen(self.grip.frozen.is_some(), at);
        self.held.turn(self.grip.keeps_off(), at);
    }

    pub fn halted(&mut self, process: ProcKey, at: Mono) {
        let mut grip = self.grip.clone();
        grip.stopped.insert(process);
        self.set_grip(grip, at);
        self.trouble.retry_at = None;
    }

    pub fn exited(&mut self, process: ProcKey, at: Mono) {
        let was_last = self.processes.remove(&process) && self.processes.is_empty();
        self.trouble.aside.remove(&process);
        let mut grip = self.grip.clone();
        grip.forget(process);
        self.set_grip(grip, at);
        if let Some(flight) = self.flight.as_mut().filter(|flight| flight.step.process() == Some(process)) {
            flight.is_void = true;
        }
        // An engine that finds the cgroup of a dead container frozen takes it for paused, and cannot clear it away.
        if was_last && self.want != Want::Free {
            self.wish(Want::Free, By::Policy, "its processes have ended".into(), at);
        }
    }

    /// What freezes it, or freezes it no longer, is not ours: no freeze is left to undo. One in flight may yet happen.
    pub fn lose_freeze(&mut self, at: Mono) {
        if self.flight.is_some_and(|flight| matches!(flight.step, Step::Freeze(_) | Step::HandOver)) {
            return;
        }
        // Out of the shelter it still has to come, to where it is frozen or is not.
        let sheltered = self.grip.sheltered || self.grip.frozen == Some(Freezer::Shelter);
        let grip = Grip { frozen: None, sheltered, ..self.grip.clone() };
        self.set_grip(grip, at);
    }

    /// What its engine has done at this time was our doing, told late.
    pub fn is_own_doing(&self, at: Mono) -> bool {
        self.handing.was_ours(at) || self.flight.is_some_and(|flight| flight.step.is_by_engine())
    }

    /// Nothing is left of the tenant that could be held.
    pub fn vanish(&mut self, at: Mono) {
        self.is_gone = true;
        self.processes.clear();
        self.set_grip(Grip::default(), at);
        self.wish(Want::Free, By::Policy, "it is gone".into(), at);
    }

    /// Returns the time it was held, which is counted anew.
    pub fn end_task(&mut self, at: Mono) -> Duration {
        self.fresh_since = at;
        (self.account, self.signalled_at) = (Account::default(), None);
        let held = self.held.total(at);
        self.held = Stopwatch::default();
        self.held.turn(self.grip.keeps_off(), at);
        held
    }

    /// Nothing needs to be remembered about it.
    pub fn is_over(&self, now: Mono) -> bool {
        let is_free = self.grip.is_empty() && self.flight.is_none() && self.want == Want::Free && !self.is_unwritten;
        let is_marked =
            self.by != By::Policy || self.frozen_by_others || self.left_alone_until.is_some_and(|end| now < end);
        is_free && (self.is_gone || (self.processes.is_empty() && !is_marked))
    }

    // === the way on ===

    /// The step that comes next, unless one is in flight or waits for its time.
    pub fn begin(&mut self, now: Mono, patience: &Patience) -> Option<Step> {
        if self.flight.is_some() || self.is_gone {
            return None;
        }
        if self.trouble.retry_at.is_some_and(|at| now < at) {
            return None;
        }
        if self.trouble.retry_at.take().is_some() {
            self.trouble.aside.clear();
        }
        let Some(step) = self.next(now) else {
            if !self.trouble.aside.is_empty() {
                self.trouble.retry_at = Some(now + patience.longest_pause);
            }
            return None;
        };
        self.flight = Some(Flight { step, is_void: false });
        self.doubts.extend([step.undoes().unwrap_or(step)].into_iter().filter(|step| !step.sets_free()));
        self.set_grip(self.grip.begun(step), now);
        Some(step)
    }

    pub fn retry_at(&self) -> Option<Mono> {
        self.trouble.retry_at
    }

    /// When it is to be handed over to its engine, if nothing happens until then.
    pub fn hands_over_at(&self, now: Mono) -> Option<Mono> {
        let is_cgroup_s = self.certain().frozen.is_some_and(|freezer| freezer != Freezer::Docker);
        let is_due = self.want != Want::Free && is_cgroup_s && self.flight.is_none();
        self.handing.due_at().filter(|at| is_due && now < *at && !self.frozen_by_others)
    }

    fn next(&self, now: Mono) -> Option<Step> {
        let mut within_reach = self.grip.clone();
        for process in &self.trouble.aside {
            within_reach.forget(*process);
        }
        let step = self.again(now).or_else(|| next(&within_reach, self.want, self.body(now)))?;
        // Whatever waits for its threads would wait for whoever keeps them frozen.
        let can_work = !self.frozen_by_others || matches!(step, Step::Ungate(_) | Step::Continue(_) | Step::Unshelter);
        can_work.then_some(step)
    }

    /// A step in doubt that is on the way to a hold is taken once more. On the way back it is undone like any other.
    fn again(&self, now: Mono) -> Option<Step> {
        let step = next(&self.certain(), self.want, self.body(now))?;
        // Where it is to be frozen changes with the time; where it may have been does not.
        let by_cgroup = |step: Step| matches!(step, Step::Freeze(Freezer::Cgroup | Freezer::Shelter));
        let is_it = |doubt: &&Step| **doubt == step || (by_cgroup(**doubt) && by_cgroup(step));
        self.doubts.iter().find(is_it).copied().filter(|_| self.want != Want::Free)
    }

    /// What is known to have been done.
    pub fn certain(&self) -> Grip {
        self.doubts.iter().fold(self.grip.clone(), |grip, step| grip.without(*step))
    }

    /// What others froze is as good as frozen for continuing in, and not to be thawed.
    fn body(&self, now: Mono) -> Body<'_> {
        Body {
            processes: &self.processes,
            can_freeze: self.can_freeze && !self.frozen_by_others,
            freezer: self.handing.freezer(now),
        }
    }

    /// The step in flight has ended. What it failed for good, if it did.
    pub fn end(
        &mut self,
        step: Step,
        outcome: Result<(), StepFailure>,
        at: Mono,
        patience: &Patience,
    ) -> Option<Failure> {
        let flight = self.flight.take_if(|flight| flight.step == step)?;
        if self.is_gone {
            return None;
        }
        if flight.is_void {
            self.forget_subject(step, at);
            return None;
        }
        let failure = match outcome {
            Ok(()) => {
                self.doubts.remove(&step);
                let is_freeze = |step: &Step| matches!(step, Step::Freeze(_) | Step::HandOver);
                if is_freeze(&step) {
                    // However it came about, it is frozen.
                    self.doubts.retain(|doubt| !is_freeze(doubt));
                }
                if step.is_by_engine() {
                    self.handing.act(at);
                }
                self.set_grip(self.grip.done(step), at);
                (self.trouble.tries, self.trouble.told) = (0, None);
                None
            }
            Err(failure) => self.fail(step, failure, at, patience),
        };
        if self.frozen_by_others {
            // Told while it was under way: the freeze that is there is the other's.
            self.lose_freeze(at);
        }
        failure
    }

    fn forget_subject(&mut self, step: Step, at: Mono) {
        if let Some(process) = step.process() {
            let mut grip = self.grip.clone();
            grip.forget(process);
            self.set_grip(grip, at);
        }
    }

    fn fail(&mut self, step: Step, failure: StepFailure, at: Mono, patience: &Patience) -> Option<Failure> {
        self.trouble.tries += 1;
        if failure.is_passing && self.trouble.tries <= patience.tries {
            self.trouble.retry_at = Some(at + patience.pause(self.trouble.tries));
            return None;
        }
        self.trouble.tries = 0;
        if step == Step::HandOver {
            // It is held all the same, by the cgroup as before.
            self.handing.fail(at + patience.leave_alone);
            return None;
        }
        if self.want != Want::Free {
            return Some(self.give_up(failure.message, at, patience));
        }
        match step.process() {
            Some(process) => self.trouble.aside.extend([process]),
            None => self.trouble.retry_at = Some(at + patience.longest_pause),
        }
        let is_news = self.trouble.told.replace(step) != Some(step);
        is_news.then_some(Failure { wanted: Want::Free, message: failure.message })
    }

    /// It cannot be held this way: undo what was done, and let nobody try again at once.
    fn give_up(&mut self, message: String, at: Mono, patience: &Patience) -> Failure {
        let wanted = self.want;
        self.left_alone_until = Some(at + patience.leave_alone);
        self.wish(Want::Free, By::Policy, format!("holding it failed: {message}"), at);
        Failure { wanted, message }
    }

    // === what others are told ===

    /// Changes since the last time, after the steps that could be begun were.
    pub fn settle(&mut self, tenant: &TenantKey, now: Mono, patience: &Patience) -> Option<HoldChange> {
        let is_stuck = !self.is_gone && self.flight.is_none() && self.retry_at().is_none();
        if is_stuck
            && !self.is_reached()
            && self.next(now).is_none()
            && self.want != Want::Free
            && !self.frozen_by_others
        {
            let message = "it has no cgroup of its own that could be frozen".to_owned();
            let Failure { wanted, message } = self.give_up(message, now, patience);
            return Some(HoldChange::HoldFailed { tenant: tenant.clone(), wanted, message, at: now });
        }
        let held = Some(self.want).filter(|_| self.stage() == Stage::Held).and_then(Want::means);
        if held.is_some() && held != self.told {
            self.told = held;
            let (means, by, reason) = (held?, self.by, self.reason.clone());
            return Some(HoldChange::Held { tenant: tenant.clone(), means, by, reason, at: now });
        }
        if self.told.is_some() && !self.grip.keeps_off() && self.flight.is_none() {
            self.told = None;
            let (by, reason) = self.let_go.clone();
            return Some(HoldChange::Released { tenant: tenant.clone(), by, reason, at: now });
        }
        None
    }

    /// What is on record may not be what is known now.
    pub fn write_anew(&mut self) {
        self.is_unwritten = true;
    }

    /// What to write down, if it is not written yet; `Some(None)`: nothing is to be kept.
    pub fn unwritten(&mut self) -> Option<Option<Note>> {
        std::mem::take(&mut self.is_unwritten).then(|| self.note())
    }

    pub fn note(&self) -> Option<Note> {
        let Self { grip, want, by, reason, since, .. } = self;
        (!grip.is_empty()).then(|| Note {
            grip: grip.clone(),
            want: *want,
            by: *by,
            reason: reason.clone(),
            since: *since,
        })
    }

    pub fn view(&self, now: Mono) -> HoldView {
        HoldView {
            stage: self.stage(),
            want: self.want,
            by: self.by,
            reason: self.reason.clone(),
            since: self.since,
            held_since: self.held.since,
            held: self.held.total(now),
            is_frozen_by_others: self.frozen_by_others,
            left_alone_until: self.leave_until().or(self.left_alone_until).filter(|end| now < *end),
        }
    }

    fn stage(&self) -> Stage {
        // Whoever keeps it frozen: it is held throughout.
        let is_settled = self.flight.is_none_or(|flight| flight.step == Step::HandOver) && self.is_reached();
        match self.want {
            Want::Free if self.grip.is_empty() && self.flight.is_none() => Stage::Free,
            // It stands still from its stop on; what follows only hides that.
            Want::Gated | Want::Barred if !self.grip.stopped.is_empty() => Stage::Held,
            Want::Gated | Want::Barred if is_settled && self.grip.is_still() => Stage::Held,
            Want::Gated | Want::Barred if is_settled => Stage::Armed,
            Want::Free | Want::Gated | Want::Barred => Stage::Moving,
            Want::Frozen(_) | Want::Locked | Want::Parked => {
                if is_settled {
                    Stage::Held
                } else {
                    Stage::Moving
                }
            }
        }
    }

    fn is_reached(&self) -> bool {
        let (grip, processes) = (&self.certain(), &self.processes);
        match self.want {
            Want::Free => self.grip.is_empty(),
            Want::Gated | Want::Barred => grip.is_still() || processes.is_subset(&grip.gated),
            Want::Frozen(_) => grip.frozen.is_some(),
            Want::Locked => !grip.is_still() && processes.is_subset(&grip.locked),
            Want::Parked => (grip.frozen.is_some() || !self.can_freeze) && processes.is_subset(&grip.parked),
        }
    }
}

/// A want that could not be come to.
#[derive(Debug)]
pub(super) struct Failure {
    pub wanted: Want,
    pub message: String,
}

impl Stopwatch {
    fn turn(&mut self, is_on: bool, at: Mono) {
        match (self.since, is_on) {
            (None, true) => self.since = Some(at),
            (Some(_), false) => *self = Stopwatch { since: None, before: self.total(at) },
            _ => {}
        }
    }

    fn total(&self, now: Mono) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

impl Want {
    /// By which means a tenant is kept off; `None` if it is not.
    pub fn means(self) -> Option<Means> {
        match self {
            Want::Free => None,
            Want::Gated | Want::Barred => Some(Means::Gate),
            Want::Frozen(_) => Some(Means::Freeze),
            Want::Locked => Some(Means::Lock),
            Want::Parked => Some(Means::Park),
        }
    }
}

impl Means {
    /// What to want for a hold by these means; `freezer` is who freezes where that is asked for by itself.
    pub fn want(self, freezer: Freezer) -> Want {
        match self {
            Means::Freeze => Want::Frozen(freezer),
            Means::Lock => Want::Locked,
            Means::Gate => Want::Gated,
            Means::Park => Want::Parked,
        }
    }
}
