//! Evidence that a figure has moved, added up value by value (Page's CUSUM, both ways).
//!
//! Each value adds how far it is off, less what may be noise or does not matter; the sum never falls below zero. Noise alone keeps
//! it near zero, a lasting shift makes it grow by the same amount each time. One wild value adds no more than [`MOST`].

use crate::time::Mono;

/// What one value adds at most.
const MOST: f64 = 3.0;

#[derive(Debug, Clone)]
pub struct Cusum {
    /// Values off by less than this, in spreads, speak against a shift.
    slack: f64,
    /// The sum at which it is one.
    limit: f64,
    up: Side,
    down: Side,
}

#[derive(Debug, Clone, Copy, Default)]
struct Side {
    sum: f64,
    /// When the sum last left zero.
    since: Mono,
    /// It has reached the limit, and not fallen below half of it since.
    is_over: bool,
}

/// A lasting shift.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    pub is_up: bool,
    pub since: Mono,
    /// 0 to 1.
    pub sure: f64,
}

impl Cusum {
    pub fn new(limit: f64) -> Self {
        Self { slack: 0.5, limit, up: Side::default(), down: Side::default() }
    }

    /// `off` is how far the value is from what is usual, and `slack` how much of that does not matter, both in spreads.
    pub fn add(&mut self, at: Mono, off: f64, slack: f64) -> Option<Shift> {
        self.slack = slack;
        let most = 2.0 * self.limit;
        self.up.add(at, off - slack, self.limit, most);
        self.down.add(at, -off - slack, self.limit, most);
        self.shift()
    }

    pub fn shift(&self) -> Option<Shift> {
        let side = |side: &Side, is_up| Shift { is_up, since: side.since, sure: self.sure(side.sum) };
        match (self.up.is_over, self.down.is_over) {
            (true, _) => Some(side(&self.up, true)),
            (false, true) => Some(side(&self.down, false)),
            (false, false) => None,
        }
    }

    /// Neither sum is so large that the values may not be usual ones.
    pub fn is_calm(&self) -> bool {
        self.up.sum < self.limit / 2.0 && self.down.sum < self.limit / 2.0
    }

    /// The chance that noise alone brings the sum there falls with exp(−2 · slack · sum), as Siegmund showed.
    fn sure(&self, sum: f64) -> f64 {
        1.0 - (-2.0 * self.slack.min(0.5) * sum).exp()
    }
}

impl Side {
    fn add(&mut self, at: Mono, by: f64, limit: f64, most: f64) {
        if self.sum <= 0.0 {
            self.since = at;
        }
        self.sum = (self.sum + by.min(MOST)).clamp(0.0, most);
        self.is_over = self.sum >= if self.is_over { limit / 2.0 } else { limit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wild_value_is_no_shift_and_several_in_a_row_are() {
        let mut cusum = Cusum::new(8.0);
        assert_eq!(cusum.add(Mono(1), 1e9, 0.5), None);
        (2..10).for_each(|at| assert_eq!(cusum.add(Mono(at), 0.0, 0.5), None));
        assert!((10..13).find_map(|at| cusum.add(Mono(at), 5.0, 0.5)).is_some_and(|shift| shift.is_up));
    }

    #[test]
    fn a_shift_is_dated_to_where_it_began_and_ends_when_values_come_back() {
        let mut cusum = Cusum::new(8.0);
        (0..100).for_each(|at| assert_eq!(cusum.add(Mono(at), if at % 2 == 0 { 0.9 } else { -0.9 }, 0.5), None));
        let shift = (100..200).find_map(|at| cusum.add(Mono(at), -1.5, 0.5)).unwrap();
        assert!(!shift.is_up && shift.since.0.abs_diff(100) <= 2 && shift.sure > 0.99, "{shift:?}");
        assert!((200..300).any(|at| cusum.add(Mono(at), 0.0, 0.5).is_none()));
    }
}
