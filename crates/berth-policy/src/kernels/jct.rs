//! `jct`: jobs end as soon as possible on average.
//!
//! Alone, the one with the least left to do goes first: of *n* jobs, each unit of time that one at place *i* of that order gets on brings the end of *n − i* jobs
//! forward by as much, its own and those of all behind it. So running a set S for a moment is worth
//!
//! > Σ_{m ∈ S} (n − i_m) × T_eff(m)
//!
//! of completion time, summed over all jobs. The first alone is worth *n*; company is taken where the sum is more by a margin: what the first loses
//! delays all, what the second gains helps only those from its place on. With careful predictions it is never worse than shortest first, and
//! where sharing pays, better. Estimates correct themselves with progress (`promise`).
//!
//! A job with much left yields, inline, to those that serve and whose requests are short, unless running beside them pays. Goals are not looked at,
//! but for one: who says that it is one job whose end counts serves nobody.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::settings::KernelSettings;

use super::crowd::Crowd;
use super::frame::{self, busy};
use super::interference::Trust;
use super::promise::left;
use super::squad::{self, Wish, Worth};
use super::{Client, ClientId, KernelPolicy, Plan, Reason, Scene, Yield, search};

/// Who asks for more than so many times what one that serves requests does yields to it.
const MUCH_LONGER: u32 = 4;

#[derive(Debug, Clone, Default)]
pub struct Jct {
    pub settings: KernelSettings,
}

impl KernelPolicy for Jct {
    fn name(&self) -> &'static str {
        "jct"
    }

    fn plan(&self, scene: &Scene<'_>) -> Plan {
        let order = shortest_first(scene);
        let ahead: BTreeMap<ClientId, usize> = order.iter().map(|client| client.id).zip(0..).collect();
        let worth = |client: &Client| Worth::of((order.len() - ahead[&client.id]) as f64);
        let first = squad::overdue(scene, &self.settings);
        let wish = Wish {
            ranked: order.clone(),
            first,
            weight: &|_| 1.0,
            worth: &worth,
            allows: &|_| true,
            trust: Trust::Careful,
        };
        let choice = search::choose(scene, &self.settings, &wish);
        let reasons = reasons(&order, &choice);
        frame::plan(scene, &self.settings, &choice, &[], &order, self.yields(scene), reasons)
    }
}

impl Jct {
    /// From much larger to smaller only, so that nobody comes to yield to itself over others.
    fn yields(&self, scene: &Scene<'_>) -> Vec<Yield> {
        let serves = scene.clients.iter().filter(|client| client.profile.request.is_some() && !client.slo.completion);
        let gives_way = |who: &Client, to: &Client| size(who) > size(to) * MUCH_LONGER && !self.pays(scene, who, to);
        serves
            .flat_map(|to| {
                let who = scene.clients.iter().filter(move |who| gives_way(who, to));
                who.map(move |who| Yield { who: who.id, to: to.id })
            })
            .collect()
    }

    fn pays(&self, scene: &Scene<'_>, one: &Client, other: &Client) -> bool {
        let apart = one.slo.constraints.apart || other.slo.constraints.apart;
        scene.gpu.concurrent && !apart && squad::together(scene, &self.settings, one, other, Trust::Careful) > 1.3
    }
}

/// What it asks for: what is left of its work, or a usual request.
fn size(client: &Client) -> Duration {
    client.profile.request.filter(|_| !client.busy).unwrap_or_else(|| left(client))
}

/// Those who want the GPU by what they have left, where that is equal by what they have had.
pub fn shortest_first<'a>(scene: &Scene<'a>) -> Vec<&'a Client> {
    let crowd = Crowd::of(scene);
    let mut order: Vec<&Client> = busy(scene).collect();
    order.sort_by_cached_key(|client| (left(client), crowd.turn(client)));
    order
}

fn reasons(order: &[&Client], choice: &squad::Choice<'_>) -> Vec<(ClientId, Reason)> {
    let Some(head) = choice.runners.first() else {
        return Vec::new();
    };
    let of = |client: &&Client| {
        let runner = choice.runners.iter().find(|runner| runner.client.id == client.id);
        let reason = match runner {
            _ if order.len() == 1 => Reason::NobodyElse,
            Some(_) if client.id == head.client.id => Reason::LeastLeft { left: left(client) },
            Some(runner) => Reason::PaysBeside { who: head.client.id, speed: runner.speed },
            None => Reason::LessLeft { who: head.client.id, left: left(head.client) },
        };
        (client.id, reason)
    };
    order.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use berth_model::Mono;

    use super::super::interference::Phi;
    use super::super::testing::{PLACE, job};
    use super::super::{CoRun, Learned, Place, Profile, Work};
    use super::*;

    fn members(clients: &[Client], learned: &Learned, gpu: Place) -> Vec<u64> {
        let scene = Scene { now: Mono(1), gpu, clients, learned };
        Jct::default().plan(&scene).squad.members.iter().map(|member| member.who.0).collect()
    }

    #[test]
    fn the_shortest_goes_first_and_a_small_one_runs_beside_it() {
        let learned = Learned::default();
        let clients = [job(1, 50, 1.0, 0.5), job(2, 5, 0.5, 0.1), job(3, 20, 0.5, 0.1)];
        assert_eq!(members(&clients, &learned, PLACE), [2, 3]);
        assert_eq!(members(&clients, &learned, Place { concurrent: false, ..PLACE }), [2]);
    }

    #[test]
    fn company_that_slows_the_first_more_than_it_helps_the_others_is_not_taken() {
        let mut learned = Learned::default();
        let clients = [job(1, 5, 0.5, 0.1), job(2, 50, 0.5, 0.1), job(3, 51, 1.0, 0.9)];
        assert_eq!(members(&clients, &learned, PLACE), [1, 2]);
        let beside = vec![(ClientId(2), 0.5)];
        let seen = CoRun { who: ClientId(1), share: 0.5, speed: 0.3, beside };
        (0..60).for_each(|_| learned.interference.saw(&seen, Phi::of(&KernelSettings::default())));
        assert_eq!(members(&clients, &learned, PLACE), [1]);
    }

    #[test]
    fn of_equals_the_one_goes_first_whose_user_had_less() {
        let learned = Learned::default();
        let mut clients = [job(1, 5, 1.0, 1.0), job(2, 5, 1.0, 1.0), job(3, 5, 1.0, 1.0)];
        clients[0].owner = Some("ann".to_owned());
        clients[1].owner = Some("ann".to_owned());
        clients[0].served_ns = 0;
        clients[1].served_ns = 9_000_000;
        clients[2].served_ns = 5_000_000;
        assert_eq!(
            members(&clients, &learned, PLACE),
            [3],
            "ann's two had more together, though one of them had nothing"
        );
    }

    #[test]
    fn a_long_job_yields_inline_to_one_with_short_requests() {
        let learned = Learned::default();
        let mut clients = [job(1, 500, 1.0, 0.9), job(2, 2, 1.0, 0.5)];
        clients[1].profile = Profile { request: Some(Duration::from_millis(2)), ..clients[1].profile };
        clients[1].busy = false;
        let scene = Scene { now: Mono(1), gpu: PLACE, clients: &clients, learned: &learned };
        let plan = Jct::default().plan(&scene);
        assert_eq!(plan.yields, [Yield { who: ClientId(1), to: ClientId(2) }]);
        assert!(plan.runs(ClientId(2)), "it may begin without waiting for a plan");
        clients[1].work = clients[1].work.map(|work| Work { done: Duration::from_millis(900), ..work });
        clients[1].busy = true;
        let scene = Scene { now: Mono(1), gpu: PLACE, clients: &clients, learned: &learned };
        assert_eq!(Jct::default().yields(&scene), [], "this one takes as long itself");
        clients[1].busy = false;
        clients[1].slo.completion = true;
        let scene = Scene { now: Mono(1), gpu: PLACE, clients: &clients, learned: &learned };
        assert_eq!(Jct::default().yields(&scene), [], "a job serves nobody");
    }
}
