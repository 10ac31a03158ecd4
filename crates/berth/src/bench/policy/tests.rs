//! What has to be shown, on a few small seeds; that it can be repeated, that goals can be missed, and laws that hold in virtual time.

use berth_model::settings::KernelPolicyName;
use berth_sim::Sharing;
use berth_sim::scenario::kernels::Machine;
use proptest::prelude::*;

use super::completion::{JCT, Mix, SAME, UNBOUNDED};
use super::fairness::Fairness;
use super::feasible::{Ask, Feasible, Late, overload, search};
use super::report::Report;
use super::switching::Switched;
use super::world::{self, Way, h200, whole};
use super::{Plan, completion, goals, mixture, online, promises, run, switching};
use crate::bench::report::Verdict;

const SEEDS: [u64; 2] = [11, 12];

fn report() -> Report {
    run(&Plan { seeds: vec![11], jobs: 1, sets: 1, seconds: 0.1 }, &|| false, &|_| {})
}

#[test]
fn jct_beats_fifo_everywhere_shortest_first_where_sharing_pays_and_loses_nothing_elsewhere() {
    for mix in Mix::ALL {
        // Of the first of each tenant's jobs nobody knows how long it takes: with few, whoever comes first is as good a guess.
        let cell = completion::measure(mix, 5, &[1, 2]);
        let worst = |way: &str, over: &str| cell.ratio(way, over).unwrap().0;
        assert!(worst(JCT, "fifo") < 1.0, "{cell:?}");
        let most = if mix == Mix::DoesNotPay { 1.0 } else { 0.95 };
        for (way, over) in [(JCT, "sjf"), (JCT, SAME), (UNBOUNDED, "sjf")] {
            assert!(worst(way, over) <= most, "{way} over {over}: {cell:?}");
        }
    }
}

#[test]
fn slo_keeps_the_goals_that_can_be_kept() {
    let cases: Vec<promises::Case> = (1..=8).map(|seed| promises::measure(0.25, seed)).collect();
    let feasible: Vec<&promises::Case> = cases.iter().filter(|case| case.feasible == Feasible::Yes).collect();
    assert!(cases.iter().all(|case| case.runnable != Feasible::Yes || case.feasible != Feasible::No), "{cases:?}");
    assert!(feasible.len() >= 2 && feasible.iter().all(|case| case.missed == 0), "{cases:?}");
    assert!(cases.iter().any(|case| case.temporal > 0), "slices alone do not: {cases:?}");
}

#[test]
fn hybrid_gets_more_done_that_counts_than_either() {
    let columns = mixture::measure(0.4, &SEEDS);
    let goodput = |way: &str| columns[way].goodput;
    assert!(goodput("hybrid") >= goodput("jct").max(goodput("slo")), "{columns:?}");
}

#[test]
fn fairness_tells_an_unfair_way_from_a_fair_one() {
    let tenants: Vec<_> = mixture::tenants(0.2, 11).into_iter().skip(6).collect();
    let of = |way: Way| Fairness::of(&tenants, &world::run(&h200(Sharing::Mps), &tenants, &way, Some(whole(0.2e9))));
    let (fair, unfair) = (of(Way::Temporal), of(Way::LastFirst));
    assert!(fair.jain > 0.95 && fair.worst_finish < 1.3, "{fair:?}");
    assert!(unfair.jain < 0.6 && unfair.worst_finish > 2.0, "{unfair:?}");
}

#[test]
fn switching_at_every_plan_loses_nothing_and_keeps_the_bound_on_waits() {
    let switched = switching::measure(0.2, 11);
    assert!(switched.switches > 100 && switched.lost == 0 && !switched.is_stuck, "{switched:?}");
    assert!(switched.longest_wait_ms <= switched.bound_ms, "{switched:?}");
}

#[test]
fn a_launch_that_is_lost_while_policies_change_is_noticed() {
    let machine = Machine { loses: Some(100), ..h200(Sharing::Mps) };
    assert_eq!(switching::measure_on(&machine, 0.05, 11).lost, 1);
}

#[test]
fn the_same_seeds_give_the_same_json_and_a_text_with_every_goal() {
    let report = report();
    assert_eq!(serde_json::to_string(&report).unwrap(), serde_json::to_string(&self::report()).unwrap());
    let text = report.to_text();
    assert!(report.goals.len() >= 19 && report.goals.iter().all(|goal| text.contains(&goal.name)), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn every_goal_can_be_missed() {
    let mut report = report();
    for cell in &mut report.completion {
        for way in [JCT, UNBOUNDED] {
            cell.mean_ms.insert(way.to_owned(), vec![1e6]);
        }
    }
    for case in &mut report.promises {
        (case.feasible, case.runnable, case.missed) = (Feasible::Yes, Feasible::Yes, 1);
    }
    report.mixture.get_mut("hybrid").unwrap().goodput = 0.0;
    report.changing.get_mut("auto").unwrap().mean = 0.0;
    let before = report.switching.clone().unwrap();
    report.switching = Some(Switched { switches: 1_000, lost: 1, is_stuck: true, longest_wait_ms: 1e6, ..before });
    let verdicts: Vec<Verdict> = goals::judge(&report).iter().map(|goal| goal.verdict).collect();
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::NotMet), "{verdicts:?}");
    let text = report.to_text();
    let set = text.lines().skip_while(|line| !line.starts_with("MISSED")).nth(1);
    assert!(set.is_some_and(|set| set.starts_with("11 ")), "a set that can be kept and is not has a line: {text}");
}

#[test]
fn who_has_enough_gets_what_was_measured() {
    let report = run(&Plan { seeds: vec![1], jobs: 1, sets: 1, seconds: 0.05 }, &|| true, &|_| {});
    assert!(report.completion.len() == 1 && report.promises.is_empty());
}

fn ask(tenant: usize, comes: u32, takes: u32, within: u32) -> Ask {
    let ms = |ms: u32| f64::from(ms) * 1e6;
    Ask { tenant, comes_ns: ms(comes), takes_ns: ms(takes), due_ns: ms(comes + within) }
}

fn due_ns(asks: &[Ask]) -> Vec<f64> {
    asks.iter().map(|ask| ask.due_ns).collect()
}

#[test]
fn the_search_leaves_out_what_has_to_be_and_no_more() {
    let asks = [ask(0, 0, 4, 5), ask(1, 1, 3, 5), ask(1, 10, 3, 5)];
    let search = |asks: &[Ask], may_miss: [usize; 2]| search(asks, may_miss.to_vec(), Late::LeftOut);
    assert_eq!(search(&asks, [0, 0]), Feasible::No);
    assert_eq!(search(&asks, [1, 0]), Feasible::Yes);
    assert_eq!(search(&asks, [0, 1]), Feasible::Yes);
    assert_eq!(search(&asks[1..], [0, 0]), Feasible::Yes);
    let due = overload(&asks, &due_ns(&asks)).unwrap();
    assert_eq!((due.due, due.excess_ns), (vec![1, 0], 1e6), "7 ms that come and are due within 6");
}

#[test]
fn one_that_is_late_and_run_is_in_the_way_of_the_next() {
    let asks = [ask(0, 0, 4, 5), ask(1, 0, 3, 4), ask(1, 1, 3, 9)];
    assert_eq!(search(&asks, vec![0, 1], Late::LeftOut), Feasible::Yes);
    assert_eq!(search(&asks, vec![0, 1], Late::Run), Feasible::Yes, "10 ms by 10");
    let tighter = [asks[0], asks[1], ask(1, 1, 3, 8)];
    assert_eq!(search(&tighter, vec![0, 1], Late::LeftOut), Feasible::Yes);
    assert_eq!(search(&tighter, vec![0, 1], Late::Run), Feasible::No, "10 ms by 9");
}

#[test]
fn a_rule_gives_up_the_longest_in_the_way_of_a_tenant_that_may_miss_it() {
    let asks = [ask(0, 0, 4, 5), ask(1, 1, 3, 5), ask(1, 10, 3, 5)];
    let late = |may_miss: [usize; 2], fate| online::late(&asks, may_miss.to_vec(), fate);
    assert_eq!(late([1, 0], Late::LeftOut), [1, 0]);
    assert_eq!(late([0, 1], Late::LeftOut), [0, 1]);
    assert_eq!(late([0, 0], Late::LeftOut), [0, 1], "nobody may miss one: what is due first runs");
    assert_eq!(late([1, 1], Late::Run), [0, 1], "of two that have as much left to do the one that is due later");
}

#[test]
fn what_is_given_up_and_run_is_in_the_way_of_the_next() {
    let asks = [ask(0, 0, 4, 5), ask(1, 0, 3, 4), ask(1, 1, 3, 8)];
    assert_eq!(online::late(&asks, vec![0, 1], Late::LeftOut), [0, 1]);
    assert_eq!(online::late(&asks, vec![0, 1], Late::Run).iter().sum::<usize>(), 2);
}

/// Whether any set of requests to leave out is small enough for every tenant and lets the rest be in time, by trying all of them.
fn by_trying(asks: &[Ask], may_miss: &[usize]) -> bool {
    (0..1u32 << asks.len()).any(|set| {
        let is_out = |one: usize| set >> one & 1 == 1;
        let due: Vec<f64> =
            (0..).zip(asks).map(|(one, ask)| if is_out(one) { f64::INFINITY } else { ask.due_ns }).collect();
        let of = |tenant| (0..).zip(asks).filter(|(one, ask)| ask.tenant == tenant && is_out(*one)).count();
        (0..may_miss.len()).all(|tenant| of(tenant) <= may_miss[tenant]) && overload(asks, &due).is_none()
    })
}

/// Whether two tenants that run all their requests in turn can be late so seldom, by trying who has each millisecond.
fn by_playing(asks: &[Ask], may_miss: &[usize]) -> bool {
    let ms = |ns: f64| whole(ns / 1e6);
    let of = |tenant: usize| asks.iter().filter(move |ask| ask.tenant == tenant).collect::<Vec<_>>();
    let queues = [of(0), of(1)];
    // The time, and of each tenant requests that are done, milliseconds of the next, and how many were late.
    let mut open = vec![(0, [(0, 0, 0); 2])];
    let mut seen = std::collections::HashSet::new();
    while let Some((now, all)) = open.pop() {
        if !seen.insert((now, all)) {
            continue;
        }
        let next = |tenant: usize| queues[tenant].get(all[tenant].0).copied();
        if next(0).is_none() && next(1).is_none() {
            return true;
        }
        let comes: Vec<usize> =
            (0..2).filter(|tenant| next(*tenant).is_some_and(|ask| ms(ask.comes_ns) <= now)).collect();
        if comes.is_empty() {
            open.push((now + 1, all));
        }
        for tenant in comes {
            let (Some(ask), mut all) = (next(tenant), all) else { continue };
            let (done, had, late) = all[tenant];
            let is_late = usize::from(now + 1 > ms(ask.due_ns));
            all[tenant] =
                if had + 1 == ms(ask.takes_ns) { (done + 1, 0, late + is_late) } else { (done, had + 1, late) };
            if all[tenant].2 <= may_miss[tenant] {
                open.push((now + 1, all));
            }
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_search_is_right_where_all_can_be_tried(
        sizes in prop::collection::vec((1..6u32, 1..12u32, 0..3usize), 2),
        comes in prop::collection::vec((0..2usize, 0..20u32), 1..9),
    ) {
        let mut asks: Vec<Ask> = comes.iter().map(|(who, at)| ask(*who, *at, sizes[*who].0, sizes[*who].1)).collect();
        asks.sort_by(|one, other| one.comes_ns.total_cmp(&other.comes_ns));
        let may_miss: Vec<usize> = sizes.iter().map(|(.., misses)| *misses).collect();
        let feasible = |can_be| if can_be { Feasible::Yes } else { Feasible::No };
        prop_assert_eq!(search(&asks, may_miss.clone(), Late::LeftOut), feasible(by_trying(&asks, &may_miss)));
        prop_assert_eq!(search(&asks, may_miss.clone(), Late::Run), feasible(by_playing(&asks, &may_miss)));
        // Nobody who does not know what comes keeps what cannot be kept, and what can be kept without giving anything up is.
        for late in [Late::LeftOut, Late::Run] {
            let missed = online::late(&asks, may_miss.clone(), late);
            let is_kept = missed.iter().zip(&may_miss).all(|(late, may_be)| late <= may_be);
            prop_assert!(!is_kept || search(&asks, may_miss.clone(), late) == Feasible::Yes, "{missed:?}");
            prop_assert!(is_kept || overload(&asks, &due_ns(&asks)).is_some(), "{missed:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn under_every_policy_all_work_is_done_and_nobody_waits_beyond_the_bound(seed in 0..10_000u64) {
        let machine = h200(Sharing::Mps);
        for name in [KernelPolicyName::Jct, KernelPolicyName::Slo, KernelPolicyName::Hybrid] {
            let tenants = mixture::tenants(0.04, seed);
            let report = world::run(&machine, &tenants, &Way::policy(name), None);
            prop_assert_eq!(switching::lost(&tenants, &report), 0);
            for (tenant, account) in tenants.iter().zip(&report.programs) {
                prop_assert_eq!(account.finished.len(), tenant.program.requests.len());
                let bound = switching::bound_ms(&machine, tenants.len());
                prop_assert!(account.longest_wait_ns as f64 / 1e6 <= bound, "{name:?} {account:?}");
            }
        }
    }
}
