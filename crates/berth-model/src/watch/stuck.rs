//! A tenant that is held though nobody else computes.
//!
//! Between two turns there is always a moment in which one is held already and the other does not compute yet, and some others take
//! their time to begin. How long such a moment mostly is here, is learned; one far above that is a hold that nobody will end.

use super::finding::{Finding, Kind};
use super::usual::MostlyBelow;
use crate::time::Mono;

/// Seconds: a shorter one is never stuck.
const LEAST: f64 = 5.0;
/// A longer one always is.
const MOST: f64 = 120.0;
/// Times what is usual.
const FAR_ABOVE: f64 = 6.0;
/// Seconds, until it is learned what is usual.
const UNLEARNED: f64 = 20.0;

#[derive(Debug, Clone, Default)]
pub struct StuckHold {
    /// When it came to be held for nobody.
    since: Option<Mono>,
    usual: MostlyBelow,
    /// Since it was last asked for.
    learned: Option<f64>,
}

impl StuckHold {
    /// `is_held`: by a policy, which will let it go by itself; a person's hold is never stuck. `is_free`: nobody else computes where
    /// it would.
    pub fn observe(&mut self, at: Mono, is_held: bool, is_free: bool) -> Option<Finding> {
        match (self.since, is_held && is_free) {
            (None, true) => self.since = Some(at),
            (Some(since), false) => {
                let lasted = at.since(since).as_secs_f64().min(MOST);
                self.usual.learn(lasted);
                (self.since, self.learned) = (None, Some(lasted));
            }
            (None, false) | (Some(_), true) => {}
        }
        self.finding(at)
    }

    /// How long the one that was over since the last time lasted, to be written down.
    pub fn take_learned(&mut self) -> Option<f64> {
        self.learned.take()
    }

    /// What was written down before.
    pub fn recall(&mut self, lasted: f64) {
        if lasted.is_finite() && lasted > 0.0 {
            self.usual.learn(lasted.min(MOST));
        }
    }

    /// It is not there any more. What is usual stays.
    pub fn leave(&mut self) {
        *self = Self { usual: self.usual, ..Self::default() };
    }

    pub fn finding(&self, now: Mono) -> Option<Finding> {
        let since = self.since?;
        let limit = self.usual.get().map_or(UNLEARNED, |usual| FAR_ABOVE * usual).clamp(LEAST, MOST);
        let seconds = now.since(since).as_secs_f64();
        if seconds < limit {
            return None;
        }
        let words = format!("it has been held for {seconds:.0} s while nobody else computes");
        Some(Finding { kind: Kind::StuckHold, since, sure: 1.0 - (-3.0 * seconds / limit).exp(), words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(tenth: u64) -> Mono {
        Mono(tenth * 100_000_000)
    }

    #[test]
    fn moments_between_turns_are_not_stuck_and_one_without_end_is() {
        let mut stuck = StuckHold::default();
        // Held for nobody for 2 of each 10 seconds.
        assert!((0..2_000).all(|tenth| stuck.observe(at(tenth), true, tenth % 100 < 20).is_none()));
        let found = (2_000..2_200).find_map(|tenth| stuck.observe(at(tenth), true, true)).unwrap();
        assert_eq!(found.since, at(2_000));
        assert!(found.words.starts_with("it has been held for 12 s"), "{found:?}");
        assert_eq!(stuck.observe(at(2_201), false, true), None);
    }

    #[test]
    fn what_was_usual_before_is_usual_and_outlasts_leaving() {
        let mut stuck = StuckHold::default();
        (0..5).for_each(|_| stuck.recall(10.0));
        stuck.leave();
        assert!((0..500).all(|tenth| stuck.observe(at(tenth), true, true).is_none()), "up to a minute is usual");
        assert_eq!((stuck.observe(at(500), false, true), stuck.take_learned()), (None, Some(50.0)));
        assert_eq!(stuck.take_learned(), None);
    }

    #[test]
    fn a_hold_for_somebody_is_not_stuck_however_long() {
        let mut stuck = StuckHold::default();
        assert!((0..10_000).all(|tenth| stuck.observe(at(tenth), true, false).is_none()));
    }
}
