//! What is remembered beyond a task and a daemon: holds, tasks, and what workloads did before; told from memory, written down
//! as it happens.

use berth_model::control::PastHold;
use berth_model::history::{Before, Happening, Record, Spent, TaskStory, Workload};
use berth_model::hold::HoldChange;
use berth_model::snapshot::{EndedTask, HoldCounters};
use berth_model::{Anchor, Settings, Snapshot, TaskRow, TenantKey};
use berth_store::history::{self, Writer};

use super::history::History;
use super::past::Pasts;
use super::show::uid;
use crate::describe;

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(crate) struct Annals {
    holds: History,
    pasts: Pasts,
    /// `None`: nothing is written down.
    writer: Option<Writer>,
}

/// Without a manager: tasks are remembered all the same.
#[derive(Debug, Default)]
pub(crate) struct Unmanaged {
    /// Why nobody can be held.
    pub reason: String,
    pub annals: Annals,
}

/// Opens the history the settings name, and recalls what it says. Where that cannot be, the daemon runs on without.
pub(crate) fn open(settings: &Settings, now: &Anchor) -> (Annals, Option<history::History>) {
    let mut annals = Annals::default();
    if !settings.history.enabled {
        return (annals, None);
    }
    let most = u64::from(settings.history.max_mib) * MIB;
    let recall = |record: Record| {
        annals.holds.recall(&record);
        annals.pasts.note(&record);
    };
    match history::History::open(&settings.history.dir, most, &settings.processes.proc_root, recall) {
        Ok(history) => {
            annals.writer = Some(history.writer());
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

    pub fn task(&mut self, task: &EndedTask, spent: Spent) {
        let record = Record::of_ended(task, spent);
        self.pasts.note(&record);
        self.write(record);
    }

    /// Tasks that go on when the daemon stops.
    pub fn leave(&self, snapshot: &Snapshot, now: &Anchor) {
        let mut left: Vec<&TenantKey> = Vec::new();
        for row in &snapshot.tasks {
            if !left.contains(&&row.tenant)
                && let Some(story) = story_so_far(row, snapshot)
            {
                left.push(&row.tenant);
                let (tenant, name) = (row.tenant.clone(), row.container_name.clone());
                self.write(Record { at: now.wall, tenant, name, what: Happening::Task(story) });
            }
        }
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

/// `None` for one who has no task yet.
fn story_so_far(row: &TaskRow, snapshot: &Snapshot) -> Option<TaskStory> {
    let gpus = snapshot.tasks.iter().filter(|other| other.tenant == row.tenant).filter_map(|other| other.gpu_index);
    Some(TaskStory {
        task_id: row.task_id?,
        workload: Workload { owner: row.owner.clone(), image: row.image.clone(), command: row.command.clone() },
        gpus: gpus.collect(),
        started_at: row.task_started_at?,
        start_evidence: row.task_start_evidence?,
        seconds: row.task_seconds?,
        spent: Spent { active_seconds: None, held_seconds: row.held_seconds },
        peak_memory_bytes: None,
        end: None,
    })
}
