//! One task as its own timers have it, beside what berth said of it.
//!
//! Pure. Whether berth's verdict is right is decided by the timers alone. Where the two disagree, the task ended so near to
//! its deadline that the error of the run time decides, or something is wrong.

use berth_model::deadline::{Deadline, Verdict};
use berth_model::{Moment, TenantKey};
use serde::Serialize;

use crate::bench::quantiles::Spread;
use crate::bench::seen::{Judged, Report, What, millis_after, pair};
use crate::bench::truth::{End, Stay};

/// Differences of seconds in floating point are exact to less than this.
const ROUNDING_MS: f64 = 1e-6;

/// One task: from its context being ready until that was destroyed, or its process ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Task {
    pub ended_by: EndedBy,
    /// By its own timers.
    pub run_s: f64,
    /// What was left until the deadline, by its own timers; below 0 it was missed.
    pub float_s: f64,
    pub start: Option<Seen>,
    pub end: Option<Seen>,
    /// Run time as seen minus that of its own timers. `None` where start or end was not seen, or of another task.
    pub run_error_ms: Option<f64>,
    /// What berth made of it.
    pub judged: Option<Judged>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EndedBy {
    Destroyed,
    Exited,
}

/// An instant as it was seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Seen {
    /// The monitor's date minus the true one.
    pub error_ms: f64,
    /// From the true instant until a follower of the event stream was told.
    pub told_after_ms: f64,
}

/// Whether the verdict is that of the timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    Agrees,
    /// It does not, because the deadline lies between the run time as it was seen and the true one.
    WithinError,
    Disagrees,
    /// berth said nothing.
    NotJudged,
}

impl Task {
    /// The tasks of one tenant, in order. Stays that were not whole by their own timers are left out.
    pub fn all(stays: &[Stay], reports: &[Report], tenant: &TenantKey, deadline: Deadline) -> Vec<Self> {
        let (starts, ends): (Vec<u64>, Vec<End>) = stays.iter().filter_map(whole).unzip();
        let end_instants: Vec<u64> = ends.iter().map(|end| end.at()).collect();
        let seen_starts = pair(reports, tenant, What::TaskStarted, &starts);
        let seen_ends = pair(reports, tenant, What::TaskEnded, &end_instants);
        let judged = pair(reports, tenant, What::UnitJudged, &end_instants);
        let seen = seen_starts.into_iter().zip(seen_ends).zip(judged);
        let of = |((start, end), ((seen_start, seen_end), judged)): (_, (_, Option<&Report>))| Self {
            judged: judged.and_then(|report| report.judged),
            ..Self::of(start, end, (seen_start, seen_end), deadline)
        };
        starts.into_iter().zip(ends).zip(seen).map(of).collect()
    }

    fn of(start: u64, end: End, seen: (Option<&Report>, Option<&Report>), deadline: Deadline) -> Self {
        let run_ms = millis_after(end.at(), start);
        let (seen_start, seen_end) = seen;
        let both = seen_start.zip(seen_end).filter(|(start, end)| start.task == end.task);
        Self {
            ended_by: if matches!(end, End::Destroyed { .. }) { EndedBy::Destroyed } else { EndedBy::Exited },
            run_s: run_ms / 1e3,
            float_s: deadline.seconds() - run_ms / 1e3,
            start: seen_start.map(|report| Seen::of(report, start)),
            end: seen_end.map(|report| Seen::of(report, end.at())),
            run_error_ms: both.map(|(start, end)| millis_after(end.at.0, start.at.0) - run_ms),
            judged: None,
        }
    }

    /// By its own timers.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(Some(self.float_s))
    }

    pub fn agreement(&self) -> Agreement {
        let error_ms = self.run_error_ms.map_or(0.0, f64::abs) + ROUNDING_MS;
        match self.judged {
            None => Agreement::NotJudged,
            Some(judged) if judged.verdict == self.verdict() => Agreement::Agrees,
            Some(judged) if judged.verdict != Verdict::Unknown && self.float_s.abs() * 1e3 <= error_ms => {
                Agreement::WithinError
            }
            Some(_) => Agreement::Disagrees,
        }
    }
}

impl Seen {
    fn of(report: &Report, truth: u64) -> Self {
        Self { error_ms: report.error_ms(truth), told_after_ms: report.told_after_ms(truth) }
    }
}

/// How wrong start, end and run time of some tasks were, late is above 0; and how late it was told.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Errors {
    pub start_ms: Option<Spread>,
    pub end_ms: Option<Spread>,
    pub run_ms: Option<Spread>,
    pub start_told_after_ms: Option<Spread>,
    pub end_told_after_ms: Option<Spread>,
    /// Tasks of which the start, the end or both were not seen.
    pub missed: usize,
}

impl Errors {
    pub fn of<'a>(tasks: impl Iterator<Item = &'a Task> + Clone) -> Self {
        let spread = |value: fn(&Task) -> Option<f64>| Spread::of(&tasks.clone().filter_map(value).collect::<Vec<_>>());
        Self {
            start_ms: spread(|task| Some(task.start?.error_ms)),
            end_ms: spread(|task| Some(task.end?.error_ms)),
            run_ms: spread(|task| task.run_error_ms),
            start_told_after_ms: spread(|task| Some(task.start?.told_after_ms)),
            end_told_after_ms: spread(|task| Some(task.end?.told_after_ms)),
            missed: tasks.clone().filter(|task| task.run_error_ms.is_none()).count(),
        }
    }
}

/// Start and end of a stay, by its own timers.
fn whole(stay: &Stay) -> Option<(u64, End)> {
    Some((*stay.moments.get(&Moment::ContextReady)?, stay.end?))
}

/// By its own timers; `None` if it lacks a start or an end.
pub fn run_seconds(stay: &Stay) -> Option<f64> {
    let (start, end) = whole(stay)?;
    Some(millis_after(end.at(), start) / 1e3)
}

/// For each of `count` containers a deadline that about as many of these run times meet as the others': the first is met by few,
/// the last by nearly all. `None` without run times.
pub fn spread_over(run_times_s: &[f64], count: usize) -> Option<Vec<Deadline>> {
    let mut sorted = run_times_s.to_vec();
    sorted.sort_by(f64::total_cmp);
    let nth = |index: usize| {
        let rank = (2 * index + 1) * sorted.len() / (2 * count);
        let millis = (sorted.get(rank)? * 1e3).round().max(1.0);
        Deadline::new(std::time::Duration::from_secs_f64(millis / 1e3))
    };
    (0..count).map(nth).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use berth_model::{Mono, TaskId};

    use super::*;

    const MS: u64 = 1_000_000;

    fn tenant() -> TenantKey {
        TenantKey::User { uid: 1 }
    }

    fn report(what: What, at_ms: u64, task: u64) -> Report {
        let at = Mono(at_ms * MS);
        let task = Some(TaskId(task));
        Report { tenant: tenant(), what, at, heard: Mono((at_ms + 3) * MS), task, judged: None }
    }

    fn judged(verdict: Verdict, at_ms: u64) -> Report {
        let judged = Some(Judged { deadline: deadline(), verdict, float_s: None });
        Report { judged, ..report(What::UnitJudged, at_ms, 0) }
    }

    fn stay(start_ms: u64, end_ms: u64) -> Stay {
        let moments = BTreeMap::from([(Moment::ContextReady, start_ms * MS)]);
        Stay { moments, end: Some(End::Exited { at: end_ms * MS }) }
    }

    fn deadline() -> Deadline {
        "1500ms".parse().unwrap()
    }

    /// Of one that takes 1 s and one that takes 2 s.
    fn tasks(reports: &[Report]) -> Vec<Task> {
        Task::all(&[stay(1_000, 2_000), stay(3_000, 5_000)], reports, &tenant(), deadline())
    }

    #[test]
    fn start_end_and_run_time_are_wrong_by_what_the_timers_say() {
        let reports = [
            report(What::TaskStarted, 1_002, 1),
            report(What::TaskEnded, 2_001, 1),
            report(What::TaskStarted, 3_000, 2),
            report(What::TaskEnded, 5_004, 2),
        ];
        let tasks = tasks(&reports);
        let errors =
            |task: &Task| (task.start.unwrap().error_ms, task.end.unwrap().error_ms, task.run_error_ms.unwrap());
        assert_eq!((errors(&tasks[0]), errors(&tasks[1])), ((2.0, 1.0, -1.0), (0.0, 4.0, 4.0)));
        assert_eq!(tasks.iter().map(|task| task.float_s).collect::<Vec<_>>(), [0.5, -0.5]);
        assert_eq!(tasks[0].start.unwrap().told_after_ms, 5.0);
        assert_eq!(Errors::of(tasks.iter()).run_ms.unwrap().quantiles.max, 4.0);
    }

    #[test]
    fn a_start_of_one_task_and_the_end_of_another_are_no_run_time() {
        let merged = [report(What::TaskStarted, 1_000, 1), report(What::TaskEnded, 2_000, 7)];
        let tasks = tasks(&merged);
        assert_eq!((tasks[0].run_error_ms, tasks[1].start), (None, None));
        assert_eq!(Errors::of(tasks.iter()).missed, 2);
    }

    #[test]
    fn a_verdict_is_compared_with_the_timers_and_excused_only_by_the_error_of_its_own_task() {
        let agreement = |float_s: f64, run_error_ms, verdict: Option<Verdict>| {
            let judged = verdict.map(|verdict| Judged { deadline: deadline(), verdict, float_s: None });
            Task { float_s, run_error_ms, judged, ..tasks(&[]).remove(0) }.agreement()
        };
        let (hit, miss) = (Some(Verdict::Hit), Some(Verdict::Miss));
        assert_eq!(agreement(0.5, None, hit), Agreement::Agrees);
        assert_eq!(agreement(-0.5, None, miss), Agreement::Agrees);
        assert_eq!(agreement(0.5, Some(499.0), miss), Agreement::Disagrees);
        assert_eq!(agreement(0.5, Some(501.0), miss), Agreement::WithinError);
        assert_eq!(agreement(-0.5, Some(-501.0), hit), Agreement::WithinError);
        assert_eq!(agreement(-0.5, None, hit), Agreement::Disagrees);
        assert_eq!(agreement(0.5, Some(501.0), Some(Verdict::Unknown)), Agreement::Disagrees);
        assert_eq!(agreement(0.5, Some(501.0), None), Agreement::NotJudged);
    }

    #[test]
    fn a_verdict_is_that_of_the_task_that_ended_then() {
        let reports = [judged(Verdict::Hit, 2_001), judged(Verdict::Miss, 5_001)];
        let verdicts: Vec<_> = tasks(&reports).iter().map(|task| task.judged.unwrap().verdict).collect();
        assert_eq!(verdicts, [Verdict::Hit, Verdict::Miss]);
    }

    #[test]
    fn deadlines_are_spread_over_the_run_times() {
        let deadlines = spread_over(&[4.0, 1.0, 2.0, 3.0], 4).unwrap();
        assert_eq!(deadlines.iter().map(|deadline| deadline.seconds()).collect::<Vec<_>>(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(spread_over(&[0.0001], 1).unwrap()[0].seconds(), 0.001, "a deadline is more than nothing");
        let few = spread_over(&[1.0, 9.0], 10).unwrap();
        assert_eq!((few.len(), few[0].seconds(), few[9].seconds()), (10, 1.0, 9.0));
        assert_eq!(spread_over(&[], 2), None);
    }
}
