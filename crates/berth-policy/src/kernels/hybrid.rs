//! `hybrid`: the most work that counts, with fairness.
//!
//! > max over squads and shares of Σ_m w_m(t) × T_eff(m) × Q_m × F_m
//!
//! *w* is the weight people set times what their owner's words make of it, times the one that follows missed goals (`weights`). *Shares* are by weight, or those
//! of the cut that is worth most (`squad`). *Q* is what the work under way is worth at that speed: `kernels.late_worth`, a quarter, of a tenant that misses most of its goals anyway
//! and will be late again. Others that would be late go first, whatever that is worth, so Q has no say of them. *F* is fairness, part of the objective and not a correction after it: finish-time fairness, the time the work has
//! taken so far over what it would have taken with an equal part of the GPU, users first. Below 1 a client is better off than alone with its part, above 1 it
//! pays for others; F is that ratio between [`LEAST_FAIR`] and [`MOST_FAIR`], so that fairness orders what is alike, and cannot by itself
//! outweigh a goal. How even it came out, as Jain's index ([`jain`]), whoever measures windows reports (`auto`).
//!
//! Company among those without a promise is tried as long as it may pay, and whoever comes there begins beside them at once: so where nobody quarrels, all
//! run at once.
//!
//! A promise at risk goes first, as under `slo`; unlike there, one with time to spare does not stop others: those without a goal yield to it only if company
//! would make it late or does not pay.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::settings::KernelSettings;

use super::crowd::{Crowd, Turn};
use super::frame::{self, busy};
use super::interference::Trust;
use super::promise::{Promise, left, promise};
use super::slo::{promises, soon};
use super::squad::{self, Choice, Late, Runner, Wish, Worth};
use super::weights::is_in_time;
use super::welcome::welcome;
use super::{Client, ClientId, KernelPolicy, Plan, Reason, Scene, Yield, search};

const LEAST_FAIR: f64 = 0.5;
const MOST_FAIR: f64 = 2.0;
/// Younger work has no history that could be unfair.
const YOUNG: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, Default)]
pub struct Hybrid {
    pub settings: KernelSettings,
}

impl KernelPolicy for Hybrid {
    fn name(&self) -> &'static str {
        "hybrid"
    }

    fn plan(&self, scene: &Scene<'_>) -> Plan {
        let promises = promises(scene, &self.settings);
        let at_risk = promises.iter().find(|one| !one.is_lost() && one.is_at_risk(scene.now, soon(&self.settings)));
        let crowd = Crowd::of(scene);
        let worths = Worths::new(scene, &crowd, &self.settings);
        let ranked = ranked(scene, &crowd, &worths);
        let choice = self.choice(scene, &worths, at_risk, &ranked);
        let reasons = reasons(scene, &ranked, at_risk, &choice);
        let welcome = welcome(scene, &self.settings, &choice, Trust::Bold);
        frame::plan(scene, &self.settings, &choice, &welcome, &ranked, self.yields(scene), reasons)
    }
}

impl Hybrid {
    /// One at risk is in it, whatever others are worth, and nobody in it is late for the company.
    fn choice<'a>(
        &self,
        scene: &Scene<'a>,
        worths: &Worths,
        at_risk: Option<&Promise<'a>>,
        ranked: &[&'a Client],
    ) -> Choice<'a> {
        let first = squad::overdue(scene, &self.settings).or(at_risk.map(|promise| promise.client));
        let worth = |client: &Client| worths.of(client);
        let allows = |runners: &[Runner<'_>]| all_in_time(scene, runners);
        let weight = |client: &Client| weight(scene, client);
        let wish = Wish {
            ranked: ranked.to_vec(),
            first,
            weight: &weight,
            worth: &worth,
            allows: &allows,
            trust: Trust::Bold,
        };
        search::choose(scene, &self.settings, &wish)
    }

    fn yields(&self, scene: &Scene<'_>) -> Vec<Yield> {
        let leaders = scene.clients.iter().filter(|client| client.slo.within().is_some());
        leaders
            .flat_map(|to| {
                let others = scene.clients.iter().filter(|who| who.id != to.id && !who.slo.promises());
                let gives_way = others.filter(|who| !self.fits_beside(scene, who, to));
                gives_way.map(|who| Yield { who: who.id, to: to.id })
            })
            .collect()
    }

    /// Both get more done together, and the one with a goal has the time for it.
    fn fits_beside(&self, scene: &Scene<'_>, who: &Client, to: &Client) -> bool {
        let apart = who.slo.constraints.apart || to.slo.constraints.apart;
        let met = to.attainment.is_none_or(|attained| attained >= to.slo.target().get());
        let takes = to.profile.request.or(to.work.and_then(|work| work.takes));
        let (Some(takes), Some(within)) = (takes, to.slo.within()) else { return false };
        // A request may queue behind one before it. What is known without the company is asked first: there are many pairs.
        let has_time = |speed: f64| takes.as_secs_f64() * 2.0 <= within.as_secs_f64() * speed;
        if apart || !met || !scene.gpu.concurrent || !has_time(1.0) {
            return false;
        }
        let [to, who] = squad::side_by_side(scene, &self.settings, [to, who], Trust::Careful);
        has_time(to) && to + who > 1.1
    }
}

/// Those who want the GPU, the one worth most first.
fn ranked<'a>(scene: &Scene<'a>, crowd: &Crowd<'a>, worths: &Worths) -> Vec<&'a Client> {
    let mut ranked: Vec<(f64, Turn, &Client)> =
        busy(scene).map(|client| (worths.of(client).at(1.0), crowd.turn(client), client)).collect();
    ranked.sort_by(|one, other| other.0.total_cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    ranked.into_iter().map(|(.., client)| client).collect()
}

fn weight(scene: &Scene<'_>, client: &Client) -> f64 {
    client.weight() * scene.learned.weights.of(client.id)
}

/// What it is worth that those who want the GPU get on.
struct Worths {
    each: BTreeMap<ClientId, Worth>,
}

impl Worths {
    /// w × F, and Q of a promise that is lost.
    fn new(scene: &Scene<'_>, crowd: &Crowd<'_>, settings: &KernelSettings) -> Self {
        let worth = f64::from(settings.late_worth.get()) / 100.0;
        let late = |client: &Client| {
            let promise = promise(client, scene.now).filter(Promise::is_lost)?;
            Some(Late { left: left(client), due_in: promise.due.since(scene.now), worth })
        };
        let of = |client: &Client| {
            let fair = finish_time_fairness(scene, crowd, client).unwrap_or(1.0).clamp(LEAST_FAIR, MOST_FAIR);
            Worth { counts: weight(scene, client) * fair, late: late(client) }
        };
        Self { each: busy(scene).map(|client| (client.id, of(client))).collect() }
    }

    /// Who wants nothing gets on with nothing.
    fn of(&self, client: &Client) -> Worth {
        self.each.get(&client.id).copied().unwrap_or(Worth::of(0.0))
    }
}

/// Time the work under way has taken, over what it would have taken with an equal part of the GPU: users share alike, then their tenants, then the
/// processes of each. `None` before anything can be said.
pub fn finish_time_fairness(scene: &Scene<'_>, crowd: &Crowd<'_>, client: &Client) -> Option<f64> {
    let work = client.work?;
    let taken = scene.now.since(work.began);
    if taken < YOUNG {
        return None;
    }
    let alone = work.done.as_secs_f64() * crowd.equals(client);
    Some(taken.as_secs_f64() / alone.max(YOUNG.as_secs_f64() / 10.0))
}

/// Jain's index: 1 if all are equal, 1/n if one has everything; `None` of nothing.
pub fn jain(parts: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for part in parts {
        (count, sum, squares) = (count + 1.0, sum + part, squares + part * part);
    }
    (squares > 0.0).then(|| sum * sum / (count * squares))
}

fn all_in_time(scene: &Scene<'_>, runners: &[Runner<'_>]) -> bool {
    runners.iter().all(|runner| {
        let promise = promise(runner.client, scene.now);
        promise.is_none_or(|promise| is_in_time(promise.left, runner.speed, promise.due.since(scene.now)))
    })
}

fn reasons(
    scene: &Scene<'_>,
    ranked: &[&Client],
    at_risk: Option<&Promise<'_>>,
    choice: &Choice<'_>,
) -> Vec<(ClientId, Reason)> {
    let of = |client: &&Client| {
        let runs = choice.runners.iter().any(|runner| runner.client.id == client.id);
        let risk = at_risk.filter(|promise| promise.client.id == client.id);
        let reason = match risk {
            _ if ranked.len() == 1 => Reason::NobodyElse,
            Some(promise) if runs => Reason::AtRisk { due_in: promise.due.since(scene.now) },
            Some(_) | None if runs => Reason::BestTogether { score: choice.value },
            Some(_) | None => Reason::OthersBetter { score: choice.value },
        };
        (client.id, reason)
    };
    ranked.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use berth_model::slo::Latency;
    use berth_model::{Mono, Span};
    use proptest::prelude::*;

    use super::super::laws::{clients, places};
    use super::super::testing::{PLACE, job};
    use super::super::{Learned, Place, Voice, Work};
    use super::*;

    fn plan(clients: &[Client], now_ms: u64, learned: &Learned, gpu: Place) -> Plan {
        let now = Mono(0) + Duration::from_millis(now_ms);
        Hybrid::default().plan(&Scene { now, gpu, clients, learned })
    }

    fn runs(plan: &Plan) -> Vec<u64> {
        plan.squad.members.iter().map(|member| member.who.0).collect()
    }

    fn server(id: u64, left_ms: u64, within_ms: u64) -> Client {
        let latency = Some(Latency { percentile: "99%".parse().unwrap(), within: Span::from_millis(within_ms) });
        let slo = super::super::Slo { latency, ..Default::default() };
        Client { slo, ..job(id, left_ms, 0.4, 0.1) }
    }

    #[test]
    fn one_with_time_to_spare_runs_beside_another_and_one_at_risk_has_the_gpu_if_it_needs_it() {
        let learned = Learned::default();
        let relaxed = plan(&[server(1, 2, 50), job(2, 100, 0.5, 0.1)], 0, &learned, PLACE);
        assert_eq!((runs(&relaxed), relaxed.yields.len()), (vec![1, 2], 0));
        let tight = plan(&[Client { ..server(1, 2, 3) }, job(2, 100, 1.0, 0.9)], 1, &learned, PLACE);
        assert_eq!((runs(&tight), tight.yields.len()), (vec![1], 1));
    }

    #[test]
    fn one_that_misses_its_goals_counts_more() {
        let mut learned = Learned::default();
        let turns = Place { concurrent: false, ..PLACE };
        let mut clients = [job(1, 50, 1.0, 0.5), job(2, 50, 1.0, 0.5)];
        assert_eq!(runs(&plan(&clients, 0, &learned, turns)), [1]);
        (clients[0].attainment, clients[1].attainment) = (Some(1.0), Some(0.2));
        let looks = (0..20).map(|look| Mono(0) + Duration::from_millis(2 * look));
        looks.for_each(|now| learned.weights.follow(&clients, &KernelSettings::default(), now));
        assert_eq!(runs(&plan(&clients, 0, &learned, turns)), [2]);
    }

    #[test]
    fn one_whose_owner_calls_it_slow_counts_more() {
        let learned = Learned::default();
        let turns = Place { concurrent: false, ..PLACE };
        let mut clients = [job(1, 50, 1.0, 0.5), job(2, 50, 1.0, 0.5)];
        clients[1].voice = Voice::new(1.5);
        assert_eq!(runs(&plan(&clients, 0, &learned, turns)), [2]);
        clients[0].voice = Voice::new(1.6);
        assert_eq!(runs(&plan(&clients, 0, &learned, turns)), [1]);
    }

    #[test]
    fn one_that_is_behind_its_part_goes_before_its_equals() {
        let learned = Learned::default();
        let done = |id: u64, ms: u64| {
            let mut client = job(id, 100, 1.0, 0.5);
            client.work = client.work.map(|work| Work { done: Duration::from_millis(ms), ..work });
            client
        };
        let turns = Place { concurrent: false, ..PLACE };
        assert_eq!(runs(&plan(&[done(1, 12), done(2, 8)], 20, &learned, turns)), [2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Loud ones get more of what is left, and nothing of what was promised.
        #[test]
        fn what_owners_say_breaks_no_promise(clients in clients(), gpu in places()) {
            let learned = Learned::default();
            let (now, hybrid) = (Mono(0) + Duration::from_millis(400), Hybrid::default());
            let scene = Scene { now, gpu, clients: &clients, learned: &learned };
            let promises = promises(&scene, &hybrid.settings);
            let at_risk = promises.iter().find(|one| !one.is_lost() && one.is_at_risk(now, soon(&hybrid.settings)));
            let crowd = Crowd::of(&scene);
            let worths = Worths::new(&scene, &crowd, &hybrid.settings);
            let choice = hybrid.choice(&scene, &worths, at_risk, &ranked(&scene, &crowd, &worths));
            prop_assert!(choice.runners.len() <= 1 || all_in_time(&scene, &choice.runners));
            let overdue = squad::overdue(&scene, &hybrid.settings);
            let has_it = |who: ClientId| choice.runners.iter().any(|runner| runner.client.id == who);
            prop_assert!(overdue.is_none_or(|client| has_it(client.id)));
            prop_assert!(overdue.is_some() || at_risk.is_none_or(|promise| has_it(promise.client.id)));
            let silent: Vec<Client> =
                clients.iter().map(|client| Client { voice: Voice::default(), ..client.clone() }).collect();
            let unsaid = Scene { clients: &silent, ..scene };
            prop_assert_eq!(hybrid.yields(&scene), hybrid.yields(&unsaid), "nobody yields for what is said");
        }
    }

    #[test]
    fn jains_index_tells_equal_from_all_to_one() {
        assert_eq!(jain([2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(jain([5.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain([]), None);
    }
}
