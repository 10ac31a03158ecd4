//! When a request came, where nobody tells.
//!
//! A program's library sees when a request is begun. If that is right after the end of the one before, it stood in the program's own queue, and its user has
//! waited since it came. It came after the one before had come, and not after it was begun: nothing says when, so the middle is taken. Of requests that come
//! at random that is the latest that is to be expected; of many that queue it is about the time of one.

use std::time::Duration;

use berth_model::Mono;

/// One that is begun so soon after the end of the one before was there already.
const AT_ONCE: Duration = Duration::from_micros(100);

/// Of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// When the latest was begun, and when it came.
    latest: Option<(Mono, Mono)>,
    ended: Mono,
}

impl Queue {
    /// A request was begun. To say so again changes nothing.
    pub fn begins(&mut self, at: Mono) {
        let came = match self.latest {
            Some((began, _)) if began == at => return,
            Some((_, came)) if at <= self.ended + AT_ONCE => came + at.since(came) / 2,
            Some(_) | None => at,
        };
        self.latest = Some((at, came));
    }

    /// The latest is done.
    pub fn ends(&mut self, at: Mono) {
        self.ended = at;
    }

    /// When the one that was begun then came, as far as can be told.
    pub fn came(&self, began: Mono) -> Mono {
        self.latest.filter(|(latest, _)| *latest == began).map_or(began, |(_, came)| came)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: f64) -> Mono {
        Mono(0) + Duration::from_secs_f64(ms / 1e3)
    }

    #[test]
    fn one_that_is_begun_at_the_end_of_another_came_before() {
        let mut queue = Queue::default();
        queue.begins(at(1.0));
        assert_eq!(queue.came(at(1.0)), at(1.0));
        queue.ends(at(3.0));
        queue.begins(at(3.02));
        queue.begins(at(3.02));
        assert_eq!(queue.came(at(3.02)), at(2.01));
        queue.ends(at(5.0));
        queue.begins(at(5.5));
        assert_eq!(queue.came(at(5.5)), at(5.5), "there was a pause");
        assert_eq!(queue.came(at(9.0)), at(9.0), "of that one nothing is known");
    }

    proptest! {
        #[test]
        fn nobody_came_after_it_was_begun_or_before_the_one_before_it(
            steps in prop::collection::vec((1..5_000u64, 0..300u64), 1..50),
        ) {
            let (mut queue, mut now, mut last) = (Queue::default(), Mono(1), Mono(0));
            for (took, pause) in steps {
                queue.begins(now);
                let came = queue.came(now);
                prop_assert!(last <= came && came <= now);
                last = came;
                now = now + Duration::from_micros(took);
                queue.ends(now);
                now = now + Duration::from_micros(pause);
            }
        }
    }
}
