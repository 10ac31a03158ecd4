//! Holds as everybody sees them: in the snapshot's rows and in the list of changes.

use berth_model::hold::{By, HoldChange, HoldView, Stage};
use berth_model::snapshot::{HoldRow, HoldStage, Management, QueueRow, StandsAt};
use berth_model::{Anchor, Change, Mono, Snapshot, TaskRow, TaskState, TenantKey};
use berth_policy::{Activity, Reason, Waiting};
use jiff::Timestamp;

use super::Manager;
use super::rehearsal::{Rehearsal, Rehearsed, Would};
use super::view::means_of;

impl Manager {
    /// Fills in what berth does to whom.
    pub fn show(&self, snapshot: &mut Snapshot, now: &Anchor) {
        for row in &mut snapshot.tasks {
            let held = self.keeper.view(&row.tenant, now.mono).map_or(0.0, |view| view.held.as_secs_f64());
            row.held_seconds = Some(held);
            row.hold = self.hold_row(&row.tenant, now);
            row.state = self.state(row, now.mono);
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

    pub fn rehearsed(&self, change: Rehearsed) -> Change {
        match change {
            Rehearsed::Held { tenant, means, reason, at } => {
                Change::TenantWouldBeHeld { name: self.name(&tenant), tenant, means, reason, at }
            }
            Rehearsed::Released { tenant, reason, at } => {
                Change::TenantWouldBeReleased { name: self.name(&tenant), tenant, reason, at }
            }
        }
    }

    /// What stands at a call does not compute, though its launch has been seen. Who is watched computes while its launches say
    /// so: where several share a GPU the driver's figures are rare, and late.
    pub(super) fn state(&self, row: &TaskRow, now: Mono) -> TaskState {
        let (state, activity) = (row.state, self.activities.activity_of(&row.tenant));
        if !matches!(state, TaskState::Loaded | TaskState::Computing | TaskState::Idle) {
            return state;
        }
        match activity {
            Some(Activity::AtLaunch { .. } | Activity::AtAllocation { .. }) if state != TaskState::Loaded => {
                if self.activities.has_launched(&row.tenant) { TaskState::Idle } else { TaskState::Loaded }
            }
            Some(Activity::Computing { .. }) if self.runs_watched(&row.tenant, now) => TaskState::Computing,
            Some(Activity::Quiet { since })
                if now.since(since) < self.rules.monitor.idle_after.get() && self.runs_watched(&row.tenant, now) =>
            {
                TaskState::Computing
            }
            _ => state,
        }
    }

    /// Nothing holds it, and it is known when it stops computing and begins again.
    fn runs_watched(&self, tenant: &TenantKey, now: Mono) -> bool {
        let is_held = self.keeper.view(tenant, now).is_some_and(|view| view.held_since.is_some());
        !is_held && self.is_watched(tenant)
    }

    fn management(&self, now: &Anchor) -> Management {
        let queue = self.queue.iter().map(|waiting| QueueRow {
            tenant: waiting.tenant.clone(),
            name: self.name(&waiting.tenant),
            behind: waiting.behind.as_ref().map(|behind| self.name(behind)),
            reason: self.hold_row(&waiting.tenant, now).map(|row| row.reason).unwrap_or_default(),
            since: now.wall_at(waiting.since),
            expected_at: waiting.expected_at.map(|at| now.wall_at(at)),
        });
        Management {
            policy: self.policy_name,
            dry_run: self.rehearsal.is_some(),
            means: self.offered_to_containers(),
            queue: queue.collect(),
            holds: self.annals.counters(),
            would_be_holds: self.rehearsal.as_ref().map(Rehearsal::counters).unwrap_or_default(),
        }
    }

    /// What is done to a tenant; else what would be in a dry run; else by which rule it never is.
    pub(super) fn hold_row(&self, tenant: &TenantKey, now: &Anchor) -> Option<HoldRow> {
        let view = self.keeper.view(tenant, now.mono);
        let done = view.and_then(|view| done(&view, now));
        let would = || Some(would(self.rehearsal.as_ref()?.of(tenant)?, now));
        let row = done.or_else(would).or_else(|| self.exempt(tenant, now))?;
        let stands_at = self.stands_at(tenant).filter(|_| row.stage == HoldStage::Held);
        Some(self.in_line(tenant, HoldRow { stands_at, ..row }, now))
    }

    fn stands_at(&self, tenant: &TenantKey) -> Option<StandsAt> {
        match self.activities.activity_of(tenant)? {
            Activity::AtLaunch { .. } if self.activities.has_launched(tenant) => Some(StandsAt::Launch),
            Activity::AtLaunch { .. } => Some(StandsAt::FirstLaunch),
            Activity::AtAllocation { bytes, .. } => Some(StandsAt::Allocation { bytes }),
            Activity::AtContext { .. } => Some(StandsAt::Context),
            Activity::Opening { .. } | Activity::Loading | Activity::Unseen => None,
            Activity::Computing { .. } | Activity::Quiet { .. } => None,
        }
    }

    fn exempt(&self, tenant: &TenantKey, now: &Anchor) -> Option<HoldRow> {
        let reason = self.terms.get(tenant)?.exempt.clone()?;
        let since = now.wall_at(self.activities.came(tenant).unwrap_or(now.mono));
        Some(HoldRow { reason, ..bare(HoldStage::Exempt, since) })
    }

    /// The row with its place in line.
    fn in_line(&self, tenant: &TenantKey, row: HoldRow, now: &Anchor) -> HoldRow {
        let line = self.line(tenant);
        let Some(place) = line.iter().position(|waiting| waiting.tenant == *tenant) else { return row };
        let behind = line[place].behind.as_ref();
        let is_for_a_turn =
            row.by_uid.is_none() && !matches!(row.stands_at, Some(StandsAt::Context | StandsAt::Allocation { .. }));
        let computes = behind.filter(|_| is_for_a_turn).and_then(|behind| self.computes_before(behind, tenant));
        HoldRow {
            place: u32::try_from(place + 1).ok(),
            places: u32::try_from(line.len()).ok(),
            behind: behind.map(|behind| self.name(behind)),
            expected_at: line[place].expected_at.map(|at| now.wall_at(at)),
            reason: computes.unwrap_or(row.reason),
            ..row
        }
    }

    /// A hold goes on when others come to compute than those it was decided for: who does now is what people want to know.
    fn computes_before(&self, behind: &TenantKey, tenant: &TenantKey) -> Option<String> {
        let computes = matches!(self.activities.activity_of(behind)?, Activity::Computing { .. });
        let gpu = *self.gpus.get(tenant)?.intersection(self.gpus.get(behind)?).next()?;
        computes.then(|| Reason::OtherComputes { gpu, who: self.name(behind) }.to_string())
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

/// `None` for one that is free and left to the policy.
fn done(view: &HoldView, now: &Anchor) -> Option<HoldRow> {
    let stage = match (view.stage, uid(view.by)) {
        (Stage::Free, None) => return None,
        (Stage::Free, Some(_)) => HoldStage::Exempt,
        (Stage::Armed, _) => HoldStage::Gated,
        (Stage::Held, _) => HoldStage::Held,
        (Stage::Moving, _) => HoldStage::Moving,
    };
    let since = now.wall_at(view.held_since.unwrap_or(view.since));
    Some(HoldRow {
        means: means_of(view.want),
        by_uid: uid(view.by),
        reason: view.reason.clone(),
        held_seconds: view.held.as_secs_f64(),
        until: view.left_alone_until.map(|until| now.wall_at(until)),
        ..bare(stage, since)
    })
}

fn would(would: &Would, now: &Anchor) -> HoldRow {
    let (stage, since) = match would.held_since {
        Some(since) => (HoldStage::WouldHold, since),
        None => (HoldStage::WouldGate, would.since),
    };
    HoldRow { means: Some(would.means), reason: would.reason.clone(), ..bare(stage, now.wall_at(since)) }
}

fn bare(stage: HoldStage, since: Timestamp) -> HoldRow {
    HoldRow {
        stage,
        means: None,
        by_uid: None,
        reason: String::new(),
        stands_at: None,
        since,
        held_seconds: 0.0,
        place: None,
        places: None,
        behind: None,
        expected_at: None,
        until: None,
    }
}

pub(super) fn uid(by: By) -> Option<u32> {
    match by {
        By::Policy => None,
        By::Person { uid } => Some(uid),
    }
}
