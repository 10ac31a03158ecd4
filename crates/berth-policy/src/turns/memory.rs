//! Who may allocate: tenants that stand at an allocation which does not fit wait in order of arrival.
//!
//! The first in line is served first, even where a later one would fit: else small ones could keep a large one waiting
//! for ever. Where those that have the memory all wait for more themselves, the youngest gives way: parked, or let through
//! to fail. Idle tenants are parked to make room where that is possible. Members of a gang never are: collectives do not survive it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::hold::Means;
use berth_model::{Bytes, GpuIndex, Mono, TenantKey};

use super::Wish;
use super::book::{Book, Promise, Record};
use crate::Reason;
use crate::settings::FifoSettings;
use crate::view::{Activity, Gpu, Stand, Tenant, View};

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
    /// Where someone goes on whose memory has not been seen to change yet: what is known of that GPU is old.
    unsettled: BTreeSet<GpuIndex>,
}

/// What memory has to say about each tenant that wants some or could give some; others are not named.
pub(super) fn wishes<'a>(
    view: &'a View,
    book: &mut Book,
    settings: &FifoSettings,
    now: Mono,
) -> BTreeMap<&'a TenantKey, Wish> {
    let line = line(view, book, settings, now);
    let mut ledger = Ledger::new(view, &line, book, settings, now);
    let mut wishes: BTreeMap<_, _> = line.iter().map(|wanting| (&wanting.tenant.key, Wish::Keep)).collect();
    let mut blocked: Vec<GpuIndex> = Vec::new();
    for wanting in &line {
        let key = &wanting.tenant.key;
        if let Some(reason) = ledger.hopeless(wanting) {
            wishes.insert(key, Wish::Free(reason));
            continue;
        }
        let gpus = gpus(wanting.tenant, view);
        if gpus.iter().any(|gpu| blocked.contains(gpu)) {
            continue;
        }
        if ledger.came_back(wanting, book) {
            blocked.extend(gpus);
            continue;
        }
        if let Some(reason) = ledger.fits(wanting) {
            ledger.promise(wanting, book);
            wishes.insert(key, Wish::Free(reason));
        } else {
            let yielder = ledger.yielder(wanting, &line, book);
            // One that is parked and can be helped by nobody must not keep the others from ending.
            let is_helpless = wanting.is_parked && yielder.is_none() && ledger.all_stuck(wanting, &line);
            blocked.extend(gpus.into_iter().filter(|_| !is_helpless));
            wishes.extend(yielder);
        }
    }
    wishes
}

pub(super) fn again_at(view: &View, book: &Book, settings: &FifoSettings, now: Mono) -> Vec<Mono> {
    let promises = view.tenants.iter().filter_map(|tenant| book.get(&tenant.key)?.promise);
    let changes = promises.map(|promise| promise.at).chain(book.left_at).map(|at| at + settings.settle.get());
    let bounds = [settings.settle, settings.longest_memory_wait];
    let since = view.tenants.iter().filter_map(|tenant| match (tenant.activity, tenant.stand) {
        (_, Stand::Held { means: Means::Park, since }) | (Activity::AtAllocation { since, .. }, _) => Some(since),
        _ => None,
    });
    since.flat_map(|since| bounds.map(|bound| since + bound.get())).chain(changes).filter(|at| *at > now).collect()
}

/// Those that want memory: parked ones come after those at an allocation, unless they have waited too long.
fn line<'a>(view: &'a View, book: &Book, settings: &FifoSettings, now: Mono) -> Vec<Wanting<'a>> {
    let mut line: Vec<_> = view.tenants.iter().filter_map(|tenant| wanting(tenant, view, book)).collect();
    line.sort_by_key(|wanting| {
        let is_late = now.since(wanting.since) >= settings.longest_wait.get();
        (wanting.is_parked && !is_late, wanting.tenant.arrived, &wanting.tenant.key)
    });
    line
}

fn wanting<'a>(tenant: &'a Tenant, view: &View, book: &Book) -> Option<Wanting<'a>> {
    // One that is moving has been decided about.
    if tenant.means.is_empty() || matches!(tenant.stand, Stand::ByPerson | Stand::Moving { .. }) {
        return None;
    }
    let has = tenant.memory.unwrap_or_default();
    let most =
        gpus(tenant, view).into_iter().filter_map(|gpu| view.gpu(gpu)?.memory_total).min().map_or(0, |most| most.0);
    match (tenant.activity, tenant.stand) {
        (_, Stand::Held { means: Means::Park, since }) => {
            let had = book.get(&tenant.key).and_then(|record| record.parked);
            let bytes = had.or_else(|| tenant.past?.peak_memory).or(tenant.needs).unwrap_or_default();
            // It goes on with what it was asking for.
            let asked = if let Activity::AtAllocation { bytes, .. } = tenant.activity { bytes } else { Bytes(0) };
            let bytes = bytes + asked;
            Some(Wanting { tenant, since, bytes, is_parked: true })
        }
        (Activity::AtAllocation { since, bytes }, _) => {
            let declared = tenant.needs.map_or(0, |needs| needs.0.saturating_sub(has.0));
            // What no GPU could give was declared wrongly; only what it really asks for can be waited for.
            let declared = if declared > most { 0 } else { declared };
            Some(Wanting { tenant, since, bytes: bytes.max(Bytes(declared)), is_parked: false })
        }
        _ => None,
    }
}

/// What was promised to those who have gone on and perhaps not taken it yet, by GPU.
fn promised(
    view: &View,
    line: &[Wanting<'_>],
    book: &Book,
    settings: &FifoSettings,
    now: Mono,
) -> BTreeMap<GpuIndex, Bytes> {
    let mut promised: BTreeMap<GpuIndex, Bytes> = BTreeMap::new();
    let has_gone_on = |tenant: &&Tenant| !line.iter().any(|wanting| wanting.tenant.key == tenant.key);
    for tenant in view.tenants.iter().filter(has_gone_on) {
        let Some(promise) = book.get(&tenant.key).and_then(|record| record.promise) else { continue };
        let is_taken = tenant.memory.is_some_and(|memory| memory >= promise.had + promise.bytes);
        let is_recent = is_moving(tenant) || now.since(promise.at) < settings.settle.get();
        if !is_taken && is_recent {
            for gpu in gpus(tenant, view) {
                let sum = promised.entry(gpu).or_default();
                *sum = *sum + promise.bytes;
            }
        }
    }
    promised
}

/// Where a tenant is, or may come to be.
pub(super) fn gpus(tenant: &Tenant, view: &View) -> Vec<GpuIndex> {
    if tenant.gpus.is_empty() {
        view.gpus.iter().map(|gpu| gpu.index).collect()
    } else {
        tenant.gpus.iter().copied().collect()
    }
}

impl<'r, 'a> Ledger<'r, 'a> {
    fn new(view: &'a View, line: &[Wanting<'_>], book: &Book, settings: &'r FifoSettings, now: Mono) -> Self {
        let promised = promised(view, line, book, settings, now);
        let left = |gpu: &Gpu| {
            let promised = promised.get(&gpu.index).copied().unwrap_or_default();
            Some((gpu.index, Bytes(gpu.memory_free()?.0.saturating_sub(promised.0))))
        };
        // A GPU that does not tell is not named.
        let free = view.gpus.iter().filter_map(left).collect();
        Ledger { view, settings, now, free, unsettled: promised.into_keys().collect() }
    }

    /// Why waiting cannot help one that stands at an allocation.
    fn hopeless(&self, wanting: &Wanting<'_>) -> Option<Reason> {
        let Activity::AtAllocation { bytes: wanted, .. } = wanting.tenant.activity else { return None };
        if wanting.is_parked {
            return None;
        }
        let cards = gpus(wanting.tenant, self.view).into_iter().filter_map(|gpu| self.view.gpu(gpu));
        let too_small = |gpu: &Gpu| Some((gpu.index, gpu.memory_total.filter(|total| wanted > *total)?));
        if let Some((gpu, total)) = cards.into_iter().find_map(too_small) {
            return Some(Reason::NeverFits { gpu, wanted, total });
        }
        let (gpu, _) = self.tightest(wanting.tenant)?;
        let waited = self.waited(wanting);
        let is_late = waited >= self.settings.longest_memory_wait.get();
        is_late.then_some(Reason::NobodyYields { gpu, wanted, waited })
    }

    /// It was let go a moment ago and stands there again: what is known of the memory is too old to try once more.
    fn came_back(&self, wanting: &Wanting<'_>, book: &Book) -> bool {
        let promise = book.get(&wanting.tenant.key).and_then(|record| record.promise);
        promise.is_some_and(|promise| {
            let is_same_stand = wanting.since <= promise.at;
            is_same_stand && self.now > promise.at && self.now.since(promise.at) < self.settings.settle.get()
        })
    }

    /// Why there is room for one; `None` if there is none. Where the driver does not tell, nobody is kept waiting.
    fn fits(&self, wanting: &Wanting<'_>) -> Option<Reason> {
        let Some((gpu, free)) = self.tightest(wanting.tenant) else { return Some(Reason::NoContention) };
        (wanting.bytes <= free).then_some(Reason::MemoryFits { gpu })
    }

    fn waited(&self, wanting: &Wanting<'_>) -> Duration {
        self.now.since(wanting.since)
    }

    /// Of a tenant's GPUs the one with least memory left.
    fn tightest(&self, tenant: &Tenant) -> Option<(GpuIndex, Bytes)> {
        let left = gpus(tenant, self.view).into_iter().filter_map(|gpu| Some((gpu, *self.free.get(&gpu)?)));
        left.min_by_key(|(_, free)| *free)
    }

    fn promise(&mut self, wanting: &Wanting<'_>, book: &mut Book) {
        for gpu in gpus(wanting.tenant, self.view) {
            self.unsettled.insert(gpu);
            if let Some(free) = self.free.get_mut(&gpu) {
                *free = Bytes(free.0.saturating_sub(wanting.bytes.0));
            }
        }
        let had = wanting.tenant.memory.unwrap_or_default();
        let promise = Promise { bytes: wanting.bytes, had, at: self.now };
        book.record(&wanting.tenant.key).promise = Some(promise);
    }

    /// Whoever gives way to the first in line: one that is idle, or the youngest of those that all wait for each other.
    fn yielder(&self, first: &Wanting<'a>, line: &[Wanting<'a>], book: &mut Book) -> Option<(&'a TenantKey, Wish)> {
        let (gpu, _) = self.tightest(first.tenant)?;
        let holders: Vec<&Tenant> = self.holders(gpu).filter(|tenant| tenant.key != first.tenant.key).collect();
        // What is known is a moment old: nobody is moved or let fail for something that may be over already.
        let is_old = |at: Mono| self.now.since(at) >= self.settings.settle.get();
        let is_settled = is_old(first.since) && book.left_at.is_none_or(is_old) && !self.unsettled.contains(&gpu);
        if !is_settled || holders.iter().any(|tenant| is_moving(tenant)) {
            return None;
        }
        if let Some(idle) = holders.iter().find(|tenant| self.is_idle(tenant, book) && can_park(tenant)) {
            return Some(park(idle, gpu, first, book));
        }
        let all_stuck = self.all_stuck(first, line);
        let is_late = self.waited(first) >= self.settings.longest_memory_wait.get();
        if let Some(younger) = holders.iter().rev().find(|tenant| can_park(tenant) && (all_stuck || is_late)) {
            return Some(park(younger, gpu, first, book));
        }
        if !all_stuck || first.is_parked {
            return None;
        }
        let last = holders.last().copied().unwrap_or(first.tenant);
        let last = line.iter().find(|wanting| wanting.tenant.key == last.key)?;
        let (wanted, waited) = (last.bytes, self.waited(last));
        Some((&last.tenant.key, Wish::Free(Reason::NobodyYields { gpu, wanted, waited })))
    }

    /// Whether all that have the memory one wants stand at an allocation themselves.
    fn all_stuck(&self, first: &Wanting<'_>, line: &[Wanting<'_>]) -> bool {
        let is_stuck = |tenant: &Tenant| line.iter().any(|other| other.tenant.key == tenant.key && !other.is_parked);
        self.tightest(first.tenant).is_some_and(|(gpu, _)| self.holders(gpu).all(is_stuck))
    }

    /// Those that have memory on a GPU, in order of arrival.
    fn holders(&self, gpu: GpuIndex) -> impl Iterator<Item = &'a Tenant> {
        let has = |tenant: &&Tenant| tenant.memory.is_some_and(|memory| memory.0 > 0);
        let is_parked = |tenant: &&Tenant| matches!(tenant.stand, Stand::Held { means: Means::Park, .. });
        let all = super::order::by_arrival(self.view).into_iter();
        all.filter(move |tenant| tenant.gpus.contains(&gpu) && has(tenant) && !is_parked(tenant))
    }

    /// It does not compute; or it has not begun to, and has had the same memory for so long that it loads nothing either.
    fn is_idle(&self, tenant: &Tenant, book: &Book) -> bool {
        let since = match tenant.activity {
            Activity::Quiet { since } => Some(since),
            Activity::Loading => book.get(&tenant.key).and_then(Record::memory_since),
            _ => None,
        };
        since.is_some_and(|since| self.now.since(since) >= self.settings.park_idle.get())
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
