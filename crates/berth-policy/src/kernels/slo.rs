//! `slo`: what tenants were promised is kept.
//!
//! Every promise is due at some instant (`promise`). Those without one yield, inline, to those with one; so do those whose promise is due later
//! than anything the other could begin until the next plan, where the other has no time to wait for one. Among those that want the GPU now:
//!
//! 1. who has waited as long as anybody may;
//! 2. reservations that would fall behind: they survive any overload of others;
//! 3. promises by what is due first. Those of tenants that miss most of theirs anyway come last, so that in an overload not all are late;
//! 4. all others, fair by user and client.
//!
//! *Risk comes before the violation*: what counts is what is left until a client must have begun, not whether it was late. Company is taken
//! if it hardly slows the first ([`UNSLOWED`]), or if those that have promises get more done so than one after the other and the first has time enough
//! ([`TIME_ENOUGH`]): what is done early is not in the way when many come at once.

use std::time::Duration;

use berth_model::Mono;
use berth_model::settings::KernelSettings;

use super::crowd::Crowd;
use super::frame::{self, busy};
use super::interference::Trust;
use super::promise::{Promise, in_order, promise};
use super::squad::{self, Choice, Runner, Wish, Worth};
use super::{Client, ClientId, KernelPolicy, Plan, Reason, Scene, Yield, search};

/// The part of its speed that the first keeps beside others.
const UNSLOWED: f64 = 0.95;
/// Who has so many times the time it needs can be slowed down for others.
const TIME_ENOUGH: f64 = 2.0;

#[derive(Debug, Clone, Default)]
pub struct Slo {
    pub settings: KernelSettings,
}

impl KernelPolicy for Slo {
    fn name(&self) -> &'static str {
        "slo"
    }

    fn plan(&self, scene: &Scene<'_>) -> Plan {
        let promises = promises(scene, &self.settings);
        let ranked = ranked(scene, &promises);
        let first = squad::overdue(scene, &self.settings).or_else(|| ranked.first().copied());
        // The first has what it can use, the next what that leaves, and so on.
        let place = |client: &Client| ranked.iter().zip(0..4).find(|(other, _)| other.id == client.id);
        let weight = |client: &Client| 0.01f64.powi(place(client).map_or(4, |(_, place)| place));
        let worth = |client: &Client| Worth::of(client.weight());
        let head = first.and_then(|first| promise(first, scene.now));
        let is_promised = |who: &Client| promises.iter().any(|promise| promise.client.id == who.id);
        let allows = |runners: &[Runner<'_>]| {
            let Some(head) = head else { return true };
            let own = runners.iter().find(|runner| runner.client.id == head.client.id);
            own.is_none_or(|own| {
                let promised = runners.iter().filter(|runner| is_promised(runner.client));
                own.speed >= UNSLOWED
                    || (has_time(scene, &head, own.speed) && promised.map(|runner| runner.speed).sum::<f64>() > 1.0)
            })
        };
        let wish = Wish {
            ranked: ranked.clone(),
            first,
            weight: &weight,
            worth: &worth,
            allows: &allows,
            trust: Trust::Careful,
        };
        let choice = search::choose(scene, &self.settings, &wish);
        let reasons = reasons(scene, &self.settings, &ranked, &promises, &choice);
        frame::plan(scene, &self.settings, &choice, &[], &ranked, self.yields(scene), reasons)
    }
}

impl Slo {
    /// What is asked of each alone is asked once: there are many pairs.
    fn yields(&self, scene: &Scene<'_>) -> Vec<Yield> {
        let squad = self.settings.squad.get();
        let lead: Vec<Lead> = scene.clients.iter().filter_map(|client| Lead::of(client, squad)).collect();
        let mut links = Vec::new();
        for who in scene.clients {
            let own = Own::of(who, scene.now);
            let to = lead.iter().filter(|to| to.who != who.id && gives_way(scene.now, squad, own, to));
            links.extend(to.map(|to| Yield { who: who.id, to: to.who }));
        }
        links
    }
}

/// One to which others yield.
struct Lead {
    who: ClientId,
    within: Duration,
    /// It has no time to wait for the next plan, a quarter of a squad at most.
    is_short: bool,
}

/// What one that may have to yield has to keep itself.
#[derive(Clone, Copy)]
enum Own {
    Nothing,
    /// No single requests.
    Paced,
    Requests {
        within: Duration,
        /// Of the one under way.
        due: Option<Mono>,
    },
}

impl Lead {
    fn of(client: &Client, squad: Duration) -> Option<Self> {
        let within = client.slo.within()?;
        let spare = within.saturating_sub(client.profile.request.unwrap_or_default());
        Some(Self { who: client.id, within, is_short: spare < squad / 4 })
    }
}

impl Own {
    fn of(client: &Client, now: Mono) -> Self {
        if !client.slo.promises() {
            return Own::Nothing;
        }
        let due = || promise(client, now).filter(|_| client.busy).map(|promise| promise.due);
        client.slo.within().map_or(Own::Paced, |within| Own::Requests { within, due: due() })
    }
}

/// Promises of those that want the GPU, in the order in which they should be kept.
pub fn promises<'a>(scene: &Scene<'a>, settings: &KernelSettings) -> Vec<Promise<'a>> {
    let all = busy(scene).filter_map(|client| promise(client, scene.now)).collect();
    in_order(all, scene.now, soon(settings))
}

/// Who has to begin within this is at risk: it may be passed over by one plan, and not by two.
pub fn soon(settings: &KernelSettings) -> Duration {
    settings.squad.get() * 2
}

/// Whether it is in time at that speed even if it takes much longer.
fn has_time(scene: &Scene<'_>, promise: &Promise<'_>, speed: f64) -> bool {
    promise.left.as_secs_f64() * TIME_ENOUGH <= promise.due.since(scene.now).as_secs_f64() * speed
}

/// Every link costs a pause after each request. Who can wait until the next plan needs none.
fn gives_way(now: Mono, squad: Duration, own: Own, to: &Lead) -> bool {
    match own {
        Own::Nothing => true,
        Own::Paced => false,
        // What could begin before the next plan would be due before this: as if both were there, the first due goes first.
        Own::Requests { due: Some(due), .. } => to.is_short && due > now + squad + to.within,
        Own::Requests { within, due: None } => to.is_short && within >= to.within * 2,
    }
}

fn ranked<'a>(scene: &Scene<'a>, promises: &[Promise<'a>]) -> Vec<&'a Client> {
    let mut rest: Vec<&Client> = busy(scene).filter(|client| promise(client, scene.now).is_none()).collect();
    let crowd = Crowd::of(scene);
    rest.sort_by_cached_key(|client| crowd.turn(client));
    promises.iter().map(|promise| promise.client).chain(rest).collect()
}

fn reasons(
    scene: &Scene<'_>,
    settings: &KernelSettings,
    ranked: &[&Client],
    promises: &[Promise<'_>],
    choice: &Choice<'_>,
) -> Vec<(ClientId, Reason)> {
    let head = promises.first();
    let due_in = |promise: &Promise<'_>| promise.due.since(scene.now);
    let of = |client: &&Client| {
        let own = &promise(client, scene.now);
        let runs = choice.runners.iter().any(|runner| runner.client.id == client.id);
        let reason = match (own, head) {
            _ if ranked.len() == 1 => Reason::NobodyElse,
            (Some(own), _) if runs && own.is_reserved() => {
                Reason::Reserved { share: client.slo.reserve.map_or(0.0, |share| share.get()) }
            }
            (Some(own), _) if runs && own.is_at_risk(scene.now, soon(settings)) => {
                Reason::AtRisk { due_in: due_in(own) }
            }
            (Some(own), _) if runs => Reason::DueFirst { due_in: due_in(own) },
            (None, Some(head)) if !runs && !client.slo.promises() => Reason::YieldsTo { who: head.client.id },
            (_, Some(head)) if !runs => Reason::DueBefore { who: head.client.id, due_in: due_in(head) },
            (None, _) | (Some(_), None) | (Some(_), Some(_)) => Reason::BestTogether { score: choice.value },
        };
        (client.id, reason)
    };
    ranked.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use berth_model::Span;
    use berth_model::slo::Latency;

    use super::super::testing::{PLACE, job};
    use super::super::{Learned, Place};
    use super::*;

    const TURNS: Place = Place { concurrent: false, ..PLACE };

    fn server(id: u64, left_ms: u64, within_ms: u64) -> Client {
        let latency = Some(Latency { percentile: "99%".parse().unwrap(), within: Span::from_millis(within_ms) });
        let slo = super::super::Slo { latency, ..Default::default() };
        Client { slo, ..job(id, left_ms, 1.0, 0.3) }
    }

    fn plan(clients: &[Client], now_ms: u64) -> Plan {
        let learned = Learned::default();
        let now = Mono(0) + Duration::from_millis(now_ms);
        Slo::default().plan(&Scene { now, gpu: TURNS, clients, learned: &learned })
    }

    /// What the policy itself wants of links, without those of the line.
    fn links(clients: &[Client]) -> Vec<Yield> {
        let learned = Learned::default();
        Slo::default().yields(&Scene { now: Mono(0), gpu: TURNS, clients, learned: &learned })
    }

    fn first(clients: &[Client], now_ms: u64) -> u64 {
        let plan = plan(clients, now_ms);
        let busy =
            plan.squad.members.iter().filter(|member| clients.iter().any(|one| one.id == member.who && one.busy));
        busy.map(|member| member.who.0).next().unwrap()
    }

    #[test]
    fn the_first_due_runs_and_those_without_a_goal_yield() {
        let mut clients = [job(1, 50, 1.0, 0.5), server(2, 2, 20), server(3, 2, 10)];
        assert_eq!(first(&clients, 0), 3);
        let link = |who, to| Yield { who: ClientId(who), to: ClientId(to) };
        assert_eq!(links(&clients), [link(1, 2), link(1, 3)]);
        clients[2].profile.request = Some(Duration::from_micros(9_800));
        assert_eq!(links(&clients), [link(1, 2), link(1, 3), link(2, 3)], "it cannot wait for a plan");
    }

    #[test]
    fn risk_goes_before_the_violation() {
        let clients = [server(1, 10, 20), server(2, 2, 9)];
        assert_eq!(first(&clients, 0), 2);
        let late_start = [server(1, 10, 14), server(2, 2, 30)];
        assert_eq!(first(&late_start, 3), 1, "it has 1 ms to spare, and is not late yet");
    }

    #[test]
    fn one_that_misses_most_does_not_make_others_late() {
        let mut clients = [server(1, 10, 5), server(2, 2, 9)];
        assert_eq!(first(&clients, 0), 1);
        clients[0].attainment = Some(0.3);
        assert_eq!(first(&clients, 0), 2);
    }

    #[test]
    fn a_reservation_survives_an_overload() {
        let mut reserved = job(1, 1_000, 1.0, 0.3);
        reserved.slo.reserve = Some("30%".parse().unwrap());
        let clients = [reserved, server(2, 4, 5), server(3, 4, 6), server(4, 4, 6)];
        assert_eq!(first(&clients, 5), 1);
    }

    #[test]
    fn one_that_has_waited_long_runs_and_yields_to_nobody_for_once() {
        let mut clients = [job(1, 50, 1.0, 0.5), server(2, 200, 10_000)];
        clients[1].waiting_since = None;
        assert_eq!(first(&clients, 199), 2);
        let plan = plan(&clients, 200);
        assert_eq!(plan.yields, [Yield { who: ClientId(2), to: ClientId(1) }], "the other is next in line");
        assert!(plan.runs(ClientId(1)));
        assert!(plan.reasons.contains(&(ClientId(1), Reason::WaitedLongest { waited: Duration::from_millis(200) })));
    }
}
