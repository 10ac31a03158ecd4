//! How many jobs of a stream must be late, whatever is done: the offline optimum, from below and from above.
//!
//! Jobs come over time, and whoever decides knows all of them in advance, may interrupt any at any instant, pays nothing for it, and
//! waits for no context. Nobody can do better on one GPU: kernels that share it have no more of it together. To find the
//! optimum of that is possible but slow, so it is put between two numbers, which mostly are the same:
//!
//! - [`at_least`]: in an interval there is no more time than its length. Of the jobs that come and are due within it, the longest are
//!   given up until the rest fits. Intervals that do not overlap have no job in common, so what they must give up adds up.
//! - [`at_most`]: jobs in order of their deadlines, and where they do not fit the longest of those that can make room is given up. What is left
//!   is a schedule that works.
//!
//! A set of jobs can be done in time exactly if in order of deadlines, each with those before it, it is done when the last is due.

use std::collections::BTreeMap;

/// A job of a stream; times in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// From when on it could compute if nobody was in its way.
    pub ready: u64,
    /// When its last kernel has to have ended.
    pub due: u64,
    /// Its kernels alone.
    pub takes: u64,
}

/// Late ones of the best schedule there could be, at least.
pub fn at_least(jobs: &[Job]) -> usize {
    let by_due = feasible(jobs);
    let mut found: Vec<(u64, u64, usize)> =
        by_due.iter().flat_map(|first| given_up_from(first.ready, &by_due)).collect();
    found.sort_by_key(|(begin, end, _)| (*end, *begin));
    // By when intervals are over: what must be given up in them.
    let mut within: BTreeMap<u64, usize> = BTreeMap::new();
    for (begin, end, given_up) in found {
        let most = |by: u64| within.range(..=by).next_back().map_or(0, |(_, most)| *most);
        let best = most(end).max(most(begin) + given_up);
        within.insert(end, best);
    }
    jobs.len() - by_due.len() + within.into_values().max().unwrap_or(0)
}

/// Those that are in time if they have the GPU to themselves, in order of their deadlines.
fn feasible(jobs: &[Job]) -> Vec<Job> {
    let mut feasible: Vec<Job> = jobs.iter().filter(|job| job.ready + job.takes <= job.due).copied().collect();
    feasible.sort_by_key(|job| job.due);
    feasible
}

/// For every interval from `begin` that has more work than time: its end, and how many jobs must be given up in it.
fn given_up_from(begin: u64, by_due: &[Job]) -> Vec<(u64, u64, usize)> {
    let mut lengths: Vec<u64> = Vec::new();
    let mut work = 0;
    let mut found = Vec::new();
    for job in by_due.iter().filter(|job| job.ready >= begin) {
        work += job.takes;
        lengths.insert(lengths.partition_point(|length| *length <= job.takes), job.takes);
        let mut excess = work.saturating_sub(job.due.saturating_sub(begin));
        let longest_first = lengths.iter().rev();
        let given_up = longest_first.take_while(|length| {
            let is_over = excess > 0;
            excess = excess.saturating_sub(**length);
            is_over
        });
        let given_up = given_up.count();
        if given_up > 0 {
            found.push((begin, job.due, given_up));
        }
    }
    found
}

/// Late ones of a schedule that works: of the best there are no more.
pub fn at_most(jobs: &[Job]) -> usize {
    let mut kept: Vec<Job> = Vec::new();
    let mut given_up: Vec<Job> = Vec::new();
    for job in feasible(jobs) {
        kept.push(job);
        while let Some(busy) = last_busy(&kept).filter(|busy| busy.until > job.due) {
            let helps = kept.iter().enumerate().filter(|(_, other)| other.ready >= busy.from);
            let Some((longest, _)) = helps.max_by_key(|(_, other)| other.takes) else { break };
            given_up.push(kept.remove(longest));
        }
    }
    // What was given up for one that was given up later may fit after all.
    given_up.sort_by_key(|job| job.takes);
    for job in given_up {
        let place = kept.partition_point(|other| other.due <= job.due);
        kept.insert(place, job);
        if !is_in_time(&kept) {
            kept.remove(place);
        }
    }
    jobs.len() - kept.len()
}

/// A time in which the GPU does not rest.
struct Busy {
    from: u64,
    until: u64,
}

/// The last such time if the GPU never rests while a job is ready, in whatever order: at its end all of them are done.
fn last_busy(jobs: &[Job]) -> Option<Busy> {
    let mut last_first: Vec<(u64, u64)> = jobs.iter().map(|job| (job.ready, job.takes)).collect();
    last_first.sort_by(|a, b| b.cmp(a));
    let mut work = 0;
    let from_each = last_first.into_iter().map(|(ready, takes)| {
        work += takes;
        Busy { from: ready, until: ready + work }
    });
    from_each.reduce(|best, other| if other.until > best.until { other } else { best })
}

/// `by_due`: in order of their deadlines.
fn is_in_time(by_due: &[Job]) -> bool {
    (1..=by_due.len()).all(|count| last_busy(&by_due[..count]).is_none_or(|busy| busy.until <= by_due[count - 1].due))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn job(ready: u64, due: u64, takes: u64) -> Job {
        Job { ready, due, takes }
    }

    /// Whether all are in time if at every instant whoever is due first of those that are ready computes. No schedule is in
    /// time if this one is not.
    fn works(jobs: &[Job]) -> bool {
        let mut left: Vec<(Job, u64)> = jobs.iter().map(|job| (*job, job.takes)).collect();
        for now in 0.. {
            if left.is_empty() {
                return true;
            }
            let ready = left.iter_mut().filter(|(job, _)| job.ready <= now);
            if let Some((_, takes)) = ready.min_by_key(|(job, _)| job.due) {
                *takes -= 1;
            }
            if left.iter().any(|(job, _)| job.due < now + 1) {
                return false;
            }
            left.retain(|(_, takes)| *takes > 0);
        }
        true
    }

    /// Over all sets of jobs.
    fn optimum(jobs: &[Job]) -> usize {
        let sets = (0..1u32 << jobs.len()).map(|set| {
            let of = |index: &usize| set & (1 << index) != 0;
            (0..jobs.len()).filter(of).map(|index| jobs[index]).collect::<Vec<_>>()
        });
        jobs.len() - sets.filter(|set| works(set)).map(|set| set.len()).max().unwrap_or(0)
    }

    #[test]
    fn two_crowds_apart_each_give_up_one() {
        let crowd = |at: u64| [job(at, at + 10, 6), job(at, at + 10, 5)];
        let jobs = [crowd(0), crowd(100)].concat();
        assert_eq!((at_least(&jobs), at_most(&jobs)), (2, 2));
    }

    #[test]
    fn what_is_due_before_it_could_begin_is_late() {
        let jobs = [job(10, 5, 1), job(0, 100, 3)];
        assert_eq!((at_least(&jobs), at_most(&jobs)), (1, 1));
        assert_eq!((at_least(&[]), at_most(&[])), (0, 0));
    }

    #[test]
    fn an_interruption_saves_a_short_one_that_comes_later() {
        let jobs = [job(0, 30, 20), job(5, 10, 4)];
        assert_eq!((at_least(&jobs), at_most(&jobs)), (0, 0));
    }

    proptest! {
        #[test]
        fn the_optimum_is_between(jobs in prop::collection::vec((0..25u64, 1..25u64, 1..12u64), 0..8)) {
            let jobs: Vec<Job> = jobs.into_iter().map(|(ready, room, takes)| job(ready, ready + room, takes)).collect();
            let optimum = optimum(&jobs);
            let (least, most) = (at_least(&jobs), at_most(&jobs));
            prop_assert!(least <= optimum && optimum <= most, "{least} ≤ {optimum} ≤ {most}");
        }

        #[test]
        fn released_together_the_upper_bound_is_the_optimum(jobs in prop::collection::vec((1..40u64, 1..12u64), 0..8)) {
            let jobs: Vec<Job> = jobs.into_iter().map(|(due, takes)| job(0, due, takes)).collect();
            prop_assert_eq!(at_most(&jobs), optimum(&jobs));
        }
    }
}
