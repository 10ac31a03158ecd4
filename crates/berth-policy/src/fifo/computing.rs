//! Who computes in a view, by the best evidence there is.

use std::collections::BTreeMap;

use berth_model::{GpuIndex, Mono, Percent, TenantKey};

use crate::settings::FifoSettings;
use crate::view::{Activity, Tenant, View};

/// Who computes in a view, and since when.
pub(super) struct Computing<'a> {
    since: BTreeMap<&'a TenantKey, Mono>,
    on: BTreeMap<GpuIndex, u32>,
}

impl<'a> Computing<'a> {
    pub fn of(view: &'a View, settings: &FifoSettings, now: Mono) -> Self {
        let mut found = Self { since: BTreeMap::new(), on: BTreeMap::new() };
        for tenant in &view.tenants {
            if let Some(since) = computes_since(tenant, view, settings, now) {
                found.since.insert(&tenant.key, since);
                tenant.gpus.iter().for_each(|gpu| *found.on.entry(*gpu).or_default() += 1);
            }
        }
        found
    }

    pub fn since(&self, tenant: &Tenant) -> Option<Mono> {
        self.since.get(&tenant.key).copied()
    }

    /// The share of a GPU a tenant is taken to have.
    pub fn rate(&self, tenant: &Tenant, view: &View) -> f64 {
        if self.since(tenant).is_none() {
            return 0.0;
        }
        if tenant.activity == Activity::Unseen {
            let core = tenant.core.or_else(|| busiest_core(tenant, view));
            return core.map_or(1.0, fraction);
        }
        let crowd = tenant.gpus.iter().filter_map(|gpu| self.on.get(gpu)).max();
        1.0 / f64::from(crowd.copied().unwrap_or(1).max(1))
    }
}

/// Since when a tenant computes, by the best evidence. The driver's averages are old: they decide only where they have
/// had the time to notice, or where nothing else is known.
fn computes_since(tenant: &Tenant, view: &View, settings: &FifoSettings, now: Mono) -> Option<Mono> {
    let core = tenant.core.or_else(|| busiest_core(tenant, view));
    match tenant.activity {
        Activity::Computing { since } => {
            let is_told = now.since(since) > settings.stale.get();
            let is_idle = is_told && core.is_some_and(|core| core <= settings.idle_use);
            (!is_idle).then_some(since)
        }
        // Its own share only: the GPU's says nothing about whose it is.
        Activity::Quiet { since } => {
            let is_told = now.since(since) > settings.stale.get();
            (is_told && tenant.core.is_some_and(|core| core > settings.light_use)).then_some(since)
        }
        Activity::Unseen => core.is_some_and(|core| core > settings.light_use).then_some(tenant.arrived),
        Activity::Loading | Activity::AtLaunch { .. } | Activity::AtAllocation { .. } => None,
    }
}

fn busiest_core(tenant: &Tenant, view: &View) -> Option<Percent> {
    tenant.gpus.iter().filter_map(|index| view.gpu(*index)?.core).max()
}

pub(super) fn fraction(percent: Percent) -> f64 {
    f64::from(percent.get()) / 100.0
}
