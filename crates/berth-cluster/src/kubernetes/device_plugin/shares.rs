//! Shares of GPUs: each GPU is offered several times, so that several pods can have it. Pure.
//!
//! A share's id names its GPU. The kubelet gives out ids and counts them; what is asked of it is that it takes those of the GPUs the placer
//! has chosen. With more GPUs wanted than one, each share is of another GPU.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::GpuUuid;

use super::v1beta1::Device;

/// Between the GPU's UUID and the number of the share.
const SEPARATOR: &str = "::";
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";

/// A GPU of this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    pub uuid: GpuUuid,
    /// It does not answer: nothing new goes there.
    pub is_lost: bool,
}

/// What is offered.
pub(super) fn devices(gpus: &[Gpu], shares: u16) -> Vec<Device> {
    let of = |gpu: &Gpu| {
        let health = if gpu.is_lost { UNHEALTHY } else { HEALTHY };
        let uuid = gpu.uuid.clone();
        (0..shares).map(move |number| Device { id: format!("{uuid}{SEPARATOR}{number}"), health: health.to_owned() })
    };
    gpus.iter().flat_map(of).collect()
}

/// The GPU a share is of.
pub(super) fn gpu_of(share: &str) -> Option<GpuUuid> {
    share.rsplit_once(SEPARATOR).map(|(uuid, _)| GpuUuid(uuid.to_owned()))
}

/// The GPUs of these shares, each once, in order.
pub(super) fn gpus_of(shares: &[String]) -> Vec<GpuUuid> {
    let each: BTreeSet<GpuUuid> = shares.iter().filter_map(|share| gpu_of(share)).collect();
    each.into_iter().collect()
}

/// Which of the `available` shares to take: those that must be, then of the `chosen` GPUs, then of those that have most left; each of
/// another GPU for as long as there is one.
pub(super) fn prefer(available: &[String], must: &[String], size: usize, chosen: &[GpuUuid]) -> Vec<String> {
    let mut taken: Vec<String> = must.iter().take(size).cloned().collect();
    let mut left: BTreeMap<GpuUuid, Vec<&String>> = BTreeMap::new();
    for share in available.iter().filter(|share| !must.contains(share)) {
        left.entry(gpu_of(share).unwrap_or_else(|| GpuUuid(String::new()))).or_default().push(share);
    }
    while taken.len() < size {
        let has = |gpu: &GpuUuid| taken.iter().filter(|share| gpu_of(share).as_ref() == Some(gpu)).count();
        // The fewest it has there, then the placer's choice, then where most is left.
        let best = left.iter().filter(|(_, shares)| !shares.is_empty()).min_by_key(|(gpu, shares)| {
            let is_other = chosen.len() < size && has(gpu) > 0;
            (!chosen.contains(gpu), is_other, has(gpu), usize::MAX - shares.len())
        });
        let Some(gpu) = best.map(|(gpu, _)| gpu.clone()) else { break };
        taken.extend(left.get_mut(&gpu).and_then(Vec::pop).cloned());
    }
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuid(name: &str) -> GpuUuid {
        GpuUuid(name.to_owned())
    }

    fn shares(of: &[(&str, u32)]) -> Vec<String> {
        of.iter().flat_map(|(gpu, count)| (0..*count).map(move |number| format!("{gpu}::{number}"))).collect()
    }

    fn gpus(preferred: &[String]) -> Vec<String> {
        gpus_of(preferred).into_iter().map(|gpu| gpu.0).collect()
    }

    #[test]
    fn each_gpu_is_offered_several_times_and_a_lost_one_as_ill() {
        let gpus = [Gpu { uuid: uuid("GPU-a"), is_lost: false }, Gpu { uuid: uuid("GPU-b"), is_lost: true }];
        let devices = devices(&gpus, 2);
        let shown: Vec<_> = devices.iter().map(|device| (device.id.as_str(), device.health.as_str())).collect();
        let (well, ill) = ("Healthy", "Unhealthy");
        assert_eq!(shown, [("GPU-a::0", well), ("GPU-a::1", well), ("GPU-b::0", ill), ("GPU-b::1", ill)]);
        assert_eq!(gpu_of("GPU-a::1"), Some(uuid("GPU-a")));
        assert_eq!(gpu_of("else"), None);
    }

    #[test]
    fn the_placer_s_choice_is_taken_while_there_are_shares_of_it() {
        let available = shares(&[("GPU-a", 3), ("GPU-b", 1)]);
        assert_eq!(gpus(&prefer(&available, &[], 1, &[uuid("GPU-b")])), ["GPU-b"]);
        assert_eq!(gpus(&prefer(&available, &[], 1, &[uuid("GPU-c")])), ["GPU-a"], "it has none left");
        assert_eq!(gpus(&prefer(&available, &[], 2, &[uuid("GPU-a"), uuid("GPU-b")])), ["GPU-a", "GPU-b"]);
    }

    #[test]
    fn without_a_choice_several_are_of_several_gpus_and_one_is_of_the_freest() {
        let available = shares(&[("GPU-a", 1), ("GPU-b", 2), ("GPU-c", 3)]);
        assert_eq!(gpus(&prefer(&available, &[], 1, &[])), ["GPU-c"]);
        assert_eq!(gpus(&prefer(&available, &[], 3, &[])), ["GPU-a", "GPU-b", "GPU-c"]);
        assert_eq!(prefer(&available, &[], 6, &[]).len(), 6, "more than there are GPUs");
        assert_eq!(prefer(&available, &[], 7, &[]).len(), 6, "and no more than there are");
    }

    #[test]
    fn what_must_be_taken_is_taken_once() {
        let available = shares(&[("GPU-a", 2), ("GPU-b", 2)]);
        let must = ["GPU-a::1".to_owned()];
        let taken = prefer(&available, &must, 2, &[uuid("GPU-b")]);
        assert_eq!(taken.iter().filter(|share| **share == must[0]).count(), 1);
        assert_eq!(gpus(&taken), ["GPU-a", "GPU-b"]);
    }
}
