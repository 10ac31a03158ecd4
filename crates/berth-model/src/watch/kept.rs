//! Goals at the level of kernels that are not kept, or soon will not be.
//!
//! Problem: how well goals were kept of late comes as one figure, looked at once a second, which wavers with every request. Two means
//! follow what is missed, one slowly: their distance is its trend. A goal is at risk while, [`AHEAD`] looks from now, more would be missed
//! than it allows, for [`IN_A_ROW`] looks. What is missed by chance is let pass: a quarter more than is allowed, and a few in a thousand.

use super::finding::{Finding, Kind};
use crate::time::Mono;

const FAST: f64 = 0.2;
const SLOW: f64 = 0.05;
/// How far a mean that follows by `SLOW` is behind one that follows by `FAST`, in looks.
const BETWEEN: f64 = 1.0 / SLOW - 1.0 / FAST;
const AHEAD: f64 = 60.0;
const IN_A_ROW: u32 = 10;
/// Times as much as is allowed, and as a part of all.
const BY_CHANCE: f64 = 1.25;
const FEW: f64 = 0.003;

#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// What is missed of late.
    fast: f64,
    slow: f64,
    target: f64,
    seen: u32,
    at_risk: u32,
    since: Mono,
}

impl Kept {
    /// How well goals were kept of late, and how well they are to be, 0 to 1.
    pub fn observe(&mut self, at: Mono, attained: f64, target: f64) {
        if !attained.is_finite() || !target.is_finite() {
            return;
        }
        let missed = 1.0 - attained.clamp(0.0, 1.0);
        self.target = target.clamp(0.0, 1.0);
        self.seen = self.seen.saturating_add(1);
        let first = 1.0 / f64::from(self.seen);
        self.fast += FAST.max(first) * (missed - self.fast);
        self.slow += SLOW.max(first) * (missed - self.slow);
        let trend = (self.fast - self.slow) / BETWEEN;
        if self.fast + AHEAD * trend.max(0.0) > self.allowed() {
            self.since = if self.at_risk == 0 { at } else { self.since };
            self.at_risk = (self.at_risk + 1).min(2 * IN_A_ROW);
        } else {
            self.at_risk = self.at_risk.saturating_sub(1);
        }
    }

    fn allowed(&self) -> f64 {
        (1.0 - self.target) * BY_CHANCE + FEW
    }

    pub fn finding(&self) -> Option<Finding> {
        if self.at_risk < IN_A_ROW {
            return None;
        }
        let (kept, target) = (100.0 * (1.0 - self.fast), 100.0 * self.target);
        let words = match self.fast > self.allowed() {
            true => format!("its goals were kept by {kept:.1} % of late, and it asks for {target:.1} %"),
            false => format!(
                "its goals are kept ever less, by {kept:.1} % of late: soon by less than the {target:.1} % it asks for"
            ),
        };
        let sure = 1.0 - (-4.0 * f64::from(self.at_risk) / f64::from(2 * IN_A_ROW)).exp();
        Some(Finding { kind: Kind::SloRisk, since: self.since, sure, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wavers by half a percent.
    fn attained(at: u64, middle: f64) -> f64 {
        let step = u32::try_from(at * 37 % 41).unwrap();
        middle + (f64::from(step) / 20.0 - 1.0) * 0.005
    }

    fn told_at(middle: impl Fn(u64) -> f64, target: f64) -> Option<u64> {
        let mut kept = Kept::default();
        (0..2_000).find(|at| {
            kept.observe(Mono(*at), attained(*at, middle(*at)), target);
            kept.finding().is_some()
        })
    }

    #[test]
    fn goals_that_are_kept_as_they_are_to_be_are_at_no_risk() {
        assert_eq!(told_at(|_| 0.992, 0.99), None);
        assert_eq!(told_at(|_| 0.95, 0.95), None);
        assert_eq!(told_at(|_| 0.95, 0.9), None, "its own goal counts, and no other");
    }

    #[test]
    fn goals_that_are_missed_are_told_within_seconds_and_the_finding_ends_with_it() {
        let told = told_at(|at| if at < 100 { 0.995 } else { 0.93 }, 0.99).unwrap();
        assert!((100..120).contains(&told), "{told}");
        let mut kept = Kept::default();
        (0..100).for_each(|at| kept.observe(Mono(at), 0.9, 0.99));
        assert!(kept.finding().is_some());
        (100..200).for_each(|at| kept.observe(Mono(at), 1.0, 0.99));
        assert_eq!(kept.finding(), None);
    }

    #[test]
    fn goals_that_are_kept_ever_less_are_told_before_they_are_missed() {
        let shrinks = |at: u64| if at < 200 { 0.99 } else { 0.99 - 0.0005 * (at - 200) as f64 };
        let told = told_at(shrinks, 0.95).unwrap();
        // At 280 it is what it is to be.
        assert!((220..280).contains(&told), "{told}");
    }
}
