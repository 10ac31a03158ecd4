//! How much tenants that run at the same time slow each other down: predicted, and learned.
//!
//! The effective speed of client *m* with the share *s_m* of the SMs beside the set *C*, as a part of its speed alone:
//!
//! > T_eff(m) = T_solo(m, s_m) × Π_{k ∈ C} (1 − ρ_mk × φ(s_m, s_k))
//!
//! **T_solo(m, s) = min(1, s / d_m)**: a client that can use the share d_m of the SMs loses nothing above it, and below it in proportion.
//! Kernels are many equal blocks, so this is what fewer SMs do to them.
//!
//! **φ(s_m, s_k) = 4 s_m s_k**: what is left to quarrel about is memory bandwidth and cache. Who has no SMs neither disturbs nor is
//! disturbed, so φ is 0 there; with half of the GPU each it is 1, which fixes the meaning of ρ: *the part of its speed that m loses beside k
//! when each has one half*. Shares sum up to 1 at most, so φ never exceeds 1, and a speed never falls below 0. The product is calibrated: with
//! clients that want more bandwidth together than there is, over all divisions of the SMs, it is nearer to what each loses than the
//! geometric mean, the lesser of both, or the other's share alone (`the_product_follows_bandwidth_best` computes it: 3 % of the speed off on
//! average, where no φ at all is 9 % off). The setting `kernels.phi` is φ at half each: below 1, ρ grows by as much as it is learned, up to 1,
//! so it is the most that company is taken to cost, and what a guess counts before anything was seen.
//!
//! **ρ** is learned for each ordered pair from what was seen: a client that got on at the part *v* of what its share alone allows, beside *k*,
//! says ρ = (1 − v) / φ. Beside several, what was lost is shared out among them by what was expected of each. The estimate is a mean in which
//! old samples fade ([`FADES`]): work changes its phase. It holds a variance too. Before anything was seen a prior stands in, worth
//! [`PRIOR_SAMPLES`] samples: what the bandwidth both use alone would cost at half each, as far as memory is what
//! the client waits for; where that is not known, what caches cost and [`UNKNOWN`] by how much of the SMs both can use.
//!
//! Decisions use [`Interference::careful`], the estimate and one standard error more: company that may not pay is not taken. Who never runs beside another
//! is never seen there; so where nothing was promised [`Trust::Bold`] takes [`BOLD`] standard errors less: company that may pay is tried, and what it costs
//! is known then.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::settings::KernelSettings;

use super::{Client, ClientId, Profile};

/// What a sample still counts after the next one: about the last 20 are told apart from nothing.
const FADES: f64 = 0.95;
/// Samples the prior is worth.
const PRIOR_SAMPLES: f64 = 2.0;
/// Deviation of a prior: one in ten of a client's speed, either way.
const PRIOR_DEVIATION: f64 = 0.1;
/// What bandwidth costs two that fill the GPU, where nobody knows how much of it they use.
const UNKNOWN: f64 = 0.16;
/// What caches cost those whose bandwidth is enough for both.
const CACHE: f64 = 0.04;
/// Below this 4 s t the other had nearly nothing, and a loss was not its doing.
const LEAST: f64 = 0.2;

/// Standard errors by which what is not well known may be better than it seems.
const BOLD: f64 = 2.0;

/// How what is not well known is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// To cost.
    Careful,
    /// To cost only where one of the two was promised something.
    Bold,
}

/// Coefficients of the pairs that were seen.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Interference {
    pairs: BTreeMap<(ClientId, ClientId), Samples>,
}

/// One client's progress beside others, over a time in which nothing changed.
#[derive(Debug, Clone, PartialEq)]
pub struct CoRun {
    pub who: ClientId,
    /// Share of the SMs it had, 0 to 1.
    pub share: f64,
    /// Its speed over its speed alone *with that share*.
    pub speed: f64,
    /// Who else ran, with their shares.
    pub beside: Vec<(ClientId, f64)>,
}

/// What is known of one pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rho {
    pub mean: f64,
    /// Standard error of the mean.
    pub error: f64,
    /// 0: a guess, 1: many samples.
    pub confidence: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Samples {
    count: f64,
    mean: f64,
    /// Sum of squared deviations, faded as the samples are.
    squares: f64,
}

/// φ: interference grows with what both have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phi {
    /// Of two that have half of the SMs each.
    at_half: f64,
}

/// Speed with a share of the SMs, over the speed with all of them.
pub fn solo(profile: &Profile, share: f64) -> f64 {
    solo_of(demand(profile), share)
}

/// The same of one that can use so much of the SMs.
pub(super) fn solo_of(demand: f64, share: f64) -> f64 {
    (share / demand).clamp(0.0, 1.0)
}

/// Share of the SMs a client can use: all of them if nobody knows.
pub fn demand(profile: &Profile) -> f64 {
    profile.demand.unwrap_or(1.0).clamp(0.01, 1.0)
}

impl Phi {
    pub fn of(settings: &KernelSettings) -> Self {
        Self { at_half: f64::from(settings.phi.get()) / 100.0 }
    }

    pub fn at(self, own: f64, other: f64) -> f64 {
        self.at_half * both(own, other)
    }
}

/// 4 s t: 1 where both have half, and no more than that whatever is given out.
fn both(own: f64, other: f64) -> f64 {
    (4.0 * own.max(0.0) * other.max(0.0)).min(1.0)
}

impl Interference {
    /// T_eff of `who` with `share` beside others, over its speed alone.
    pub fn speed<'a>(
        &self,
        who: &Client,
        share: f64,
        beside: impl Iterator<Item = (&'a Client, f64)>,
        trust: Trust,
        phi: Phi,
    ) -> f64 {
        let lost = |(other, theirs)| 1.0 - self.cost(who, other, trust) * phi.at(share, theirs);
        solo(&who.profile, share) * beside.map(lost).product::<f64>()
    }

    /// ρ as a decision of that kind uses it.
    pub fn cost(&self, who: &Client, other: &Client, trust: Trust) -> f64 {
        match trust {
            Trust::Bold if !who.slo.promises() && !other.slo.promises() => self.bold(who, other),
            Trust::Careful | Trust::Bold => self.careful(who, other),
        }
    }

    pub fn rho(&self, who: &Client, other: &Client) -> Rho {
        let prior = prior(&who.profile, &other.profile);
        let seen = self.pairs.get(&(who.id, other.id)).copied().unwrap_or_default();
        let count = seen.count + PRIOR_SAMPLES;
        let mean = (seen.mean * seen.count + prior * PRIOR_SAMPLES) / count;
        let variance = (seen.squares + PRIOR_SAMPLES * PRIOR_DEVIATION.powi(2)) / count;
        Rho { mean: mean.clamp(0.0, 1.0), error: (variance / count).sqrt(), confidence: seen.count / count }
    }

    /// Whose company was seen to slow this one, and how much: without what is only guessed of those that were never seen together.
    pub fn seen(&self, who: ClientId) -> impl Iterator<Item = (ClientId, Rho)> {
        let own = self.pairs.iter().filter(move |((own, _), samples)| *own == who && samples.count > 0.0);
        own.map(|((_, other), seen)| {
            let error = (seen.squares / seen.count / seen.count).sqrt();
            (
                *other,
                Rho { mean: seen.mean.clamp(0.0, 1.0), error, confidence: seen.count / (seen.count + PRIOR_SAMPLES) },
            )
        })
    }

    /// ρ as decisions use it.
    pub fn careful(&self, who: &Client, other: &Client) -> f64 {
        let rho = self.rho(who, other);
        (rho.mean + rho.error).min(1.0)
    }

    /// ρ where it is worth a try to know better.
    fn bold(&self, who: &Client, other: &Client) -> f64 {
        let rho = self.rho(who, other);
        (rho.mean - rho.error * BOLD).max(0.0)
    }

    /// Takes in what was seen. Samples that say nothing (nobody beside, no number) are passed over.
    pub fn saw(&mut self, seen: &CoRun, phi: Phi) {
        let weights: Vec<(ClientId, f64)> = seen
            .beside
            .iter()
            .filter(|(other, share)| *other != seen.who && both(seen.share, *share) >= LEAST)
            .map(|(other, share)| (*other, phi.at(seen.share, *share)))
            .collect();
        let all: f64 = weights.iter().map(|(other, phi)| phi * self.expected(seen.who, *other)).sum();
        if !seen.speed.is_finite() || all <= 0.0 {
            return;
        }
        // As logarithms, products are sums, and what was lost can be shared out.
        let lost = -seen.speed.clamp(0.01, 1.0).ln();
        for (other, phi) in weights {
            let part = lost * phi * self.expected(seen.who, other) / all;
            let rho = ((1.0 - (-part).exp()) / phi).clamp(0.0, 1.0);
            self.pairs.entry((seen.who, other)).or_default().add(rho);
        }
    }

    /// A piece of work of `who` that takes `alone` with all SMs to itself took `took` while these ran, itself among them, with those shares.
    pub fn saw_work(&mut self, who: &Client, alone: Duration, took: Duration, running: &[(ClientId, f64)], phi: Phi) {
        let Some((_, share)) = running.iter().find(|(id, _)| *id == who.id).copied() else { return };
        let speed = alone.as_secs_f64() / took.as_secs_f64() / solo(&who.profile, share);
        let beside = running.iter().copied().filter(|(id, _)| *id != who.id).collect();
        self.saw(&CoRun { who: who.id, share, speed, beside }, phi);
    }

    /// What is expected of a pair before this sample; never nothing, so that everybody can be found guilty.
    fn expected(&self, who: ClientId, other: ClientId) -> f64 {
        self.pairs.get(&(who, other)).map_or(UNKNOWN, |seen| seen.mean).max(0.02)
    }

    /// The client is gone.
    pub fn forget(&mut self, who: ClientId) {
        self.pairs.retain(|(one, other), _| *one != who && *other != who);
    }
}

impl Samples {
    fn add(&mut self, sample: f64) {
        self.count = self.count * FADES + 1.0;
        let off = sample - self.mean;
        self.mean += off / self.count;
        self.squares = self.squares * FADES + off * (sample - self.mean);
    }
}

/// ρ by bandwidth: with half of the SMs each, both use so much of it, and if that is more than there is each gets its part. Where that is not
/// known, by demand: who fills more SMs mostly moves more data.
fn prior(who: &Profile, other: &Profile) -> f64 {
    let (Some(own), Some(theirs)) = (who.bandwidth, other.bandwidth) else {
        return CACHE + UNKNOWN * demand(who) * demand(other);
    };
    let wanted = own * solo(who, 0.5) + theirs * solo(other, 0.5);
    let lost = if wanted > 1.0 { 1.0 - 1.0 / wanted } else { 0.0 };
    (own * lost + CACHE).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::client;
    use super::*;

    const PHI: Phi = Phi { at_half: 1.0 };

    fn saw(interference: &mut Interference, speed: f64) {
        interference.saw(&CoRun { who: ClientId(1), share: 0.5, speed, beside: vec![(ClientId(2), 0.5)] }, PHI);
    }

    /// Mean distance between what bandwidth costs a client and what a form of φ says, over kinds of clients and divisions of the SMs.
    fn distance(form: fn(f64, f64) -> f64) -> f64 {
        let kinds = [0.3, 0.5, 0.7, 1.0].into_iter().flat_map(|demand| [0.4, 0.6, 0.8, 1.0].map(|used| (demand, used)));
        let pairs = kinds.clone().flat_map(|one| kinds.clone().map(move |other| (one, other)));
        let tenths = |part: u8| f64::from(part) / 10.0;
        let shares = (1..10).flat_map(|own| (1..=10 - own).map(move |other| (tenths(own), tenths(other))));
        let each: Vec<f64> = pairs
            .flat_map(|(one, other)| shares.clone().map(move |(own, theirs)| (one, other, own, theirs)))
            .map(|(one, other, own, theirs)| {
                let used = |(demand, used): (f64, f64), share: f64| used * (share / demand).min(1.0);
                let lost = |own: f64, theirs: f64| 1.0 - 1.0 / (used(one, own) + used(other, theirs)).max(1.0);
                (lost(0.5, 0.5) * form(own, theirs) - lost(own, theirs)).abs()
            })
            .collect();
        each.iter().sum::<f64>() / each.len() as f64
    }

    #[test]
    fn the_product_follows_bandwidth_best() {
        let product = distance(|own, other| PHI.at(own, other));
        let others = [
            distance(|own, other| 2.0 * (own * other).sqrt()),
            distance(|own, other| 2.0 * own.min(other)),
            distance(|_, other| (2.0 * other).min(1.0)),
            distance(|_, _| 1.0),
        ];
        assert!(product < 0.035 && others.iter().all(|other| product < *other), "{product} {others:?}");
    }

    #[test]
    fn what_is_seen_replaces_the_guess_and_confidence_grows() {
        let (one, two) = (client(1), client(2));
        let mut interference = Interference::default();
        let guess = interference.rho(&one, &two);
        assert_eq!((guess.mean, guess.confidence), (CACHE + UNKNOWN, 0.0));
        for _ in 0..40 {
            saw(&mut interference, 0.6);
        }
        let known = interference.rho(&one, &two);
        assert!((known.mean - 0.4).abs() < 0.03 && known.confidence > 0.85 && known.error < guess.error, "{known:?}");
        assert_eq!(interference.rho(&two, &one), guess, "the other way round nothing was seen");
    }

    #[test]
    fn a_change_of_phase_is_followed() {
        let mut interference = Interference::default();
        (0..200).for_each(|_| saw(&mut interference, 0.5));
        (0..60).for_each(|_| saw(&mut interference, 0.95));
        let rho = interference.rho(&client(1), &client(2)).mean;
        assert!(rho < 0.12, "{rho}");
    }

    #[test]
    fn of_several_the_one_that_is_known_to_disturb_is_blamed() {
        let mut interference = Interference::default();
        (0..40).for_each(|_| saw(&mut interference, 0.5));
        let beside = vec![(ClientId(2), 0.33), (ClientId(3), 0.33)];
        (0..10).for_each(|_| {
            interference.saw(&CoRun { who: ClientId(1), share: 0.33, speed: 0.78, beside: beside.clone() }, PHI)
        });
        let rho = |other| interference.rho(&client(1), &client(other)).mean;
        assert!(rho(2) > 0.4 && rho(3) < 0.25, "{} {}", rho(2), rho(3));
    }

    #[test]
    fn one_that_is_gone_leaves_nothing() {
        let mut interference = Interference::default();
        saw(&mut interference, 0.5);
        interference.forget(ClientId(2));
        assert_eq!(interference, Interference::default());
    }

    #[test]
    fn a_piece_of_work_says_what_company_cost_beyond_the_smaller_share() {
        let mut interference = Interference::default();
        let mut one = client(1);
        one.profile.demand = Some(0.8);
        let running = [(ClientId(1), 0.4), (ClientId(2), 0.6)];
        let (alone, took) = (Duration::from_micros(100), Duration::from_micros(250));
        (0..60).for_each(|_| interference.saw_work(&one, alone, took, &running, PHI));
        let rho = interference.rho(&one, &client(2));
        let lost = 1.0 - 0.4 / 0.5;
        assert!((rho.mean * PHI.at(0.4, 0.6) - lost).abs() < 0.02, "half of the loss is that of SMs: {rho:?}");
    }

    #[test]
    fn the_setting_bounds_what_company_can_cost_and_what_was_seen_is_foretold_within_it() {
        let (one, two) = (client(1), client(2));
        let speed = |at_half: f64, seen: f64| {
            let (mut interference, phi) = (Interference::default(), Phi { at_half });
            let seen = CoRun { who: ClientId(1), share: 0.5, speed: seen, beside: vec![(ClientId(2), 0.5)] };
            (0..200).for_each(|_| interference.saw(&seen, phi));
            interference.speed(&one, 0.5, [(&two, 0.5)].into_iter(), Trust::Careful, phi) / solo(&one.profile, 0.5)
        };
        assert!((speed(1.0, 0.8) - speed(0.5, 0.8)).abs() < 0.05, "what is within the bound is told alike");
        assert!(speed(1.0, 0.2) < 0.25 && (speed(0.5, 0.2) - 0.5).abs() < 0.05, "half is the most it can cost");
        assert_eq!(speed(0.0, 0.2), 1.0, "interference is passed over");
    }

    #[test]
    fn who_can_use_less_of_the_gpu_is_expected_to_disturb_less() {
        let with = |id, demand| {
            let mut client = client(id);
            client.profile.demand = Some(demand);
            client
        };
        let interference = Interference::default();
        let guess = |other: f64| interference.rho(&with(1, 0.5), &with(2, other)).mean;
        assert!(guess(0.2) < guess(0.6) && guess(0.6) < guess(1.0));
    }

    #[test]
    fn what_is_not_known_is_tried_where_nothing_was_promised_and_taken_to_cost_elsewhere() {
        let (mut interference, mut one, two) = (Interference::default(), client(1), client(2));
        let speed = |interference: &Interference, one: &Client, trust| {
            interference.speed(one, 0.5, [(&two, 0.5)].into_iter(), trust, PHI) / solo(&one.profile, 0.5)
        };
        let (bold, careful) = (speed(&interference, &one, Trust::Bold), speed(&interference, &one, Trust::Careful));
        assert!(bold > 0.9 && careful < 0.8, "{bold} {careful}");
        (0..100).for_each(|_| saw(&mut interference, 0.6));
        assert!(speed(&interference, &one, Trust::Bold) < 0.65, "it was tried");
        one.slo.reserve = Some("10%".parse().unwrap());
        assert_eq!(speed(&interference, &one, Trust::Bold), speed(&interference, &one, Trust::Careful));
    }

    proptest! {
        /// A slowdown is the inverse of a speed.
        #[test]
        fn company_never_makes_anybody_faster(
            speeds in prop::collection::vec(0.0..4.0f64, 0..40), own in 0.01..1.0f64, demand in 0.01..=1.0f64,
        ) {
            let (mut one, two) = (client(1), client(2));
            one.profile.demand = Some(demand);
            let mut interference = Interference::default();
            speeds.into_iter().for_each(|speed| saw(&mut interference, speed));
            let slowdown = solo(&one.profile, own) / interference.speed(&one, own, [(&two, 1.0 - own)].into_iter(), Trust::Careful, PHI);
            prop_assert!(slowdown >= 1.0, "{slowdown}");
        }

        #[test]
        fn more_of_the_same_evidence_narrows_what_is_known(speed in 0.05..=1.0f64, samples in 1..60usize) {
            let (one, two) = (client(1), client(2));
            let mut interference = Interference::default();
            saw(&mut interference, speed);
            let mut before = interference.rho(&one, &two);
            for _ in 0..samples {
                saw(&mut interference, speed);
                let after = interference.rho(&one, &two);
                prop_assert!(after.confidence >= before.confidence && after.error <= before.error + 1e-9, "{before:?} {after:?}");
                before = after;
            }
        }

        #[test]
        fn speeds_and_coefficients_stay_between_nothing_and_all(
            speeds in prop::collection::vec(prop_oneof![0.0..2.0f64, Just(f64::NAN), Just(f64::INFINITY)], 0..50),
            own in 0.0..1.0f64,
        ) {
            let (one, two) = (client(1), client(2));
            let mut interference = Interference::default();
            speeds.into_iter().for_each(|speed| saw(&mut interference, speed));
            let rho = interference.rho(&one, &two);
            prop_assert!((0.0..=1.0).contains(&rho.mean) && (0.0..1.0).contains(&rho.confidence) && rho.error.is_finite());
            let speed = interference.speed(&one, own, [(&two, 1.0 - own)].into_iter(), Trust::Careful, PHI);
            prop_assert!((0.0..=1.0).contains(&speed));
        }
    }
}
