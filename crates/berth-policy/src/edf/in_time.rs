//! Which of several jobs on one GPU are in time, if as many as possible are to be (Moore and Hodgson).
//!
//! In the order of deadlines one job after the other is added; whenever the last one is late, the longest so far is given up. That
//! leaves the fewest late ones there can be where all jobs are there already. Who comes later is not known to anyone.

use std::time::Duration;

use berth_model::Mono;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    pub due: Mono,
    /// GPU time it still takes.
    pub left: Duration,
}

/// For each job by how much it may be delayed without it or one that is due after it being late, if the first begins at `start`; `None`
/// for those that are given up.
pub fn spares(jobs: &[Job], start: Mono) -> Vec<Option<Duration>> {
    let mut order: Vec<(usize, Job)> = jobs.iter().copied().enumerate().collect();
    order.sort_by_key(|(index, job)| (job.due, job.left, *index));
    let mut kept: Vec<(usize, Job)> = Vec::new();
    let mut sum = Duration::ZERO;
    for (index, job) in order {
        kept.push((index, job));
        sum += job.left;
        if start + sum > job.due
            && let Some(longest) = longest(&kept)
        {
            let (_, given_up) = kept.remove(longest);
            sum -= given_up.left;
        }
    }
    let mut spares = vec![None; jobs.len()];
    let mut spare = Duration::MAX;
    for (index, job) in kept.into_iter().rev() {
        spare = spare.min(job.due.since(start + sum));
        sum -= job.left;
        if let Some(slot) = spares.get_mut(index) {
            *slot = Some(spare);
        }
    }
    spares
}

/// Of several that are as long the one that is due last.
fn longest(kept: &[(usize, Job)]) -> Option<usize> {
    kept.iter().enumerate().max_by_key(|(_, (_, job))| job.left).map(|(position, _)| position)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn jobs(each: &[(u64, u64)]) -> Vec<Job> {
        let job = |(due, left): &(u64, u64)| Job { due: Mono(*due), left: Duration::from_nanos(*left) };
        each.iter().map(job).collect()
    }

    fn told(each: &[(u64, u64)], start: u64) -> Vec<Option<u128>> {
        let spares = spares(&jobs(each), Mono(start));
        spares.into_iter().map(|spare| spare.map(|spare| spare.as_nanos())).collect()
    }

    #[test]
    fn who_fits_is_kept_with_what_is_to_spare_for_it_and_those_after_it() {
        assert_eq!(told(&[(10, 3), (20, 9)], 0), [Some(7), Some(8)]);
        assert_eq!(told(&[(10, 3), (12, 9)], 0), [Some(0), Some(0)], "the second has no time for a delay of the first");
        assert_eq!(told(&[(10, 3)], 7), [Some(0)]);
        assert_eq!(told(&[], 0), []);
    }

    #[test]
    fn where_not_all_fit_the_longest_so_far_is_given_up() {
        assert_eq!(told(&[(10, 9), (11, 2), (12, 2)], 0), [None, Some(8), Some(8)]);
        assert_eq!(told(&[(10, 3)], 8), [None]);
        assert_eq!(told(&[(5, 5), (5, 5)], 0).iter().flatten().count(), 1);
    }

    /// The fewest late ones over all orders: those in time first, in the order of their deadlines, so all sets of them are tried.
    fn fewest_late(jobs: &[Job], start: Mono) -> usize {
        let mut sorted = jobs.to_vec();
        sorted.sort_by_key(|job| job.due);
        let fits = |set: u32| {
            let chosen = sorted.iter().enumerate().filter(|(n, _)| set & (1 << n) != 0);
            let mut end = start;
            chosen.into_iter().all(|(_, job)| {
                end = end + job.left;
                end <= job.due
            })
        };
        let most = (0..1_u32 << jobs.len()).filter(|set| fits(*set)).map(u32::count_ones).max().unwrap_or(0);
        jobs.len() - most as usize
    }

    proptest! {
        #[test]
        fn no_choice_leaves_fewer_late_ones(each in prop::collection::vec((0_u64..60, 0_u64..25), 0..8), start in 0_u64..20) {
            let jobs = jobs(&each);
            let late = spares(&jobs, Mono(start)).iter().filter(|spare| spare.is_none()).count();
            prop_assert_eq!(late, fewest_late(&jobs, Mono(start)));
        }

        /// Delayed by what is to spare all that are kept are in time still, and a moment more is too much for one of them.
        #[test]
        fn what_is_to_spare_is_neither_more_nor_less(each in prop::collection::vec((0_u64..60, 0_u64..25), 1..8)) {
            let jobs = jobs(&each);
            let spares = spares(&jobs, Mono(0));
            let kept: Vec<Job> = jobs.iter().zip(&spares).filter(|(_, spare)| spare.is_some()).map(|(job, _)| *job).collect();
            if let Some(spare) = spares.iter().flatten().min() {
                let late = |delay: Duration| super::spares(&kept, Mono(0) + delay).iter().filter(|spare| spare.is_none()).count();
                prop_assert_eq!(late(*spare), 0);
                prop_assert!(late(*spare + Duration::from_nanos(1)) > 0);
            }
        }
    }
}
