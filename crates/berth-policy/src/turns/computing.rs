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
        is_told_since(tenant, view, since + settings.stale.get())
            && busiest_core(tenant, view).is_some_and(|core| core <= settings.idle_use)
    };
    match tenant.activity {
        Activity::Computing { since } => (!is_idle_since(since)).then_some(since),
        Activity::AtLaunch { since, computing_since } => {
            let is_drained = is_idle_since(since) || book.get(&tenant.key).is_none_or(|record| record.is_drained(now));
            computing_since.filter(|_| !is_drained)
        }
        // Its own share only: the GPU's says nothing about whose it is. It may be seconds old, and of a burst that is over.
        Activity::Quiet { since } => {
            let is_told = is_told_since(tenant, view, since + settings.share_stale.get());
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

/// All its GPUs were looked at later than this.
fn is_told_since(tenant: &Tenant, view: &View, told: Mono) -> bool {
    tenant.gpus.iter().all(|index| view.gpu(*index).and_then(|gpu| gpu.core_at).is_some_and(|at| at > told))
}

fn busiest_core(tenant: &Tenant, view: &View) -> Option<Percent> {
    tenant.gpus.iter().filter_map(|index| view.gpu(*index)?.core).max()
}

pub(crate) fn fraction(percent: Percent) -> f64 {
    f64::from(percent.get()) / 100.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::view::{Gpu, Stand};

    /// Quiet since the beginning, with a share of 90 % by the driver when it was asked then.
    fn computes_when_asked_after(millis: u64) -> bool {
        let now = Mono(millis * 1_000_000);
        let share = Percent::checked(90);
        let tenant = Tenant {
            key: TenantKey::Cgroup { path: "/a".into() },
            name: "a".into(),
            owner: None,
            gpus: BTreeSet::from([GpuIndex(0)]),
            gang: None,
            arrived: Mono(0),
            activity: Activity::Quiet { since: Mono(0) },
            memory: None,
            needs: None,
            core: share,
            stand: Stand::Free,
            means: BTreeSet::new(),
            past: None,
            work: None,
        };
        let gpu = Gpu { index: GpuIndex(0), memory_total: None, memory_used: None, core: share, core_at: Some(now) };
        let view = View { gpus: vec![gpu], tenants: vec![tenant] };
        let computing = Computing::of(&view, &Book::default(), &FifoSettings::default(), now);
        computing.since(&view.tenants[0]).is_some()
    }

    #[test]
    fn a_share_that_may_be_of_a_burst_that_is_over_does_not_make_a_quiet_tenant_a_busy_one() {
        assert!(!computes_when_asked_after(700));
        assert!(!computes_when_asked_after(4_900), "read three seconds ago, over a second and a half before");
        assert!(computes_when_asked_after(5_100), "what the driver has seen ever since is more than the probes did");
    }
}
