//! What is found is what trying everything finds.

use std::time::Duration;

use berth_model::Mono;
use proptest::prelude::*;

use super::*;
use crate::kernels::interference::Trust;
use crate::kernels::laws::{clients, places};
use crate::kernels::shares::shares;
use crate::kernels::squad::{Late, together};
use crate::kernels::{CoRun, Learned};

/// A set divided like this, by the formulas as they are written down.
fn at<'a>(scene: &Scene<'a>, wish: &Wish<'a, '_>, set: &[&'a Client], given: &[f64]) -> Choice<'a> {
    let phi = Phi::of(&KernelSettings::default());
    let runner = |(client, share): (&&'a Client, &f64)| {
        let others = set.iter().zip(given).filter(|(other, _)| other.id != client.id);
        let beside = others.map(|(other, share)| (*other, *share));
        let speed = scene.learned.interference.speed(client, *share, beside, wish.trust, phi);
        Runner { client, share: *share, speed }
    };
    let runners: Vec<Runner<'a>> = set.iter().zip(given).map(runner).collect();
    let value = runners.iter().map(|runner| (wish.worth)(runner.client).at(runner.speed)).sum();
    Choice { runners, value }
}

/// The best division of a set, with every cut tried.
fn best_of<'a>(scene: &Scene<'a>, wish: &Wish<'a, '_>, set: &[&'a Client]) -> Choice<'a> {
    let settings = KernelSettings::default();
    let wants: Vec<f64> = set.iter().map(|client| most(client)).collect();
    let weights: Vec<f64> = set.iter().map(|client| (wish.weight)(client)).collect();
    let divides = scene.gpu.divides;
    let all = wants.iter().sum::<f64>().max(1.0);
    let by_itself = || wants.iter().map(|want| want / all).collect();
    let filled = if set.len() == 1 || divides { shares(&wants, &weights) } else { by_itself() };
    let mut best = at(scene, wish, set, &filled);
    let enough = best.value * (1.0 + margin(&settings));
    let splits = cuts(scene.gpu.sms, settings.sm_step, wants[0]).filter(|_| divides && set.len() > 1);
    for split in splits {
        let first = f64::from(split) / f64::from(scene.gpu.sms);
        let others: Vec<f64> = wants[1..].iter().map(|want| want / (1.0 - first)).collect();
        let others = shares(&others, &weights[1..]).into_iter().map(|share| share * (1.0 - first));
        let given: Vec<f64> = [first.min(wants[0])].into_iter().chain(others).collect();
        let cut = at(scene, wish, set, &given);
        if cut.value > best.value.max(enough) && (wish.allows)(&cut.runners) {
            best = cut;
        }
    }
    best
}

/// Every set of which each two may run together is tried, smaller ones before those that begin with them.
fn all_tried<'a>(scene: &Scene<'a>, wish: &Wish<'a, '_>, set: &[&'a Client], best: &mut Choice<'a>) {
    let settings = KernelSettings::default();
    let enough = 1.0 + margin(&settings);
    let fits = |one: &Client, other: &Client| {
        may_meet(one, other) && together(scene, &settings, one, other, wish.trust) > enough
    };
    let considered = wish.ranked.iter().copied().take(CONSIDERED);
    let after = considered.skip_while(|client| set.last().is_some_and(|last| last.id != client.id));
    for next in after.skip(usize::from(!set.is_empty())) {
        if set.len() < MEMBERS && (set.is_empty() || scene.gpu.concurrent) && set.iter().all(|one| fits(one, next)) {
            let with: Vec<&Client> = set.iter().copied().chain([next]).collect();
            let found = best_of(scene, wish, &with);
            let more = if with.len() > best.runners.len() { enough } else { 1.0 };
            let is_better = found.value > best.value * more && (with.len() == 1 || (wish.allows)(&found.runners));
            if best.runners.is_empty() || is_better {
                *best = found;
            }
            all_tried(scene, wish, &with, best);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// What is passed over would not have been taken.
    #[test]
    fn what_is_found_is_what_trying_everything_finds(
        clients in clients(),
        gpu in places(),
        counts in prop::collection::vec((0.1..8.0f64, 0.1..4.0f64, any::<bool>()), 12),
        seen in prop::collection::vec((1..12u64, 1..12u64, 0.4..1.1f64), 0..40),
        slowest in 0.0..0.9f64,
    ) {
        let mut learned = Learned::default();
        for (who, other, speed) in seen {
            let (who, other) = (crate::kernels::ClientId(who), crate::kernels::ClientId(other));
            let seen = CoRun { who, share: 0.5, speed, beside: vec![(other, 0.5)] };
            learned.interference.saw(&seen, Phi::of(&KernelSettings::default()));
        }
        let scene = Scene { now: Mono(0), gpu, clients: &clients, learned: &learned };
        let of = |client: &Client| counts[usize::try_from(client.id.0).unwrap_or_default() % counts.len()];
        let late = |client: &Client| of(client).2.then_some(Late {
            left: Duration::from_millis(8),
            due_in: Duration::from_millis(10),
            worth: 0.25,
        });
        let wish = Wish {
            ranked: clients.iter().filter(|client| client.busy).collect(),
            first: None,
            weight: &|client| of(client).1,
            worth: &|client| Worth { counts: of(client).0, late: late(client) },
            allows: &|runners| runners.iter().all(|runner| runner.speed >= slowest),
            trust: Trust::Careful,
        };
        let mut expected = Choice::default();
        all_tried(&scene, &wish, &[], &mut expected);
        prop_assert_eq!(choose(&scene, &KernelSettings::default(), &wish), expected);
    }
}
