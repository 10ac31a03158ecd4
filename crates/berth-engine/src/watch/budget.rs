//! How often one user may say how tenants do: each word is written down, and the room for figures is everybody's.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::Mono;

/// Words at a time, after which one more may be said after each [`EVERY`].
const AT_ONCE: u32 = 30;
const EVERY: Duration = Duration::from_secs(60);

/// Of each user when the last of its words will have been made up for.
#[derive(Debug, Default)]
pub(super) struct Budget {
    owed_until: BTreeMap<u32, Mono>,
}

impl Budget {
    /// One more word of this user; else how long it has to wait. Whoever owes nothing is forgotten.
    pub fn take(&mut self, uid: u32, now: Mono) -> Result<(), Duration> {
        self.owed_until.retain(|_, until| *until > now);
        let owed = self.owed_until.get(&uid).map_or(Duration::ZERO, |until| until.since(now));
        let most = EVERY * (AT_ONCE - 1);
        if owed > most {
            return Err(owed.saturating_sub(most));
        }
        self.owed_until.insert(uid, now + owed + EVERY);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Mono {
        Mono(second * 1_000_000_000)
    }

    #[test]
    fn many_may_be_said_at_once_and_then_one_at_a_time_by_each_user_alone() {
        let mut budget = Budget::default();
        let said = |budget: &mut Budget, uid, second| (0..100).filter(|_| budget.take(uid, at(second)).is_ok()).count();
        assert_eq!(said(&mut budget, 1000, 0), 30);
        assert_eq!(budget.take(1000, at(1)), Err(Duration::from_secs(59)));
        assert_eq!(said(&mut budget, 1001, 1), 30, "another has its own");
        assert_eq!((said(&mut budget, 1000, 61), said(&mut budget, 1000, 181)), (1, 2));
        assert_eq!(said(&mut budget, 1000, 100_000), 30);
        assert_eq!(budget.owed_until.len(), 1, "who owes nothing is forgotten");
    }
}
