//! One simulated GPU: its memory account, SMs, copy engines, the driver at work on contexts, and what NVML's meter sees.

use std::collections::{BTreeMap, BTreeSet};

use berth_proto::sim::Device;

use crate::profile::Profile;

use super::api::Sharing;
use super::bandwidth;
use super::fluid::{Fluid, Job};
use super::meter::{Activity, Meter};
use super::rng::Rng;
use super::shares;
use super::sms;
use super::time::{from_ms, nanos};
use super::turns::Turns;

pub(super) const MIB: u64 = 1 << 20;

/// The resources of a GPU on which work takes time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Compute,
    CopyIn,
    CopyOut,
    /// The driver, making and ending contexts.
    Driver,
}

#[derive(Debug)]
pub(super) struct Gpu {
    pub(super) device: Device,
    pub(super) used: u64,
    compute: Fluid,
    copy_in: Fluid,
    copy_out: Fluid,
    driver: Fluid,
    /// Processes whose threads stand still.
    still: BTreeSet<u32>,
    pub(super) meter: Meter,
    pub(super) lost: bool,
    /// From when on the driver has it running; without meaning while nobody has a context.
    pub(super) awake_at: u64,
    sharing: Sharing,
    turns: Turns,
    memory_sms: f64,
    /// Part of the SMs at work, and of the bandwidth in use.
    load: f64,
    bandwidth: f64,
    /// When the SMs are to be shared anew though no kernel has come or gone.
    share_at: Option<u64>,
    compute_weight: f64,
    copy_in_capacity: f64,
    copy_out_capacity: f64,
}

impl Gpu {
    pub(super) fn new(profile: &Profile, sharing: Sharing, rng: &mut Rng) -> Gpu {
        let compute = &profile.compute;
        let copy = &profile.copy;
        Gpu {
            device: device(profile, sharing, rng),
            used: profile.gpu.reserved_mib * MIB,
            compute: Fluid::default(),
            copy_in: Fluid::default(),
            copy_out: Fluid::default(),
            driver: Fluid::default(),
            still: BTreeSet::new(),
            meter: Meter::new(from_ms(profile.nvml.utilisation_window_ms as f64)),
            lost: false,
            awake_at: 0,
            sharing,
            turns: Turns::new(from_ms(compute.slice_us / 1e3), from_ms(compute.switch_us / 1e3)),
            memory_sms: compute.memory_sms,
            load: 0.0,
            bandwidth: 0.0,
            share_at: None,
            compute_weight: if sharing == Sharing::Mps { 0.0 } else { profile.context.compute_weight },
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

    /// When something happens by itself.
    pub(super) fn next_end(&self) -> Option<u64> {
        let lanes = [&self.compute, &self.copy_in, &self.copy_out, &self.driver];
        lanes.into_iter().filter_map(Fluid::next_end).chain(self.share_at).min()
    }

    pub(super) fn submit(&mut self, now: u64, lane: Lane, job: Job) {
        self.lane(lane).add(now, job);
        self.share(now, lane);
    }

    /// Everything that has ended by `now`.
    pub(super) fn take_ended(&mut self, now: u64) -> Vec<(Lane, Job)> {
        let mut all = Vec::new();
        for lane in [Lane::Compute, Lane::CopyIn, Lane::CopyOut, Lane::Driver] {
            if self.lane(lane).next_end().is_some_and(|end| end <= now) {
                all.extend(self.lane(lane).take_ended(now).into_iter().map(|job| (lane, job)));
                self.share(now, lane);
            }
        }
        if self.share_at.is_some_and(|at| at <= now) {
            self.share_sms(now);
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

    pub(super) fn stand_still(&mut self, now: u64, pid: u32, still: bool) {
        let changed = if still { self.still.insert(pid) } else { self.still.remove(&pid) };
        if changed {
            [Lane::CopyIn, Lane::CopyOut, Lane::Driver].into_iter().for_each(|lane| self.share(now, lane));
        }
    }

    /// Whose contexts come or go, and who copies.
    pub(super) fn needed(&self) -> impl Iterator<Item = u32> {
        [&self.copy_in, &self.copy_out, &self.driver].into_iter().flat_map(Fluid::jobs).map(|job| job.pid)
    }

    /// The driver leaves off what it does to a context.
    pub(super) fn drop_section(&mut self, now: u64, context: u64) {
        self.driver.remove(now, |job| job.context == context);
        self.share(now, Lane::Driver);
    }

    /// The part of the SMs at work.
    pub(super) fn compute_load(&self) -> f64 {
        self.load
    }

    /// Part of the time in which the driver keeps kernels from running, whether there are any or not.
    pub(super) fn blocked(&self) -> f64 {
        at_work(&self.driver)
    }

    fn lane(&mut self, lane: Lane) -> &mut Fluid {
        match lane {
            Lane::Compute => &mut self.compute,
            Lane::CopyIn => &mut self.copy_in,
            Lane::CopyOut => &mut self.copy_out,
            Lane::Driver => &mut self.driver,
        }
    }

    /// Gives the jobs of a lane their rates after one came or went.
    fn share(&mut self, now: u64, lane: Lane) {
        match lane {
            Lane::Compute | Lane::Driver => self.share_sms(now),
            Lane::CopyIn => self.copy_in.set_rates(now, &self.copies(&self.copy_in, self.copy_in_capacity)),
            Lane::CopyOut => self.copy_out.set_rates(now, &self.copies(&self.copy_out, self.copy_out_capacity)),
        }
    }

    fn copies(&self, engine: &Fluid, capacity: f64) -> Vec<f64> {
        shares::moving(engine.jobs(), &self.still, |jobs| shares::copies(jobs, capacity))
    }

    /// Kernels hold up the driver's work on contexts, and that work holds up kernels.
    fn share_sms(&mut self, now: u64) {
        let kernels = self.compute.jobs();
        let others = self.compute_weight * shares::processes(kernels) as f64;
        let sections = shares::moving(self.driver.jobs(), &self.still, |jobs| shares::sections(jobs, others));
        self.driver.set_rates(now, &sections);
        self.compute.settle(now);
        let left = 1.0 - self.blocked();
        let Shared { rates, held, load, bandwidth, share_at } = self.share_kernels(now, left);
        self.compute.set_rates(now, &rates);
        self.compute.set_held(&held);
        (self.load, self.bandwidth, self.share_at) = (load, bandwidth, share_at);
        let activity = self.activity();
        self.meter.set(now, activity);
    }

    /// Kernels run in groups that never run at the same time: all together under MPS, else those of each process, by turns. `left` is the part of
    /// the time in which kernels run at all.
    fn share_kernels(&mut self, now: u64, left: f64) -> Shared {
        let jobs = self.compute.jobs();
        let mut shared = Shared::nothing(jobs.len());
        let parts = match self.sharing {
            Sharing::Mps => None,
            Sharing::TimeSliced => Some(self.turns.parts(now, jobs)),
        };
        shared.share_at = parts.as_ref().and_then(|parts| parts.again_at);
        let mut groups: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        for (index, job) in jobs.iter().enumerate() {
            groups.entry(parts.as_ref().map(|_| job.pid)).or_default().push(index);
        }
        for (pid, members) in groups {
            let part = pid.and_then(|pid| parts.as_ref()?.of.get(&pid).copied()).unwrap_or(1.0) * left;
            shared.add_group(now, jobs, &members, part, self.memory_sms);
        }
        shared
    }

    /// Under time slicing each of m processes counts as running 1/m of the time, switching included; use under MPS is
    /// not told apart by process.
    fn activity(&self) -> Activity {
        let jobs = self.compute.jobs();
        if jobs.is_empty() {
            return Activity::default();
        }
        let gpu = 1.0 - self.blocked();
        let mut processes: BTreeMap<u32, f64> = jobs.iter().map(|job| (job.pid, 0.0)).collect();
        let turn = gpu / processes.len() as f64;
        processes.values_mut().for_each(|part| *part = turn);
        if self.sharing == Sharing::Mps {
            processes.clear();
        }
        Activity { gpu, memory: self.bandwidth, processes }
    }
}

/// What the kernels have from now on; vectors are parallel to the jobs.
struct Shared {
    rates: Vec<f64>,
    held: Vec<f64>,
    load: f64,
    bandwidth: f64,
    share_at: Option<u64>,
}

impl Shared {
    fn nothing(jobs: usize) -> Shared {
        Shared { rates: vec![0.0; jobs], held: vec![0.0; jobs], load: 0.0, bandwidth: 0.0, share_at: None }
    }

    /// Kernels that run side by side, for a part of the time.
    fn add_group(&mut self, now: u64, jobs: &[Job], members: &[usize], part: f64, memory_sms: f64) {
        let group: Vec<&Job> = members.iter().map(|index| &jobs[*index]).collect();
        let division = sms::divide(&group);
        let on_sms: Vec<_> = group.iter().copied().zip(division.held.iter().copied()).collect();
        let (speeds, bandwidth) = bandwidth::speeds(&on_sms, memory_sms);
        self.bandwidth += bandwidth * part;
        for (place, index) in members.iter().enumerate() {
            let rate = speeds[place] * part;
            self.rates[*index] = rate;
            self.held[*index] = division.held[place];
            self.load += division.held[place] * part;
            if division.keeps[place] && rate > 0.0 {
                let ends = now.saturating_add(nanos((sms::wave_left_ns(group[place]) / rate).ceil()).max(1));
                self.share_at = Some(self.share_at.map_or(ends, |at| at.min(ends)));
            }
        }
    }
}

/// Σ rate · demand.
fn at_work(lane: &Fluid) -> f64 {
    lane.jobs().iter().map(|job| job.rate * job.demand).sum()
}

fn device(profile: &Profile, sharing: Sharing, rng: &mut Rng) -> Device {
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
        has_mps: sharing == Sharing::Mps,
    }
}
