//! Who runs and who waits: the policy asked, its decisions carried out, everything written down first.
//!
//! The manager stands beside the monitor in the loop. It is told every event, asks the policy with a view made of what is
//! known, hands its decisions to the [`Keeper`], and does what the keeper's turn says, in this order: write down, begin, tell.
//! Nothing here blocks: steps run on the crew's threads and come back as events.

mod activity;
mod annals;
mod asks;
mod breath;
mod checks;
mod crew;
mod explain;
mod ground;
mod history;
mod host;
mod kernels;
mod meter;
mod past;
mod pausing;
mod pools;
mod pulse;
mod rehearsal;
mod room;
mod rules;
mod show;
mod signals;
mod terms;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use berth_host::hands::{Hands, Subject};
use berth_model::history::Record;
use berth_model::hold::{By, Freezer, HoldChange, Keeper, Means, Note, Order, Patience, Step, Want};
use berth_model::settings::PolicyName;
use berth_model::snapshot::EndedTask;
use berth_model::{
    Anchor, Change, ContainerId, Event, GpuIndex, Mono, ProcKey, Snapshot, StepFailure, TaskRow, TenantKey,
};
use berth_policy::{Action, Activity, Decision, Policy, View, Waiting};
use berth_store::{Entry, Found, Journal};

use crate::Guarded;
use crate::deadlines::Deadlines;
use activity::Activities;
use annals::hold_record;
pub(crate) use annals::{Annals, LeftOf, Unmanaged, open as open_annals};
use asks::Asks;
use breath::Breath;
use crew::Crew;
use ground::{Ground, Place};
pub(crate) use host::manager;
use meter::{Doing, Meters};
use pausing::Pausing;
use rehearsal::{Rehearsal, Rehearsed};
use room::Room;
use rules::Rules;
use terms::Terms;

/// What a manager needs of the host.
pub(crate) struct Parts {
    pub rules: Rules,
    pub hands: Arc<dyn Hands>,
    pub journal: Journal,
    pub ground: Box<dyn Ground>,
    pub event_tx: Sender<Event>,
    pub annals: Annals,
    pub guarded: Guarded,
}

/// Between two looks for who would see tenants stop.
const ONLOOKERS: Duration = Duration::from_millis(200);

pub(crate) struct Manager {
    rules: Rules,
    policy_name: PolicyName,
    /// `None`: only persons hold.
    policy: Option<Box<dyn Policy>>,
    /// Where decisions go in a dry run, instead of to the keeper.
    rehearsal: Option<Rehearsal>,
    keeper: Keeper,
    activities: Activities,
    crew: Crew,
    journal: Journal,
    ground: Box<dyn Ground>,
    event_tx: Sender<Event>,
    /// Where each tenant stands that is or was here.
    places: BTreeMap<TenantKey, Place>,
    /// When it was last looked for who would see tenants stop.
    onlookers_at: Option<Mono>,
    names: BTreeMap<TenantKey, String>,
    /// Processes whose calls that wait for the GPU are watched, and since when.
    watched: BTreeMap<ProcKey, Mono>,
    /// Who has a deadline.
    judged: BTreeSet<TenantKey>,
    queue: Vec<Waiting>,
    /// On what terms those are held that a policy was told of.
    terms: BTreeMap<TenantKey, Terms>,
    /// On which GPUs those are that a policy was told of.
    gpus: BTreeMap<TenantKey, BTreeSet<GpuIndex>>,
    pausing: Pausing,
    /// Of those whose engine kills who stands still for long.
    breaths: BTreeMap<TenantKey, Breath>,
    /// When to look again whether someone wants those to end who stand still.
    signals_at: Option<Mono>,
    room: Room,
    asks: Asks,
    /// Those who are held because they would not let others go at the level of kernels.
    kept_off: BTreeSet<TenantKey>,
    meters: Meters,
    annals: Annals,
    guarded: Guarded,
    /// Holds of an earlier daemon of which nothing is left, to be told.
    gone: Vec<Change>,
}

/// What a turn came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub changes: Vec<HoldChange>,
    /// What a dry run would have done.
    pub rehearsed: Vec<Rehearsed>,
    /// Holds that were on record and are no more.
    pub gone: Vec<Change>,
    /// Turn again by then.
    pub again_at: Option<Mono>,
}

impl Manager {
    /// What an earlier daemon left held is set free first.
    pub fn new(parts: Parts, left: Found, now: Mono) -> Self {
        let Parts { rules, hands, journal, ground, event_tx, annals, guarded } = parts;
        let mut manager = Self {
            policy: rules.policy(rules.hold.policy),
            policy_name: rules.hold.policy,
            rehearsal: rules.hold.dry_run.then(Rehearsal::default),
            keeper: Keeper::new(Patience::default()).with_leaves(rules.leaves()),
            activities: Activities::default(),
            crew: Crew::new(hands, event_tx.clone()),
            journal,
            ground,
            event_tx,
            places: BTreeMap::new(),
            onlookers_at: None,
            names: BTreeMap::new(),
            watched: BTreeMap::new(),
            judged: BTreeSet::new(),
            queue: Vec::new(),
            terms: BTreeMap::new(),
            gpus: BTreeMap::new(),
            pausing: Pausing::new(!rules.describes_pods),
            breaths: BTreeMap::new(),
            signals_at: None,
            room: Room::default(),
            asks: Asks::default(),
            kept_off: BTreeSet::new(),
            meters: Meters::default(),
            annals,
            guarded,
            gone: Vec::new(),
            rules,
        };
        manager.adopt(left, now);
        manager
    }

    fn adopt(&mut self, left: Found, now: Mono) {
        for unusable in &left.unusable {
            let (file, whose) = (unusable.path.display(), unusable.clues.name());
            tracing::warn!(%file, why = unusable.why, whose, "a record of a hold cannot be used");
        }
        for kept in left.entries {
            let grip = self.ground.verified(&kept);
            let gone = grip.is_empty().then(|| kept.gone().to_string());
            let note = Note { grip, want: Want::Free, ..kept.entry.note() };
            let Entry { tenant, cgroup, name, needs_back, .. } = kept.entry;
            match gone {
                None => tracing::info!(%tenant, name, "setting free what an earlier daemon held"),
                Some(reason) => {
                    let (tenant, name) = (tenant.clone(), name.clone());
                    self.gone.push(Change::HoldGone { tenant, name, reason, at: now });
                }
            }
            needs_back.iter().for_each(|it| self.room.pools.remember(it.process, it.held, now));
            self.keeper.adopt(&tenant, note, cgroup.is_some(), now);
            self.places.insert(tenant.clone(), Place { cgroup, shows_stops: false });
            self.names.insert(tenant, name);
        }
    }

    /// Takes in an event, before or after the monitor does.
    pub fn note(&mut self, event: &Event, now: Mono) {
        if !self.stays_at_its_call(event, now) {
            self.activities.note(event);
        }
        self.pausing.note(event);
        self.hold_note(event, now);
        self.note_room(event);
    }

    /// What an event says about holds.
    fn hold_note(&mut self, event: &Event, now: Mono) {
        match event {
            Event::Halted { process, at, .. } => {
                // One nobody knows was stopped all the same, and must go on.
                let stranger = || TenantKey::Cgroup { path: format!("process {process}") };
                let tenant = self.activities.tenant_of(*process).cloned().unwrap_or_else(stranger);
                self.keeper.halted(&tenant, *process, *at);
            }
            Event::Step { tenant, step, outcome, at } => self.keeper.step(tenant, *step, outcome.clone(), *at),
            Event::ProcessExited { process, at } => {
                self.keeper.exited(*process, *at);
                self.watched.remove(process);
            }
            Event::Paused { id, paused, at } => {
                if let Some(tenant) = self.container(id) {
                    // Whoever may ask the engine is as good as root.
                    self.keeper.engine_told(&tenant, *paused, 0, *at);
                }
            }
            Event::Signalled { id, signal, at } => {
                if let Some(tenant) = self.container(id) {
                    self.signalled(&tenant, *signal, *at);
                }
            }
            Event::ContainerGone { id } => {
                if let Some(tenant) = self.container(id) {
                    self.keeper.gone(&tenant, now);
                    self.places.remove(&tenant);
                    self.names.remove(&tenant);
                }
            }
            _ => {}
        }
    }

    fn container(&self, id: &ContainerId) -> Option<TenantKey> {
        self.places.keys().find(|tenant| tenant.container_id() == Some(id)).cloned()
    }

    /// A task has ended, and is shown as `ended` unless nobody wants to see any.
    pub fn task_ended(&mut self, tenant: &TenantKey, at: Mono, ended: Option<&EndedTask>) -> Option<Record> {
        let held = self.keeper.task_ended(tenant, at);
        let spent = self.meters.close(tenant, at, ended.map_or(0.0, |ended| ended.seconds), held);
        ended.map(|ended| self.annals.task(ended, spent))
    }

    /// What is remembered.
    pub fn annals(&self) -> &Annals {
        &self.annals
    }

    /// For the next daemon, if this one is killed.
    pub fn keep_open(&mut self, snapshot: &Snapshot, left: &LeftOf<'_>, now: &Anchor) {
        self.annals.keep_open(snapshot, left, now);
    }

    /// The daemon stops while these go on.
    pub fn leave(&self, snapshot: &mut Snapshot, left: Option<&LeftOf<'_>>, now: &Anchor) {
        self.show(snapshot, now);
        self.annals.leave(snapshot, left, now);
    }

    /// Decides and acts upon what is known now. `decided`: is called in between, when it is known who is to be kept off and nothing is done yet.
    pub fn turn(
        &mut self,
        snapshot: &Snapshot,
        labels: &dyn Fn(&TenantKey) -> Labels,
        deadlines: &Deadlines,
        decided: &mut dyn FnMut(&Self),
        now: &Anchor,
    ) -> Outcome {
        self.meet(snapshot, now.mono);
        self.hear(snapshot, labels, now);
        let signals_at = self.heed_signals(now.mono);
        let breathe_at = self.heed_breaths(now.mono);
        self.judged = deadlines.watched();
        let decide_at = self.decide(snapshot, labels, deadlines, now.mono);
        decided(self);
        let mut outcome = self.carry_out(now);
        self.answer(&outcome.changes, now);
        self.measure(snapshot, now.mono);
        outcome.gone = std::mem::take(&mut self.gone);
        outcome.rehearsed = self.rehearsal.as_mut().map(Rehearsal::changes).unwrap_or_default();
        outcome.again_at =
            [outcome.again_at, decide_at, self.answer_by(), signals_at, breathe_at].into_iter().flatten().min();
        outcome
    }

    pub fn goes_by_looks(&self) -> bool {
        self.policy.as_ref().is_some_and(|policy| policy.goes_by_looks())
    }

    /// What the policy wants becomes what is wanted. When to ask it again.
    fn decide(
        &mut self,
        snapshot: &Snapshot,
        labels: &dyn Fn(&TenantKey) -> Labels,
        deadlines: &Deadlines,
        now: Mono,
    ) -> Option<Mono> {
        if self.policy.is_none() {
            self.watch(&View::default(), now);
            self.hand_out(&View::default(), now);
            return None;
        }
        self.terms = self.terms_of(snapshot, labels);
        let mut view = view::view(snapshot, &self.activities, &self.keeper, &self.terms, &self.annals, now);
        view.tenants.iter_mut().for_each(|tenant| tenant.work = deadlines.work(&tenant.key, now));
        self.tell_room(&mut view, now);
        self.watch(&view, now);
        if let Some(rehearsal) = &mut self.rehearsal {
            rehearsal.pretend(&mut view, now);
        }
        let verdict = self.policy.as_mut()?.decide(&view, now);
        match &mut self.rehearsal {
            Some(rehearsal) => rehearsal.take(verdict.decisions, now),
            None => {
                self.promise_room(&verdict.decisions, &view);
                verdict.decisions.into_iter().for_each(|decision| self.wish(&decision, now));
            }
        }
        self.hand_out(&view, now);
        self.queue = verdict.queue;
        // As the policy was told: some projects are gangs.
        for tenant in &view.tenants {
            self.terms.entry(tenant.key.clone()).or_default().gang.clone_from(&tenant.gang);
        }
        self.gpus = view.tenants.into_iter().map(|tenant| (tenant.key, tenant.gpus)).collect();
        verdict.again_at
    }

    fn wish(&mut self, Decision { tenant, action, reason }: &Decision, now: Mono) {
        if let Err(refused) = self.keeper.want(tenant, want_of(*action), By::Policy, &reason.to_string(), now) {
            tracing::debug!(%tenant, %refused, "the policy's wish is not taken");
        }
    }

    /// Wants everybody free; the turns after it do it.
    pub fn release_all(&mut self, now: Mono) {
        self.keeper.release_all("berth stops", now);
    }

    pub fn holds_any(&self) -> bool {
        self.keeper.gripped().next().is_some()
    }

    /// Writes down, begins, tells: without asking the policy.
    pub fn carry_out(&mut self, now: &Anchor) -> Outcome {
        let turn = self.keeper.turn(now.mono);
        turn.changes.iter().for_each(|change| self.room.refuse(change));
        let unwritten: BTreeSet<TenantKey> =
            turn.notes.into_iter().filter_map(|(tenant, note)| self.write(tenant, note, now)).collect();
        for Order { tenant, step } in turn.orders {
            if let Some(failure) = self.hindrance(&tenant, step, unwritten.contains(&tenant)) {
                // The loop that listens is the one that runs this.
                let _ = self.event_tx.send(Event::Step { tenant, step, outcome: Err(failure), at: now.mono });
                continue;
            }
            let subject = self.subject(&tenant);
            self.crew.begin(subject, step);
        }
        let records: Vec<Record> =
            turn.changes.iter().map(|change| hold_record(change, |tenant| self.name(tenant), now)).collect();
        records.into_iter().for_each(|record| self.annals.hold(record));
        Outcome { changes: turn.changes, again_at: turn.again_at, ..Outcome::default() }
    }

    /// Why a step must not be taken. Whatever sets free may always be; and without a guard no hold is begun, but one that was
    /// goes on: what is half done would be seen.
    fn hindrance(&self, tenant: &TenantKey, step: Step, is_unwritten: bool) -> Option<StepFailure> {
        let failure = |message: &str, is_passing| Some(StepFailure { message: message.to_owned(), is_passing });
        let is_first = || self.keeper.note(tenant).is_none_or(|note| note.grip.without(step).is_empty());
        match step.sets_free() {
            false if is_unwritten => failure("its hold could not be written down", false),
            false if !self.guarded.is_so() && is_first() => failure(asks::NO_GUARD, true),
            _ => None,
        }
    }

    /// The tenant, if what is to be known about it could not be written.
    fn write(&self, tenant: TenantKey, note: Option<Note>, now: &Anchor) -> Option<TenantKey> {
        let written = match note {
            None => self.journal.remove(&tenant),
            Some(note) => self.journal.write(&self.entry(&tenant, note, now)),
        };
        written.err().map(|error| {
            tracing::error!(%tenant, error = crate::describe(&error), "a hold is not on record");
            tenant
        })
    }

    fn entry(&self, tenant: &TenantKey, note: Note, now: &Anchor) -> Entry {
        let Note { grip, want, by, reason, since } = note;
        let needs_back = self.room.record(&grip);
        Entry {
            tenant: tenant.clone(),
            cgroup: self.places.get(tenant).and_then(|place| place.cgroup.clone()),
            container: tenant.docker_id().cloned(),
            grip,
            want,
            needs_back,
            by,
            since,
            since_wall: now.wall_at(since),
            name: self.names.get(tenant).cloned().unwrap_or_default(),
            reason,
        }
    }

    fn subject(&self, tenant: &TenantKey) -> Subject {
        let cgroup = self.places.get(tenant).and_then(|place| place.cgroup.clone());
        let note = self.keeper.note(tenant);
        let is_locked_next = note.as_ref().is_some_and(|note| matches!(note.want, Want::Locked | Want::Parked));
        let needs_back = note.iter().flat_map(|note| self.room.needs_back(&note.grip)).collect();
        let standing = if is_locked_next { self.activities.standing(tenant) } else { BTreeSet::new() };
        let processes = self.activities.processes_of(tenant);
        Subject { processes, needs_back, standing, ..Subject::new(tenant.clone(), cgroup, tenant.docker_id().cloned()) }
    }

    /// Everybody in the snapshot is known to the keeper, with the processes they have now.
    fn meet(&mut self, snapshot: &Snapshot, now: Mono) {
        let is_due = self.onlookers_at.is_none_or(|at| now.since(at) >= ONLOOKERS);
        self.onlookers_at = if is_due { Some(now) } else { self.onlookers_at };
        for row in &snapshot.tasks {
            let processes = self.activities.processes_of(&row.tenant);
            if processes.is_empty() {
                continue;
            }
            let ground = &self.ground;
            let place = self.places.entry(row.tenant.clone()).or_insert_with(|| ground.place(&processes));
            // Parents come to wait later, too. Who was seen once is reckoned with for good.
            if is_due {
                place.shows_stops |= ground.shows_stops(&processes);
            }
            self.keeper.meet(&row.tenant, &processes, place.cgroup.is_some(), now);
            let usual = self.rules.hold.pause_after.get();
            let (after, checks) = self.pausing.after(&row.tenant, usual);
            self.keeper.pause_after(&row.tenant, after, checks);
            self.names.insert(row.tenant.clone(), row.container_name.clone());
        }
    }

    /// Evidence is wanted of everybody who shares a GPU: the end of their computing is someone else's turn. And of those who have a
    /// deadline: when they compute is what they are judged by.
    fn watch(&mut self, view: &View, now: Mono) {
        let shared = view.tenants.iter().filter(|tenant| {
            let is_beside =
                |other: &&berth_policy::Tenant| other.key != tenant.key && !other.gpus.is_disjoint(&tenant.gpus);
            view.tenants.iter().any(|other| is_beside(&other))
        });
        let keys = shared.map(|tenant| &tenant.key).chain(&self.judged);
        let wanted: BTreeSet<ProcKey> = keys.flat_map(|tenant| self.activities.processes_of(tenant)).collect();
        for (process, _) in self.watched.extract_if(.., |process, _| !wanted.contains(process)) {
            self.ground.watch_drains(process, false);
        }
        for process in wanted {
            self.watched.entry(process).or_insert_with(|| {
                self.ground.watch_drains(process, true);
                now
            });
        }
    }

    /// Every process of it that uses a GPU is.
    fn is_watched(&self, tenant: &TenantKey) -> bool {
        self.activities.processes_of(tenant).iter().all(|process| self.watched.contains_key(process))
    }

    /// What everybody in a task does from now on.
    fn measure(&mut self, snapshot: &Snapshot, now: Mono) {
        let rows = snapshot.tasks.iter().filter(|row| row.task_id.is_some());
        let doings: Vec<_> = rows.map(|row| (row, self.doing(row, now))).collect();
        for (row, doing) in &doings {
            let computes =
                |(other, doing): &&(&TaskRow, Doing)| *doing == Doing::Computing && other.gpu_index == row.gpu_index;
            let crowd = u32::try_from(doings.iter().filter(computes).count()).unwrap_or(u32::MAX);
            self.meters.note(&row.tenant, *doing, crowd, now);
        }
    }

    /// Only of those who are watched is it known that they have stopped computing, and begun again.
    fn doing(&self, row: &TaskRow, now: Mono) -> Doing {
        if self.keeper.view(&row.tenant, now).is_some_and(|view| view.held_since.is_some()) {
            return Doing::Held;
        }
        let is_watched = self.is_watched(&row.tenant);
        match self.activities.activity_of(&row.tenant) {
            Some(Activity::Opening { .. } | Activity::AtContext { .. } | Activity::AtAllocation { .. }) => {
                Doing::Nothing
            }
            // If the driver says otherwise, a launch has passed before its probe was in place.
            Some(Activity::Loading) if row.gpu_core_pct.is_none_or(|core| core.get() == 0) => Doing::Nothing,
            Some(Activity::Computing { .. }) if is_watched => Doing::Computing,
            Some(Activity::Quiet { .. } | Activity::AtLaunch { .. }) if is_watched => Doing::Nothing,
            _ => row.gpu_core_pct.map_or(Doing::Unknown, Doing::Share),
        }
    }

    /// What can and may be done to a container, as far as that does not depend on which.
    fn offered_to_containers(&self) -> Vec<Means> {
        let place = Place { cgroup: Some(self.rules.hold.cgroup_root.clone()), shows_stops: false };
        let offered = self.ground.offered(&place);
        offered.intersection(&self.rules.hold.means).copied().collect()
    }

    /// What can and may be done to a tenant.
    fn offered(&self, tenant: &TenantKey) -> BTreeSet<Means> {
        let place = self.places.get(tenant).cloned().unwrap_or_default();
        let offered = self.ground.offered(&place);
        let may = |means: &&Means| self.rules.hold.means.contains(means) && !self.room.is_refused(tenant, **means);
        offered.iter().filter(may).copied().collect()
    }
}

pub(crate) type Labels = Option<BTreeMap<String, String>>;

fn want_of(action: Action) -> Want {
    match action {
        Action::Release => Want::Free,
        Action::Hold(Means::Gate) => Want::Gated,
        Action::Bar => Want::Barred,
        Action::Hold(Means::Freeze) => Want::Frozen(Freezer::Cgroup),
        Action::Hold(Means::Lock) => Want::Locked,
        Action::Hold(Means::Park) => Want::Parked,
    }
}
