//! Goals that will not be met if things go on as they do.
//!
//! Problem: whoever asks that 95 in 100 pieces of work are in time wants to hear of it before the sixth of a hundred is late. Misses are rare, so that
//! counting them tells late; what is left of each deadline tells earlier. Terms: the *slack* of a piece of work is what was left of its
//! time, as a part of it: 1 is at once, 0 just in time, below zero late. Two means follow it, one slowly: their distance is its trend. The
//! slack that only 1 − target of all pieces stay below, against the slow mean, is learned as it is, since noise is of any shape.
//!
//! The goal is at risk while that slack, as it is forecast for [`AHEAD`] pieces from now, would be below zero, for [`IN_A_ROW`] pieces.
//!
//! The *window* is the latest pieces, as many as make [`ALLOWED`] late ones the most that the goal allows; the goal is missed when more of them are late. Each forecast
//! is held to the slack that so many of a window around its piece stayed below, beside the forecast that all stays as it is ([`Foreseen`]).

use std::collections::VecDeque;

use super::finding::{Finding, Kind};
use crate::time::Mono;

/// Pieces of work looked at before anything is said.
const WARM_UP: u32 = 100;
/// Pieces of work that are looked ahead.
const AHEAD_PIECES: u32 = 30;
const AHEAD: f64 = AHEAD_PIECES as f64;
const IN_A_ROW: u32 = 25;
/// Late ones of a window that the goal allows.
const ALLOWED: f64 = 5.0;
const LONGEST_WINDOW: usize = 1_000;
/// By which the mean errors follow.
const FOLLOW: f64 = 0.03;
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
    /// The window, the latest last.
    slacks: VecDeque<f64>,
    /// Forecasts by the piece at which they can be judged: with the trend, and that all stays as it is.
    said: VecDeque<(u32, f64, f64)>,
    foreseen: Option<Foreseen>,
    at_risk: u32,
    since: Mono,
}

/// How wrong forecasts of the slack that decides were lately, as mean distances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Foreseen {
    pub error: f64,
    /// Of the forecast that all stays as it is.
    pub plain_error: f64,
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
            slacks: VecDeque::new(),
            said: VecDeque::new(),
            foreseen: None,
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

    /// Pieces of work by which it is judged whether the goal is missed.
    pub fn window(&self) -> usize {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 5,000")]
        let wanted = (ALLOWED / (1.0 - self.target)).round() as usize;
        wanted.clamp(10, LONGEST_WINDOW)
    }

    /// The part of the window that was in time.
    pub fn attained(&self) -> f64 {
        let late = self.slacks.iter().filter(|slack| **slack < 0.0).count();
        1.0 - late as f64 / self.slacks.len().max(1) as f64
    }

    /// `None` before a forecast could be held to what came.
    pub fn foreseen(&self) -> Option<Foreseen> {
        self.foreseen
    }

    /// What was left of its time when a piece of work ended, as a part of it; below zero it was late.
    pub fn observe(&mut self, at: Mono, slack: f64) -> Option<Finding> {
        if !slack.is_finite() {
            return self.finding();
        }
        let slack = slack.clamp(WORST, 1.0);
        self.learn(slack);
        self.slacks.push_back(slack);
        let window = self.window();
        self.slacks.drain(..self.slacks.len().saturating_sub(window));
        if self.seen < WARM_UP {
            return None;
        }
        self.judge();
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

    /// Holds forecasts to what came, once a window lies around the piece they were of, and makes one more.
    fn judge(&mut self) {
        while let Some((_, said, plain)) = self.said.pop_front_if(|(at, ..)| *at <= self.seen) {
            let came = self.slack_that_decides();
            let before =
                self.foreseen.unwrap_or(Foreseen { error: (said - came).abs(), plain_error: (plain - came).abs() });
            self.foreseen = Some(Foreseen {
                error: before.error + FOLLOW * ((said - came).abs() - before.error),
                plain_error: before.plain_error + FOLLOW * ((plain - came).abs() - before.plain_error),
            });
        }
        let half = u32::try_from(self.window() / 2).unwrap_or(u32::MAX);
        self.said.push_back((
            self.seen.saturating_add(AHEAD_PIECES).saturating_add(half),
            self.expected(),
            self.fast + self.low,
        ));
    }

    /// The slack that all but 1 − target of the window had.
    fn slack_that_decides(&self) -> f64 {
        let mut sorted: Vec<f64> = self.slacks.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place in the window")]
        let place = ((1.0 - self.target) * sorted.len() as f64) as usize;
        sorted.get(place).copied().unwrap_or(0.0)
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
        let (percent, attained, window) = (100.0 * self.target, 100.0 * self.attained(), self.slacks.len());
        let words = if self.attained() < self.target {
            format!("of its last {window} pieces of work {attained:.1} % were in time, and it asks for {percent:.1} %")
        } else {
            format!(
                "soon fewer will be in time than the {percent:.1} % it asks for: {attained:.1} % of the last {window} were, and what is left of their time shrinks"
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
    fn a_forecast_is_held_to_what_came_and_better_than_saying_that_all_stays_where_something_moves() {
        let mut risk = SloRisk::new(0.95);
        assert_eq!(risk.foreseen(), None);
        // Up and down for ever.
        let middle = |at: u64| 0.4 + 0.3 * (f64::from(u32::try_from(at).unwrap()) / 100.0).sin();
        (0..3_000).for_each(|at| drop(risk.observe(Mono(at), slack(at, middle(at)))));
        let Foreseen { error, plain_error } = risk.foreseen().unwrap();
        assert!(error > 0.0 && error < plain_error, "{error}, {plain_error}");
    }

    #[test]
    fn a_risk_is_told_before_more_of_the_window_are_late_than_may_be() {
        let mut risk = SloRisk::new(0.95);
        (0..500).for_each(|at| drop(risk.observe(Mono(at), slack(at, 0.5))));
        let mut middle = 0.5;
        let told = (500..1_500).find_map(|at| {
            middle -= 0.001;
            risk.observe(Mono(at), slack(at, middle))
        });
        assert!(told.unwrap().words.starts_with("soon fewer") && risk.attained() >= 0.95, "{}", risk.attained());
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
