//! What the measurement must not invent, and that it can be repeated.

use berth_model::Percent;
use berth_sim::Profile;

use super::cell::Cell;
use super::load::Load;
use super::report::Report;
use super::trial::{Way, beside_the_rest, for_the_optimum};
use super::{Plan, bound, run, ways};
use crate::bench::contention::goals::Goal;
use crate::bench::report::Verdict;

fn rtx3090() -> Profile {
    Profile::builtin("rtx3090").unwrap()
}

fn plan() -> Plan {
    Plan { profile: rtx3090(), loads_pct: vec![95], jobs_each: 2, seeds: vec![7, 8], cases: 5 }
}

#[test]
fn the_same_seeds_give_the_same_json_and_edf_misses_no_more_than_the_best_order_and_fifo() {
    let report = run(&plan(), &|_| {}).unwrap();
    let json = |report: &Report| serde_json::to_string(report).unwrap();
    assert_eq!(json(&report), json(&run(&plan(), &|_| {}).unwrap()));
    // How long those without a deadline stay is too little to judge by a run as short as this.
    let of_misses: Vec<&Goal> = report.goals.iter().filter(|goal| goal.name.contains("misses")).collect();
    assert_eq!(of_misses.len(), 2, "{:?}", report.goals);
    assert!(of_misses.iter().all(|goal| goal.verdict == Verdict::Met), "{of_misses:?}");
}

#[test]
fn nobody_misses_fewer_than_must_be_missed() {
    let plan = plan();
    for seed in plan.seeds {
        let load = Load::new(1.1, 3, seed, &plan.profile);
        let least = bound::at_least(&for_the_optimum(&load));
        for way in ways() {
            let done = way.run(&load, &plan.profile, seed).unwrap();
            let missed =
                done.iter().filter_map(|done| done.judged.as_ref()?.float_seconds).filter(|float| *float < 0.0);
            assert!(missed.count() >= least, "{} with seed {seed}", way.name());
        }
    }
}

#[test]
fn what_just_fits_does_not_beside_those_that_have_a_share_of_the_time() {
    let just = [bound::Job { ready: 0, due: 100, takes: 40 }, bound::Job { ready: 0, due: 100, takes: 60 }];
    let late = |rest| bound::at_least(&beside_the_rest(&just, Percent::checked(rest).unwrap()));
    assert_eq!([0, 10, 70].map(late), [0, 1, 2]);
}

#[test]
fn with_hardly_any_load_hardly_any_deadline_is_missed() {
    let cell = Cell::measure(5, 2, &[Way::Unmanaged], &rtx3090(), &[1]).unwrap();
    assert!(cell.ways["unmanaged"].miss_rate.mean < 0.1, "{cell:?}");
}
