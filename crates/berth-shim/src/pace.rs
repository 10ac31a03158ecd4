//! A budget of bytes per second: when the next copy may begin.
//!
//! Pure: the time comes in. What was copied beyond the budget is owed and paid by the time that passes, at the budget of then; who comes while more
//! is owed than for a short burst waits first.

use std::sync::{Mutex, PoisonError};

/// How far ahead of its budget a client may be.
const BURST_NS: u64 = 5_000_000;

#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<(Owed, u64)>);

/// In billionths of a byte, so that nothing is lost of however short a time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owed(u128);

impl Pace {
    /// Books a copy. What was owed before it.
    pub(crate) fn book(&self, now_ns: u64, bytes: u64, bytes_per_second: u64) -> Owed {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (owed, at_ns) = *held;
        let before = owed.after(now_ns.saturating_sub(at_ns), bytes_per_second);
        *held = (Owed(before.0 + u128::from(bytes) * 1_000_000_000), now_ns.max(at_ns));
        before
    }
}

impl Owed {
    /// What is left of it after this time.
    pub(crate) fn after(self, passed_ns: u64, bytes_per_second: u64) -> Self {
        Self(self.0.saturating_sub(u128::from(passed_ns) * u128::from(bytes_per_second)))
    }

    /// For how long one who comes after it waits.
    pub(crate) fn wait_ns(self, bytes_per_second: u64) -> u64 {
        let whole = self.0 / u128::from(bytes_per_second.max(1));
        u64::try_from(whole).unwrap_or(u64::MAX).saturating_sub(BURST_NS)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn book(pace: &Pace, now: u64, bytes: u64, rate: u64) -> u64 {
        pace.book(now, bytes, rate).wait_ns(rate)
    }

    #[test]
    fn a_copy_within_the_budget_does_not_wait() {
        let pace = Pace::default();
        for tenth in 0..50 {
            assert_eq!(book(&pace, SECOND + tenth * SECOND / 10, 1 << 20, 16 << 20), 0);
        }
    }

    #[test]
    fn whoever_copied_for_a_second_ahead_waits_for_it() {
        let pace = Pace::default();
        assert_eq!(book(&pace, SECOND, 100, 100), 0, "the first one goes on whatever its size");
        assert_eq!(book(&pace, SECOND, 1, 100), SECOND - BURST_NS);
    }

    #[test]
    fn what_is_owed_is_paid_at_the_budget_of_now() {
        let pace = Pace::default();
        book(&pace, SECOND, 1 << 30, 1 << 20);
        assert_eq!(book(&pace, SECOND, 1, 1 << 40), 0, "a thousand seconds at the old one");
    }

    #[test]
    fn many_who_ask_lose_nothing_that_was_paid() {
        let pace = Pace::default();
        book(&pace, SECOND, 1_000, 1_000);
        let last = (0..10_000).map(|step| book(&pace, SECOND + step * SECOND / 10_000, 0, 1_000)).last();
        assert!(last.unwrap() < SECOND / 100, "a second has passed");
    }

    proptest! {
        #[test]
        fn no_more_than_the_budget_is_moved_in_the_long_run(sizes in prop::collection::vec(1u64..1 << 24, 2..60), rate in 1u64 << 20..1 << 30) {
            let pace = Pace::default();
            let mut now = SECOND;
            for bytes in &sizes {
                now += book(&pace, now, *bytes, rate);
            }
            let all_but_last: u64 = sizes[..sizes.len() - 1].iter().sum();
            let fair_ns = u128::from(all_but_last) * u128::from(SECOND) / u128::from(rate);
            prop_assert!(u128::from(now - SECOND + BURST_NS) + sizes.len() as u128 >= fair_ns);
        }

        #[test]
        fn garbage_makes_no_panic(now in any::<u64>(), bytes in any::<u64>(), rate in any::<u64>()) {
            let pace = Pace::default();
            book(&pace, now, bytes, rate);
            book(&pace, now, bytes, rate);
        }
    }
}
