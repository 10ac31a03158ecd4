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

const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Book {
    records: BTreeMap<TenantKey, Record>,
    /// GPU time used by each owner, in seconds, the older the less.
    owners: BTreeMap<Option<String>, f64>,
    at: Option<Mono>,
    /// When someone last left: what is known of memory may still count what was theirs.
    pub left_at: Option<Mono>,
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
    owner: Option<String>,
    gpus: BTreeSet<GpuIndex>,
    /// GPU time of its whole stay, in seconds.
    pub used: f64,
    /// The same, the older the less.
    recent: f64,
    /// When it last gave up a turn.
    pub served: Option<Mono>,
    pub promise: Option<Promise>,
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
        let computing = Computing::of(view, settings);
        for tenant in &view.tenants {
            let rate = computing.rate(tenant, view);
            let record = self.record(&tenant.key);
            left.iter().filter(|left| share_a_gpu(&left.gpus, &tenant.gpus)).for_each(|_| record.excuse(settings));
            record.owner.clone_from(&tenant.owner);
            record.gpus.clone_from(&tenant.gpus);
            record.see(computing.since(tenant), tenant, settings);
            record.rate = rate;
            record.is_disturbed = is_disturbed(tenant, view, settings, now);
        }
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
        if let Action::Hold(_) = action {
            if record.holds.len() >= settings.holds_per_second as usize {
                record.spared_until = record.holds.front().map(|first| *first + SECOND);
                return false;
            }
            record.holds.push_back(now);
        }
        record.last_action = Some(action);
        true
    }

    /// When someone may be held again who was spared.
    pub fn again_at(&self, now: Mono) -> Option<Mono> {
        self.records.values().filter_map(|record| record.spared_until).filter(|at| *at > now).min()
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
    pub fn weight(&self, past: Option<&Past>, settings: &FifoSettings) -> Weight {
        let small = settings.small_burst.get().as_secs_f64();
        let was_light =
            past.is_some_and(|past| past.duty <= fraction(settings.light_use) || past.active_seconds <= small);
        let is_long = self.burst.is_some_and(|burst| burst.clear > small);
        if self.is_steady {
            return Weight::Heavy;
        }
        match (self.bursts, past) {
            (0, Some(_)) if was_light => Weight::Light,
            (0, Some(_)) => Weight::Heavy,
            (0, None) if is_long => Weight::Heavy,
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

    /// GPU seconds it has used of late.
    pub fn recent(&self) -> f64 {
        self.recent
    }

    pub fn has_launched(&self) -> bool {
        self.bursts > 0 || self.burst.is_some() || self.is_doubtful
    }
}

/// Someone else on its GPUs has come of late and not launched yet, and may be making its context.
fn is_disturbed(tenant: &Tenant, view: &View, settings: &FifoSettings, now: Mono) -> bool {
    let mut others = view.tenants.iter().filter(|other| other.key != tenant.key);
    others.any(|other| {
        other.activity == Activity::Loading
            && now.since(other.arrived) < settings.disturbance.get()
            && share_a_gpu(&other.gpus, &tenant.gpus)
    })
}

/// Of whom it is not known yet where it computes may do so anywhere.
fn share_a_gpu(one: &BTreeSet<GpuIndex>, other: &BTreeSet<GpuIndex>) -> bool {
    one.is_empty() || other.is_empty() || !one.is_disjoint(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

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
        let settings = FifoSettings::default();
        assert_eq!(Record::default().weight(None, &settings), Weight::Unknown);
        assert_eq!(after(1, 5.0, 1).weight(None, &settings), Weight::Light);
        assert_eq!(after(1, 50.0, 1).weight(None, &settings), Weight::Heavy);
    }

    #[test]
    fn a_past_tells_before_the_first_burst() {
        let settings = FifoSettings::default();
        let past = |active_seconds, duty| Past { active_seconds, peak_memory: None, duty };
        let weight = |past: Past| Record::default().weight(Some(&past), &settings);
        assert_eq!(weight(past(60.0, 0.14)), Weight::Light);
        assert_eq!(weight(past(0.005, 0.9)), Weight::Light, "too short for a hold to pay");
        assert_eq!(weight(past(60.0, 0.9)), Weight::Heavy);
    }

    #[test]
    fn small_bursts_without_pauses_are_heavy_all_the_same() {
        let settings = FifoSettings::default();
        let mut record = after(5, 5.0, 0);
        record.rate = 1.0;
        record.pass_time(0.5, 1.0, &settings);
        assert_eq!(record.weight(None, &settings), Weight::Heavy);
        record.rate = 0.0;
        record.pass_time(0.5, 1.0, &settings);
        assert_eq!(record.weight(None, &settings), Weight::Heavy, "not light again at once");
        record.pass_time(3.0, 1.0, &settings);
        assert_eq!(record.weight(None, &settings), Weight::Light);
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
        let settings = FifoSettings::default();
        let weight = |record: Record| record.weight(None, &settings);
        assert_eq!(weight(disturbed(60, 5, false)), Weight::Unknown);
        assert_eq!(weight(disturbed(0, 60, true)), Weight::Unknown);
        assert_eq!(weight(disturbed(60, 20, false)), Weight::Heavy, "long by itself");
        assert_eq!(weight(disturbed(0, 600, true)), Weight::Heavy, "nobody takes that long to leave");
        assert_eq!(weight(disturbed(5, 0, true)), Weight::Light, "short all the same");
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
        assert_eq!(record.weight(None, &settings), Weight::Light);
    }

    #[test]
    fn the_turn_lingers_only_with_one_that_is_known_to_go_on_at_once() {
        let settings = FifoSettings::default();
        assert_eq!(after(5, 20.0, 0).linger(&settings), settings.linger.get());
        assert_eq!(after(5, 20.0, 50).linger(&settings), Duration::ZERO, "others compute in its pauses");
        assert_eq!(after(1, 20.0, 0).linger(&settings), Duration::ZERO, "it may be over");
    }
}
