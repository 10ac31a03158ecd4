//! What is remembered beyond a task and a daemon: holds, tasks, and what workloads did before; told from memory, written down
//! as it happens.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_model::control::PastHold;
use berth_model::history::{Before, Happening, LeftOpen, Record, Spent, TaskStory, Workload};
use berth_model::hold::HoldChange;
use berth_model::snapshot::{EndedTask, HoldCounters};
use berth_model::{Anchor, Deadline, Mono, Settings, Snapshot, TaskId, TaskRow, TenantKey};
use berth_store::history::{self, Writer};

use super::history::History;
use super::past::Pasts;
use super::show::uid;
use crate::describe;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;
/// How old what is on record of a task under way may be: after a kill nobody knows more.
const OPEN_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(crate) struct Annals {
    holds: History,
    pasts: Pasts,
    /// `None`: nothing is written down.
    writer: Option<Writer>,
    /// Which tasks are on record as under way, and since when; `None` while those of the daemon before are.
    open: Option<(Vec<OpenTask>, Mono)>,
}

/// With its deadline.
type OpenTask = (TaskId, Option<Deadline>);

/// A tenant's unit of work under way.
pub(crate) type LeftOf<'a> = dyn Fn(&TenantKey) -> Option<LeftOpen> + 'a;

/// Without a manager: tasks are remembered all the same.
#[derive(Debug, Default)]
pub(crate) struct Unmanaged {
    /// Why nobody can be held.
    pub reason: String,
    pub annals: Annals,
}

/// Opens the history the settings name, and recalls what it says. Where that cannot be, the daemon runs on without.
pub(crate) fn open(
    settings: &Settings,
    mut recalled: impl FnMut(&Record),
    now: &Anchor,
) -> (Annals, Option<history::History>) {
    let mut annals = Annals::default();
    if !settings.history.enabled {
        return (annals, None);
    }
    let most = u64::from(settings.history.max_mib) * MIB;
    let recall = |record: Record| {
        annals.holds.recall(&record);
        annals.pasts.note(&record);
        recalled(&record);
    };
    match history::History::open(&settings.history.dir, most, &settings.processes.proc_root, recall) {
        Ok(history) => {
            annals.writer = Some(history.writer());
            // Of whose end nobody has written: lost sight of when the daemon before was last heard of.
            history.left_open.iter().for_each(|record| annals.write(without_unit(record.clone())));
            for record in annals.holds.unfinished(now.wall) {
                annals.holds.recall(&record);
                annals.write(record);
            }
            (annals, Some(history))
        }
        Err(error) => {
            tracing::warn!(reason = describe(&error), "what happens will not be remembered by the next daemon");
            (Annals::default(), None)
        }
    }
}

impl Annals {
    /// A hold came, went or failed.
    pub fn hold(&mut self, record: Record) {
        self.holds.note(&record);
        self.write(record);
    }

    pub fn task(&mut self, task: &EndedTask, spent: Spent) -> Record {
        let record = Record::of_ended(task, spent);
        self.pasts.note(&record);
        self.write(record.clone());
        record
    }

    /// Keeps on record what is under way, for the next daemon if this one cannot tell its end.
    pub fn keep_open(&mut self, snapshot: &Snapshot, left: &LeftOf<'_>, now: &Anchor) {
        let Some(writer) = &self.writer else { return };
        let deadline = |row: &TaskRow| row.deadline.as_ref().map(|deadline| deadline.deadline);
        let tasks: Vec<_> = snapshot.tasks.iter().filter_map(|row| Some((row.task_id?, deadline(row)))).collect();
        let is_on_record = self
            .open
            .as_ref()
            .is_some_and(|(open, since)| *open == tasks && (tasks.is_empty() || now.mono.since(*since) < OPEN_AGAIN));
        // What found no room is told again.
        if !is_on_record && writer.keep_open(under_way(snapshot, left, now)) {
            self.open = Some((tasks, now.mono));
        }
    }

    /// Tasks that go on when the daemon stops.
    /// `left`: `None` while what is on record of the daemon before must stay.
    pub fn leave(&self, snapshot: &Snapshot, left: Option<&LeftOf<'_>>, now: &Anchor) {
        under_way(snapshot, &|_| None, now).into_iter().for_each(|record| self.write(record));
        if let (Some(writer), Some(left)) = (&self.writer, left) {
            writer.keep_open(under_way(snapshot, left, now));
        }
    }

    /// For whoever has more to write down.
    pub fn writer(&self) -> Option<Writer> {
        self.writer.clone()
    }

    /// What tasks like this one did.
    pub fn before(&self, row: &TaskRow) -> Option<Before> {
        self.pasts.of(row)
    }

    /// Newest first.
    pub fn holds_of(&self, tenant: &TenantKey) -> Vec<PastHold> {
        self.holds.of(tenant)
    }

    /// Of this daemon.
    pub fn counters(&self) -> HoldCounters {
        self.holds.counters()
    }

    fn write(&self, record: Record) {
        if let Some(writer) = &self.writer {
            writer.write(record);
        }
    }
}

pub(super) fn hold_record(change: &HoldChange, name_of: impl Fn(&TenantKey) -> String, now: &Anchor) -> Record {
    let (tenant, at, what) = match change.clone() {
        HoldChange::Held { tenant, means, by, reason, at } => {
            (tenant, at, Happening::Held { means, by_uid: uid(by), reason })
        }
        HoldChange::Released { tenant, by, reason, at } => {
            (tenant, at, Happening::Released { by_uid: uid(by), reason })
        }
        HoldChange::HoldFailed { tenant, message, at, .. } => (tenant, at, Happening::HoldFailed { message }),
    };
    Record { at: now.wall_at(at), name: name_of(&tenant), tenant, what }
}

/// As it is written down for good: the unit is for the next daemon alone.
fn without_unit(mut record: Record) -> Record {
    if let Happening::Task(story) = &mut record.what {
        story.left = None;
    }
    record
}

/// Every task once, as it stands now.
fn under_way(snapshot: &Snapshot, left: &LeftOf<'_>, now: &Anchor) -> Vec<Record> {
    let mut told: BTreeSet<&TenantKey> = BTreeSet::new();
    let mut records = Vec::new();
    for row in &snapshot.tasks {
        if let Some(story) = story_so_far(row, snapshot, left)
            && told.insert(&row.tenant)
        {
            let (tenant, name) = (row.tenant.clone(), row.container_name.clone());
            records.push(Record { at: now.wall, tenant, name, what: Happening::Task(story) });
        }
    }
    records
}

/// `None` for one who has no task yet.
fn story_so_far(row: &TaskRow, snapshot: &Snapshot, left: &LeftOf<'_>) -> Option<TaskStory> {
    let gpus = snapshot.tasks.iter().filter(|other| other.tenant == row.tenant).filter_map(|other| other.gpu_index);
    Some(TaskStory {
        task_id: row.task_id?,
        workload: Workload { owner: row.owner.clone(), image: row.image.clone(), command: row.command.clone() },
        gpus: gpus.collect(),
        started_at: row.task_started_at?,
        start_evidence: row.task_start_evidence?,
        seconds: row.task_seconds?,
        spent: Spent { active_seconds: None, held_seconds: row.held_seconds, burst_seconds: None },
        peak_memory_bytes: None,
        end: None,
        left: left(&row.tenant).map(Box::new),
    })
}
