//! What the level of kernels and holds have to know of each other.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::hold::{By, Freezer, Means, Stage, Want};
use berth_model::{Mono, TenantKey};

use super::Manager;

/// As whoever runs the daemon would: no policy lets go of it meanwhile.
const DAEMON: By = By::Person { uid: 0 };

impl Manager {
    /// Whether somebody keeps it off the GPU, or is about to.
    pub fn is_kept_off(&self, tenant: &TenantKey, now: Mono) -> bool {
        let view = self.keeper.view(tenant, now);
        view.is_some_and(|view| view.stage != Stage::Free || view.is_frozen_by_others)
    }

    /// Holds exactly these for what they do at the level of kernels, and lets go of those it held for it before. About whom a person has
    /// decided is left as it is.
    pub fn keep_off(&mut self, whom: &BTreeMap<TenantKey, String>, now: Mono) {
        let over: BTreeSet<TenantKey> = self.kept_off.extract_if(.., |tenant| !whom.contains_key(tenant)).collect();
        over.iter().for_each(|tenant| self.keeper.hand_back(tenant, now));
        for (tenant, reason) in whom {
            let by = self.keeper.view(tenant, now).map(|view| view.by);
            let can = self.guarded.is_so() && self.offered(tenant).contains(&Means::Freeze);
            if !can || self.kept_off.contains(tenant) || matches!(by, Some(By::Person { .. })) {
                continue;
            }
            match self.keeper.want(tenant, Want::Frozen(Freezer::Cgroup), DAEMON, reason, now) {
                Ok(()) => drop(self.kept_off.insert(tenant.clone())),
                Err(refused) => tracing::warn!(%tenant, %refused, "it keeps others stopped, and cannot be held"),
            }
        }
    }
}
