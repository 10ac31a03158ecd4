//! Which clients run together, and with how many SMs each.
//!
//! From what is predicted of every pair comes a *compatibility matrix*: two are compatible if side by side they get more done than one
//! after the other, by a margin. Of the sets in which all pairs are, up to [`MEMBERS`] large, the one is taken that the policy values most; a
//! policy says what a client's speed is worth to it, and whom the squad must have first.
//!
//! SMs are divided by filling up ([`shares`]): each gets its part by weight, nobody more than it can use, and what one leaves goes to the
//! others. So whoever remains when one is done never has less than before. Of that division the GPU can be given one cut, in whole steps: the
//! first has its side, the others share the other ([`members`]). Every other cut is tried too, and taken if the policy values what each gets so by the margin more.
//!
//! **Nobody waits beyond [`longest_wait`]**: whoever has been passed over for as long as anybody may is the first of the next squad, the one that
//! has waited longest before others; a squad lasts [`KernelSettings::squad`] at most, and begins with one of them as long as there are any.

use std::time::Duration;

use berth_model::settings::KernelSettings;

use super::interference::{Phi, Trust};
pub use super::shares::shares;
use super::shares::{cut_shares, cuts, most, split};
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
        let Choice { runners, value } = self.divided(&clients);
        // Company has to be worth it: fewer come first, and more only by a margin.
        let margin = if runners.len() > best.runners.len() { 1.0 + margin(self.settings) } else { 1.0 };
        let first = best.runners.is_empty();
        if first || (value > best.value * margin && (runners.len() == 1 || (self.wish.allows)(&runners))) {
            *best = Choice { runners, value };
        }
    }
}

impl<'a> Search<'a, '_> {
    /// The set with the division that is worth most: filled up, or cut where that is worth more by the margin.
    fn divided(&self, clients: &[&'a Client]) -> Choice<'a> {
        let Self { scene, settings, wish, .. } = self;
        let choice = |shares: &[f64]| {
            let runners = at_shares(scene, settings, clients, shares, wish.trust);
            let value = runners.iter().map(|runner| (wish.value)(runner.client, runner.speed)).sum();
            Choice { runners, value }
        };
        let mut best = choice(&expected_shares(scene.gpu, settings, clients, wish.weight));
        if !is_split(scene.gpu, settings, clients) {
            return best;
        }
        // A split has to last to be given: one that is hardly better is not followed.
        let enough = best.value * (1.0 + margin(settings));
        for split in cuts(scene.gpu.sms, settings.sm_step, most(clients[0])) {
            let cut = choice(&cut_shares(scene.gpu.sms, split, clients, wish.weight));
            if cut.value > best.value.max(enough) && (wish.allows)(&cut.runners) {
                best = cut;
            }
        }
        best
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
    at_shares(scene, settings, clients, &expected_shares(scene.gpu, settings, clients, weight), trust)
}

fn at_shares<'a>(
    scene: &Scene<'a>,
    settings: &KernelSettings,
    clients: &[&'a Client],
    shares: &[f64],
    trust: Trust,
) -> Vec<Runner<'a>> {
    let (interference, phi) = (&scene.learned.interference, Phi::of(settings));
    let each = clients.iter().zip(shares).enumerate();
    each.map(|(place, (client, share))| {
        let others = clients.iter().zip(shares).enumerate().filter(|(other, _)| *other != place);
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

/// Whether these run on two sides of a cut. A limit is kept by itself, and its part of the SMs is another than either side.
fn is_split(gpu: Place, settings: &KernelSettings, clients: &[&Client]) -> bool {
    let is_limited = |client: &&Client| client.slo.constraints.most.is_some_and(|most| most.get() < 1.0);
    clients.len() > 1 && is_divided(gpu, settings) && !clients.iter().any(is_limited)
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

/// Members with the side of the GPU that each has, where its SMs are split: the policy's first has one, all others the other.
///
/// Who has single requests to keep in time is not confined, and those beside it are: to make ready for another side takes a process longer than
/// most requests, on the thread that launches.
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
    let clients: Vec<&Client> = choice.runners.iter().map(|runner| runner.client).collect();
    let (Some(split), true) = (split, is_split(scene.gpu, settings, &clients)) else {
        return (choice.runners.iter().map(free).collect(), Division::Unrestricted);
    };
    let until = (settings.division == Division::SemiSpatial).then(|| scene.now + lasts / 2);
    let sides = std::iter::once(Side::First).chain(std::iter::repeat(Side::Rest));
    let part = |side| Some(Part { side, split, until });
    let each = choice.runners.iter().zip(sides);
    let members: Vec<Member> = each
        .map(|(runner, side)| Member {
            who: runner.client.id,
            part: part(side).filter(|_| runner.client.slo.within().is_none()),
        })
        .collect();
    let is_divided = members.iter().any(|member| member.part.is_some());
    (members, if is_divided { settings.division } else { Division::Unrestricted })
}

#[cfg(test)]
mod tests {
    use berth_model::Mono;
    use berth_model::slo::Latency;

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

    /// SMs of the first side where the first of two that can use six tenths each counts so many times the other.
    fn first_side(counts: f64) -> Option<u32> {
        let learned = Learned::default();
        let clients = [job(1, 5, 0.6, 0.1), job(2, 5, 0.6, 0.1)];
        let scene = Scene { now: Mono(0), gpu: PLACE, clients: &clients, learned: &learned };
        let value = |client: &Client, speed: f64| if client.id == ClientId(1) { counts * speed } else { speed };
        let wish = Wish {
            ranked: clients.iter().collect(),
            first: None,
            weight: &|_| 1.0,
            value: &value,
            allows: &|_| true,
            trust: Trust::Careful,
        };
        let settings = KernelSettings { division: Division::Strict, ..KernelSettings::default() };
        let choice = choose(&scene, &settings, &wish);
        members(&scene, &settings, &choice, settings.squad.get()).0[0].part.map(|part| part.split)
    }

    #[test]
    fn the_sms_are_cut_where_that_is_worth_most_and_in_half_where_it_is_hardly_worth_more() {
        assert_eq!([1.0, 1.1, 3.0].map(first_side), [Some(64), Some(64), Some(80)]);
    }

    #[test]
    fn who_has_requests_to_keep_in_time_is_not_confined_and_those_beside_it_are() {
        let learned = Learned::default();
        let mut clients = [job(1, 5, 0.6, 0.1), job(2, 5, 0.6, 0.1)];
        let latency = Latency { percentile: "99%".parse().unwrap(), within: berth_model::Span::from_millis(10) };
        let sides = |clients: &[Client]| {
            let scene = Scene { now: Mono(0), gpu: PLACE, clients, learned: &learned };
            let runners = |client| Runner { client, share: 0.5, speed: 0.8 };
            let choice = Choice { runners: clients.iter().map(runners).collect(), value: 1.0 };
            let (members, division) =
                super::members(&scene, &KernelSettings::default(), &choice, Duration::from_millis(2));
            (members.iter().map(|member| member.part.map(|part| part.side)).collect::<Vec<_>>(), division)
        };
        clients[0].slo.latency = Some(latency);
        assert_eq!(sides(&clients), (vec![None, Some(Side::Rest)], Division::SemiSpatial));
        clients[1].slo.latency = Some(latency);
        assert_eq!(sides(&clients), (vec![None, None], Division::Unrestricted));
    }
}
