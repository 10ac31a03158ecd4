//! From the engine's answer to what the model knows about a container.

use berth_model::{ContainerFacts, ContainerId};
use bollard::models::ContainerInspectResponse;
use jiff::Timestamp;

/// The label by which a container says whose it is.
pub const OWNER_LABEL: &str = "berth.owner";

/// `None` for an answer without an id, which is no answer about a container.
pub fn from_inspect(inspected: ContainerInspectResponse) -> Option<ContainerFacts> {
    let id = ContainerId(inspected.id?);
    let name = inspected.name.map(|name| name.trim_start_matches('/').to_owned()).filter(|name| !name.is_empty());
    let (given_image, labels) = inspected.config.map(|config| (config.image, config.labels)).unwrap_or_default();
    let labels: std::collections::BTreeMap<_, _> = labels.unwrap_or_default().into_iter().collect();
    Some(ContainerFacts {
        name: name.unwrap_or_else(|| id.short().to_owned()),
        image: given_image.or(inspected.image).unwrap_or_default(),
        owner: labels.get(OWNER_LABEL).filter(|owner| !owner.is_empty()).cloned(),
        started_at: inspected.state.and_then(|state| started_at(&state.started_at?)),
        labels,
        id,
    })
}

/// The engine writes year 1 for "never".
fn started_at(text: &str) -> Option<Timestamp> {
    text.parse().ok().filter(|at| *at > Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
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
    fn an_answer_about_nobody_is_no_answer() {
        assert_eq!(facts("{}"), None);
    }
}
