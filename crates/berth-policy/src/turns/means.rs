//! How a tenant would be held, and whether that pays.
//!
//! The gate stops a tenant where it costs least, so it can be set at any time. Lock and freeze stand a tenant still
//! wherever it is. Before its data is loaded that delays the making of its context, which need not wait for anyone; once
//! it is quiet, its output and its end; and a kernel that was begun runs on. So they are used only on those of whom it is known
//! that they compute for long, and of these on one that has loaded and not begun, and on one that computes burst
//! after burst. Of whom that is not known is left alone: what a hold gives is a share of its computing, what it costs is
//! the rest of its input.

use berth_model::Bytes;
use berth_model::hold::Means;

use super::book::{Book, Record};
use crate::settings::FifoSettings;
use crate::view::{Activity, Stand, Tenant};

/// A freeze stops a copy half way. It pays for those whose stay is all computing but for little.
const FREEZE_DUTY: f64 = 0.9;

/// The means to keep a tenant from computing now; `None` if none would do more good than harm.
pub(super) fn hold(tenant: &Tenant, book: &Book, settings: &FifoSettings) -> Option<Means> {
    if let Stand::Held { means, .. } = tenant.stand {
        return Some(means);
    }
    if tenant.means.contains(&Means::Gate) {
        return Some(Means::Gate);
    }
    let record = book.get(&tenant.key);
    let means = [Means::Lock, Means::Freeze].into_iter().find(|means| tenant.means.contains(means))?;
    stands_well(tenant, means, record, settings).then_some(means)
}

fn stands_well(tenant: &Tenant, means: Means, record: Option<&Record>, settings: &FifoSettings) -> bool {
    let used = record.map_or(0.0, |record| record.used);
    let pays = settings.still_pays.get().as_secs_f64();
    let was_large = tenant.past.is_some_and(|past| {
        let is_dense = means == Means::Lock || past.duty >= FREEZE_DUTY;
        is_dense && past.active_seconds >= pays
    });
    let has_launched = record.is_some_and(Record::has_launched);
    match tenant.activity {
        Activity::AtLaunch { .. } => true,
        Activity::Quiet { .. } | Activity::AtAllocation { .. } => false,
        Activity::Opening { .. } | Activity::AtContext { .. } => false,
        Activity::Computing { .. } => record.is_some_and(Record::goes_on) && (was_large || used >= pays),
        // Its bursts are not seen: what would be stopped may as well be the output of its only one.
        Activity::Unseen if has_launched => false,
        Activity::Loading | Activity::Unseen => was_large && is_loaded(tenant, settings),
    }
}

/// It has all the memory it will need, or at least more than a context takes.
fn is_loaded(tenant: &Tenant, settings: &FifoSettings) -> bool {
    let needs = tenant.needs.or_else(|| tenant.past?.peak_memory);
    // A tenth less: what was declared or seen before need not come out exactly.
    let enough = needs.map_or(Bytes::from_mib(settings.context_mib), |needs| Bytes(needs.0 - needs.0 / 10));
    tenant.memory.is_some_and(|memory| memory >= enough)
}
