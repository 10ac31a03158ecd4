//! `auto`: which policy is in place, by what each was measured to bring.
//!
//! Whoever asks measures over windows of some length what the policy in place came to ([`Window`]), and tells it here; the answer is the policy for
//! the next window, and why. For each policy the latest windows are remembered, the older the less ([`FADES`]).
//!
//! **What counts.** Goals first: a policy that keeps all of them is better than one that does not. Among those that do, or do not, alike, *benefit*:
//!
//! > goodput × fairness^½ ÷ slowdown^½
//!
//! Work that counts is what a GPU is for; fairness and how much longer jobs take than alone weigh half as much each, so that neither can be had by
//! idling. A product, so that units do not matter.
//!
//! **Hysteresis.** Another policy has to be better by [`MARGIN`], or keep goals that the present one misses, for [`STEADY`] windows in a row; it is changed at
//! most once in [`REST`] windows. **Exploring.** A policy of which nothing is known, or nothing of late ([`STALE`]), is tried for one window, at most once in
//! [`EXPLORE_EVERY`]; never in place of one that keeps all goals if it missed some when it was last tried. So at most one window in
//! [`EXPLORE_EVERY`] is spent on finding out.

use std::collections::BTreeMap;
use std::fmt;

use berth_model::settings::KernelPolicyName;
use serde::{Deserialize, Serialize};

/// What an older window still counts beside the next one.
const FADES: f64 = 0.7;
/// By how much another must be better.
const MARGIN: f64 = 0.05;
/// For so many windows in a row.
const STEADY: u32 = 2;
/// Windows between two changes.
pub const REST: u64 = 3;
/// Windows between two tries.
pub const EXPLORE_EVERY: u64 = 10;
/// After so many windows what was measured is out of date.
const STALE: u64 = 40;

/// The policies it chooses among.
pub const CHOICES: [KernelPolicyName; 3] = [KernelPolicyName::Hybrid, KernelPolicyName::Slo, KernelPolicyName::Jct];

/// What the policy in place came to over one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// GPU time of work that counts, over the window's length.
    pub goodput: f64,
    /// Share of the goals that were kept, 0 to 1; `None` if nobody has one.
    pub kept: Option<f64>,
    /// Jain's index of progress, 0 to 1; `None` if nobody got on.
    pub fairness: Option<f64>,
    /// How much longer work took than alone, 1 or more; `None` if none ended.
    pub slowdown: Option<f64>,
}

/// What is remembered of one policy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Remembered {
    pub policy: KernelPolicyName,
    pub benefit: f64,
    /// Share of the goals that it kept.
    pub kept: f64,
    /// Windows since it was last in place.
    pub windows_ago: u64,
}

/// The policy for the next window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Choice {
    pub policy: KernelPolicyName,
    pub because: Reason,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Reason {
    /// No other was measured to be better by enough.
    Best { benefit: f64 },
    /// Another may be better, and it was changed a short while ago, or that is not sure yet.
    TooSoon { benefit: f64 },
    /// It keeps goals that the one before missed.
    KeepsGoals { kept: f64, kept_before: f64 },
    /// It was measured to bring so much more than the one before.
    Better { benefit: f64, benefit_before: f64 },
    /// Nothing is known of it of late: it is tried for one window.
    Tried,
    /// The try is over.
    Back,
}

/// What was measured of each, and which is in place.
#[derive(Debug, Clone, PartialEq)]
pub struct Auto {
    current: KernelPolicyName,
    /// It is a try; then that one comes back.
    instead_of: Option<KernelPolicyName>,
    windows: u64,
    changed_at: Option<u64>,
    tried_at: Option<u64>,
    /// Who was better for how many windows in a row.
    challenger: Option<(KernelPolicyName, u32)>,
    records: BTreeMap<KernelPolicyName, Record>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Record {
    benefit: f64,
    kept: f64,
    /// In the latest window.
    keeps_all: bool,
    measured_at: u64,
}

impl Auto {
    pub fn new(first: KernelPolicyName) -> Self {
        Self {
            current: first,
            instead_of: None,
            windows: 0,
            changed_at: None,
            tried_at: None,
            challenger: None,
            records: BTreeMap::new(),
        }
    }

    pub fn policy(&self) -> KernelPolicyName {
        self.current
    }

    /// In place of which the present one is tried.
    pub fn instead_of(&self) -> Option<KernelPolicyName> {
        self.instead_of
    }

    /// Windows that were taken in.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// What is remembered of each that was in place.
    pub fn remembered(&self) -> impl Iterator<Item = Remembered> {
        self.records.iter().map(|(policy, record)| Remembered {
            policy: *policy,
            benefit: record.benefit,
            kept: record.kept,
            windows_ago: self.windows - record.measured_at,
        })
    }

    /// Takes in the window that is over, and chooses for the next.
    pub fn window(&mut self, seen: &Window) -> Choice {
        self.windows += 1;
        self.note(seen);
        let (policy, because) = self.choose();
        self.current = policy;
        Choice { policy, because }
    }

    fn note(&mut self, seen: &Window) {
        let (benefit, kept) = (seen.benefit(), seen.kept.unwrap_or(1.0).clamp(0.0, 1.0));
        let (measured_at, keeps_all) = (self.windows, kept >= 1.0);
        let record = self.records.entry(self.current).or_insert(Record { benefit, kept, keeps_all, measured_at });
        // After a long time the past says nothing.
        let fades = if measured_at - record.measured_at > STALE { 0.0 } else { FADES };
        record.benefit = record.benefit * fades + benefit * (1.0 - fades);
        record.kept = record.kept * fades + kept * (1.0 - fades);
        (record.keeps_all, record.measured_at) = (keeps_all, measured_at);
    }

    fn choose(&mut self) -> (KernelPolicyName, Reason) {
        let tried = self.instead_of.take().map(|home| (home, self.current));
        let home = tried.map_or(self.current, |(home, _)| home);
        let Some(own) = self.records.get(&home).copied() else { return (home, Reason::Back) };
        let better = self.better_than(home, own);
        self.challenger = better.map(|(who, _)| {
            let rounds = self.challenger.filter(|(before, _)| *before == who).map_or(1, |(_, rounds)| rounds + 1);
            (who, rounds)
        });
        // A try that kept all goals where home did not is no try any more: going back would give them up.
        let rescued =
            tried.is_some_and(|(_, who)| !own.keeps_all && self.records.get(&who).is_some_and(|one| one.keeps_all));
        let steady = self.challenger.is_some_and(|(_, rounds)| rounds >= STEADY);
        let rested = self.changed_at.is_none_or(|at| self.windows >= at + REST);
        if let Some((who, because)) = better.filter(|_| rested && (steady || rescued)) {
            (self.changed_at, self.challenger) = (Some(self.windows), None);
            return (who, because);
        }
        if tried.is_some() {
            return (home, Reason::Back);
        }
        if let Some(other) = self.worth_a_try(home, own).filter(|_| rested) {
            (self.instead_of, self.tried_at) = (Some(home), Some(self.windows));
            return (other, Reason::Tried);
        }
        let benefit = own.benefit;
        (home, if better.is_some() { Reason::TooSoon { benefit } } else { Reason::Best { benefit } })
    }

    /// The best of the others, if it is better by enough.
    fn better_than(&self, home: KernelPolicyName, own: Record) -> Option<(KernelPolicyName, Reason)> {
        let fresh = |record: &Record| self.windows - record.measured_at <= STALE;
        let others = self.records.iter().filter(|(who, record)| **who != home && fresh(record));
        let (who, best) = others.max_by(|(_, one), (_, other)| one.rank().total_cmp(&other.rank()))?;
        let (benefit, benefit_before) = (best.benefit, own.benefit);
        let keeps_more = best.kept > own.kept + MARGIN && !own.keeps_all;
        if (best.keeps_all && !own.keeps_all) || keeps_more {
            return Some((*who, Reason::KeepsGoals { kept: best.kept, kept_before: own.kept }));
        }
        let as_good = best.keeps_all || (!own.keeps_all && best.kept + MARGIN >= own.kept);
        (as_good && benefit > benefit_before * (1.0 + MARGIN))
            .then_some((*who, Reason::Better { benefit, benefit_before }))
    }

    /// One of which nothing is known of late, the longest unknown first.
    fn worth_a_try(&self, home: KernelPolicyName, own: Record) -> Option<KernelPolicyName> {
        if self.tried_at.is_some_and(|at| self.windows < at + EXPLORE_EVERY) {
            return None;
        }
        let known_at = |who: &KernelPolicyName| self.records.get(who).map(|record| record.measured_at);
        let is_unknown = |who: &KernelPolicyName| known_at(who).is_none_or(|at| self.windows - at > STALE);
        let is_safe = |who: &KernelPolicyName| !own.keeps_all || self.records.get(who).is_none_or(|one| one.keeps_all);
        CHOICES.into_iter().filter(|who| *who != home && is_unknown(who) && is_safe(who)).min_by_key(known_at)
    }
}

impl Window {
    fn benefit(&self) -> f64 {
        let fairness = self.fairness.unwrap_or(1.0).clamp(0.01, 1.0);
        let slowdown = self.slowdown.unwrap_or(1.0).max(1.0);
        self.goodput.max(0.0) * (fairness / slowdown).sqrt()
    }
}

impl Record {
    /// Goals first.
    fn rank(&self) -> f64 {
        if self.keeps_all { 1e6 + self.benefit } else { self.kept * 1e3 + self.benefit }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Reason::Best { benefit } => write!(f, "no other brings more than its {benefit:.2}"),
            Reason::TooSoon { benefit } => {
                write!(f, "another may bring more than its {benefit:.2}, which is not sure yet")
            }
            Reason::KeepsGoals { kept, kept_before } => {
                write!(
                    f,
                    "it keeps {:.0} % of the goals, the one before kept {:.0} %",
                    kept * 100.0,
                    kept_before * 100.0
                )
            }
            Reason::Better { benefit, benefit_before } => {
                write!(f, "it brings {benefit:.2}, the one before brought {benefit_before:.2}")
            }
            Reason::Tried => f.write_str("nothing is known of it of late; it is tried for one window"),
            Reason::Back => f.write_str("the try of another is over"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(goodput: f64, kept: f64) -> Window {
        Window { goodput, kept: Some(kept), fairness: Some(1.0), slowdown: Some(1.0) }
    }

    /// Goodput and goals kept by policy.
    type World = fn(KernelPolicyName, u64) -> (f64, f64);

    fn run(world: World, windows: u64) -> Vec<Choice> {
        let mut auto = Auto::new(KernelPolicyName::Hybrid);
        let each = (0..windows).map(|at| {
            let (goodput, kept) = world(auto.policy(), at);
            auto.window(&window(goodput, kept))
        });
        each.collect()
    }

    #[test]
    fn it_finds_the_one_that_brings_most_and_stays() {
        let chosen = run(|who, _| if who == KernelPolicyName::Jct { (1.5, 1.0) } else { (1.0, 1.0) }, 60);
        let settled = &chosen[30..];
        let jct = settled.iter().filter(|choice| choice.policy == KernelPolicyName::Jct).count();
        assert!(jct >= 26, "{settled:?}");
        assert!(chosen.iter().any(|choice| matches!(choice.because, Reason::Better { .. })));
    }

    #[test]
    fn it_follows_when_another_becomes_the_best() {
        let world: World = |who, at| match (who, at < 100) {
            (KernelPolicyName::Jct, true) | (KernelPolicyName::Slo, false) => (1.5, 1.0),
            _ => (1.0, 1.0),
        };
        let chosen = run(world, 220);
        let of =
            |range: std::ops::Range<usize>, who| chosen[range].iter().filter(|choice| choice.policy == who).count();
        assert!(of(50..100, KernelPolicyName::Jct) >= 44);
        assert!(of(170..220, KernelPolicyName::Slo) >= 44, "{:?}", &chosen[170..]);
    }

    #[test]
    fn goals_go_before_anything_else_that_is_gained() {
        let chosen = run(|who, _| if who == KernelPolicyName::Slo { (0.8, 1.0) } else { (2.0, 0.5) }, 60);
        let slo = chosen[30..].iter().filter(|choice| choice.policy == KernelPolicyName::Slo).count();
        assert!(slo >= 28, "{chosen:?}");
        assert!(chosen.iter().any(|choice| matches!(choice.because, Reason::KeepsGoals { .. })));
    }

    #[test]
    fn what_is_remembered_is_told_with_its_age() {
        let mut auto = Auto::new(KernelPolicyName::Hybrid);
        auto.window(&window(1.0, 1.0));
        assert_eq!(
            (auto.policy(), auto.instead_of()),
            (KernelPolicyName::Slo, Some(KernelPolicyName::Hybrid)),
            "a try"
        );
        auto.window(&window(0.5, 0.5));
        assert_eq!((auto.policy(), auto.instead_of(), auto.windows()), (KernelPolicyName::Hybrid, None, 2));
        let told: Vec<_> = auto.remembered().map(|one| (one.policy, one.benefit, one.kept, one.windows_ago)).collect();
        assert_eq!(told, [(KernelPolicyName::Slo, 0.5, 0.5, 0), (KernelPolicyName::Hybrid, 1.0, 1.0, 1)]);
    }

    #[test]
    fn a_little_more_is_not_enough_to_change() {
        let chosen = run(|who, _| if who == KernelPolicyName::Hybrid { (1.0, 1.0) } else { (1.04, 1.0) }, 60);
        let stays = chosen.iter().filter(|choice| choice.policy == KernelPolicyName::Hybrid).count();
        assert!(stays >= 54, "{chosen:?}");
    }

    fn worlds() -> impl Strategy<Value = Vec<[(f64, bool); 3]>> {
        prop::collection::vec(
            [(0.1..2.0f64, any::<bool>()), (0.1..2.0, any::<bool>()), (0.1..2.0, any::<bool>())],
            1..120,
        )
    }

    proptest! {
        #[test]
        fn it_rests_between_changes_explores_seldom_and_never_trades_kept_goals_for_missed_ones(world in worlds()) {
            let mut auto = Auto::new(KernelPolicyName::Hybrid);
            let mut last_kept: BTreeMap<KernelPolicyName, bool> = BTreeMap::new();
            let (mut changed, mut tried): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
            let mut home = auto.policy();
            for (at, each) in (0..).zip(world) {
                let now = auto.policy();
                let place = CHOICES.iter().position(|who| *who == now).unwrap();
                let (goodput, keeps) = each[place];
                last_kept.insert(now, keeps);
                let choice = auto.window(&window(goodput, if keeps { 1.0 } else { 0.6 }));
                let missed = last_kept.get(&choice.policy) == Some(&false);
                prop_assert!(!(keeps && choice.policy != now && missed), "{now:?} kept all, {:?} did not", choice.policy);
                match choice.because {
                    Reason::Tried => tried.push(at),
                    Reason::Better { .. } | Reason::KeepsGoals { .. } => {
                        changed.push(at);
                        home = choice.policy;
                    }
                    Reason::Best { .. } | Reason::TooSoon { .. } | Reason::Back => prop_assert_eq!(choice.policy, home),
                }
            }
            prop_assert!(changed.windows(2).all(|pair| pair[1] - pair[0] >= REST), "{changed:?}");
            prop_assert!(tried.windows(2).all(|pair| pair[1] - pair[0] >= EXPLORE_EVERY), "{tried:?}");
        }
    }
}
