//! What tenants may copy between host and device while one with a goal copies, too.
//!
//! How much the way between host and GPU carries is the most that was seen over a second or so, of all clients together. While somebody with a
//! goal copies, those without one share what that leaves of it, and a quarter of its rate is left free beside it: so it is not slowed, and
//! gets more where it was. They always have an eighth of all. While nobody with a goal copies the hardware shares, and nobody has a budget.
//! A budget is a tenant's: its processes that copy divide it.
//!
//! Copies are counted when they are submitted, by each client's own library. Who says too much is believed to have a wide way, and all have
//! then what they would have without this. What was seen once fades while copies go on and nobody is held back. While somebody is, what goes
//! over the way says nothing of how wide it is: it is tried. Where those who are held back use up what they may, a little more is believed to be
//! there, and less again where those with a goal copy less than they did.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::shim::ClientId;
use berth_model::{Mono, TenantKey};

/// What is shorter says little of a rate: a client may submit a second's copies at once.
const WINDOW: Duration = Duration::from_secs(1);
/// Of the rate of those with a goal, this part is left free beside it.
const HEADROOM_PART: u64 = 4;
/// Of all there is, those without a goal have this part at least.
const LEAST_PART: u64 = 8;
/// Bytes per second that no way between host and device carries.
const WIDEST: u64 = 1_000_000_000_000;
/// So many billionths of the most that was seen fade in each millisecond of copying: half of it in ten minutes.
const FADES_PER_MS: u128 = 1_155;

/// In each window in which all that is allowed is used, this part more is tried; and this part less where those with a goal
const TRIED_PART: u64 = 16;
const TAKEN_BACK_PART: u64 = 5;
/// have lost more than this part of the most they had of late, of which this part is forgotten in each window.
const LOST_PART: u64 = 10;
const FORGOTTEN_PART: u64 = 64;

/// One client at a look.
#[derive(Debug)]
pub(super) struct Copied {
    pub who: ClientId,
    pub tenant: TenantKey,
    /// Since it came.
    pub bytes: u64,
    pub has_goal: bool,
}

#[derive(Debug, Default)]
pub(super) struct Copies {
    /// When the window began, and what each had copied by then.
    began: Option<Mono>,
    copied: BTreeMap<ClientId, u64>,
    /// Bytes per second of each tenant that copied in the last window, and the most of all together.
    rates: BTreeMap<TenantKey, u64>,
    most: u64,
    /// Those with a goal, the most they had of late, and what all others were then allowed together.
    first: BTreeSet<TenantKey>,
    best: u64,
    allowed: u64,
}

impl Copies {
    pub fn look(&mut self, all: impl Iterator<Item = Copied>, now: Mono) {
        let passed = self.began.map_or(Duration::ZERO, |began| now.since(began));
        if self.began.is_some() && passed < WINDOW {
            return;
        }
        let all: Vec<Copied> = all.collect();
        let was_held_back = self.holds_back();
        self.rates.clear();
        for one in &all {
            let before = self.copied.get(&one.who).copied().unwrap_or(one.bytes);
            let rate = per_second(one.bytes.saturating_sub(before), passed);
            if rate > 0 {
                let own = self.rates.entry(one.tenant.clone()).or_default();
                *own = own.saturating_add(rate);
            }
        }
        let seen = sum(self.rates.values()).min(WIDEST);
        if seen > 0 && !was_held_back {
            self.most = faded(self.most, passed);
        }
        let was_first = std::mem::take(&mut self.first);
        self.first = all.iter().filter(|one| one.has_goal).map(|one| one.tenant.clone()).collect();
        let (taken, others) = self.taken();
        if was_held_back && self.first == was_first {
            if taken < self.best - self.best / LOST_PART {
                self.most -= self.most / TAKEN_BACK_PART;
            } else if others >= self.allowed - self.allowed / LOST_PART {
                self.most = self.most.saturating_add(self.most / TRIED_PART).min(WIDEST);
            }
            self.best = taken.max(self.best - self.best / FORGOTTEN_PART);
        } else {
            self.best = taken;
        }
        self.most = self.most.max(seen);
        self.allowed = self.left();
        self.copied = all.into_iter().map(|one| (one.who, one.bytes)).collect();
        self.began = Some(now);
    }

    /// Bytes per second of those with a goal, and of all others.
    fn taken(&self) -> (u64, u64) {
        let (first, others): (Vec<_>, Vec<_>) = self.rates.iter().partition(|(of, _)| self.first.contains(*of));
        (sum(first.into_iter().map(|(_, rate)| rate)), sum(others.into_iter().map(|(_, rate)| rate)))
    }

    /// What those without a goal may have together.
    fn left(&self) -> u64 {
        let (taken, _) = self.taken();
        self.most.saturating_sub(taken.saturating_add(taken / HEADROOM_PART)).max(self.most / LEAST_PART)
    }

    /// Bytes per second that all of its processes may copy together; `None`: as many as they can.
    pub fn budget(&self, tenant: &TenantKey) -> Option<u64> {
        if !self.holds_back() || self.first.contains(tenant) {
            return None;
        }
        // Whoever begins to copy is one more.
        let others = self.rates.keys().filter(|of| !self.first.contains(*of) && *of != tenant);
        let among = others.count() as u64 + 1;
        Some((self.left() / among).max(1))
    }

    /// Whether somebody with a goal copies, and so others have a budget.
    fn holds_back(&self) -> bool {
        self.rates.keys().any(|tenant| self.first.contains(tenant))
    }
}

fn per_second(bytes: u64, passed: Duration) -> u64 {
    u64::try_from(u128::from(bytes) * 1_000 / passed.as_millis().max(1)).unwrap_or(u64::MAX)
}

/// What is left of it.
fn faded(most: u64, passed: Duration) -> u64 {
    let gone = u128::from(most) * FADES_PER_MS * passed.as_millis() / 1_000_000_000;
    most.saturating_sub(u64::try_from(gone).unwrap_or(u64::MAX))
}

fn sum<'a>(rates: impl Iterator<Item = &'a u64>) -> u64 {
    rates.fold(0, |sum: u64, rate| sum.saturating_add(*rate))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GB: u64 = 1_000_000_000;
    const TEN_MINUTES: usize = 600;

    fn tenant(number: u64) -> TenantKey {
        TenantKey::Cgroup { path: format!("/{number}") }
    }

    /// Clients of a tenant of their own each; from ten on they are of the tenant of their tens.
    fn whose(client: u64) -> TenantKey {
        tenant(if client < 10 { client } else { client / 10 })
    }

    const ALL: [u64; 6] = [1, 2, 3, 4, 31, 32];

    /// Seconds in each of which everybody copies so much.
    fn copies(seconds: &[&[(u64, u64, bool)]]) -> Copies {
        let mut copies = Copies::default();
        let mut all: BTreeMap<u64, u64> = BTreeMap::new();
        let copied = |id, bytes, has_goal| Copied { who: ClientId(id), tenant: whose(id), bytes, has_goal };
        copies.look(ALL.map(|id| copied(id, 0, false)).into_iter(), Mono(0));
        for (second, each) in (1u64..).zip(seconds) {
            each.iter().for_each(|(id, bytes, _)| *all.entry(*id).or_default() += bytes);
            let has_goal = |id: u64| each.iter().any(|(of, _, has_goal)| *of == id && *has_goal);
            let told = ALL.map(|id| copied(id, all.get(&id).copied().unwrap_or(0), has_goal(id)));
            copies.look(told.into_iter(), Mono(second * 1_000_000_000));
        }
        copies
    }

    fn budget(copies: &Copies, number: u64) -> Option<u64> {
        copies.budget(&tenant(number))
    }

    #[test]
    fn those_without_a_goal_share_what_one_with_a_goal_leaves() {
        let alone: &[_] = &[(2, 50 * GB, false)];
        let together: &[_] = &[(1, 8 * GB, true), (2, 20 * GB, false), (3, 10 * GB, false)];
        let copies = copies(&[alone, together]);
        assert_eq!(budget(&copies, 1), None);
        let each = [2, 3].map(|number| budget(&copies, number));
        let left = copies.most - 10 * GB;
        assert!((39 * GB..=40 * GB).contains(&left), "of 50 that were seen, without 8 and a quarter of that: {left}");
        assert_eq!(each, [Some(left / 2); 2]);
        assert_eq!(budget(&copies, 4), Some(left / 3), "whoever begins is one more");
    }

    #[test]
    fn a_tenant_of_several_processes_has_one_part() {
        let alone: &[_] = &[(2, 50 * GB, false)];
        let together: &[_] =
            &[(1, 8 * GB, true), (2, 10 * GB, false), (31, 10 * GB, false), (32, 10 * GB, false), (3, GB, false)];
        let copies = copies(&[alone, together]);
        assert_eq!(budget(&copies, 2), budget(&copies, 3));
        assert_eq!(budget(&copies, 3), Some((copies.most - 10 * GB) / 2));
    }

    #[test]
    fn without_a_goal_or_while_who_has_one_copies_nothing_nobody_has_a_budget() {
        assert_eq!(budget(&copies(&[&[(1, GB, false), (2, GB, false)]]), 1), None);
        assert_eq!(budget(&copies(&[&[(1, 0, true), (2, GB, false)]]), 2), None);
    }

    #[test]
    fn a_look_within_a_second_changes_nothing() {
        let mut copies = copies(&[&[(1, 8 * GB, true), (2, 8 * GB, false)]]);
        let before = budget(&copies, 2);
        let one = Copied { who: ClientId(2), tenant: tenant(2), bytes: 90 * GB, has_goal: false };
        copies.look([one].into_iter(), Mono(1_900_000_000));
        assert_eq!((before, budget(&copies, 2)), (Some(6 * GB), Some(6 * GB)));
    }

    #[test]
    fn what_was_seen_once_fades_while_others_copy_and_never_below_what_they_do() {
        let (once, then): (&[_], &[_]) = (&[(2, 400 * GB, false)], &[(2, 40 * GB, false)]);
        let most = |many| copies(&[&[once], &vec![then; many][..]].concat()).most;
        assert!((195 * GB..205 * GB).contains(&most(TEN_MINUTES)), "{}", most(TEN_MINUTES));
        assert_eq!(most(10 * TEN_MINUTES), 40 * GB);
        let idle: &[_] = &[(2, 0, false)];
        assert_eq!(copies(&[&[once], &vec![idle; TEN_MINUTES][..]].concat()).most, 400 * GB, "nobody copied");
    }

    #[test]
    fn what_is_held_back_says_nothing_of_how_wide_the_way_is() {
        let (once, then): (&[_], &[_]) = (&[(2, 40 * GB, false)], &[(1, GB, true), (2, GB, false)]);
        let copies = copies(&[&[once], &vec![then; 3_600][..]].concat());
        assert!(copies.most > 39 * GB, "{}", copies.most);
    }

    /// One with a goal and one without, who want so much, on a way of this width of which the one with a goal has a quarter at least without help,
    /// after this was seen once. What both had in the last of so many seconds, on average of ten.
    fn together(wide: u64, seen: u64, first_wants: u64, other_wants: u64, seconds: u64) -> (u64, u64) {
        let (mut copies, mut all) = (Copies::default(), [0, seen]);
        let look = |copies: &mut Copies, all: [u64; 2], second: u64| {
            let told = (1..).zip(all);
            let told =
                told.map(|(id, bytes)| Copied { who: ClientId(id), tenant: tenant(id), bytes, has_goal: id == 1 });
            copies.look(told, Mono(second * 1_000_000_000));
        };
        look(&mut copies, [0, 0], 0);
        look(&mut copies, all, 1);
        let mut last = (0, 0);
        for second in 2..seconds {
            let other = budget(&copies, 2).unwrap_or(u64::MAX).min(other_wants).min(wide);
            let first = first_wants.min((wide - other).max(wide / 4));
            let other = other.min(wide - first);
            all = [all[0] + first, all[1] + other];
            if second + 10 >= seconds {
                last = (last.0 + first / 10, last.1 + other / 10);
            }
            look(&mut copies, all, second);
        }
        last
    }

    #[test]
    fn a_way_that_is_thought_narrow_is_found_wide_within_a_minute_or_two() {
        let (server, trainer) = together(20 * GB, GB / 100, GB / 200, GB / 2, 120);
        assert!(server > GB / 201 && trainer > GB / 2 - 10, "{server} {trainer}");
    }

    #[test]
    fn one_with_a_goal_keeps_nearly_all_it_had_of_a_way_that_is_full() {
        for seconds in (60..1_200).step_by(97) {
            let (server, trainer) = together(10 * GB, 10 * GB, 6 * GB, 10 * GB, seconds);
            assert!(server > 5 * GB && trainer > GB, "{server} {trainer} after {seconds}");
        }
    }

    #[test]
    fn more_than_any_way_carries_is_not_believed() {
        assert_eq!(copies(&[&[(2, u64::MAX, false)]]).most, WIDEST);
    }

    proptest! {
        #[test]
        fn those_without_a_goal_have_together_no_more_than_is_left_and_never_nothing(
            each in prop::collection::vec((1..GB, any::<bool>()), 1..5), most in GB..100 * GB,
        ) {
            let each: Vec<(u64, u64, bool)> = (1..).zip(each).map(|(id, (bytes, has_goal))| (id, bytes, has_goal)).collect();
            let copies = copies(&[&[(4, most, false)], &each]);
            let first: u64 = each.iter().filter(|(_, _, has_goal)| *has_goal).map(|(_, bytes, _)| bytes).sum();
            let budgets: Vec<u64> = each.iter().filter_map(|(id, _, _)| budget(&copies, *id)).collect();
            prop_assert!(budgets.iter().all(|budget| *budget > 0));
            prop_assert!(budgets.iter().sum::<u64>() <= copies.most.saturating_sub(first).max(copies.most / LEAST_PART));
        }
    }
}
