//! The `rtx3090` profile against Table 1 of the contention-management paper: 13,312² naive FP32 products in 1 to 10
//! containers at once, seconds per container. Kernel and total within 3 %, copies within 15 %.

use berth_sim::Sharing;
use berth_sim::published::PUBLISHED_PHASES;
use berth_sim::scenario::{Order, Phase, Report, Scenario};

use super::{profile, run};

fn together(containers: usize) -> Report {
    run("rtx3090", containers, 13_312, Order::Together, Sharing::TimeSliced)
}

fn check(what: &str, tolerance: f64, measured: impl Fn(&[f64; 3]) -> f64, phases: &[Phase]) {
    for (row, containers) in PUBLISHED_PHASES.iter().zip(1..) {
        let report = together(containers);
        let simulated: f64 = phases.iter().map(|phase| report.mean_ns(*phase) / 1e9).sum();
        let measured = measured(row);
        let error = simulated / measured - 1.0;
        println!("{what} × {containers}: measured {measured:.3} simulated {simulated:.3} {:+.1} %", error * 100.0);
        assert!(error.abs() <= tolerance, "{what} × {containers}: measured {measured}, simulated {simulated}");
    }
}

#[test]
fn kernel_time_is_that_of_the_table() {
    check("kernel", 0.03, |row| row[1], &[Phase::Kernel]);
}

#[test]
fn total_time_is_that_of_the_table() {
    check("total", 0.03, |row| row.iter().sum(), &[Phase::Input, Phase::Kernel, Phase::Output]);
}

#[test]
fn input_time_is_that_of_the_table() {
    check("input", 0.15, |row| row[0], &[Phase::Input]);
}

#[test]
fn output_time_is_that_of_the_table() {
    check("output", 0.15, |row| row[2], &[Phase::Output]);
}

/// The paper: under 1 % apart.
#[test]
fn all_tenants_slow_down_alike() {
    for containers in [2, 10] {
        let report = together(containers);
        let mean = report.mean_ns(Phase::Kernel);
        for run in &report.runs {
            let apart = (run.ns(Phase::Kernel) as f64 / mean - 1.0).abs();
            assert!(apart < 0.01, "{containers} containers: {apart}");
        }
    }
}

/// The paper: ten use about 23 of 24 GB. Twelve do not fit.
#[test]
fn ten_containers_fit_and_twelve_do_not() {
    assert_eq!(together(10).runs.len(), 10);
    let refused = Scenario::of(12, 13_312, Order::Together, Sharing::TimeSliced).run(&profile("rtx3090")).unwrap_err();
    assert_eq!(refused.phase, Phase::Allocate);
}
