//! Who gets how much of a copy engine and of the driver: pure functions from the jobs present to their rates.
//!
//! Driver. Contexts that come or go are worked on by turns, so all advance together; a process that computes takes turns too.
//!
//! Copy engine. A process is bound by its own pageable rate, all together by the engine's; the engine is shared equally.

use std::collections::{BTreeMap, BTreeSet};

use super::fluid::Job;

/// Speed of the driver's work on each context that comes or goes; `others` take as many turns as that many contexts.
pub(super) fn sections(jobs: &[Job], others: f64) -> Vec<f64> {
    vec![1.0 / (jobs.len() as f64 + others); jobs.len()]
}

/// Rates of work that needs its process's threads: `share` as if those that stand still were not there.
pub(super) fn moving(jobs: &[Job], still: &BTreeSet<u32>, share: impl Fn(&[Job]) -> Vec<f64>) -> Vec<f64> {
    let moving: Vec<Job> = jobs.iter().filter(|job| !still.contains(&job.pid)).cloned().collect();
    let mut rates = share(&moving).into_iter();
    jobs.iter().map(|job| if still.contains(&job.pid) { None } else { rates.next() }.unwrap_or(0.0)).collect()
}

/// How many processes the jobs are of.
pub(super) fn processes(jobs: &[Job]) -> usize {
    jobs.iter().map(|job| job.pid).collect::<BTreeSet<u32>>().len()
}

/// Rates of copies; `capacity` is the engine's rate over one process's.
pub(super) fn copies(jobs: &[Job], capacity: f64) -> Vec<f64> {
    let mut per_process: BTreeMap<u32, f64> = BTreeMap::new();
    for job in jobs {
        *per_process.entry(job.pid).or_default() += 1.0;
    }
    let process_rate = (capacity / per_process.len() as f64).min(1.0);
    jobs.iter().map(|job| process_rate / per_process[&job.pid]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fluid::Need;
    use super::*;

    fn kernel(pid: u32, demand: f64) -> Job {
        let need = Need::default();
        Job { pid, context: 1, stream: 0, demand, memory_part: 0.0, remaining_ns: 1.0, rate: 0.0, need, held: 0.0 }
    }

    #[test]
    fn copies_are_bound_by_the_process_then_by_the_engine() {
        assert_eq!(copies(&[kernel(1, 1.0), kernel(2, 1.0)], 4.0), [1.0, 1.0]);
        assert_eq!(copies(&[kernel(1, 1.0), kernel(2, 1.0)], 1.0), [0.5, 0.5]);
        assert_eq!(copies(&[kernel(1, 1.0), kernel(1, 1.0)], 4.0), [0.5, 0.5]);
    }

    #[test]
    fn contexts_in_the_drivers_hands_advance_together_and_slower_beside_processes_that_compute() {
        let section = || kernel(1, 0.1);
        assert_eq!(sections(&[section()], 0.0), [1.0], "alone");
        assert_eq!(sections(&[section(), section()], 0.0), [0.5, 0.5]);
        assert_eq!(sections(&[section(), section()], 2.0), [0.25, 0.25]);
        assert!(sections(&[], 0.0).is_empty());
    }

    #[test]
    fn who_stands_still_is_in_nobodys_way() {
        let jobs = [kernel(1, 1.0), kernel(2, 1.0), kernel(3, 1.0)];
        assert_eq!(moving(&jobs, &BTreeSet::from([2]), |jobs| sections(jobs, 0.0)), [0.5, 0.0, 0.5]);
        assert_eq!(moving(&jobs, &BTreeSet::new(), |jobs| copies(jobs, 1.5)), [0.5; 3]);
    }

    #[test]
    fn processes_are_counted_once() {
        assert_eq!(processes(&[kernel(1, 1.0), kernel(2, 0.1), kernel(1, 0.1)]), 2);
    }

    proptest! {
        #[test]
        fn every_process_progresses(pids in prop::collection::vec(1u32..9, 1..20)) {
            let jobs: Vec<Job> = pids.iter().map(|pid| kernel(*pid, 1.0)).collect();
            let rates = copies(&jobs, 0.5);
            for pid in &pids {
                let of_pid: f64 = jobs.iter().zip(&rates).filter(|(job, _)| job.pid == *pid).map(|(_, r)| r).sum();
                prop_assert!(of_pid > 0.0);
            }
        }
    }
}
