//! Everybody on GPUs in made-up time.

mod again;
mod division;
mod figures;
mod forged;
mod limits;
mod stage;

use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_model::kernels::{KernelNews, KernelRole};
use berth_model::settings::KernelPolicyName;
use berth_model::watch::Kind;
use berth_policy::kernels::Voice;
use berth_proto::shim::{MOST_YIELDS, Request};

use super::standing::Standing;

use self::stage::{Client, Stage, gpu, tenant};

const GOAL: &[(&str, &str)] = &[("latency", "p99:10ms")];
const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// One that leads and one that yields to it, linked.
fn pair(stage: &mut Stage) -> (Client, Client) {
    let (mut server, mut trainer) = (stage.client("server", GOAL), stage.client("trainer", &[]));
    stage.pass(ms(2), &mut [&mut server, &mut trainer]);
    assert_eq!((server.leads.len(), trainer.yields.len()), (1, 1), "the one yields to the other");
    (server, trainer)
}

#[test]
fn a_word_that_is_freed_for_a_while_comes_up_again_by_itself_and_goes_down_with_its_leader_s_work() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    server.works(true, stage.now);
    trainer.works(true, stage.now);
    server.raise(1);
    let (mut freed_at, mut up_again) = (None, false);
    stage.pass_while(ms(230), &mut [&mut server, &mut trainer], |step, clients| {
        let is_stopped = clients[1].is_stopped();
        freed_at = freed_at.or((!is_stopped).then_some(step));
        up_again |= freed_at.is_some() && is_stopped;
    });
    assert!(freed_at.is_some(), "nobody waits for longer than the longest wait");
    assert!(up_again, "its leader has had work all the time");
    server.works(false, stage.now);
    stage.pass(ms(1), &mut [&mut server, &mut trainer]);
    assert!(!trainer.is_stopped(), "what the daemon has raised it lowers");
}

#[test]
fn a_leader_that_comes_too_late_for_its_page_gets_another() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    let first = server.leads.keys().copied().next();
    stage.pass(Duration::from_secs(3), &mut [&mut server, &mut trainer]);
    assert_eq!(server.leads.keys().copied().next(), first, "it was in time");
    server.leads.values().for_each(|page| page.is_led.store(0, Ordering::SeqCst));
    stage.pass(ms(10), &mut [&mut server, &mut trainer]);
    assert_eq!((server.leads.len(), trainer.yields.len()), (1, 1));
    assert!(server.leads.keys().copied().next() > first);
}

#[test]
fn one_that_yields_to_more_than_its_library_takes_waits_for_the_others_by_the_daemon_s_word() {
    let mut stage = Stage::start();
    let mut trainer = stage.client("trainer", &[]);
    let first = stage.client("server", GOAL);
    let mut servers: Vec<Client> =
        std::iter::once(first).chain((1..20).map(|_| stage.client_on("server", 0))).collect();
    let mut everybody: Vec<&mut Client> = servers.iter_mut().chain([&mut trainer]).collect();
    stage.pass(ms(5), &mut everybody);
    assert!(trainer.yields.len() <= MOST_YIELDS, "{}", trainer.yields.len());
    trainer.works(true, stage.now);
    for number in 0..servers.len() {
        servers[number].works(true, stage.now);
        servers[number].raise(1);
        let mut everybody: Vec<&mut Client> = servers.iter_mut().chain([&mut trainer]).collect();
        stage.pass(ms(2), &mut everybody);
        let is_linked = !servers[number].leads.is_empty();
        assert!(trainer.is_stopped(), "by number {number}, linked: {is_linked}");
        servers[number].raise(0);
        servers[number].works(false, stage.now);
        let mut everybody: Vec<&mut Client> = servers.iter_mut().chain([&mut trainer]).collect();
        stage.pass(ms(2), &mut everybody);
        assert!(!trainer.is_stopped(), "nobody else has work");
    }
    assert!(servers.iter().any(|server| server.leads.is_empty()), "not all are linked");
}

#[test]
fn the_daemon_s_word_has_another_value_at_every_turn() {
    let mut stage = Stage::start();
    let (mut one, mut other) = (stage.client("one", &[]), stage.client("other", &[]));
    one.works(true, stage.now);
    other.works(true, stage.now);
    let mut words = Vec::new();
    stage.pass_while(ms(40), &mut [&mut one, &mut other], |_, clients| {
        let up = clients[0].yields.values().map(|page| page.word.load(Ordering::Acquire)).find(|word| *word != 0);
        words.extend(up.filter(|word| words.last() != Some(word)));
    });
    let distinct: std::collections::BTreeSet<u32> = words.iter().copied().collect();
    assert!(words.len() > 3 && distinct.len() == words.len(), "{words:?}");
}

#[test]
fn one_that_loses_its_lead_is_unlinked_at_once() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    server.works(true, stage.now);
    trainer.works(true, stage.now);
    let mut was_unlinked = false;
    stage.pass_while(Duration::from_secs(9), &mut [&mut server, &mut trainer], |_, clients| {
        was_unlinked |= clients[0].leads.is_empty();
        clients[0].raise(1);
    });
    assert!(stage.news("server").iter().any(|news| matches!(news, KernelNews::LeadLost { .. })) && was_unlinked);
    // Of two equals one stands in line behind the other at any moment.
    let role = stage.row("server").role;
    assert!(matches!(role, KernelRole::Equal | KernelRole::Yields), "{role:?}");
}

#[test]
fn one_that_is_held_leads_nobody_has_no_turns_and_is_linked_again_afterwards() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    server.works(true, stage.now);
    trainer.works(true, stage.now);
    server.raise(1);
    stage.pass(ms(1), &mut [&mut server, &mut trainer]);
    assert!(trainer.is_stopped());
    stage.knows("server", GOAL, |standing| standing.is_held = true);
    stage.pass(ms(1), &mut [&mut server, &mut trainer]);
    assert!(!trainer.is_stopped() && server.leads.is_empty(), "it would stop others for as long as it is held");
    let before = stage.row("server");
    stage.pass(ms(50), &mut [&mut server, &mut trainer]);
    let after = stage.row("server");
    assert_eq!((before.served_seconds, after.is_busy), (after.served_seconds, false), "its time is not counted");
    assert!(!trainer.is_stopped(), "it has no turns");
    stage.knows("server", GOAL, |_| ());
    stage.pass(ms(2), &mut [&mut server, &mut trainer]);
    assert!(!server.leads.is_empty() && trainer.is_stopped(), "it had work all the time");
}

#[test]
fn one_that_the_driver_has_not_seen_there_is_linked_with_nobody() {
    let mut stage = Stage::start();
    stage.knows("hostile", GOAL, |standing| standing.gpus.clear());
    let (mut hostile, mut trainer) = (stage.client_on("hostile", 0), stage.client("trainer", &[]));
    hostile.works(true, stage.now);
    trainer.works(true, stage.now);
    stage.pass(ms(20), &mut [&mut hostile, &mut trainer]);
    for client in [&hostile, &trainer] {
        assert!(client.leads.is_empty() && client.yields.is_empty(), "neither leads nor turns");
    }
    stage.knows("hostile", GOAL, |_| ());
    stage.pass(ms(20), &mut [&mut hostile, &mut trainer]);
    assert_eq!(hostile.leads.len(), 1, "it was seen");
}

#[test]
fn a_tenant_of_two_processes_has_one_share_of_leading() {
    let mut stage = Stage::start();
    let mut servers = [stage.client("server", GOAL), stage.client_on("server", 0)];
    let mut trainer = stage.client("trainer", &[]);
    let [one, other] = &mut servers;
    stage.pass(ms(2), &mut [one, other, &mut trainer]);
    let now = stage.now;
    [&*one, &*other, &trainer].into_iter().for_each(|client| client.works(true, now));
    // Each keeps the trainer stopped for half of the time.
    stage.pass_while(Duration::from_secs(9), &mut [one, other, &mut trainer], |step, clients| {
        let is_first = step % 20 < 10;
        clients[0].raise(is_first.into());
        clients[1].raise((!is_first).into());
    });
    assert!(stage.news("server").iter().any(|news| matches!(news, KernelNews::LeadLost { .. })));
}

#[test]
fn one_without_a_goal_that_others_wait_for_in_their_turn_loses_no_lead() {
    let mut stage = Stage::start();
    let (mut one, mut other) = (stage.client("one", &[]), stage.client("other", &[]));
    one.works(true, stage.now);
    other.works(true, stage.now);
    stage.pass_while(Duration::from_secs(9), &mut [&mut one, &mut other], |_, clients| clients[0].raise(1));
    assert!(!stage.news("one").iter().any(|news| matches!(news, KernelNews::LeadLost { .. })));
    assert_eq!(stage.row("one").role, KernelRole::Equal);
}

#[test]
fn a_limit_on_sms_is_none_on_leading() {
    let mut stage = Stage::start();
    let half = [("latency", "p99:10ms"), ("most", "50%")];
    let (mut server, mut trainer) = (stage.client("server", &half), stage.client("trainer", &[]));
    stage.pass(ms(20), &mut [&mut server, &mut trainer]);
    server.works(true, stage.now);
    trainer.works(true, stage.now);
    let mut stopped = 0;
    stage.pass_while(Duration::from_secs(3), &mut [&mut server, &mut trainer], |_, clients| {
        clients[0].raise(1);
        stopped += u32::from(clients[1].is_stopped());
    });
    assert!(stopped > 5_000, "it kept the other off nearly all the time: {stopped} of 6,000 looks");
    assert!(!stage.news("server").iter().any(|news| matches!(news, KernelNews::LeadLost { .. })));
}

#[test]
fn one_whose_owner_complains_gets_more_among_equals() {
    let mut stage = Stage::start();
    let (mut one, mut other) = (stage.client("one", &[]), stage.client("other", &[]));
    one.works(true, stage.now);
    other.works(true, stage.now);
    // As it was shown last: asking anew would pass time without a look.
    let served = |stage: &Stage, name: &str| {
        let rows = stage.shared.lock().unwrap().level.clone().unwrap().rows;
        rows.into_iter().find(|row| row.tenant == tenant(name)).map_or(0.0, |row| row.served_seconds)
    };
    let mut ratio = |stage: &mut Stage| {
        stage.pass(Duration::from_secs(4), &mut [&mut one, &mut other]);
        served(stage, "other") / served(stage, "one")
    };
    let equal = ratio(&mut stage);
    assert!((0.95..1.05).contains(&equal), "{equal}");
    stage.knows("other", &[], |standing| standing.voice = Voice::new(1.25));
    let heard = ratio(&mut stage);
    assert!((1.15..1.3).contains(&heard), "{heard}");
    // All that can be said and found together.
    stage.knows("other", &[], |standing| {
        (standing.voice, standing.urged_by) = (Voice::new(100.0), vec![Kind::Starvation]);
    });
    let before = served(&stage, "one");
    let most = ratio(&mut stage);
    assert!((1.7..2.2).contains(&most), "{most}");
    assert!(served(&stage, "one") > before, "and nobody starves for it");
    assert_eq!(stage.row("other").urged_by, [Kind::Starvation]);
}

#[test]
fn slices_are_as_the_driver_has_them_while_somebody_is_there_who_takes_no_part() {
    let mut stage = Stage::with(|settings| {
        settings.yield_slice = berth_model::Span(Duration::from_micros(250));
        settings.lead_slice = berth_model::Span::from_millis(8);
    });
    let (mut server, mut trainer) = pair(&mut stage);
    let slices = |client: &Client| {
        let (yields, leads) = (&client.lane().yield_slice_us, &client.lane().lead_slice_us);
        (yields.load(Ordering::Relaxed), leads.load(Ordering::Relaxed))
    };
    let indices = || [(gpu(0), berth_model::GpuIndex(0))].into();
    let seen = |pids: &[u32]| [(gpu(0), pids.iter().copied().collect())].into();
    let own = std::process::id();
    for (pids, expected) in [(&[own][..], (250, 8_000)), (&[own, 1], (0, 0)), (&[], (250, 8_000))] {
        stage.world.meet_gpus(indices(), seen(pids));
        stage.pass(ms(5), &mut [&mut server, &mut trainer]);
        assert_eq!((slices(&server), slices(&trainer)), (expected, expected), "{pids:?}");
    }
}

#[test]
fn each_gpu_is_planned_by_its_own_policy() {
    let mut stage = Stage::start();
    stage.world.meet_gpus([(gpu(0), berth_model::GpuIndex(0)), (gpu(1), berth_model::GpuIndex(1))].into(), [].into());
    stage.world.set_policy(Some(gpu(1)), KernelPolicyName::Off, stage.now);
    let mut on_first = [stage.client_on("one", 0), stage.client_on("other", 0)];
    let mut on_second = [stage.client_on("one", 1), stage.client_on("other", 1)];
    let everywhere = |standing: &mut Standing| standing.gpus = [gpu(0), gpu(1)].into();
    stage.knows("one", &[], everywhere);
    stage.knows("other", &[], everywhere);
    let now = stage.now;
    on_first.iter().chain(&on_second).for_each(|client| client.works(true, now));
    let [one, other] = &mut on_first;
    let [third, fourth] = &mut on_second;
    stage.pass(ms(20), &mut [one, other, third, fourth]);
    assert!(on_first.iter().any(|client| !client.yields.is_empty()), "there is a policy");
    assert!(on_second.iter().all(|client| client.yields.is_empty()), "there is none");
    let level = stage.level();
    let own: Vec<_> = level.gpu_policies.iter().map(|own| (own.gpu_index, own.policy)).collect();
    assert_eq!(own, [(Some(berth_model::GpuIndex(1)), KernelPolicyName::Off)]);
    assert_eq!(level.policy, KernelPolicyName::Hybrid);
}

#[test]
fn requests_are_counted_as_the_library_tells_of_them_however_seldom_it_is_looked() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    // Each of 1 ms, and one in ten of 20 ms; none of them is under way at a look.
    for number in 0..100u64 {
        let took_ns = if number % 10 == 0 { 20_000_000 } else { 1_000_000 };
        let request = Request { lane: 0, pieces: 3, began_ns: stage.now.0 - 30_000_000 + number, took_ns };
        server.ledger.requests[usize::try_from(number).unwrap()].write(&request);
    }
    server.ledger.requested.store(100, Ordering::Release);
    server.ledger.lanes[0].requests.store(100, Ordering::Release);
    stage.pass(ms(2), &mut [&mut server, &mut trainer]);
    let row = stage.row("server");
    assert_eq!((row.attainment, row.requests.requests), (Some(0.9), 100));
    assert_eq!((row.requests.request_p50_seconds, row.requests.request_p99_seconds), (Some(0.001), Some(0.02)));
}
