//! What a tenant does, as far as its deadlines are concerned.

use berth_model::deadline::Pulse;
use berth_model::{Mono, TaskRow, TenantKey};
use berth_policy::Activity;

use super::Manager;
use crate::deadlines::by_looks;

impl Manager {
    /// By its calls where they are watched, else by looks.
    pub fn pulse(&self, row: &TaskRow, now: Mono) -> Pulse {
        let (tenant, activity) = (&row.tenant, self.activities.activity_of(&row.tenant));
        let at_launch = match activity {
            Some(Activity::AtLaunch { since, .. }) => Some(since),
            _ => None,
        };
        let held_since = self.keeper.view(tenant, now).and_then(|view| view.held_since);
        if held_since.is_some() || at_launch.is_some() {
            return Pulse::Waits { since: at_launch, behind: self.behind(tenant) };
        }
        let is_watched = self.activities.processes_of(tenant).is_subset(&self.watched);
        match activity {
            Some(Activity::AtContext { .. } | Activity::AtAllocation { .. }) => {
                Pulse::Waits { since: None, behind: self.behind(tenant) }
            }
            Some(Activity::Opening { .. } | Activity::Loading) => Pulse::Loads,
            Some(Activity::Computing { since }) if is_watched => Pulse::Computes { since, crowd: self.crowd(row) },
            Some(Activity::Quiet { since }) if is_watched => Pulse::Quiet { since },
            _ => by_looks(row, self.rules.monitor.idle_after.get(), now),
        }
    }

    /// For whom it waits, as people call it.
    fn behind(&self, tenant: &TenantKey) -> Option<String> {
        let waiting = self.queue.iter().find(|waiting| waiting.tenant == *tenant)?;
        waiting.behind.as_ref().map(|behind| self.name(behind))
    }

    /// How many compute on its GPUs, with it.
    fn crowd(&self, row: &TaskRow) -> u32 {
        let own = self.gpus.get(&row.tenant);
        let is_beside =
            |tenant: &TenantKey| own.zip(self.gpus.get(tenant)).is_none_or(|(own, its)| !own.is_disjoint(its));
        let computes =
            |tenant: &TenantKey| matches!(self.activities.activity_of(tenant), Some(Activity::Computing { .. }));
        let others =
            self.places.keys().filter(|tenant| **tenant != row.tenant && computes(tenant) && is_beside(tenant));
        u32::try_from(others.count() + 1).unwrap_or(u32::MAX)
    }
}
