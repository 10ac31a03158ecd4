//! One tenant's record: its bursts and pauses, its share, and how heavy that makes it.
//!
//! Bursts are judged by the time in which nobody else on the GPU was coming or leaving, because kernels stand still while a
//! context is made or ended. A burst that was long only then is *doubtful*: it says nothing, neither that the tenant is heavy nor
//! that it is light.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use berth_model::{Bytes, GpuIndex, Mono};

use crate::Action;
use crate::settings::FifoSettings;
use crate::turns::computing::fraction;
use crate::turns::length::Pace;
use crate::view::{Activity, Past, Tenant};

#[derive(Debug, Default)]
pub(crate) struct Record {
    burst: Option<Burst>,
    bursts: u32,
    /// GPU time of its usual burst, in seconds.
    usual_burst: f64,
    /// Time between its bursts, in seconds, without what it stood at a launch; `None` until there were two.
    usual_gap: Option<f64>,
    quiet_since: Option<Mono>,
    /// Since when it stands at the launch that ends its pause.
    stands_since: Option<Mono>,
    /// Share of a GPU it has used of late, 0 to 1.
    share: f64,
    /// Its share was above the limit and has not fallen far below it yet.
    is_steady: bool,
    /// Share it is taken to have from the last view on.
    pub(super) rate: f64,
    /// Someone else on its GPUs was coming at the last view.
    pub(super) is_disturbed: bool,
    /// Its last burst was doubtful.
    is_doubtful: bool,
    /// Its memory has been told.
    pub(super) is_listed: bool,
    /// Its memory as it was last told, and since when it is that.
    memory: Option<(Bytes, Mono)>,
    /// When its context was first seen to be ready; `None` if it had one when it was first seen.
    pub(super) ready_at: Option<Mono>,
    was_opening: bool,
    /// Someone on its GPUs was heavy since it came.
    pub(super) met_heavy: bool,
    /// It stands at a launch since the first, and what it had launched before is over by the second.
    pub(super) drains: Option<(Mono, Mono)>,
    pub(super) owner: Option<String>,
    pub(super) gpus: BTreeSet<GpuIndex>,
    /// GPU time of its whole stay, in seconds.
    pub used: f64,
    /// The same, the older the less.
    recent: f64,
    /// When it first came to a launch.
    pub first_launch: Option<Mono>,
    /// When it last gave up a turn.
    pub served: Option<Mono>,
    pub promise: Option<Promise>,
    /// When it was let make its context; `None` if it waits for that, or has one.
    pub let_in: Option<Mono>,
    /// GPU memory it had when it was told to park.
    pub parked: Option<Bytes>,
    pub(super) last_action: Option<Action>,
    pub(super) holds: VecDeque<Mono>,
    /// Not held again before then: it has had its holds of this second.
    pub(super) spared_until: Option<Mono>,
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
pub(crate) struct Promise {
    pub bytes: Bytes,
    /// What it had before.
    pub had: Bytes,
    pub at: Mono,
}

/// How much a tenant matters to others on its GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    Light,
    /// It has not shown yet what it is, and it has loaded nothing to speak of.
    Slight,
    /// It has not shown yet what it is.
    Unknown,
    Heavy,
}

impl Record {
    /// Counts the time since the last view; returns the GPU time it used.
    pub(super) fn pass_time(&mut self, passed: f64, fading: f64, settings: &FifoSettings) -> f64 {
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
    pub(super) fn excuse(&mut self, settings: &FifoSettings) {
        if let Some(burst) = &mut self.burst {
            burst.clear = (burst.clear - settings.disturbance.get().as_secs_f64()).max(0.0);
        }
    }

    pub(super) fn see(&mut self, busy_since: Option<Mono>, tenant: &Tenant, settings: &FifoSettings) {
        let stands_since = if let Activity::AtLaunch { since, .. } = tenant.activity { Some(since) } else { None };
        self.first_launch = self.first_launch.or(stands_since).or(busy_since);
        match (self.burst, busy_since) {
            (None, Some(since)) => self.begin(since),
            // It paused for so short a time that nobody saw it.
            (Some(burst), Some(since)) if since > burst.since => {
                self.judge(burst, settings);
                self.quiet_since.get_or_insert(since);
                self.begin(since);
            }
            (Some(burst), None) => self.judge(burst, settings),
            (Some(_), Some(_)) | (None, None) => {}
        }
        match tenant.activity {
            Activity::Quiet { since } => self.rest(since),
            Activity::AtLaunch { since, computing_since: None } => self.stands_since = Some(since),
            _ => {}
        }
    }

    /// Nothing tells when the work of one that stands is over. Its burst is taken to last as long as usual, and one that has
    /// lasted longer as long again; where nothing is usual, for as long as anyone is waited for to settle.
    pub(super) fn expect_drain(&mut self, tenant: &Tenant, settings: &FifoSettings) {
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
        let stood = self.stands_since.take();
        if let Some(quiet) = self.quiet_since.take() {
            let gap = stood.unwrap_or(since).since(quiet).as_secs_f64();
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
    pub(super) fn weight(&self, past: Option<Past>, has_little: bool, settings: &FifoSettings) -> Weight {
        let small = settings.small_burst.get().as_secs_f64();
        let disturbance = settings.disturbance.get().as_secs_f64();
        // Where bursts were not told apart, a little computing in a long stay may have been many small ones or a single long one.
        let is_plain = |past: &Past| {
            let is_much = past.active_seconds >= settings.use_window.get().as_secs_f64();
            let is_seldom = past.duty <= fraction(settings.light_use);
            past.burst_seconds.is_some_and(|burst| burst <= small)
                || !is_seldom
                || past.active_seconds <= small
                || is_much
        };
        let past = past.filter(is_plain);
        let was_light = past.is_some_and(|past| {
            let is_little = past.duty <= fraction(settings.light_use) || past.active_seconds <= small;
            is_little && past.burst_seconds.is_none_or(|burst| burst <= disturbance)
        });
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

    /// Its pauses are no longer than this, as far as it has made any.
    pub fn is_back_within(&self, pause: Duration) -> bool {
        self.usual_gap.is_none_or(|gap| gap <= pause.as_secs_f64())
    }

    /// GPU seconds of its usual burst, by its own and before that by those of its like.
    pub fn usual_burst(&self, past: Option<Past>) -> Option<f64> {
        let own = (self.bursts > 0 && self.usual_burst > 0.0).then_some(self.usual_burst);
        own.or_else(|| past?.burst_seconds)
    }

    /// GPU seconds of the burst under way.
    pub fn burst_so_far(&self) -> f64 {
        self.burst.map_or(0.0, |burst| burst.used)
    }

    pub fn pace(&self, settings: &FifoSettings) -> Pace {
        match self.usual_gap {
            Some(gap) if gap <= settings.linger.get().as_secs_f64() => Pace::OnAndOn,
            Some(gap) if gap < self.usual_burst => Pace::Often,
            Some(_) | None => Pace::Seldom,
        }
    }

    pub(super) fn note_memory(&mut self, memory: Option<Bytes>, now: Mono) {
        let since = self.memory.filter(|(before, _)| Some(*before) == memory).map_or(now, |(_, since)| since);
        self.memory = memory.map(|memory| (memory, since));
    }

    /// Since when it has the memory it has; `None` while it has none, or that is not told.
    pub fn memory_since(&self) -> Option<Mono> {
        self.memory.map(|(_, since)| since)
    }

    pub(super) fn note_context(&mut self, is_opening: bool, now: Mono) {
        if std::mem::replace(&mut self.was_opening, is_opening) && !is_opening {
            self.ready_at = Some(now);
        }
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

#[cfg(test)]
mod tests {
    use super::super::tests::loading;
    use super::*;

    const MS: u64 = 1_000_000;

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
        let past = |active_seconds, duty| Some(Past { active_seconds, peak_memory: None, duty, burst_seconds: None });
        assert_eq!(weight(&Record::default(), past(60.0, 0.14)), Weight::Light);
        assert_eq!(weight(&Record::default(), past(0.005, 0.9)), Weight::Light, "too short for a hold to pay");
        assert_eq!(weight(&Record::default(), past(60.0, 0.9)), Weight::Heavy);
        assert_eq!(weight(&Record::default(), past(0.05, 0.02)), Weight::Unknown, "perhaps all of it at once");
        let in_bursts = |seconds| Some(Past { burst_seconds: Some(seconds), ..past(60.0, 0.14).unwrap() });
        assert_eq!(weight(&Record::default(), in_bursts(0.005)), Weight::Light);
        assert_eq!(weight(&Record::default(), in_bursts(0.9)), Weight::Heavy, "longer than others' contexts make it");
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
