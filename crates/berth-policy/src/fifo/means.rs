//! How a tenant would be held, and whether that pays.
//!
//! The gate stops a tenant where it costs least, so it can be set at any time. Lock and freeze stand a tenant still
//! wherever it is. Before its data is loaded that delays the making of its context, which need not wait for anyone; once
//! it is quiet, its output and its end. So they are used on a tenant that has loaded and not begun, and on one that computes.

use berth_model::Bytes;
use berth_model::hold::Means;

use super::book::{Book, Record};
use crate::settings::FifoSettings;
use crate::view::{Activity, Stand, Tenant};

/// The means to keep a tenant from computing now; `None` if none would do more good than harm.
pub(super) fn hold(tenant: &Tenant, book: &Book, settings: &FifoSettings) -> Option<Means> {
    if let Stand::Held { means, .. } = tenant.stand {
        return Some(means);
    }
    if tenant.means.contains(&Means::Gate) {
        return Some(Means::Gate);
    }
    let record = book.get(&tenant.key);
    if !stands_well(tenant, record, settings) {
        return None;
    }
    if tenant.means.contains(&Means::Lock) {
        return Some(Means::Lock);
    }
    (tenant.means.contains(&Means::Freeze) && is_large(tenant, record, settings)).then_some(Means::Freeze)
}

fn stands_well(tenant: &Tenant, record: Option<&Record>, settings: &FifoSettings) -> bool {
    match tenant.activity {
        Activity::Computing { .. } | Activity::AtLaunch { .. } => true,
        Activity::Quiet { .. } | Activity::AtAllocation { .. } => false,
        Activity::Loading => is_loaded(tenant, settings),
        Activity::Unseen => is_loaded(tenant, settings) || record.is_some_and(Record::has_launched),
    }
}

/// It has all the memory it will need, or at least more than a context takes.
fn is_loaded(tenant: &Tenant, settings: &FifoSettings) -> bool {
    let needs = tenant.needs.or_else(|| tenant.past?.peak_memory);
    // A tenth less: what was declared or seen before need not come out exactly.
    let enough = needs.map_or(Bytes::from_mib(settings.context_mib), |needs| Bytes(needs.0 - needs.0 / 10));
    tenant.memory.is_some_and(|memory| memory >= enough)
}

/// It computes for long in all: it did before, or has by now.
fn is_large(tenant: &Tenant, record: Option<&Record>, settings: &FifoSettings) -> bool {
    let pays = settings.freeze_pays.get().as_secs_f64();
    tenant.past.is_some_and(|past| past.active_seconds >= pays) || record.is_some_and(|record| record.used >= pays)
}
