//! Who may make its context: a few at a time, in order of arrival.
//!
//! The driver makes the contexts of all that ask at the same time side by side, piece by piece: of twenty, the first is ready
//! when the last one is, and until then the GPU has nothing to compute. A few at a time, the first computes while those
//! after it are still being made, and nothing is lost: the driver makes no more of them in a second if more ask. No more
//! than [`LEFT_ALONE`] that come together are left alone: too little is to be gained.
//!
//! Who waits stands before its first driver call of any length, with nothing on the GPU. It waits for others' contexts only, a
//! fraction of a second each; one that takes longer than [`MAKING`] is no longer waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::hold::Means;
use berth_model::{GpuIndex, Mono, TenantKey};

use super::Wish;
use super::book::{Book, Weight};
use super::memory::gpus;
use crate::Reason;
use crate::settings::FifoSettings;
use crate::view::{Activity, Stand, Tenant, View};

/// Who has opened the device and has no context after this long is not making one, or will take its time.
const MAKING: Duration = Duration::from_secs(2);
/// So many make their contexts at once before anyone waits.
const LEFT_ALONE: u32 = 5;

/// What contexts have to say about each tenant that waits to make its own, or goes on to; others are not named.
pub(super) fn wishes<'a>(
    view: &'a View,
    book: &mut Book,
    settings: &FifoSettings,
    now: Mono,
) -> BTreeMap<&'a TenantKey, Wish> {
    let mut wishes = BTreeMap::new();
    let mut making = making(view, book, now);
    let mut awaited: BTreeSet<GpuIndex> = BTreeSet::new();
    for tenant in super::order::by_arrival(view) {
        let Some(since) = opening_since(tenant) else {
            book.record(&tenant.key).let_in = None;
            continue;
        };
        if book.record(&tenant.key).let_in.is_none() {
            let gpus = gpus(tenant, view);
            let is_late = now.since(since) >= settings.longest_wait.get();
            let most = settings.contexts_at_once.max(if is_barred(tenant, book) { 0 } else { LEFT_ALONE });
            let count = gpus.iter().filter_map(|gpu| making.get(gpu)).max().copied().unwrap_or_default();
            let is_full = count >= most || gpus.iter().any(|gpu| awaited.contains(gpu));
            if is_full && !is_late && can_wait(tenant, book, settings) {
                wishes.insert(&tenant.key, Wish::Bar(Reason::OthersOpen { count }));
                awaited.extend(gpus);
                continue;
            }
            book.record(&tenant.key).let_in = Some(now);
            gpus.into_iter().for_each(|gpu| *making.entry(gpu).or_default() += 1);
        }
        if is_barred(tenant, book) {
            wishes.insert(&tenant.key, Wish::Free(Reason::ItsTurn));
        }
    }
    wishes
}

pub(super) fn again_at(view: &View, book: &Book) -> impl Iterator<Item = Mono> {
    let opening = view.tenants.iter().filter(|tenant| opening_since(tenant).is_some());
    opening.filter_map(|tenant| Some(book.get(&tenant.key)?.let_in? + MAKING))
}

/// How many make their context now, by GPU.
fn making(view: &View, book: &Book, now: Mono) -> BTreeMap<GpuIndex, u32> {
    let mut making = BTreeMap::new();
    for tenant in view.tenants.iter().filter(|tenant| opening_since(tenant).is_some()) {
        let let_in = book.get(&tenant.key).and_then(|record| record.let_in);
        if let_in.is_some_and(|at| now.since(at) < MAKING) {
            gpus(tenant, view).into_iter().for_each(|gpu| *making.entry(gpu).or_default() += 1);
        }
    }
    making
}

fn opening_since(tenant: &Tenant) -> Option<Mono> {
    match tenant.activity {
        Activity::Opening { since } | Activity::AtContext { since } => Some(since),
        _ => None,
    }
}

/// Light ones are never held, and members of a gang wait for each other.
fn can_wait(tenant: &Tenant, book: &Book, settings: &FifoSettings) -> bool {
    tenant.means.contains(&Means::Gate)
        && tenant.gang.is_none()
        && tenant.stand != Stand::ByPerson
        && book.weight(tenant, settings) != Weight::Light
}

/// It was told to wait before its context, and not yet to go on.
fn is_barred(tenant: &Tenant, book: &Book) -> bool {
    matches!(tenant.activity, Activity::AtContext { .. })
        || book.get(&tenant.key).is_some_and(|record| record.is_barred())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::fifo::Fifo;
    use crate::view::Gpu;
    use crate::{Action, Policy};

    const MS: u64 = 1_000_000;

    fn opening(number: u64) -> Tenant {
        Tenant {
            key: TenantKey::Cgroup { path: format!("/{number}") },
            name: format!("t{number}"),
            owner: None,
            gpus: BTreeSet::from([GpuIndex(0)]),
            gang: None,
            arrived: Mono(number),
            activity: Activity::Opening { since: Mono(number) },
            memory: None,
            needs: None,
            core: None,
            stand: Stand::Free,
            means: BTreeSet::from([Means::Gate]),
            past: None,
            work: None,
        }
    }

    /// A host on which what is decided happens at once, and contexts are made when the test says so.
    struct Host {
        policy: Fifo,
        view: View,
    }

    impl Host {
        fn new(tenants: u64) -> Host {
            let gpu = Gpu { index: GpuIndex(0), memory_total: None, memory_used: None, core: None, core_at: None };
            let policy = Fifo::new(FifoSettings { contexts_at_once: 2, ..FifoSettings::default() });
            Host { policy, view: View { gpus: vec![gpu], tenants: (1..=tenants).map(opening).collect() } }
        }

        /// Who may make its context by now, by number.
        fn let_in(&mut self, at_ms: u64) -> Vec<usize> {
            let now = Mono(at_ms * MS);
            let decisions = self.policy.decide(&self.view, now).decisions;
            for decision in decisions {
                let tenant = self.view.tenants.iter_mut().find(|tenant| tenant.key == decision.tenant).unwrap();
                (tenant.stand, tenant.activity) = match decision.action {
                    Action::Bar => (Stand::Held { means: Means::Gate, since: now }, Activity::AtContext { since: now }),
                    Action::Hold(_) => (Stand::Gated { since: now }, tenant.activity),
                    Action::Release => (Stand::Free, Activity::Opening { since: now }),
                };
            }
            let is_in = |tenant: &Tenant| !matches!(tenant.activity, Activity::AtContext { .. });
            let numbered = self.view.tenants.iter().enumerate();
            numbered.filter(|(_, tenant)| is_in(tenant)).map(|(index, _)| index + 1).collect()
        }

        fn is_ready(&mut self, number: usize) {
            self.view.tenants[number - 1].activity = Activity::Loading;
        }
    }

    #[test]
    fn of_many_that_come_at_once_two_at_a_time_make_their_contexts_in_order_of_arrival() {
        let mut host = Host::new(8);
        assert_eq!(host.let_in(10), [1, 2, 3, 4, 5]);
        [1, 2, 3].into_iter().for_each(|number| host.is_ready(number));
        assert_eq!(host.let_in(100), [1, 2, 3, 4, 5], "two are still at it");
        host.is_ready(5);
        assert_eq!(host.let_in(300), [1, 2, 3, 4, 5, 6]);
        host.is_ready(4);
        host.is_ready(6);
        assert_eq!(host.let_in(600), [1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn five_that_come_at_once_are_left_alone() {
        assert_eq!(Host::new(5).let_in(10), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_newcomer_does_not_overtake_who_waits() {
        let mut host = Host::new(7);
        assert_eq!(host.let_in(10), [1, 2, 3, 4, 5]);
        [1, 2].into_iter().for_each(|number| host.is_ready(number));
        host.view.tenants.push(opening(8));
        assert_eq!(host.let_in(100), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn who_opens_the_device_and_makes_no_context_keeps_nobody_waiting_for_long() {
        let mut host = Host::new(7);
        assert_eq!(host.let_in(0), [1, 2, 3, 4, 5]);
        assert_eq!(host.let_in(1_900), [1, 2, 3, 4, 5]);
        assert_eq!(host.let_in(2_001), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn the_policy_asks_to_be_asked_when_one_is_no_longer_waited_for() {
        let mut host = Host::new(3);
        let again_at = host.policy.decide(&host.view, Mono(0)).again_at;
        assert_eq!(again_at, Some(Mono(2_000 * MS)));
    }

    #[test]
    fn whom_the_gate_cannot_stop_and_whom_a_person_holds_are_left_alone_and_counted() {
        let mut host = Host::new(8);
        host.view.tenants[5].means.clear();
        host.view.tenants[6].stand = Stand::ByPerson;
        assert_eq!(host.let_in(0), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn tenants_that_are_known_to_be_light_do_not_wait() {
        let mut host = Host::new(7);
        let light = crate::view::Past { active_seconds: 5.0, peak_memory: None, duty: 0.05, burst_seconds: None };
        host.view.tenants.iter_mut().for_each(|tenant| tenant.past = Some(light));
        assert_eq!(host.let_in(0), [1, 2, 3, 4, 5, 6, 7]);
    }
}
