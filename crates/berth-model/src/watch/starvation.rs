//! Who wants the GPU and gets next to nothing of it.
//!
//! Problem: by turns everybody waits, and the more there are the longer; that is no starvation. Terms: the *deficit* grows while a tenant
//! gets less than half of its fair share, and shrinks while it gets more; how high it mostly gets per other tenant is learned, so that
//! long turns and many tenants are usual here if they are usual. A deficit far above that is a finding.

use std::time::Duration;

use super::finding::{Finding, Kind};
use super::usual::MostlyBelow;
use crate::time::Mono;

/// Seconds of its fair share: with less missing nobody starves.
const LEAST: f64 = 15.0;
/// And with this missing everybody does, whatever is usual.
const MOST: f64 = 300.0;
/// The same for each other, until it is learned what is usual.
const UNLEARNED: f64 = 20.0;
/// Times what is usual.
const FAR_ABOVE: f64 = 4.0;
/// A longer time between two looks says nothing of what was in between.
const LONGEST_STEP: f64 = 5.0;
/// Of its fair share, what is enough.
const ENOUGH: f64 = 0.5;

#[derive(Debug, Clone, Default)]
pub struct Starvation {
    last: Option<Mono>,
    /// In seconds of its fair share.
    deficit: f64,
    peak: f64,
    since: Mono,
    usual: MostlyBelow,
    /// Since it was last asked for.
    learned: Option<f64>,
    others: u32,
}

/// What a tenant wants and gets at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Want {
    /// It has work for the GPU.
    pub wants: bool,
    /// Its part of the GPU's time since the last moment, 0 to 1.
    pub got: f64,
    /// Others who have work.
    pub others: u32,
}

impl Starvation {
    pub fn observe(&mut self, at: Mono, want: Want) -> Option<Finding> {
        let step = self.last.replace(at).map_or(Duration::ZERO, |last| at.since(last));
        let seconds = step.as_secs_f64().min(LONGEST_STEP);
        if want.wants {
            let fair = 1.0 / f64::from(want.others.saturating_add(1));
            self.others = want.others;
            self.change(at, seconds * (ENOUGH - want.got / fair));
        } else {
            self.change(at, -seconds);
        }
        self.finding(at)
    }

    fn change(&mut self, at: Mono, by: f64) {
        if self.deficit <= 0.0 {
            self.since = at;
        }
        self.deficit = (self.deficit + by).clamp(0.0, 2.0 * MOST);
        self.peak = self.peak.max(self.deficit);
        if self.deficit <= 0.0 && self.peak > 0.0 {
            let per_other = self.peak / f64::from(self.others.max(1));
            self.usual.learn(per_other);
            self.learned = Some(per_other);
            self.peak = 0.0;
        }
    }

    /// The deficit for each other that was made up for since the last time, to be written down.
    pub fn take_learned(&mut self) -> Option<f64> {
        self.learned.take()
    }

    /// What was written down before.
    pub fn recall(&mut self, per_other: f64) {
        if per_other.is_finite() && per_other > 0.0 {
            self.usual.learn(per_other);
        }
    }

    /// It is not there any more. What is usual stays.
    pub fn leave(&mut self) {
        *self = Self { usual: self.usual, ..Self::default() };
    }

    fn limit(&self) -> f64 {
        let per_other = self.usual.get().map_or(UNLEARNED, |usual| FAR_ABOVE * usual);
        (per_other * f64::from(self.others.max(1))).clamp(LEAST, MOST)
    }

    pub fn finding(&self, now: Mono) -> Option<Finding> {
        let limit = self.limit();
        if self.deficit < limit {
            return None;
        }
        let seconds = now.since(self.since).as_secs();
        let words = format!("it has wanted the GPU for {seconds} s and got less than half of its fair share");
        let sure = 1.0 - (-3.0 * self.deficit / limit).exp();
        Some(Finding { kind: Kind::Starvation, since: self.since, sure, words })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Mono {
        Mono(second * 1_000_000_000)
    }

    /// It has every `many`th turn of `turn` seconds.
    fn by_turns(second: u64, turn: u64, many: u64) -> Want {
        let is_own = (second / turn).is_multiple_of(many);
        Want { wants: true, got: f64::from(u8::from(is_own)), others: u32::try_from(many - 1).unwrap() }
    }

    #[test]
    fn turns_are_no_starvation_even_when_there_are_more_of_them() {
        let mut starvation = Starvation::default();
        assert!((0..600).all(|second| starvation.observe(at(second), by_turns(second, 10, 2)).is_none()));
        assert!((600..1_800).all(|second| starvation.observe(at(second), by_turns(second, 10, 6)).is_none()));
    }

    #[test]
    fn who_has_no_turn_any_more_starves_since_its_last() {
        let mut starvation = Starvation::default();
        (0..600).for_each(|second| drop(starvation.observe(at(second), by_turns(second, 10, 2))));
        let starved = Want { wants: true, got: 0.0, others: 1 };
        let found = (600..700).find_map(|second| starvation.observe(at(second), starved)).unwrap();
        assert!(found.since >= at(580) && found.since <= at(601), "{found:?}");
    }

    #[test]
    fn what_was_usual_before_is_usual_and_outlasts_leaving() {
        let starved = Want { wants: true, got: 0.0, others: 1 };
        let mut starvation = Starvation::default();
        (0..5).for_each(|_| starvation.recall(25.0));
        starvation.leave();
        assert!((0..150).all(|second| starvation.observe(at(second), starved).is_none()), "75 s are missing");
        let got = Want { got: 1.0, ..starved };
        assert!((150..400).all(|second| starvation.observe(at(second), got).is_none()));
        let learned = starvation.take_learned().unwrap();
        assert!((74.0..76.0).contains(&learned) && starvation.take_learned().is_none(), "{learned}");
    }

    #[test]
    fn who_wants_nothing_starves_of_nothing() {
        let mut starvation = Starvation::default();
        let idle = Want { wants: false, got: 0.0, others: 3 };
        assert!((0..1_000).all(|second| starvation.observe(at(second), idle).is_none()));
    }
}
