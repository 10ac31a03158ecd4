//! When the hold of a Docker container becomes its engine's business: after how long its pause takes over from the freezer.
//!
//! A freeze by the cgroup is taken back in no time, and the engine knows nothing of it. A pause costs the release some 20 ms, is
//! shown, and suspends checks of its health; while it lasts, and until the next check after it, `docker inspect` says `unhealthy`.
//! Whether a hold will be long nobody knows at its beginning. So the engine takes over when a hold has lasted, and not while a
//! check is near. When that is follows from what the engine tells of earlier ones.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::hold::{Check, Checks};
use berth_model::{ContainerId, Endurance, Event, Mono, Stop, TenantKey};

/// Of a pod's container that nobody has described yet, as while the API server is away: that it is probed as a node does where it is not
/// told otherwise, and killed at the first answer it owes.
const UNTOLD: Endurance = Endurance { still: Duration::from_millis(500), breath: Duration::from_secs(11) };

/// Containers the engine has described.
#[derive(Debug)]
pub(super) struct Pausing {
    described: BTreeMap<ContainerId, Described>,
    /// The engine is one that can pause: what a Kubernetes describes is frozen by its cgroup alone.
    can_pause: bool,
}

#[derive(Debug, Clone, Copy)]
struct Described {
    checks: Option<Checks>,
    endurance: Option<Endurance>,
    stop: Stop,
}

impl Pausing {
    pub fn new(can_pause: bool) -> Self {
        Self { described: BTreeMap::new(), can_pause }
    }

    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Container(facts) => {
                let known = self.described.get(&facts.id).and_then(|described| described.checks);
                let check = known.map_or(Check::Unknown, |checks| checks.check);
                let checks = facts.health.map(|of| Checks { of, check });
                let described = Described { checks, endurance: facts.endurance, stop: facts.stop };
                self.described.insert(facts.id.clone(), described);
            }
            Event::ContainerGone { id } => {
                self.described.remove(id);
            }
            Event::HealthCheck { id, is_over: false, at } => self.is_at(id, |_| Check::UnderWay { since: *at }),
            // The engine begins anew when it lets a container go on.
            Event::HealthCheck { id, at, .. } | Event::Paused { id, paused: false, at } => self.is_due_after(id, *at),
            _ => {}
        }
    }

    fn is_due_after(&mut self, id: &ContainerId, at: Mono) {
        self.is_at(id, |every| Check::DueAt(at + every));
    }

    fn is_at(&mut self, id: &ContainerId, check: impl FnOnce(Duration) -> Check) {
        if let Some(checks) = self.described.get_mut(id).and_then(|described| described.checks.as_mut()) {
            checks.check = check(checks.of.every);
        }
    }

    /// `None` for those that no engine here can pause. `usual` for the others, but for checks of their health.
    pub fn after(&self, tenant: &TenantKey, usual: Duration) -> (Option<Duration>, Option<Checks>) {
        let described = tenant.docker_id().filter(|_| self.can_pause).and_then(|id| self.described.get(id));
        (described.map(|_| usual), described.and_then(|described| described.checks))
    }

    /// Its engine has described it, and can pause it.
    pub fn can_pause(&self, tenant: &TenantKey) -> bool {
        self.can_pause && tenant.docker_id().is_some_and(|id| self.described.contains_key(id))
    }

    /// How its engine stops it; `None` for those that no engine here has described.
    pub fn stop_of(&self, tenant: &TenantKey) -> Option<Stop> {
        self.described.get(tenant.container_id()?).map(|described| described.stop)
    }

    /// How long it can stand still; `None` for as long as one likes.
    pub fn endurance_of(&self, tenant: &TenantKey) -> Option<Endurance> {
        match self.described.get(tenant.container_id()?) {
            Some(described) => described.endurance,
            None if self.can_pause => None,
            None => Some(UNTOLD),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap as Labels;

    use berth_model::{ContainerFacts, HealthChecks, Runtime};

    use super::*;

    const USUAL: Duration = Duration::from_secs(10);
    const EVERY: Duration = Duration::from_secs(30);

    fn described(pausing: &mut Pausing, id: &ContainerId, every: Option<Duration>) {
        pausing.note(&Event::Container(Box::new(ContainerFacts {
            id: id.clone(),
            name: "a".into(),
            image: "b".into(),
            labels: Labels::new(),
            owner: None,
            started_at: None,
            health: every.map(|every| HealthChecks { every, within: EVERY }),
            endurance: None,
            stop: Stop::default(),
        })));
    }

    #[test]
    fn only_what_the_engine_has_described_is_paused() {
        let (mut pausing, id) = (Pausing::new(true), ContainerId("1".into()));
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        assert_eq!(pausing.after(&tenant, USUAL), (None, None));
        described(&mut pausing, &id, None);
        assert_eq!(pausing.after(&tenant, USUAL), (Some(USUAL), None));
        assert_eq!(pausing.after(&TenantKey::User { uid: 1 }, USUAL), (None, None));
        pausing.note(&Event::ContainerGone { id });
        assert_eq!(pausing.after(&tenant, USUAL), (None, None));
    }

    #[test]
    fn what_kubernetes_describes_is_paused_by_nobody() {
        let (mut pausing, id) = (Pausing::new(false), ContainerId("1".into()));
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        described(&mut pausing, &id, None);
        assert_eq!(pausing.after(&tenant, USUAL), (None, None));
        assert!(!pausing.can_pause(&tenant));
        assert_eq!(pausing.stop_of(&tenant), Some(Stop::default()), "what is said of its end counts");
    }

    #[test]
    fn a_pod_that_nobody_has_described_yet_is_taken_to_be_probed() {
        let (mut pausing, id) = (Pausing::new(false), ContainerId("1".into()));
        let tenant = TenantKey::Container { runtime: Runtime::Containerd, id: id.clone() };
        assert_eq!(pausing.endurance_of(&tenant), Some(UNTOLD));
        described(&mut pausing, &id, None);
        assert_eq!(pausing.endurance_of(&tenant), None, "it has no probes");
        assert_eq!(pausing.endurance_of(&TenantKey::User { uid: 1 }), None, "no node probes it");
        assert_eq!(Pausing::new(true).endurance_of(&tenant), None, "no node is there to probe it");
    }

    #[test]
    fn the_next_check_is_due_after_the_last_and_after_a_pause() {
        let (mut pausing, id) = (Pausing::new(true), ContainerId("1".into()));
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        let check = |pausing: &Pausing| pausing.after(&tenant, USUAL).1.unwrap().check;
        described(&mut pausing, &id, Some(EVERY));
        assert_eq!(check(&pausing), Check::Unknown);
        pausing.note(&Event::HealthCheck { id: id.clone(), is_over: false, at: Mono(5) });
        assert_eq!(check(&pausing), Check::UnderWay { since: Mono(5) });
        pausing.note(&Event::HealthCheck { id: id.clone(), is_over: true, at: Mono(6) });
        assert_eq!(check(&pausing), Check::DueAt(Mono(6) + EVERY));
        described(&mut pausing, &id, Some(EVERY));
        assert_eq!(check(&pausing), Check::DueAt(Mono(6) + EVERY), "a new description says nothing of that");
        pausing.note(&Event::Paused { id: id.clone(), paused: true, at: Mono(7) });
        pausing.note(&Event::Paused { id, paused: false, at: Mono(9) });
        assert_eq!(check(&pausing), Check::DueAt(Mono(9) + EVERY));
    }
}
