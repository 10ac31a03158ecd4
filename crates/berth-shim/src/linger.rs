//! How long the words stay up after a request, learned from the pauses between the end of one and the beginning of the next.
//!
//! Requests that queue follow each other at once, others come whenever they like. To let go of the words in a short pause costs a good part of
//! a millisecond: the GPU turns to another process and back, and the request that comes waits for that. To keep them up in a long one costs as
//! much as they are kept. So there is a best moment to let go, by how often which pause was seen: behind the pauses of those that queue.
//!
//! Pure but for its counters, which the program's threads add to. Old pauses count for less and less.

use std::sync::atomic::{AtomicU32, Ordering};

/// Pauses are told apart by so much,
const STEP_NS: u64 = 10_000;
/// up to so many steps; longer ones are all the same.
const STEPS: usize = 32;
/// What it costs to let go too early: two context switches of the GPU and what a request waits for them.
const SWITCH_NS: u64 = 500_000;
/// Fewer pauses say nothing.
const FEW: u32 = 32;
/// Of more, half is forgotten.
const MANY: u32 = 2_048;

#[derive(Debug)]
pub(crate) struct Linger {
    /// The last is of all that are longer.
    pauses: [AtomicU32; STEPS + 1],
    count: AtomicU32,
}

impl Default for Linger {
    fn default() -> Self {
        Self { pauses: [const { AtomicU32::new(0) }; STEPS + 1], count: AtomicU32::new(0) }
    }
}

impl Linger {
    /// A request has begun so long after the one before had ended.
    pub(crate) fn note(&self, pause_ns: u64) {
        let step = usize::try_from(pause_ns / STEP_NS).unwrap_or(STEPS).min(STEPS);
        self.pauses[step].fetch_add(1, Ordering::Relaxed);
        // Two that come to it at once forget a little more.
        if self.count.fetch_add(1, Ordering::Relaxed) >= MANY {
            self.count.store(MANY / 2, Ordering::Relaxed);
            for pauses in &self.pauses {
                pauses.store(pauses.load(Ordering::Relaxed) / 2, Ordering::Relaxed);
            }
        }
    }

    /// At the end of a request: for how long to keep the words up, `most_ns` at most, and as long as that until enough is known.
    pub(crate) fn choose(&self, most_ns: u64) -> u64 {
        if self.count.load(Ordering::Relaxed) < FEW { most_ns } else { self.best().min(most_ns) }
    }

    /// The time of which the whole cost, of waiting and of letting go, is the least.
    fn best(&self) -> u64 {
        let counts: [u64; STEPS + 1] = std::array::from_fn(|step| self.pauses[step].load(Ordering::Relaxed).into());
        let all: u64 = counts.iter().sum();
        let (mut ended, mut waited_ns) = (0u64, 0u64);
        let mut best = (all.saturating_mul(SWITCH_NS), 0);
        for (step, count) in counts[..STEPS].iter().enumerate() {
            let until_ns = (step as u64 + 1) * STEP_NS;
            ended += count;
            waited_ns = waited_ns.saturating_add(count.saturating_mul(until_ns));
            let left = all.saturating_sub(ended);
            let cost_ns = waited_ns.saturating_add(left.saturating_mul(until_ns + SWITCH_NS));
            if cost_ns < best.0 {
                best = (cost_ns, until_ns);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const US: u64 = 1_000;
    const MOST: u64 = 200 * US;

    fn seen(pauses_us: &[(u64, u32)]) -> Linger {
        let linger = Linger::default();
        for (pause_us, times) in pauses_us {
            (0..*times).for_each(|_| linger.note(pause_us * US));
        }
        linger
    }

    #[test]
    fn it_lasts_until_behind_the_pauses_of_those_that_queue() {
        assert_eq!(seen(&[(18, 23), (24, 5), (3_000, 72)]).choose(MOST), 30 * US);
        assert_eq!(seen(&[(115, 30), (3_000, 70)]).choose(MOST), 120 * US, "of a slower program");
    }

    #[test]
    fn who_never_queues_lets_go_at_once() {
        assert_eq!(seen(&[(3_000, 100)]).choose(MOST), 0);
        assert_eq!(seen(&[(20, 2), (3_000, 98)]).choose(MOST), 0, "too seldom to wait for");
    }

    #[test]
    fn it_is_no_longer_than_ordered_and_as_long_until_enough_is_known() {
        assert_eq!(seen(&[(20, 31)]).choose(MOST), MOST);
        let linger = seen(&[(90, 100)]);
        assert_eq!(linger.choose(50 * US), 50 * US);
        assert_eq!(linger.choose(MOST), 100 * US);
    }

    #[test]
    fn a_program_that_changes_is_followed() {
        let linger = seen(&[(20, 2_000)]);
        (0..6_000).for_each(|_| linger.note(3_000 * US));
        assert_eq!(linger.choose(MOST), 0);
    }

    proptest! {
        #[test]
        fn nothing_else_would_have_cost_less(pauses in prop::collection::vec(0u64..400 * US, 32..300)) {
            let linger = Linger::default();
            pauses.iter().for_each(|pause| linger.note(*pause));
            let cost = |until: u64| -> u64 {
                let one = |pause: &u64| {
                    let pause = (pause / STEP_NS + 1) * STEP_NS;
                    if pause <= until { pause } else { until + SWITCH_NS }
                };
                pauses.iter().map(one).sum()
            };
            let chosen = cost(linger.choose(u64::MAX));
            prop_assert!((0..=STEPS as u64).all(|step| chosen <= cost(step * STEP_NS)));
        }

        #[test]
        fn garbage_makes_no_panic(pauses in prop::collection::vec(any::<u64>(), 0..100), most in any::<u64>()) {
            let linger = Linger::default();
            pauses.iter().for_each(|pause| linger.note(*pause));
            prop_assert!(linger.choose(most) <= most);
        }
    }
}
