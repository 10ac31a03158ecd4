//! Holds as everybody sees them: in the snapshot's rows and in the list of changes.

use berth_model::hold::{By, HoldChange, HoldView, Stage};
use berth_model::snapshot::{HoldRow, HoldStage};
use berth_model::{Anchor, Change, Mono, Snapshot, TenantKey};

use super::Manager;
use super::view::means_of;

impl Manager {
    /// Fills in what berth does to whom.
    pub fn show(&self, snapshot: &mut Snapshot, now: &Anchor) {
        for row in &mut snapshot.tasks {
            row.hold = self.keeper.view(&row.tenant, now.mono).and_then(|view| self.hold_row(&row.tenant, &view, now));
        }
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

    fn hold_row(&self, tenant: &TenantKey, view: &HoldView, now: &Anchor) -> Option<HoldRow> {
        let stage = match (view.stage, uid(view.by)) {
            (Stage::Free, None) => return None,
            (Stage::Free, Some(_)) => HoldStage::Exempt,
            (Stage::Armed, _) => HoldStage::Gated,
            (Stage::Held, _) => HoldStage::Held,
            (Stage::Moving, _) => HoldStage::Moving,
        };
        let place = self.queue.iter().position(|waiting| waiting.tenant == *tenant);
        let waiting = place.and_then(|place| self.queue.get(place));
        Some(HoldRow {
            stage,
            means: means_of(view.want),
            by_uid: uid(view.by),
            reason: view.reason.clone(),
            since: now.wall_at(view.held_since.unwrap_or(view.since)),
            held_seconds: view.held.as_secs_f64(),
            place: place.and_then(|place| u32::try_from(place + 1).ok()),
            behind: waiting.and_then(|waiting| waiting.behind.as_ref()).map(|behind| self.name(behind)),
            expected_at: waiting.and_then(|waiting| waiting.expected_at).map(|at: Mono| now.wall_at(at)),
        })
    }

    fn name(&self, tenant: &TenantKey) -> String {
        self.names.get(tenant).cloned().unwrap_or_else(|| tenant.to_string())
    }
}

fn uid(by: By) -> Option<u32> {
    match by {
        By::Policy => None,
        By::Person { uid } => Some(uid),
    }
}
