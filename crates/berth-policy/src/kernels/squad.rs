//! Which clients run together, and with how many SMs each.
//!
//! From what is predicted of every pair comes a *compatibility matrix*: two are compatible if side by side they get more done than one
//! after the other, by a margin. Of the sets in which all pairs are, up to [`MEMBERS`] large, the one is taken that the policy values most; a
//! policy says what a client's speed is worth to it, and whom the squad must have first.
//!
//! SMs are divided by filling up ([`shares`]): each gets its part by weight, nobody more than it can use, and what one leaves goes to the
//! others. So whoever remains when one is done never has less than before. Of that division the GPU can be given one cut, in whole steps: the
//! first has its side, the others share the other ([`members`]). Every other cut is tried too, and taken if the policy values what each gets so by the margin more
//! (`search`).
//!
//! **Nobody waits beyond [`longest_wait`]**: whoever has been passed over for as long as anybody may is the first of the next squad, the one that
//! has waited longest before others; a squad lasts [`KernelSettings::squad`] at most, and begins with one of them as long as there are any.

use std::time::Duration;

use berth_model::settings::KernelSettings;

use super::interference::{Phi, Trust};
pub use super::shares::shares;
use super::shares::{fill, most, split};
use super::weights::quality;
use super::{Client, ClientId, Division, Member, Part, Place, Plan, Scene, Side};

/// The most that run at the same time: with more, what is predicted of pairs says little.
pub const MEMBERS: usize = 4;

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

/// What it is worth that a client gets on, by the part of its speed alone: in proportion, and less if it will be late all the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Worth {
    pub counts: f64,
    pub late: Option<Late>,
}

/// Work that may be late, and what it is worth then, over the same work in time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Late {
    pub left: Duration,
    pub due_in: Duration,
    pub worth: f64,
}

/// What a policy wants of a squad.
pub(super) struct Wish<'a, 'w> {
    /// Clients that want the GPU, the policy's first before others.
    pub ranked: Vec<&'a Client>,
    /// Is in the squad, whatever it is worth.
    pub first: Option<&'a Client>,
    /// By how much SMs are divided.
    pub weight: &'w dyn Fn(&Client) -> f64,
    /// What it is worth that a client gets on.
    pub worth: &'w dyn Fn(&Client) -> Worth,
    /// Sets that are not to be, whatever they are worth.
    pub allows: &'w dyn Fn(&[Runner<'a>]) -> bool,
    pub trust: Trust,
}

// === impl Worth ===

impl Worth {
    /// Never late.
    pub fn of(counts: f64) -> Self {
        Self { counts, late: None }
    }

    pub fn at(&self, speed: f64) -> f64 {
        let quality = self.late.map_or(1.0, |late| quality(late.left, speed, Some(late.due_in), late.worth));
        self.counts * speed * quality
    }
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

/// Whether two may run together: side by side they get more done than one after the other, by a margin.
pub(super) fn are_compatible(
    scene: &Scene<'_>,
    settings: &KernelSettings,
    one: &Client,
    other: &Client,
    trust: Trust,
) -> bool {
    may_meet(one, other) && together(scene, settings, one, other, trust) > 1.0 + margin(settings)
}

/// Whether nobody wants them apart.
pub(super) fn may_meet(one: &Client, other: &Client) -> bool {
    !one.slo.constraints.apart && !other.slo.constraints.apart && one.id != other.id
}

/// What two get done side by side, where one after the other is 1.
pub fn together(scene: &Scene<'_>, settings: &KernelSettings, one: &Client, other: &Client, trust: Trust) -> f64 {
    let [first, second] = side_by_side(scene, settings, [one, other], trust);
    first + second
}

/// How fast each of two gets on beside the other, over its speed alone.
pub fn side_by_side(
    scene: &Scene<'_>,
    settings: &KernelSettings,
    [one, other]: [&Client; 2],
    trust: Trust,
) -> [f64; 2] {
    let mut shares = [0.0; 2];
    expected_shares(scene.gpu, settings, &[most(one), most(other)], &[1.0; 2], &mut shares);
    let (interference, phi) = (&scene.learned.interference, Phi::of(settings));
    let first = interference.speed(one, shares[0], [(other, shares[1])].into_iter(), trust, phi);
    let second = interference.speed(other, shares[1], [(one, shares[0])].into_iter(), trust, phi);
    [first, second]
}

pub(super) fn margin(settings: &KernelSettings) -> f64 {
    f64::from(settings.pays.get()) / 100.0
}

pub(super) fn is_divided(gpu: Place, settings: &KernelSettings) -> bool {
    gpu.divides && settings.division != Division::Unrestricted
}

/// Whether these run on two sides of a cut. A limit is kept by itself, and its part of the SMs is another than either side.
fn is_split(gpu: Place, settings: &KernelSettings, choice: &Choice<'_>) -> bool {
    let is_limited = |runner: &Runner<'_>| is_limited(runner.client);
    choice.runners.len() > 1 && is_divided(gpu, settings) && !choice.runners.iter().any(is_limited)
}

pub(super) fn is_limited(client: &Client) -> bool {
    client.slo.constraints.most.is_some_and(|most| most.get() < 1.0)
}

/// Shares of those that run together, where each can use so much and counts so much.
pub(super) fn expected_shares(
    gpu: Place,
    settings: &KernelSettings,
    wants: &[f64],
    weights: &[f64],
    given: &mut [f64],
) {
    if wants.len() == 1 || is_divided(gpu, settings) {
        return fill(wants, weights, given);
    }
    // The GPU itself divides by what each puts forward.
    let all = wants.iter().sum::<f64>().max(1.0);
    given.iter_mut().zip(wants).for_each(|(given, want)| *given = want / all);
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
    let (Some(split), true) = (split, is_split(scene.gpu, settings, choice)) else {
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

    use super::super::ClientId;
    use super::super::Learned;
    use super::super::interference::Phi;
    use super::super::search::choose;
    use super::super::testing::{PLACE, job};
    use super::*;

    fn choice<'a>(scene: &Scene<'a>, first: Option<&'a Client>) -> Choice<'a> {
        let ranked = scene.clients.iter().collect();
        let wish = Wish {
            ranked,
            first,
            weight: &|_| 1.0,
            worth: &|_| Worth::of(1.0),
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
        let worth = |client: &Client| Worth::of(if client.id == ClientId(1) { counts } else { 1.0 });
        let wish = Wish {
            ranked: clients.iter().collect(),
            first: None,
            weight: &|_| 1.0,
            worth: &worth,
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
