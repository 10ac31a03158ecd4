//! When a freeze by the cgroup becomes the engine's business, and which of the engine's doings were ours.

use std::time::Duration;

use super::Freezer;
use crate::time::Mono;

#[derive(Debug, Clone, Default)]
pub(super) struct Handing {
    /// How long the cgroup keeps it frozen before its engine is to; `None`: for as long as it is held.
    pub after: Option<Duration>,
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
        if self.due_at().is_some_and(|at| at <= now) { Freezer::Docker } else { Freezer::Cgroup }
    }

    /// When its engine is to take over; `None` if it is not frozen, or never.
    pub fn due_at(&self) -> Option<Mono> {
        let at = self.frozen_since? + self.after?;
        Some(self.failed_until.map_or(at, |until| until.max(at)))
    }

    /// What the engine did at this time was done for us.
    pub fn was_ours(&self, at: Mono) -> bool {
        at < self.acted_at
    }
}
