//! Work that flows: jobs progress side by side at rates that are constant until a job comes or goes.
//!
//! Progress is brought forward only at such changes, never by merely looking, so that a run cut into many small
//! advances is bit for bit the run done in one.

use super::time::nanos;

/// Less than this many nanoseconds of work is rounding, not work.
const ROUNDING_NS: f64 = 1e-3;

/// One kernel, one copy, or one context coming or going.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) pid: u32,
    pub(super) context: u64,
    pub(super) stream: u64,
    /// Part of the resource the job can use, (0, 1]. Of a context that comes or goes: part of the driver's time on it in which
    /// no kernel runs, [0, 1].
    pub(super) demand: f64,
    /// Part of its time in which the job uses device memory, [0, 1]; NVML's memory utilisation.
    pub(super) memory_part: f64,
    /// Nanoseconds left at rate 1, which is the job alone.
    pub(super) remaining_ns: f64,
    /// Present speed, [0, 1].
    pub(super) rate: f64,
    /// Of a kernel: what it needs of the SMs, and the part of them it has.
    pub(super) need: Need,
    pub(super) held: f64,
}

/// What a kernel needs of the SMs, beside how many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Need {
    /// Part of its time, alone on all SMs, that its arithmetic takes. This or `memory_part` is 1.
    pub(super) compute_part: f64,
    /// The lower goes first: of its client, then of its stream.
    pub(super) rank: (u32, i32),
    /// The SMs it may run on, from and to, as parts of all.
    pub(super) sms: (f64, f64),
    /// The most its process may have.
    pub(super) cap: f64,
    /// How long a wave of its blocks takes, alone.
    pub(super) wave_ns: f64,
    /// Its work in all.
    pub(super) whole_ns: f64,
}

impl Default for Need {
    fn default() -> Need {
        Need { compute_part: 1.0, rank: (0, 0), sms: (0.0, 1.0), cap: 1.0, wave_ns: 0.0, whole_ns: 0.0 }
    }
}

/// Jobs in order of arrival.
#[derive(Debug, Default)]
pub(super) struct Fluid {
    since: u64,
    jobs: Vec<Job>,
}

impl Fluid {
    pub(super) fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// When the next job ends if nothing changes before.
    pub(super) fn next_end(&self) -> Option<u64> {
        self.jobs.iter().filter_map(|job| self.end_of(job)).min()
    }

    /// Brings progress to `now` and takes out what has ended.
    pub(super) fn take_ended(&mut self, now: u64) -> Vec<Job> {
        self.settle(now);
        self.jobs.extract_if(.., |job| job.remaining_ns <= ROUNDING_NS).collect()
    }

    pub(super) fn add(&mut self, now: u64, job: Job) {
        self.settle(now);
        self.jobs.push(job);
    }

    pub(super) fn remove(&mut self, now: u64, gone: impl Fn(&Job) -> bool) {
        self.settle(now);
        self.jobs.retain(|job| !gone(job));
    }

    /// Gives every job its speed from `now` on; `rates` is parallel to [`Fluid::jobs`].
    pub(super) fn set_rates(&mut self, now: u64, rates: &[f64]) {
        self.settle(now);
        for (job, rate) in self.jobs.iter_mut().zip(rates) {
            job.rate = *rate;
        }
    }

    /// Gives every job its part of the SMs.
    pub(super) fn set_held(&mut self, held: &[f64]) {
        for (job, held) in self.jobs.iter_mut().zip(held) {
            job.held = *held;
        }
    }

    fn end_of(&self, job: &Job) -> Option<u64> {
        if job.remaining_ns <= ROUNDING_NS {
            return Some(self.since);
        }
        (job.rate > 0.0).then(|| self.since.saturating_add(nanos((job.remaining_ns / job.rate).ceil())))
    }

    pub(super) fn settle(&mut self, now: u64) {
        let elapsed = (now - self.since) as f64;
        self.since = now;
        for job in &mut self.jobs {
            job.remaining_ns -= job.rate * elapsed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(remaining_ns: f64) -> Job {
        let need = Need::default();
        Job { pid: 1, context: 1, stream: 0, demand: 1.0, memory_part: 0.0, remaining_ns, rate: 0.0, need, held: 0.0 }
    }

    #[test]
    fn job_ends_when_its_work_over_its_rate_has_passed() {
        let mut fluid = Fluid::default();
        fluid.add(100, job(50.0));
        assert_eq!(fluid.next_end(), None, "no rate, no end");
        fluid.set_rates(100, &[0.5]);
        assert_eq!(fluid.next_end(), Some(200));
        fluid.set_rates(150, &[1.0]);
        assert_eq!(fluid.next_end(), Some(175));
        assert!(fluid.take_ended(174).is_empty());
        assert_eq!(fluid.take_ended(175).len(), 1);
        assert_eq!(fluid.next_end(), None);
    }

    #[test]
    fn job_without_work_ends_at_once_even_without_a_rate() {
        let mut fluid = Fluid::default();
        fluid.add(7, job(0.0));
        assert_eq!(fluid.next_end(), Some(7));
    }
}
