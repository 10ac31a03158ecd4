//! When the hold of a Docker container becomes its engine's business: after how long its pause takes over from the freezer.
//!
//! A freeze by the cgroup is taken back in no time, and the engine knows nothing of it: its health checks fail in there. A
//! pause costs the release some 20 ms, is shown, and suspends them. Whether a hold will be long nobody knows at its beginning.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::{ContainerId, Event, Stop, TenantKey};

/// Of the time between two health checks: so seldom does one find a container frozen that the engine believes to run.
const OF_A_CHECK: u32 = 100;

/// Containers the engine has described.
#[derive(Debug, Default)]
pub(super) struct Pausing {
    described: BTreeMap<ContainerId, Described>,
}

#[derive(Debug, Clone, Copy)]
struct Described {
    /// Between two checks of its health, if there are any.
    health_interval: Option<Duration>,
    stop: Stop,
}

impl Pausing {
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Container(facts) => {
                let (health_interval, stop) = (facts.health_interval, facts.stop);
                self.described.insert(facts.id.clone(), Described { health_interval, stop });
            }
            Event::ContainerGone { id } => {
                self.described.remove(id);
            }
            _ => {}
        }
    }

    /// `None` for those that no engine here can pause. `usual` for the others, but sooner where health is checked: when the
    /// next check comes is not known.
    pub fn after(&self, tenant: &TenantKey, usual: Duration) -> Option<Duration> {
        let described = self.described.get(tenant.docker_id()?)?;
        Some(described.health_interval.map_or(usual, |between| usual.min(between / OF_A_CHECK)))
    }

    /// How its engine stops it; `None` for those that no engine here has described.
    pub fn stop_of(&self, tenant: &TenantKey) -> Option<Stop> {
        self.described.get(tenant.docker_id()?).map(|described| described.stop)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap as Labels;

    use berth_model::{ContainerFacts, Runtime};

    use super::*;

    const USUAL: Duration = Duration::from_secs(10);

    fn described(pausing: &mut Pausing, id: &ContainerId, health_interval: Option<Duration>) {
        pausing.note(&Event::Container(Box::new(ContainerFacts {
            id: id.clone(),
            name: "a".into(),
            image: "b".into(),
            labels: Labels::new(),
            owner: None,
            started_at: None,
            health_interval,
            stop: Stop::default(),
        })));
    }

    #[test]
    fn only_what_the_engine_has_described_is_paused_and_soon_where_it_checks_health() {
        let (mut pausing, id) = (Pausing::default(), ContainerId("1".into()));
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        assert_eq!(pausing.after(&tenant, USUAL), None);
        described(&mut pausing, &id, None);
        assert_eq!(pausing.after(&tenant, USUAL), Some(USUAL));
        described(&mut pausing, &id, Some(Duration::from_secs(30)));
        assert_eq!(pausing.after(&tenant, USUAL), Some(Duration::from_millis(300)));
        assert_eq!(pausing.after(&tenant, Duration::ZERO), Some(Duration::ZERO));
        assert_eq!(pausing.after(&TenantKey::User { uid: 1 }, USUAL), None);
        pausing.note(&Event::ContainerGone { id });
        assert_eq!(pausing.after(&tenant, USUAL), None);
    }
}
