//! For how long a tenant is left alone because somebody wants it to run: one rule for releases, unpauses and signals.
//!
//! - **`berth release`** says whose word it is, and whether they may exempt the tenant is judged before it comes here: it lasts
//!   until the task ends.
//! - **`docker unpause`** says nothing of who it was. The tenant's owner may have been, so it counts as an owner's word: until the
//!   task ends where owners may exempt their own, for a grace where they may not.
//! - **A signal** wants to be taken, not the tenant to run: a grace, whoever may exempt whom. It begins at the last signal. One
//!   that can wait ([`Signal::can_wait`]) is kept pending by the freezer and acts at the tenant's turn. The signal by which the
//!   container's engine stops it has as long as the engine waits before it kills, and the grace where that is longer.
//!
//! Graces are not for sale: whoever signals or unpauses a tenant again and again gets three of them, and from then on a tenth of the
//! time. That leaves a tenant of many reloads alone as long as they need, and one that would signal itself past the line in
//! it. It holds for stop signals too: who has lived through three of them does not end by the fourth. SIGKILL is charged as any
//! other, for killing one process of many ends nobody's tenant; but whoever has had its share is still let go for the moment a kill
//! takes, a tenth of the time at most, and so dies within a second.
//!
//! When a grace is over, what was wanted before it is wanted again: a person's hold, or whatever the policy decides.

use std::time::Duration;

use super::Want;
use super::keeper::By;
use super::signal::Signal;
use crate::time::Mono;

/// How much of a tenant's time is left to graces for good: one part in so many.
const SHARE: u32 = 10;
/// Graces that can be had at once.
const AT_ONCE: u32 = 3;
/// A process that is let go dies of a SIGKILL before it does anything else, and what is left of its end no freezer holds up.
const KILL_TAKES: Duration = Duration::from_millis(100);

/// What the settings say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaves {
    /// As long as an end takes.
    pub grace: Duration,
    /// Owners may take tenants of their own out of the policy's hands.
    pub owners_exempt: bool,
}

/// By what somebody wants a tenant to run who has not told berth so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Unpaused,
    Signalled(Sent),
}

/// A signal to a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// `None`: its engine does not say which.
    pub signal: Option<Signal>,
    /// Its engine stops it by this signal, and kills it after so long.
    pub kills_after: Option<Duration>,
}

/// A grace under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leave {
    pub until: Mono,
    /// A person's word from before.
    pub before: Option<(Want, By, String)>,
}

/// How long a word lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lasting {
    /// It has had its share.
    NotAtAll,
    Until(Mono),
    UntilItsTaskEnds,
}

/// Time a tenant was left alone by graces, paid back by and by.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Account {
    debt: Duration,
    as_of: Mono,
    is_empty: bool,
    /// When it was last let go to be killed though it had had its share.
    spared_at: Option<Mono>,
}

impl Leaves {
    /// `until`: the end of a grace under way.
    pub(super) fn lasting(&self, word: Word, account: &mut Account, until: Option<Mono>, at: Mono) -> Lasting {
        let grace = match word {
            Word::Unpaused if self.owners_exempt => return Lasting::UntilItsTaskEnds,
            Word::Unpaused => self.grace,
            Word::Signalled(sent) => sent.kills_after.map_or(self.grace, |after| self.grace.max(after)),
        };
        // In a grace that goes on it is killed as it is.
        let is_left_alone = until.is_some_and(|until| until > at);
        let is_killed = matches!(word, Word::Signalled(Sent { signal: Some(Signal::KILL), .. }));
        let end = match account.charge(grace, until, at) {
            None if is_killed && !is_left_alone => account.spare(at),
            end => end,
        };
        end.map_or(Lasting::NotAtAll, Lasting::Until)
    }
}

impl Sent {
    /// A signal of which nothing is known but that it was sent.
    pub const UNKNOWN: Sent = Sent { signal: None, kills_after: None };

    /// A tenant that stands still need not be let go for it.
    pub(super) fn can_wait(self) -> bool {
        self.kills_after.is_none() && self.signal.is_some_and(Signal::can_wait)
    }

    /// Also one that runs is left alone, so that nobody holds it while it ends. Any other signal a running tenant takes at once.
    pub(super) fn may_end_it(self) -> bool {
        self.kills_after.is_some() || self.signal.is_none_or(Signal::ends)
    }

    pub(super) fn reason(self) -> String {
        match self.signal {
            Some(signal) => format!("someone sent it {signal}"),
            None => "someone sent it a signal".to_owned(),
        }
    }
}

impl Account {
    /// The end of a grace that begins now, or goes on from the one under way: later than now by what there is left to give.
    fn charge(&mut self, grace: Duration, until: Option<Mono>, at: Mono) -> Option<Mono> {
        self.debt = self.debt.saturating_sub(at.since(self.as_of) / SHARE);
        self.as_of = at;
        let paid_until = until.map_or(at, |until| until.max(at));
        let left = (grace * AT_ONCE).saturating_sub(self.debt);
        let given = (at + grace).since(paid_until).min(left);
        // Too little to do anything with: to stop and go on costs others, too.
        let end = paid_until + given;
        if end.since(at) < grace / SHARE {
            return None;
        }
        self.debt += given;
        self.is_empty = left - given < grace / SHARE;
        Some(end)
    }

    /// The end of a moment in which it can be killed, whatever it has had; `None` if it had one just now.
    fn spare(&mut self, at: Mono) -> Option<Mono> {
        if self.spared_at.is_some_and(|last| at.since(last) < KILL_TAKES * SHARE) {
            return None;
        }
        self.spared_at = Some(at);
        self.debt += KILL_TAKES;
        self.is_empty = true;
        Some(at + KILL_TAKES)
    }

    /// Nothing was left for another grace when the last was given.
    pub fn is_empty(self) -> bool {
        self.is_empty
    }
}

impl Default for Leaves {
    fn default() -> Self {
        Self { grace: Duration::from_secs(30), owners_exempt: true }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GRACE: Duration = Duration::from_secs(30);
    const HUP: Word = Word::Signalled(Sent { signal: Some(Signal::HUP), kills_after: None });
    const KILL: Word = Word::Signalled(Sent { signal: Some(Signal::KILL), kills_after: None });

    fn strict() -> Leaves {
        Leaves { grace: GRACE, owners_exempt: false }
    }

    fn at(seconds: u64) -> Mono {
        Mono(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn an_unpause_is_an_owner_s_word_and_a_signal_is_nobody_s() {
        let lenient = Leaves { owners_exempt: true, ..strict() };
        let lasting = |leaves: Leaves, word| leaves.lasting(word, &mut Account::default(), None, at(100));
        assert_eq!(lasting(lenient, Word::Unpaused), Lasting::UntilItsTaskEnds);
        assert_eq!(lasting(strict(), Word::Unpaused), Lasting::Until(at(130)));
        assert_eq!(lasting(lenient, HUP), Lasting::Until(at(130)));
        assert_eq!(lasting(strict(), HUP), Lasting::Until(at(130)));
    }

    #[test]
    fn a_stop_has_as_long_as_its_engine_waits_before_it_kills() {
        let stop = |seconds| {
            Word::Signalled(Sent { signal: Some(Signal::TERM), kills_after: Some(Duration::from_secs(seconds)) })
        };
        let lasting = |word| strict().lasting(word, &mut Account::default(), None, at(0));
        assert_eq!(lasting(stop(10)), Lasting::Until(at(30)));
        assert_eq!(lasting(stop(300)), Lasting::Until(at(300)));
    }

    #[test]
    fn a_signal_in_a_grace_begins_it_anew() {
        let mut account = Account::default();
        assert_eq!(strict().lasting(HUP, &mut account, None, at(0)), Lasting::Until(at(30)));
        assert_eq!(strict().lasting(HUP, &mut account, Some(at(30)), at(10)), Lasting::Until(at(40)));
    }

    #[test]
    fn who_has_had_its_share_is_let_go_no_more_until_time_has_passed() {
        let mut account = Account::default();
        for number in 0..3 {
            assert_ne!(strict().lasting(HUP, &mut account, None, at(number * 30)), Lasting::NotAtAll, "{number}");
        }
        // Nine seconds were paid back meanwhile.
        assert_eq!(strict().lasting(HUP, &mut account, None, at(90)), Lasting::Until(at(99)));
        assert_eq!(strict().lasting(HUP, &mut account, None, at(100)), Lasting::NotAtAll);
        assert_eq!(strict().lasting(HUP, &mut account, None, at(1_000)), Lasting::Until(at(1_030)));
    }

    #[test]
    fn who_has_had_its_share_and_more_is_let_go_for_a_moment_to_be_killed_and_soon_again() {
        let mut account = Account::default();
        // After the longest of stops, its engine kills.
        let stop = Sent { signal: Some(Signal::TERM), kills_after: Some(Duration::from_secs(3_000)) };
        assert_eq!(strict().lasting(Word::Signalled(stop), &mut account, None, at(0)), Lasting::Until(at(3_000)));
        let mut kill = |at| strict().lasting(KILL, &mut account, None, at);
        assert_eq!(kill(at(3_000)), Lasting::Until(at(3_000) + KILL_TAKES));
        assert_eq!(kill(at(3_000) + Duration::from_millis(500)), Lasting::NotAtAll, "it should be dead");
        assert_eq!(kill(at(3_001)), Lasting::Until(at(3_001) + KILL_TAKES), "and is not");
    }

    proptest! {
        /// However often it is signalled, and whichever of its processes are killed, it is left alone for three graces and a tenth of
        /// the time at most.
        #[test]
        fn nobody_buys_itself_out_of_the_line(
            signals in proptest::collection::vec(
                (prop_oneof![0_u64..1_500, 0_u64..60_000], proptest::sample::select(&[HUP, KILL])),
                1..200,
            ),
        ) {
            let (mut account, mut until, mut now, mut left_alone) = (Account::default(), None, Mono(0), Duration::ZERO);
            for (gap_ms, word) in signals {
                now = now + Duration::from_millis(gap_ms);
                if let Lasting::Until(end) = strict().lasting(word, &mut account, until, now) {
                    left_alone += end.since(until.map_or(now, |until: Mono| until.max(now)));
                    until = Some(end);
                }
            }
            prop_assert!(left_alone <= GRACE * AT_ONCE + KILL_TAKES + now.since(Mono(0)) / SHARE);
        }
    }
}
