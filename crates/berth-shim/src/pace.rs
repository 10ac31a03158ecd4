//! A budget of bytes per second: when the next copy may begin.
//!
//! Pure: the time comes in. Each copy moves the instant at which the budget is even again; who would move it further than a
//! short burst ahead of now waits for the difference first.

use std::sync::atomic::{AtomicU64, Ordering};

/// How far ahead of its budget a client may be.
const BURST_NS: u64 = 5_000_000;

#[derive(Debug, Default)]
pub(crate) struct Pace {
    even_at_ns: AtomicU64,
}

impl Pace {
    /// Books a copy and says how long it is to wait.
    pub(crate) fn book(&self, now_ns: u64, bytes: u64, bytes_per_second: u64) -> u64 {
        let cost_ns = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second.max(1));
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        let booked = |even_at: u64| Some(even_at.max(now_ns).saturating_add(cost_ns));
        let before = self.even_at_ns.fetch_update(Ordering::Relaxed, Ordering::Relaxed, booked).unwrap_or(now_ns);
        before.saturating_sub(now_ns.saturating_add(BURST_NS))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_copy_within_the_budget_does_not_wait() {
        let pace = Pace::default();
        for tenth in 0..50 {
            assert_eq!(pace.book(SECOND + tenth * SECOND / 10, 1 << 20, 16 << 20), 0);
        }
    }

    #[test]
    fn whoever_copied_for_a_second_ahead_waits_for_it() {
        let pace = Pace::default();
        assert_eq!(pace.book(SECOND, 100, 100), 0, "the first one goes on whatever its size");
        assert_eq!(pace.book(SECOND, 1, 100), SECOND - BURST_NS);
    }

    proptest! {
        #[test]
        fn no_more_than_the_budget_is_moved_in_the_long_run(sizes in prop::collection::vec(1u64..1 << 24, 2..60), rate in 1u64 << 20..1 << 30) {
            let pace = Pace::default();
            let mut now = SECOND;
            for bytes in &sizes {
                now += pace.book(now, *bytes, rate);
            }
            let all_but_last: u64 = sizes[..sizes.len() - 1].iter().sum();
            let fair_ns = u128::from(all_but_last) * u128::from(SECOND) / u128::from(rate);
            prop_assert!(u128::from(now - SECOND + BURST_NS) + sizes.len() as u128 >= fair_ns);
        }

        #[test]
        fn garbage_makes_no_panic(now in any::<u64>(), bytes in any::<u64>(), rate in any::<u64>()) {
            let pace = Pace::default();
            pace.book(now, bytes, rate);
            pace.book(now, bytes, rate);
        }
    }
}
