//! Work that takes longer than it used to.
//!
//! Problem: durations scatter by a few to fifty percent, some are wild, and they differ a little with load; a lasting slowdown by a
//! fifth or more is what matters. Terms: the logarithm of a duration, so that "a third more" is the same for short and long work; its
//! [`Baseline`]; the evidence against it ([`Cusum`]).
//!
//! Properties: less than [`TOLERATED`] is never a finding, however steady the work is. Becoming faster is none either: what is usual is
//! then learned anew. So it is when a slowdown has lasted for [`ADOPTED`] values: it has become usual, and has been said long enough.

use super::baseline::Baseline;
use super::cusum::Cusum;
use super::finding::{Finding, Kind};
use crate::time::Mono;

/// Times as long as usual: up to here nobody minds, and load may explain it.
const TOLERATED: f64 = 1.12;
/// No work is taken to be steadier than this, as a factor.
const STEADIEST: f64 = 1.03;
/// Evidence at which it is a finding.
const LIMIT: f64 = 12.0;
/// In spreads: what is off by less is noise, also where that is wide, and the middle was learned from few values.
const LEAST_SLACK: f64 = 0.6;
/// Values after which a slowdown is usual.
const ADOPTED: u32 = 1_000;
/// By which the mean of the last values follows.
const FOLLOW: f64 = 0.1;

#[derive(Debug, Clone)]
pub struct Degradation {
    baseline: Baseline,
    cusum: Cusum,
    /// Mean of the last logarithms, for words.
    lately: Option<f64>,
    found_for: u32,
}

impl Default for Degradation {
    fn default() -> Self {
        Self { baseline: Baseline::new(STEADIEST.ln()), cusum: Cusum::new(LIMIT), lately: None, found_for: 0 }
    }
}

impl Degradation {
    /// How long one piece of work took, in any unit that stays the same. One that took no time says nothing.
    pub fn observe(&mut self, at: Mono, took: f64) -> Option<Finding> {
        if !(took > 0.0 && took.is_finite()) {
            return self.finding();
        }
        let value = took.ln();
        let Some(usual) = self.baseline.usual() else {
            self.baseline.learn(value);
            return None;
        };
        self.lately = Some(self.lately.map_or(usual.middle, |lately| lately + FOLLOW * (value - lately)));
        let slack = (TOLERATED.ln() / usual.spread).max(LEAST_SLACK);
        let shift = self.cusum.add(at, (value - usual.middle) / usual.spread, slack);
        self.found_for = shift.filter(|shift| shift.is_up).map_or(0, |_| self.found_for + 1);
        if shift.is_some_and(|shift| !shift.is_up) || self.found_for > ADOPTED {
            *self = Self::default();
        } else if self.cusum.is_calm() {
            self.baseline.learn(value);
        }
        self.finding()
    }

    pub fn finding(&self) -> Option<Finding> {
        let (usual, shift) = (self.baseline.usual()?, self.cusum.shift()?);
        let times = (self.lately.unwrap_or(usual.middle) - usual.middle).exp();
        let words = format!("its work takes {times:.2} times as long as it used to");
        shift.is_up.then_some(Finding { kind: Kind::Degradation, since: shift.since, sure: shift.sure, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A little noise that repeats.
    fn took(at: u64, times: f64) -> f64 {
        [1.0, 1.04, 0.97, 1.01, 0.99, 1.02, 0.96][usize::try_from(at % 7).unwrap()] * times
    }

    fn learned() -> Degradation {
        let mut detector = Degradation::default();
        (0..200).for_each(|at| assert_eq!(detector.observe(Mono(at), took(at, 2.0)), None));
        detector
    }

    #[test]
    fn work_that_takes_a_third_longer_is_found_soon_and_dated_rightly() {
        let mut detector = learned();
        let found = (200..220).find_map(|at| detector.observe(Mono(at), took(at, 2.66))).unwrap();
        assert!(found.since.0.abs_diff(200) <= 2, "{found:?}");
        let told = (220..400).map(|at| detector.observe(Mono(at), took(at, 2.66))).last().unwrap().unwrap();
        assert_eq!(told.words, "its work takes 1.32 times as long as it used to");
        assert!((400..500).any(|at| detector.observe(Mono(at), took(at, 2.0)).is_none()), "and it ends");
    }

    #[test]
    fn a_little_longer_or_much_shorter_is_nothing_to_tell() {
        for times in [2.2, 1.0] {
            let mut detector = learned();
            assert!((200..900).all(|at| detector.observe(Mono(at), took(at, times)).is_none()), "{times}");
        }
    }

    #[test]
    fn what_has_lasted_is_usual() {
        let mut detector = learned();
        let found = (200..2_000).filter(|at| detector.observe(Mono(*at), took(*at, 3.0)).is_some()).count();
        assert!((900..=1_001).contains(&found), "{found}");
    }

    #[test]
    fn values_that_are_no_durations_say_nothing() {
        let mut detector = learned();
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(detector.observe(Mono(200), value), None);
        }
    }
}
