//! What standing still does to a process, and where the time of a run goes.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Does what it was told beforehand, at fixed times.
#[derive(Debug, Default)]
struct Script {
    commands: Vec<(u64, Command)>,
    /// Stops this process at its first launch.
    stops_at_launch: Option<usize>,
    sights: Vec<(u64, usize, Sight)>,
}

impl Manager for Script {
    fn saw(&mut self, now: u64, process: usize, sight: Sight) -> Passage {
        self.sights.push((now, process, sight));
        let stops = sight == Sight::Launches && self.stops_at_launch.take_if(|whose| *whose == process).is_some();
        if stops { Passage::Stop } else { Passage::AT_ONCE }
    }

    fn next_event(&self) -> Option<u64> {
        self.commands.first().map(|(at, _)| *at)
    }

    fn act(&mut self, engine: &Engine) -> Vec<Command> {
        let due = |command: &mut (u64, Command)| command.0 <= engine.now();
        self.commands.extract_if(.., due).map(|(_, command)| command).collect()
    }
}

fn rtx3090() -> Profile {
    Profile::builtin("rtx3090").unwrap()
}

fn product(n: u64) -> Scenario {
    Scenario::of(1, n, Order::Together, Sharing::TimeSliced)
}

fn run(scenario: &Scenario, commands: &[(u64, Command)]) -> Report {
    let mut script = Script { commands: commands.to_vec(), ..Script::default() };
    scenario.run_managed(&rtx3090(), &mut script).unwrap()
}

/// The middle of a phase of the first process.
fn amid(report: &Report, phase: Phase) -> u64 {
    let (_, begin, end) = report.runs[0].phases.iter().find(|(of, ..)| *of == phase).unwrap();
    begin.midpoint(*end)
}

#[test]
fn host_context_and_copies_last_longer_by_the_time_the_process_stands_still() {
    let free = product(8_192).run(&rtx3090()).unwrap();
    for phase in [Phase::Host, Phase::Context, Phase::Input, Phase::Output, Phase::Teardown] {
        let at = amid(&free, phase);
        let held = run(&product(8_192), &[(at, Command::Stop(0)), (at + S, Command::Go(0))]);
        assert_eq!(held.runs[0].ns(phase), free.runs[0].ns(phase) + S, "{phase:?}");
        assert_eq!(held.total_ns, free.total_ns + S, "{phase:?}");
        assert_eq!((held.runs[0].holds, held.runs[0].held_ns), (1, S));
    }
}

#[test]
fn a_short_stop_in_a_call_delays_it_as_a_long_one_does() {
    let free = product(8_192).run(&rtx3090()).unwrap();
    let at = amid(&free, Phase::Context);
    let held = run(&product(8_192), &[(at, Command::Stop(0)), (at + MS, Command::Go(0))]);
    assert_eq!(held.total_ns, free.total_ns + MS);
}

/// Ten copies share the engine: one takes far longer than alone. Who stood still meanwhile has its own to do, not the others'.
#[test]
fn who_stood_still_in_a_crowd_lacks_no_more_than_a_call_takes_alone() {
    let alone = product(8_192).run(&rtx3090()).unwrap();
    let crowd = Scenario::of(10, 8_192, Order::Together, Sharing::TimeSliced);
    let at = amid(&crowd.run(&rtx3090()).unwrap(), Phase::Input);
    let held = run(&crowd, &[(at, Command::Stop(0)), (at + 20 * S, Command::Go(0))]);
    let input = held.runs[0].phases.iter().find(|(of, ..)| *of == Phase::Input).unwrap().2;
    let (begin, most) = (at + 20 * S, alone.runs[0].ns(Phase::Input));
    assert!(input > begin && input <= begin + most, "{} ms after", (input - begin) / MS);
}

#[test]
fn a_kernel_runs_on_while_its_process_stands_still() {
    let free = product(8_192).run(&rtx3090()).unwrap();
    let at = amid(&free, Phase::Kernel);
    let held = run(&product(8_192), &[(at, Command::Stop(0)), (at + 100 * MS, Command::Go(0))]);
    assert_eq!(held.total_ns, free.total_ns);
    let long = run(&product(8_192), &[(at, Command::Stop(0)), (at + 10 * S, Command::Go(0))]);
    assert_eq!(long.runs[0].phases.iter().find(|(of, ..)| *of == Phase::Kernel).unwrap().2, at + 10 * S);
}

#[test]
fn a_process_stopped_at_its_launch_computes_when_it_is_let_go() {
    let mut script = Script { commands: vec![(20 * S, Command::Go(0))], stops_at_launch: Some(0), ..Script::default() };
    let held = product(8_192).run_managed(&rtx3090(), &mut script).unwrap();
    let free = product(8_192).run(&rtx3090()).unwrap();
    let (_, begin, end) = held.runs[0].phases.iter().find(|(of, ..)| *of == Phase::Kernel).unwrap();
    assert_eq!((*begin, end - begin), (20 * S, free.runs[0].ns(Phase::Kernel)));
    assert!(held.runs[0].ns(Phase::Turn) > 15 * S);
}

#[test]
fn nobody_lets_go_is_told_not_waited_for() {
    let mut script = Script { stops_at_launch: Some(0), ..Script::default() };
    let failed = product(8_192).run_managed(&rtx3090(), &mut script).unwrap_err();
    assert!(matches!(failed, Failed::Stuck { waiting: 1, .. }), "{failed}");
}

/// Stops a process while its context is made, and then only looks on.
struct Onlooker {
    next: u64,
}

impl Manager for Onlooker {
    fn saw(&mut self, _: u64, _: usize, _: Sight) -> Passage {
        Passage::AT_ONCE
    }

    fn next_event(&self) -> Option<u64> {
        Some(self.next)
    }

    fn act(&mut self, engine: &Engine) -> Vec<Command> {
        if engine.now() < self.next {
            return Vec::new();
        }
        self.next += 60 * S;
        vec![Command::Stop(0)]
    }
}

#[test]
fn nobody_lets_go_is_told_though_a_call_is_open_and_someone_looks_on() {
    let context = amid(&product(8_192).run(&rtx3090()).unwrap(), Phase::Context);
    let failed = product(8_192).run_managed(&rtx3090(), &mut Onlooker { next: context }).unwrap_err();
    assert!(matches!(failed, Failed::Stuck { waiting: 1, .. }), "{failed}");
}

#[test]
fn moments_are_seen_in_their_order() {
    let mut script = Script::default();
    product(5_120).run_managed(&rtx3090(), &mut script).unwrap();
    let seen: Vec<Sight> = script.sights.iter().map(|(.., sight)| *sight).collect();
    let allocates = Sight::Allocates { bytes: 5_120 * 5_120 * 4 };
    let expected = [
        vec![Sight::Initialises, Sight::ContextReady, allocates, allocates, allocates, Sight::Launches],
        vec![Sight::Drained, Sight::Drained, Sight::ContextGone, Sight::Exited],
    ];
    assert_eq!(seen, expected.concat());
}

#[test]
fn a_locked_process_computes_after_the_unlock() {
    use berth_proto::sim::CheckpointOp::{Lock, Unlock};
    let free = product(8_192).run(&rtx3090()).unwrap();
    let at = amid(&free, Phase::Input);
    let commands = [(at, Command::Driver(0, Lock { timeout_ms: 0 })), (at + 9 * S, Command::Driver(0, Unlock))];
    let held = run(&product(8_192), &commands);
    assert!(held.total_ns > free.total_ns + 8 * S, "{}", held.total_ns);
    assert_eq!(held.runs[0].holds, 0, "its threads were never stopped");
}

#[test]
fn what_is_computed_is_the_kernels_alone_in_every_order() {
    let alone = product(8_192).run(&rtx3090()).unwrap().runs[0].ns(Phase::Kernel) as f64;
    for order in [Order::OneByOne, Order::Together, Order::KernelsOneByOne] {
        let report = Scenario::of(5, 8_192, order, Sharing::TimeSliced).run(&rtx3090()).unwrap();
        assert!((report.spent.computing_ns / alone - 5.0).abs() < 1e-3, "{order:?}: {:?}", report.spent);
    }
}

#[test]
fn repeated_and_idle_programs_do_what_they_say() {
    let works = [
        (Work::Training { n: 4_096, rounds: 7, gap_ns: MS }, 7),
        (Work::Inference { n: 768, requests: 30, gap_ns: 10 * MS }, 30),
        (Work::Notebook { n: 1_024, idle_ns: 60 * S }, 1),
        (Work::Appointment { n: 1_024, at_ns: 30 * S }, 1),
    ];
    for (work, kernels) in works {
        let scenario = Scenario { programs: vec![Program::of(work)], ..product(1) };
        let mut script = Script::default();
        let report = scenario.run_managed(&rtx3090(), &mut script).unwrap();
        let launches = script.sights.iter().filter(|(.., sight)| *sight == Sight::Launches).count();
        assert_eq!(launches, kernels, "{work:?}");
        assert_eq!(report.runs[0].phases.iter().filter(|(of, ..)| *of == Phase::Gap).count(), kernels, "{work:?}");
    }
}

proptest! {
    #[test]
    fn every_instant_is_spent_once(
        k in 1usize..6,
        n in prop::sample::select(vec![1_024u64, 4_096, 8_192]),
        order in prop::sample::select(vec![Order::OneByOne, Order::Together, Order::KernelsOneByOne]),
    ) {
        let report = Scenario::of(k, n, order, Sharing::TimeSliced).run(&rtx3090()).unwrap();
        prop_assert!((report.spent.total_ns() - report.total_ns as f64).abs() < 1.0, "{:?}", report);
    }

    #[test]
    fn stops_and_goes_at_any_time_lose_no_work_and_cost_one_alone_at_most_their_length(
        k in 1usize..4,
        stops in prop::collection::vec((0u64..4_000, 1u64..2_000, 0usize..3), 0..6),
    ) {
        let scenario = Scenario::of(k, 8_192, Order::Together, Sharing::TimeSliced);
        let mut commands: Vec<(u64, Command)> = stops
            .iter()
            .filter(|(.., whose)| *whose < k)
            .flat_map(|(at, ms, whose)| [(at * MS, Command::Stop(*whose)), ((at + ms) * MS, Command::Go(*whose))])
            .collect();
        commands.sort_by_key(|(at, _)| *at);
        let held = run(&scenario, &commands);
        let longest: u64 = stops.iter().map(|(_, ms, _)| ms * MS).sum();
        let free = scenario.run(&rtx3090()).unwrap();
        prop_assert!(k > 1 || held.total_ns <= free.total_ns + longest);
        prop_assert!((held.spent.computing_ns - free.spent.computing_ns).abs() < 1e3);
    }
}

#[test]
fn those_with_an_appointment_launch_at_the_same_instant() {
    let keeps = |n| Program::of(Work::Appointment { n, at_ns: 5 * S });
    let mut scenario = product(1_024);
    scenario.programs = vec![keeps(1_024), keeps(4_096)];
    let report = run(&scenario, &[]);
    for run in &report.runs {
        let launch = run.phases.iter().find(|(phase, ..)| *phase == Phase::Kernel).unwrap();
        assert_eq!(launch.1, 5 * S);
    }
}
