//! What the arena must not invent: without cost and with perfect evidence it is a lock around each kernel, without decisions nothing.

use std::time::Duration;

use berth_model::Mono;
use berth_model::hold::Means;
use berth_policy::{Action, Activity, Decision, Nobody, Policy, Reason, Stand, Verdict, View};
use berth_sim::Profile;

use super::arena::{Sources, Terms};
use super::cell::{Case, Contender, Sample, Way};
use super::costs::Costs;
use super::workload::{Workload, draw};

/// Gates everybody, and lets the one that stands longest at its launch go when nobody computes.
#[derive(Debug)]
struct Turns;

impl Policy for Turns {
    fn name(&self) -> &'static str {
        "turns"
    }

    fn decide(&mut self, view: &View, _: Mono) -> Verdict {
        let computes = |activity| matches!(activity, Activity::Computing { .. });
        let leaves = |stand: Stand| matches!(stand, Stand::Moving { to: None, .. });
        let is_taken = view.tenants.iter().any(|t| computes(t.activity) || leaves(t.stand));
        let mut line: Vec<_> = view
            .tenants
            .iter()
            .filter_map(|t| match t.activity {
                Activity::AtLaunch { since, .. } => Some((since, &t.key)),
                _ => None,
            })
            .collect();
        line.sort();
        let next = line.first().filter(|_| !is_taken).map(|(_, key)| *key);
        let decide = |key: &berth_model::TenantKey, action| Decision {
            tenant: key.clone(),
            action,
            reason: Reason::NoContention,
        };
        let free = view.tenants.iter().filter(|t| t.stand == Stand::Free && !computes(t.activity));
        let decisions = free.map(|t| decide(&t.key, Action::Hold(Means::Gate)));
        let decisions = decisions.chain(next.map(|key| decide(key, Action::Release)));
        Verdict { decisions: decisions.collect(), ..Verdict::default() }
    }
}

fn free_terms(_: u64) -> Terms {
    Terms { costs: Costs::NONE, ..Terms::full() }
}

const FREE_NOTHING: Way =
    Way::Managed(Contender { name: "nothing", policy: || Box::new(Nobody), terms: free_terms, remembers: false });
const FREE_TURNS: Way =
    Way::Managed(Contender { name: "turns", policy: || Box::new(Turns), terms: free_terms, remembers: false });
const REAL_TURNS: Way =
    Way::Managed(Contender { name: "turns", policy: || Box::new(Turns), terms: |_| Terms::full(), remembers: false });

/// To the nanosecond; only sums over more and smaller pieces may differ by their rounding.
fn assert_same(one: &Sample, other: &Sample) {
    let mut one = one.clone();
    let parts = one.spent.above_kernels().into_iter().zip(other.spent.above_kernels());
    assert!(parts.map(|((_, a), (_, b))| (a - b).abs()).all(|off| off < 1e-9), "{one:?} {other:?}");
    one.spent = other.spent;
    assert_eq!(one, *other);
}

fn rtx3090() -> Profile {
    Profile::builtin("rtx3090").unwrap()
}

fn cases() -> Vec<Case> {
    let of = |workload, tenants| Case { workload, tenants };
    vec![
        of(Workload::Product(8_192), 1),
        of(Workload::Product(8_192), 7),
        of(Workload::Product(13_312), 10),
        of(Workload::Mixed, 6),
        of(Workload::Training, 3),
        of(Workload::Notebook, 3),
    ]
}

#[test]
fn a_policy_that_never_acts_changes_nothing() {
    for (case, seed) in cases().into_iter().flat_map(|case| (1..4).map(move |seed| (case, seed))) {
        let unmanaged = case.run(Way::Unmanaged, &rtx3090(), seed).unwrap();
        assert_same(&case.run(FREE_NOTHING, &rtx3090(), seed).unwrap(), &unmanaged);
    }
}

#[test]
fn turns_at_no_cost_and_with_perfect_evidence_are_a_lock_around_each_kernel() {
    for (case, seed) in cases().into_iter().flat_map(|case| (1..4).map(move |seed| (case, seed))) {
        let lock = case.run(Way::KernelLock, &rtx3090(), seed).unwrap();
        let turns = case.run(FREE_TURNS, &rtx3090(), seed).unwrap();
        assert_eq!(turns.total, lock.total, "{case:?}, seed {seed}: {turns:?} {lock:?}");
        assert_eq!(turns.completion, lock.completion, "{case:?}, seed {seed}");
    }
}

#[test]
fn same_seed_same_run_and_another_seed_another() {
    let case = Case { workload: Workload::Product(8_192), tenants: 5 };
    let run = |seed| case.run(REAL_TURNS, &rtx3090(), seed).unwrap();
    assert_eq!(run(3), run(3));
    assert_ne!(run(3).total, run(4).total);
}

#[test]
fn real_hands_cost_a_little_more_than_perfect_ones() {
    let case = Case { workload: Workload::Product(8_192), tenants: 10 };
    let (real, free) = (case.run(REAL_TURNS, &rtx3090(), 1).unwrap(), case.run(FREE_TURNS, &rtx3090(), 1).unwrap());
    let more = real.total - free.total;
    // Ten handovers of about a millisecond.
    assert!((0.005..0.03).contains(&more), "{more}");
    assert_eq!(real.holds, 10.0);
}

/// A launch before the breakpoint is in place is not seen.
#[test]
fn a_gate_that_comes_too_late_holds_nobody() {
    fn late(_: u64) -> Terms {
        Terms { costs: Costs { arm: Duration::from_secs(600), ..Costs::NONE }, ..Terms::full() }
    }
    let way = Way::Managed(Contender { name: "late", policy: || Box::new(Turns), terms: late, remembers: false });
    let case = Case { workload: Workload::Product(8_192), tenants: 5 };
    let run = case.run(way, &rtx3090(), 1).unwrap();
    assert_eq!((run.holds, run.total), (0.0, case.run(Way::Unmanaged, &rtx3090(), 1).unwrap().total));
}

/// Keeps everybody from making a context for a second.
#[derive(Debug)]
struct Bars;

impl Policy for Bars {
    fn name(&self) -> &'static str {
        "bars"
    }

    fn decide(&mut self, view: &View, now: Mono) -> Verdict {
        let second = Duration::from_secs(1);
        let decisions = view.tenants.iter().filter_map(|tenant| {
            let action = match (tenant.activity, tenant.stand) {
                (Activity::Opening { .. }, Stand::Free) if now < tenant.arrived + second => Action::Bar,
                (Activity::AtContext { since }, Stand::Held { .. }) if now >= since + second => Action::Release,
                _ => return None,
            };
            Some(Decision { tenant: tenant.key.clone(), action, reason: Reason::NoContention })
        });
        let again = view.tenants.iter().map(|tenant| tenant.arrived + second).filter(|at| *at > now);
        let again = again.chain(Some(now + Duration::from_millis(10)));
        Verdict { decisions: decisions.collect(), again_at: again.min(), ..Verdict::default() }
    }
}

#[test]
fn who_is_barred_stands_before_its_context_with_nothing_on_the_gpu() {
    let terms: fn(u64) -> Terms = |_| Terms::full();
    let way = Way::Managed(Contender { name: "bars", policy: || Box::new(Bars), terms, remembers: false });
    let case = Case { workload: Workload::Product(8_192), tenants: 3 };
    let (barred, free) = (case.run(way, &rtx3090(), 1).unwrap(), case.run(Way::Unmanaged, &rtx3090(), 1).unwrap());
    assert_eq!(barred.holds, 3.0);
    assert!((barred.total - free.total - 1.0).abs() < 0.05, "{} {}", barred.total, free.total);
}

/// By turns a tenant is there only when it is listed, and only its averages are known.
#[test]
fn by_the_list_alone_calls_are_unseen() {
    #[derive(Debug)]
    struct Checks;
    impl Policy for Checks {
        fn name(&self) -> &'static str {
            "checks"
        }
        fn decide(&mut self, view: &View, now: Mono) -> Verdict {
            assert!(view.tenants.iter().all(|t| t.activity == Activity::Unseen && t.memory.is_some()), "{view:?}");
            assert_eq!(now.0 % 120_000_000, 70_000_000, "asked between its turns");
            Verdict::default()
        }
    }
    fn terms(_: u64) -> Terms {
        Terms::published(Duration::from_millis(70))
    }
    assert!(matches!(terms(1).sources, Sources::Nvml { .. }));
    let way = Way::Managed(Contender { name: "checks", policy: || Box::new(Checks), terms, remembers: false });
    let case = Case { workload: Workload::Product(8_192), tenants: 3 };
    assert_same(&case.run(way, &rtx3090(), 1).unwrap(), &case.run(Way::Unmanaged, &rtx3090(), 1).unwrap());
}

/// Holds and releases at random by all means, and lets everybody go after a while.
#[derive(Debug)]
struct Chaos;

impl Policy for Chaos {
    fn name(&self) -> &'static str {
        "chaos"
    }

    fn decide(&mut self, view: &View, now: Mono) -> Verdict {
        let is_over = now.0 > 20_000_000_000;
        let actions = [Means::Gate, Means::Freeze, Means::Lock].map(Action::Hold);
        let decisions = view.tenants.iter().zip(0..).filter_map(|(tenant, index)| {
            let action = match draw(now.0, index, 8) {
                _ if is_over => Action::Release,
                dice @ 0..3 => actions[usize::try_from(dice).unwrap()],
                3..5 => Action::Release,
                _ => return None,
            };
            Some(Decision { tenant: tenant.key.clone(), action, reason: Reason::NoContention })
        });
        Verdict { decisions: decisions.collect(), again_at: Some(Mono(now.0 + 30_000_000)), ..Verdict::default() }
    }
}

#[test]
fn whatever_is_decided_nobody_is_lost_and_no_work_is() {
    for terms in [free_terms, (|_| Terms::full()) as fn(u64) -> Terms, |_| Terms::without_probes()] {
        let way = Way::Managed(Contender { name: "chaos", policy: || Box::new(Chaos), terms, remembers: false });
        for (case, seed) in cases().into_iter().flat_map(|case| (1..6).map(move |seed| (case, seed))) {
            let chaos = case.run(way, &rtx3090(), seed).unwrap();
            let free = case.run(Way::Unmanaged, &rtx3090(), seed).unwrap();
            assert!((chaos.spent.computing - free.spent.computing).abs() < 1e-3, "{case:?}, seed {seed}: {chaos:?}");
            assert!(chaos.total >= free.spent.computing, "{case:?}, seed {seed}");
        }
    }
}
