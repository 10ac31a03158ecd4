//! How much each client counts: weights that follow missed goals, and what work is worth.
//!
//! After every squad:
//!
//! > w(t+1) = w(t) × exp(α × (SLO_target − SLO_actual))
//!
//! **α** (`kernels.alpha`) is 0.02 for each squad of 2 ms: one that misses everything counts twice as much after 35 squads, 70 ms. That is slower than a
//! request, so one late request moves little, and faster than people notice. One that keeps its goals with something to spare shrinks by the
//! same rule.
//!
//! **Squads are counted by the clock** ([`Weights::follow`]): plans are made anew whenever somebody begins or is done, a thousand times a second or
//! seldom, and few squads come to their end. So what counts is the time since the last plan over the length of a squad, in whole and parts, and at most
//! [`AT_ONCE`]: what is seen now says little of what was long ago.
//!
//! **Bounds.** A weight stays within a factor of [`MOST`] of its start: with the exponential rule alone a goal that cannot be kept would take
//! the whole GPU in the end. **A leak** ([`LEAK`]) draws it back to its start, so that old misses are forgotten within a second. **Normalised**: weights
//! are divided by their geometric mean, which is 1 afterwards but for the bounds; only their ratio means anything.
//!
//! **SLO_actual** is the least of how well latency, throughput and availability were kept ([`Attained::combined`]): a promise of two parts is kept
//! if both are. **Q** ([`quality`]) is what work is worth: all of it if it will be in time, and `kernels.late_worth` of it, a quarter, if it will not (whose work it is asked of says `hybrid`), since
//! somebody still waits for it. The mean of the past is in the weight already, so Q looks ahead.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::Mono;
use berth_model::settings::KernelSettings;

use super::{Client, ClientId};

/// A weight is at most so many times its start, and at least that part of it.
pub const MOST: f64 = 8.0;
/// Part of a weight's logarithm that is lost with each squad.
const LEAK: f64 = 0.002;
/// Squads that are made up for at once.
const AT_ONCE: f64 = 50.0;
/// The least and the most that words make of a weight.
const QUIETEST: f64 = 0.5;
const LOUDEST: f64 = 2.0;

/// What the words of a client's owner make of its weight, as a factor: 1 where nobody said anything. Within bounds whatever is said, so that it orders what
/// is alike and outweighs no goal.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Voice(f64);

/// Weights of the clients of one GPU, without what people have set. One that was never heard of has 1.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Weights {
    logarithms: BTreeMap<ClientId, f64>,
    /// Until when they have followed.
    at: Option<Mono>,
}

/// How well the goals of one client were kept, each 0 to 1; `None` without such a goal, or before anything was seen.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Attained {
    /// Share of its requests that were in time.
    pub latency: Option<f64>,
    /// What it got done over what was promised.
    pub throughput: Option<f64>,
    /// Share of the time it wanted the GPU in which it got on, over what was promised.
    pub availability: Option<f64>,
}

/// How one client's goal is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kept {
    who: ClientId,
    /// Attainment to be reached, 0 to 1.
    target: f64,
    /// `None`: it has no goal, or nothing was seen; its weight only leaks.
    actual: Option<f64>,
}

impl Weights {
    pub fn of(&self, who: ClientId) -> f64 {
        self.logarithms.get(&who).map_or(1.0, |logarithm| logarithm.exp())
    }

    /// Takes in how goals are kept now, for the time since the last time, with everybody who is there; others are forgotten.
    pub fn follow(&mut self, clients: &[Client], settings: &KernelSettings, now: Mono) {
        let passed = self.at.replace(now).map_or(Duration::ZERO, |at| now.since(at));
        let squads = (passed.as_secs_f64() / settings.squad.get().as_secs_f64()).min(AT_ONCE);
        let kept: Vec<Kept> = clients.iter().map(Kept::of).collect();
        self.pass(&kept, f64::from(settings.alpha) / 1e3, squads);
    }

    /// So many squads in which goals were kept like this: the rule that many times over, where parts of a squad add up to a whole one.
    fn pass(&mut self, kept: &[Kept], alpha: f64, squads: f64) {
        let stays = (1.0 - LEAK).powf(squads);
        let next = |one: &Kept| {
            let missed = one.actual.map_or(0.0, |actual| one.target - actual.clamp(0.0, 1.0));
            let now = self.logarithms.get(&one.who).copied().unwrap_or(0.0);
            (one.who, now * stays + alpha * missed * (1.0 - stays) / LEAK)
        };
        let mut all: BTreeMap<ClientId, f64> = kept.iter().map(next).collect();
        let mean = all.values().sum::<f64>() / all.len().max(1) as f64;
        let most = MOST.ln();
        all.values_mut().for_each(|logarithm| *logarithm = (*logarithm - mean).clamp(-most, most));
        self.logarithms = all;
    }
}

impl Kept {
    fn of(client: &Client) -> Self {
        Self { who: client.id, target: client.slo.target().get(), actual: client.attainment }
    }
}

impl Voice {
    /// What is no number says nothing.
    pub fn new(factor: f64) -> Self {
        Self(if factor.is_nan() { 1.0 } else { factor.clamp(QUIETEST, LOUDEST) })
    }

    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Voice {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Attained {
    /// The least: a promise of several parts is kept if all are.
    pub fn combined(self) -> Option<f64> {
        let each = [self.latency, self.throughput, self.availability].into_iter().flatten();
        each.map(|part| part.clamp(0.0, 1.0)).min_by(f64::total_cmp)
    }
}

/// What work is worth that needs `left` of GPU time alone, gets on at `speed`, and is due in `due_in`, where late work is worth `late`; `None`: it is never late.
pub fn quality(left: Duration, speed: f64, due_in: Option<Duration>, late: f64) -> f64 {
    if due_in.is_none_or(|due_in| is_in_time(left, speed, due_in)) { 1.0 } else { late }
}

pub fn is_in_time(left: Duration, speed: f64, due_in: Duration) -> bool {
    left.as_secs_f64() <= due_in.as_secs_f64() * speed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::client;
    use super::*;

    fn kept(who: u64, actual: f64) -> Kept {
        Kept { who: ClientId(who), target: 0.99, actual: Some(actual) }
    }

    #[test]
    fn one_that_misses_its_goal_counts_more_with_every_squad_and_loses_it_again() {
        let mut weights = Weights::default();
        let mut last = 1.0;
        for _ in 0..35 {
            weights.pass(&[kept(1, 0.0), kept(2, 0.99)], 0.02, 1.0);
            assert!(weights.of(ClientId(1)) > last);
            last = weights.of(ClientId(1));
        }
        let ratio = last / weights.of(ClientId(2));
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        (0..2_000).for_each(|_| weights.pass(&[kept(1, 1.0), kept(2, 0.99)], 0.02, 1.0));
        assert!(weights.of(ClientId(1)) < 1.0);
    }

    /// The weight of one that misses everything beside one that keeps its goal, after so long with looks so far apart.
    fn missing(all: Duration, every: Duration) -> f64 {
        let (mut weights, mut now) = (Weights::default(), Mono(0));
        let mut clients = [client(1), client(2)];
        (clients[0].attainment, clients[1].attainment) = (Some(0.0), Some(0.99));
        while now <= Mono(0) + all {
            weights.follow(&clients, &KernelSettings::default(), now);
            now = now + every;
        }
        weights.of(ClientId(1)) / weights.of(ClientId(2))
    }

    #[test]
    fn weights_follow_the_time_that_passes_however_often_plans_are_made() {
        let ms = Duration::from_millis;
        let squad_by_squad = missing(ms(80), ms(2));
        assert!((1.9..2.4).contains(&squad_by_squad), "{squad_by_squad}");
        for every in [Duration::from_micros(100), ms(1), ms(10), ms(80)] {
            let ratio = missing(ms(80), every);
            assert!((ratio / squad_by_squad - 1.0).abs() < 0.001, "{every:?}: {ratio} and not {squad_by_squad}");
        }
    }

    #[test]
    fn what_is_seen_after_a_long_pause_is_not_taken_for_all_of_it() {
        let ratio = missing(Duration::from_secs(60), Duration::from_secs(60));
        assert!((2.0..3.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn a_promise_of_two_parts_is_as_good_as_the_worse() {
        let attained = Attained { latency: Some(0.9), throughput: Some(1.3), availability: None };
        assert_eq!(attained.combined(), Some(0.9));
        assert_eq!(Attained::default().combined(), None);
    }

    #[test]
    fn work_that_will_be_late_is_worth_less_and_never_nothing() {
        let ms = Duration::from_millis;
        assert_eq!(quality(ms(10), 0.5, Some(ms(20)), 0.25), 1.0);
        assert_eq!(quality(ms(10), 0.49, Some(ms(20)), 0.25), 0.25);
        assert_eq!(quality(ms(10), 0.1, None, 0.25), 1.0);
    }

    #[test]
    fn words_count_within_bounds_and_none_count_as_one() {
        let voices = [0.0, 0.7, 1.3, f64::INFINITY, f64::NAN].map(|factor| Voice::new(factor).get());
        assert_eq!(voices, [0.5, 0.7, 1.3, 2.0, 1.0]);
        assert_eq!(Voice::default(), Voice::new(1.0));
    }

    proptest! {
        #[test]
        fn weights_stay_bounded_and_their_ratio_is_all_that_counts(
            rounds in prop::collection::vec(prop::collection::vec(0.0..=1.0f64, 1..6), 1..400), alpha in 0.001..1.0f64, squads in 0.0..50.0f64,
        ) {
            let mut weights = Weights::default();
            for round in rounds {
                let all: Vec<Kept> = round.iter().zip(1..).map(|(actual, who)| kept(who, *actual)).collect();
                weights.pass(&all, alpha, squads);
                for one in &all {
                    let weight = weights.of(one.who);
                    prop_assert!((1.0 / MOST - 1e-9..=MOST + 1e-9).contains(&weight), "{weight}");
                }
            }
        }
    }
}
