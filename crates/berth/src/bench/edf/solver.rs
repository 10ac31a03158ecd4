//! The fewest late jobs of any order, found by trying every order.
//!
//! For a handful of jobs that all wait for one GPU. An order is all there is to choose: kernels that share the GPU end no earlier
//! than the same kernels one after another, and of those that begin together a pause helps nobody. Every job is followed by what
//! handing the GPU on takes, so the answer holds for whoever pays as much for it, or more.

/// A job that waits for the GPU; times in nanoseconds, from when the GPU is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Its kernels alone, and getting the GPU.
    pub takes: u64,
    pub due: u64,
}

/// How many are late in the best order.
pub fn fewest_late(jobs: &[Waiting]) -> usize {
    let mut search = Search { jobs, is_done: vec![false; jobs.len()], fewest: jobs.len() };
    search.go_on(0, jobs.len(), 0);
    search.fewest
}

struct Search<'a> {
    jobs: &'a [Waiting],
    is_done: Vec<bool>,
    fewest: usize,
}

impl Search<'_> {
    /// Tries every order of those that are left; one that is no better than the best by now is not followed to its end.
    fn go_on(&mut self, now: u64, left: usize, late: usize) {
        if late >= self.fewest {
            return;
        }
        if left == 0 {
            self.fewest = late;
            return;
        }
        for index in 0..self.jobs.len() {
            if std::mem::replace(&mut self.is_done[index], true) {
                continue;
            }
            let end = now + self.jobs[index].takes;
            self.go_on(end, left - 1, late + usize::from(end > self.jobs[index].due));
            self.is_done[index] = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every order, each to its end.
    fn over_permutations(jobs: &mut [Waiting], fixed: usize) -> usize {
        if fixed == jobs.len() {
            let mut now = 0;
            let is_late = |job: &Waiting| {
                now += job.takes;
                now > job.due
            };
            return jobs.iter().copied().filter(is_late).count();
        }
        let mut fewest = usize::MAX;
        for index in fixed..jobs.len() {
            jobs.swap(fixed, index);
            fewest = fewest.min(over_permutations(jobs, fixed + 1));
            jobs.swap(fixed, index);
        }
        fewest
    }

    fn waiting(takes: u64, due: u64) -> Waiting {
        Waiting { takes, due }
    }

    #[test]
    fn just_in_time_is_in_time() {
        assert_eq!(fewest_late(&[waiting(2, 5), waiting(3, 3)]), 0);
        assert_eq!(fewest_late(&[waiting(2, 4), waiting(3, 3)]), 1);
        assert_eq!(fewest_late(&[]), 0);
    }

    #[test]
    fn one_long_job_is_given_up_for_two_short_ones() {
        assert_eq!(fewest_late(&[waiting(10, 10), waiting(4, 11), waiting(5, 12)]), 1);
    }

    proptest! {
        #[test]
        fn no_order_is_better(jobs in prop::collection::vec((1..30u64, 1..90u64), 0..7)) {
            let mut jobs: Vec<Waiting> = jobs.into_iter().map(|(takes, due)| waiting(takes, due)).collect();
            prop_assert_eq!(fewest_late(&jobs), over_permutations(&mut jobs, 0));
        }
    }
}
