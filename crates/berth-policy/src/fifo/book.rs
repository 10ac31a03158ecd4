//! What is learned about tenants and owners from one view to the next: bursts, shares, how often they were held.
//!
//! Time is shared out: while *k* tenants compute on a GPU each is counted with a *k*-th. So a tenant does not look heavy
//! because its neighbours are, and an owner is not charged for being in a crowd.
//!
//! Bursts are judged by the time in which nobody else on the GPU was coming or leaving, because kernels stand still while a
//! context is made or ended. A burst that was long only then is *doubtful*: it says nothing, neither that the tenant is heavy nor
//! that it is light.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use berth_model::{Bytes, GpuIndex, Mono, TenantKey};

use super::computing::{Computing, fraction};
use crate::Action;
use crate::settings::FifoSettings;
use crate::view::{Activity, Past, Tenant, View};

/// Data of less than this beside a context is nothing to speak of, in MiB.
const LITTLE_DATA_MIB: u64 = 64;
/// What was loaded since a look at the memory older than this may have missed.
const FRESH_LOOK: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Book {
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

#[derive(Debug, Default)]
pub(super) struct Record {
    burst: Option<Burst>,
    bursts: u32,
    /// GPU time of its usual burst, in seconds.
    usual_burst: f64,
    /// Time between its bursts, in seconds; `None` until there were two.
    usual_gap: Option<f64>,
    quiet_since: Option<Mono>,
    /// Share of a GPU it has used of late, 0 to 1.
    share: f64,
    /// Its share was above the limit and has not fallen far below it yet.
    is_steady: bool,
    /// Share it is taken to have from the last view on.
    rate: f64,
    /// Someone else on its GPUs was coming at the last view.
    is_disturbed: bool,
    /// Its last burst was doubtful.
    is_doubtful: bool,
    /// Its memory has been told.
    is_listed: bool,
    /// Its memory as it was last told, and since when it is that.
    memory: Option<(Bytes, Mono)>,
    /// Someone on its GPUs was heavy since it came.
    met_heavy: bool,
    /// It stands at a launch since the first, and what it had launched before is over by the second.
    drains: Option<(Mono, Mono)>,
    owner: Option<String>,
    gpus: BTreeSet<GpuIndex>,
    /// GPU time of its whole stay, in seconds.
    pub used: f64,
    /// The same, the older the less.
    recent: f64,
    /// When it last gave up a turn.
    pub served: Option<Mono>,
    pub promise: Option<Promise>,
    /// When it was let make its context; `None` if it waits for that, or has one.
    pub let_in: Option<Mono>,
    /// GPU memory it had when it was told to park.
    pub parked: Option<Bytes>,
    last_action: Option<Action>,
    holds: VecDeque<Mono>,
    /// Not held again before then: it has had its holds of this second.
    spared_until: Option<Mono>,
}

#[derive(Debug, Clone, Copy)]
struct Burst {
    since: Mono,
    used: f64,
    /// What of it was not disturbed.
    clear: f64,
}

/// Memory that someone was released for and may not have taken yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Promise {
    pub bytes: Bytes,
    /// What it had before.
    pub had: Bytes,
    pub at: Mono,
}

/// How much a tenant matters to others on its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    Light,
    /// It has not shown yet what it is, and it has loaded nothing to speak of.
    Slight,
    /// It has not shown yet what it is.
    Unknown,
    Heavy,
}

// === impl Book ===

impl Book {
    pub fn get(&self, key: &TenantKey) -> Option<&Record> {
        self.records.get(key)
    }

    pub fn record(&mut self, key: &TenantKey) -> &mut Record {
        self.records.entry(key.clone()).or_default()
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
        let is_fresh = self.at.zip(self.looked_at).is_some_and(|(now, at)| now.since(at) <= FRESH_LOOK);
        // Who is not listed yet has no context yet; unless memory is never told here.
        let is_little = tenant.memory.map_or(tenant.activity == Activity::Loading, |memory| memory <= little);
        let has_little = is_fresh && is_little && self.context.0 > 0;
        self.get(&tenant.key).map_or(Weight::Unknown, |record| record.weight(tenant.past, has_little, settings))
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

// === impl Record ===

impl Record {
    /// Counts the time since the last view; returns the GPU time it used.
    fn pass_time(&mut self, passed: f64, fading: f64, settings: &FifoSettings) -> f64 {
        let used = passed * self.rate;
        self.used += used;
        self.recent = self.recent * fading + used;
        if let Some(burst) = &mut self.burst {
            burst.used += used;
            burst.clear += if self.is_disturbed { 0.0 } else { used };
        }
        self.follow_share(passed, settings);
        #[expect(clippy::cast_precision_loss, reason = "a host has few GPUs")]
        let gpus = self.gpus.len().max(1) as f64;
        used * gpus
    }

    /// Its share is what it was as long as it is disturbed.
    fn follow_share(&mut self, passed: f64, settings: &FifoSettings) {
        if self.is_disturbed {
            return;
        }
        let old = (-passed / settings.use_window.get().as_secs_f64().max(f64::MIN_POSITIVE)).exp();
        self.share = self.share * old + self.rate * (1.0 - old);
        let limit = fraction(settings.light_use);
        self.is_steady = self.share > if self.is_steady { limit / 2.0 } else { limit };
    }

    /// Someone has left, and may have stopped the kernels of others in doing so.
    fn excuse(&mut self, settings: &FifoSettings) {
        if let Some(burst) = &mut self.burst {
            burst.clear = (burst.clear - settings.disturbance.get().as_secs_f64()).max(0.0);
        }
    }

    fn see(&mut self, busy_since: Option<Mono>, tenant: &Tenant, settings: &FifoSettings) {
        match (self.burst, busy_since) {
            (None, Some(since)) => self.begin(since),
            (Some(burst), Some(since)) if since > burst.since => {
                self.judge(burst, settings);
                self.begin(since);
            }
            (Some(burst), None) => self.judge(burst, settings),
            (Some(_), Some(_)) | (None, None) => {}
        }
        if let Activity::Quiet { since } = tenant.activity {
            self.rest(since);
        }
    }

    /// Nothing tells when the work of one that stands is over. Its burst is taken to last as long as usual, and one that has
    /// lasted longer as long again; where nothing is usual, for as long as anyone is waited for to settle.
    fn expect_drain(&mut self, tenant: &Tenant, settings: &FifoSettings) {
        let Activity::AtLaunch { since, computing_since: Some(began) } = tenant.activity else {
            self.drains = None;
            return;
        };
        if self.drains.is_some_and(|(stood, _)| stood == since) {
            return;
        }
        let most = settings.settle.get();
        let usual = Duration::try_from_secs_f64(self.usual_burst).ok().filter(|_| self.bursts > 0).unwrap_or(most);
        let by = Some(began + usual).filter(|by| *by > since && self.bursts > 0).unwrap_or(since + usual);
        self.drains = Some((since, by.min(since + most)));
    }

    pub fn is_drained(&self, now: Mono) -> bool {
        self.drains.is_none_or(|(_, by)| by <= now)
    }

    fn begin(&mut self, since: Mono) {
        if let Some(quiet) = self.quiet_since.take() {
            let gap = since.since(quiet).as_secs_f64();
            self.usual_gap = Some(self.usual_gap.map_or(gap, |usual| (usual + gap) / 2.0));
        }
        self.burst = Some(Burst { since, used: 0.0, clear: 0.0 });
    }

    fn judge(&mut self, burst: Burst, settings: &FifoSettings) {
        let small = settings.small_burst.get().as_secs_f64();
        self.is_doubtful = burst.used > small && burst.clear <= small;
        if self.is_doubtful {
            self.burst = None;
        } else {
            self.end(burst.used);
        }
    }

    fn end(&mut self, used: f64) {
        self.usual_burst = if self.bursts == 0 { used } else { (self.usual_burst + used) / 2.0 };
        self.bursts = self.bursts.saturating_add(1);
        self.burst = None;
    }

    /// It is quiet. If it was so before, a burst has come and gone unseen in between, and was no longer than that.
    fn rest(&mut self, since: Mono) {
        if let Some(before) = self.quiet_since.filter(|before| *before < since) {
            self.end(since.since(before).as_secs_f64().min(self.usual_burst));
        } else if self.bursts == 0 && !self.is_doubtful {
            self.bursts = 1;
        }
        self.quiet_since = Some(since);
    }

    /// How heavy it is: by what it does now, by what it has done, by what its like did before.
    fn weight(&self, past: Option<Past>, has_little: bool, settings: &FifoSettings) -> Weight {
        let small = settings.small_burst.get().as_secs_f64();
        // A little computing in a long stay may have been many small bursts or a single long one.
        let is_plain = |past: &Past| {
            let is_much = past.active_seconds >= settings.use_window.get().as_secs_f64();
            past.duty > fraction(settings.light_use) || past.active_seconds <= small || is_much
        };
        let past = past.filter(is_plain);
        let was_light =
            past.is_some_and(|past| past.duty <= fraction(settings.light_use) || past.active_seconds <= small);
        let disturbance = settings.disturbance.get().as_secs_f64();
        let is_long = self.burst.is_some_and(|burst| burst.clear > small || burst.used > disturbance);
        if self.is_steady {
            return Weight::Heavy;
        }
        match (self.bursts, past) {
            (0, Some(_)) if was_light => Weight::Light,
            (0, Some(_)) => Weight::Heavy,
            (0, None) if is_long => Weight::Heavy,
            (0, None) if has_little && !self.met_heavy => Weight::Slight,
            (0, None) => Weight::Unknown,
            (1 | 2, _) if is_long && !was_light => Weight::Heavy,
            _ if self.usual_burst > small && !was_light => Weight::Heavy,
            _ => Weight::Light,
        }
    }

    /// How long after a burst it is worth waiting for the next: not at all, unless it is known to come very soon.
    pub fn linger(&self, settings: &FifoSettings) -> Duration {
        let linger = settings.linger.get();
        let goes_on = self.bursts >= 3 && self.usual_gap.is_some_and(|gap| gap <= linger.as_secs_f64());
        if goes_on { linger } else { Duration::ZERO }
    }

    fn note_memory(&mut self, memory: Option<Bytes>, now: Mono) {
        let since = self.memory.filter(|(before, _)| Some(*before) == memory).map_or(now, |(_, since)| since);
        self.memory = memory.map(|memory| (memory, since));
    }

    /// Since when it has the memory it has; `None` while it has none, or that is not told.
    pub fn memory_since(&self) -> Option<Mono> {
        self.memory.map(|(_, since)| since)
    }

    /// GPU seconds it has used of late.
    pub fn recent(&self) -> f64 {
        self.recent
    }

    /// It has come back from a burst and begun another, and will do so again.
    pub fn goes_on(&self) -> bool {
        self.bursts >= 2
    }

    /// The last that was said about it is to wait before its context.
    pub fn is_barred(&self) -> bool {
        self.last_action == Some(Action::Bar)
    }

    pub fn has_launched(&self) -> bool {
        self.bursts > 0 || self.burst.is_some() || self.is_doubtful
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::{Gpu, Stand};

    const MS: u64 = 1_000_000;

    fn loading() -> Tenant {
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

    fn weight(record: &Record, past: Option<Past>) -> Weight {
        record.weight(past, false, &FifoSettings::default())
    }

    /// A record after bursts of so many milliseconds with gaps between them.
    fn after(bursts: u32, burst_ms: f64, gap_ms: u64) -> Record {
        let mut record = Record::default();
        let mut at = 0;
        for _ in 0..bursts {
            record.begin(Mono(at));
            record.end(burst_ms / 1000.0);
            at += MS;
            record.rest(Mono(at));
            at += gap_ms * MS;
        }
        record
    }

    #[test]
    fn a_tenant_is_what_its_bursts_are_once_one_has_come_back() {
        assert_eq!(weight(&Record::default(), None), Weight::Unknown);
        assert_eq!(weight(&after(1, 5.0, 1), None), Weight::Light);
        assert_eq!(weight(&after(1, 50.0, 1), None), Weight::Heavy);
    }

    #[test]
    fn who_has_loaded_nothing_is_taken_for_slight_unless_it_or_another_has_shown_otherwise() {
        let settings = FifoSettings::default();
        let of = |record: &Record| record.weight(None, true, &settings);
        assert_eq!(of(&Record::default()), Weight::Slight);
        assert_eq!(of(&Record { met_heavy: true, ..Record::default() }), Weight::Unknown);
        assert_eq!(of(&after(1, 50.0, 1)), Weight::Heavy);
        let mut record = Record { rate: 1.0, ..Record::default() };
        record.begin(Mono(0));
        record.pass_time(0.011, 1.0, &settings);
        assert_eq!(of(&record), Weight::Heavy, "by its first burst already");
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

    /// Who stands makes no calls, so nothing says when what it had launched is over.
    #[test]
    fn one_that_stands_computes_for_as_long_as_its_bursts_usually_take_and_no_longer_than_it_settles() {
        let settings = FifoSettings::default();
        let at = |since, began| {
            let activity = Activity::AtLaunch { since: Mono(since * MS), computing_since: Some(Mono(began * MS)) };
            Tenant { activity, ..loading() }
        };
        let drains = |mut record: Record, tenant: &Tenant| {
            record.expect_drain(tenant, &settings);
            record.drains.map(|(_, by)| by)
        };
        assert_eq!(drains(after(2, 50.0, 1), &at(20, 0)), Some(Mono(50 * MS)));
        assert_eq!(drains(after(2, 50.0, 1), &at(80, 0)), Some(Mono(130 * MS)), "longer than usual already");
        assert_eq!(drains(Record::default(), &at(20, 0)), Some(Mono(1_020 * MS)));
        assert_eq!(drains(after(2, 9_000.0, 1), &at(20, 0)), Some(Mono(1_020 * MS)));
        let idle = Tenant { activity: Activity::AtLaunch { since: Mono(1), computing_since: None }, ..loading() };
        assert_eq!(drains(after(2, 50.0, 1), &idle), None);
    }

    #[test]
    fn a_past_tells_before_the_first_burst() {
        let past = |active_seconds, duty| Some(Past { active_seconds, peak_memory: None, duty });
        assert_eq!(weight(&Record::default(), past(60.0, 0.14)), Weight::Light);
        assert_eq!(weight(&Record::default(), past(0.005, 0.9)), Weight::Light, "too short for a hold to pay");
        assert_eq!(weight(&Record::default(), past(60.0, 0.9)), Weight::Heavy);
        assert_eq!(weight(&Record::default(), past(0.05, 0.02)), Weight::Unknown, "perhaps all of it at once");
    }

    #[test]
    fn small_bursts_without_pauses_are_heavy_all_the_same() {
        let settings = FifoSettings::default();
        let mut record = after(5, 5.0, 0);
        record.rate = 1.0;
        record.pass_time(0.5, 1.0, &settings);
        assert_eq!(weight(&record, None), Weight::Heavy);
        record.rate = 0.0;
        record.pass_time(0.5, 1.0, &settings);
        assert_eq!(weight(&record, None), Weight::Heavy, "not light again at once");
        record.pass_time(3.0, 1.0, &settings);
        assert_eq!(weight(&record, None), Weight::Light);
    }

    /// A record after a first burst of so many milliseconds, the first of them disturbed, and an end of others in between.
    fn disturbed(disturbed_ms: u64, clear_ms: u64, has_someone_left: bool) -> Record {
        let settings = FifoSettings::default();
        let mut record = Record { rate: 1.0, is_disturbed: true, ..Record::default() };
        record.begin(Mono(0));
        record.pass_time(Duration::from_millis(disturbed_ms).as_secs_f64(), 1.0, &settings);
        record.is_disturbed = false;
        record.pass_time(Duration::from_millis(clear_ms).as_secs_f64(), 1.0, &settings);
        if has_someone_left {
            record.excuse(&settings);
        }
        if let Some(burst) = record.burst {
            record.judge(burst, &settings);
        }
        record.rest(Mono((disturbed_ms + clear_ms) * MS));
        record
    }

    #[test]
    fn a_burst_that_was_long_only_while_others_came_or_left_says_nothing() {
        assert_eq!(weight(&disturbed(60, 5, false), None), Weight::Unknown);
        assert_eq!(weight(&disturbed(0, 60, true), None), Weight::Unknown);
        assert_eq!(weight(&disturbed(60, 20, false), None), Weight::Heavy, "long by itself");
        assert_eq!(weight(&disturbed(0, 600, true), None), Weight::Heavy, "nobody takes that long to leave");
        assert_eq!(weight(&disturbed(5, 0, true), None), Weight::Light, "short all the same");
    }

    #[test]
    fn a_light_tenant_stays_light_through_a_neighbours_end() {
        let settings = FifoSettings::default();
        let mut record = after(5, 0.2, 12);
        record.rate = 1.0;
        record.begin(Mono(100 * MS));
        record.pass_time(0.065, 1.0, &settings);
        record.excuse(&settings);
        let burst = record.burst.unwrap();
        record.judge(burst, &settings);
        assert_eq!(weight(&record, None), Weight::Light);
    }

    #[test]
    fn the_turn_lingers_only_with_one_that_is_known_to_go_on_at_once() {
        let settings = FifoSettings::default();
        assert_eq!(after(5, 20.0, 0).linger(&settings), settings.linger.get());
        assert_eq!(after(5, 20.0, 50).linger(&settings), Duration::ZERO, "others compute in its pauses");
        assert_eq!(after(1, 20.0, 0).linger(&settings), Duration::ZERO, "it may be over");
    }
}
