//! What a job takes that has the simulated GPU to itself: before its kernels, for them, and after.
//!
//! The least it can take: the GPU is awake, and the making and ending of contexts takes as little as it ever does. Whoever contends takes as
//! long or longer, which is what makes a bound of it.

use std::collections::BTreeMap;

use berth_sim::scenario::{Order, Phase, Run, Scenario};
use berth_sim::{Profile, Sharing};

use super::load::program;

/// In nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// From the start of the process until it comes to the GPU.
    pub host_ns: u64,
    /// From there until its first kernel.
    pub head_ns: u64,
    pub kernels_ns: u64,
    /// From its last kernel until it has left.
    pub tail_ns: u64,
}

/// Runs programs alone, each once.
#[derive(Debug)]
pub struct Alone {
    profile: Profile,
    n: u64,
    times: BTreeMap<u32, Times>,
}

impl Alone {
    pub fn new(profile: &Profile, n: u64) -> Alone {
        Alone { profile: at_best(profile), n, times: BTreeMap::new() }
    }

    pub fn of(&mut self, rounds: u32) -> Times {
        if let Some(times) = self.times.get(&rounds) {
            return *times;
        }
        let scenario = Scenario {
            programs: vec![program(self.n, rounds)],
            order: Order::Together,
            sharing: Sharing::TimeSliced,
            seed: 1,
        };
        let report = scenario.run(&self.profile).expect("one small program has room on any GPU");
        let times = Times::of(&report.runs[0]);
        self.times.insert(rounds, times);
        times
    }
}

impl Times {
    fn of(run: &Run) -> Times {
        let begin =
            |wanted: Phase| run.phases.iter().find(|(phase, ..)| *phase == wanted).map_or(0, |(_, begin, _)| *begin);
        let end = run.phases.iter().rev().find(|(phase, ..)| *phase == Phase::Kernel).map_or(0, |(.., end)| *end);
        let (came, computes) = (begin(Phase::Context), begin(Phase::Kernel));
        let start = run.phases.iter().find(|(phase, ..)| *phase != Phase::Arrival).map_or(0, |(_, begin, _)| *begin);
        Times {
            host_ns: came - start,
            head_ns: computes - came,
            kernels_ns: run.ns(Phase::Kernel),
            tail_ns: run.ended_ns() - end,
        }
    }

    /// From coming to the GPU until it has left: what a deadline is for.
    pub fn stay_ns(&self) -> u64 {
        self.head_ns + self.kernels_ns + self.tail_ns
    }
}

/// The GPU when nothing takes longer than it has to.
fn at_best(profile: &Profile) -> Profile {
    let mut best = profile.clone();
    let context = &mut best.context;
    let least = 1.0 - context.jitter_pct / 100.0;
    for part in [
        &mut context.create_open_ms,
        &mut context.create_serial_ms,
        &mut context.create_blocking_ms,
        &mut context.create_finish_ms,
        &mut context.teardown_serial_ms,
        &mut context.teardown_blocking_ms,
    ] {
        *part *= least;
    }
    (context.jitter_pct, context.wake_ms) = (0.0, 0.0);
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_add_up_and_the_rest_does_not_depend_on_them() {
        let mut alone = Alone::new(&Profile::builtin("rtx3090").unwrap(), 3_072);
        let (one, ten) = (alone.of(1), alone.of(10));
        assert!((ten.kernels_ns as f64 / one.kernels_ns as f64 - 10.0).abs() < 1e-6);
        assert_eq!((one.host_ns, one.head_ns, one.tail_ns), (ten.host_ns, ten.head_ns, ten.tail_ns));
        assert_eq!(one.stay_ns(), one.head_ns + one.kernels_ns + one.tail_ns);
    }
}
