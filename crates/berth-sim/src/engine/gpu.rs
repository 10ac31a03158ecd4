//! One simulated GPU: its memory account, SMs, copy engines, the driver's lock, and what NVML's meter sees.

use std::collections::{BTreeMap, VecDeque};

use berth_proto::sim::Device;

use crate::profile::Profile;

use super::api::Sharing;
use super::fluid::{Fluid, Job};
use super::meter::{Activity, Meter};
use super::rng::Rng;
use super::shares;
use super::time::from_ms;

pub(super) const MIB: u64 = 1 << 20;

/// The resources of a GPU on which work takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Compute,
    CopyIn,
    CopyOut,
}

#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) device: Device,
    pub(super) used: u64,
    compute: Fluid,
    copy_in: Fluid,
    copy_out: Fluid,
    /// A context is being made or torn down in the way that stops the SMs.
    pub(super) blocked: bool,
    pub(super) driver: DriverLock,
    pub(super) meter: Meter,
    pub(super) lost: bool,
    sharing: Sharing,
    slice_efficiency: f64,
    copy_in_capacity: f64,
    copy_out_capacity: f64,
}

/// Parts of making and ending contexts that the driver does for one process at a time, first come first served.
#[derive(Debug, Default)]
pub(super) struct DriverLock {
    pub(super) holder: Option<Section>,
    pub(super) waiting: VecDeque<Section>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) context: u64,
    pub(super) kind: SectionKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionKind {
    Create,
    Teardown,
}

impl Gpu {
    pub(super) fn new(profile: &Profile, sharing: Sharing, rng: &mut Rng) -> Gpu {
        let compute = &profile.compute;
        let copy = &profile.copy;
        Gpu {
            device: device(profile, rng),
            used: profile.gpu.reserved_mib * MIB,
            compute: Fluid::default(),
            copy_in: Fluid::default(),
            copy_out: Fluid::default(),
            blocked: false,
            driver: DriverLock::default(),
            meter: Meter::new(from_ms(profile.nvml.utilisation_window_ms as f64)),
            lost: false,
            sharing,
            slice_efficiency: compute.slice_us / (compute.slice_us + compute.switch_us),
            copy_in_capacity: copy.h2d_engine_gbps / copy.h2d_process_gbps,
            copy_out_capacity: copy.d2h_engine_gbps / copy.d2h_process_gbps,
        }
    }

    pub(super) fn free(&self) -> u64 {
        self.device.total_memory - self.used
    }

    /// Changes what one context is charged from `old` to `new`, or changes nothing when that does not fit.
    pub(super) fn recharge(&mut self, old: u64, new: u64) -> bool {
        let others = self.used - old;
        let fits = new <= self.device.total_memory - others;
        if fits {
            self.used = others + new;
        }
        fits
    }

    pub(super) fn next_end(&self) -> Option<u64> {
        [&self.compute, &self.copy_in, &self.copy_out].into_iter().filter_map(Fluid::next_end).min()
    }

    pub(super) fn submit(&mut self, now: u64, lane: Lane, job: Job) {
        self.lane(lane).add(now, job);
        self.share(now, lane);
    }

    /// Everything that has ended by `now`.
    pub(super) fn take_ended(&mut self, now: u64) -> Vec<(Lane, Job)> {
        let mut all = Vec::new();
        for lane in [Lane::Compute, Lane::CopyIn, Lane::CopyOut] {
            if self.lane(lane).next_end().is_some_and(|end| end <= now) {
                all.extend(self.lane(lane).take_ended(now).into_iter().map(|job| (lane, job)));
                self.share(now, lane);
            }
        }
        all
    }

    /// Drops the jobs of a context that is broken or whose process is gone.
    pub(super) fn drop_jobs(&mut self, now: u64, context: u64) {
        for lane in [Lane::Compute, Lane::CopyIn, Lane::CopyOut] {
            self.lane(lane).remove(now, |job| job.context == context);
            self.share(now, lane);
        }
    }

    pub(super) fn set_blocked(&mut self, now: u64, blocked: bool) {
        self.blocked = blocked;
        self.share(now, Lane::Compute);
    }

    /// Σ rate · demand of the kernels: the part of the SMs at work.
    pub(super) fn compute_load(&self) -> f64 {
        self.compute.jobs().iter().map(|job| job.rate * job.demand).sum()
    }

    fn lane(&mut self, lane: Lane) -> &mut Fluid {
        match lane {
            Lane::Compute => &mut self.compute,
            Lane::CopyIn => &mut self.copy_in,
            Lane::CopyOut => &mut self.copy_out,
        }
    }

    /// Gives the jobs of a lane their rates after one came or went.
    fn share(&mut self, now: u64, lane: Lane) {
        let rates = match lane {
            Lane::Compute if self.blocked => vec![0.0; self.compute.jobs().len()],
            Lane::Compute if self.sharing == Sharing::Mps => shares::together(self.compute.jobs()),
            Lane::Compute => shares::sliced(self.compute.jobs(), self.slice_efficiency),
            Lane::CopyIn => shares::copies(self.copy_in.jobs(), self.copy_in_capacity),
            Lane::CopyOut => shares::copies(self.copy_out.jobs(), self.copy_out_capacity),
        };
        self.lane(lane).set_rates(now, &rates);
        if lane == Lane::Compute {
            let activity = self.activity();
            self.meter.set(now, activity);
        }
    }

    /// Under time slicing each of m processes counts as running 1/m of the time, switching included; use under MPS is
    /// not told apart by process.
    fn activity(&self) -> Activity {
        if self.blocked || self.compute.jobs().is_empty() {
            return Activity::default();
        }
        let jobs = self.compute.jobs();
        let mut processes: BTreeMap<u32, f64> = jobs.iter().map(|job| (job.pid, 0.0)).collect();
        let turn = 1.0 / processes.len() as f64;
        processes.values_mut().for_each(|part| *part = turn);
        if self.sharing == Sharing::Mps {
            processes.clear();
        }
        let memory: f64 = jobs.iter().map(|job| job.rate * job.demand * job.memory_part).sum();
        Activity { gpu: 1.0, memory, processes }
    }
}

impl DriverLock {
    pub(super) fn forget_waiting(&mut self, context: u64) {
        self.waiting.retain(|section| section.context != context);
    }
}

fn device(profile: &Profile, rng: &mut Rng) -> Device {
    // The name is part of it: with the same seed, a GPU of another kind is another GPU.
    let kind = profile.gpu.name.bytes().fold(0u64, |hash, byte| hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    let mut uuid = [0; 16];
    uuid[..8].copy_from_slice(&(rng.next_u64() ^ kind).to_be_bytes());
    uuid[8..].copy_from_slice(&rng.next_u64().to_be_bytes());
    // Version 4, variant 1: some readers of NVML check.
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Device {
        name: profile.gpu.name.clone(),
        uuid,
        total_memory: profile.gpu.memory_mib * MIB,
        sm_count: profile.gpu.sm_count,
        compute_capability: profile.gpu.compute_capability,
        max_threads_per_sm: profile.gpu.max_threads_per_sm,
    }
}
