//! That it can be repeated, and that goals can be missed.

use std::time::Duration;

use super::goals;
use super::report::Report;
use super::{Plan, run};
use crate::bench::report::Verdict;
use crate::cluster_sim::{Setup, Way};

fn plan() -> Plan {
    let setup = Setup { nodes: 5, lasts: Duration::from_secs(90), ..Setup::default() };
    Plan { setup, ways: vec![Way::Random, Way::Fit], loads_pct: vec![80], seeds: vec![1, 2] }
}

fn report() -> Report {
    run(&plan(), &|| false, &|_| {})
}

#[test]
fn the_same_seeds_give_the_same_json_and_a_text_with_every_goal() {
    let report = report();
    let again = self::report();
    assert_eq!(serde_json::to_string(&report).unwrap(), serde_json::to_string(&again).unwrap());
    let text = report.to_text();
    assert!(text.contains("fit misses the fewest deadlines, load 80 %"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn a_goal_is_missed_where_another_misses_fewer_and_not_shown_where_that_may_be_chance() {
    let mut cell = report().cells.remove(0);
    let verdict = |cell| goals::judge(&[cell])[0].verdict;
    let random = cell.ways[&Way::Random].clone();
    let mut with = |missed: [u64; 2]| {
        let mut column = random.clone();
        for (outcome, missed) in column.outcomes.iter_mut().zip(missed) {
            (outcome.tasks.missed, outcome.tasks.deadlines) = (missed, 1_000);
            (outcome.bursts.missed, outcome.bursts.deadlines) = (0, 0);
        }
        cell.ways.insert(Way::Fit, column.clone());
        cell.ways.entry(Way::Random).and_modify(|column| {
            for outcome in &mut column.outcomes {
                (outcome.tasks.missed, outcome.tasks.deadlines) = (500, 1_000);
                (outcome.bursts.missed, outcome.bursts.deadlines) = (0, 0);
            }
        });
        verdict(cell.clone())
    };
    assert_eq!(with([100, 101]), Verdict::Met);
    assert_eq!(with([100, 495]), Verdict::NotShown);
    assert_eq!(with([600, 601]), Verdict::NotMet);
}

#[test]
fn who_has_enough_gets_the_loads_that_were_measured() {
    assert!(run(&plan(), &|| true, &|_| {}).cells.is_empty());
}
