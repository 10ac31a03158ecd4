//! Which clients run together, and with how many SMs each.
//!
//! From what is predicted of every pair comes a *compatibility matrix*: two are compatible if side by side they get more done than one
//! after the other, by a margin. Of the sets in which all pairs are, up to [`MEMBERS`] large, the one is taken that the policy values most; a
//! policy says what a client's speed is worth to it, and whom the squad must have first.
//!
//! SMs are divided by filling up ([`shares`]): each gets its part by weight, nobody more than it can use, and what one leaves goes to the
//! others. So whoever remains when one is done never has less than before. Of that division the GPU can be given one cut, in whole steps: the
//! first has its side, the others share the other ([`members`]).
//!
//! **Nobody waits beyond [`longest_wait`]**: whoever has been passed over for as long as anybody may is the first of the next squad, the one that
//! has waited longest before others; a squad lasts [`KernelSettings::squad`] at most, and begins with one of them as long as there are any.

use std::time::Duration;

use berth_model::settings::KernelSettings;

use super::interference::{Phi, Trust, demand};
use super::{Client, ClientId, Division, Member, Part, Place, Plan, Scene, Side};

/// The most that run at the same time: with more, what is predicted of pairs says little.
pub const MEMBERS: usize = 4;
/// Of many that want the GPU, the policy's first so many are tried in all combinations.
const CONSIDERED: usize = 8;

/// A set of clients that may run together, with what is expected of them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Choice<'a> {
    pub runners: Vec<Runner<'a>>,
    pub value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Runner<'a> {
    pub client: &'a Client,
    /// Of the SMs.
    pub share: f64,
    /// T_eff over its speed alone.
    pub speed: f64,
}

/// What a policy wants of a squad.
pub(super) struct Wish<'a, 'w> {
    /// Clients that want the GPU, the policy's first before others.
    pub ranked: Vec<&'a Client>,
    /// Is in the squad, whatever it is worth.
    pub first: Option<&'a Client>,
    /// By how much SMs are divided.
    pub weight: &'w dyn Fn(&Client) -> f64,
    /// What it is worth that a client gets on at this part of its speed.
    pub value: &'w dyn Fn(&Client, f64) -> f64,
    /// Sets that are not to be, whatever they are worth.
    pub allows: &'w dyn Fn(&[Runner<'a>]) -> bool,
    pub trust: Trust,
}

/// No client waits longer for its turn where `clients` want the GPU, but for kernels that run and cannot be stopped.
pub fn longest_wait(clients: usize, settings: &KernelSettings) -> Duration {
    let turns = u32::try_from(clients).unwrap_or(u32::MAX);
    settings.longest_wait.get().saturating_add(settings.squad.get().saturating_mul(turns))
}

/// The one that has waited as long as anybody may, of several the longest.
pub fn overdue<'a>(scene: &Scene<'a>, settings: &KernelSettings) -> Option<&'a Client> {
    let longest = settings.longest_wait.get();
    let waiting = scene.clients.iter().filter(|client| client.busy && client.waited(scene.now) >= longest);
    waiting.min_by_key(|client| (client.waiting_since, client.id))
}

/// The set worth most. Empty only if nobody wants the GPU.
pub(super) fn choose<'a>(scene: &Scene<'a>, settings: &KernelSettings, wish: &Wish<'a, '_>) -> Choice<'a> {
    let mut ranked: Vec<&Client> = wish.first.into_iter().collect();
    ranked.extend(wish.ranked.iter().filter(|client| wish.first.is_none_or(|first| first.id != client.id)));
    ranked.truncate(CONSIDERED);
    let search = Search { scene, settings, wish, compatible: matrix(scene, settings, &ranked, wish.trust), ranked };
    let mut best = Choice::default();
    let starts = if wish.first.is_some() { 1 } else { search.ranked.len() };
    (0..starts.min(search.ranked.len())).for_each(|start| search.extend(&mut vec![start], &mut best));
    best
}

struct Search<'a, 'w> {
    scene: &'w Scene<'a>,
    settings: &'w KernelSettings,
    wish: &'w Wish<'a, 'w>,
    ranked: Vec<&'a Client>,
    compatible: Vec<Vec<bool>>,
}

impl<'a> Search<'a, '_> {
    /// Tries the set, and every larger one that begins with it.
    fn extend(&self, set: &mut Vec<usize>, best: &mut Choice<'a>) {
        self.consider(set, best);
        let last = set.last().copied().unwrap_or_default();
        if set.len() == MEMBERS || !self.scene.gpu.concurrent {
            return;
        }
        for next in last + 1..self.ranked.len() {
            if set.iter().all(|one| self.compatible[*one][next]) {
                set.push(next);
                self.extend(set, best);
                set.pop();
            }
        }
    }

    fn consider(&self, set: &[usize], best: &mut Choice<'a>) {
        let clients: Vec<&Client> = set.iter().map(|one| self.ranked[*one]).collect();
        let runners = runners(self.scene, self.settings, &clients, self.wish.weight, self.wish.trust);
        let value: f64 = runners.iter().map(|runner| (self.wish.value)(runner.client, runner.speed)).sum();
        // Company has to be worth it: fewer come first, and more only by a margin.
        let margin = if runners.len() > best.runners.len() { 1.0 + margin(self.settings) } else { 1.0 };
        let first = best.runners.is_empty();
        if first || (value > best.value * margin && (runners.len() == 1 || (self.wish.allows)(&runners))) {
            *best = Choice { runners, value };
        }
    }
}

/// Who gets on how fast, if these run together.
pub fn runners<'a>(
    scene: &Scene<'a>,
    settings: &KernelSettings,
    clients: &[&'a Client],
    weight: &dyn Fn(&Client) -> f64,
    trust: Trust,
) -> Vec<Runner<'a>> {
    let shares = expected_shares(scene.gpu, settings, clients, weight);
    let (interference, phi) = (&scene.learned.interference, Phi::of(settings));
    let each = clients.iter().zip(&shares).enumerate();
    each.map(|(place, (client, share))| {
        let others = clients.iter().zip(&shares).enumerate().filter(|(other, _)| *other != place);
        let beside = others.map(|(_, (other, share))| (*other, *share));
        Runner { client, share: *share, speed: interference.speed(client, *share, beside, trust, phi) }
    })
    .collect()
}

/// Who may run beside whom.
fn matrix(scene: &Scene<'_>, settings: &KernelSettings, ranked: &[&Client], trust: Trust) -> Vec<Vec<bool>> {
    let pair = |one: &Client, other: &Client| are_compatible(scene, settings, one, other, trust);
    ranked.iter().map(|one| ranked.iter().map(|other| pair(one, other)).collect()).collect()
}

pub(super) fn are_compatible(
    scene: &Scene<'_>,
    settings: &KernelSettings,
    one: &Client,
    other: &Client,
    trust: Trust,
) -> bool {
    let apart = one.slo.constraints.apart || other.slo.constraints.apart || one.id == other.id;
    !apart && together(scene, settings, one, other, trust) > 1.0 + margin(settings)
}

/// What two get done side by side, where one after the other is 1.
pub fn together(scene: &Scene<'_>, settings: &KernelSettings, one: &Client, other: &Client, trust: Trust) -> f64 {
    let clients = [one, other];
    let shares = expected_shares(scene.gpu, settings, &clients, &|_| 1.0);
    let (interference, phi) = (&scene.learned.interference, Phi::of(settings));
    let first = interference.speed(one, shares[0], [(other, shares[1])].into_iter(), trust, phi);
    first + interference.speed(other, shares[1], [(one, shares[0])].into_iter(), trust, phi)
}

fn margin(settings: &KernelSettings) -> f64 {
    f64::from(settings.pays.get()) / 100.0
}

fn is_divided(gpu: Place, settings: &KernelSettings) -> bool {
    gpu.divides && settings.division != Division::Unrestricted
}

fn expected_shares(
    gpu: Place,
    settings: &KernelSettings,
    clients: &[&Client],
    weight: &dyn Fn(&Client) -> f64,
) -> Vec<f64> {
    let wants: Vec<f64> = clients.iter().map(|client| most(client)).collect();
    if clients.len() == 1 || is_divided(gpu, settings) {
        let weights: Vec<f64> = clients.iter().map(|client| weight(client)).collect();
        return shares(&wants, &weights);
    }
    // The GPU itself divides by what each puts forward.
    let all = wants.iter().sum::<f64>().max(1.0);
    wants.into_iter().map(|want| want / all).collect()
}

/// Shares of the SMs that those who run have while a plan counts: their side of the GPU, shared with the others of that side by what each can use, or
/// all of it likewise.
pub fn held(plan: &Plan, gpu: Place, running: &[&Client]) -> Vec<(ClientId, f64)> {
    let part = |client: &Client| plan.squad.members.iter().find(|member| member.who == client.id)?.part;
    let side = |client: &Client| part(client).map(|part| part.side);
    let each = running.iter().map(|client| {
        let room = part(client).map_or(1.0, |part| f64::from(part.sms(gpu.sms)) / f64::from(gpu.sms.max(1)));
        let same = running.iter().filter(|other| side(other) == side(client));
        let crowd = same.map(|other| most(other).min(room)).sum::<f64>().max(room);
        (client.id, most(client).min(room) * room / crowd)
    });
    each.collect()
}

/// The most of the SMs it can use, and may.
fn most(client: &Client) -> f64 {
    let may = client.slo.constraints.most.map_or(1.0, |most| most.get());
    demand(&client.profile).min(may)
}

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

/// Members with the side of the GPU that each has, where its SMs are split: the policy's first has one, all others the other.
///
/// Two sides and no more: a process can split the GPU in two, and every process that splits it at the same place gets the same two.
pub fn members(
    scene: &Scene<'_>,
    settings: &KernelSettings,
    choice: &Choice<'_>,
    lasts: Duration,
) -> (Vec<Member>, Division) {
    let free = |runner: &Runner<'_>| Member { who: runner.client.id, part: None };
    let split = split(scene.gpu.sms, settings.sm_step, choice.runners.first().map_or(1.0, |first| first.share));
    // A limit is kept by itself, and its part of the SMs is another than either side.
    let has_limit =
        choice.runners.iter().any(|runner| runner.client.slo.constraints.most.is_some_and(|most| most.get() < 1.0));
    let divides = choice.runners.len() > 1 && is_divided(scene.gpu, settings) && !has_limit;
    let (Some(split), true) = (split, divides) else {
        return (choice.runners.iter().map(free).collect(), Division::Unrestricted);
    };
    let until = (settings.division == Division::SemiSpatial).then(|| scene.now + lasts / 2);
    let sides = std::iter::once(Side::First).chain(std::iter::repeat(Side::Rest));
    let confined =
        |(runner, side): (&Runner<'_>, Side)| Member { who: runner.client.id, part: Some(Part { side, split, until }) };
    (choice.runners.iter().zip(sides).map(confined).collect(), settings.division)
}

/// SMs of the first side, in whole steps, so that both sides have some; `None` where there are too few.
fn split(sms: u32, step: u32, share: f64) -> Option<u32> {
    let step = step.max(1);
    let most = (sms.checked_sub(step)?) / step * step;
    #[expect(clippy::cast_possible_truncation, reason = "a share of no more SMs than there are")]
    let nearest = (share.clamp(0.0, 1.0) * f64::from(sms) / f64::from(step)).round() as u32;
    (most >= step).then(|| nearest.saturating_mul(step).clamp(step, most))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use berth_model::Mono;

    use super::super::Learned;
    use super::super::testing::{PLACE, job};
    use super::*;

    fn choice<'a>(scene: &Scene<'a>, first: Option<&'a Client>) -> Choice<'a> {
        let ranked = scene.clients.iter().collect();
        let wish = Wish {
            ranked,
            first,
            weight: &|_| 1.0,
            value: &|_, speed| speed,
            allows: &|_| true,
            trust: Trust::Careful,
        };
        choose(scene, &KernelSettings::default(), &wish)
    }

    fn ids(choice: &Choice<'_>) -> Vec<u64> {
        choice.runners.iter().map(|runner| runner.client.id.0).collect()
    }

    #[test]
    fn small_ones_run_together_and_ones_that_fill_the_gpu_do_not() {
        let learned = Learned::default();
        let clients = [job(1, 5, 0.4, 0.1), job(2, 5, 1.0, 0.9), job(3, 5, 0.5, 0.1)];
        let scene = Scene { now: Mono(0), gpu: PLACE, clients: &clients, learned: &learned };
        assert_eq!(ids(&choice(&scene, None)), [1, 3]);
        let alone = Scene { clients: &clients[1..2], ..scene };
        assert_eq!(ids(&choice(&alone, None)), [2]);
        assert_eq!(ids(&choice(&scene, Some(&clients[1])))[0], 2, "who must be there is");
        let full = [job(1, 5, 1.0, 0.9), job(2, 5, 1.0, 0.9)];
        let scene = Scene { clients: &full, ..scene };
        assert_eq!(ids(&choice(&scene, Some(&full[1]))), [2]);
        let turns = Scene { gpu: Place { concurrent: false, ..PLACE }, ..scene };
        assert_eq!(ids(&choice(&turns, None)).len(), 1);
    }

    #[test]
    fn one_that_wants_to_be_apart_is() {
        let learned = Learned::default();
        let mut clients = [job(1, 5, 0.4, 0.1), job(2, 5, 0.4, 0.1)];
        clients[1].slo.constraints.apart = true;
        let scene = Scene { now: Mono(0), gpu: PLACE, clients: &clients, learned: &learned };
        assert_eq!(ids(&choice(&scene, None)).len(), 1);
    }

    #[test]
    fn two_that_were_seen_to_slow_each_other_down_run_together_no_more() {
        let mut learned = Learned::default();
        let clients = [job(1, 5, 0.5, 0.1), job(2, 5, 0.5, 0.1)];
        for (who, other) in [(1, 2), (2, 1)] {
            let beside = vec![(ClientId(other), 0.5)];
            let seen = super::super::CoRun { who: ClientId(who), share: 0.5, speed: 0.45, beside };
            (0..50).for_each(|_| learned.interference.saw(&seen, Phi::of(&KernelSettings::default())));
        }
        let scene = Scene { now: Mono(0), gpu: PLACE, clients: &clients, learned: &learned };
        assert_eq!(ids(&choice(&scene, None)).len(), 1);
    }

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
