//! The last holds of each tenant, for those who ask why. In memory only: it begins with the daemon.

use std::collections::{BTreeMap, VecDeque};

use berth_model::control::{PastHold, PastRelease, PastWhat};
use berth_model::hold::{HoldChange, Means};
use berth_model::snapshot::HoldCounters;
use berth_model::{Anchor, TenantKey};

use super::show::uid;

/// Holds kept per tenant.
const MOST_HOLDS: usize = 16;
/// Tenants kept; of more, the one whose last hold is the oldest is forgotten.
const MOST_TENANTS: usize = 256;

#[derive(Debug, Default)]
pub(super) struct History {
    /// Newest last.
    holds: BTreeMap<TenantKey, VecDeque<PastHold>>,
    counters: HoldCounters,
}

impl History {
    pub fn note(&mut self, change: &HoldChange, now: &Anchor) {
        match change {
            HoldChange::Held { tenant, means, by, reason, at } => {
                self.count(*means);
                let (means, by_uid, reason) = (*means, uid(*by), reason.clone());
                let what = PastWhat::Held { means, by_uid, reason, released: None };
                self.add(tenant, PastHold { at: now.wall_at(*at), what });
            }
            HoldChange::Released { tenant, by, reason, at } => {
                let release = PastRelease { at: now.wall_at(*at), by_uid: uid(*by), reason: reason.clone() };
                self.end(tenant, &release);
            }
            HoldChange::HoldFailed { tenant, message, at, .. } => {
                self.counters.failed += 1;
                let what = PastWhat::Failed { message: message.clone() };
                self.add(tenant, PastHold { at: now.wall_at(*at), what });
            }
        }
    }

    pub fn counters(&self) -> HoldCounters {
        self.counters
    }

    /// Newest first.
    pub fn of(&self, tenant: &TenantKey) -> Vec<PastHold> {
        self.holds.get(tenant).into_iter().flatten().rev().cloned().collect()
    }

    fn count(&mut self, means: Means) {
        let counter = match means {
            Means::Freeze => &mut self.counters.freeze,
            Means::Lock => &mut self.counters.lock,
            Means::Gate => &mut self.counters.gate,
            Means::Park => &mut self.counters.park,
        };
        *counter += 1;
    }

    /// A tenant that was held one way and is now held another has not been released in between.
    fn end(&mut self, tenant: &TenantKey, release: &PastRelease) {
        for past in self.holds.get_mut(tenant).into_iter().flatten() {
            if let PastWhat::Held { released: released @ None, .. } = &mut past.what {
                *released = Some(release.clone());
            }
        }
    }

    fn add(&mut self, tenant: &TenantKey, past: PastHold) {
        let holds = self.holds.entry(tenant.clone()).or_default();
        holds.push_back(past);
        if holds.len() > MOST_HOLDS {
            holds.pop_front();
        }
        if self.holds.len() > MOST_TENANTS {
            let newest = |holds: &VecDeque<PastHold>| holds.back().map(|past| past.at);
            let oldest = self.holds.iter().min_by_key(|(_, holds)| newest(holds)).map(|(tenant, _)| tenant.clone());
            oldest.map(|tenant| self.holds.remove(&tenant));
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_model::Mono;
    use berth_model::hold::{By, Want};
    use jiff::Timestamp;

    use super::*;

    fn now() -> Anchor {
        Anchor { mono: Mono(1_000_000_000_000), wall: Timestamp::from_second(5_000).unwrap() }
    }

    fn tenant(number: u32) -> TenantKey {
        TenantKey::User { uid: number }
    }

    fn held(tenant: TenantKey, second: u64) -> HoldChange {
        let (at, reason) = (Mono(second * 1_000_000_000), "`b` computes".to_owned());
        HoldChange::Held { tenant, means: Means::Gate, by: By::Policy, reason, at }
    }

    #[test]
    fn a_hold_ends_with_its_release_and_the_newest_is_told_first() {
        let mut history = History::default();
        history.note(&held(tenant(1), 10), &now());
        let (by, reason, at) = (By::Person { uid: 7 }, "ada released it".to_owned(), Mono(20_000_000_000));
        history.note(&HoldChange::Released { tenant: tenant(1), by, reason, at }, &now());
        history.note(&held(tenant(1), 30), &now());
        let told = history.of(&tenant(1));
        assert!(matches!(&told[0].what, PastWhat::Held { released: None, .. }), "{told:?}");
        let PastWhat::Held { released: Some(release), .. } = &told[1].what else { panic!("{told:?}") };
        assert_eq!((release.by_uid, release.at.duration_since(told[1].at).as_secs()), (Some(7), 10));
        assert_eq!(history.counters(), HoldCounters { gate: 2, ..HoldCounters::default() });
    }

    #[test]
    fn failures_are_kept_and_counted() {
        let mut history = History::default();
        let (wanted, message, at) = (Want::Locked, "it does not answer".to_owned(), Mono(1));
        history.note(&HoldChange::HoldFailed { tenant: tenant(1), wanted, message, at }, &now());
        assert!(matches!(&history.of(&tenant(1))[0].what, PastWhat::Failed { message } if message.contains("answer")));
        assert_eq!(history.counters().failed, 1);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let mut history = History::default();
        let many = u32::try_from(MOST_TENANTS).unwrap() + 10;
        for number in 0..many {
            history.note(&held(tenant(number), u64::from(number)), &now());
        }
        for second in 0..100 {
            history.note(&held(tenant(many - 1), 1_000 + second), &now());
        }
        assert_eq!((history.holds.len(), history.of(&tenant(many - 1)).len()), (MOST_TENANTS, MOST_HOLDS));
        assert!(history.of(&tenant(9)).is_empty() && !history.of(&tenant(10)).is_empty());
    }
}
