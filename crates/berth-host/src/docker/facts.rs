//! From the engine's answer to what the model knows about a container.

use std::time::Duration;

use berth_model::{ContainerFacts, ContainerId, HealthChecks, Stop};
use bollard::models::{ContainerConfig, ContainerInspectResponse, HealthConfig};
use jiff::Timestamp;

/// What the engine takes where a health check does not say.
const HEALTH_INTERVAL: Duration = Duration::from_secs(30);
const HEALTH_START_INTERVAL: Duration = Duration::from_secs(5);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);

/// For a container that its engine does not kill however long it takes to stop.
const NEVER: Duration = Duration::from_secs(24 * 3600);

/// The label by which a container says whose it is.
pub const OWNER_LABEL: &str = "berth.owner";

/// `None` for an answer without an id, which is no answer about a container.
pub fn from_inspect(inspected: ContainerInspectResponse) -> Option<ContainerFacts> {
    let id = ContainerId(inspected.id?);
    let name = inspected.name.map(|name| name.trim_start_matches('/').to_owned()).filter(|name| !name.is_empty());
    let config = inspected.config.unwrap_or_default();
    let stop = stop(&config);
    let (given_image, labels) = (config.image, config.labels);
    let labels: std::collections::BTreeMap<_, _> = labels.unwrap_or_default().into_iter().collect();
    Some(ContainerFacts {
        name: name.unwrap_or_else(|| id.short().to_owned()),
        image: given_image.or(inspected.image).unwrap_or_default(),
        owner: labels.get(OWNER_LABEL).filter(|owner| !owner.is_empty()).cloned(),
        started_at: inspected.state.and_then(|state| started_at(&state.started_at?)),
        health: config.healthcheck.as_ref().and_then(health),
        endurance: None,
        stop,
        labels,
        id,
    })
}

/// The engine writes year 1 for "never".
fn started_at(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(|at| *at > Timestamp::UNIX_EPOCH)
}

/// What a container leaves to the engine is not written. One that never kills by itself is given as long as any.
fn stop(config: &ContainerConfig) -> Stop {
    let default = Stop::default();
    let signal = config.stop_signal.as_ref().and_then(|signal| signal.parse().ok());
    let kills_after = config.stop_timeout.map(|seconds| u64::try_from(seconds).map_or(NEVER, Duration::from_secs));
    Stop { signal: signal.unwrap_or(default.signal), kills_after: kills_after.unwrap_or(default.kills_after) }
}

/// The engine writes nanoseconds, 0 for its own choice, and `["NONE"]` for a check the image has and the container has not.
fn health(check: &HealthConfig) -> Option<HealthChecks> {
    let test = check.test.as_ref()?.first()?;
    let given = |nanos: Option<i64>| nanos.and_then(|nanos| u64::try_from(nanos).ok()).filter(|nanos| *nanos > 0);
    let interval = |nanos, default| given(nanos).map_or(default, Duration::from_nanos);
    let later = interval(check.interval, HEALTH_INTERVAL);
    let starting = given(check.start_period).map(|_| interval(check.start_interval, HEALTH_START_INTERVAL));
    let every = starting.map_or(later, |starting| starting.min(later));
    (test != "NONE").then(|| HealthChecks { every, within: interval(check.timeout, HEALTH_TIMEOUT) })
}

#[cfg(test)]
mod tests {
    use berth_model::hold::Signal;

    use super::*;

    fn facts(json: &str) -> Option<ContainerFacts> {
        from_inspect(serde_json::from_str(json).unwrap())
    }

    const ID: &str = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";

    #[test]
    fn a_running_container_is_described_from_the_engine_s_answer() {
        let facts = facts(&format!(
            r#"{{"Id":"{ID}","Name":"/trainer","Image":"sha256:abc","Created":"2026-11-15T10:00:00Z",
                "State":{{"Status":"running","Running":true,"Pid":77,"StartedAt":"2026-11-15T10:11:12.123456789Z","FinishedAt":"0001-01-01T00:00:00Z"}},
                "Config":{{"Image":"pytorch:2","Labels":{{"berth.owner":"ann","com.docker.compose.project":"x"}}}}}}"#
        ))
        .unwrap();
        assert_eq!((facts.id.0.as_str(), facts.name.as_str(), facts.image.as_str()), (ID, "trainer", "pytorch:2"));
        assert_eq!(facts.owner.as_deref(), Some("ann"));
        assert_eq!(facts.labels.len(), 2);
        assert_eq!(facts.started_at, Some("2026-11-15T10:11:12.123456789Z".parse().unwrap()));
    }

    #[test]
    fn what_the_engine_leaves_out_is_unknown() {
        let facts = facts(&format!(
            r#"{{"Id":"{ID}","Image":"sha256:abc","State":{{"StartedAt":"0001-01-01T00:00:00Z"}},"Config":{{"Labels":null}}}}"#
        ))
        .unwrap();
        assert_eq!((facts.name.as_str(), facts.image.as_str()), (&ID[..12], "sha256:abc"));
        assert_eq!((facts.owner, facts.started_at), (None, None));
    }

    #[test]
    fn a_health_check_s_interval_is_the_shortest_the_engine_will_use() {
        let checks = |check: &str| {
            let facts = facts(&format!(r#"{{"Id":"{ID}","Config":{{"Healthcheck":{check}}}}}"#)).unwrap();
            facts.health.map(|health| (health.every.as_millis(), health.within.as_secs()))
        };
        assert_eq!(checks(r#"{"Test":["CMD","true"],"Interval":1500000000,"Timeout":3000000000}"#), Some((1_500, 3)));
        assert_eq!(checks(r#"{"Test":["CMD-SHELL","true"]}"#), Some((30_000, 30)), "the engine's own choice");
        assert_eq!(
            checks(r#"{"Test":["CMD","true"],"StartPeriod":1,"Interval":0}"#),
            Some((5_000, 30)),
            "while it starts"
        );
        assert_eq!(checks(r#"{"Test":["CMD","true"],"StartPeriod":1,"Interval":2000000000}"#), Some((2_000, 30)));
        assert_eq!(checks(r#"{"Test":["NONE"],"Interval":1}"#), None);
        assert_eq!(checks(r#"{"Test":[]}"#), None, "inherited, and there is nothing to inherit");
    }

    #[test]
    fn a_container_is_stopped_as_it_says_and_else_as_engines_do() {
        let stop = |config: &str| facts(&format!(r#"{{"Id":"{ID}","Config":{config}}}"#)).unwrap().stop;
        assert_eq!(stop("{}"), Stop::default());
        let graceful = stop(r#"{"StopSignal":"SIGWINCH","StopTimeout":120}"#);
        assert_eq!((graceful.signal, graceful.kills_after), (Signal::WINCH, Duration::from_secs(120)));
        assert!(stop(r#"{"StopTimeout":-1}"#).kills_after > Duration::from_secs(3600));
    }

    #[test]
    fn an_answer_about_nobody_is_no_answer() {
        assert_eq!(facts("{}"), None);
    }
}
