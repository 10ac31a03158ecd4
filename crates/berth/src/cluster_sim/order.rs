//! Who has a GPU next: a model of what berth does on a node, so that placement is all that differs.
//!
//! `edf` has the claims of `berth_policy::edf`: in time by deadline, then who was given up, then all others in the order they came, who are
//! owed a share. What it leaves out is how turns are taken and given.

use std::time::Duration;

use berth_model::Mono;
use berth_model::deadline::Spread;
use berth_policy::edf::in_time::{Job, spares};
use serde::Serialize;

/// By what rule a GPU is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Earliest deadline first.
    Edf,
    /// In order of arrival, each to its end.
    Fifo,
    /// All at once, as without berth.
    Share,
}

/// One that wants to compute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ready {
    pub due: Option<Mono>,
    pub takes: Option<Spread>,
    pub done: Duration,
    /// It is the one that computes.
    pub computes: bool,
}

/// Why one has the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// It can be in time with the others.
    InTime,
    /// It could be in time by itself, but not all can.
    GivenUp,
    /// No deadline, or one that is lost.
    None,
}

/// Of each its claim, and by how much those that are in time may be delayed; `None` without any.
pub fn claims(ready: &[Ready], switch: Duration, now: Mono) -> (Vec<Claim>, Option<Duration>) {
    let mut claims = vec![Claim::None; ready.len()];
    let jobs: Vec<(usize, Job)> =
        ready.iter().enumerate().filter_map(|(index, one)| Some((index, one.job(switch, now)?))).collect();
    let plan: Vec<Job> = jobs.iter().map(|(_, job)| *job).collect();
    let spares = spares(&plan, now);
    for ((index, _), spare) in jobs.iter().zip(&spares) {
        claims[*index] = if spare.is_some() { Claim::InTime } else { Claim::GivenUp };
    }
    (claims, spares.into_iter().flatten().min())
}

/// Of those with the best claim: in time the one that is due first, given up the shortest, else who came first.
pub fn first(ready: &[Ready], claims: &[Claim]) -> Option<usize> {
    let key = |index: usize| match claims[index] {
        Claim::InTime => (Claim::InTime, ready[index].due, Duration::ZERO),
        Claim::GivenUp => (Claim::GivenUp, None, ready[index].left()),
        Claim::None => (Claim::None, None, Duration::ZERO),
    };
    (0..ready.len()).min_by_key(|index| key(*index))
}

// === impl Ready ===

impl Ready {
    /// What it usually takes, less what it had; nothing where that is not known.
    pub fn left(&self) -> Duration {
        let Some(takes) = self.takes else { return Duration::ZERO };
        let in_all = [takes.median_seconds, takes.p90_seconds, takes.most_seconds];
        let mut left = in_all.into_iter().map(|seconds| Duration::from_secs_f64(seconds).saturating_sub(self.done));
        left.find(|left| !left.is_zero()).unwrap_or_default()
    }

    /// `None` without a deadline that can still be met.
    fn job(&self, switch: Duration, now: Mono) -> Option<Job> {
        let left = self.left() + if self.computes { Duration::ZERO } else { switch };
        self.due.filter(|due| now + left <= *due).map(|due| Job { due, left })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(due: Option<u64>, takes: f64) -> Ready {
        let takes = Spread { units: 1, median_seconds: takes, p90_seconds: takes, most_seconds: takes };
        let due = due.map(|seconds| Mono(0) + Duration::from_secs(seconds));
        Ready { due, takes: Some(takes), done: Duration::ZERO, computes: false }
    }

    fn order(ready: &[Ready]) -> (Vec<Claim>, Option<usize>) {
        let (claims, _) = claims(ready, Duration::ZERO, Mono(0));
        let first = first(ready, &claims);
        (claims, first)
    }

    #[test]
    fn who_is_due_first_goes_first_and_who_has_no_deadline_last() {
        let (claims, first) = order(&[ready(None, 1.0), ready(Some(20), 5.0), ready(Some(10), 5.0)]);
        assert_eq!(claims, [Claim::None, Claim::InTime, Claim::InTime]);
        assert_eq!(first, Some(2));
    }

    #[test]
    fn where_not_all_can_be_in_time_the_longest_is_given_up_and_the_lost_have_no_claim() {
        let (claims, first) = order(&[ready(Some(10), 9.0), ready(Some(11), 3.0), ready(Some(2), 3.0)]);
        assert_eq!(claims, [Claim::GivenUp, Claim::InTime, Claim::None]);
        assert_eq!(first, Some(1));
    }

    #[test]
    fn who_took_longer_than_usual_is_taken_to_need_more_and_of_the_unknown_nothing_is_reckoned() {
        let takes = Spread { units: 9, median_seconds: 2.0, p90_seconds: 3.0, most_seconds: 5.0 };
        let one = |done: f64| Ready { takes: Some(takes), done: Duration::from_secs_f64(done), ..ready(Some(9), 0.0) };
        assert_eq!([0.5, 2.5, 4.0, 6.0].map(|done| one(done).left().as_secs_f64()), [1.5, 0.5, 1.0, 0.0]);
        assert_eq!(Ready { takes: None, ..one(0.0) }.left(), Duration::ZERO);
    }
}
