//! Undoing what is on record: every tenant at once, each by the same steps as the daemon would take.
//!
//! Tenants whose memory is in host memory come back one after the other, those held longest first: each needs room on a GPU.
//! A step that fails is tried again for as long as there is time. Processes that were gated are looked at for a while after:
//! the gate goes when the kernel has taken its probes out, and until then it may stop one more.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use berth_host::clock;
use berth_host::hands::{Hands, Subject};
use berth_host::probes::read_halted;
use berth_model::hold::{By, HoldChange, Keeper, Note, Order, Patience, Step, Want};
use berth_model::{Mono, ProcKey, StepFailure, TenantKey};
use berth_store::{Entry, Found, Gone, Journal};

use super::is_stopped;

/// How often to look whether someone waits, or a gated process was stopped.
const TICK: Duration = Duration::from_millis(20);
/// The kernel takes probes out within a fraction of this, also many of them.
const GATES_GO_WITHIN: Duration = Duration::from_secs(2);
/// While it goes on being tried.
const PATIENCE: Patience = Patience {
    tries: 4,
    first_pause: Duration::from_millis(5),
    longest_pause: Duration::from_millis(500),
    leave_alone: Duration::ZERO,
};

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing is left to do, or there was no time for more.
    Done,
    /// Someone else waited for the journal.
    MadeRoom,
}

#[derive(Debug)]
pub struct Undone {
    pub end: End,
    /// Names of those that are free.
    pub freed: BTreeSet<String>,
    /// Names of those of whom nothing is there any more that was held: nothing was touched.
    pub gone: BTreeMap<String, Gone>,
    /// Names of those that are not, and why, as far as is known.
    pub left: BTreeMap<String, Option<String>>,
}

#[derive(Debug)]
pub struct Undo<'a> {
    keeper: Keeper,
    entries: BTreeMap<TenantKey, Entry>,
    gone: BTreeMap<TenantKey, Gone>,
    journal: Option<&'a Journal>,
    hands: Arc<dyn Hands>,
    proc_root: PathBuf,
    /// May still be stopped by a gate that has not gone yet.
    gated: BTreeMap<ProcKey, TenantKey>,
    halted: Option<&'a OwnedFd>,
    in_flight: BTreeMap<TenantKey, Step>,
    /// Restores that wait for the one in flight, by since when their tenants were held.
    waiting: BTreeSet<(Mono, TenantKey, ProcKey)>,
    failures: BTreeMap<TenantKey, String>,
    outcome_tx: Sender<Outcome>,
    outcome_rx: Receiver<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    tenant: TenantKey,
    step: Step,
    result: Result<(), StepFailure>,
}

impl<'a> Undo<'a> {
    /// Without a journal nothing is written: whoever keeps it finds out by itself. `halted` is the gate's own list of processes
    /// it has stopped; without it every gated process that is stopped is taken to have been stopped by the gate.
    pub fn new(
        found: Found,
        journal: Option<&'a Journal>,
        hands: Arc<dyn Hands>,
        proc_root: &Path,
        halted: Option<&'a OwnedFd>,
    ) -> Self {
        let (outcome_tx, outcome_rx) = channel();
        let mut undo = Self {
            keeper: Keeper::new(PATIENCE),
            entries: BTreeMap::new(),
            gone: BTreeMap::new(),
            journal,
            hands,
            proc_root: proc_root.to_owned(),
            gated: BTreeMap::new(),
            halted,
            in_flight: BTreeMap::new(),
            waiting: BTreeSet::new(),
            failures: BTreeMap::new(),
            outcome_tx,
            outcome_rx,
        };
        let now = clock::now();
        let told = undo.told_by_the_gate();
        for kept in &found.entries {
            let mut grip = kept.verified(proc_root);
            if let Some(told) = &told {
                // Whom a person has stopped stays so.
                grip.stopped.retain(|process| kept.entry.grip.stopped.contains(process) || told.contains(process));
            }
            if grip.is_empty() {
                let gone = kept.gone();
                tracing::info!(tenant = %kept.entry.tenant, %gone, "a hold is on record of which nothing is left");
                undo.gone.insert(kept.entry.tenant.clone(), gone);
            }
            undo.gated.extend(grip.gated.iter().map(|process| (*process, kept.entry.tenant.clone())));
            let (tenant, can_freeze) = (&kept.entry.tenant, kept.entry.cgroup.is_some());
            let reason = "whoever held it is gone".to_owned();
            let note = Note { grip, want: Want::Free, by: By::Policy, reason, since: now };
            undo.keeper.adopt(tenant, note, can_freeze, now);
            undo.entries.insert(tenant.clone(), kept.entry.clone());
        }
        undo
    }

    /// `until`: when to give up; without it only success, or someone who waits for the journal, is an end.
    pub fn run(mut self, until: Option<Mono>) -> Undone {
        let gates_gone = clock::now() + GATES_GO_WITHIN;
        loop {
            let now = clock::now();
            if now < gates_gone {
                self.look_for_stopped(now);
            }
            let make_room = self.journal.is_some_and(Journal::is_awaited);
            let is_late = until.is_some_and(|end| end <= now);
            if !make_room && !is_late {
                self.turn(now);
            }
            let is_idle = self.in_flight.is_empty();
            let is_done = self.keeper.gripped().next().is_none() && (now >= gates_gone || !self.may_be_stopped());
            if is_idle && (make_room || is_late || is_done) {
                return self.end(if make_room { End::MadeRoom } else { End::Done });
            }
            self.wait();
        }
    }

    fn turn(&mut self, now: Mono) {
        let turn = self.keeper.turn(now);
        for (tenant, note) in turn.notes {
            self.write(&tenant, note);
        }
        for change in turn.changes {
            if let HoldChange::HoldFailed { tenant, message, .. } = change
                && self.failures.insert(tenant.clone(), message.clone()).as_ref() != Some(&message)
            {
                tracing::warn!(%tenant, message, "a hold cannot be undone yet; trying again");
            }
        }
        for Order { tenant, step } in turn.orders {
            match step {
                Step::Restore(process) => {
                    let since = self.entries.get(&tenant).map_or(Mono(0), |entry| entry.since);
                    self.waiting.insert((since, tenant, process));
                }
                step => self.begin(tenant, step),
            }
        }
        let is_restoring = self.in_flight.values().any(|step| matches!(step, Step::Restore(_)));
        if !is_restoring && let Some((_, tenant, process)) = self.waiting.pop_first() {
            self.begin(tenant, Step::Restore(process));
        }
    }

    /// What cannot be written stays as it was: it says too much, and undoing it again does no harm.
    fn write(&self, tenant: &TenantKey, note: Option<Note>) {
        let (Some(journal), Some(entry)) = (self.journal, self.entries.get(tenant)) else { return };
        let Some(note) = note else { return forget(Some(journal), tenant) };
        if let Err(error) = journal.write(&Entry { grip: note.grip, want: note.want, ..entry.clone() }) {
            tracing::warn!(%tenant, %error, "the journal cannot be written; the hold is undone all the same");
        }
    }

    fn begin(&mut self, tenant: TenantKey, step: Step) {
        let entry = self.entries.get(&tenant);
        let subject = Subject {
            tenant: tenant.clone(),
            cgroup: entry.and_then(|entry| entry.cgroup.clone()),
            container: entry.and_then(|entry| entry.container.clone()),
            needs_back: entry.into_iter().flat_map(|entry| &entry.needs_back).map(|it| (it.process, it.held)).collect(),
            // Probes end with the daemon that had them.
            processes: BTreeSet::new(),
            standing: BTreeSet::new(),
        };
        let (hands, outcome_tx) = (self.hands.clone(), self.outcome_tx.clone());
        self.in_flight.insert(tenant.clone(), step);
        let perform = {
            let tenant = tenant.clone();
            // The receiver lives until every step has told its outcome.
            move || drop(outcome_tx.send(Outcome { tenant, step, result: hands.perform(&subject, step) }))
        };
        if let Err(error) = std::thread::Builder::new().name("berth-undo".into()).spawn(perform) {
            let message = format!("cannot start a thread: {error}");
            self.take(Outcome { tenant, step, result: Err(StepFailure { message, is_passing: true }) });
        }
    }

    fn wait(&mut self) {
        match self.outcome_rx.recv_timeout(TICK) {
            Ok(outcome) => self.take(outcome),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
        }
        while let Ok(outcome) = self.outcome_rx.try_recv() {
            self.take(outcome);
        }
    }

    fn take(&mut self, Outcome { tenant, step, result }: Outcome) {
        self.in_flight.remove(&tenant);
        if result.is_ok() {
            self.failures.remove(&tenant);
        }
        self.keeper.step(&tenant, step, result, clock::now());
    }

    fn end(self, end: End) -> Undone {
        let held: BTreeSet<&TenantKey> = self.keeper.gripped().collect();
        let name =
            |tenant: &TenantKey| self.entries.get(tenant).map_or_else(|| tenant.to_string(), |it| it.name.clone());
        let left = held.iter().map(|tenant| (name(tenant), self.failures.get(*tenant).cloned())).collect();
        let is_freed = |tenant: &&TenantKey| !held.contains(tenant) && !self.gone.contains_key(*tenant);
        let freed = self.entries.keys().filter(is_freed).map(name).collect();
        let gone = self.gone.iter().filter(|(tenant, _)| !held.contains(tenant));
        let gone = gone.map(|(tenant, gone)| (name(tenant), *gone)).collect();
        Undone { end, freed, gone, left }
    }

    // === gates that have not gone yet ===

    fn may_be_stopped(&self) -> bool {
        !self.gated.is_empty() || self.halted.is_some()
    }

    fn look_for_stopped(&mut self, now: Mono) {
        let told = self.told_by_the_gate();
        // Some may not be on record yet.
        for process in told.iter().flatten() {
            let nobody = || TenantKey::Cgroup { path: format!("process {process}") };
            self.gated.entry(*process).or_insert_with(nobody);
        }
        let by_the_gate = |process: &ProcKey| told.as_ref().is_none_or(|told| told.contains(process));
        let stopped: Vec<(ProcKey, TenantKey)> = self
            .gated
            .iter()
            .filter(|(process, _)| by_the_gate(process) && is_stopped(&self.proc_root, **process))
            .map(|(p, t)| (*p, t.clone()))
            .collect();
        for (process, tenant) in stopped {
            let can_freeze = self.entries.get(&tenant).is_some_and(|entry| entry.cgroup.is_some());
            let is_known = self.keeper.note(&tenant).is_some_and(|note| note.grip.stopped.contains(&process));
            if !is_known {
                self.keeper.meet(&tenant, &BTreeSet::new(), can_freeze, now);
                self.keeper.halted(&tenant, process, now);
            }
        }
    }

    /// `None`: there is no list, or it cannot be read.
    fn told_by_the_gate(&self) -> Option<Vec<ProcKey>> {
        let told = read_halted(self.halted?.as_fd(), &self.proc_root);
        told.inspect_err(|error| tracing::debug!(%error, "the gate's list of halted processes cannot be read")).ok()
    }
}

fn forget(journal: Option<&Journal>, tenant: &TenantKey) {
    if let Some(Err(error)) = journal.map(|journal| journal.remove(tenant)) {
        tracing::warn!(%tenant, %error, "the record of a hold that is undone cannot be removed");
    }
}
