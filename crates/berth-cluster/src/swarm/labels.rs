//! What is written on a service and its container: where it was placed and what for. It is all the placer has after a restart.

use std::collections::BTreeMap;

use berth_model::cluster::api::PlaceRequest;
use berth_model::cluster::{Choice, PLACEMENT_LABEL, PlacementId};
use berth_model::deadline::{LABEL as DEADLINE, TAKES_LABEL as TAKES, UNIT_LABEL as UNIT, Unit};
use berth_model::id::GpuUuid;

/// GPU memory it needs.
pub const MEMORY: &str = "berth.memory";
/// The node it was placed on, which its constraint names too.
pub const NODE: &str = "berth.node";
/// The GPUs it was given, with commas between them.
pub const GPUS: &str = "berth.gpus";
/// On a service that has lost its node, while nobody takes it: why not.
pub const PENDING: &str = "berth.pending";
/// On a service that was made without a container: the placer starts it, when its place has turned out to be still its own.
pub const START: &str = "berth.start";
/// On a service that has lost its node, while it has no container: how many it had.
pub const REPLICAS: &str = "berth.replicas";
/// Who starts it.
pub const BY_PLACER: &str = "placer";

/// Variables by which a container is given its GPUs.
pub const VARIABLES: [&str; 2] = ["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"];

/// On the service, for the placer.
pub fn of_service(request: &PlaceRequest, id: PlacementId, choice: &Choice) -> Vec<(&'static str, String)> {
    let mut labels = of_container(request, id);
    labels.extend([(NODE, choice.node.to_string()), (GPUS, gpus(choice))]);
    labels
}

/// On the container, for the daemon of its node.
pub fn of_container(request: &PlaceRequest, id: PlacementId) -> Vec<(&'static str, String)> {
    let labels = [
        Some((PLACEMENT_LABEL, id.to_string())),
        request.deadline.map(|deadline| (DEADLINE, deadline.to_string())),
        (request.unit != Unit::Task).then(|| (UNIT, request.unit.as_str().to_owned())),
        request.memory_bytes.map(|bytes| (MEMORY, format!("{}B", bytes.0))),
        request.takes.map(|takes| (TAKES, takes.to_string())),
    ];
    labels.into_iter().flatten().collect()
}

/// As a container's variables name them.
pub fn gpus(choice: &Choice) -> String {
    choice.gpus.iter().map(|gpu| gpu.0.as_str()).collect::<Vec<_>>().join(",")
}

/// The other way round. `None` if the service was not placed, or somebody has changed what was written on it.
pub fn read(labels: &BTreeMap<String, String>) -> Option<(PlacementId, PlaceRequest, Choice)> {
    let get = |label: &str| labels.get(label).map(String::as_str);
    let gpus: Vec<GpuUuid> = get(GPUS)?.split(',').map(|uuid| GpuUuid(uuid.to_owned())).collect();
    let request = PlaceRequest {
        deadline: get(DEADLINE).and_then(|text| text.parse().ok()),
        unit: if get(UNIT) == Some(Unit::Burst.as_str()) { Unit::Burst } else { Unit::Task },
        memory_bytes: get(MEMORY).and_then(|text| text.parse().ok()),
        gpus: u32::try_from(gpus.len()).ok()?,
        image: None,
        takes: get(TAKES).and_then(|text| text.parse().ok()),
        constraints: Vec::new(),
        detail: false,
    };
    let choice = Choice { node: get(NODE)?.parse().ok()?, gpus };
    Some((get(PLACEMENT_LABEL)?.parse().ok()?, request, choice))
}

#[cfg(test)]
mod tests {
    use berth_model::quantity::Bytes;

    use super::*;

    #[test]
    fn what_was_placed_is_read_as_it_was_written() {
        let request = PlaceRequest {
            deadline: Some("1500ms".parse().unwrap()),
            unit: Unit::Burst,
            memory_bytes: Some(Bytes((20 << 30) + 1)),
            gpus: 2,
            image: None,
            takes: Some("700ms".parse().unwrap()),
            constraints: vec![],
            detail: false,
        };
        let choice =
            Choice { node: "n2".parse().unwrap(), gpus: ["GPU-a", "GPU-b"].map(|gpu| GpuUuid(gpu.into())).into() };
        let id = PlacementId(0xfeed);
        let labels = of_service(&request, id, &choice);
        let written = labels.into_iter().map(|(label, value)| (label.to_owned(), value)).collect();
        assert_eq!(read(&written), Some((id, request, choice)));
        for label in [PLACEMENT_LABEL, NODE, GPUS] {
            let mut without: BTreeMap<String, String> = written.clone();
            without.remove(label);
            assert_eq!(read(&without), None, "{label}");
        }
    }
}
