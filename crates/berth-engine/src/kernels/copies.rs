//! What tenants may copy between host and device while one with a goal copies, too.
//!
//! How much the way between host and GPU carries is the most that was seen over a second or so, of all clients together. While somebody with a
//! goal copies, those without one share what that leaves of it, and a quarter of its rate is left free beside it: so it is not slowed, and
//! gets more where it was. They always have an eighth of all. While nobody with a goal copies the hardware shares, and nobody has a budget.
//!
//! Copies are counted when they are submitted, by each client's own library. Who says too much is believed to have a wide way, and all have
//! then what they would have without this.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::shim::ClientId;
use berth_model::Mono;

/// What is shorter says little of a rate: a client may submit a second's copies at once.
const WINDOW: Duration = Duration::from_secs(1);
/// Of the rate of those with a goal, this part is left free beside it.
const HEADROOM_PART: u64 = 4;
/// Of all there is, those without a goal have this part at least.
const LEAST_PART: u64 = 8;

#[derive(Debug, Default)]
pub(super) struct Copies {
    /// When the window began, and what each had copied by then.
    began: Option<Mono>,
    copied: BTreeMap<ClientId, u64>,
    /// Bytes per second of each that copied in the last window, and the most of all together.
    rates: BTreeMap<ClientId, u64>,
    most: u64,
    /// Those with a goal.
    first: BTreeSet<ClientId>,
}

impl Copies {
    /// `all`: what each has copied since it came, and whether it has a goal.
    pub fn look(&mut self, all: impl Iterator<Item = (ClientId, u64, bool)>, now: Mono) {
        let passed = self.began.map_or(Duration::ZERO, |began| now.since(began));
        if self.began.is_some() && passed < WINDOW {
            return;
        }
        let all: Vec<(ClientId, u64, bool)> = all.collect();
        let rate =
            |bytes: u64| u64::try_from(u128::from(bytes) * 1_000 / passed.as_millis().max(1)).unwrap_or(u64::MAX);
        let copied = |(id, copied, _): &(ClientId, u64, bool)| {
            let before = self.copied.get(id)?;
            Some((*id, rate(copied.saturating_sub(*before)))).filter(|(_, rate)| *rate > 0)
        };
        self.rates = all.iter().filter_map(copied).collect();
        self.most = self.most.max(sum(self.rates.values()));
        self.first = all.iter().filter(|(_, _, has_goal)| *has_goal).map(|(id, _, _)| *id).collect();
        self.copied = all.into_iter().map(|(id, copied, _)| (id, copied)).collect();
        self.began = Some(now);
    }

    /// Bytes per second it may copy; `None`: as many as it can.
    pub fn budget(&self, who: ClientId) -> Option<u64> {
        let (first, others): (Vec<_>, Vec<_>) = self.rates.iter().partition(|(id, _)| self.first.contains(id));
        if first.is_empty() || self.first.contains(&who) {
            return None;
        }
        let taken = sum(first.into_iter().map(|(_, rate)| rate));
        let left = self.most.saturating_sub(taken.saturating_add(taken / HEADROOM_PART)).max(self.most / LEAST_PART);
        // Whoever begins to copy is one more.
        let among = others.iter().filter(|(id, _)| **id != who).count() as u64 + 1;
        Some((left / among).max(1))
    }
}

fn sum<'a>(rates: impl Iterator<Item = &'a u64>) -> u64 {
    rates.fold(0, |sum: u64, rate| sum.saturating_add(*rate))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GB: u64 = 1_000_000_000;

    /// Seconds in each of which everybody copies so much.
    fn copies(seconds: &[&[(u64, u64, bool)]]) -> Copies {
        let mut copies = Copies::default();
        let mut all: BTreeMap<u64, u64> = BTreeMap::new();
        copies.look([1, 2, 3, 4].map(|id| (ClientId(id), 0, false)).into_iter(), Mono(0));
        for (second, each) in (1u64..).zip(seconds) {
            each.iter().for_each(|(id, bytes, _)| *all.entry(*id).or_default() += bytes);
            let has_goal = |id: u64| each.iter().any(|(of, _, has_goal)| *of == id && *has_goal);
            let told = [1, 2, 3, 4].map(|id| (ClientId(id), all.get(&id).copied().unwrap_or(0), has_goal(id)));
            copies.look(told.into_iter(), Mono(second * 1_000_000_000));
        }
        copies
    }

    #[test]
    fn those_without_a_goal_share_what_one_with_a_goal_leaves() {
        let alone: &[_] = &[(2, 50 * GB, false)];
        let together: &[_] = &[(1, 8 * GB, true), (2, 20 * GB, false), (3, 10 * GB, false)];
        let copies = copies(&[alone, together]);
        assert_eq!(copies.budget(ClientId(1)), None);
        let each = [2, 3].map(|id| copies.budget(ClientId(id)));
        assert_eq!(each, [Some(20 * GB); 2], "of 50 that were seen, without 8 and a quarter of that");
        assert_eq!(copies.budget(ClientId(4)), Some(40 * GB / 3), "whoever begins is one more");
    }

    #[test]
    fn without_a_goal_or_while_who_has_one_copies_nothing_nobody_has_a_budget() {
        assert_eq!(copies(&[&[(1, GB, false), (2, GB, false)]]).budget(ClientId(1)), None);
        assert_eq!(copies(&[&[(1, 0, true), (2, GB, false)]]).budget(ClientId(2)), None);
    }

    #[test]
    fn a_look_within_a_second_changes_nothing() {
        let mut copies = copies(&[&[(1, 8 * GB, true), (2, 8 * GB, false)]]);
        let before = copies.budget(ClientId(2));
        copies.look([(ClientId(2), 90 * GB, false)].into_iter(), Mono(1_900_000_000));
        assert_eq!((before, copies.budget(ClientId(2))), (Some(6 * GB), Some(6 * GB)));
    }

    proptest! {
        #[test]
        fn those_without_a_goal_have_together_no_more_than_is_left_and_never_nothing(
            each in prop::collection::vec((1..GB, any::<bool>()), 1..5), most in GB..100 * GB,
        ) {
            let each: Vec<(u64, u64, bool)> = (1..).zip(each).map(|(id, (bytes, has_goal))| (id, bytes, has_goal)).collect();
            let copies = copies(&[&[(4, most, false)], &each]);
            let first: u64 = each.iter().filter(|(_, _, has_goal)| *has_goal).map(|(_, bytes, _)| bytes).sum();
            let budgets: Vec<u64> = each.iter().filter_map(|(id, _, _)| copies.budget(ClientId(*id))).collect();
            prop_assert!(budgets.iter().all(|budget| *budget > 0));
            prop_assert!(budgets.iter().sum::<u64>() <= copies.most.saturating_sub(first).max(copies.most / LEAST_PART));
        }
    }
}
