//! How the SMs are divided among those who run: filled up by weight, or cut in two.

use super::Client;
use super::interference::demand;
use super::squad::MEMBERS;

/// Fills up: by weight, nobody more than it wants, what one leaves to the others. Sums up to 1 at most.
pub fn shares(wants: &[f64], weights: &[f64]) -> Vec<f64> {
    let mut given = vec![0.0; wants.len()];
    fill(wants, weights, &mut given);
    given
}

/// The same into `given`, without memory of its own: thousands of divisions are tried for a plan.
pub(super) fn fill(wants: &[f64], weights: &[f64], given: &mut [f64]) {
    /// Of one whose share is not known yet.
    const OPEN: f64 = -1.0;
    given.fill(OPEN);
    let mut left = 1.0_f64;
    while left > 0.0 {
        let each = || wants.iter().zip(weights);
        let all: f64 = each().zip(&*given).filter(|(_, given)| **given == OPEN).map(|((_, weight), _)| weight).sum();
        let mut full = 0.0;
        let mut is_full = false;
        for ((want, weight), given) in each().zip(&mut *given) {
            if *given == OPEN && *want <= left * weight / all {
                (*given, full, is_full) = (*want, full + want, true);
            }
        }
        if !is_full {
            let rest = each().zip(given).filter(|(_, given)| **given == OPEN);
            rest.for_each(|((_, weight), given)| *given = left * weight / all);
            return;
        }
        left -= full;
    }
    given.iter_mut().filter(|given| **given == OPEN).for_each(|given| *given = 0.0);
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

/// The first has one side of a cut, that part of the SMs, as far as it can use it; the others fill up the other.
pub(super) fn cut_shares(first: f64, wants: &[f64], weights: &[f64], given: &mut [f64]) {
    let rest = 1.0 - first;
    let mut others = [0.0; MEMBERS];
    let others = &mut others[1..wants.len()];
    others.iter_mut().zip(&wants[1..]).for_each(|(own, want)| *own = want / rest);
    fill(others, &weights[1..], &mut given[1..]);
    given[1..].iter_mut().for_each(|share| *share *= rest);
    given[0] = first.min(wants[0]);
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
            for split in cuts(132, 8, demands[0]) {
                prop_assert!(split % 8 == 0 && (8..=124).contains(&split), "{split}");
                let mut given = vec![0.0; demands.len()];
                cut_shares(f64::from(split) / 132.0, &demands, &vec![1.0; demands.len()], &mut given);
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
