//! Scenarios with their whole trace of decisions: time, who, what, why. A change of a trace is a change of behaviour, to be
//! read line by line.

use berth_model::Bytes;
use berth_model::hold::Means;
use berth_policy::fifo::Fifo;
use berth_policy::paper::Paper;
use berth_policy::{FifoSettings, PaperSettings};

use crate::host::{Do, Host, Job, MS, key};

fn played(mut host: Host, until_ms: u64) -> Host {
    host.run(&mut Fifo::new(FifoSettings::default()), until_ms);
    host
}

/// Context and input, one kernel, output and teardown.
fn product(name: &str, at: u64, kernel_ms: u64) -> Job {
    Job::new(name, at, &[Do::Load(100), Do::Take(800), Do::Load(100), Do::Compute(kernel_ms), Do::Rest(150)])
}

/// A tenant that never pauses for long between steps of so many milliseconds.
fn training(name: &str, at: u64, step_ms: u64) -> Job {
    let mut script = vec![Do::Take(800), Do::Load(500)];
    script.extend((0..5000).flat_map(|_| [Do::Compute(step_ms), Do::Rest(0)]));
    Job::new(name, at, &script)
}

/// Short bursts with long pauses: 14 % of a GPU.
fn light(name: &str, at: u64) -> Job {
    let mut script = vec![Do::Take(500), Do::Load(300)];
    script.extend((0..200).flat_map(|_| [Do::Compute(7), Do::Rest(43)]));
    Job::new(name, at, &script)
}

#[test]
fn ten_equal_jobs_at_once() {
    let jobs = (0..10).map(|n| product(&format!("job-{n}"), 0, 1000)).collect();
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert_eq!(host.crowded, 0);
    let last = host.beings.iter().filter_map(|being| being.finished).max();
    assert_eq!(last, Some((200 + 10 * 1000 + 150) * MS), "nothing but the kernels stands in line");
    insta::assert_snapshot!(host.trace);
}

#[test]
fn twelve_that_come_at_once_make_their_contexts_a_few_at_a_time() {
    let script = [Do::Load(30), Do::Open(120), Do::Take(800), Do::Load(60), Do::Compute(220), Do::Rest(150)];
    let jobs = (0..12).map(|n| Job::new(&format!("job-{n}"), 0, &script)).collect();
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert_eq!(host.crowded, 0);
    let last = host.beings.iter().filter_map(|being| being.finished).max();
    let first_launch = 30 + 5 * 120 + 60;
    assert_eq!(last, Some((first_launch + 12 * 220 + 150) * MS), "kernels run while the later contexts are made");
    insta::assert_snapshot!(host.trace);
}

/// Of one owner: whose turn it is goes by what each has used, so the short one waits for one long kernel, not for two.
#[test]
fn one_with_short_bursts_beside_two_with_long_ones() {
    let looping = |name: &str, kernel_ms| {
        let script = [Do::Load(100), Do::Take(800)].into_iter();
        let rounds = (0..200).flat_map(|_| [Do::Compute(kernel_ms), Do::Rest(20)]);
        Job::new(name, 0, &script.chain(rounds).collect::<Vec<_>>())
    };
    let jobs = vec![looping("long-1", 2_400), looping("long-2", 2_400), looping("short", 300)];
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    let waits = &host.being("short").waits;
    let longest = waits.iter().skip(2).max().copied().unwrap_or(0);
    assert!(waits.len() > 10 && longest <= 2_420 * MS, "{} waits, {} ms: {}", waits.len(), longest / MS, host.trace);
}

#[test]
fn a_day_long_training_and_a_ten_second_job() {
    let mut script = vec![Do::Load(300)];
    script.extend((0..10).flat_map(|_| [Do::Compute(1000), Do::Rest(50)]));
    let jobs = vec![training("training", 0, 20), Job::new("job", 30_000, &script)];
    let host = played(Host::new(1, 24_000, jobs), 90_000);
    assert!(host.finished_ms("job").is_some_and(|at| at < 30_000 + 13_000), "{}", host.trace);
    insta::assert_snapshot!(host.trace);
}

#[test]
fn a_notebook_that_idles_with_memory() {
    let notebook =
        [Do::Load(300), Do::Take(10_000), Do::Compute(2_000), Do::Rest(60_000), Do::Compute(2_000), Do::Rest(5_000)];
    let jobs = vec![
        Job::new("notebook", 0, &notebook),
        product("early", 5_000, 3_000),
        product("late", 30_000, 3_000),
        product("during", 61_000, 3_000),
    ];
    let host = played(Host::new(1, 24_000, jobs), 120_000);
    assert_eq!(host.finished_ms("early"), Some(8_350), "nobody waits for a notebook that is idle");
    assert_eq!(host.finished_ms("late"), Some(33_350));
    insta::assert_snapshot!(host.trace);
}

#[test]
fn five_light_tenants_with_a_past_are_never_touched() {
    let jobs = (0..5).map(|n| light(&format!("light-{n}"), 0).past(1.4, 0.14)).collect();
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert!(host.beings.iter().all(|being| being.holds.is_empty() && being.finished.is_some()), "{}", host.trace);
}

/// The worst case: nothing is known about them, and they come to their first launch at the same instant.
#[test]
fn five_light_tenants_without_a_past() {
    let jobs = (0..5).map(|n| light(&format!("light-{n}"), 0)).collect();
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert!(host.beings.iter().all(|being| being.holds.is_empty() && being.finished.is_some()), "{}", host.trace);
}

/// They look like heavy ones until their first burst has come back.
#[test]
fn five_light_tenants_without_a_past_that_have_loaded_much() {
    let much = |n: u64| {
        let mut job = light(&format!("light-{n}"), 0);
        job.script[0] = Do::Take(4_000);
        job
    };
    let host = played(Host::new(1, 24_000, (0..5).map(much).collect()), 60_000);
    for being in &host.beings {
        assert!(being.waits.len() <= 1, "{} stood more than at its first launch", being.job.name);
        assert!(being.waits.iter().sum::<u64>() <= 4 * 7 * MS, "{} waited {:?}", being.job.name, being.waits);
    }
    insta::assert_snapshot!(host.trace);
}

#[test]
fn a_heavy_job_beside_light_tenants_holds_nobody() {
    let mut jobs: Vec<Job> = (0..3).map(|n| light(&format!("light-{n}"), 0).past(1.4, 0.14)).collect();
    jobs.push(product("heavy", 1_000, 3_000));
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert!(host.beings.iter().all(|being| being.holds.is_empty()), "{}", host.trace);
}

#[test]
fn two_users_one_with_five_jobs_and_one_with_one() {
    let mut jobs: Vec<Job> = (0..5).map(|n| product(&format!("ann-{n}"), n, 2_000).owner("ann")).collect();
    jobs.push(product("bob", 100, 2_000).owner("bob"));
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert_eq!(host.finished_ms("bob"), Some(4_350), "after the one that ran already, before the other four");
    insta::assert_snapshot!(host.trace);
}

#[test]
fn a_memory_queue() {
    let want = |name: &str, at, mib, ms| {
        Job::new(name, at, &[Do::Load(200), Do::Take(mib), Do::Load(100), Do::Compute(ms), Do::Rest(100)])
    };
    let jobs = vec![
        want("first", 0, 15_000, 5_000),
        want("second", 10, 15_000, 1_000),
        want("small", 20, 5_000, 1_000),
        want("huge", 30, 30_000, 1_000),
    ];
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    let failed: Vec<_> = host.beings.iter().filter(|being| being.has_failed).map(|being| &being.job.name).collect();
    assert_eq!(failed, ["huge"], "only what can never fit fails");
    insta::assert_snapshot!(host.trace);
}

/// Both have taken half of what they need, and neither can get the rest.
fn halves(means: &[Means]) -> Host {
    let script = [Do::Load(200), Do::Take(10_000), Do::Load(100), Do::Take(10_000), Do::Compute(1_000), Do::Rest(100)];
    Host::new(
        1,
        24_000,
        vec![Job::new("elder", 0, &script).means(means), Job::new("younger", 10, &script).means(means)],
    )
}

#[test]
fn hold_and_wait_over_memory_is_broken_by_parking() {
    let host = played(halves(&[Means::Gate, Means::Freeze, Means::Park]), 60_000);
    assert!(host.beings.iter().all(|being| !being.has_failed && being.finished.is_some()), "{}", host.trace);
    insta::assert_snapshot!(host.trace);
}

#[test]
fn hold_and_wait_over_memory_without_park_lets_the_younger_fail() {
    let host = played(halves(&[Means::Gate, Means::Freeze]), 60_000);
    assert!(host.being("younger").has_failed && !host.being("elder").has_failed);
    insta::assert_snapshot!(host.trace);
}

/// A notebook: its kernel has a model on the GPU, and its user has gone.
#[test]
fn one_that_took_memory_and_never_computes_gives_way_to_one_that_wants_to() {
    let means = [Means::Gate, Means::Freeze, Means::Park];
    let notebook = [Do::Load(200), Do::Take(14_000), Do::Load(120_000), Do::Compute(100)];
    let eager = [Do::Load(200), Do::Take(14_000), Do::Compute(1_000)];
    let jobs = vec![Job::new("notebook", 0, &notebook).means(&means), Job::new("eager", 1_000, &eager).means(&means)];
    let host = played(Host::new(1, 24_000, jobs), 200_000);
    assert!(host.finished_ms("eager").is_some_and(|at| at < 30_000), "{}", host.trace);
    assert!(host.being("notebook").finished.is_some(), "it comes back: {}", host.trace);
}

#[test]
fn declared_needs_count_before_the_first_allocation_is_let_through() {
    let script = [Do::Load(200), Do::Take(1_000), Do::Load(100), Do::Take(19_000), Do::Compute(1_000)];
    let mut jobs = vec![Job::new("elder", 0, &script), Job::new("younger", 10, &script)];
    jobs.iter_mut().for_each(|job| job.needs = Some(Bytes::from_mib(20_000)));
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    // The gate lets what fits pass by itself; the second allocation does not, and waits for the elder to leave.
    assert!(host.beings.iter().all(|being| !being.has_failed), "{}", host.trace);
}

#[test]
fn two_gpus_crossed() {
    let jobs = vec![
        product("zero", 0, 3_000).gpus(&[0]),
        product("one", 10, 4_000).gpus(&[1]),
        product("both", 20, 2_000).gpus(&[0, 1]),
        product("too", 30, 2_000).gpus(&[1, 0]),
        product("last", 40, 1_000).gpus(&[0]),
    ];
    let host = played(Host::new(2, 24_000, jobs), 60_000);
    assert_eq!(host.crowded, 0);
    insta::assert_snapshot!(host.trace);
}

#[test]
fn a_gang() {
    let rank = |n: u32| product(&format!("rank-{n}"), 10 + u64::from(n) * 50, 2_000).gang("ranks").gpus(&[n]);
    let jobs = vec![product("before", 0, 1_000).gpus(&[0]), rank(0), rank(1), product("after", 300, 1_000).gpus(&[1])];
    let host = played(Host::new(2, 24_000, jobs), 60_000);
    let first = |name: &str| host.being(name).releases.first().copied();
    assert_eq!(first("rank-0"), first("rank-1"), "together: {}", host.trace);
    insta::assert_snapshot!(host.trace);
}

#[test]
fn where_only_a_freeze_is_at_hand_small_jobs_are_left_alone() {
    let jobs =
        (0..5).map(|n| product(&format!("job-{n}"), n * 50, 500).means(&[Means::Freeze]).past(0.5, 0.6)).collect();
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert_eq!(host.trace.lines().filter(|line| line.contains("hold")).count(), 0, "{}", host.trace);
}

#[test]
fn without_a_gate_nobody_is_held_of_whom_nothing_is_known() {
    for means in [Means::Lock, Means::Freeze] {
        let jobs = (0..5).map(|n| product(&format!("job-{n}"), n * 50, 5_000).means(&[means])).collect();
        let host = played(Host::new(1, 24_000, jobs), 120_000);
        assert_eq!(host.trace.lines().filter(|line| line.contains("hold")).count(), 0, "{}", host.trace);
    }
}

#[test]
fn where_only_a_lock_is_at_hand_it_comes_after_the_context() {
    let jobs =
        (0..3).map(|n| product(&format!("job-{n}"), n * 50, 2_000).means(&[Means::Lock]).past(2.0, 0.9)).collect();
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    insta::assert_snapshot!(host.trace);
}

#[test]
fn the_paper_pauses_at_first_sight_and_lets_one_go_at_a_time() {
    let jobs = (0..4).map(|n| product(&format!("job-{n}"), n * 10, 2_000)).collect();
    let mut host = Host::new(1, 24_000, jobs);
    host.delay = 60 * MS;
    host.run(&mut Paper::new(PaperSettings::default()), 60_000);
    assert!(host.beings.iter().all(|being| being.finished.is_some()));
    insta::assert_snapshot!(host.trace);
}

#[test]
fn the_paper_pauses_the_one_that_filled_the_memory_until_there_is_room() {
    // Half of the core each, so that cores have room where memory has not.
    let big = |name: &str, at| {
        let mut script = vec![Do::Take(600), Do::Load(400), Do::Take(11_000), Do::Load(400)];
        script.extend((0..40).flat_map(|_| [Do::Compute(50), Do::Rest(50)]));
        Job::new(name, at, &script)
    };
    let jobs = vec![big("first", 0), big("second", 50), big("third", 100)];
    let mut host = Host::new(1, 24_000, jobs);
    host.delay = 60 * MS;
    host.run(&mut Paper::new(PaperSettings::default()), 60_000);
    assert!(host.beings.iter().all(|being| being.finished.is_some() && !being.has_failed), "{}", host.trace);
    insta::assert_snapshot!(host.trace);
}

/// Core use falls at the output of the one that runs and lets the next go; its end must not let go another.
#[test]
fn the_paper_lets_one_go_for_one_that_is_done() {
    let task = |n: u64| {
        let script = [Do::Take(800), Do::Load(300), Do::Compute(5_000), Do::Rest(1_000)];
        Job::new(&format!("task-{n}"), n * 10, &script)
    };
    let mut host = Host::new(1, 24_000, (0..5).map(task).collect());
    host.delay = 60 * MS;
    host.run(&mut Paper::new(PaperSettings::default()), 600_000);
    assert!(host.beings.iter().all(|being| being.finished.is_some()), "{}", host.trace);
    assert_eq!(host.crowded, 0, "{}", host.trace);
}

#[test]
fn who_cannot_be_stopped_is_waited_for_no_longer_than_a_quantum() {
    let jobs = vec![product("exempt", 0, 40_000).means(&[]), product("job", 100, 1_000)];
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert_eq!(host.being("job").waits, [10_000 * MS], "{}", host.trace);
}

#[test]
fn a_kernel_that_does_not_end_is_waited_for_up_to_the_last_resort() {
    let jobs = vec![product("endless", 0, 2_000_000), product("job", 100, 1_000)];
    let host = played(Host::new(1, 24_000, jobs), 1_000_000);
    assert_eq!(host.being("job").waits, [600_000 * MS], "{}", host.trace);
}

#[test]
fn a_long_queue_of_long_kernels_waits_and_never_computes_together() {
    let jobs = (0..10).map(|n| product(&format!("job-{n}"), n, 30_000)).collect();
    let host = played(Host::new(1, 240_000, jobs), 600_000);
    assert_eq!(host.crowded, 0, "{}", host.trace);
    assert!(host.beings.iter().all(|being| being.finished.is_some()), "{}", host.trace);
}

/// By owners alone it would come after every newcomer.
#[test]
fn who_has_waited_long_goes_before_owners_who_have_used_nothing() {
    let greedy = [Do::Load(200), Do::Compute(50_000), Do::Rest(50), Do::Compute(1_000)];
    let newcomer = |n: u64| product(&format!("new-{n}"), 49_000 + n * 1_500, 2_000).owner(&format!("owner-{n}"));
    let mut jobs: Vec<Job> = (0..100).map(newcomer).collect();
    jobs.push(Job::new("greedy", 0, &greedy).owner("greedy"));
    let host = played(Host::new(1, 240_000, jobs), 600_000);
    let waited = host.being("greedy").waits.iter().copied().max().unwrap_or(0);
    assert!(
        (60_000 * MS..=62_000 * MS).contains(&waited),
        "the bound, and what runs then: {waited} ns\n{}",
        host.trace
    );
    assert_eq!(host.crowded, 0);
}

/// Nobody sees the end of its burst: the driver's average does, a little later.
#[test]
fn lost_evidence_is_made_up_for_by_an_idle_gpu() {
    let unseen = [Do::Load(200), Do::Compute(2_000), Do::Rest(30_000)];
    let jobs = vec![Job { lateness: None, ..Job::new("unseen", 0, &unseen) }, product("job", 100, 1_000)];
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert!(host.finished_ms("job").is_some_and(|at| at < 2_200 + 400 + 1_150), "{}", host.trace);
}

#[test]
fn two_equal_trainings_take_turns_by_the_quantum() {
    let jobs = vec![training("one", 0, 20), training("two", 10, 20)];
    let host = played(Host::new(1, 24_000, jobs), 60_000);
    assert_eq!(host.crowded, 0);
    assert!(host.being("two").waits.iter().all(|wait| *wait < 10_100 * MS), "{}", host.trace);
    // The second comes as one of whom nothing is known, and may take long: the first has two slices before it is let try.
    assert_eq!(host.trace.lines().filter(|line| line.contains("hold by gate")).count(), 8, "{}", host.trace);
}

/// Most of a step is launched ahead: when the quantum is over it stands at a launch, and what it has launched runs on.
#[test]
fn who_was_stopped_at_a_launch_computes_until_what_it_had_launched_is_over() {
    let job = |name: &str| {
        let step = [[Do::Submit(50); 4].as_slice(), &[Do::Rest(20), Do::Compute(50)]].concat();
        let script = [&[Do::Take(800), Do::Load(500)], step.repeat(200).as_slice()].concat();
        Job::new(name, 0, &script)
    };
    let mut host = Host::new(1, 24_000, vec![job("one"), job("two")]);
    host.run(&mut Fifo::new(FifoSettings::default()), 60_000);
    let turns = host.trace.lines().filter(|line| line.contains("hold by gate")).count();
    assert!(turns >= 5, "{}", host.trace);
    assert_eq!(host.crowded, 0, "{}", host.trace);
}

#[test]
fn those_in_line_are_told_behind_whom_and_until_when() {
    let jobs = (0..3).map(|n| product(&format!("job-{n}"), n, 10_000).past(10.0, 0.9)).collect();
    let host = played(Host::new(1, 24_000, jobs), 4_200);
    let told: Vec<_> = host.verdict.queue.iter().map(|waiting| (&waiting.tenant, &waiting.behind)).collect();
    let (one, two, runner) = (key("job-1"), key("job-2"), Some(key("job-0")));
    assert_eq!(told, [(&one, &runner), (&two, &runner)]);
    let expected = host.verdict.queue.iter().map(|waiting| waiting.expected_at.map(|at| at.0 / MS / 1000));
    assert_eq!(expected.collect::<Vec<_>>(), [Some(10), Some(20)], "after the one that runs, then after one more");
}

/// Room for one is seen before the one that took it is: the other is not sent after it.
#[test]
fn memory_is_promised_once() {
    let want = |name: &str, at| Job::new(name, at, &[Do::Take(15_000), Do::Load(300), Do::Compute(100), Do::Rest(250)]);
    let mut host = Host::new(1, 24_000, vec![want("first", 0), want("second", 10), want("third", 20)]);
    (host.sees_memory_late, host.delay) = (true, MS);
    let host = played(host, 60_000);
    let sent = |who: &str| host.trace.lines().filter(|line| line.contains(who) && line.contains("release")).count();
    assert_eq!(sent("second"), 2, "once more than enough, before the first look: {}", host.trace);
    assert_eq!(sent("third"), 1, "{}", host.trace);
    assert!(host.beings.iter().all(|being| being.finished.is_some() && !being.has_failed), "{}", host.trace);
}

/// Its GPUs are never free at the same time by themselves.
#[test]
fn who_wants_two_gpus_is_not_passed_over_for_ever() {
    let single = |n: u64| {
        let gpu = u32::from(n % 2 == 1);
        product(&format!("job-{n}"), n * 10, if n < 2 { 1_000 + n * 1_000 } else { 2_000 }).gpus(&[gpu])
    };
    let mut jobs: Vec<Job> = (0..40).map(single).collect();
    jobs.push(product("both", 100, 1_000).gpus(&[0, 1]));
    let host = played(Host::new(2, 240_000, jobs), 100_000);
    let waited = host.being("both").waits.iter().sum::<u64>();
    assert!(waited <= (10_000 + 2_000) * MS, "a quantum, and what runs then: {waited} ns");
}
