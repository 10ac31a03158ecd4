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
    /// Since then it has wanted to compute: what was launched before may run on.
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
        let each = self.activities.seen_of(tenant).map(|seen| alone(seen, self.watched.get(&seen.process).copied()));
        let together = together(each);
        let at_launch = match together {
            Together::AtLaunch { since } => Some(since),
            _ => None,
        };
        let held_since = self.keeper.view(tenant, now).and_then(|view| view.held_since);
        if held_since.is_some() || at_launch.is_some() {
            return Pulse::Waits { since: at_launch, behind: self.behind(tenant) };
        }
        match together {
            Together::Standing => Pulse::Waits { since: None, behind: self.behind(tenant) },
            Together::Loading => Pulse::Loads,
            Together::Computing { since } => Pulse::Computes { since, crowd: self.crowd(row) },
            Together::Quiet { since } => Pulse::Quiet { since },
            Together::AtLaunch { .. } | Together::Unseen => by_looks(row, self.rules.monitor.idle_after.get(), now),
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

fn together(each: impl Iterator<Item = Together>) -> Together {
    each.reduce(both).unwrap_or(Together::Unseen)
}

/// `watched`: since when it is. What it did before may have ended, or begun again, unseen.
fn alone(Seen { activity, has_launched, .. }: Seen, watched: Option<Mono>) -> Together {
    let is_still_so = |since: Mono| watched.is_some_and(|watched| since >= watched);
    match activity {
        Activity::AtLaunch { since, computing_since } => {
            let before = computing_since.filter(|since| is_still_so(*since));
            Together::AtLaunch { since: before.map_or(since, |before| before.min(since)) }
        }
        Activity::AtContext { .. } | Activity::AtAllocation { .. } => Together::Standing,
        Activity::Opening { .. } | Activity::Loading => Together::Loading,
        Activity::Quiet { .. } if !has_launched => Together::Loading,
        Activity::Computing { since } if is_still_so(since) => Together::Computing { since },
        Activity::Quiet { since } if is_still_so(since) => Together::Quiet { since },
        Activity::Computing { .. } | Activity::Quiet { .. } | Activity::Unseen => Together::Unseen,
    }
}

/// The first of these that one of them does; since the first began it, or the last ended it.
fn both(one: Together, other: Together) -> Together {
    use Together::{AtLaunch, Computing, Loading, Quiet, Standing, Unseen};
    match (one, other) {
        (AtLaunch { since: a }, AtLaunch { since: b } | Computing { since: b })
        | (Computing { since: a }, AtLaunch { since: b }) => AtLaunch { since: a.min(b) },
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

    /// Processes that are watched since then, together.
    fn watched(since: u64, each: &[(Activity, bool)]) -> Together {
        let process = berth_model::ProcKey { pid: 1, start_ticks: 1 };
        let seen = each.iter().map(|&(activity, has_launched)| Seen { process, activity, has_launched });
        together(seen.map(|seen| alone(seen, Some(Mono(since)))))
    }

    fn of(each: &[(Activity, bool)]) -> Together {
        watched(0, each)
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
    }

    #[test]
    fn who_stands_at_a_launch_has_wanted_to_compute_since_the_first_of_its_launches_that_is_not_done() {
        let at_launch = |computing_since: Option<u64>| {
            (Activity::AtLaunch { since: Mono(70), computing_since: computing_since.map(Mono) }, true)
        };
        for each in
            [[computing(50), at_launch(None)], [at_launch(None), computing(50)], [quiet(60), at_launch(Some(50))]]
        {
            assert_eq!(of(&each), Together::AtLaunch { since: Mono(50) }, "{each:?}");
            assert_eq!(watched(51, &each), Together::AtLaunch { since: Mono(70) }, "that may be done: {each:?}");
        }
        assert_eq!(of(&[at_launch(None), computing(80)]), Together::AtLaunch { since: Mono(70) });
    }

    #[test]
    fn what_it_did_before_it_was_watched_says_nothing_of_what_it_does() {
        for before in [computing(50), quiet(50)] {
            assert_eq!(watched(51, &[before]), Together::Unseen);
            assert_ne!(watched(50, &[before]), Together::Unseen);
            assert_eq!(watched(51, &[before, computing(60)]), Together::Computing { since: Mono(60) });
            assert_eq!(watched(51, &[before, quiet(60)]), Together::Unseen, "the other may compute");
        }
        let loading = (Activity::Quiet { since: Mono(9) }, false);
        assert_eq!(watched(51, &[loading]), Together::Loading, "its first launch is told of everybody");
    }

    #[test]
    fn of_one_nobody_can_see_nothing_is_said() {
        assert_eq!(of(&[quiet(50), (Activity::Unseen, false)]), Together::Unseen);
        assert_eq!(of(&[]), Together::Unseen);
    }
}
