//! Words that somebody raises who may not: one whose link was taken away, and whose follower is not let go all the same.
//!
//! A follower says in its ledger that its streams stand for a link although its word was set to 0. Both ends can write that word, so it may
//! be either's doing. First both are parted: there is no link between their tenants any more, the follower is told to obey no stop, and the
//! daemon itself has it wait in its turn. If the word is raised on and on, the one that led is tried: it is held, and the word set to 0, until the
//! follower is free. If it comes up again while that one stands still, the follower has raised it itself, and takes part no more.
//!
//! A word that stays down proves nothing: a follower that wants the other out of its way can stop raising it in time. So nobody is refused for
//! that, and whoever leads is held for no longer than [`LONGEST`], nor more often than [`TRIALS`] in [`PER`], whoever says what of it. One that does rewrite
//! its word stops nobody with it afterwards: no new waits are put for it.
//!
//! Pure: what is seen comes in, what is to be done goes out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_host::shim::End;
use berth_model::{Mono, TenantKey};

/// A stop that outlives its link by less is one that is just being let go.
const PATIENCE: Duration = Duration::from_millis(100);
/// Found raised so often after the link was gone: not what was under way.
const OFTEN: u32 = 3;
/// A trial lasts no longer: whoever waited for a word that is down goes on at once.
const LONGEST: Duration = Duration::from_millis(500);
/// So often one is tried at most in that time.
const TRIALS: usize = 3;
const PER: Duration = Duration::from_secs(60);
/// Within this it has to stand still.
const HELD_WITHIN: Duration = Duration::from_secs(1);
/// Cases at a time; each is a pair of clients.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Offences {
    cases: BTreeMap<u64, Case>,
    /// Who was tried lately, and since when.
    tried: Vec<(TenantKey, Mono)>,
}

/// A follower that stands for a link, as far as it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stuck {
    pub link: u64,
    pub yields: (End, TenantKey),
    pub leads: (End, TenantKey),
    /// Looks at which the word was found raised since the link was taken away.
    pub found_up: u32,
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// These are linked no more.
    Part { yields: (End, TenantKey), leads: (End, TenantKey) },
    /// It takes part no more.
    Refuse { tenant: TenantKey, reason: String },
}

#[derive(Debug)]
struct Case {
    stuck: Stuck,
    since: Mono,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Parted,
    /// The one that led is to be held.
    Accused {
        since: Mono,
    },
    /// It stands still, and the word was found raised so often until then.
    Tried {
        since: Mono,
        found_up: u32,
    },
    /// It was tried, or could not be. Nothing more follows.
    Over,
}

impl Offences {
    /// `stands_still`: nothing of that tenant runs.
    pub fn look(&mut self, stuck: &[Stuck], stands_still: &dyn Fn(&TenantKey) -> bool, now: Mono) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for one in stuck {
            if let Some(case) = self.cases.get_mut(&one.link) {
                case.stuck = one.clone();
            } else if self.cases.len() < MOST {
                let (yields, leads) = (one.yields.clone(), one.leads.clone());
                self.cases.insert(one.link, Case { stuck: one.clone(), since: now, stage: Stage::Parted });
                verdicts.push(Verdict::Part { yields, leads });
            }
        }
        let mut held: BTreeSet<TenantKey> = self.to_hold().into_keys().collect();
        self.tried.retain(|(_, since)| now.since(*since) < PER);
        let tried = &mut self.tried;
        // Whoever is held already can be tried for another, too.
        let mut may_try = |leader: &TenantKey| {
            if held.contains(leader) {
                return true;
            }
            let is_allowed = tried.iter().filter(|(who, _)| who == leader).count() < TRIALS;
            if is_allowed {
                tried.push((leader.clone(), now));
                held.insert(leader.clone());
            }
            is_allowed
        };
        self.cases.retain(|link, case| {
            let is_stuck = stuck.iter().any(|one| one.link == *link);
            let verdict = case.step(is_stuck, stands_still, &mut may_try, now);
            let is_over = verdict.is_some();
            verdicts.extend(verdict);
            is_stuck && !is_over
        });
        verdicts
    }

    /// Who is to be held now, and why.
    pub fn to_hold(&self) -> BTreeMap<TenantKey, String> {
        let held = self.cases.values().filter(|case| case.is_held());
        held.map(|case| (case.stuck.leads.1.clone(), reason())).collect()
    }

    /// Whether this one is to obey no stop.
    pub fn frees(&self, yields: End) -> bool {
        self.cases.values().any(|case| case.stuck.yields.0 == yields)
    }
}

impl Case {
    fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Accused { .. } | Stage::Tried { .. })
    }

    /// How it ends, if it does before the follower is free.
    fn step(
        &mut self,
        is_stuck: bool,
        stands_still: &dyn Fn(&TenantKey) -> bool,
        may_try: &mut dyn FnMut(&TenantKey) -> bool,
        now: Mono,
    ) -> Option<Verdict> {
        let Stuck { yields: (_, follower), leads: (_, leader), found_up, .. } = &self.stuck;
        self.stage = match self.stage {
            Stage::Parted if is_stuck && now.since(self.since) >= PATIENCE && *found_up >= OFTEN && may_try(leader) => {
                Stage::Accused { since: now }
            }
            Stage::Accused { .. } if stands_still(leader) => Stage::Tried { since: now, found_up: *found_up },
            Stage::Accused { since } if now.since(since) >= HELD_WITHIN => Stage::Over,
            // The look at which it came to stand still may have found what it raised before.
            Stage::Tried { found_up: before, .. } if *found_up > before + 1 => {
                return Some(Verdict::Refuse { tenant: follower.clone(), reason: reason() });
            }
            Stage::Tried { since, .. } if now.since(since) >= LONGEST => Stage::Over,
            same => same,
        };
        None
    }
}

fn reason() -> String {
    "a word that stops others was raised on and on after its link was taken away".to_owned()
}

#[cfg(test)]
mod tests {
    use berth_host::shim::ClientId;

    use super::*;

    const MS: u64 = 1_000_000;

    fn tenant(name: &str) -> TenantKey {
        TenantKey::Cgroup { path: name.into() }
    }

    fn side(name: &str, client: u64) -> (End, TenantKey) {
        (End { client: ClientId(client), lane: 0 }, tenant(name))
    }

    fn stuck(found_up: u32) -> Stuck {
        Stuck { link: 7, yields: side("follower", 1), leads: side("leader", 2), found_up }
    }

    /// What came of ten seconds of looks, every millisecond.
    struct Came {
        refused: Vec<TenantKey>,
        /// For how many milliseconds the leader was to be held, and how often.
        held_ms: u32,
        holds: u32,
    }

    /// The leader stands still from 20 ms after it is to be held. `found_up`: the word is found raised at this look.
    fn tried(found_up: impl Fn(u64, bool) -> bool, is_stuck: impl Fn(u64, bool) -> bool, can_hold: bool) -> Came {
        let (mut offences, mut still_from, mut found) = (Offences::default(), None, 0);
        let mut came = Came { refused: Vec::new(), held_ms: 0, holds: 0 };
        for at in 0..10_000 {
            let still = still_from.is_some_and(|from| at >= from);
            found += u32::from(found_up(at, still));
            let now: Vec<Stuck> = is_stuck(at, still).then(|| stuck(found)).into_iter().collect();
            let stands = |who: &TenantKey| still && *who == tenant("leader");
            let verdicts = offences.look(&now, &stands, Mono(at * MS));
            came.refused.extend(verdicts.into_iter().filter_map(|verdict| match verdict {
                Verdict::Refuse { tenant, .. } => Some(tenant),
                Verdict::Part { .. } => None,
            }));
            let is_held = offences.to_hold().contains_key(&tenant("leader"));
            came.held_ms += u32::from(is_held);
            came.holds += u32::from(is_held && still_from.is_none() && can_hold);
            still_from = (is_held && can_hold).then(|| still_from.unwrap_or(at + 20));
        }
        assert!(offences.to_hold().is_empty(), "nobody is held for ever");
        came
    }

    #[test]
    fn one_that_says_it_is_stuck_is_parted_at_once_and_freed_for_as_long_as_it_says_so() {
        let mut offences = Offences::default();
        let parted = offences.look(&[stuck(0)], &|_| false, Mono(0));
        assert_eq!(parted, [Verdict::Part { yields: side("follower", 1), leads: side("leader", 2) }]);
        assert!(offences.frees(side("follower", 1).0));
        assert_eq!(offences.look(&[], &|_| false, Mono(MS)), []);
        assert!(!offences.frees(side("follower", 1).0));
    }

    #[test]
    fn a_word_that_is_down_proves_nothing_against_anybody() {
        let came = tried(|_, _| false, |_, _| true, true);
        assert_eq!((came.refused, came.held_ms), (vec![], 0));
    }

    #[test]
    fn a_leader_that_rewrites_its_word_is_held_until_whom_it_stopped_is_free() {
        // What the follower waited for has passed when the word was down once.
        let was_still = std::cell::Cell::new(false);
        let is_stuck = |_, still: bool| {
            was_still.set(was_still.get() || still);
            !was_still.get()
        };
        let came = tried(|_, still| !still, is_stuck, true);
        assert_eq!((came.refused, came.holds), (vec![], 1));
        assert!(came.held_ms <= 25, "{}", came.held_ms);
    }

    #[test]
    fn a_follower_that_raises_its_own_word_to_accuse_another_is_found_out() {
        assert_eq!(tried(|_, _| true, |_, _| true, true).refused[0], tenant("follower"));
    }

    #[test]
    fn a_follower_that_stops_in_time_has_the_other_held_for_a_moment_and_not_refused() {
        let came = tried(|_, still| !still, |_, _| true, true);
        assert_eq!((came.refused, came.holds), (vec![], 1));
        assert!(came.held_ms <= 530, "{}", came.held_ms);
    }

    #[test]
    fn whoever_is_accused_again_and_again_is_held_a_few_times_in_a_minute_at_most() {
        // Each time it says it is free, and stuck again.
        let came = tried(|_, still| !still, |at, _| at % 400 != 399, true);
        assert_eq!((came.refused, came.holds), (vec![], 3));
    }

    #[test]
    fn where_nobody_can_be_held_they_are_parted_and_that_is_all() {
        let came = tried(|_, _| true, |_, _| true, false);
        assert_eq!(came.refused, []);
        assert!(came.held_ms <= 1_001, "{}", came.held_ms);
    }
}
