//! What the measurement shows on the simulated RTX 3090, on few seeds: the published findings, and that ours never loses.

use berth_sim::Profile;

use super::cell::{
    Case, Cell, FIFO, FIFO_BLIND, FIFO_FREEZE, FIFO_FREEZE_KNOWN, FIFO_KNOWN, FIFO_LOCK, FIFO_LOCK_KNOWN, PAPER, Way,
};
use super::figure::Figure;
use super::goals::{Goal, Gpu, judge};
use super::workload::Workload;
use super::{Plan, run};
use crate::bench::report::Verdict;

fn measure(cases: &[Case], ways: &[Way]) -> Vec<Cell> {
    measure_on("rtx3090", cases, ways)
}

fn measure_on(profile: &str, cases: &[Case], ways: &[Way]) -> Vec<Cell> {
    let profile = Profile::builtin(profile).unwrap();
    cases.iter().map(|case| case.measure(ways, &profile, &[1, 2]).unwrap()).collect()
}

fn products(n: u64, tenants: &[usize]) -> Vec<Case> {
    tenants.iter().map(|tenants| Case { workload: Workload::Product(n), tenants: *tenants }).collect()
}

fn ratio(cell: &Cell, way: &str) -> f64 {
    cell.ways[way].total_over_unmanaged.mean
}

fn goal<'a>(goals: &'a [Goal], name: &str) -> &'a Goal {
    goals.iter().find(|goal| goal.name.contains(name)).unwrap_or_else(|| panic!("{name}: {goals:?}"))
}

#[test]
fn table_1_is_as_published() {
    let goals = judge(&measure(&Figure::Table1.cases(), &[Way::Unmanaged]), Gpu::Rtx3090);
    assert_eq!(goal(&goals, "Table 1, kernel").verdict, Verdict::Met, "{goals:?}");
    assert_eq!(goal(&goals, "Table 1, copies").verdict, Verdict::Met, "{goals:?}");
}

/// Published: 1.23 s at two containers, 4.06 s at ten, all of them slower alike.
#[test]
fn together_is_slower_than_in_turn_by_what_was_published() {
    let cells = measure(&products(13_312, &[2, 10]), &[Way::Unmanaged]);
    let losses: Vec<f64> = cells.iter().map(|cell| cell.ways["unmanaged"].on_gpu.mean - cell.alone).collect();
    assert!((losses[0] - 1.23).abs() < 0.25 && (losses[1] - 4.06).abs() < 0.25, "{losses:?}");
    let each = &cells[1].ways["unmanaged"].each;
    let mean = each.iter().sum::<f64>() / each.len() as f64;
    assert!(each.iter().all(|time| (time / mean - 1.0).abs() < 0.01), "{each:?}");
}

/// Published: the management beats doing nothing for large tasks.
#[test]
fn the_papers_way_beats_unmanaged_for_large_tasks() {
    let cases = [products(19_456, &[2, 3, 4, 5]), products(13_312, &[2, 5, 10])].concat();
    for cell in measure(&cases, &[Way::Managed(PAPER)]) {
        assert!(ratio(&cell, "paper") < 1.0, "{:?}: {}", cell.case, ratio(&cell, "paper"));
    }
}

/// Published: little gain, and sometimes a loss.
#[test]
fn the_papers_way_gains_little_or_loses_for_small_tasks() {
    for cell in measure(&products(8_192, &[2, 10, 20]), &[Way::Managed(PAPER)]) {
        assert!(ratio(&cell, "paper") > 0.97, "{:?}: {}", cell.case, ratio(&cell, "paper"));
    }
}

#[test]
fn fifo_beats_unmanaged_for_products_of_every_size() {
    let cases = [products(19_456, &[2, 5]), products(13_312, &[2, 10]), products(8_192, &[2, 10, 20])].concat();
    for cell in measure(&[cases, products(5_120, &[20])].concat(), &[Way::Managed(FIFO)]) {
        assert!(ratio(&cell, "fifo") < 0.99, "{:?}: {}", cell.case, ratio(&cell, "fifo"));
        assert!(cell.ways["fifo"].completion_over_unmanaged.mean < 0.8, "{:?}", cell.case);
    }
}

#[test]
fn fifo_does_not_slow_down_one_alone_training_mixed_sizes_or_a_notebooks_neighbours() {
    let one = [19_456, 13_312, 8_192].map(|n| products(n, &[1])).concat();
    for cell in measure(&[one, Figure::Patterns.cases()].concat(), &[Way::Managed(FIFO)]) {
        assert!(ratio(&cell, "fifo") < 1.005, "{:?}: {}", cell.case, ratio(&cell, "fifo"));
    }
}

/// Lock and freeze come in the middle of something, so they are used where that pays or not at all.
#[test]
fn without_a_gate_fifo_is_nowhere_slower_than_unmanaged_and_faster_where_large_tasks_are_known() {
    let ways = [FIFO_LOCK, FIFO_FREEZE, FIFO_BLIND, FIFO_LOCK_KNOWN, FIFO_FREEZE_KNOWN].map(Way::Managed);
    for profile in ["rtx3090", "h200"] {
        let cases = [products(13_312, &[3]), products(8_192, &[10]), products(5_120, &[5])].concat();
        for (cell, way) in measure_on(profile, &cases, &ways).iter().flat_map(|cell| ways.map(|way| (cell, way))) {
            let ratio = ratio(cell, way.name());
            assert!(ratio < 1.005, "{} on {profile}, {:?}: {ratio}", way.name(), cell.case);
        }
    }
    for cell in measure(&products(13_312, &[3]), &ways) {
        assert!(ratio(&cell, "fifo-lock-known") < 0.96 && ratio(&cell, "fifo-freeze-known") < 0.96, "{cell:?}");
    }
}

#[test]
fn no_light_tenant_is_held_whether_or_not_it_was_seen_before() {
    let five = Case { workload: Workload::Light, tenants: 5 };
    for profile in ["rtx3090", "h200"] {
        for cell in measure_on(profile, &[five], &[Way::Managed(FIFO), Way::Managed(FIFO_KNOWN)]) {
            for way in ["fifo", "fifo-known"] {
                assert_eq!(cell.ways[way].holds, 0.0, "{way} on {profile}");
                assert!(ratio(&cell, way) <= 1.01, "{way} on {profile}: {}", ratio(&cell, way));
            }
        }
    }
}

/// The total exactly, the mean end and bursts but for a few holds; a tenant by no more than its context made in order.
#[test]
fn of_mixed_sizes_and_bursts_nobody_loses() {
    let ways = [FIFO, FIFO_KNOWN].map(Way::Managed);
    let cells = measure(&Figure::Mixes.cases(), &[&[Way::Watched], &ways[..]].concat());
    let judged: Vec<Goal> = judge(&cells, Gpu::Other);
    let about_mixes = judged.iter().filter(|goal| goal.name.contains("mixes") || goal.name.contains("nowhere slower"));
    assert_eq!(about_mixes.clone().count(), 8, "{judged:?}");
    for goal in about_mixes {
        assert_eq!(goal.verdict, Verdict::Met, "{goal:?}");
    }
}

#[test]
fn nobody_who_runs_one_kernel_at_a_time_is_done_before_the_bound() {
    let cases = [products(13_312, &[1, 10]), products(5_120, &[20]), Figure::Patterns.cases(), Figure::Mixes.cases()];
    for profile in ["rtx3090", "h200"] {
        let ways = [Way::Unmanaged, Way::Watched, Way::KernelLock, Way::Managed(FIFO)];
        for (cell, way) in
            measure_on(profile, &cases.concat(), &ways).iter().flat_map(|cell| ways.map(|way| (cell, way)))
        {
            let total = cell.ways[way.name()].total.mean;
            assert!(total >= cell.bound - 1e-6, "{} on {profile}, {:?}: {total} {}", way.name(), cell.case, cell.bound);
        }
    }
}

#[test]
fn a_cell_that_loses_and_a_light_tenant_that_was_held_are_not_met() {
    let case = Case { workload: Workload::Light, tenants: 5 };
    let mut cells = measure(&[case], &[Way::Unmanaged, Way::Managed(FIFO)]);
    let column = cells[0].ways.get_mut("fifo").unwrap();
    column.total_over_unmanaged.mean = 1.02;
    column.holds = 1.0;
    let goals = judge(&cells, Gpu::Other);
    for name in ["nowhere slower", "holds none", "five light tenants, total"] {
        assert_eq!(goal(&goals, name).verdict, Verdict::NotMet, "{goals:?}");
    }
    assert!(goals.iter().all(|goal| !goal.name.contains("Table 1")), "another GPU has no published table");
}

#[test]
fn the_same_plan_gives_the_same_report_and_cells_are_measured_once() {
    let plan = Plan {
        figures: vec![Figure::Fig4, Figure::Sizes],
        profile_name: "h200".to_owned(),
        profile: Profile::builtin("h200").unwrap(),
        contenders: vec![FIFO],
        seeds: 1,
    };
    let report = run(&plan, &|_| {}).unwrap();
    assert_eq!(report.cells.len(), 5, "ten 13,312² products are in both figures");
    let json = |report| serde_json::to_string(report).unwrap();
    assert_eq!(json(&report), json(&run(&plan, &|_| {}).unwrap()));
    assert!(report.to_text().contains("13,312² × 10"), "{}", report.to_text());
}
