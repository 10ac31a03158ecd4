//! Who computes in a view, by the best evidence there is.

use std::collections::BTreeMap;

use berth_model::{GpuIndex, Mono, Percent, TenantKey};

use super::book::Book;
use crate::settings::FifoSettings;
use crate::view::{Activity, Tenant, View};

/// Who computes in a view, and since when.
pub(super) struct Computing<'a> {
    since: BTreeMap<&'a TenantKey, Mono>,
    on: BTreeMap<GpuIndex, u32>,
}

impl<'a> Computing<'a> {
    pub fn of(view: &'a View, book: &Book, settings: &FifoSettings, now: Mono) -> Self {
        let mut found = Self { since: BTreeMap::new(), on: BTreeMap::new() };
        for tenant in &view.tenants {
            if let Some(since) = computes_since(tenant, view, book, settings, now) {
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
///
/// A GPU that does nothing is one on which a tenant that launched is done; its own share, which the driver takes from
/// rarer samples, may read as nothing while it computes.
fn computes_since(tenant: &Tenant, view: &View, book: &Book, settings: &FifoSettings, now: Mono) -> Option<Mono> {
    let is_idle_since = |since: Mono| {
        is_told_since(tenant, view, since, settings)
            && busiest_core(tenant, view).is_some_and(|core| core <= settings.idle_use)
    };
    match tenant.activity {
        Activity::Computing { since } => (!is_idle_since(since)).then_some(since),
        Activity::AtLaunch { since, computing_since } => {
            let is_drained = is_idle_since(since) || book.get(&tenant.key).is_none_or(|record| record.is_drained(now));
            computing_since.filter(|_| !is_drained)
        }
        // Its own share only: the GPU's says nothing about whose it is.
        Activity::Quiet { since } => {
            let is_told = is_told_since(tenant, view, since, settings);
            (is_told && tenant.core.is_some_and(|core| core > settings.light_use)).then_some(since)
        }
        Activity::Unseen => {
            let core = tenant.core.or_else(|| busiest_core(tenant, view));
            core.is_some_and(|core| core > settings.light_use).then_some(tenant.arrived)
        }
        Activity::Opening { .. } | Activity::AtContext { .. } => None,
        Activity::Loading | Activity::AtAllocation { .. } => None,
    }
}

/// The averages of all its GPUs were taken late enough to speak of nothing before `since`.
fn is_told_since(tenant: &Tenant, view: &View, since: Mono, settings: &FifoSettings) -> bool {
    let told = since + settings.stale.get();
    tenant.gpus.iter().all(|index| view.gpu(*index).and_then(|gpu| gpu.core_at).is_some_and(|at| at > told))
}

fn busiest_core(tenant: &Tenant, view: &View) -> Option<Percent> {
    tenant.gpus.iter().filter_map(|index| view.gpu(*index)?.core).max()
}

pub(super) fn fraction(percent: Percent) -> f64 {
    f64::from(percent.get()) / 100.0
}
