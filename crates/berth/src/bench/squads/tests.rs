//! That it can be repeated, and that goals can be missed.

use super::report::{Report, judge};
use super::{Plan, run};
use crate::bench::report::Verdict;

fn report() -> Report {
    run(&Plan { loads_pct: vec![60], seeds: vec![1, 2], seconds: 0.2 }, &|| false, &|_| {})
}

#[test]
fn the_same_seeds_give_the_same_json_and_a_text_with_every_goal() {
    let report = report();
    assert_eq!(serde_json::to_string(&report).unwrap(), serde_json::to_string(&self::report()).unwrap());
    let text = report.to_text();
    assert!(report.goals.len() == 3 && report.goals.iter().all(|goal| text.contains(&goal.name)), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn squads_are_faster_than_turns_and_than_fixed_parts_at_every_load() {
    let plan = Plan { loads_pct: vec![30, 60, 95], seeds: vec![11, 12], seconds: 0.3 };
    for cell in run(&plan, &|| false, &|_| {}).cells {
        let mean = |way: &str| cell.ways[way].mean_ms;
        for squads in ["strict", "unrestricted", "semi-spatial"] {
            assert!(mean(squads) < mean("temporal").min(mean("static")), "{cell:?}");
        }
    }
}

#[test]
fn a_squad_that_is_slower_than_turns_misses_its_goal() {
    let mut cell = report().cells.remove(0);
    if let Some(strict) = cell.ways.get_mut("strict") {
        strict.mean_ms = 1e6;
    }
    let missed: Vec<String> =
        judge(&cell).into_iter().filter(|goal| goal.verdict == Verdict::NotMet).map(|goal| goal.name).collect();
    assert_eq!(missed, ["strict squads over turns and parts, 60 %"]);
}

#[test]
fn who_has_enough_gets_the_loads_that_were_measured() {
    let plan = Plan { loads_pct: vec![30, 60], seeds: vec![1], seconds: 0.1 };
    assert_eq!(run(&plan, &|| true, &|_| {}).cells.len(), 1);
}
