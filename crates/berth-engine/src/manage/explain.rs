//! Why a tenant runs or does not, from everything the manager knows.

use berth_model::control::Explanation;
use berth_model::{Anchor, GpuIndex, Snapshot, TaskRow, TaskState, TenantKey};
use berth_policy::Activity;

use super::{Manager, Terms};

impl Manager {
    /// `tenant` has a row in the snapshot.
    pub(super) fn explain(&self, tenant: &TenantKey, snapshot: &Snapshot, now: &Anchor) -> Explanation {
        let rows: Vec<&TaskRow> = snapshot.tasks.iter().filter(|row| row.tenant == *tenant).collect();
        let gpus: Vec<GpuIndex> = rows.iter().filter_map(|row| row.gpu_index).collect();
        let view = self.keeper.view(tenant, now.mono);
        Explanation {
            tenant: tenant.clone(),
            name: self.name(tenant),
            owner: rows.iter().find_map(|row| row.owner.clone()),
            policy: self.policy_name,
            dry_run: self.rehearsal.is_some(),
            computing_there: self.computing_beside(tenant, &gpus, snapshot),
            gang_with: self.gang_with(tenant, snapshot),
            awaited_by: self.awaited_by(tenant),
            gpus,
            state: rows
                .iter()
                .map(|row| self.state(row, now.mono))
                .max_by_key(|state| rank(*state))
                .unwrap_or(TaskState::Opening),
            task_seconds: rows.iter().find_map(|row| row.task_seconds),
            held_seconds: view.as_ref().map_or(0.0, |view| view.held.as_secs_f64()),
            is_paused_by_others: view.as_ref().is_some_and(|view| view.is_frozen_by_others),
            left_alone_until: view.and_then(|view| view.left_alone_until).map(|until| now.wall_at(until)),
            hold: self.hold_row(tenant, now),
            means: self.offered(tenant).into_iter().collect(),
            before: rows.first().and_then(|row| self.annals.before(row)),
            history: self.annals.holds_of(tenant),
        }
    }

    fn awaited_by(&self, tenant: &TenantKey) -> Vec<String> {
        let behind = self.queue.iter().filter(|waiting| waiting.behind.as_ref() == Some(tenant));
        behind.map(|waiting| self.name(&waiting.tenant)).collect()
    }

    fn gang_with(&self, tenant: &TenantKey, snapshot: &Snapshot) -> Vec<String> {
        let owner = |tenant: &TenantKey| snapshot.tasks.iter().find(|row| row.tenant == *tenant)?.owner.as_ref();
        let Some(gang) = self.terms.get(tenant).and_then(|terms| terms.gang.as_ref()) else { return Vec::new() };
        let is_member = |other: &TenantKey, terms: &Terms| {
            other != tenant && terms.gang.as_ref() == Some(gang) && owner(other) == owner(tenant)
        };
        self.terms.iter().filter(|(other, terms)| is_member(other, terms)).map(|(other, _)| self.name(other)).collect()
    }

    fn computing_beside(&self, tenant: &TenantKey, gpus: &[GpuIndex], snapshot: &Snapshot) -> Vec<String> {
        let is_beside = |row: &&TaskRow| {
            row.tenant != *tenant && row.gpu_index.is_some_and(|gpu| gpus.is_empty() || gpus.contains(&gpu))
        };
        let computes = |row: &&TaskRow| match self.activities.activity_of(&row.tenant) {
            Some(Activity::Unseen) | None => row.state == TaskState::Computing,
            Some(activity) => matches!(activity, Activity::Computing { .. }),
        };
        let mut names: Vec<String> =
            snapshot.tasks.iter().filter(is_beside).filter(computes).map(|row| row.container_name.clone()).collect();
        names.dedup();
        names
    }
}

/// Which of its rows speaks for a tenant on several GPUs.
fn rank(state: TaskState) -> u8 {
    match state {
        TaskState::Lost => 0,
        TaskState::Opening => 1,
        TaskState::Idle => 2,
        TaskState::Loaded => 3,
        TaskState::Computing => 4,
    }
}
