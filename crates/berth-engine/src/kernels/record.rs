//! What counts against tenants on one GPU, whether or not anybody of theirs is there now.
//!
//! A process can hang up and attach anew at any time, and is another client then. So nothing here is of a client, and nothing goes with
//! one: leads that were lost and how much each tenant has led of late, who is parted from whom, and words that were found up without work.
//! Each is kept for as long as it could still count, and there are only so many.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::{Mono, TenantKey};

use super::lead::Lead;

/// Those who are parted are for so long after the last reason.
const PARTED_FOR: Duration = Duration::from_mins(10);
/// So many words that are up without work between two tenants are a library's that was interrupted in the middle; one is forgiven each time
/// so long has passed.
const FEW: u32 = 8;
const FORGIVEN_AFTER: Duration = Duration::from_secs(1);
/// Tenants that have led, pairs that are parted, and pairs that are doubted.
const MOST: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Record {
    leads: BTreeMap<TenantKey, Lead>,
    /// Since the last reason.
    parted: BTreeMap<Pair, Mono>,
    doubts: BTreeMap<Pair, Doubt>,
}

/// Who would yield, and to whom.
pub(super) type Pair = (TenantKey, TenantKey);

#[derive(Debug, Clone, Copy)]
struct Doubt {
    times: u32,
    /// When the last was forgiven.
    at: Mono,
}

impl Record {
    pub fn lead(&self, tenant: &TenantKey) -> Lead {
        self.leads.get(tenant).copied().unwrap_or_default()
    }

    /// Time has passed in which a tenant kept others stopped, or did not; see [`Lead::look`].
    pub fn led(&mut self, tenant: &TenantKey, stops: bool, most: f64, passed: Duration, now: Mono) -> bool {
        if !stops && !self.leads.contains_key(tenant) {
            return false;
        }
        self.leads.entry(tenant.clone()).or_default().look(stops, most, passed, now)
    }

    /// Nobody is there, and what counts no longer is forgotten.
    pub fn forget(&mut self, now: Mono) {
        self.forget_but(&BTreeSet::new(), now);
    }

    /// What a lead comes to of those who are here is not known yet.
    pub fn forget_but(&mut self, here: &BTreeSet<&TenantKey>, now: Mono) {
        self.leads.retain(|tenant, lead| here.contains(tenant) || lead.counts(now));
        self.parted.retain(|_, since| now.since(*since) < PARTED_FOR);
        self.doubts.retain(|_, doubt| doubt.forgive(now) > 0);
        keep_most(&mut self.leads, Lead::counts_until);
        keep_most(&mut self.parted, |since| *since);
        keep_most(&mut self.doubts, |doubt| doubt.at);
    }

    pub fn is_empty(&self) -> bool {
        self.leads.is_empty() && self.parted.is_empty() && self.doubts.is_empty()
    }

    /// There is no link between these for a while. Whether there might have been.
    pub fn part(&mut self, pair: Pair, now: Mono) -> bool {
        self.parted.insert(pair, now).is_none()
    }

    /// There is reason for it still.
    pub fn part_on(&mut self, pair: &Pair, now: Mono) {
        self.parted.get_mut(pair).into_iter().for_each(|since| *since = now);
    }

    pub fn are_parted(&self, pair: &Pair) -> bool {
        self.parted.contains_key(pair)
    }

    /// A word between these was up without work. Whether that was so too often.
    pub fn doubt(&mut self, pair: &Pair, now: Mono) -> bool {
        let doubt = self.doubts.entry(pair.clone()).or_insert(Doubt { times: 0, at: now });
        doubt.times = doubt.forgive(now).saturating_add(1);
        doubt.times > FEW
    }
}

impl Doubt {
    /// What is left of them.
    fn forgive(&mut self, now: Mono) -> u32 {
        while self.times > 0 && now.since(self.at) >= FORGIVEN_AFTER {
            (self.times, self.at) = (self.times - 1, self.at + FORGIVEN_AFTER);
        }
        if self.times == 0 {
            self.at = now;
        }
        self.times
    }
}

/// Of too many the least go.
fn keep_most<K: Ord + Clone, V, W: Ord>(all: &mut BTreeMap<K, V>, worth: impl Fn(&V) -> W) {
    while all.len() > MOST {
        let Some(least) = all.iter().min_by_key(|(_, value)| worth(value)).map(|(key, _)| key.clone()) else { return };
        all.remove(&least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn tenant(name: &str) -> TenantKey {
        TenantKey::Cgroup { path: name.into() }
    }

    fn pair(number: u64) -> Pair {
        (tenant(&format!("/{number}")), tenant("/leader"))
    }

    fn at(seconds: u64) -> Mono {
        Mono(0) + SECOND * u32::try_from(seconds).unwrap()
    }

    /// Seconds from 0 to when one that never lets go loses its lead, if it is there in those of which `is_here` says so.
    fn loses(record: &mut Record, from: u64, is_here: impl Fn(u64) -> bool) -> Option<u64> {
        (from..from + 300).find(|second| {
            let (server, now) = (tenant("/server"), at(*second));
            let here = is_here(*second);
            record.forget_but(&here.then_some(&server).into_iter().collect(), now);
            here && record.led(&server, true, 0.95, SECOND, now)
        })
    }

    #[test]
    fn a_lead_is_lost_for_as_long_whether_or_not_its_tenant_was_away_and_then_forgotten() {
        let mut record = Record::default();
        let first = loses(&mut record, 0, |_| true).unwrap();
        let until = record.lead(&tenant("/server")).lost_until(at(first)).unwrap();
        record.forget(at(first + 2));
        assert!(record.lead(&tenant("/server")).is_lost(at(first + 2)), "it was away");
        let back = first + 20;
        let again = loses(&mut record, back, |_| true).unwrap();
        let second = record.lead(&tenant("/server")).lost_until(at(again)).unwrap();
        assert!(second.since(at(again)) > until.since(at(first)), "longer each time");
        record.forget(second + Duration::from_secs(61));
        assert!(record.is_empty());
    }

    #[test]
    fn one_that_is_away_for_a_moment_now_and_then_has_led_all_the_same() {
        let away = |second: u64| second.is_multiple_of(5);
        assert!(
            loses(&mut Record::default(), 0, |second| !away(second)).is_none(),
            "a fifth of the time is more than enough"
        );
        assert!(loses(&mut Record::default(), 0, |second| second % 40 != 0).is_some());
    }

    #[test]
    fn what_was_led_fades_with_time_whether_or_not_anybody_looks() {
        let (mut record, server) = (Record::default(), tenant("/server"));
        let mut leads = |seconds: std::ops::Range<u64>| {
            let mut lost = seconds.clone().map(|second| record.led(&server, true, 0.95, SECOND, at(second)));
            lost.any(|lost| lost)
        };
        assert!(!leads(0..4), "not for long enough");
        assert!(!leads(60..64), "nobody was there for a minute");
        assert!(leads(64..70), "it is lost as ever");
    }

    #[test]
    fn a_lead_of_which_nothing_is_left_is_forgotten_though_nobody_was_there_meanwhile() {
        let mut record = Record::default();
        record.led(&tenant("/server"), true, 0.95, SECOND, at(0));
        record.forget(at(10));
        assert!(!record.is_empty());
        record.forget(at(60));
        assert!(record.is_empty());
    }

    #[test]
    fn parted_is_for_ten_minutes_after_the_last_reason() {
        let mut record = Record::default();
        assert!(record.part(pair(1), at(0)) && !record.part(pair(1), at(500)));
        record.forget(at(1_000));
        record.part_on(&pair(1), at(1_000));
        record.forget(at(1_599));
        assert!(record.are_parted(&pair(1)));
        record.forget(at(1_600));
        assert!(!record.are_parted(&pair(1)));
        record.part_on(&pair(1), at(1_600));
        assert!(!record.are_parted(&pair(1)), "it has to have a reason first");
    }

    #[test]
    fn few_doubts_are_forgiven_and_many_in_a_moment_are_not() {
        let (mut record, one) = (Record::default(), pair(1));
        assert!((0..100).all(|second| !record.doubt(&one, at(second))), "one in a second");
        assert!((0..FEW).all(|_| !record.doubt(&one, at(100))) && record.doubt(&one, at(100)));
        record.forget(at(100 + 10));
        assert!(record.is_empty());
    }

    #[test]
    fn however_many_there_are_few_are_remembered_and_the_latest() {
        let mut record = Record::default();
        for number in 0..3_000 {
            let now = Mono(number);
            record.part(pair(number), now);
            record.doubt(&pair(number), now);
            record.led(&pair(number).0, true, 0.0, SECOND, now);
            record.forget(now);
        }
        assert_eq!((record.parted.len(), record.doubts.len(), record.leads.len()), (MOST, MOST, MOST));
        assert!(record.are_parted(&pair(2_999)) && !record.are_parted(&pair(0)));
    }
}
