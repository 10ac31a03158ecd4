use super::*;
use crate::options::{Failure, GapRange};
use proptest::prelude::*;

/// Every step of a run, in order.
fn all(options: &Options) -> Vec<Step> {
    let plan = Plan::new(options);
    let mut steps = Vec::new();
    for task in 0..options.tasks {
        steps.extend(plan.setup(task));
        steps.extend((0..plan.rounds()).flat_map(|repeat| plan.round(task, repeat)));
        steps.extend(plan.result(task));
        steps.extend(plan.teardown(task));
    }
    steps.extend(plan.exit());
    steps
}

fn phases(options: &Options) -> Vec<Phase> {
    let begun = |step| if let Step::Begin(phase, _) = step { Some(phase) } else { None };
    all(options).into_iter().filter_map(begun).collect()
}

fn count(steps: &[Step], wanted: impl Fn(&Step) -> bool) -> usize {
    steps.iter().filter(|step| wanted(step)).count()
}

#[test]
fn product_goes_through_the_papers_phases() {
    use Phase::*;
    assert_eq!(phases(&Options::default()), [Host, Context, Alloc, Input, Kernel, Output, Free, Destroy]);
}

#[test]
fn holder_computes_and_copies_nothing() {
    use Phase::*;
    let options = Options::new(Mode::Hold);
    assert_eq!(phases(&options), [Host, Context, Alloc, Hold, Free, Destroy]);
    assert_eq!(count(&all(&options), |step| matches!(step, Step::Alloc(..))), 1);
}

#[test]
fn host_work_is_done_once_and_the_context_made_anew_in_every_task() {
    let options = Options { tasks: 3, ..Options::default() };
    let steps = all(&options);
    assert_eq!(count(&steps, |step| *step == Step::Begin(Phase::Host, None)), 1);
    assert_eq!(count(&steps, |step| *step == Step::CreateContext), 3);
}

#[test]
fn gaps_lie_between_rounds_only() {
    let gap = Duration::from_millis(5);
    let options = Options { repeats: 3, gap, ..Options::default() };
    assert_eq!(count(&all(&options), |step| *step == Step::Sleep(gap)), 2);
}

#[test]
fn light_rounds_wait_for_their_turn() {
    let options = Options { repeats: 2, ..Options::new(Mode::Light) };
    let steps = all(&options);
    let turns: Vec<_> = steps.iter().filter(|step| matches!(step, Step::SleepUntilRound(_))).collect();
    assert_eq!(turns, [&Step::SleepUntilRound(0), &Step::SleepUntilRound(1)]);
}

#[test]
fn verification_fills_the_inputs_and_follows_the_output() {
    let steps = all(&Options { verify: true, ..Options::default() });
    let fill = steps.iter().position(|step| *step == Step::FillHost).unwrap();
    let output = steps.iter().position(|step| *step == Step::CopyOut).unwrap();
    let verify = steps.iter().position(|step| *step == Step::Verify).unwrap();
    assert!(fill < output && output < verify);
}

#[test]
fn kernel_failure_falls_between_launch_and_wait() {
    let fail = Some(Failure { phase: Phase::Kernel, how: How::Kill, task: 0 });
    let steps = all(&Options { fail, ..Options::default() });
    let at = steps.iter().position(|step| *step == Step::Fail(How::Kill)).unwrap();
    assert_eq!((steps[at - 1], steps[at + 1]), (Step::Launch(0), Step::Synchronize(0)));
}

#[test]
fn context_failure_leaves_a_context_behind() {
    let fail = Some(Failure { phase: Phase::Context, how: How::Exit, task: 0 });
    let steps = all(&Options { fail, ..Options::default() });
    let at = steps.iter().position(|step| *step == Step::Fail(How::Exit)).unwrap();
    assert_eq!(steps[at - 1], Step::CreateContext);
}

fn failure() -> impl Strategy<Value = Option<Failure>> {
    let phase = prop::sample::select(Phase::ALL.to_vec());
    prop::option::of((phase, 0..4u32).prop_map(|(phase, task)| Failure { phase, how: How::Exit, task }))
}

fn options() -> impl Strategy<Value = Options> {
    let modes = prop::sample::select(vec![Mode::Matmul, Mode::Hold, Mode::Light]);
    let millis = || (0..3u64).prop_map(Duration::from_millis);
    let counts = (1..100u32, 0..4u32, 1..4u32, 0..3u64);
    let times = (millis(), millis(), millis(), millis());
    (modes, counts, times, any::<bool>(), any::<u64>(), failure()).prop_map(
        |(mode, (size, repeats, tasks, alloc), (gap, hold, idle, task_gap), verify, seed, fail)| Options {
            size,
            repeats,
            tasks,
            alloc_bytes: alloc + u64::from(mode == Mode::Hold),
            gap,
            hold,
            idle,
            verify,
            seed,
            fail,
            task_gap: GapRange { min: Duration::ZERO, max: task_gap },
            ..Options::new(mode)
        },
    )
}

proptest! {
    #[test]
    fn phases_neither_overlap_nor_stay_open(options in options()) {
        let mut open = None;
        for step in all(&options) {
            match step {
                Step::Begin(phase, repeat) => prop_assert_eq!(open.replace((phase, repeat)), None),
                Step::End(phase, repeat) => prop_assert_eq!(open.take(), Some((phase, repeat))),
                _ => {}
            }
        }
        prop_assert_eq!(open, None);
    }

    #[test]
    fn everything_taken_is_given_back_once_and_in_order(options in options()) {
        let (mut context, mut held) = (false, Vec::new());
        for step in all(&options) {
            match step {
                Step::CreateContext => {
                    prop_assert!(!context);
                    context = true;
                }
                Step::Alloc(buffer, bytes) => {
                    prop_assert!(context && bytes > 0 && !held.contains(&buffer));
                    held.push(buffer);
                }
                Step::CopyIn(buffer) => prop_assert!(held.contains(&buffer)),
                Step::Launch(_) | Step::CopyOut => prop_assert!(held.contains(&Buffer::C)),
                Step::Free(buffer) => {
                    let at = held.iter().position(|other| *other == buffer);
                    prop_assert!(at.is_some());
                    held.remove(at.unwrap());
                }
                Step::DestroyContext => {
                    prop_assert!(context && held.is_empty());
                    context = false;
                }
                _ => {}
            }
        }
        prop_assert!(!context);
    }

    #[test]
    fn failure_of_checked_options_is_there_exactly_once(options in options()) {
        prop_assume!(options.check().is_ok());
        let expected = usize::from(options.fail.is_some());
        prop_assert_eq!(count(&all(&options), |step| matches!(step, Step::Fail(_))), expected);
    }

    #[test]
    fn task_gaps_stay_in_their_range_and_repeat_with_the_seed(
        seed: u64, task: u32, min in 0..10_000u64, width in 0..10_000u64,
    ) {
        let range = GapRange { min: Duration::from_millis(min), max: Duration::from_millis(min + width) };
        let options = Options { seed, task_gap: range, ..Options::default() };
        let gap = task_gap(&options, task);
        prop_assert!(gap >= range.min && gap <= range.max);
        prop_assert_eq!(gap, task_gap(&options.clone(), task));
    }
}

#[test]
fn task_gaps_differ_between_tasks_and_seeds() {
    let task_gap_range = GapRange { min: Duration::ZERO, max: Duration::from_secs(10) };
    let options = |seed| Options { seed, task_gap: task_gap_range, ..Options::default() };
    let gaps: std::collections::HashSet<_> =
        (0..10).flat_map(|seed| (0..10).map(move |task| (seed, task))).map(|(s, t)| task_gap(&options(s), t)).collect();
    assert_eq!(gaps.len(), 100);
}
