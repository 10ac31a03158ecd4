//! What a GPU's kernels use of its memory's bandwidth, by the counters of Hopper and later: always between two readings of them.

use std::time::Duration;

use berth_model::{BandwidthUse, GpuIndex, Mono};
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError as Code;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::{Device, Nvml};

use super::error::is_absent;
use super::sys::KeptSample;
use crate::clock;

/// Over more than this a mean says little of now.
const LONGEST: Duration = Duration::from_secs(5);

/// Of one GPU.
#[derive(Debug, Default)]
pub struct Counters {
    last: Option<Reading>,
    /// This GPU or driver has none.
    are_absent: bool,
}

#[derive(Debug)]
struct Reading {
    sample: KeptSample,
    at: Mono,
}

impl Counters {
    /// What was used since they were last read; `None` the first time, after a long time, and where there are none.
    pub fn read(&mut self, nvml: &Nvml, device: &Device<'_>, gpu: GpuIndex) -> Option<BandwidthUse> {
        if self.are_absent {
            return None;
        }
        let sample = device.gpm_sample();
        self.are_absent = sample.as_ref().is_err_and(is_absent);
        let (sample, until) = (sample.ok()?, clock::now());
        let before = self.last.take().map(|last| (last.at, last.sample.into_sample(nvml)));
        let recent = before.filter(|(since, _)| until.since(*since) <= LONGEST);
        let used = recent.and_then(|(since, before)| {
            let share = used_between(nvml, &before, &sample).ok()??;
            Some(BandwidthUse { gpu, share, since, until })
        });
        self.last = Some(Reading { sample: KeptSample::of(sample), at: until });
        used
    }

    /// The library is about to be closed, or another GPU comes in this one's place.
    pub fn forget(&mut self, nvml: &Nvml) {
        drop(self.last.take().map(|last| last.sample.into_sample(nvml)));
        self.are_absent = false;
    }
}

/// As a part of all there is; `None` where the driver says what cannot be.
fn used_between<'n>(nvml: &'n Nvml, before: &GpmSample<'n>, after: &GpmSample<'n>) -> Result<Option<f64>, Code> {
    let told = gpm_metrics_get(nvml, before, after, &[GpmMetricId::DramBwUtil])?;
    let share = told.into_iter().next().transpose()?.map(|told| told.value / 100.0);
    Ok(share.filter(|share| (0.0..=1.0).contains(share)))
}
