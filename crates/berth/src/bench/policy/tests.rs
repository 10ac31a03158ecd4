//! That it can be repeated, that goals can be missed, and laws that hold in virtual time.

use berth_model::settings::KernelPolicyName;
use proptest::prelude::*;

use super::report::Report;
use super::switching::Switched;
use super::world::{self, Way};
use super::{Plan, goals, mixture, run, switching};
use crate::bench::report::Verdict;

fn report() -> Report {
    run(&Plan { seeds: vec![1], jobs: 5, sets: 1, seconds: 0.2 }, &|| false, &|_| {})
}

#[test]
fn the_same_seeds_give_the_same_json_and_a_text_with_every_goal() {
    let report = report();
    assert_eq!(serde_json::to_string(&report).unwrap(), serde_json::to_string(&self::report()).unwrap());
    let text = report.to_text();
    assert!(report.goals.len() >= 9 && report.goals.iter().all(|goal| text.contains(&goal.name)), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn every_goal_can_be_missed() {
    let mut report = report();
    for cell in &mut report.completion {
        cell.mean_ms.insert("jct".to_owned(), vec![1e6]);
    }
    for case in &mut report.promises {
        (case.feasible, case.missed) = (Some("due".to_owned()), 1);
    }
    if let Some(hybrid) = report.mixture.get_mut("hybrid") {
        hybrid.goodput = 0.0;
    }
    let lost = Switched { switches: 1_000, lost: 1, longest_wait_ms: 1e6, ..report.switching.clone().unwrap() };
    report.switching = Some(lost);
    let verdicts: Vec<Verdict> = goals::judge(&report).iter().map(|goal| goal.verdict).collect();
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::NotMet), "{verdicts:?}");
}

#[test]
fn switching_at_every_plan_loses_nothing_and_keeps_the_bound_on_waits() {
    let switched = switching::measure(0.2, 1, 3);
    assert!(switched.switches > 100 && switched.lost == 0, "{switched:?}");
    assert!(switched.longest_wait_ms <= switched.bound_ms, "{switched:?}");
}

#[test]
fn who_has_enough_gets_what_was_measured() {
    let report = run(&Plan { seeds: vec![1], jobs: 3, sets: 1, seconds: 0.1 }, &|| true, &|_| {});
    assert!(report.completion.len() == 1 && report.promises.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn under_every_policy_all_work_is_done_and_nobody_waits_beyond_the_bound(seed in 0..10_000u64) {
        for name in [KernelPolicyName::Jct, KernelPolicyName::Slo, KernelPolicyName::Hybrid] {
            let tenants = mixture::tenants(0.05, seed);
            let report = world::run(&Default::default(), &tenants, &Way::policy(name), None);
            for (tenant, account) in tenants.iter().zip(&report.programs) {
                prop_assert_eq!(account.finished.len(), tenant.program.requests.len());
                prop_assert!(account.longest_wait_ns as f64 / 1e6 <= switching::bound_ms(&tenants), "{name:?} {account:?}");
            }
        }
    }
}
