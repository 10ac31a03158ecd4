//! How the SMs are divided among those who run: filled up by weight, or cut in two.

use super::Client;
use super::interference::demand;

/// Fills up: by weight, nobody more than it wants, what one leaves to the others. Sums up to 1 at most.
pub fn shares(wants: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut given = vec![0.0; wants.len()];
    let mut open: Vec<usize> = (0..wants.len()).collect();
    let mut left = 1.0_f64;
    while !open.is_empty() && left > 0.0 {
        let all: f64 = open.iter().map(|one| weights[*one]).sum();
        let part = |one: usize| left * weights[one] / all;
        let (full, rest): (Vec<usize>, Vec<usize>) = open.iter().partition(|one| wants[**one] <= part(**one));
        if full.is_empty() {
            rest.iter().for_each(|one| given[*one] = part(*one));
            break;
        }
        full.iter().for_each(|one| given[*one] = wants[*one]);
        left -= full.iter().map(|one| wants[*one]).sum::<f64>();
        open = rest;
    }
    given
}

/// The most of the SMs it can use, and may.
pub(super) fn most(client: &Client) -> f64 {
    let may = client.slo.constraints.most.map_or(1.0, |most| most.get());
    demand(&client.profile).min(may)
}

/// Places for a cut, in whole steps, that leave both sides some and the first no step more than it can use.
pub(super) fn cuts(sms: u32, step: u32, first: f64) -> impl Iterator<Item = u32> {
    let step = step.max(1);
    let is_of_use = move |split: &u32| f64::from(split - step) < first * f64::from(sms);
    (step..=sms.saturating_sub(step)).step_by(step as usize).take_while(is_of_use)
}

/// The first has one side of a cut, as far as it can use it; the others fill up the other.
pub(super) fn cut_shares(sms: u32, split: u32, clients: &[&Client], weight: &dyn Fn(&Client) -> f64) -> Vec<f64> {
    let first = f64::from(split) / f64::from(sms);
    let rest = 1.0 - first;
    let others = &clients[1..];
    let wants: Vec<f64> = others.iter().map(|client| most(client) / rest).collect();
    let weights: Vec<f64> = others.iter().map(|client| weight(client)).collect();
    let filled = shares(&wants, &weights).into_iter().map(|share| share * rest);
    std::iter::once(first.min(most(clients[0]))).chain(filled).collect()
}

/// SMs of the first side, in whole steps, so that both sides have some; `None` where there are too few.
pub(super) fn split(sms: u32, step: u32, share: f64) -> Option<u32> {
    let step = step.max(1);
    let most = (sms.checked_sub(step)?) / step * step;
    #[expect(clippy::cast_possible_truncation, reason = "a share of no more SMs than there are")]
    let nearest = (share.clamp(0.0, 1.0) * f64::from(sms) / f64::from(step)).round() as u32;
    (most >= step).then(|| nearest.saturating_mul(step).clamp(step, most))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::squad::MEMBERS;
    use super::super::testing::job;
    use super::*;

    fn wants() -> impl Strategy<Value = Vec<(f64, f64)>> {
        prop::collection::vec((0.01..=1.0f64, 0.1..8.0f64), 1..=MEMBERS)
    }

    proptest! {
        #[test]
        fn shares_sum_up_to_no_more_than_all_and_nothing_wanted_is_left(all in wants()) {
            let (wants, weights): (Vec<f64>, Vec<f64>) = all.into_iter().unzip();
            let given = shares(&wants, &weights);
            let sum: f64 = given.iter().sum();
            prop_assert!(sum <= 1.0 + 1e-9);
            prop_assert!(given.iter().zip(&wants).all(|(given, want)| given <= &(want + 1e-9)));
            let wanted: f64 = wants.iter().sum();
            prop_assert!(sum >= wanted.min(1.0) - 1e-9, "work is conserved");
        }

        #[test]
        fn when_one_is_done_nobody_has_less(all in wants(), gone in 0..MEMBERS) {
            let (mut wants, mut weights): (Vec<f64>, Vec<f64>) = all.into_iter().unzip();
            let mut before = shares(&wants, &weights);
            let gone = gone % wants.len();
            for all in [&mut wants, &mut weights, &mut before] {
                all.remove(gone);
            }
            let after = shares(&wants, &weights);
            prop_assert!(before.iter().zip(&after).all(|(before, after)| *after >= before - 1e-9));
        }

        #[test]
        fn a_cut_gives_nobody_more_than_it_wants_and_nothing_twice(demands in prop::collection::vec(0.01..=1.0f64, 2..=MEMBERS)) {
            let clients: Vec<Client> = (1..).zip(&demands).map(|(id, demand)| job(id, 5, *demand, 0.1)).collect();
            let clients: Vec<&Client> = clients.iter().collect();
            for split in cuts(132, 8, most(clients[0])) {
                prop_assert!(split % 8 == 0 && (8..=124).contains(&split), "{split}");
                let given = cut_shares(132, split, &clients, &|_| 1.0);
                prop_assert!(given.iter().sum::<f64>() <= 1.0 + 1e-9, "{given:?}");
                prop_assert!(given.iter().zip(&demands).all(|(given, demand)| *given <= demand + 1e-9), "{given:?}");
            }
        }

        #[test]
        fn a_split_leaves_both_sides_some_and_is_at_most_a_step_off(share in 0.0..=1.0f64, sms in prop_oneof![0..200u32, any::<u32>()], step in 0..20u32) {
            let Some(split) = split(sms, step, share) else {
                prop_assert!(sms < 2 * step.max(1));
                return Ok(());
            };
            prop_assert!(split % step.max(1) == 0 && split >= step.max(1) && sms - split >= step.max(1), "{split}");
            prop_assert!((f64::from(split) - share * f64::from(sms)).abs() <= f64::from(2 * step.max(1)), "{split}");
        }
    }
}
