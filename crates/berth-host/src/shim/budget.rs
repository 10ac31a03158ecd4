//! How often something may happen: a number at once, and then so many in a second.

use berth_model::Mono;

const SECOND_NS: u64 = 1_000_000_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// What is left, in billionths of one.
    left: u64,
    most: u64,
    per_second: u64,
    at: Mono,
}

impl Budget {
    pub fn new(at_once: u32, per_second: u32, now: Mono) -> Self {
        let most = u64::from(at_once) * SECOND_NS;
        Self { left: most, most, per_second: per_second.into(), at: now }
    }

    /// Whether one more may happen; if so, it is counted.
    pub fn spend(&mut self, now: Mono) -> bool {
        let passed = u64::try_from(now.since(self.at).as_nanos()).unwrap_or(u64::MAX);
        self.left = self.left.saturating_add(passed.saturating_mul(self.per_second)).min(self.most);
        self.at = self.at.max(now);
        let has_one = self.left >= SECOND_NS;
        if has_one {
            self.left -= SECOND_NS;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_more_happens_than_at_once_and_by_the_second(steps in prop::collection::vec(0..300_000_000u64, 1..200)) {
            let mut budget = Budget::new(8, 10, Mono(0));
            let (mut now, mut happened) = (0, 0u64);
            for step in steps {
                now += step;
                happened += u64::from(budget.spend(Mono(now)));
                prop_assert!(happened <= 8 + now / 100_000_000);
            }
        }
    }

    #[test]
    fn what_was_spent_comes_back_and_no_more_than_there_was() {
        let mut budget = Budget::new(2, 1, Mono(0));
        let spent = |budget: &mut Budget, now| (0..9).filter(|_| budget.spend(Mono(now))).count();
        assert_eq!(spent(&mut budget, 0), 2);
        assert_eq!(spent(&mut budget, SECOND_NS), 1);
        assert_eq!(spent(&mut budget, 3_600 * SECOND_NS), 2);
        assert_eq!(spent(&mut budget, 0), 0, "an instant of the past brings nothing");
    }
}
