//! What a tenant does, as far as its deadlines are concerned.
//!
//! Of several processes whoever is busy makes the tenant so; it is quiet when the last that computed is done, whatever others have loaded
//! meanwhile. Policies ask another question, who speaks for the tenant ([`super::activity`]).

use berth_model::deadline::Pulse;
use berth_model::{Mono, TaskRow, TenantKey};
use berth_policy::Activity;

use super::Manager;
use super::activity::Seen;
use crate::deadlines::by_looks;

/// What the processes of a tenant do, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Together {
    AtLaunch {
        since: Mono,
    },
    Computing {
        since: Mono,
    },
    /// Before an allocation or a context.
    Standing,
    Quiet {
        since: Mono,
    },
    Loading,
    Unseen,
}

impl Manager {
    /// By its calls where they are watched, else by looks.
    pub fn pulse(&self, row: &TaskRow, now: Mono) -> Pulse {
        let tenant = &row.tenant;
        let together = together(self.activities.seen_of(tenant));
        let at_launch = match together {
            Together::AtLaunch { since } => Some(since),
            _ => None,
        };
        let held_since = self.keeper.view(tenant, now).and_then(|view| view.held_since);
        if held_since.is_some() || at_launch.is_some() {
            return Pulse::Waits { since: at_launch, behind: self.behind(tenant) };
        }
        let is_watched = self.activities.processes_of(tenant).is_subset(&self.watched);
        match together {
            Together::Standing => Pulse::Waits { since: None, behind: self.behind(tenant) },
            Together::Loading => Pulse::Loads,
            Together::Computing { since } if is_watched => Pulse::Computes { since, crowd: self.crowd(row) },
            Together::Quiet { since } if is_watched => Pulse::Quiet { since },
            _ => by_looks(row, self.rules.monitor.idle_after.get(), now),
        }
    }

    /// For whom it waits, as people call it.
    fn behind(&self, tenant: &TenantKey) -> Option<String> {
        let waiting = self.queue.iter().find(|waiting| waiting.tenant == *tenant)?;
        waiting.behind.as_ref().map(|behind| self.name(behind))
    }

    /// How many compute on its GPUs, with it.
    fn crowd(&self, row: &TaskRow) -> u32 {
        let own = self.gpus.get(&row.tenant);
        let is_beside =
            |tenant: &TenantKey| own.zip(self.gpus.get(tenant)).is_none_or(|(own, its)| !own.is_disjoint(its));
        let computes =
            |tenant: &TenantKey| matches!(self.activities.activity_of(tenant), Some(Activity::Computing { .. }));
        let others =
            self.places.keys().filter(|tenant| **tenant != row.tenant && computes(tenant) && is_beside(tenant));
        u32::try_from(others.count() + 1).unwrap_or(u32::MAX)
    }
}

fn together(each: impl Iterator<Item = Seen>) -> Together {
    each.map(alone).reduce(both).unwrap_or(Together::Unseen)
}

fn alone(Seen { activity, has_launched }: Seen) -> Together {
    match activity {
        Activity::AtLaunch { since, .. } => Together::AtLaunch { since },
        Activity::Computing { since } => Together::Computing { since },
        Activity::AtContext { .. } | Activity::AtAllocation { .. } => Together::Standing,
        Activity::Quiet { since } if has_launched => Together::Quiet { since },
        Activity::Opening { .. } | Activity::Loading | Activity::Quiet { .. } => Together::Loading,
        Activity::Unseen => Together::Unseen,
    }
}

/// The first of these that one of them does; since the first began it, or the last ended it.
fn both(one: Together, other: Together) -> Together {
    use Together::{AtLaunch, Computing, Loading, Quiet, Standing, Unseen};
    match (one, other) {
        (AtLaunch { since: a }, AtLaunch { since: b }) => AtLaunch { since: a.min(b) },
        (AtLaunch { since }, _) | (_, AtLaunch { since }) => AtLaunch { since },
        (Computing { since: a }, Computing { since: b }) => Computing { since: a.min(b) },
        (Computing { since }, _) | (_, Computing { since }) => Computing { since },
        (Standing, _) | (_, Standing) => Standing,
        // Nobody knows what it does, so nobody knows that all is quiet.
        (Unseen, _) | (_, Unseen) => Unseen,
        (Quiet { since: a }, Quiet { since: b }) => Quiet { since: a.max(b) },
        (Quiet { since }, Loading) | (Loading, Quiet { since }) => Quiet { since },
        (Loading, Loading) => Loading,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(each: &[(Activity, bool)]) -> Together {
        together(each.iter().map(|(activity, has_launched)| Seen { activity: *activity, has_launched: *has_launched }))
    }

    fn quiet(since: u64) -> (Activity, bool) {
        (Activity::Quiet { since: Mono(since) }, true)
    }

    fn computing(since: u64) -> (Activity, bool) {
        (Activity::Computing { since: Mono(since) }, true)
    }

    #[test]
    fn a_tenant_is_quiet_since_the_last_of_its_processes_is() {
        assert_eq!(of(&[quiet(50), quiet(20)]), Together::Quiet { since: Mono(50) });
        assert_eq!(of(&[quiet(20), quiet(50)]), Together::Quiet { since: Mono(50) });
        let loading = (Activity::Loading, false);
        assert_eq!(of(&[quiet(50), loading]), Together::Quiet { since: Mono(50) }, "that one never computed");
        assert_eq!(of(&[loading, (Activity::Quiet { since: Mono(9) }, false)]), Together::Loading);
    }

    #[test]
    fn a_tenant_computes_since_the_first_of_its_processes_does() {
        assert_eq!(of(&[computing(50), quiet(60), computing(20)]), Together::Computing { since: Mono(20) });
        let at_launch = (Activity::AtLaunch { since: Mono(70), computing_since: None }, false);
        assert_eq!(of(&[computing(50), at_launch]), Together::AtLaunch { since: Mono(70) });
    }

    #[test]
    fn of_one_nobody_can_see_nothing_is_said() {
        assert_eq!(of(&[quiet(50), (Activity::Unseen, false)]), Together::Unseen);
        assert_eq!(of(&[]), Together::Unseen);
    }
}
