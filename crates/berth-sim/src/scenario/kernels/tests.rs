//! What the model says of cases that can be reckoned by hand, and what it never loses.

use proptest::prelude::*;

use super::*;

/// Everybody, always, without a limit.
struct Everybody;

impl Steward for Everybody {
    fn order(&mut self, sight: &Sight<'_>) -> Order {
        let members = (0..sight.programs.len()).map(|program| Part { program, confined: None }).collect();
        Order { members, yields: Vec::new(), until_ns: sight.now_ns + 2_000_000 }
    }
}

/// One after the other by turns, of whom each may be told to yield to the first.
struct Turns {
    turn: usize,
    yields: bool,
}

impl Steward for Turns {
    fn order(&mut self, sight: &Sight<'_>) -> Order {
        self.turn = (self.turn + 1) % sight.programs.len();
        let yields = (1..sight.programs.len()).filter(|_| self.yields).map(|who| (who, 0)).collect();
        let members = [self.turn, 0].map(|program| Part { program, confined: None });
        Order {
            members: members[..if self.yields { 2 } else { 1 }].to_vec(),
            yields,
            until_ns: sight.now_ns + 2_000_000,
        }
    }
}

fn job(at_ns: u64, rounds: u32, alone_ns: u64, demand: f64, bandwidth: f64) -> Program {
    let kernels = vec![Kernel { alone_ns, demand, bandwidth }];
    Program { requests: vec![Request { at_ns, rounds, kernels }] }
}

fn free() -> Machine {
    Machine { look_ns: 0, resume_ns: 0, plan_ns: 0, cache: 0.0, ..Machine::default() }
}

fn end(report: &Report, program: usize) -> u64 {
    report.programs[program].finished.last().unwrap().done_ns
}

#[test]
fn alone_a_program_takes_its_time_and_its_looks() {
    let machine = Machine::default();
    let report = run(&machine, &[job(0, 100, 100_000, 1.0, 0.0)], &mut Everybody, None);
    let looks = 99 * machine.look_ns;
    assert_eq!(end(&report, 0), 10_000_000 + looks, "the first kernel is within the grain");
}

#[test]
fn two_small_ones_run_side_by_side_and_two_large_ones_take_twice_as_long() {
    let both = |demand, bandwidth| vec![job(0, 100, 100_000, demand, bandwidth); 2];
    let ends =
        |programs: &[Program], machine: &Machine| end(&run(machine, programs, &mut Everybody, None), 1) / 100_000;
    assert_eq!(ends(&both(0.5, 0.1), &free()), 100);
    assert_eq!(ends(&both(1.0, 0.1), &free()), 200);
    assert_eq!(ends(&both(0.5, 1.0), &free()), 200, "bandwidth for one");
    assert_eq!(ends(&both(0.5, 0.1), &Machine { concurrent: false, ..free() }), 200, "slices");
}

#[test]
fn a_kernel_that_runs_is_not_stopped() {
    let programs = [job(1_000_000, 1, 100_000, 1.0, 0.0), job(0, 2, 10_000_000, 1.0, 0.0)];
    let machine = Machine { concurrent: false, ..free() };
    let report = run(&machine, &programs, &mut Turns { turn: 0, yields: true }, None);
    assert_eq!(end(&report, 0), 1_200_000, "beside the kernel that was there, at half its speed");
    let lingered = 1_200_000 + machine.linger_ns;
    assert!(end(&report, 1) >= 20_000_000 && end(&report, 1) <= 20_100_000 + lingered, "{}", end(&report, 1));
}

#[test]
fn one_that_yields_stops_within_its_grain_and_goes_on_after_the_other() {
    let programs = [job(1_005_000, 20, 50_000, 1.0, 0.0), job(0, 1_000, 20_000, 1.0, 0.0)];
    let report = run(&free(), &programs, &mut Turns { turn: 0, yields: true }, None);
    assert!(end(&report, 0) <= 1_005_000 + 1_000_000 + 110_000, "{}", end(&report, 0));
    assert!(report.programs[1].longest_wait_ns >= 900_000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_kernel_runs_once_and_no_time_is_made_or_lost(
        jobs in prop::collection::vec((0..5_000_000u64, 1..30u32, 1_000..400_000u64, 0.05..=1.0f64, 0.0..=1.0f64), 1..6),
        concurrent: bool, yields: bool,
    ) {
        let programs: Vec<Program> =
            jobs.iter().map(|(at, rounds, alone, demand, bandwidth)| job(*at, *rounds, *alone, *demand, *bandwidth)).collect();
        let machine = Machine { concurrent, ..Machine::default() };
        let report = run(&machine, &programs, &mut Turns { turn: 0, yields }, None);
        for (account, program) in report.programs.iter().zip(&programs) {
            let request = &program.requests[0];
            prop_assert_eq!((account.begun, account.ended), (request.kernel_count(), request.kernel_count()));
            prop_assert!(account.finished[0].done_ns >= request.at_ns + request.alone_ns());
            prop_assert_eq!(account.served_ns, request.alone_ns());
        }
    }
}
