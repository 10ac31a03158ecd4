//! Who may allocate: tenants that stand at an allocation which does not fit wait in order of arrival.
//!
//! The first in line is served first, even where a later one would fit: else small ones could keep a large one waiting
//! for ever. Where those that have the memory all wait for more themselves, the youngest gives way: parked, or let through
//! to fail. Idle tenants are parked to make room where that is possible. Members of a gang never are: collectives do not survive it.

use std::collections::BTreeMap;

use berth_model::hold::Means;
use berth_model::{Bytes, GpuIndex, Mono, TenantKey};

use super::Wish;
use super::book::{Book, Promise};
use crate::Reason;
use crate::settings::FifoSettings;
use crate::view::{Activity, Stand, Tenant, View};

/// One that wants memory.
struct Wanting<'a> {
    tenant: &'a Tenant,
    since: Mono,
    bytes: Bytes,
    is_parked: bool,
}

struct Ledger<'r, 'a> {
    view: &'a View,
    settings: &'r FifoSettings,
    now: Mono,
    free: BTreeMap<GpuIndex, Bytes>,
}

/// What memory has to say about each tenant that wants some or could give some; others are not named.
pub(super) fn wishes<'a>(
    view: &'a View,
    book: &mut Book,
    settings: &FifoSettings,
    now: Mono,
) -> BTreeMap<&'a TenantKey, Wish> {
    let line = line(view, book, settings, now);
    let mut ledger = Ledger { view, settings, now, free: free(view, book, settings, now) };
    let mut wishes: BTreeMap<_, _> = line.iter().map(|wanting| (&wanting.tenant.key, Wish::Keep)).collect();
    let mut blocked: Vec<GpuIndex> = Vec::new();
    for wanting in &line {
        let gpus = gpus(wanting.tenant, view);
        if gpus.iter().any(|gpu| blocked.contains(gpu)) {
            continue;
        }
        match ledger.judge(wanting) {
            Some(reason) => {
                ledger.promise(wanting, book);
                wishes.insert(&wanting.tenant.key, Wish::Free(reason));
            }
            None => {
                blocked.extend(gpus);
                wishes.extend(ledger.yielder(wanting, &line, book));
            }
        }
    }
    wishes
}

pub(super) fn again_at(view: &View, settings: &FifoSettings, now: Mono) -> Vec<Mono> {
    let bound = |tenant: &Tenant| match tenant.activity {
        Activity::AtAllocation { since, .. } => Some(since + settings.longest_memory_wait.get()),
        _ => None,
    };
    view.tenants.iter().filter_map(bound).filter(|at| *at > now).collect()
}

/// Those that want memory: parked ones come after those at an allocation, unless they have waited too long.
fn line<'a>(view: &'a View, book: &Book, settings: &FifoSettings, now: Mono) -> Vec<Wanting<'a>> {
    let mut line: Vec<_> = view.tenants.iter().filter_map(|tenant| wanting(tenant, book)).collect();
    line.sort_by_key(|wanting| {
        let is_late = now.since(wanting.since) >= settings.longest_wait.get();
        (wanting.is_parked && !is_late, wanting.tenant.arrived, &wanting.tenant.key)
    });
    line
}

fn wanting<'a>(tenant: &'a Tenant, book: &Book) -> Option<Wanting<'a>> {
    if tenant.means.is_empty() || tenant.stand == Stand::ByPerson {
        return None;
    }
    let has = tenant.memory.unwrap_or_default();
    match (tenant.activity, tenant.stand) {
        (_, Stand::Held { means: Means::Park, since }) => {
            let had = book.get(&tenant.key).and_then(|record| record.parked);
            let bytes = had.or_else(|| tenant.past?.peak_memory).or(tenant.needs).unwrap_or_default();
            Some(Wanting { tenant, since, bytes, is_parked: true })
        }
        (Activity::AtAllocation { since, bytes }, _) => {
            let declared = tenant.needs.map_or(0, |needs| needs.0.saturating_sub(has.0));
            Some(Wanting { tenant, since, bytes: bytes.max(Bytes(declared)), is_parked: false })
        }
        _ => None,
    }
}

/// Memory that is left, without what was promised and perhaps not taken yet. A GPU that does not tell is not named.
fn free(view: &View, book: &Book, settings: &FifoSettings, now: Mono) -> BTreeMap<GpuIndex, Bytes> {
    let promised = |index: GpuIndex| -> Bytes {
        let on = view.tenants.iter().filter(|tenant| gpus(tenant, view).contains(&index));
        on.filter_map(|tenant| {
            let promise = book.get(&tenant.key)?.promise?;
            let is_taken = tenant.memory.is_some_and(|memory| memory >= promise.had + promise.bytes);
            (!is_taken && now.since(promise.at) < settings.settle.get()).then_some(promise.bytes)
        })
        .sum()
    };
    let left = |free: Bytes, index| Bytes(free.0.saturating_sub(promised(index).0));
    view.gpus.iter().filter_map(|gpu| Some((gpu.index, left(gpu.memory_free()?, gpu.index)))).collect()
}

fn gpus(tenant: &Tenant, view: &View) -> Vec<GpuIndex> {
    if tenant.gpus.is_empty() {
        view.gpus.iter().map(|gpu| gpu.index).collect()
    } else {
        tenant.gpus.iter().copied().collect()
    }
}

impl<'a> Ledger<'_, 'a> {
    /// Why one may go on; `None` if it has to wait.
    fn judge(&self, wanting: &Wanting<'_>) -> Option<Reason> {
        let wanted = wanting.bytes;
        let tight = self.tightest(wanting.tenant);
        let Some((gpu, free)) = tight else { return Some(Reason::NoContention) };
        if wanted <= free {
            return Some(Reason::MemoryFits { gpu });
        }
        if let Some(total) = self.view.gpu(gpu).and_then(|gpu| gpu.memory_total).filter(|total| wanted > *total) {
            return Some(Reason::NeverFits { gpu, wanted, total });
        }
        let waited = self.now.since(wanting.since);
        let is_late = !wanting.is_parked && waited >= self.settings.longest_memory_wait.get();
        is_late.then_some(Reason::NobodyYields { gpu, wanted, waited })
    }

    /// Of a tenant's GPUs the one with least memory left.
    fn tightest(&self, tenant: &Tenant) -> Option<(GpuIndex, Bytes)> {
        let left = gpus(tenant, self.view).into_iter().filter_map(|gpu| Some((gpu, *self.free.get(&gpu)?)));
        left.min_by_key(|(_, free)| *free)
    }

    fn promise(&mut self, wanting: &Wanting<'_>, book: &mut Book) {
        for gpu in gpus(wanting.tenant, self.view) {
            if let Some(free) = self.free.get_mut(&gpu) {
                *free = Bytes(free.0.saturating_sub(wanting.bytes.0));
            }
        }
        let had = wanting.tenant.memory.unwrap_or_default();
        let promise = Promise { bytes: wanting.bytes, had, at: self.now };
        book.record(&wanting.tenant.key).promise = Some(promise);
    }

    /// Whoever gives way to the first in line.
    fn yielder(&self, first: &Wanting<'a>, line: &[Wanting<'a>], book: &mut Book) -> Option<(&'a TenantKey, Wish)> {
        let (gpu, _) = self.tightest(first.tenant)?;
        let holders: Vec<&Tenant> = self.holders(gpu).filter(|tenant| tenant.key != first.tenant.key).collect();
        if let Some(idle) = holders.iter().find(|tenant| self.is_idle(tenant) && can_park(tenant)) {
            return Some(park(idle, gpu, first, book));
        }
        let is_stuck = |tenant: &&Tenant| line.iter().any(|other| other.tenant.key == tenant.key && !other.is_parked);
        if first.is_parked || !holders.iter().all(is_stuck) || holders.iter().any(|tenant| is_moving(tenant)) {
            return None;
        }
        if let Some(younger) = holders.iter().rev().find(|tenant| can_park(tenant)) {
            return Some(park(younger, gpu, first, book));
        }
        let last = holders.last().copied().unwrap_or(first.tenant);
        let last = line.iter().find(|wanting| wanting.tenant.key == last.key)?;
        let (wanted, waited) = (last.bytes, self.now.since(last.since));
        Some((&last.tenant.key, Wish::Free(Reason::NobodyYields { gpu, wanted, waited })))
    }

    /// Those that have memory on a GPU, in order of arrival.
    fn holders(&self, gpu: GpuIndex) -> impl Iterator<Item = &'a Tenant> {
        let has = |tenant: &&Tenant| tenant.memory.is_some_and(|memory| memory.0 > 0);
        let is_parked = |tenant: &&Tenant| matches!(tenant.stand, Stand::Held { means: Means::Park, .. });
        let all = super::order::by_arrival(self.view).into_iter();
        all.filter(move |tenant| tenant.gpus.contains(&gpu) && has(tenant) && !is_parked(tenant))
    }

    fn is_idle(&self, tenant: &Tenant) -> bool {
        matches!(tenant.activity, Activity::Quiet { since } if self.now.since(since) >= self.settings.idle.get())
    }
}

fn is_moving(tenant: &Tenant) -> bool {
    matches!(tenant.stand, Stand::Moving { .. })
}

fn can_park(tenant: &Tenant) -> bool {
    tenant.means.contains(&Means::Park) && tenant.gang.is_none() && tenant.stand != Stand::ByPerson
}

fn park<'a>(tenant: &'a Tenant, gpu: GpuIndex, first: &Wanting<'_>, book: &mut Book) -> (&'a TenantKey, Wish) {
    book.record(&tenant.key).parked = tenant.memory;
    let who = first.tenant.name.clone();
    (&tenant.key, Wish::Hold(Means::Park, Reason::MakesRoom { gpu, who }))
}
