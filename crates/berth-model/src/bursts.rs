//! How long a tenant computes at once.
//!
//! Pure: whether it computes and how many do so beside it, turn by turn, in; a length out. Of *k* that compute on a GPU each is
//! counted with a *k*-th of the time, so that nobody's bursts look long because of its neighbours.

use crate::time::Mono;

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Bursts {
    /// Share of the GPU since then; nothing while it does not compute.
    rate: f64,
    since: Mono,
    /// GPU seconds of the burst under way.
    burst: f64,
    sum: f64,
    squares: f64,
}

impl Bursts {
    /// From now on it computes as one of `crowd`, or does not.
    pub fn note(&mut self, crowd: Option<u32>, now: Mono) {
        self.burst += self.rate * now.since(self.since).as_secs_f64();
        if crowd.is_none() {
            self.sum += self.burst;
            self.squares += self.burst * self.burst;
            self.burst = 0.0;
        }
        self.rate = crowd.map_or(0.0, |crowd| 1.0 / f64::from(crowd.max(1)));
        self.since = self.since.max(now);
    }

    /// The mean length of its bursts in seconds, each counted as much as it is long: many that are too short to matter do not
    /// hide one that does. `None` if it never computed.
    pub fn usual(mut self, now: Mono) -> Option<f64> {
        self.note(None, now);
        (self.sum > 0.0).then(|| self.squares / self.sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each for so many milliseconds as one of a crowd, or not computing.
    fn usual(course: &[(Option<u32>, u64)]) -> Option<f64> {
        let (mut bursts, mut now) = (Bursts::default(), 0);
        for (crowd, millis) in course {
            bursts.note(*crowd, Mono(now));
            now += millis * 1_000_000;
        }
        bursts.usual(Mono(now)).map(|seconds| (seconds * 1e6).round() / 1e6)
    }

    #[test]
    fn one_burst_is_as_long_as_it_is_and_that_it_goes_on_is_told_more_than_once() {
        assert_eq!(usual(&[(None, 500), (Some(1), 1_000), (Some(1), 1_000), (None, 9_000)]), Some(2.0));
        assert_eq!(usual(&[(Some(1), 2_000)]), Some(2.0), "under way");
        assert_eq!(usual(&[(None, 500)]), None);
    }

    #[test]
    fn what_it_shared_with_others_counts_for_its_share() {
        assert_eq!(usual(&[(Some(1), 1_000), (Some(2), 2_000), (Some(4), 4_000)]), Some(3.0));
    }

    #[test]
    fn many_short_ones_do_not_hide_a_long_one() {
        let mut course = vec![(Some(1), 10_000), (None, 10)];
        course.extend([(Some(1), 1), (None, 10)].repeat(100));
        assert!(usual(&course).is_some_and(|seconds| seconds > 9.0));
        assert_eq!(usual(&[(Some(1), 300), (None, 100)].repeat(5)), Some(0.3));
    }
}
