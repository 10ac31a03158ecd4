//! The last holds of each tenant, for those who ask why: of this daemon, and of those before it as far as they were written
//! down. What is kept here is a few of a few tenants; the rest is on disk.

use std::collections::{BTreeMap, VecDeque};

use berth_model::TenantKey;
use berth_model::control::{PastHold, PastRelease, PastWhat};
use berth_model::history::{Happening, Record};
use berth_model::snapshot::HoldCounters;
use jiff::Timestamp;

/// Holds kept per tenant.
const MOST_HOLDS: usize = 16;
/// Tenants kept; of more, the one whose last hold is the oldest is forgotten.
const MOST_TENANTS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct History {
    tenants: BTreeMap<TenantKey, Holds>,
    /// Of this daemon.
    counters: HoldCounters,
}

#[derive(Debug, Default)]
struct Holds {
    name: String,
    /// Newest last.
    last: VecDeque<PastHold>,
}

impl History {
    /// Something that was done, or failed, now.
    pub fn note(&mut self, record: &Record) {
        match &record.what {
            Happening::Held { means, .. } => self.counters.add(*means),
            Happening::HoldFailed { .. } => self.counters.failed += 1,
            Happening::Released { .. } | Happening::Task(_) | Happening::Judged(_) => {}
        }
        self.recall(record);
    }

    /// The same of an earlier daemon.
    pub fn recall(&mut self, record: &Record) {
        let Record { at, what, .. } = record;
        match what.clone() {
            Happening::Held { means, by_uid, reason } => {
                self.add(record, PastWhat::Held { means, by_uid, reason, released: None });
            }
            Happening::HoldFailed { message } => self.add(record, PastWhat::Failed { message }),
            Happening::Released { by_uid, reason } => {
                self.end(&record.tenant, &PastRelease { at: *at, by_uid, reason });
            }
            Happening::Task(_) | Happening::Judged(_) => {}
        }
    }

    /// Releases of those whom an earlier daemon held, and of whose release nobody has written: whoever undid it was in a
    /// hurry.
    pub fn unfinished(&self, now: Timestamp) -> Vec<Record> {
        let is_open = |holds: &&Holds| holds.last.iter().any(PastHold::is_open);
        let what = Happening::Released { by_uid: None, reason: "the daemon that held it ended".to_owned() };
        let open = self.tenants.iter().filter(|(_, holds)| is_open(holds));
        open.map(|(tenant, holds)| Record {
            at: now,
            tenant: tenant.clone(),
            name: holds.name.clone(),
            what: what.clone(),
        })
        .collect()
    }

    pub fn counters(&self) -> HoldCounters {
        self.counters
    }

    /// Newest first.
    pub fn of(&self, tenant: &TenantKey) -> Vec<PastHold> {
        self.tenants.get(tenant).into_iter().flat_map(|holds| &holds.last).rev().cloned().collect()
    }

    /// A tenant that was held one way and is now held another has not been released in between.
    fn end(&mut self, tenant: &TenantKey, release: &PastRelease) {
        for past in self.tenants.get_mut(tenant).into_iter().flat_map(|holds| &mut holds.last) {
            if let PastWhat::Held { released: released @ None, .. } = &mut past.what {
                *released = Some(release.clone());
            }
        }
    }

    fn add(&mut self, record: &Record, what: PastWhat) {
        let holds = self.tenants.entry(record.tenant.clone()).or_default();
        holds.name.clone_from(&record.name);
        holds.last.push_back(PastHold { at: record.at, what });
        if holds.last.len() > MOST_HOLDS {
            holds.last.pop_front();
        }
        if self.tenants.len() > MOST_TENANTS {
            let newest = |holds: &Holds| holds.last.back().map(|past| past.at);
            let oldest = self.tenants.iter().min_by_key(|(_, holds)| newest(holds)).map(|(tenant, _)| tenant.clone());
            oldest.map(|tenant| self.tenants.remove(&tenant));
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_model::hold::Means;

    use super::*;

    fn tenant(number: u32) -> TenantKey {
        TenantKey::User { uid: number }
    }

    fn record(tenant: TenantKey, second: i64, what: Happening) -> Record {
        Record { at: Timestamp::from_second(second).unwrap(), tenant, name: "ada".into(), what }
    }

    fn held(tenant: TenantKey, second: i64) -> Record {
        let what = Happening::Held { means: Means::Gate, by_uid: None, reason: "`b` computes".to_owned() };
        record(tenant, second, what)
    }

    fn released(tenant: TenantKey, second: i64) -> Record {
        record(tenant, second, Happening::Released { by_uid: Some(7), reason: "ada released it".to_owned() })
    }

    #[test]
    fn a_hold_ends_with_its_release_and_the_newest_is_told_first() {
        let mut history = History::default();
        for record in [held(tenant(1), 10), released(tenant(1), 20), held(tenant(1), 30)] {
            history.note(&record);
        }
        let told = history.of(&tenant(1));
        assert!(matches!(&told[0].what, PastWhat::Held { released: None, .. }), "{told:?}");
        let PastWhat::Held { released: Some(release), .. } = &told[1].what else { panic!("{told:?}") };
        assert_eq!((release.by_uid, release.at.duration_since(told[1].at).as_secs()), (Some(7), 10));
        assert_eq!(history.counters(), HoldCounters { gate: 2, ..HoldCounters::default() });
    }

    #[test]
    fn failures_are_kept_and_counted() {
        let mut history = History::default();
        history.note(&record(tenant(1), 1, Happening::HoldFailed { message: "it does not answer".to_owned() }));
        assert!(matches!(&history.of(&tenant(1))[0].what, PastWhat::Failed { message } if message.contains("answer")));
        assert_eq!(history.counters().failed, 1);
    }

    #[test]
    fn holds_of_earlier_daemons_are_known_and_not_counted_and_none_of_them_lasts() {
        let mut history = History::default();
        for record in [held(tenant(1), 10), released(tenant(1), 20), held(tenant(2), 30)] {
            history.recall(&record);
        }
        assert_eq!(history.counters(), HoldCounters::default());
        let closing = history.unfinished(Timestamp::from_second(40).unwrap());
        let [record] = &closing[..] else { panic!("{closing:?}") };
        assert_eq!((&record.tenant, record.name.as_str()), (&tenant(2), "ada"));
        history.note(record);
        assert_eq!(history.unfinished(record.at), []);
        let told = history.of(&tenant(2));
        assert!(matches!(&told[0].what, PastWhat::Held { released: Some(release), .. } if release.at == record.at));
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let mut history = History::default();
        let many = u32::try_from(MOST_TENANTS).unwrap() + 10;
        for number in 0..many {
            history.note(&held(tenant(number), number.into()));
        }
        for second in 0..100 {
            history.note(&held(tenant(many - 1), 1_000 + second));
        }
        assert_eq!((history.tenants.len(), history.of(&tenant(many - 1)).len()), (MOST_TENANTS, MOST_HOLDS));
        assert!(history.of(&tenant(9)).is_empty() && !history.of(&tenant(10)).is_empty());
    }
}
