//! What the engine makes of cases that can be reckoned by hand, and what is never lost.

use proptest::prelude::*;

use super::*;

/// Everybody, always, each on its SMs if it has some.
struct Everybody {
    confined: Option<Confined>,
}

impl Steward for Everybody {
    fn look(&mut self, sight: &Sight<'_>) -> Option<Order> {
        let members = (0..sight.programs.len()).map(|program| Part { program, confined: self.confined }).collect();
        Some(Order { members, ..Order::default() })
    }
}

/// Turns of four looks each. Where `yields`, all may run and yield to the first.
struct Turns {
    looks: usize,
    yields: bool,
}

impl Steward for Turns {
    fn look(&mut self, sight: &Sight<'_>) -> Option<Order> {
        self.looks += 1;
        let count = sight.programs.len();
        let yields = (1..count).filter(|_| self.yields).map(|who| (who, 0)).collect();
        let all = (0..count).filter(|program| self.yields || *program == self.looks / 4 % count);
        let members = all.map(|program| Part { program, confined: None }).collect();
        Some(Order { members, yields, ..Order::default() })
    }
}

struct Nobody;

impl Steward for Nobody {
    fn look(&mut self, _: &Sight<'_>) -> Option<Order> {
        Some(Order::default())
    }
}

fn job(at_ns: u64, rounds: u32, alone_ns: u64, demand: f64, bandwidth: f64) -> Program {
    let kernels = vec![Kernel { alone_ns, demand, bandwidth }];
    Program { requests: vec![Request { at_ns, rounds, kernels }] }
}

fn machine(sharing: Sharing) -> Machine {
    Machine::new(Profile::builtin("h200").unwrap(), sharing)
}

fn everybody(programs: &[Program], sharing: Sharing) -> Report {
    run(&machine(sharing), programs, &mut Everybody { confined: None }, None)
}

fn end_ms(report: &Report, program: usize) -> f64 {
    report.programs[program].finished.last().unwrap().done_ns as f64 / 1e6
}

fn assert_near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 0.03, "{found} and not {expected}");
}

#[test]
fn alone_a_program_takes_its_time() {
    for demand in [0.3, 1.0] {
        assert_near(end_ms(&everybody(&[job(0, 100, 100_000, demand, 0.3)], Sharing::Mps), 0), 10.0);
    }
}

#[test]
fn small_ones_run_side_by_side_and_large_ones_and_ones_that_move_data_do_not() {
    let both = |demand, bandwidth, sharing| {
        end_ms(&everybody(&[(); 2].map(|()| job(0, 100, 100_000, demand, bandwidth)), sharing), 1)
    };
    assert_near(both(0.5, 0.1, Sharing::Mps), 10.0);
    assert_near(both(1.0, 0.1, Sharing::Mps), 20.0);
    assert_near(both(0.5, 1.0, Sharing::Mps), 19.5);
    assert!(both(0.5, 0.1, Sharing::TimeSliced) > 20.0, "slices, and what switching costs");
}

#[test]
fn a_short_request_waits_for_the_slice_of_another() {
    let programs = [job(3_100_000, 1, 100_000, 1.0, 0.0), job(0, 200, 100_000, 1.0, 0.0)];
    let waits = |sharing| end_ms(&everybody(&programs, sharing), 0) - 3.1;
    assert!(waits(Sharing::TimeSliced) > 0.9 && waits(Sharing::Mps) < 0.5, "{}", waits(Sharing::TimeSliced));
}

#[test]
fn one_that_is_confined_is_as_fast_as_its_sms() {
    let confined = |count| Some(Confined { first: 0, count, until_ns: u64::MAX });
    let machine = Machine { split_ns: 0, ..machine(Sharing::Mps) };
    let end = |count, demand| {
        let mut steward = Everybody { confined: confined(count) };
        end_ms(&run(&machine, &[job(0, 100, 103_000, demand, 0.0)], &mut steward, None), 0)
    };
    // 3 µs of each are its launch. Before the first order counts it has all.
    assert!((end(66, 1.0) / 20.3 - 1.0).abs() < 0.05, "{}", end(66, 1.0));
    assert_near(end(66, 0.5), 10.3);
}

#[test]
fn being_confined_to_other_sms_than_before_costs_once() {
    /// Confined and not in turn.
    struct OnAndOff(u32);
    impl Steward for OnAndOff {
        fn look(&mut self, _: &Sight<'_>) -> Option<Order> {
            self.0 += 1;
            let confined = (self.0 % 4 < 2).then_some(Confined { first: 0, count: 66, until_ns: u64::MAX });
            Some(Order { members: vec![Part { program: 0, confined }], ..Order::default() })
        }
    }
    let end = |split_ns| {
        let machine = Machine { split_ns, ..machine(Sharing::Mps) };
        end_ms(&run(&machine, &[job(0, 100, 100_000, 0.4, 0.0)], &mut OnAndOff(0), None), 0)
    };
    assert!((end(3_000_000) - end(0) - 3.0).abs() < 0.1, "{} and {}", end(3_000_000), end(0));
}

#[test]
fn a_kernel_that_runs_is_not_stopped() {
    let programs = [job(1_000_000, 1, 100_000, 1.0, 0.0), job(0, 2, 10_000_000, 1.0, 0.0)];
    let report = run(&machine(Sharing::Mps), &programs, &mut Turns { looks: 0, yields: true }, None);
    assert!(end_ms(&report, 0) > 1.09 && end_ms(&report, 1) > 20.0);
    assert!(end_ms(&report, 1) < 20.5, "{}", end_ms(&report, 1));
}

#[test]
fn one_that_yields_stops_within_its_grain_and_goes_on_after_the_other() {
    let programs = [job(2_005_000, 20, 50_000, 1.0, 0.0), job(0, 500, 20_000, 1.0, 0.0)];
    let report = run(&machine(Sharing::Mps), &programs, &mut Turns { looks: 0, yields: true }, None);
    assert!(end_ms(&report, 0) <= 2.005 + 1.0 + 0.12, "{}", end_ms(&report, 0));
    assert!(report.programs[1].longest_wait_ns >= 800_000, "a piece of it ran on beside the other at first");
}

#[test]
fn a_launch_that_is_lost_is_missed_by_the_gpu_and_by_nobody_else() {
    let machine = Machine { loses: Some(7), ..machine(Sharing::Mps) };
    let report = run(&machine, &[job(0, 20, 50_000, 1.0, 0.0)], &mut Everybody { confined: None }, None);
    let account = &report.programs[0];
    assert_eq!((account.launched, account.on_gpu, account.finished.len()), (20, 19, 1));
}

#[test]
fn where_nobody_may_ever_run_it_is_said() {
    let report = run(&machine(Sharing::Mps), &[job(0, 20, 50_000, 1.0, 0.0)], &mut Nobody, None);
    assert!(report.is_stuck && report.programs[0].launched < 20);
    assert!(!everybody(&[job(0, 20, 50_000, 1.0, 0.0)], Sharing::Mps).is_stuck);
}

#[test]
fn requests_that_queue_are_begun_one_after_the_other() {
    let one = job(0, 10, 100_000, 1.0, 0.0).requests.remove(0);
    let queue = Program { requests: vec![one.clone(), Request { at_ns: 300_000, ..one }] };
    let report = everybody(&[queue], Sharing::Mps);
    let second = report.programs[0].finished[1];
    assert_eq!(second.came_ns, 300_000);
    assert_eq!(second.began_ns, report.programs[0].finished[0].done_ns + machine(Sharing::Mps).gap_ns);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_kernel_runs_once_and_nothing_takes_less_than_alone(
        jobs in prop::collection::vec((0..5_000_000u64, 1..30u32, 10_000..400_000u64, 0.05..=1.0f64, 0.0..=1.0f64), 1..6),
        mps: bool, yields: bool,
    ) {
        let programs: Vec<Program> =
            jobs.iter().map(|(at, rounds, alone, demand, bandwidth)| job(*at, *rounds, *alone, *demand, *bandwidth)).collect();
        let machine = machine(if mps { Sharing::Mps } else { Sharing::TimeSliced });
        let report = run(&machine, &programs, &mut Turns { looks: 0, yields }, None);
        prop_assert!(!report.is_stuck);
        for (account, program) in report.programs.iter().zip(&programs) {
            let request = &program.requests[0];
            prop_assert_eq!((account.launched, account.on_gpu), (request.kernel_count(), request.kernel_count()));
            let took = account.finished[0].done_ns - request.at_ns;
            prop_assert!(took + request.kernel_count() >= request.alone_ns(), "{took} {}", request.alone_ns());
            prop_assert_eq!(account.served_ns, request.alone_ns());
        }
    }
}
