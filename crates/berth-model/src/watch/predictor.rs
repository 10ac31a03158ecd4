//! Work that takes longer or shorter than was expected of it, again and again.
//!
//! The middle that is compared with is not learned, it is that of a right prediction; how far predictions are off by chance is.
//! An error that cancels out over many pieces of work is none here: each may be wrong, and what is planned with them is right.

use super::baseline::Baseline;
use super::cusum::Cusum;
use super::finding::{Finding, Kind};
use crate::time::Mono;

/// Times as long as predicted, or as short: so far plans bear it.
const TOLERATED: f64 = 1.25;
const STEADIEST: f64 = 1.03;
const LIMIT: f64 = 12.0;
const FOLLOW: f64 = 0.1;

#[derive(Debug, Clone)]
pub struct PredictorError {
    scatter: Baseline,
    cusum: Cusum,
    lately: f64,
}

impl Default for PredictorError {
    fn default() -> Self {
        Self { scatter: Baseline::new(STEADIEST.ln()), cusum: Cusum::new(LIMIT), lately: 0.0 }
    }
}

impl PredictorError {
    /// Both in the same unit.
    pub fn observe(&mut self, at: Mono, predicted: f64, took: f64) -> Option<Finding> {
        let off = (took / predicted).ln();
        if !off.is_finite() {
            return self.finding();
        }
        self.lately += FOLLOW * (off - self.lately);
        if self.cusum.is_calm() || self.scatter.usual().is_none() {
            self.scatter.learn(off);
        }
        let usual = self.scatter.usual()?;
        self.cusum.add(at, off / usual.spread, (TOLERATED.ln() / usual.spread).max(0.5));
        self.finding()
    }

    pub fn finding(&self) -> Option<Finding> {
        let shift = self.cusum.shift()?;
        let words = if shift.is_up {
            format!("its work takes {:.2} times as long as is expected of it", self.lately.exp())
        } else {
            format!("its work takes {:.2} of the time that is expected of it", self.lately.exp())
        };
        Some(Finding { kind: Kind::PredictorError, since: shift.since, sure: shift.sure, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(at: u64) -> f64 {
        [1.0, 1.3, 0.8, 1.1, 0.9, 1.2, 0.75][usize::try_from(at % 7).unwrap()]
    }

    #[test]
    fn errors_that_cancel_out_are_none_and_those_that_do_not_are_told_both_ways() {
        for (times, words) in [(1.9, "times as long"), (0.5, "of the time")] {
            let mut detector = PredictorError::default();
            assert!((0..300).all(|at| detector.observe(Mono(at), 1.0, noise(at)).is_none()));
            let found = (300..400).find_map(|at| detector.observe(Mono(at), 1.0, times * noise(at))).unwrap();
            assert!(found.words.contains(words) && found.since.0.abs_diff(300) <= 4, "{found:?}");
        }
    }

    #[test]
    fn one_that_was_wrong_from_the_start_is_found_too() {
        let mut detector = PredictorError::default();
        assert!((0..200).any(|at| detector.observe(Mono(at), 1.0, 2.0 * noise(at)).is_some()));
    }

    #[test]
    fn nothing_follows_from_predictions_that_are_none() {
        let mut detector = PredictorError::default();
        for (predicted, took) in [(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (-1.0, 1.0)] {
            assert_eq!(detector.observe(Mono(0), predicted, took), None);
        }
    }
}
