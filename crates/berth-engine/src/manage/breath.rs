//! Those whose engine kills who stands still for long are let go in time, for long enough to be seen alive.
//!
//! A Kubernetes node asks a container whether it is alive, knows nothing of a freeze, and starts it anew when it has not answered several
//! times on end. One that was let go for less than a breath may not have been asked meanwhile: it counts as having stood still all along.

use berth_model::{Endurance, Mono, TenantKey};

use super::Manager;

/// How one tenant stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Breath {
    /// It has not been seen alive since.
    Still { since: Mono },
    /// It goes on since `free`, after it had stood still since `since`.
    Free { since: Mono, free: Mono },
}

impl Breath {
    /// What becomes of `before` when it stands still now, or does not; `None`: it has been seen alive, and nothing is to be remembered.
    fn next(before: Option<Breath>, is_still: bool, endurance: Endurance, now: Mono) -> Option<Breath> {
        let has_breathed = |free: Mono| now.since(free) >= endurance.breath;
        match (before, is_still) {
            (None, true) => Some(Breath::Still { since: now }),
            (None, false) => None,
            (Some(Breath::Still { since }), true) => Some(Breath::Still { since }),
            (Some(Breath::Still { since }), false) => Some(Breath::Free { since, free: now }),
            (Some(Breath::Free { free, .. }), true) if has_breathed(free) => Some(Breath::Still { since: now }),
            (Some(Breath::Free { free, .. }), false) if has_breathed(free) => None,
            (Some(Breath::Free { since, .. }), true) => Some(Breath::Still { since }),
            (Some(Breath::Free { since, free }), false) => Some(Breath::Free { since, free }),
        }
    }
}

impl Manager {
    /// Lets those go who have stood still for as long as they can. When the next has.
    pub(super) fn heed_breaths(&mut self, now: Mono) -> Option<Mono> {
        let tenants: Vec<TenantKey> = self.places.keys().cloned().collect();
        self.breaths.retain(|tenant, _| self.places.contains_key(tenant));
        tenants.into_iter().filter_map(|tenant| self.heed_breath(&tenant, now)).min()
    }

    fn heed_breath(&mut self, tenant: &TenantKey, now: Mono) -> Option<Mono> {
        let Some(endurance) = self.pausing.endurance_of(tenant) else {
            self.breaths.remove(tenant);
            return None;
        };
        let is_still = self.keeper.note(tenant).is_some_and(|note| note.grip.is_still());
        let before = self.breaths.remove(tenant);
        let breath = Breath::next(before, is_still, endurance, now)?;
        self.breaths.insert(tenant.clone(), breath);
        match breath {
            Breath::Still { since } if now < since + endurance.still => return Some(since + endurance.still),
            Breath::Still { .. } => self.keeper.breathe(tenant, endurance.breath, now),
            // Counted from when it is free, not from when it was to be: else it would be a little short, and the next due at once.
            Breath::Free { since, free } if free >= since + endurance.still => {
                self.keeper.free_until(tenant, free + endurance.breath);
            }
            Breath::Free { .. } => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ENDURANCE: Endurance = Endurance { still: Duration::from_secs(20), breath: Duration::from_secs(11) };

    fn at(seconds: u64) -> Mono {
        Mono(0) + Duration::from_secs(seconds)
    }

    /// What is remembered after it stood still, or did not, at these seconds.
    fn after(seen: &[(u64, bool)]) -> Option<Breath> {
        seen.iter().fold(None, |before, (seconds, is_still)| Breath::next(before, *is_still, ENDURANCE, at(*seconds)))
    }

    #[test]
    fn who_was_free_for_less_than_a_breath_has_stood_still_all_along() {
        assert_eq!(after(&[(1, true), (15, false), (16, true)]), Some(Breath::Still { since: at(1) }));
        assert_eq!(after(&[(1, true), (15, false), (25, false), (25, true)]), Some(Breath::Still { since: at(1) }));
    }

    #[test]
    fn a_breath_begins_the_count_anew() {
        assert_eq!(after(&[(1, true), (15, false), (26, true)]), Some(Breath::Still { since: at(26) }));
        assert_eq!(after(&[(1, true), (15, false), (26, false)]), None);
        assert_eq!(after(&[(1, false)]), None);
    }
}
