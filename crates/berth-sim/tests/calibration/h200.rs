//! The `h200` profile against what was measured on one H200 (132 SMs, driver 580): k processes, each one naive FP32
//! product of n × n, in seconds. Tolerance 10 %; the single figures have their own.

use berth_proto::sim::{CheckpointOp, Reply, Request};
use berth_sim::scenario::{Order, Phase, Scenario};
use berth_sim::{Engine, Outcome, Profile, Sharing};

use super::run;

const TOLERANCE: f64 = 0.10;
const S: f64 = 1e9;
const MIB: u64 = 1 << 20;

struct Row {
    n: u64,
    k: usize,
    one_by_one: f64,
    all_at_once: f64,
    kernels_one_by_one: f64,
    mps: f64,
    kernels: f64,
}

const fn row(n: u64, k: usize, [one_by_one, all_at_once, kernels_one_by_one, mps, kernels]: [f64; 5]) -> Row {
    Row { n, k, one_by_one, all_at_once, kernels_one_by_one, mps, kernels }
}

const TABLE: [Row; 5] = [
    row(13_312, 10, [19.3, 13.3, 11.5, 10.6, 9.56]),
    row(19_456, 5, [23.3, 19.1, 17.0, 16.5, 14.8]),
    row(8_192, 10, [7.6, 4.3, 3.8, 3.5, 2.2]),
    row(8_192, 20, [15.7, 8.7, 7.4, 6.7, 4.4]),
    row(5_120, 20, [9.5, 4.9, 4.6, 3.6, 1.0]),
];

fn h200() -> Profile {
    super::profile("h200")
}

fn seconds(row: &Row, order: Order, sharing: Sharing) -> f64 {
    run("h200", row.k, row.n, order, sharing).total_ns as f64 / S
}

/// Checks a whole column, so that a failure shows every row of it.
fn check_column(column: &str, measured: impl Fn(&Row) -> f64, simulated: impl Fn(&Row) -> f64) {
    let rows = TABLE.iter().map(|row| (row, measured(row), simulated(row)));
    let lines: Vec<(bool, String)> = rows
        .map(|(row, measured, simulated)| {
            let error = simulated / measured - 1.0;
            let line = format!(
                "{:6} × {:2}: measured {measured:6.2} simulated {simulated:6.2} {:+5.1} %",
                row.n,
                row.k,
                error * 100.0
            );
            (error.abs() <= TOLERANCE, line)
        })
        .collect();
    let table: Vec<&str> = lines.iter().map(|(_, line)| line.as_str()).collect();
    println!("{column}\n{}", table.join("\n"));
    assert!(lines.iter().all(|(within, _)| *within), "{column} is off by more than 10 %:\n{}", table.join("\n"));
}

#[test]
fn one_by_one_takes_as_long_as_measured() {
    check_column("one by one", |row| row.one_by_one, |row| seconds(row, Order::OneByOne, Sharing::TimeSliced));
}

#[test]
fn all_at_once_takes_as_long_as_measured() {
    check_column("all at once", |row| row.all_at_once, |row| seconds(row, Order::Together, Sharing::TimeSliced));
}

#[test]
fn kernels_one_by_one_take_as_long_as_measured() {
    let simulated = |row: &Row| seconds(row, Order::KernelsOneByOne, Sharing::TimeSliced);
    check_column("kernels one by one", |row| row.kernels_one_by_one, simulated);
}

#[test]
fn mps_takes_as_long_as_measured() {
    check_column("MPS", |row| row.mps, |row| seconds(row, Order::Together, Sharing::Mps));
}

#[test]
fn kernels_alone_take_as_long_as_measured() {
    let simulated = |row: &Row| {
        let alone = run("h200", 1, row.n, Order::OneByOne, Sharing::TimeSliced);
        alone.mean_ns(Phase::Kernel) / S * row.k as f64
    };
    check_column("k × kernel", |row| row.kernels, simulated);
}

/// The fit is to the machine, not to one draw of the jitter.
#[test]
fn table_holds_whatever_the_seed() {
    for (row, seed) in TABLE.iter().flat_map(|row| (2..=10).map(move |seed| (row, seed))) {
        for (measured, order, sharing) in [
            (row.all_at_once, Order::Together, Sharing::TimeSliced),
            (row.kernels_one_by_one, Order::KernelsOneByOne, Sharing::TimeSliced),
            (row.mps, Order::Together, Sharing::Mps),
        ] {
            let scenario = Scenario { seed, ..Scenario::of(row.k, row.n, order, sharing) };
            let simulated = scenario.run(&h200()).expect("the programs fit").total_ns as f64 / S;
            let error = simulated / measured - 1.0;
            assert!(error.abs() <= TOLERANCE, "seed {seed}, {} × {}, {order:?}, {sharing:?}: {error}", row.n, row.k);
        }
    }
}

/// Measured: mean completion 12.8 s all at once, 7.2 s with kernels one by one.
#[test]
fn taking_turns_nearly_halves_the_mean_completion() {
    let mean = |order| run("h200", 10, 13_312, order, Sharing::TimeSliced).mean_completion_ns();
    let (together, turns) = (mean(Order::Together) / S, mean(Order::KernelsOneByOne) / S);
    assert!((together / 12.8 - 1.0).abs() <= TOLERANCE, "{together}");
    assert!((turns / 7.2 - 1.0).abs() <= TOLERANCE, "{turns}");
}

/// Measured: 8 µs with no process, 13–22 with 1, 29 with 5, 315 with 20. One process is the worst fit.
#[test]
fn process_list_costs_what_was_measured() {
    let us = |n| h200().process_list_ns(n) as f64 / 1e3;
    assert!((us(0) - 8.0).abs() < 0.1);
    assert!((8.0..22.0).contains(&us(1)));
    assert!((us(5) / 29.0 - 1.0).abs() < 0.1);
    assert!((us(20) / 315.0 - 1.0).abs() < 0.02);
}

/// Measured: listed 0.1–0.2 s after the first call, ready 0.1–0.3 s later.
#[test]
fn process_is_listed_before_its_context_is_ready() {
    for seed in 0..50 {
        let mut engine = Engine::new(h200(), 1, seed);
        let Outcome::Later(_) = engine.request(7, Request::ContextCreate { device: 0 }) else { panic!("not at once") };
        let mut listed = None;
        while let Some(next) = engine.next_event() {
            let ready = !engine.advance(next).is_empty();
            if listed.is_none() && !engine.nvml().gpus[0].processes.is_empty() {
                listed = Some(engine.now() as f64 / S);
            }
            if ready {
                let listed = listed.expect("listed before ready");
                assert!((0.1..0.2).contains(&listed), "{listed}");
                assert!((0.099..0.3).contains(&(engine.now() as f64 / S - listed)));
                break;
            }
        }
    }
}

/// Measured: 10 GiB 7.6 s out and 2.4 s in, 60 GiB 37 s out and 13 s in, used memory falls to 4 MiB.
#[test]
fn park_takes_as_long_as_measured() {
    for (gib, out_s, in_s) in [(10, 7.6, 2.4), (60, 37.0, 13.0)] {
        let mut engine = Engine::new(h200(), 1, 1);
        let Reply::Handle(context) = call(&mut engine, 7, Request::ContextCreate { device: 0 }) else { panic!() };
        call(&mut engine, 7, Request::MemAlloc { context, bytes: gib << 30 });
        let mut timed = |op| {
            let before = engine.now();
            assert_eq!(call(&mut engine, 8, Request::Checkpoint { pid: 7, op }), Reply::Done);
            ((engine.now() - before) as f64 / S, engine.nvml().gpus[0].used_bytes)
        };
        timed(CheckpointOp::Lock { timeout_ms: 0 });
        let (saved_s, used) = timed(CheckpointOp::Checkpoint);
        assert_eq!(used, 4 * MIB);
        let (restored_s, used) = timed(CheckpointOp::Restore);
        assert_eq!(used, (gib << 30) + 522 * MIB);
        assert!((saved_s / out_s - 1.0).abs() < 0.06, "{saved_s}");
        assert!((restored_s / in_s - 1.0).abs() < 0.06, "{restored_s}");
    }
}

fn call(engine: &mut Engine, pid: u32, request: Request) -> Reply {
    let ticket = match engine.request(pid, request) {
        Outcome::Now(reply) => return reply,
        Outcome::Later(ticket) => ticket,
    };
    loop {
        let next = engine.next_event().expect("the call is answered");
        if let Some(done) = engine.advance(next).into_iter().find(|done| done.ticket == ticket) {
            return done.reply;
        }
    }
}
