//! Which kernel has which part of the SMs, among those that run side by side.
//!
//! By priority, then in order of arrival, each takes what its blocks can fill out of what those before it leave of the SMs it may use, as the
//! hardware's block scheduler does. Blocks are not taken off an SM: a kernel that has more than it should, because one that goes before it came later,
//! keeps what it has until its present wave of blocks ends. A kernel of one wave keeps it to its end.
//!
//! Properties, held by tests: no SM is given out twice; nobody has more than it can use, may use, or its process may have.

use std::collections::BTreeMap;

use super::fluid::Job;

/// Less than this part of the GPU is rounding.
const ROUNDING: f64 = 1e-9;
/// This near to its end a wave has ended.
const WAVE_ROUNDING_NS: f64 = 2.0;

/// What each job has from now on, parallel to the jobs.
#[derive(Debug, PartialEq)]
pub(super) struct Division {
    pub(super) held: Vec<f64>,
    /// It keeps more than it should until its wave ends.
    pub(super) keeps: Vec<bool>,
}

/// Of jobs in order of arrival that run side by side.
pub(super) fn divide(jobs: &[&Job]) -> Division {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|index| jobs[*index].need.rank);
    let held = grant(jobs, order.iter().map(|index| (*index, jobs[*index].demand)));
    let keeps: Vec<bool> =
        jobs.iter().zip(&held).map(|(job, held)| job.held > held + ROUNDING && wave_left_ns(job) > 0.0).collect();
    if !keeps.contains(&true) {
        return Division { held, keeps };
    }
    let keepers = order.iter().filter(|index| keeps[**index]).map(|index| (*index, jobs[*index].held));
    let others = order.iter().filter(|index| !keeps[**index]).map(|index| (*index, jobs[*index].demand));
    Division { held: grant(jobs, keepers.chain(others)), keeps }
}

/// Until the present wave of a kernel's blocks ends, alone.
pub(super) fn wave_left_ns(job: &Job) -> f64 {
    let wave_ns = job.need.wave_ns;
    if wave_ns <= WAVE_ROUNDING_NS {
        return 0.0;
    }
    let left_ns = job.remaining_ns.rem_euclid(wave_ns);
    if left_ns < WAVE_ROUNDING_NS || wave_ns - left_ns < WAVE_ROUNDING_NS { 0.0 } else { left_ns }
}

/// Serves jobs one after the other, each what it wants as far as that is there.
fn grant(jobs: &[&Job], wants: impl Iterator<Item = (usize, f64)>) -> Vec<f64> {
    let mut free = Free::new(jobs);
    let mut left: BTreeMap<u32, f64> = jobs.iter().map(|job| (job.pid, job.need.cap)).collect();
    let mut held = vec![0.0; jobs.len()];
    for (index, want) in wants {
        let job = jobs[index];
        let Some(allowed) = left.get_mut(&job.pid) else { continue };
        held[index] = free.take(job.need.sms, want.min(*allowed));
        *allowed -= held[index];
    }
    held
}

/// SMs that are free, as rows between all points at which somebody's SMs begin or end. Blocks are spread evenly over a kernel's SMs.
struct Free {
    /// From, to, and how much of it is free, as parts of all SMs.
    rows: Vec<(f64, f64, f64)>,
}

impl Free {
    fn new(jobs: &[&Job]) -> Free {
        let mut cuts: Vec<f64> = jobs.iter().flat_map(|job| [job.need.sms.0, job.need.sms.1]).collect();
        cuts.extend([0.0, 1.0]);
        cuts.sort_by(f64::total_cmp);
        cuts.dedup();
        Free { rows: cuts.windows(2).map(|row| (row[0], row[1], row[1] - row[0])).collect() }
    }

    fn take(&mut self, (from, to): (f64, f64), want: f64) -> f64 {
        let mut within: Vec<&mut f64> = self
            .rows
            .iter_mut()
            .filter(|(first, last, _)| *first >= from && *last <= to)
            .map(|(_, _, free)| free)
            .collect();
        let there: f64 = within.iter().map(|free| **free).sum();
        if there <= ROUNDING || want <= 0.0 {
            return 0.0;
        }
        let taken = want.min(there);
        within.iter_mut().for_each(|free| **free *= 1.0 - taken / there);
        taken
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fluid::Need;
    use super::*;

    fn kernel(pid: u32, demand: f64) -> Job {
        let need = Need { wave_ns: 100.0, ..Need::default() };
        Job { pid, context: 1, stream: 0, demand, memory_part: 0.0, remaining_ns: 250.0, rate: 0.0, need, held: 0.0 }
    }

    fn held(jobs: &[Job]) -> Vec<f64> {
        divide(&jobs.iter().collect::<Vec<_>>()).held
    }

    #[test]
    fn small_kernels_run_side_by_side_and_full_ones_in_order_of_arrival() {
        assert_eq!(held(&[kernel(1, 0.5), kernel(2, 0.5)]), [0.5, 0.5]);
        assert_eq!(held(&[kernel(1, 0.75), kernel(1, 0.5)]), [0.75, 0.25]);
        assert_eq!(held(&[kernel(1, 1.0), kernel(2, 1.0)]), [1.0, 0.0]);
    }

    #[test]
    fn a_lower_rank_goes_first() {
        let mut jobs = [kernel(1, 1.0), kernel(2, 0.25)];
        jobs[1].need.rank = (0, -1);
        assert_eq!(held(&jobs), [0.75, 0.25]);
        jobs[0].need.rank = (0, -5);
        assert_eq!(held(&jobs), [1.0, 0.0]);
        jobs[0].need.rank = (1, -5);
        assert_eq!(held(&jobs), [0.75, 0.25], "the client's goes before the stream's");
    }

    #[test]
    fn blocks_that_run_are_not_taken_off_their_sms() {
        let mut jobs = [kernel(1, 1.0), kernel(2, 0.25)];
        jobs[0].held = 1.0;
        jobs[1].need.rank = (0, -1);
        let division = divide(&jobs.iter().collect::<Vec<_>>());
        assert_eq!(division, Division { held: vec![1.0, 0.0], keeps: vec![true, false] });
        // Its wave has ended.
        jobs[0].remaining_ns = 200.0;
        let division = divide(&jobs.iter().collect::<Vec<_>>());
        assert_eq!(division, Division { held: vec![0.75, 0.25], keeps: vec![false, false] });
    }

    #[test]
    fn a_process_has_at_most_what_it_may() {
        let mut jobs = [kernel(1, 0.25), kernel(1, 1.0), kernel(2, 1.0)];
        jobs[0].need.cap = 0.5;
        jobs[1].need.cap = 0.5;
        assert_eq!(held(&jobs), [0.25, 0.25, 0.5]);
    }

    #[test]
    fn rows_of_sms_that_do_not_meet_are_not_shared() {
        let mut jobs = [kernel(1, 1.0), kernel(2, 1.0), kernel(3, 1.0)];
        jobs[0].need.sms = (0.0, 0.5);
        jobs[1].need.sms = (0.0, 0.25);
        assert_eq!(held(&jobs), [0.5, 0.0, 0.5], "the second finds its SMs taken, the third takes the rest");
    }

    proptest! {
        #[test]
        fn no_sm_is_given_out_twice_and_nobody_has_more_than_it_may(
            jobs in prop::collection::vec((1u32..5, 0.01f64..=1.0, 0u32..4, 1u32..=4, -2i32..3, 0.0f64..=1.0), 1..20),
        ) {
            let jobs: Vec<Job> = jobs
                .into_iter()
                .map(|(pid, demand, first, count, priority, had)| {
                    let mut job = kernel(pid, demand);
                    let to = (first + count).min(4);
                    job.need.sms = (f64::from(first) / 4.0, f64::from(to) / 4.0);
                    job.need.rank = (0, priority);
                    job.need.cap = f64::from(pid) / 4.0;
                    job.held = had * demand;
                    job
                })
                .collect();
            let division = divide(&jobs.iter().collect::<Vec<_>>());
            for row in 0..4 {
                let (from, to) = (f64::from(row) / 4.0, 1.0);
                let inside = |job: &&Job| job.need.sms.0 >= from && job.need.sms.1 <= to;
                let given: f64 = jobs.iter().zip(&division.held).filter(|(job, _)| inside(job)).map(|(_, held)| held).sum();
                prop_assert!(given <= to - from + 1e-9, "{given} of {from}..{to}");
            }
            for (job, held) in jobs.iter().zip(&division.held) {
                prop_assert!(*held <= job.demand.max(job.held) + 1e-9);
                prop_assert!(*held <= job.need.sms.1 - job.need.sms.0 + 1e-9);
                let of_process: f64 =
                    jobs.iter().zip(&division.held).filter(|(other, _)| other.pid == job.pid).map(|(_, held)| held).sum();
                prop_assert!(of_process <= job.need.cap + 1e-9);
            }
        }
    }
}
