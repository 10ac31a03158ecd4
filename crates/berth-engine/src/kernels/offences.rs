//! Words that somebody raises who may not: one whose link was taken away, and whose follower is not let go all the same.
//!
//! A follower says in its ledger that its streams stand for a link although its word was set to 0. Both ends can write that word, so it may
//! be either's doing. First both are parted: there is no link between their tenants any more, the follower is told to obey no stop, and the
//! daemon itself has it wait in its turn. If the word is raised on and on, the one that led is tried: it is held, and the word set to 0. If it
//! comes up again while that one stands still, the follower has raised it itself. Whoever it was takes part no more. Where nobody can be held,
//! both do not.
//!
//! Pure: what is seen comes in, what is to be done goes out.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_host::shim::End;
use berth_model::{Mono, TenantKey};

/// A stop that outlives its link by less is one that is just being let go.
const PATIENCE: Duration = Duration::from_millis(100);
/// Found raised so often after the link was gone: not what was under way.
const OFTEN: u32 = 3;
/// How long it is looked at who raises it while the one that led stands still.
const TRIAL: Duration = Duration::from_millis(50);
/// A trial, or what follows from it, lasts no longer.
const LONGEST: Duration = Duration::from_secs(3);
/// Within this it has to stand still.
const HELD_WITHIN: Duration = Duration::from_secs(1);
/// Cases at a time; each is a pair of clients.
const MOST: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Offences {
    cases: BTreeMap<u64, Case>,
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
    /// It was the one that led; it is held until the follower is free.
    Guilty {
        since: Mono,
    },
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
        self.cases.retain(|link, case| {
            let is_stuck = stuck.iter().any(|one| one.link == *link);
            case.step(is_stuck, stands_still, now, &mut verdicts)
        });
        verdicts
    }

    /// Who is to be held now, and why.
    pub fn to_hold(&self) -> BTreeMap<TenantKey, String> {
        let held = self.cases.values().filter(|case| case.stage != Stage::Parted);
        held.map(|case| (case.stuck.leads.1.clone(), reason())).collect()
    }

    /// Whether this one is to obey no stop.
    pub fn frees(&self, yields: End) -> bool {
        self.cases.values().any(|case| case.stuck.yields.0 == yields)
    }
}

impl Case {
    /// Whether it goes on.
    fn step(
        &mut self,
        is_stuck: bool,
        stands_still: &dyn Fn(&TenantKey) -> bool,
        now: Mono,
        verdicts: &mut Vec<Verdict>,
    ) -> bool {
        let Stuck { yields: (_, follower), leads: (_, leader), found_up, .. } = &self.stuck;
        let refuse = |tenant: &TenantKey| Verdict::Refuse { tenant: tenant.clone(), reason: reason() };
        match self.stage {
            Stage::Parted => {
                if is_stuck && now.since(self.since) >= PATIENCE && *found_up >= OFTEN {
                    self.stage = Stage::Accused { since: now };
                }
                is_stuck
            }
            Stage::Accused { since } if stands_still(leader) => {
                let found_up = *found_up;
                self.stage = Stage::Tried { since: now, found_up };
                now.since(since) < LONGEST
            }
            Stage::Accused { since } if is_stuck && now.since(since) >= HELD_WITHIN => {
                verdicts.extend([refuse(leader), refuse(follower)]);
                false
            }
            Stage::Accused { .. } => is_stuck,
            // The look at which it came to stand still may have found what it raised before.
            Stage::Tried { found_up: before, .. } if *found_up > before + 1 => {
                verdicts.push(refuse(follower));
                false
            }
            Stage::Tried { since, .. } if !is_stuck || now.since(since) >= TRIAL => {
                verdicts.push(refuse(leader));
                self.stage = Stage::Guilty { since: now };
                is_stuck
            }
            Stage::Tried { .. } => true,
            Stage::Guilty { since } => is_stuck && now.since(since) < LONGEST,
        }
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

    /// Looks every millisecond until `until`, and what came of it, by the instant. The leader stands still from 20 ms after it is to be held.
    fn tried(
        found_up: impl Fn(u64, bool) -> u32,
        is_stuck: impl Fn(u64, bool) -> bool,
        can_hold: bool,
    ) -> Vec<Verdict> {
        let (mut offences, mut verdicts, mut still_from, mut found) = (Offences::default(), Vec::new(), None, 0);
        for at in 0..5_000 {
            let still = still_from.is_some_and(|from| at >= from);
            found += found_up(at, still);
            let now: Vec<Stuck> = is_stuck(at, still).then(|| stuck(found)).into_iter().collect();
            let stands = |who: &TenantKey| still && *who == tenant("leader");
            verdicts.extend(offences.look(&now, &stands, Mono(at * MS)));
            if can_hold && offences.to_hold().contains_key(&tenant("leader")) {
                still_from.get_or_insert(at + 20);
            } else {
                still_from = None;
            }
        }
        assert!(offences.to_hold().is_empty(), "nobody is held for ever");
        verdicts.into_iter().filter(|verdict| matches!(verdict, Verdict::Refuse { .. })).collect()
    }

    fn refused(verdicts: &[Verdict]) -> Vec<TenantKey> {
        let each = verdicts.iter().filter_map(|verdict| match verdict {
            Verdict::Refuse { tenant, .. } => Some(tenant.clone()),
            Verdict::Part { .. } => None,
        });
        each.collect()
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
        assert_eq!(tried(|_, _| 0, |_, _| true, true), []);
    }

    #[test]
    fn a_leader_that_rewrites_its_word_is_found_out_while_it_stands_still() {
        // What the follower waited for has passed when the word was down once.
        let was_still = std::cell::Cell::new(false);
        let is_stuck = |_, still: bool| {
            was_still.set(was_still.get() || still);
            !was_still.get()
        };
        let verdicts = tried(|_, still| u32::from(!still), is_stuck, true);
        assert_eq!(refused(&verdicts), [tenant("leader")]);
    }

    #[test]
    fn a_follower_that_raises_its_own_word_to_accuse_another_is_found_out() {
        assert_eq!(refused(&tried(|_, _| 1, |_, _| true, true))[0], tenant("follower"));
    }

    #[test]
    fn where_nobody_can_be_held_both_take_part_no_more() {
        let verdicts = tried(|_, _| 1, |at, _| at < 1_500, false);
        assert_eq!(refused(&verdicts), [tenant("leader"), tenant("follower")]);
    }
}
