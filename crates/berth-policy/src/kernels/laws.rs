//! Laws that hold for every policy and any scene.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_model::settings::{Division, KernelPolicyName, KernelSettings};
use berth_model::slo::{Latency, Share, Slo, Throughput};
use berth_model::{Mono, Span};
use proptest::prelude::*;

use super::testing::{PLACE, job};
use super::{Client, KernelPolicy, Learned, Part, Place, Plan, Scene, Side, Voice, Work, frame, named, squad};

fn settings(division: Division) -> KernelSettings {
    KernelSettings { division, ..KernelSettings::default() }
}

fn policies(division: Division) -> Vec<Box<dyn KernelPolicy>> {
    KernelPolicyName::ALL.into_iter().filter_map(|name| named(name, &settings(division))).collect()
}

fn divisions() -> impl Strategy<Value = Division> {
    prop_oneof![Just(Division::Strict), Just(Division::Unrestricted), Just(Division::SemiSpatial)]
}

pub fn places() -> impl Strategy<Value = Place> {
    any::<(bool, bool)>().prop_map(|(divides, concurrent)| Place { divides, concurrent, ..PLACE })
}

fn slos() -> impl Strategy<Value = Slo> {
    let share = (1..=1_000_000u32).prop_map(|part| Share::from_millionths(part).unwrap());
    let latency =
        (1..100u64).prop_map(|ms| Latency { percentile: "99%".parse().unwrap(), within: Span::from_millis(ms) });
    let throughput = prop_oneof![
        (1..1_000_000u64).prop_map(Throughput::MilliPerSecond),
        share.clone().prop_map(Throughput::OfAlone)
    ];
    let some = |share| prop::option::weighted(0.2, share);
    (
        some(share.clone().boxed()),
        prop::option::weighted(0.4, latency),
        prop::option::weighted(0.2, throughput),
        some(share.boxed()),
        any::<bool>(),
    )
        .prop_map(|(reserve, latency, throughput, availability, apart)| {
            let mut slo = Slo { reserve, latency, throughput, availability, ..Slo::default() };
            slo.constraints.apart = apart && reserve.is_none();
            slo
        })
}

/// Anything that can be said of clients, some of which want the GPU.
pub fn clients() -> impl Strategy<Value = Vec<Client>> {
    let one = (
        slos(),
        any::<bool>(),
        0..400u64,
        1..500u64,
        0.0..=1.0f64,
        0.0..=1.0f64,
        0..200u64,
        0..3u8,
        prop::option::of((1..200u64).prop_map(Duration::from_millis)),
        0.1..4.0f64,
    );
    prop::collection::vec(one, 0..12).prop_map(|all| {
        let client = |(id, (slo, busy, waited, takes, demand, bandwidth, done, user, request, voice))| {
            let mut client = Client { slo, busy, ..job(id, takes, demand, bandwidth) };
            let done = Duration::from_millis(done);
            client.waiting_since = busy.then(|| Mono(0) + Duration::from_millis(400 - waited));
            client.work = client.work.filter(|_| busy).map(|work| Work { done, ..work });
            client.owner = Some(format!("user{user}"));
            client.profile.request = request;
            client.served_ns = id * 1_000_000;
            client.voice = Voice::new(voice);
            client
        };
        (1..).zip(all).map(client).collect()
    })
}

fn wanted(clients: &[Client]) -> usize {
    clients.iter().filter(|client| client.busy).count()
}

/// Whether links lead in a circle.
fn comes_back(plan: &Plan) -> bool {
    let mut links = plan.yields.clone();
    // Whoever yields to nobody can be in no circle, and nor can a link to it.
    while let Some(end) = links.iter().map(|link| link.to).find(|to| links.iter().all(|link| link.who != *to)) {
        links.retain(|link| link.to != end);
    }
    !links.is_empty()
}

/// Whoever carries the plan out needs to know nothing else: which SMs each has, that no two sides meet, and when that ends.
fn divides(clients: &[Client], gpu: Place, plan: &Plan) -> Result<(), TestCaseError> {
    let has_latency = |who| clients.iter().any(|client| client.id == who && client.slo.within().is_some());
    let busy = |who| clients.iter().any(|client| client.id == who && client.busy);
    let free = plan.squad.members.iter().filter(|member| member.part.is_none() && busy(member.who));
    let free: Vec<bool> = free.map(|member| has_latency(member.who)).collect();
    let parts: Vec<Part> = plan.squad.members.iter().filter_map(|member| member.part).collect();
    prop_assert!(parts.is_empty() || (gpu.divides && gpu.concurrent), "nothing is divided where nothing can be");
    prop_assert_eq!(parts.is_empty(), plan.squad.division == Division::Unrestricted);
    let (first, rest): (Vec<&Part>, Vec<&Part>) = parts.iter().partition(|part| part.side == Side::First);
    prop_assert!(parts.is_empty() || free.iter().all(|has_latency| *has_latency), "all others are confined");
    prop_assert!(
        first.len() <= 1 && (parts.is_empty() || parts.len() + free.len() > 1),
        "one has the one side, others the other"
    );
    prop_assert!(first.is_empty() || !rest.is_empty() || !free.is_empty());
    for part in &parts {
        prop_assert!(part.split == parts[0].split && part.until == parts[0].until, "one cut, and one end of it");
        prop_assert!(part.split % 8 == 0 && part.sms(gpu.sms) >= 8 && part.range(gpu.sms).end <= gpu.sms, "{part:?}");
        prop_assert_eq!(part.until.is_some(), plan.squad.division == Division::SemiSpatial);
        prop_assert!(part.until.is_none_or(|until| until < plan.squad.until));
    }
    let apart = first.iter().all(|one| rest.iter().all(|part| one.range(gpu.sms).end <= part.range(gpu.sms).start));
    prop_assert!(apart, "no SM is given out twice");
    Ok(())
}

fn check(clients: &[Client], gpu: Place, plan: &Plan) -> Result<(), TestCaseError> {
    let known: BTreeSet<_> = clients.iter().map(|client| client.id).collect();
    let members: BTreeSet<_> = plan.squad.members.iter().map(|member| member.who).collect();
    prop_assert!(members.is_subset(&known) && members.len() == plan.squad.members.len(), "each once, and known");
    let runs = clients.iter().filter(|client| client.busy && members.contains(&client.id)).count();
    prop_assert!(wanted(clients) == 0 || runs > 0, "the GPU does not idle while somebody wants it");
    prop_assert!(gpu.concurrent || runs <= 1, "without MPS one at a time");
    divides(clients, gpu, plan)?;
    prop_assert!(
        plan.yields.iter().all(|link| link.who != link.to && known.contains(&link.who) && known.contains(&link.to))
    );
    prop_assert!(!comes_back(plan), "nobody yields to itself over others: all of them would stand still");
    let busy: BTreeSet<_> = clients.iter().filter(|client| client.busy).map(|client| client.id).collect();
    let idles = plan
        .yields
        .iter()
        .any(|link| members.contains(&link.who) && busy.contains(&link.who) && busy.contains(&link.to));
    prop_assert!(!idles, "who may run is not stopped by one that waits");
    let is_busy = |who| busy.contains(&who);
    let next = busy.iter().filter(|who| !plan.runs(**who) && !plan.waits(**who, is_busy)).count();
    let waiting = busy.iter().filter(|who| !plan.runs(**who)).count();
    // Whoever yields to one that runs by the policy's own links goes on by itself behind the line, too.
    prop_assert!(next >= waiting.min(frame::IN_LINE), "those that wait go on when those before them are done: {next}");
    prop_assert_eq!(plan.orders.len(), clients.len());
    let (apart, others): (Vec<&Client>, Vec<&Client>) = clients
        .iter()
        .filter(|client| client.busy && members.contains(&client.id))
        .partition(|client| client.slo.constraints.apart);
    prop_assert!(apart.is_empty() || (apart.len() == 1 && others.is_empty()), "one that is to be apart is");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_plan_is_one_that_can_be_carried_out(clients in clients(), gpu in places(), division in divisions()) {
        let learned = Learned::default();
        let scene = Scene { now: Mono(0) + Duration::from_millis(400), gpu, clients: &clients, learned: &learned };
        for policy in policies(division) {
            check(&clients, gpu, &policy.plan(&scene))?;
        }
    }

    #[test]
    fn the_same_scene_gives_the_same_plan_in_whatever_order_clients_are_told(clients in clients(), gpu in places()) {
        let learned = Learned::default();
        let now = Mono(0) + Duration::from_millis(400);
        let turned: Vec<Client> = clients.iter().rev().cloned().collect();
        for policy in policies(Division::SemiSpatial) {
            let plan = policy.plan(&Scene { now, gpu, clients: &clients, learned: &learned });
            prop_assert_eq!(&plan, &policy.plan(&Scene { now, gpu, clients: &clients, learned: &learned }));
            prop_assert_eq!(&plan, &policy.plan(&Scene { now, gpu, clients: &turned, learned: &learned }));
        }
    }

    /// Everybody wants the GPU all the time. Whoever is in a squad and yields to nobody has had its turn.
    #[test]
    fn nobody_waits_beyond_the_bound(
        mut clients in clients(), gpu in places(), rounds in 150..300usize, switches in prop::collection::vec(0..3usize, 1..8),
    ) {
        clients.iter_mut().for_each(|client| {
            client.busy = true;
            client.waiting_since = Some(Mono(0));
        });
        let (learned, settings) = (Learned::default(), settings(Division::SemiSpatial));
        let bound = squad::longest_wait(clients.len(), &settings);
        let policies = policies(Division::SemiSpatial);
        let mut now = Mono(0);
        for round in 0..rounds {
            let policy = &policies[switches[round % switches.len()]];
            let plan = policy.plan(&Scene { now, gpu, clients: &clients, learned: &learned });
            now = plan.squad.until;
            for client in &mut clients {
                let stopped = plan.yields.iter().any(|link| link.who == client.id);
                let runs = plan.runs(client.id) && !stopped;
                if runs {
                    client.waiting_since = None;
                    client.served_ns += 2_000_000;
                } else {
                    client.waiting_since = client.waiting_since.or(Some(now.before(settings.squad.get())));
                }
                prop_assert!(client.waited(now) <= bound, "{} waits {:?}", client.id, client.waited(now));
            }
        }
    }
}
