//! The set that is worth most to a policy, with the division that is.
//!
//! The policy's first [`CONSIDERED`] are tried in every set of up to [`MEMBERS`] of which each two may run together, and every set with every cut of the
//! SMs: hundreds of sets and thousands of divisions, for plans that are made up to a thousand times a second. So what is known of clients and pairs is looked
//! up once for all of them; a cut is passed over where the most it can be worth ([`Bound`]) is not enough to be taken, which most are; and what another one
//! costs is some arithmetic, without memory of its own.

use berth_model::settings::KernelSettings;

use super::interference::{Phi, demand, solo_of};
use super::shares::{cut_shares, cuts, most};
use super::squad::{Choice, MEMBERS, Runner, Wish, Worth, expected_shares, is_divided, is_limited, margin, may_meet};
use super::{Client, Place, Scene};

/// Of many that want the GPU, the policy's first so many are tried in all combinations.
const CONSIDERED: usize = 8;

/// The set worth most. Empty only if nobody wants the GPU.
pub(super) fn choose<'a>(scene: &Scene<'a>, settings: &KernelSettings, wish: &Wish<'a, '_>) -> Choice<'a> {
    let first = wish.first.into_iter();
    let others = wish.ranked.iter().copied().filter(|client| wish.first.is_none_or(|first| first.id != client.id));
    let ranked = first.chain(others).take(CONSIDERED);
    let search = Search {
        gpu: scene.gpu,
        settings,
        wish,
        phi: Phi::of(settings),
        margin: margin(settings),
        tried: tried(scene, settings, wish, ranked),
    };
    let mut best = Choice::default();
    let starts = if wish.first.is_some() { 1 } else { CONSIDERED };
    (0..search.tried.len()).take(starts).for_each(|start| search.extend(&Set::of(start), &mut best));
    best
}

struct Search<'a, 'w> {
    gpu: Place,
    settings: &'w KernelSettings,
    wish: &'w Wish<'a, 'w>,
    phi: Phi,
    margin: f64,
    tried: Vec<Tried<'a>>,
}

/// One that is tried, with what is known of it and of each beside which it is.
struct Tried<'a> {
    client: &'a Client,
    most: f64,
    demand: f64,
    weight: f64,
    worth: Worth,
    is_limited: bool,
    /// Those after it with which it may run, one bit each.
    company: u8,
    /// What each costs it.
    rho: [f64; CONSIDERED],
}

/// Places in the line of those that are tried, the least first.
#[derive(Debug, Clone, Copy)]
struct Set {
    places: [usize; MEMBERS],
    len: usize,
}

/// What each of a set gets by one division, and what that is worth in all.
#[derive(Debug, Clone, Copy)]
struct Divided {
    shares: [f64; MEMBERS],
    speeds: [f64; MEMBERS],
    value: f64,
}

/// The most that a cut can be worth, in a few steps, so that most need not be tried.
///
/// With *s* for the first, *T* for the others together and γ what a client's share is worth, its worth over its demand:
/// - the first loses at least ρ 4 s T, ρ the least that any of the others costs it, and Π (1 − x) ≤ 1 − Σ x + (Σ x)² / 2;
/// - the others have at most max γ × T, less what the first costs them: Σ γ ρ 4 s t² ≥ min γ ρ × 4 s T² / n, as squares go.
///
/// What the others cost each other is left out, and so is late work.
#[derive(Debug, Clone, Copy)]
struct Bound {
    first: f64,
    first_demand: f64,
    first_most: f64,
    first_loses: f64,
    others: f64,
    others_most: f64,
    others_lose: f64,
}

/// What is known of the members of one set, side by side.
struct Members {
    len: usize,
    most: [f64; MEMBERS],
    demand: [f64; MEMBERS],
    weight: [f64; MEMBERS],
    worth: [Worth; MEMBERS],
    rho: [[f64; MEMBERS]; MEMBERS],
}

fn tried<'a>(
    scene: &Scene<'a>,
    settings: &KernelSettings,
    wish: &Wish<'a, '_>,
    ranked: impl Iterator<Item = &'a Client>,
) -> Vec<Tried<'a>> {
    let one = |client: &'a Client| Tried {
        client,
        most: most(client),
        demand: demand(&client.profile),
        weight: (wish.weight)(client),
        worth: (wish.worth)(client),
        is_limited: is_limited(client),
        company: 0,
        rho: [0.0; CONSIDERED],
    };
    let mut tried: Vec<Tried<'a>> = ranked.map(one).collect();
    if !scene.gpu.concurrent {
        return tried;
    }
    let phi = Phi::of(settings);
    let enough = 1.0 + margin(settings);
    for one in 0..tried.len() {
        for other in one + 1..tried.len() {
            let (who, beside) = (tried[one].client, tried[other].client);
            if !may_meet(who, beside) {
                continue;
            }
            tried[one].rho[other] = scene.learned.interference.cost(who, beside, wish.trust);
            tried[other].rho[one] = scene.learned.interference.cost(beside, who, wish.trust);
            let pair = Members::of(&tried, &[one, other]);
            let mut shares = [0.0; MEMBERS];
            expected_shares(scene.gpu, settings, &pair.most[..2], &[1.0; 2], &mut shares[..2]);
            let Divided { speeds, .. } = pair.divided(shares, phi);
            tried[one].company |= u8::from(speeds[0] + speeds[1] > enough) << other;
        }
    }
    tried
}

impl Set {
    fn of(place: usize) -> Self {
        Self { places: [place; MEMBERS], len: 1 }
    }

    fn with(mut self, place: usize) -> Self {
        self.places[self.len] = place;
        self.len += 1;
        self
    }

    fn places(&self) -> &[usize] {
        &self.places[..self.len]
    }
}

impl<'a> Search<'a, '_> {
    /// Tries the set, and every larger one that begins with it.
    fn extend(&self, set: &Set, best: &mut Choice<'a>) {
        self.consider(set.places(), best);
        if set.len == MEMBERS || !self.gpu.concurrent {
            return;
        }
        let company = set.places().iter().fold(u8::MAX, |all, one| all & self.tried[*one].company);
        let after = (0..self.tried.len()).filter(|next| company >> next & 1 == 1);
        after.for_each(|next| self.extend(&set.with(next), best));
    }

    fn consider(&self, set: &[usize], best: &mut Choice<'a>) {
        // Company has to be worth it: fewer come first, and more only by a margin.
        let margin = if set.len() > best.runners.len() { 1.0 + self.margin } else { 1.0 };
        let is_first = best.runners.is_empty();
        let enough = if is_first { f64::NEG_INFINITY } else { best.value * margin };
        let divided = self.divided(set, enough);
        if is_first || (divided.value > enough && (set.len() == 1 || self.allows(set, &divided))) {
            let runners = self.runners(set, &divided)[..set.len()].to_vec();
            *best = Choice { runners, value: divided.value };
        }
    }

    /// The set with the division that is worth most, if that is worth more than `enough`: filled up, or cut where that is worth more by the margin.
    fn divided(&self, set: &[usize], enough: f64) -> Divided {
        let members = Members::of(&self.tried, set);
        let (most, weights) = (&members.most[..set.len()], &members.weight[..set.len()]);
        let mut shares = [0.0; MEMBERS];
        expected_shares(self.gpu, self.settings, most, weights, &mut shares[..set.len()]);
        let mut best = members.divided(shares, self.phi);
        if !self.is_split(set) {
            return best;
        }
        // A split has to last to be given: one that is hardly better is not followed.
        let mut enough = (best.value * (1.0 + self.margin)).max(enough);
        let bound = Bound::of(&members, self.phi);
        for split in cuts(self.gpu.sms, self.settings.sm_step, most[0]) {
            let first = f64::from(split) / f64::from(self.gpu.sms);
            if bound.at(first) <= enough {
                continue;
            }
            cut_shares(first, most, weights, &mut shares[..set.len()]);
            let cut = members.divided(shares, self.phi);
            if cut.value > enough && self.allows(set, &cut) {
                (best, enough) = (cut, cut.value);
            }
        }
        best
    }

    fn is_split(&self, set: &[usize]) -> bool {
        set.len() > 1 && is_divided(self.gpu, self.settings) && !set.iter().any(|one| self.tried[*one].is_limited)
    }

    fn allows(&self, set: &[usize], divided: &Divided) -> bool {
        (self.wish.allows)(&self.runners(set, divided)[..set.len()])
    }

    /// The first so many are those of the set.
    fn runners(&self, set: &[usize], divided: &Divided) -> [Runner<'a>; MEMBERS] {
        std::array::from_fn(|place| {
            let client = self.tried[set.get(place).copied().unwrap_or_default()].client;
            Runner { client, share: divided.shares[place], speed: divided.speeds[place] }
        })
    }
}

impl Bound {
    fn of(members: &Members, phi: Phi) -> Self {
        let others = 1..members.len;
        let per_share = |place: usize| members.worth[place].counts / members.demand[place];
        let least = |of: &dyn Fn(usize) -> f64| others.clone().map(of).fold(f64::INFINITY, f64::min);
        let at_most = 4.0 * phi.at(0.5, 0.5);
        Self {
            first: members.worth[0].counts,
            first_demand: members.demand[0],
            first_most: members.most[0],
            first_loses: at_most * least(&|place| members.rho[0][place]),
            others: others.clone().map(per_share).fold(0.0, f64::max),
            others_most: members.most[1..members.len].iter().sum(),
            others_lose: at_most * least(&|place| per_share(place) * members.rho[place][0]) / others.len() as f64,
        }
    }

    /// Where the first has so much of the SMs on its side.
    fn at(&self, first: f64) -> f64 {
        let (own, rest) = (first.min(self.first_most), (1.0 - first).min(self.others_most));
        let lost = self.first_loses * own * rest;
        let first = self.first * solo_of(self.first_demand, own) * (1.0 - lost + lost * lost / 2.0);
        // What is rounded here is rounded otherwise there.
        (first + self.others * rest - self.others_lose * own * rest * rest) * (1.0 + 1e-9)
    }
}

impl Members {
    fn of(tried: &[Tried<'_>], set: &[usize]) -> Self {
        let mut members = Self {
            len: set.len(),
            most: [0.0; MEMBERS],
            demand: [1.0; MEMBERS],
            weight: [0.0; MEMBERS],
            worth: [Worth::of(0.0); MEMBERS],
            rho: [[0.0; MEMBERS]; MEMBERS],
        };
        for (place, one) in set.iter().enumerate() {
            let one = &tried[*one];
            members.most[place] = one.most;
            members.demand[place] = one.demand;
            members.weight[place] = one.weight;
            members.worth[place] = one.worth;
            members.rho[place].iter_mut().zip(set).for_each(|(rho, other)| *rho = one.rho[*other]);
        }
        members
    }

    /// Who gets on how fast with these shares, and what that is worth.
    fn divided(&self, shares: [f64; MEMBERS], phi: Phi) -> Divided {
        let mut speeds = [0.0; MEMBERS];
        let mut value = 0.0;
        for place in 0..self.len {
            let mut stays = 1.0;
            for other in (0..self.len).filter(|other| *other != place) {
                stays *= 1.0 - self.rho[place][other] * phi.at(shares[place], shares[other]);
            }
            speeds[place] = solo_of(self.demand[place], shares[place]) * stays;
            value += self.worth[place].at(speeds[place]);
        }
        Divided { shares, speeds, value }
    }
}

#[cfg(test)]
mod tests;
