//! When a request came, where nobody tells.
//!
//! A program's library sees when a request is begun. If that is right after the end of the one before, it stood in the program's own queue, and its user has
//! waited since it came. It came after the one before had come, and not after it was begun: nothing says when, so the middle is taken. Of requests that come
//! at random that is the latest that is to be expected; of many that queue it is about the time of one.

use std::time::Duration;

use berth_model::Mono;

/// One that is begun so soon after the end of the one before was there already.
const AT_ONCE: Duration = Duration::from_micros(100);

/// The requests of one client, as far as looks see them. Ends may be told after the next was begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Queue {
    /// The latest that was begun.
    latest: Option<Mono>,
    /// The one before: when it was begun, and when it came.
    before: Option<(Mono, Mono)>,
    /// The latest that has ended: when it was begun, and when it ended.
    ended: Option<(Mono, Mono)>,
}

impl Queue {
    /// A look finds a request under way that was begun then.
    pub fn begins(&mut self, at: Mono) {
        if self.latest != Some(at) {
            self.before = self.latest.map(|latest| (latest, self.came(latest)));
            self.latest = Some(at);
        }
    }

    /// The request that was begun then has ended.
    pub fn ends(&mut self, began: Mono, at: Mono) {
        self.ended = Some((began, at));
    }

    /// When the one that was begun then came, as far as can be told.
    pub fn came(&self, began: Mono) -> Mono {
        let at_once = |(_, at): &(Mono, Mono)| *at <= began && began <= *at + AT_ONCE && self.latest == Some(began);
        let Some((before, _)) = self.ended.filter(at_once) else { return began };
        // One that no look saw came when it was begun.
        let since = self.before.filter(|(other, _)| *other == before).map_or(before, |(_, came)| came);
        since + began.since(since) / 2
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
        queue.begins(at(3.02));
        assert_eq!(queue.came(at(3.02)), at(3.02), "nobody has told yet when the one before ended");
        queue.ends(at(1.0), at(3.0));
        assert_eq!(queue.came(at(3.02)), at(2.01));
        queue.ends(at(3.02), at(5.0));
        queue.begins(at(5.5));
        assert_eq!(queue.came(at(5.5)), at(5.5), "there was a pause");
        queue.ends(at(8.0), at(9.0));
        queue.begins(at(9.0));
        assert_eq!(queue.came(at(9.0)), at(8.5), "it is not counted from one long ago");
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
                let end = now + Duration::from_micros(took);
                queue.ends(now, end);
                now = end + Duration::from_micros(pause);
            }
        }
    }
}
