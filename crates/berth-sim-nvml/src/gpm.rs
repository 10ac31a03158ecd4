//! Counters of Hopper and later, between two readings of them: of all there are, what was used of the memory's bandwidth.

use std::ffi::c_uint;

use berth_proto::nvml::{GPM_DRAM_BANDWIDTH, GPM_VERSION, GpmMetric, GpmMetricsGet, GpmSupport, result};
use berth_proto::nvml_state::{Area, Gpu, TRAFFIC_LAG_US};

use crate::edge::{Answer, Out, Owned};
use crate::state;

/// The first GPUs that have them, by compute capability.
const FIRST_WITH: (u32, u32) = (9, 0);

/// One reading of a GPU's counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sample {
    traffic_us: u64,
    /// Up to when that is counted; 0 before the first reading.
    until_us: u64,
}

/// What a caller passes for a sample.
pub type Held = Owned<Sample>;

pub(crate) fn support(device: u64, out: Out<GpmSupport>) -> Answer {
    let (_, gpu) = state::gpu(device, Area::Device)?;
    let version = out.get()?.version;
    if version != GPM_VERSION {
        return Err(result::ARGUMENT_VERSION_MISMATCH);
    }
    out.set(GpmSupport { version, supported: u32::from(has_counters(&gpu)) })
}

pub(crate) fn alloc(out: Out<Held>) -> Answer {
    out.set(Owned::of(Sample::default()))
}

pub(crate) fn free(sample: Held) -> Answer {
    sample.free()
}

pub(crate) fn read(device: u64, sample: Held) -> Answer {
    let (_, gpu) = state::gpu(device, Area::Utilisation)?;
    if !has_counters(&gpu) {
        return Err(result::NOT_SUPPORTED);
    }
    // A GPU that is idle counts nothing any more, so that its last window is of long ago.
    let until_us = gpu.traffic_at_us.max(state::epoch_us().saturating_sub(TRAFFIC_LAG_US));
    sample.set(Sample { traffic_us: gpu.traffic_us, until_us })
}

pub(crate) fn metrics(out: Out<GpmMetricsGet<Held>>) -> Answer {
    let GpmMetricsGet { version, count, samples: [before, after] } = out.get()?;
    if version != GPM_VERSION {
        return Err(result::ARGUMENT_VERSION_MISMATCH);
    }
    let bandwidth = used_pct(before.get()?, after.get()?).ok_or(result::INVALID_ARGUMENT)?;
    let metrics: Out<GpmMetric> = out.after();
    for number in 0..count {
        let metric = metrics.at(number);
        let asked = metric.get()?;
        let (result, value) = match asked.id {
            GPM_DRAM_BANDWIDTH => (result::SUCCESS, bandwidth),
            _ => (result::NOT_SUPPORTED, 0.0),
        };
        metric.set(GpmMetric { result, value, ..asked })?;
    }
    Ok(())
}

/// `None` unless one was read after the other.
fn used_pct(before: Sample, after: Sample) -> Option<f64> {
    let passed_us = after.until_us.checked_sub(before.until_us).filter(|us| *us > 0 && before.until_us > 0)?;
    let used_us = after.traffic_us.checked_sub(before.traffic_us)?;
    Some((100.0 * used_us as f64 / passed_us as f64).min(100.0))
}

fn has_counters(gpu: &Gpu) -> bool {
    gpu.compute_capability >= FIRST_WITH
}

/// Streaming by the driver itself is off, and stays off.
pub(crate) fn streaming(device: u64, out: Out<c_uint>) -> Answer {
    state::gpu(device, Area::Device)?;
    out.set(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_of_the_time_between_two_readings() {
        let sample = |traffic_us, until_us| Sample { traffic_us, until_us };
        assert_eq!(used_pct(sample(100, 1_000), sample(350, 2_000)), Some(25.0));
        assert_eq!(used_pct(sample(100, 1_000), sample(100, 2_000)), Some(0.0));
        for (before, after) in [
            (Sample::default(), sample(1, 1_000)),
            (sample(1, 1_000), sample(1, 1_000)),
            (sample(1, 2_000), sample(1, 1_000)),
            (sample(9, 1_000), sample(1, 2_000)),
        ] {
            assert_eq!(used_pct(before, after), None, "{before:?} {after:?}");
        }
    }
}
