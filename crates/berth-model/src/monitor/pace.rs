//! How soon to look again: fast while something may be changing, slowly otherwise, never fast for nothing for long.
//!
//! Looking costs the driver 8 µs with nobody on a GPU and 315 µs with twenty processes, so the fast pace is bought:
//! certain news (a probe, a process that came or went) always buys `fast_for`; rumours (some program was started) draw on
//! a budget that refills slowly, so that a host that starts programs all day is not watched at the fast pace all day.

use std::time::Duration;

use crate::settings::Monitor as Intervals;
use crate::time::Mono;

/// Fast time rumours may use at once.
const RUMOUR_BUDGET: Duration = Duration::from_secs(3);
/// Share of passing time that flows back into the budget: one part in this many.
const RUMOUR_REFILL: u32 = 20;

#[derive(Debug, Clone)]
pub(super) struct Pace {
    intervals: Intervals,
    fast_until: Mono,
    /// What happened at this instant has not been looked at.
    unseen: Option<Mono>,
    budget: Duration,
    refilled_at: Mono,
}

impl Pace {
    pub fn new(intervals: Intervals) -> Self {
        Self { intervals, fast_until: Mono(0), unseen: Some(Mono(0)), budget: RUMOUR_BUDGET, refilled_at: Mono(0) }
    }

    /// Something surely changed or is about to.
    pub fn news(&mut self, at: Mono) {
        self.fast_until = self.fast_until.max(at + self.intervals.fast_for.get());
    }

    /// As [`Pace::news`], and what changed can be seen right now.
    pub fn look_now(&mut self, at: Mono) {
        self.news(at);
        self.unseen = self.unseen.max(Some(at));
    }

    /// Something may be about to change.
    pub fn rumour(&mut self, at: Mono) {
        self.budget = RUMOUR_BUDGET.min(self.budget + at.since(self.refilled_at) / RUMOUR_REFILL);
        self.refilled_at = self.refilled_at.max(at);
        let wanted = at + self.intervals.fast_for.get();
        let cost = wanted.since(self.fast_until.max(at));
        if cost <= self.budget {
            self.budget -= cost;
            self.fast_until = self.fast_until.max(wanted);
        }
    }

    /// A look that began at `at` is in. What happened later is still unseen.
    pub fn looked(&mut self, at: Mono) {
        self.unseen = self.unseen.filter(|news| *news > at);
    }

    /// From `now` until the next look, counted from the last one's end.
    pub fn next_look(&self, now: Mono, probed: bool) -> Duration {
        if self.unseen.is_some() {
            Duration::ZERO
        } else if now < self.fast_until {
            self.intervals.fast_interval.get()
        } else if probed {
            self.intervals.probed_interval.get()
        } else {
            self.intervals.interval.get()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn pace() -> Pace {
        let mut pace = Pace::new(Intervals::default());
        pace.looked(Mono(0));
        pace
    }

    #[test]
    fn news_buys_the_fast_pace_for_a_while() {
        let mut pace = pace();
        pace.news(Mono(1_000 * MS));
        assert_eq!(pace.next_look(Mono(1_001 * MS), true), Duration::from_millis(20));
        assert_eq!(pace.next_look(Mono(1_601 * MS), true), Duration::from_millis(500));
        assert_eq!(pace.next_look(Mono(1_601 * MS), false), Duration::from_millis(100));
    }

    #[test]
    fn an_instant_look_is_taken_once() {
        let mut pace = pace();
        pace.look_now(Mono(MS));
        assert_eq!(pace.next_look(Mono(MS), true), Duration::ZERO);
        pace.looked(Mono(MS - 1));
        assert_eq!(pace.next_look(Mono(MS), true), Duration::ZERO, "a look that began before has not seen it");
        pace.looked(Mono(MS));
        assert_ne!(pace.next_look(Mono(MS), true), Duration::ZERO);
    }

    #[test]
    fn endless_rumours_keep_the_fast_pace_only_for_a_small_share_of_time() {
        let mut pace = pace();
        let fast = (0..600_000u64)
            .filter(|ms| {
                pace.rumour(Mono(ms * MS));
                pace.next_look(Mono(ms * MS), false) == Duration::from_millis(20)
            })
            .count();
        assert!(fast > 3_000, "rumours are heard at first, {fast} ms");
        assert!(fast < 600_000 / 10, "rumours bought {fast} of 600000 ms");
    }
}
