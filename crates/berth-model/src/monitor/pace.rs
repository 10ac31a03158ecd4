//! How soon to look again.
//!
//! Looking costs the driver 8 µs with nobody on a GPU and 0.3 ms with twenty processes, so looks are spent where they
//! tell something:
//! - Probes tell who comes and goes; a look only shows how much memory is held. One soon after an event is enough, and
//!   one look serves all events of that while. Between events a slow pace keeps memory and use fresh.
//! - Without probes only looking tells. The ordinary pace finds newcomers; a rumour (some program was started) buys the
//!   fast pace for a while, out of a budget that refills slowly, so that a host that starts programs all day is not
//!   watched at the fast pace all day.
//! - Looking faster than at the ordinary pace takes at most about one part in [`COST_SHARE`] of a core. A look can cost
//!   milliseconds while many contexts come and go.

use std::time::Duration;

use crate::settings::Monitor as Intervals;
use crate::time::Mono;

/// From an event to the look that shows what became of it: time for a newcomer's first allocations, and for more events.
const SOON: Duration = Duration::from_millis(100);
/// After a look that cost CPU time, the next comes no sooner than this many times that time later.
const COST_SHARE: u32 = 200;
/// Fast time rumours may use at once.
const RUMOUR_BUDGET: Duration = Duration::from_secs(3);
/// Share of passing time that flows back into the budget: one part in this many.
const RUMOUR_REFILL: u32 = 20;

#[derive(Debug, Clone)]
pub struct Pace {
    intervals: Intervals,
    /// A look is wanted by then.
    due: Option<Mono>,
    last_event: Mono,
    fast_until: Mono,
    last_look: Option<LastLook>,
    budget: Duration,
    refilled_at: Mono,
}

#[derive(Debug, Clone, Copy)]
struct LastLook {
    ended: Mono,
    /// CPU time it cost.
    cpu: Duration,
}

impl Pace {
    pub fn new(intervals: Intervals) -> Self {
        Self {
            intervals,
            due: None,
            last_event: Mono(0),
            fast_until: Mono(0),
            last_look: None,
            budget: RUMOUR_BUDGET,
            refilled_at: Mono(0),
        }
    }

    /// Something happened at `at` that a look will show.
    pub fn event(&mut self, at: Mono) {
        let by = at + SOON;
        self.due = Some(self.due.map_or(by, |due| due.min(by)));
        self.last_event = self.last_event.max(at);
    }

    /// Something may be about to happen.
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

    /// A look that began at `at` is in. Events that had not had their time by then are due another.
    pub fn looked(&mut self, ended: Mono, at: Mono, cpu: Duration) {
        if self.due.is_some_and(|due| due <= at) {
            self.due = Some(self.last_event + SOON).filter(|due| *due > at);
        }
        self.last_look = Some(LastLook { ended, cpu });
    }

    /// From the end of the last look until the next.
    pub fn next_look(&self, now: Mono, probed: bool) -> Duration {
        let Some(last) = self.last_look else { return Duration::ZERO };
        let ordinary = if probed { self.intervals.probed_interval } else { self.intervals.interval };
        let fast = if now < self.fast_until { self.intervals.fast_interval } else { ordinary };
        let due = self.due.map_or(Duration::MAX, |due| due.since(last.ended));
        fast.get().min(due).max(last.cpu * COST_SHARE).min(ordinary.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Mono {
        Mono(millis * 1_000_000)
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Has looked at zero, for no time.
    fn pace() -> Pace {
        let mut pace = Pace::new(Intervals::default());
        pace.looked(at(0), at(0), Duration::ZERO);
        pace
    }

    #[test]
    fn the_first_look_is_taken_at_once() {
        assert_eq!(Pace::new(Intervals::default()).next_look(at(5), true), Duration::ZERO);
    }

    #[test]
    fn the_pace_is_slow_where_probes_tell_and_ordinary_where_only_looking_does() {
        assert_eq!((pace().next_look(at(1), true), pace().next_look(at(1), false)), (ms(500), ms(100)));
    }

    #[test]
    fn one_look_soon_serves_all_events_of_a_while() {
        let mut pace = pace();
        for millis in 10..100 {
            pace.event(at(millis));
        }
        assert_eq!(pace.next_look(at(100), true), ms(110));
        pace.looked(at(110), at(110), Duration::ZERO);
        assert_eq!(pace.next_look(at(111), true), ms(89), "the last ones have not had their time");
        pace.looked(at(199), at(199), Duration::ZERO);
        assert_eq!(pace.next_look(at(200), true), ms(500));
    }

    #[test]
    fn an_event_right_before_a_look_is_looked_at_again_when_it_has_had_its_time() {
        let mut pace = pace();
        pace.event(at(400));
        pace.looked(at(401), at(401), Duration::ZERO);
        assert_eq!(pace.next_look(at(402), true), ms(99));
    }

    #[test]
    fn dear_looks_are_rare() {
        let mut pace = pace();
        pace.rumour(at(1));
        pace.looked(at(1), at(1), Duration::from_micros(315));
        assert_eq!(pace.next_look(at(2), false), ms(63));
        pace.looked(at(2), at(2), ms(20));
        assert_eq!(pace.next_look(at(3), false), ms(100), "but never rarer than ordinary");
    }

    #[test]
    fn rumours_buy_the_fast_pace_but_only_for_a_small_share_of_time() {
        let mut pace = pace();
        let fast = (0..600_000u64)
            .filter(|millis| {
                pace.rumour(at(*millis));
                pace.next_look(at(*millis), false) == ms(20)
            })
            .count();
        assert!(fast > 3_000, "rumours are heard at first, {fast} ms");
        assert!(fast < 600_000 / 10, "rumours bought {fast} of 600000 ms");
    }
}
