//! Who runs and who waits: the policy asked, its decisions carried out, everything written down first.
//!
//! The manager stands beside the monitor in the loop. It is told every event, asks the policy with a view made of what is
//! known, hands its decisions to the [`Keeper`], and does what the keeper's turn says, in this order: write down, begin, tell.
//! Nothing here blocks: steps run on the crew's threads and come back as events.

mod activity;
mod asks;
mod crew;
mod explain;
mod ground;
mod history;
mod host;
mod show;
mod terms;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use berth_host::hands::{Hands, Subject};
use berth_model::hold::{By, Freezer, HoldChange, Keeper, Means, Note, Order, Patience, Want};
use berth_model::settings::PolicyName;
use berth_model::{Anchor, ContainerId, Event, GpuIndex, Mono, ProcKey, Snapshot, StepFailure, TenantKey};
use berth_policy::{Action, Policy, View, Waiting};
use berth_store::{Entry, Found, Journal};

use activity::Activities;
use asks::Asks;
use crew::Crew;
use ground::{Ground, Place};
use history::History;
pub(crate) use host::manager;
use terms::{Terms, terms};

/// What a manager needs of the host.
pub(crate) struct Parts {
    pub policy: PolicyName,
    pub policies: Policies,
    pub hands: Arc<dyn Hands>,
    pub journal: Journal,
    pub ground: Box<dyn Ground>,
    pub event_tx: Sender<Event>,
}

/// Makes a policy; `None` for the one that holds nobody.
pub(crate) type Policies = Box<dyn Fn(PolicyName) -> Option<Box<dyn Policy>> + Send>;

pub(crate) struct Manager {
    policies: Policies,
    policy_name: PolicyName,
    /// `None`: only persons hold.
    policy: Option<Box<dyn Policy>>,
    keeper: Keeper,
    activities: Activities,
    crew: Crew,
    journal: Journal,
    ground: Box<dyn Ground>,
    event_tx: Sender<Event>,
    /// Where each tenant stands that is or was here.
    places: BTreeMap<TenantKey, Place>,
    names: BTreeMap<TenantKey, String>,
    /// Processes whose calls that wait for the GPU are watched.
    watched: BTreeSet<ProcKey>,
    queue: Vec<Waiting>,
    /// On which GPUs those are that a policy was told of.
    gpus: BTreeMap<TenantKey, BTreeSet<GpuIndex>>,
    asks: Asks,
    history: History,
}

/// What a turn came to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub changes: Vec<HoldChange>,
    /// Turn again by then.
    pub again_at: Option<Mono>,
}

impl Manager {
    /// What an earlier daemon left held is set free first.
    pub fn new(parts: Parts, left: Found, now: Mono) -> Self {
        let Parts { policy, policies, hands, journal, ground, event_tx } = parts;
        let mut manager = Self {
            policy: policies(policy),
            policy_name: policy,
            policies,
            keeper: Keeper::new(Patience::default()),
            activities: Activities::default(),
            crew: Crew::new(hands, event_tx.clone()),
            journal,
            ground,
            event_tx,
            places: BTreeMap::new(),
            names: BTreeMap::new(),
            watched: BTreeSet::new(),
            queue: Vec::new(),
            gpus: BTreeMap::new(),
            asks: Asks::default(),
            history: History::default(),
        };
        manager.adopt(left, now);
        manager
    }

    fn adopt(&mut self, left: Found, now: Mono) {
        for unusable in &left.unusable {
            tracing::warn!(file = %unusable.path.display(), why = unusable.why, "a record of a hold cannot be used");
        }
        for kept in left.entries {
            let grip = self.ground.verified(&kept);
            let note = Note { grip, want: Want::Free, ..kept.entry.note() };
            let Entry { tenant, cgroup, name, .. } = kept.entry;
            tracing::info!(%tenant, name, "setting free what an earlier daemon held");
            self.keeper.adopt(&tenant, note, cgroup.is_some(), now);
            self.places.insert(tenant.clone(), Place { cgroup, has_terminal: false });
            self.names.insert(tenant, name);
        }
    }

    /// Takes in an event, before or after the monitor does.
    pub fn note(&mut self, event: &Event, now: Mono) {
        self.activities.note(event);
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
                    self.paused(&tenant, *paused, *at);
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

    /// The engine tells of pauses of its own and of ours alike.
    fn paused(&mut self, tenant: &TenantKey, paused: bool, at: Mono) {
        let note = self.keeper.note(tenant);
        let ours = note.as_ref().is_some_and(|note| note.grip.frozen == Some(Freezer::Docker));
        let wanted_free = note.is_none_or(|note| note.want == Want::Free);
        match paused {
            true if !ours => self.keeper.frozen_by_others(tenant, at),
            // Whoever unpauses by the engine's own command is as good as root.
            false if ours && !wanted_free => self.keeper.thawed_by_others(tenant, 0, at),
            false if !ours => self.keeper.thawed_by_others(tenant, 0, at),
            _ => {}
        }
    }

    /// A task has ended; how long it was held.
    pub fn task_ended(&mut self, tenant: &TenantKey, at: Mono) -> std::time::Duration {
        self.keeper.task_ended(tenant, at)
    }

    /// Decides and acts upon what is known now.
    pub fn turn(&mut self, snapshot: &Snapshot, labels: &dyn Fn(&TenantKey) -> Labels, now: &Anchor) -> Outcome {
        self.meet(snapshot, now.mono);
        self.hear(snapshot, labels, now);
        let decide_at = self.decide(snapshot, labels, now.mono);
        let mut outcome = self.carry_out(now);
        self.answer(&outcome.changes, now);
        outcome.again_at = [outcome.again_at, decide_at, self.answer_by()].into_iter().flatten().min();
        outcome
    }

    /// What the policy wants becomes what is wanted. When to ask it again.
    fn decide(&mut self, snapshot: &Snapshot, labels: &dyn Fn(&TenantKey) -> Labels, now: Mono) -> Option<Mono> {
        if self.policy.is_none() {
            self.watch(&View::default());
            return None;
        }
        let view = view::view(snapshot, &self.activities, &self.keeper, |tenant| self.terms(tenant, labels), now);
        self.watch(&view);
        let verdict = self.policy.as_mut()?.decide(&view, now);
        for decision in verdict.decisions {
            let want = want_of(decision.action);
            let reason = decision.reason.to_string();
            if let Err(refused) = self.keeper.want(&decision.tenant, want, By::Policy, &reason, now) {
                tracing::debug!(tenant = %decision.tenant, %refused, "the policy's wish is not taken");
            }
        }
        self.queue = verdict.queue;
        self.gpus = view.tenants.into_iter().map(|tenant| (tenant.key, tenant.gpus)).collect();
        verdict.again_at
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
        let unwritten: BTreeSet<TenantKey> =
            turn.notes.into_iter().filter_map(|(tenant, note)| self.write(tenant, note, now)).collect();
        for Order { tenant, step } in turn.orders {
            if unwritten.contains(&tenant) && !step.sets_free() {
                let message = "its hold could not be written down".to_owned();
                let outcome = Err(StepFailure { message, is_passing: false });
                // The loop that listens is the one that runs this.
                let _ = self.event_tx.send(Event::Step { tenant, step, outcome, at: now.mono });
                continue;
            }
            let subject = self.subject(&tenant);
            self.crew.begin(subject, step);
        }
        turn.changes.iter().for_each(|change| self.history.note(change, now));
        Outcome { changes: turn.changes, again_at: turn.again_at }
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
        Entry {
            tenant: tenant.clone(),
            cgroup: self.places.get(tenant).and_then(|place| place.cgroup.clone()),
            container: tenant.docker_id().cloned(),
            grip,
            want,
            by,
            since,
            since_wall: now.wall_at(since),
            name: self.names.get(tenant).cloned().unwrap_or_default(),
            reason,
        }
    }

    fn subject(&self, tenant: &TenantKey) -> Subject {
        let cgroup = self.places.get(tenant).and_then(|place| place.cgroup.clone());
        Subject { tenant: tenant.clone(), cgroup, container: tenant.docker_id().cloned() }
    }

    /// Everybody in the snapshot is known to the keeper, with the processes they have now.
    fn meet(&mut self, snapshot: &Snapshot, now: Mono) {
        for row in &snapshot.tasks {
            let processes = self.activities.processes_of(&row.tenant);
            if processes.is_empty() {
                continue;
            }
            let ground = &self.ground;
            let place = self.places.entry(row.tenant.clone()).or_insert_with(|| ground.place(&processes));
            self.keeper.meet(&row.tenant, &processes, place.cgroup.is_some(), now);
            self.names.insert(row.tenant.clone(), row.container_name.clone());
        }
    }

    /// Evidence is wanted of everybody who shares a GPU: the end of their computing is someone else's turn.
    fn watch(&mut self, view: &View) {
        let shared = view.tenants.iter().filter(|tenant| {
            let is_beside =
                |other: &&berth_policy::Tenant| other.key != tenant.key && !other.gpus.is_disjoint(&tenant.gpus);
            view.tenants.iter().any(|other| is_beside(&other))
        });
        let wanted: BTreeSet<ProcKey> = shared.flat_map(|tenant| self.activities.processes_of(&tenant.key)).collect();
        for process in self.watched.symmetric_difference(&wanted) {
            self.ground.watch_drains(*process, wanted.contains(process));
        }
        self.watched = wanted;
    }

    fn terms(&self, tenant: &TenantKey, labels: &dyn Fn(&TenantKey) -> Labels) -> Terms {
        let place = self.places.get(tenant).cloned().unwrap_or_default();
        terms(labels(tenant).as_ref(), self.ground.offered(&place))
    }
}

pub(crate) type Labels = Option<BTreeMap<String, String>>;

fn want_of(action: Action) -> Want {
    match action {
        Action::Release => Want::Free,
        Action::Hold(Means::Gate) => Want::Gated,
        Action::Hold(Means::Freeze) => Want::Frozen(Freezer::Cgroup),
        Action::Hold(Means::Lock) => Want::Locked,
        Action::Hold(Means::Park) => Want::Parked,
    }
}
