//! What each client uses of a GPU's memory bandwidth while it runs, from what all use together.
//!
//! The GPU's counters tell no processes apart. Over each reading a client ran for a part *x* of the time and used *b* of the bandwidth meanwhile, so
//! that together they used Σ x·b. Each reading moves the estimates of those who ran towards what it says, by how much each ran (a normalised
//! least mean squares filter): a client that was alone is known by one reading, those that take turns by a few in which their parts differ, and a change
//! of phase is followed. What is not told apart stays shared out as it was.
//!
//! Readings say nothing of anybody where a process ran that does not take part. Where clients run at the same time they slow each other, and
//! only readings count in which one had nearly all of the time.

use std::collections::BTreeMap;

use berth_host::shim::ClientId;
use berth_model::BandwidthUse;

/// How far a reading moves what is known.
const STEP: f64 = 0.5;
/// A smaller part of the time says nothing of a client.
const LEAST_PART: f64 = 0.02;
/// Beside one that runs at the same time, others may have no more than this.
const ALONE: f64 = 0.95;
/// Readings before an estimate is one.
const FEW: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Bandwidth {
    /// GPU time of each at the last reading.
    served_ns: BTreeMap<ClientId, u64>,
    known: BTreeMap<ClientId, Estimate>,
}

#[derive(Debug, Clone, Copy)]
struct Estimate {
    share: f64,
    readings: u32,
}

impl Bandwidth {
    /// A reading, and how much GPU time each has had so far. `is_known`: nobody else has used it. `at_once`: they run at the same time.
    pub fn saw(&mut self, seen: &BandwidthUse, served_ns: BTreeMap<ClientId, u64>, is_known: bool, at_once: bool) {
        let seconds = seen.until.since(seen.since).as_secs_f64();
        let before = std::mem::replace(&mut self.served_ns, served_ns);
        let part = |(who, now): (&ClientId, &u64)| {
            let had = now.saturating_sub(*before.get(who)?) as f64 / 1e9;
            Some((*who, (had / seconds).min(1.0))).filter(|(_, part)| *part >= LEAST_PART)
        };
        let parts: Vec<(ClientId, f64)> = self.served_ns.iter().filter_map(part).collect();
        let (most, all) = parts.iter().fold((0.0, 0.0), |(most, all), (_, part)| (f64::max(most, *part), all + part));
        // Of somebody who came meanwhile nobody knows how long it ran.
        let is_of_all = self.served_ns.keys().all(|who| before.contains_key(who));
        if is_known && is_of_all && seconds > 0.0 && all > 0.0 && (!at_once || most >= all * ALONE) {
            self.learn(seen.share, &parts, all);
        }
    }

    fn learn(&mut self, share: f64, parts: &[(ClientId, f64)], all: f64) {
        let guess = Estimate { share: (share / all).clamp(0.0, 1.0), readings: 0 };
        let estimate = |known: &BTreeMap<ClientId, Estimate>, who| known.get(&who).copied().unwrap_or(guess);
        let expected: f64 = parts.iter().map(|(who, part)| part * estimate(&self.known, *who).share).sum();
        let squares: f64 = parts.iter().map(|(_, part)| part * part).sum();
        for (who, part) in parts {
            let Estimate { share: old, readings } = estimate(&self.known, *who);
            let new = (old + STEP * (share - expected) * part / squares).clamp(0.0, 1.0);
            self.known.insert(*who, Estimate { share: new, readings: readings.saturating_add(1) });
        }
    }

    /// Of all there is, 0 to 1; `None` until it is known.
    pub fn of(&self, who: ClientId) -> Option<f64> {
        self.known.get(&who).filter(|known| known.readings >= FEW).map(|known| known.share)
    }

    pub fn forget(&mut self, who: ClientId) {
        self.served_ns.remove(&who);
        self.known.remove(&who);
    }
}

#[cfg(test)]
mod tests {
    use berth_model::{GpuIndex, Mono};
    use proptest::prelude::*;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn nanos(seconds: f64) -> u64 {
        u64::try_from(std::time::Duration::from_secs_f64(seconds).as_nanos()).unwrap()
    }

    /// Clients that use so much while they run, and have run so long.
    #[derive(Default)]
    struct Scene {
        bandwidth: Bandwidth,
        served: BTreeMap<ClientId, u64>,
        now: u64,
    }

    impl Scene {
        /// A second passes in which each ran for a part and used that much meanwhile.
        fn second(&mut self, ran: &[(u64, f64, f64)], is_known: bool, at_once: bool) {
            let share: f64 = ran.iter().map(|(_, part, uses)| part * uses).sum();
            for (who, part, _) in ran {
                *self.served.entry(ClientId(*who)).or_default() += nanos(*part);
            }
            self.now += SECOND;
            let (since, until) = (Mono(self.now - SECOND), Mono(self.now));
            let seen = BandwidthUse { gpu: GpuIndex(0), share: share.min(1.0), since, until };
            self.bandwidth.saw(&seen, self.served.clone(), is_known, at_once);
        }

        fn of(&self, who: u64) -> Option<f64> {
            self.bandwidth.of(ClientId(who)).map(|share| (share * 100.0).round() / 100.0)
        }
    }

    #[test]
    fn one_that_is_alone_is_known_by_what_is_used_while_it_runs() {
        let mut scene = Scene::default();
        (0..3).for_each(|_| scene.second(&[(1, 0.5, 0.6)], true, false));
        assert_eq!(scene.of(1), None, "the first reading has none before it");
        scene.second(&[(1, 0.25, 0.6)], true, false);
        assert_eq!(scene.of(1), Some(0.6));
        (0..12).for_each(|_| scene.second(&[(1, 1.0, 0.1)], true, false));
        assert_eq!(scene.of(1), Some(0.1), "another phase");
    }

    #[test]
    fn those_that_take_turns_are_told_apart_when_their_parts_differ() {
        let mut scene = Scene::default();
        for number in 0..60 {
            let part = [0.2, 0.5, 0.7][number % 3];
            scene.second(&[(1, part, 0.8), (2, 0.95 - part, 0.1)], true, false);
        }
        assert_eq!((scene.of(1), scene.of(2)), (Some(0.8), Some(0.1)));
    }

    #[test]
    fn what_strangers_used_and_those_that_slow_each_other_is_nobody_s() {
        let mut scene = Scene::default();
        (0..9).for_each(|_| scene.second(&[(1, 0.5, 0.6)], false, false));
        assert_eq!(scene.of(1), None);
        (0..9).for_each(|_| scene.second(&[(1, 0.5, 0.6), (2, 0.5, 0.6)], true, true));
        assert_eq!(scene.of(1), None);
        (0..9).for_each(|_| scene.second(&[(1, 0.9, 0.6), (2, 0.03, 0.6)], true, true));
        assert_eq!(scene.of(1), Some(0.6), "nearly alone");
        scene.bandwidth.forget(ClientId(1));
        assert_eq!(scene.of(1), None);
    }

    proptest! {
        #[test]
        fn whatever_is_told_an_estimate_is_a_share(
            seconds in prop::collection::vec((0.0f64..1.0, 0.0f64..1.0, 0.0f64..5.0, 0.0f64..5.0, any::<bool>()), 0..50),
        ) {
            let mut scene = Scene::default();
            for (one, other, uses, others, at_once) in seconds {
                scene.second(&[(1, one, uses), (2, other, others)], true, at_once);
                for who in [1, 2] {
                    prop_assert!(scene.of(who).is_none_or(|share| (0.0..=1.0).contains(&share)));
                }
            }
        }
    }
}
