//! What a workload did before, from its last tasks: the figures a policy may expect of the next one.
//!
//! Pure: records in, estimates out. Medians, so that one task that crashed at once or hung does not make the figure; of
//! memory the most, since too little of it is what fails. What no task told is not known, and stays so.

use std::collections::{BTreeMap, VecDeque};

use berth_model::Bytes;
use berth_model::history::{Before, Happening, Record, TaskStory, Workload};
use berth_model::{Evidence, TaskRow};
use berth_policy::Past;

/// Tasks a figure is made of.
const LAST: usize = 16;
/// Workloads kept; of more, the one that ended longest ago is forgotten.
const MOST_WORKLOADS: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Pasts {
    workloads: BTreeMap<Workload, Runs>,
    /// Tasks noted so far.
    count: u64,
}

#[derive(Debug)]
struct Runs {
    /// Newest last.
    last: VecDeque<Run>,
    /// Made of them.
    before: Before,
    /// The task that was noted last, by number.
    newest: u64,
}

/// One task.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Run {
    active_seconds: Option<f64>,
    duty: Option<f64>,
    peak_memory: Option<Bytes>,
    burst_seconds: Option<f64>,
}

impl Pasts {
    /// Learns from a task whose end was seen.
    pub fn note(&mut self, record: &Record) {
        let Happening::Task(story) = &record.what else { return };
        if story.end.is_none() || story.workload.command.is_empty() {
            return;
        }
        self.count += 1;
        let runs = self.workloads.entry(story.workload.clone()).or_insert_with(|| Runs {
            last: VecDeque::new(),
            before: estimate(&VecDeque::new()),
            newest: 0,
        });
        runs.add(Run::of(story));
        runs.newest = self.count;
        if self.workloads.len() > MOST_WORKLOADS {
            let oldest =
                self.workloads.iter().min_by_key(|(_, runs)| runs.newest).map(|(workload, _)| workload.clone());
            oldest.map(|workload| self.workloads.remove(&workload));
        }
    }

    /// What tasks like this one did; `None` if there were none.
    pub fn of(&self, row: &TaskRow) -> Option<Before> {
        let TaskRow { owner, image, command, .. } = row;
        let workload = Workload { owner: owner.clone(), image: image.clone(), command: command.clone() };
        self.workloads.get(&workload).map(|runs| runs.before)
    }
}

/// As policies want it: what was never measured is no past.
pub(super) fn past(before: &Before) -> Option<Past> {
    let Before { active_seconds, duty, peak_memory_bytes, burst_seconds, .. } = *before;
    Some(Past { active_seconds: active_seconds?, peak_memory: peak_memory_bytes, duty: duty?, burst_seconds })
}

impl Runs {
    fn add(&mut self, run: Run) {
        self.last.push_back(run);
        if self.last.len() > LAST {
            self.last.pop_front();
        }
        self.before = estimate(&self.last);
    }
}

impl Run {
    fn of(story: &TaskStory) -> Self {
        let stay = story.seconds - story.spent.held_seconds.unwrap_or(0.0);
        // Of a task that was there before berth only the memory is known: it may have done anything.
        let active = story.spent.active_seconds.filter(|_| story.start_evidence != Evidence::Process);
        let duty = active.filter(|_| stay > 0.0).map(|active| (active / stay).clamp(0.0, 1.0));
        let burst_seconds = active.and(story.spent.burst_seconds);
        Self { active_seconds: active, duty, peak_memory: story.peak_memory_bytes, burst_seconds }
    }
}

fn estimate(runs: &VecDeque<Run>) -> Before {
    Before {
        tasks: u32::try_from(runs.len()).unwrap_or(u32::MAX),
        active_seconds: median(runs.iter().filter_map(|run| run.active_seconds).collect()),
        duty: median(runs.iter().filter_map(|run| run.duty).collect()),
        peak_memory_bytes: runs.iter().filter_map(|run| run.peak_memory).max(),
        burst_seconds: median(runs.iter().filter_map(|run| run.burst_seconds).collect()),
    }
}

/// `None` of nothing.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        length if length % 2 == 1 => values.get(middle).copied(),
        _ => Some(f64::midpoint(*values.get(middle - 1)?, *values.get(middle)?)),
    }
}

#[cfg(test)]
mod tests {
    use berth_model::history::Spent;
    use berth_model::snapshot::TaskEnd;
    use berth_model::{GpuIndex, TaskId, TenantKey};
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    fn workload(command: &str) -> Workload {
        Workload { owner: Some("ada".into()), image: None, command: command.into() }
    }

    fn story(active_seconds: Option<f64>) -> TaskStory {
        TaskStory {
            task_id: TaskId(1),
            workload: workload("train"),
            gpus: vec![GpuIndex(0)],
            started_at: Timestamp::UNIX_EPOCH,
            start_evidence: Evidence::Probe,
            seconds: 100.0,
            spent: Spent {
                active_seconds,
                held_seconds: Some(50.0),
                burst_seconds: active_seconds.map(|active| active / 4.0),
            },
            peak_memory_bytes: Some(Bytes(7)),
            end: Some(TaskEnd::Left),
            left: None,
        }
    }

    fn record(story: TaskStory) -> Record {
        let what = Happening::Task(story);
        Record { at: Timestamp::UNIX_EPOCH, tenant: TenantKey::User { uid: 0 }, name: "ada".into(), what }
    }

    fn pasts(stories: impl IntoIterator<Item = TaskStory>) -> Pasts {
        let mut pasts = Pasts::default();
        stories.into_iter().for_each(|story| pasts.note(&record(story)));
        pasts
    }

    fn before(pasts: &Pasts, workload: &Workload) -> Option<Before> {
        pasts.workloads.get(workload).map(|runs| runs.before)
    }

    #[test]
    fn the_time_it_was_held_counts_for_nothing() {
        let pasts = pasts([story(Some(10.0))]);
        let told = before(&pasts, &workload("train")).unwrap();
        let expected = Past { active_seconds: 10.0, peak_memory: Some(Bytes(7)), duty: 0.2, burst_seconds: Some(2.5) };
        assert_eq!(past(&told), Some(expected));
    }

    #[test]
    fn workloads_are_told_apart_by_owner_image_and_every_argument() {
        let pasts = pasts([story(Some(10.0))]);
        for other in [
            workload("train --epochs 2"),
            Workload { owner: Some("eve".into()), ..workload("train") },
            Workload { image: Some("pytorch:2".into()), ..workload("train") },
        ] {
            assert_eq!(before(&pasts, &other), None, "{other:?}");
        }
    }

    #[test]
    fn what_was_not_measured_is_not_known_and_memory_is_known_without_it() {
        let unseen = TaskStory { start_evidence: Evidence::Process, ..story(Some(10.0)) };
        let told = before(&pasts([story(None), unseen]), &workload("train")).unwrap();
        assert_eq!((told.tasks, told.active_seconds, told.peak_memory_bytes), (2, None, Some(Bytes(7))));
        assert_eq!(past(&told), None);
    }

    #[test]
    fn a_task_whose_end_nobody_saw_teaches_nothing() {
        let lost = TaskStory { end: None, ..story(Some(10.0)) };
        assert_eq!(before(&pasts([lost]), &workload("train")), None);
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_workload_goes_first() {
        let named = |number: usize| TaskStory { workload: workload(&number.to_string()), ..story(Some(1.0)) };
        let pasts = pasts((0..MOST_WORKLOADS + 3).map(named).chain([named(3)]));
        assert_eq!(pasts.workloads.len(), MOST_WORKLOADS);
        assert_eq!(before(&pasts, &workload("2")), None);
        assert_eq!(before(&pasts, &workload("3")).map(|before| before.tasks), Some(2));
    }

    proptest! {
        #[test]
        fn only_the_last_tasks_count(old in prop::collection::vec(0.0..1e9, 0..40), new in prop::collection::vec(0.0..50.0, LAST)) {
            let all = pasts(old.into_iter().chain(new.clone()).map(|active| story(Some(active))));
            let last = pasts(new.into_iter().map(|active| story(Some(active))));
            prop_assert_eq!(before(&all, &workload("train")), before(&last, &workload("train")));
        }

        /// Fewer than half, however far off, do not move it beyond the others.
        #[test]
        fn outliers_do_not_make_the_figure(
            good in prop::collection::vec(10.0..20.0, 9..=LAST),
            outliers in prop::collection::vec(prop_oneof![Just(0.0), Just(1e12)], 0..8),
        ) {
            let outliers = outliers.into_iter().take(LAST - good.len());
            let values: Vec<f64> = good.iter().copied().chain(outliers).collect();
            let figure = median(values).unwrap();
            let least = good.iter().copied().fold(f64::INFINITY, f64::min);
            let most = good.iter().copied().fold(0.0, f64::max);
            prop_assert!((least..=most).contains(&figure), "{figure}");
        }

        #[test]
        fn the_order_of_tasks_does_not_matter(values in prop::collection::vec(0.0..100.0, 1..=LAST)) {
            let reversed: Vec<f64> = values.iter().rev().copied().collect();
            prop_assert_eq!(median(values), median(reversed));
        }

        #[test]
        fn a_duty_is_a_share(active in 0.0..1e4, seconds in 0.0..100.0, held in 0.0..200.0) {
            let spent = Spent { active_seconds: Some(active), held_seconds: Some(held), burst_seconds: None };
            let run = Run::of(&TaskStory { seconds, spent, ..story(None) });
            prop_assert!(run.duty.is_none_or(|duty| (0.0..=1.0).contains(&duty)));
        }
    }
}
