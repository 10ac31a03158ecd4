//! When a freeze by the cgroup becomes the engine's business, where that may not be, and which of the engine's doings were ours.
//!
//! An engine checks a container's health by a command inside. One that begins while the container's own cgroup is frozen
//! fails at once; one that begins while the engine is about to pause may. While a container is paused its checks are suspended, and it
//! counts as unhealthy until the first one after that. So a container whose health is checked is held in the shelter, in which its
//! processes stand still while the engine can run its checks beside them. It is handed over when a hold has lasted, at a time when no
//! check is near; and in time before a check has failed that does not come to its end, since it waits for whom stands still: what is
//! under way when it pauses, the engine drops.

use std::time::Duration;

use super::Freezer;
use crate::event::HealthChecks;
use crate::time::Mono;

/// Before and after the time a check is expected at, nothing changes hands: an engine's pause takes some 25 ms, and a few times that
/// on a busy machine.
const CLEARANCE: Duration = Duration::from_millis(400);

/// Checks of a container's health by its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    pub of: HealthChecks,
    pub check: Check,
}

/// Where an engine is with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// None has been heard of yet.
    Unknown,
    DueAt(Mono),
    UnderWay {
        since: Mono,
    },
}

#[derive(Debug, Clone, Default)]
pub(super) struct Handing {
    /// How long the cgroup keeps it frozen before its engine is to; `None`: for as long as it is held.
    pub after: Option<Duration>,
    pub checks: Option<Checks>,
    frozen_since: Option<Mono>,
    /// The engine could not take it over; not asked again until then.
    failed_until: Option<Mono>,
    /// The end of the last step by the engine.
    acted_at: Mono,
}

impl Handing {
    pub fn set_frozen(&mut self, is_frozen: bool, at: Mono) {
        self.frozen_since = is_frozen.then(|| self.frozen_since.unwrap_or(at));
    }

    pub fn fail(&mut self, until: Mono) {
        self.failed_until = Some(until);
    }

    pub fn act(&mut self, at: Mono) {
        self.acted_at = at;
    }

    /// Who is to keep it frozen now.
    pub fn freezer(&self, now: Mono) -> Freezer {
        match self.due_at() {
            Some(at) if at <= now => Freezer::Docker,
            // Without an engine to pause it there is none to check it.
            _ if self.after.is_some() && self.checks.is_some() => Freezer::Shelter,
            _ => Freezer::Cgroup,
        }
    }

    /// When its engine is to take over; `None` if it is not frozen, or never.
    pub fn due_at(&self) -> Option<Mono> {
        let since = self.frozen_since?;
        let usual = since + self.after?;
        let at = self.checks.map_or(usual, |checks| checks.hand_over_at(since, usual));
        Some(self.failed_until.map_or(at, |until| until.max(at)))
    }

    /// What the engine did at this time was done for us.
    pub fn was_ours(&self, at: Mono) -> bool {
        at < self.acted_at
    }
}

impl Checks {
    /// For a freeze that began at `since` and would be handed over at `usual` if nobody checked.
    fn hand_over_at(self, since: Mono, usual: Mono) -> Mono {
        let clearance = CLEARANCE.min(self.of.every / 4);
        let is_near = |at: Mono| usual + clearance > at && usual < at + clearance;
        match self.check {
            Check::UnderWay { since: begun } => usual.max(begun + clearance).min(begun + self.of.within / 2).max(since),
            Check::DueAt(at) if is_near(at) => at + clearance,
            Check::DueAt(_) | Check::Unknown => usual,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Mono {
        Mono(ms * MS)
    }

    /// Of a container that is checked every second, frozen at `since_ms`.
    fn handing(check: Check, since_ms: u64) -> Handing {
        let of = HealthChecks { every: Duration::from_secs(1), within: Duration::from_secs(4) };
        let checks = Some(Checks { of, check });
        let mut handing = Handing { after: Some(Duration::from_secs(10)), checks, ..Handing::default() };
        handing.set_frozen(true, at(since_ms));
        handing
    }

    #[test]
    fn who_is_checked_is_held_in_the_shelter_until_the_hold_has_lasted() {
        for check in [Check::Unknown, Check::DueAt(at(5_000))] {
            let handing = handing(check, 4_100);
            assert_eq!(handing.freezer(at(4_100)), Freezer::Shelter, "{check:?}");
            assert_eq!((handing.freezer(at(14_099)), handing.freezer(at(14_100))), (Freezer::Shelter, Freezer::Docker));
        }
        let unpausable = Handing { after: None, ..handing(Check::Unknown, 100) };
        assert_eq!(unpausable.freezer(at(100)), Freezer::Cgroup, "without an engine there is none to check");
    }

    #[test]
    fn a_check_that_hangs_on_those_who_stand_still_makes_the_engine_take_over() {
        assert_eq!(handing(Check::UnderWay { since: at(5_010) }, 4_800).due_at(), Some(at(7_010)), "in good time");
        assert_eq!(
            handing(Check::UnderWay { since: at(14_100) }, 4_200).due_at(),
            Some(at(14_350)),
            "when it has begun"
        );
        assert_eq!(handing(Check::UnderWay { since: at(5_010) }, 9_000).due_at(), Some(at(9_000)), "it never ended");
    }

    #[test]
    fn nothing_changes_hands_while_a_check_is_near() {
        for (due_ms, hand_over_ms) in [(14_000, 14_250), (14_200, 14_450), (14_600, 14_100), (13_000, 14_100)] {
            assert_eq!(handing(Check::DueAt(at(due_ms)), 4_100).due_at(), Some(at(hand_over_ms)), "{due_ms}");
        }
    }
}
