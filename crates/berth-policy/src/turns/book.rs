//! What is learned about tenants and owners from one view to the next: bursts, shares, how often they were held.
//!
//! Time is shared out: while *k* tenants compute on a GPU each is counted with a *k*-th. So a tenant does not look heavy
//! because its neighbours are, and an owner is not charged for being in a crowd.

mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::{Bytes, GpuIndex, Mono, TenantKey};

use super::computing::Computing;
use crate::Action;
use crate::settings::FifoSettings;
use crate::view::{Activity, Tenant, View};
pub(crate) use record::{Promise, Record, Weight};

/// Data of less than this beside a context is nothing to speak of, in MiB.
const LITTLE_DATA_MIB: u64 = 64;
/// What was loaded since a look at the memory older than this may have missed.
const FRESH_LOOK: Duration = Duration::from_millis(50);
/// Who has had its context for less than this has not loaded more than little data since.
const JUST_READY: Duration = Duration::from_millis(10);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(crate) struct Book {
    records: BTreeMap<TenantKey, Record>,
    /// GPU time used by each owner, in seconds, the older the less.
    owners: BTreeMap<Option<String>, f64>,
    at: Option<Mono>,
    /// When the driver was last asked.
    looked_at: Option<Mono>,
    /// When someone last left: what is known of memory may still count what was theirs.
    pub left_at: Option<Mono>,
    /// The most memory a tenant had when it was first seen: what a context takes by itself, or less where that was seen
    /// being made only.
    context: Bytes,
}

// === impl Book ===

impl Book {
    pub fn get(&self, key: &TenantKey) -> Option<&Record> {
        self.records.get(key)
    }

    pub fn record(&mut self, key: &TenantKey) -> &mut Record {
        self.records.entry(key.clone()).or_default()
    }

    /// Memory a context takes by itself, as far as was seen.
    pub fn context(&self) -> Bytes {
        self.context
    }

    /// GPU seconds an owner has used of late.
    pub fn used_by(&self, owner: Option<&str>) -> f64 {
        self.owners.get(&owner.map(str::to_owned)).copied().unwrap_or(0.0)
    }

    /// Takes in what the time since the last view and this view tell.
    pub fn learn(&mut self, view: &View, settings: &FifoSettings, now: Mono) {
        self.pass_time(settings, now);
        let present: BTreeSet<&TenantKey> = view.tenants.iter().map(|tenant| &tenant.key).collect();
        let left: Vec<Record> =
            self.records.extract_if(.., |key, _| !present.contains(key)).map(|(_, record)| record).collect();
        if !left.is_empty() {
            self.left_at = Some(now);
        }
        view.tenants.iter().for_each(|tenant| self.record(&tenant.key).expect_drain(tenant, settings));
        let computing = Computing::of(view, self, settings, now);
        self.looked_at = view.gpus.iter().filter_map(|gpu| gpu.core_at).min();
        let most = Bytes::from_mib(settings.context_mib);
        for tenant in &view.tenants {
            let rate = computing.rate(tenant, view);
            let record = self.record(&tenant.key);
            left.iter().filter(|left| share_a_gpu(&left.gpus, &tenant.gpus)).for_each(|_| record.excuse(settings));
            record.owner.clone_from(&tenant.owner);
            record.gpus.clone_from(&tenant.gpus);
            record.see(computing.since(tenant), tenant, settings);
            record.rate = rate;
            record.note_memory(tenant.memory, now);
            record.note_context(is_opening(tenant), now);
            record.is_disturbed = is_disturbed(tenant, view, settings, now);
            if let Some(memory) =
                tenant.memory.filter(|_| !std::mem::replace(&mut record.is_listed, tenant.memory.is_some()))
            {
                self.context = self.context.max(memory).min(most);
            }
        }
        self.note_heavy(view, settings);
    }

    /// Where someone has shown to be heavy, nobody is taken for light that has not shown it.
    fn note_heavy(&mut self, view: &View, settings: &FifoSettings) {
        let heavy: Vec<&Tenant> =
            view.tenants.iter().filter(|tenant| self.weight(tenant, settings) == Weight::Heavy).collect();
        for tenant in &view.tenants {
            let meets = |other: &&&Tenant| other.key != tenant.key && share_a_gpu(&other.gpus, &tenant.gpus);
            self.record(&tenant.key).met_heavy |= heavy.iter().any(|other| meets(&other));
        }
    }

    /// How much a tenant matters to others on its GPU.
    pub fn weight(&self, tenant: &Tenant, settings: &FifoSettings) -> Weight {
        let little = self.context + Bytes::from_mib(LITTLE_DATA_MIB);
        // Who is not listed yet has no context yet, or none for long; unless memory is never told here.
        let is_coming = is_opening(tenant) || tenant.activity == Activity::Loading;
        let is_little = tenant.memory.map_or(is_coming || self.is_just_ready(tenant), |memory| memory <= little);
        let has_little = self.is_memory_known(tenant) && is_little && self.context.0 > 0;
        self.get(&tenant.key).map_or(Weight::Unknown, |record| record.weight(tenant.past, has_little, settings))
    }

    /// What was last told of its memory still holds: nobody loads anything before its context is ready.
    fn is_memory_known(&self, tenant: &Tenant) -> bool {
        is_opening(tenant) || self.is_just_ready(tenant) || self.is_within(FRESH_LOOK, self.looked_at)
    }

    fn is_just_ready(&self, tenant: &Tenant) -> bool {
        self.is_within(JUST_READY, self.get(&tenant.key).and_then(|record| record.ready_at))
    }

    fn is_within(&self, span: Duration, at: Option<Mono>) -> bool {
        self.at.zip(at).is_some_and(|(now, at)| now.since(at) <= span)
    }

    fn pass_time(&mut self, settings: &FifoSettings, now: Mono) {
        let passed = self.at.map_or(0.0, |at| now.since(at).as_secs_f64());
        self.at = Some(self.at.map_or(now, |at| at.max(now)));
        if passed == 0.0 {
            return;
        }
        let fading = 0.5_f64.powf(passed / settings.fair_half_life.get().as_secs_f64().max(f64::MIN_POSITIVE));
        self.owners.values_mut().for_each(|used| *used *= fading);
        self.owners.retain(|_, used| *used > 1e-6);
        for record in self.records.values_mut() {
            let used = record.pass_time(passed, fading, settings);
            if used > 0.0 {
                *self.owners.entry(record.owner.clone()).or_default() += used;
            }
        }
    }

    /// Whether an action may be taken: holds are bounded per second, releases follow holds. An action that repeats
    /// the last one is the same action.
    pub fn note(&mut self, key: &TenantKey, action: Action, settings: &FifoSettings, now: Mono) -> bool {
        let record = self.record(key);
        record.holds.retain(|at| now.since(*at) < SECOND);
        if record.last_action == Some(action) {
            return true;
        }
        if let Action::Hold(_) | Action::Bar = action {
            if record.holds.len() >= settings.holds_per_second as usize {
                record.spared_until = record.holds.front().map(|first| *first + SECOND);
                return false;
            }
            record.holds.push_back(now);
        }
        record.last_action = Some(action);
        true
    }

    /// When someone may be held again who was spared, or one that stands is taken to have drained.
    pub fn again_at(&self, now: Mono) -> Option<Mono> {
        let each = self.records.values().flat_map(|record| [record.spared_until, record.drains.map(|(_, by)| by)]);
        each.flatten().filter(|at| *at > now).min()
    }
}

/// Someone else on its GPUs has come of late and not launched yet, and may be making its context. Contexts are made one at a
/// time: of several that come, the last is done when all are.
fn is_disturbed(tenant: &Tenant, view: &View, settings: &FifoSettings, now: Mono) -> bool {
    let is_beside = |other: &&Tenant| other.key != tenant.key && share_a_gpu(&other.gpus, &tenant.gpus);
    let came = |other: &Tenant| match other.activity {
        Activity::Opening { since } => Some(since),
        Activity::Loading => Some(other.arrived),
        _ => None,
    };
    let coming: Vec<Mono> = view.tenants.iter().filter(is_beside).filter_map(came).collect();
    let longest = settings.disturbance.get() * u32::try_from(coming.len()).unwrap_or(u32::MAX);
    coming.iter().any(|arrived| now.since(*arrived) < longest)
}

/// Of whom it is not known yet where it computes may do so anywhere.
fn share_a_gpu(one: &BTreeSet<GpuIndex>, other: &BTreeSet<GpuIndex>) -> bool {
    one.is_empty() || other.is_empty() || !one.is_disjoint(other)
}

/// It has no context yet.
fn is_opening(tenant: &Tenant) -> bool {
    matches!(tenant.activity, Activity::Opening { .. } | Activity::AtContext { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Gpu, Stand};

    const MS: u64 = 1_000_000;

    pub(super) fn loading() -> Tenant {
        Tenant {
            key: TenantKey::User { uid: 1 },
            name: String::new(),
            owner: None,
            gpus: BTreeSet::new(),
            gang: None,
            arrived: Mono(0),
            activity: Activity::Loading,
            memory: None,
            needs: None,
            core: None,
            stand: Stand::Free,
            means: BTreeSet::new(),
            past: None,
            work: None,
        }
    }

    /// A host whose driver was asked then.
    fn seen(tenant: &Tenant, at_ms: u64) -> View {
        let gpu = Gpu {
            index: GpuIndex(0),
            memory_total: None,
            memory_used: None,
            core: None,
            core_at: Some(Mono(at_ms * MS)),
        };
        View { gpus: vec![gpu], tenants: vec![tenant.clone()] }
    }

    /// What a context takes differs from GPU to GPU.
    #[test]
    fn little_is_what_tenants_had_when_they_were_first_seen() {
        let settings = FifoSettings::default();
        let mut book = Book::default();
        let mut weight = |memory: Option<u64>, at| {
            let tenant = Tenant { memory: memory.map(Bytes::from_mib), ..loading() };
            book.learn(&seen(&tenant, at), &settings, Mono(at * MS));
            book.weight(&tenant, &settings)
        };
        assert_eq!(weight(None, 0), Weight::Unknown, "memory may never be told here");
        assert_eq!(weight(Some(250), 1), Weight::Slight);
        assert_eq!(weight(Some(300), 2), Weight::Slight);
        assert_eq!(weight(Some(565), 3), Weight::Unknown);
        assert_eq!(weight(None, 4), Weight::Slight, "it has no context yet");
        let mut late = Book::default();
        let tenant = Tenant { memory: Some(Bytes::from_mib(2_000)), ..loading() };
        late.learn(&seen(&tenant, 0), &settings, Mono(0));
        assert_eq!(late.weight(&tenant, &settings), Weight::Unknown, "no context takes as much");
    }

    #[test]
    fn an_old_look_does_not_tell_what_was_loaded_since() {
        let settings = FifoSettings::default();
        let mut book = Book::default();
        let tenant = Tenant { memory: Some(Bytes::from_mib(250)), ..loading() };
        let mut weight = |now| {
            book.learn(&seen(&tenant, 0), &settings, Mono(now * MS));
            book.weight(&tenant, &settings)
        };
        assert_eq!((weight(20), weight(200)), (Weight::Slight, Weight::Unknown));
    }

    /// Looks are half a second apart, and a light tenant launches as soon as it has a context.
    #[test]
    fn who_has_no_context_for_long_has_loaded_nothing_since_however_old_the_look_is() {
        let settings = FifoSettings::default();
        let mut book = Book::default();
        let mut weight = |activity, memory: Option<u64>, now: u64| {
            let tenant = Tenant { activity, memory: memory.map(Bytes::from_mib), ..loading() };
            book.learn(&seen(&tenant, 0), &settings, Mono(now * MS));
            book.weight(&tenant, &settings)
        };
        let launches = |at: u64| Activity::AtLaunch { since: Mono(at * MS), computing_since: None };
        assert_eq!(weight(Activity::Opening { since: Mono(0) }, Some(250), 400), Weight::Slight);
        assert_eq!(weight(Activity::Loading, Some(250), 450), Weight::Slight, "its context is ready");
        assert_eq!(weight(launches(451), Some(250), 451), Weight::Slight);
        assert_eq!(weight(launches(451), None, 453), Weight::Slight, "not listed when that was asked");
        assert_eq!(weight(launches(451), Some(250), 461), Weight::Unknown, "enough time to load much");
    }
}
