//! Holds as everybody sees them: in the snapshot's rows and in the list of changes.

use berth_model::hold::{By, HoldChange, HoldView, Stage};
use berth_model::snapshot::{HoldRow, HoldStage, Management, QueueRow};
use berth_model::{Anchor, Change, Mono, Snapshot, TaskRow, TaskState, TenantKey};
use berth_policy::{Activity, Waiting};

use super::Manager;
use super::view::means_of;

impl Manager {
    /// Fills in what berth does to whom.
    pub fn show(&self, snapshot: &mut Snapshot, now: &Anchor) {
        for row in &mut snapshot.tasks {
            let view = self.keeper.view(&row.tenant, now.mono);
            row.held_seconds = Some(view.as_ref().map_or(0.0, |view| view.held.as_secs_f64()));
            row.hold = view.and_then(|view| self.hold_row(&row.tenant, &view, now));
            row.state = self.state(row);
        }
        snapshot.management = Some(self.management(now));
    }

    pub fn change(&self, change: HoldChange) -> Change {
        match change {
            HoldChange::Held { tenant, means, by, reason, at } => {
                Change::TenantHeld { name: self.name(&tenant), tenant, means, by_uid: uid(by), reason, at }
            }
            HoldChange::Released { tenant, by, reason, at } => {
                Change::TenantReleased { name: self.name(&tenant), tenant, by_uid: uid(by), reason, at }
            }
            HoldChange::HoldFailed { tenant, message, at, .. } => {
                Change::HoldFailed { name: self.name(&tenant), tenant, message, at }
            }
        }
    }

    /// What stands at a call does not compute, though its launch has been seen.
    pub(super) fn state(&self, row: &TaskRow) -> TaskState {
        let stands = matches!(
            self.activities.activity_of(&row.tenant),
            Some(Activity::AtLaunch { .. } | Activity::AtAllocation { .. })
        );
        match row.state {
            TaskState::Computing | TaskState::Idle if stands => {
                if self.activities.has_launched(&row.tenant) {
                    TaskState::Idle
                } else {
                    TaskState::Loaded
                }
            }
            state => state,
        }
    }

    fn management(&self, now: &Anchor) -> Management {
        let queue = self.queue.iter().map(|waiting| QueueRow {
            tenant: waiting.tenant.clone(),
            name: self.name(&waiting.tenant),
            behind: waiting.behind.as_ref().map(|behind| self.name(behind)),
            since: now.wall_at(waiting.since),
            expected_at: waiting.expected_at.map(|at| now.wall_at(at)),
        });
        Management { policy: self.policy_name, queue: queue.collect(), holds: self.history.counters() }
    }

    pub(super) fn hold_row(&self, tenant: &TenantKey, view: &HoldView, now: &Anchor) -> Option<HoldRow> {
        let stage = match (view.stage, uid(view.by)) {
            (Stage::Free, None) => return None,
            (Stage::Free, Some(_)) => HoldStage::Exempt,
            (Stage::Armed, _) => HoldStage::Gated,
            (Stage::Held, _) => HoldStage::Held,
            (Stage::Moving, _) => HoldStage::Moving,
        };
        let line = self.line(tenant);
        let place = line.iter().position(|waiting| waiting.tenant == *tenant);
        let waiting = place.and_then(|place| line.get(place));
        Some(HoldRow {
            stage,
            means: means_of(view.want),
            by_uid: uid(view.by),
            reason: view.reason.clone(),
            since: now.wall_at(view.held_since.unwrap_or(view.since)),
            held_seconds: view.held.as_secs_f64(),
            place: place.and_then(|place| u32::try_from(place + 1).ok()),
            places: place.and_then(|_| u32::try_from(line.len()).ok()),
            behind: waiting.and_then(|waiting| waiting.behind.as_ref()).map(|behind| self.name(behind)),
            expected_at: waiting.and_then(|waiting| waiting.expected_at).map(|at: Mono| now.wall_at(at)),
        })
    }

    /// Those in line for a GPU the tenant is on, itself among them.
    fn line(&self, tenant: &TenantKey) -> Vec<&Waiting> {
        let is_rival = |waiting: &&Waiting| {
            let both = self.gpus.get(tenant).zip(self.gpus.get(&waiting.tenant));
            waiting.tenant == *tenant || both.is_some_and(|(own, other)| !own.is_disjoint(other))
        };
        self.queue.iter().filter(is_rival).collect()
    }

    pub(super) fn name(&self, tenant: &TenantKey) -> String {
        self.names.get(tenant).cloned().unwrap_or_else(|| tenant.to_string())
    }
}

pub(super) fn uid(by: By) -> Option<u32> {
    match by {
        By::Policy => None,
        By::Person { uid } => Some(uid),
    }
}
