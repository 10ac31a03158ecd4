//! When deadlines were missed on each GPU: the last few, for whoever places containers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_model::cluster::report::MOST_MISSES;
use berth_model::snapshot::MissRow;
use berth_model::{Anchor, GpuUuid, Mono};

/// Newest first. GPUs are as many as the host has had.
#[derive(Debug, Default)]
pub(super) struct Misses {
    gpus: BTreeMap<GpuUuid, VecDeque<Mono>>,
}

impl Misses {
    /// By one that was on all of these.
    pub fn add(&mut self, gpus: &BTreeSet<GpuUuid>, at: Mono) {
        for gpu in gpus {
            let misses = self.gpus.entry(gpu.clone()).or_default();
            misses.push_front(at);
            misses.truncate(MOST_MISSES);
        }
    }

    pub fn view(&self, now: &Anchor) -> Vec<MissRow> {
        let row = |gpu: &GpuUuid, at: &Mono| MissRow { gpu_uuid: gpu.clone(), missed_at: now.wall_at(*at) };
        self.gpus.iter().flat_map(|(gpu, misses)| misses.iter().map(move |at| row(gpu, at))).collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn the_last_on_each_gpu_are_kept_the_latest_first() {
        let gpu = |name: &str| GpuUuid(name.into());
        let mut misses = Misses::default();
        for second in 0..100u64 {
            misses.add(&[gpu("a")].into(), Mono(second * 1_000_000_000));
        }
        misses.add(&[gpu("a"), gpu("b")].into(), Mono(100_000_000_000));
        let now = Anchor { mono: Mono(0), wall: Timestamp::UNIX_EPOCH };
        let seconds = |name: &str| -> Vec<i64> {
            let rows = misses.view(&now).into_iter().filter(|row| row.gpu_uuid == gpu(name));
            rows.map(|row| row.missed_at.as_second()).collect()
        };
        assert_eq!(seconds("b"), [100]);
        assert_eq!((seconds("a").len(), &seconds("a")[..3]), (MOST_MISSES, &[100, 99, 98][..]));
    }
}
