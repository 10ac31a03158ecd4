//! Goals that will not be met if things go on as they do.
//!
//! Problem: whoever asks that 95 in 100 pieces of work are in time wants to hear of it before the sixth is late. Misses are rare, so that
//! counting them tells late; what is left of each deadline tells earlier. Terms: the *slack* of a piece of work is what was left of its
//! time, as a part of it: 1 is at once, 0 just in time, below zero late. Two means follow it, one slowly: their distance is its trend. The
//! slack that only 1 − target of all pieces stay below, against the slow mean, is learned as it is, since noise is of any shape.
//!
//! The goal is at risk while that slack, [`AHEAD`] pieces from now, would be below zero, for [`IN_A_ROW`] pieces.

use super::finding::{Finding, Kind};
use crate::time::Mono;

/// Pieces of work looked at before anything is said.
const WARM_UP: u32 = 100;
/// Pieces of work that are looked ahead.
const AHEAD: f64 = 30.0;
const IN_A_ROW: u32 = 25;
const FAST: f64 = 0.06;
const SLOW: f64 = 0.015;
/// How far a mean that follows by `SLOW` is behind one that follows by `FAST`, in pieces of work.
const BETWEEN: f64 = 1.0 / SLOW - 1.0 / FAST;
/// Of the spread, a step of the learned slack.
const STEP: f64 = 0.05;
const LEAST_SPREAD: f64 = 1e-3;
/// One piece that took twice its time counts as much as one that took ten times.
const WORST: f64 = -1.0;

#[derive(Debug, Clone)]
pub struct SloRisk {
    /// Of all pieces of work, the part that has to be in time.
    target: f64,
    fast: f64,
    slow: f64,
    /// Mean distance from the fast mean.
    spread: f64,
    /// Below the fast mean by this are 1 − target of all.
    low: f64,
    seen: u32,
    at_risk: u32,
    since: Mono,
}

impl SloRisk {
    /// `target` is the part that has to be in time, 0 to 1.
    pub fn new(target: f64) -> Self {
        Self {
            target: target.clamp(0.5, 0.999),
            fast: 0.0,
            slow: 0.0,
            spread: 0.0,
            low: 0.0,
            seen: 0,
            at_risk: 0,
            since: Mono(0),
        }
    }

    pub fn target(&self) -> f64 {
        self.target
    }

    /// Somebody wants another part of it in time. What was learned of the slack follows.
    pub fn aim(&mut self, target: f64) {
        self.target = target.clamp(0.5, 0.999);
    }

    /// What was left of its time when a piece of work ended, as a part of it; below zero it was late.
    pub fn observe(&mut self, at: Mono, slack: f64) -> Option<Finding> {
        if !slack.is_finite() {
            return self.finding();
        }
        let slack = slack.clamp(WORST, 1.0);
        self.learn(slack);
        if self.seen < WARM_UP {
            return None;
        }
        if self.expected() < 0.0 {
            self.since = if self.at_risk == 0 { at } else { self.since };
            self.at_risk = (self.at_risk + 1).min(2 * IN_A_ROW);
        } else {
            self.at_risk = self.at_risk.saturating_sub(1);
        }
        self.finding()
    }

    fn learn(&mut self, slack: f64) {
        self.seen = self.seen.saturating_add(1);
        let first = 1.0 / f64::from(self.seen);
        let off = slack - self.fast;
        self.spread += FAST.max(first) * (off.abs() - self.spread);
        // Down by the target's part of a step for one below, up by the rest for one above: at rest 1 − target are below.
        let step = STEP * self.spread.max(LEAST_SPREAD);
        self.low += if off < self.low { -step * self.target } else { step * (1.0 - self.target) };
        self.fast += FAST.max(first) * off;
        self.slow += SLOW.max(first) * (slack - self.slow);
    }

    /// The slack that all but 1 − target pieces of work will have.
    fn expected(&self) -> f64 {
        let trend = (self.fast - self.slow) / BETWEEN;
        self.fast + self.low + AHEAD * trend.min(0.0)
    }

    pub fn finding(&self) -> Option<Finding> {
        if self.at_risk < IN_A_ROW {
            return None;
        }
        let percent = 100.0 * self.target;
        let is_now = self.fast + self.low < 0.0;
        let words = if is_now {
            format!("fewer of its goals are met than the {percent:.1} % it asks for")
        } else {
            format!(
                "fewer of its goals will be met soon than the {percent:.1} % it asks for: what is left of its time shrinks"
            )
        };
        let sure = 1.0 - (-4.0 * f64::from(self.at_risk) / f64::from(2 * IN_A_ROW)).exp();
        Some(Finding { kind: Kind::SloRisk, since: self.since, sure, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Within 0.2 of its middle.
    fn slack(at: u64, middle: f64) -> f64 {
        let step = u32::try_from(at * 37 % 41).unwrap();
        middle + (f64::from(step) / 20.0 - 1.0) * 0.2
    }

    #[test]
    fn a_goal_that_is_met_is_at_no_risk() {
        let mut risk = SloRisk::new(0.95);
        assert!((0..2_000).all(|at| risk.observe(Mono(at), slack(at, 0.3)).is_none()));
    }

    #[test]
    fn slack_that_shrinks_is_told_while_few_are_late() {
        let mut risk = SloRisk::new(0.95);
        (0..500).for_each(|at| assert_eq!(risk.observe(Mono(at), slack(at, 0.5)), None));
        let mut middle = 0.5;
        for at in 500..1_500 {
            middle -= 0.001;
            let now = slack(at, middle);
            if let Some(found) = risk.observe(Mono(at), now) {
                assert!(middle > 0.14, "no more than one in six is late there: {middle}, {found:?}");
                return;
            }
        }
        panic!("never told");
    }

    #[test]
    fn what_is_enough_for_one_is_too_little_for_another() {
        let is_told = |target: f64| {
            let mut risk = SloRisk::new(0.95);
            risk.aim(target);
            (0..3_000).any(|at| risk.observe(Mono(at), slack(at, 0.1)).is_some())
        };
        assert!(is_told(0.95) && !is_told(0.5), "one in four is late");
    }

    #[test]
    fn a_goal_that_is_missed_is_told_and_the_finding_ends_with_it() {
        let mut risk = SloRisk::new(0.95);
        (0..300).for_each(|at| drop(risk.observe(Mono(at), slack(at, 0.5))));
        assert!((300..700).any(|at| risk.observe(Mono(at), slack(at, 0.0)).is_some()));
        assert!((700..1_400).any(|at| risk.observe(Mono(at), slack(at, 0.6)).is_none()));
    }
}
