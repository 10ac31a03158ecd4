//! Words, times and claims that somebody forges, and penalties that somebody would be rid of.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_host::shim::CLIENTS;
use berth_model::kernels::KernelNews;

use super::super::CONTENDED;
use super::super::standing::Standing;
use super::stage::{Client, Stage, tenant};
use super::{GOAL, ms, pair};

/// At work for the first of these milliseconds of every twenty, with its words up meanwhile.
fn serves(server: &Client, step: u32, busy_ms: u32, stage_now: berth_model::Mono) {
    let is_busy = step % 40 < busy_ms * 2;
    if [0, busy_ms * 2].contains(&(step % 40)) {
        server.works(is_busy, stage_now);
    }
    server.raise(is_busy.into());
}

fn has_lost_its_lead(news: &[(berth_model::TenantKey, KernelNews)], name: &str) -> bool {
    news.iter().any(|(who, news)| *who == tenant(name) && matches!(news, KernelNews::LeadLost { .. }))
}

#[test]
fn one_that_keeps_the_words_of_its_own_yields_up_accuses_nobody_and_goes_before_nobody() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    let mut hostile = [stage.client("hostile", &[]), stage.client_on("hostile", 0)];
    let now = stage.now;
    hostile.iter().chain([&trainer]).for_each(|client| client.works(true, now));
    let [one, other] = &mut hostile;
    let before = stage.row("trainer").served_seconds;
    stage.pass_while(Duration::from_secs(12), &mut [&mut server, &mut trainer, one, other], |step, clients| {
        serves(clients[0], step, 8, now);
        clients[2].keeps_its_yields_up();
        clients[3].keeps_its_yields_up();
    });
    let news = stage.all_news();
    assert!(!has_lost_its_lead(&news, "server"), "it kept others stopped for less than half of the time: {news:?}");
    let served = stage.row("trainer").served_seconds - before;
    assert!(served > 12.0 * 0.6 / 2.0 * 0.8, "half of what the server leaves is the trainer's: {served} s");
}

#[test]
fn one_that_keeps_the_daemon_s_own_word_up_has_not_waited_since() {
    let mut stage = Stage::start();
    let mut hostile = stage.client("hostile", &[]);
    let first = stage.client("crowd", &[]);
    // More than stand in line, so that some wait by the daemon's word.
    let mut crowd: Vec<Client> = std::iter::once(first).chain((1..12).map(|_| stage.client_on("crowd", 0))).collect();
    let now = stage.now;
    crowd.iter().chain([&hostile]).for_each(|client| client.works(true, now));
    let before = (stage.row("hostile").served_seconds, stage.row("crowd").served_seconds);
    let mut everybody: Vec<&mut Client> = std::iter::once(&mut hostile).chain(&mut crowd).collect();
    stage.pass_while(Duration::from_secs(4), &mut everybody, |_, clients| clients[0].keeps_its_yields_up());
    let had = (stage.row("hostile").served_seconds - before.0, stage.row("crowd").served_seconds - before.1);
    assert!((1.6..2.4).contains(&had.0) && (1.6..2.4).contains(&had.1), "half of the time each: {had:?}");
}

#[test]
fn a_leader_that_says_it_is_idle_and_keeps_its_words_up_stops_nobody_for_long() {
    let mut stage = Stage::start();
    let (mut hostile, mut trainer) = pair(&mut stage);
    trainer.works(true, stage.now);
    let mut stopped = 0;
    stage.pass_while(Duration::from_secs(4), &mut [&mut hostile, &mut trainer], |_, clients| {
        stopped += u32::from(clients[1].is_stopped());
        // Whatever it has been told, it has all pages still.
        clients[0].raise(1);
    });
    assert!(stopped < 200, "it stood at {stopped} of 8000 looks");
    let news = stage.all_news();
    let parted = |(who, news): &(_, _)| *who == tenant("trainer") && matches!(news, KernelNews::Parted { .. });
    assert!(news.iter().any(parted), "{news:?}");
}

#[test]
fn a_word_that_is_up_for_a_moment_without_work_is_let_go_of_and_comes_up_again_with_it() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    trainer.works(true, stage.now);
    server.raise(1);
    stage.pass(CONTENDED * 2, &mut [&mut server, &mut trainer]);
    assert!(!trainer.is_stopped(), "nobody has work for which it would wait");
    server.works(true, stage.now);
    stage.pass(CONTENDED, &mut [&mut server, &mut trainer]);
    assert!(trainer.is_stopped(), "its library thinks the word is up");
    assert!(!stage.all_news().iter().any(|(_, news)| matches!(news, KernelNews::Parted { .. })));
}

/// The first keeps the second stopped until it loses its lead.
fn loses_its_lead(stage: &mut Stage, server: &mut Client, trainer: &mut Client) {
    let now = stage.now;
    [&*server, &*trainer].into_iter().for_each(|client| client.works(true, now));
    for _ in 0..20 {
        stage.pass_while(ms(500), &mut [server, trainer], |_, clients| clients[0].raise(1));
        if has_lost_its_lead(&stage.all_news(), "server") {
            return;
        }
    }
    panic!("it still leads");
}

#[test]
fn whoever_has_lost_its_lead_has_not_got_it_back_by_attaching_anew() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    loses_its_lead(&mut stage, &mut server, &mut trainer);
    stage.leave(vec![server]);
    stage.pass(ms(5), &mut [&mut trainer]);
    server = stage.client("server", GOAL);
    stage.pass(ms(5), &mut [&mut server, &mut trainer]);
    assert!(server.leads.is_empty(), "the other was there all the time");
    stage.leave(vec![server, trainer]);
    let mut again = (stage.client("server", GOAL), stage.client("trainer", &[]));
    stage.pass(ms(5), &mut [&mut again.0, &mut again.1]);
    assert!(again.0.leads.is_empty(), "nobody was there meanwhile");
}

#[test]
fn whoever_attaches_anew_before_it_has_led_for_too_long_has_led_all_the_same() {
    let mut stage = Stage::start();
    let mut trainer = stage.client("trainer", &[]);
    trainer.works(true, stage.now);
    let mut has_lost = false;
    for _ in 0..12 {
        let mut server = stage.client("server", GOAL);
        server.works(true, stage.now);
        stage.pass_while(Duration::from_secs(1), &mut [&mut server, &mut trainer], |_, clients| clients[0].raise(1));
        stage.leave(vec![server]);
        stage.pass(CONTENDED, &mut [&mut trainer]);
        has_lost |= has_lost_its_lead(&stage.all_news(), "server");
    }
    assert!(has_lost, "it kept the other stopped all the time");
}

#[test]
fn who_was_parted_is_linked_again_after_a_while() {
    let mut stage = Stage::start();
    let (mut hostile, mut trainer) = pair(&mut stage);
    trainer.works(true, stage.now);
    stage.pass_while(Duration::from_secs(1), &mut [&mut hostile, &mut trainer], |_, clients| clients[0].raise(1));
    assert!(trainer.is_stopped() || hostile.leads.is_empty());
    hostile.works(false, stage.now);
    stage.pass(Duration::from_secs(3), &mut [&mut hostile, &mut trainer]);
    assert!(hostile.leads.is_empty(), "they are parted");
    stage.now = stage.now + Duration::from_mins(11);
    stage.pass(ms(20), &mut [&mut hostile, &mut trainer]);
    assert_eq!(hostile.leads.len(), 1, "nothing was held against them since");
}

#[test]
fn where_a_pair_has_no_link_it_is_looked_often_enough_for_the_daemon_s_word() {
    let mut stage = Stage::start();
    let mut trainer = stage.client("trainer", &[]);
    let first = stage.client("server", GOAL);
    let mut servers: Vec<Client> =
        std::iter::once(first).chain((1..20).map(|_| stage.client_on("server", 0))).collect();
    let mut everybody: Vec<&mut Client> = servers.iter_mut().chain([&mut trainer]).collect();
    stage.pass(ms(5), &mut everybody);
    everybody.last().expect("the trainer").works(true, stage.now);
    stage.pass_at_its_pace(ms(50), &mut everybody);
    let unlinked = servers.iter().position(|server| server.leads.is_empty()).expect("more than it can be linked with");
    for is_busy in [true, false] {
        servers[unlinked].works(is_busy, stage.now);
        let mut everybody: Vec<&mut Client> = servers.iter_mut().chain([&mut trainer]).collect();
        stage.pass_at_its_pace(CONTENDED, &mut everybody);
        assert_eq!(trainer.is_stopped(), is_busy);
    }
}

#[test]
fn where_all_pairs_have_links_it_is_looked_seldom_while_one_has_work() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    trainer.works(true, stage.now);
    stage.pass(ms(5), &mut [&mut server, &mut trainer]);
    assert_eq!(stage.world.wait(stage.now), Some(super::super::CALM));
}

#[test]
fn a_user_of_many_containers_leaves_places_for_others() {
    let mut stage = Stage::start();
    let owned_by = |owner: &str| {
        let owner = owner.to_owned();
        move |standing: &mut Standing| standing.owner = Some(owner)
    };
    let mut attached = Vec::new();
    for number in 0..8 {
        let name = format!("greedy-{number}");
        stage.knows(&name, &[], owned_by("greedy"));
        attached.extend((0..64).map_while(|_| stage.attaches(&name, 0)));
    }
    assert_eq!(attached.len(), CLIENTS / 2);
    // Whose it is comes to be known later.
    stage.knows("unknown", &[], |standing| standing.takes_part = None);
    let mut late = stage.attaches("unknown", 0).expect("it may be anybody's");
    stage.knows("unknown", &[], owned_by("greedy"));
    late.listen();
    assert!(late.is_hung_up, "it is one more of the same user");
    stage.knows("other", &[], owned_by("other"));
    assert!(stage.attaches("other", 0).is_some());
}

#[test]
fn a_leader_that_rewrites_its_word_after_its_link_has_gone_is_to_be_held_and_parted() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    server.works(true, stage.now);
    trainer.works(true, stage.now);
    server.raise(1);
    let (link, page) = server.leads.pop_first().expect("it leads");
    trainer.ledger.lanes[0].stuck_link.store(link, Ordering::Release);
    trainer.ledger.lanes[0].stuck_since_ns.store(1, Ordering::Release);
    let (mut asked, mut freed) = (false, false);
    let shared = Arc::clone(&stage.shared);
    stage.pass_while(Duration::from_secs(2), &mut [&mut server, &mut trainer], |_, clients| {
        freed |= clients[1].lane().free.load(Ordering::Relaxed) == 1;
        page.word.store(1, Ordering::Release);
        asked |= shared.lock().unwrap().keep_off.contains_key(&tenant("server"));
    });
    assert!(freed, "the one that stands is told to obey nobody");
    assert!(asked, "to be held, so that it can be seen whose doing it is");
    // Nobody holds it here, so nobody knows whose doing it is.
    assert!(!server.is_hung_up && !trainer.is_hung_up);
    let news = stage.all_news();
    let told =
        |of: &str, is_it: fn(&KernelNews) -> bool| news.iter().any(|(who, news)| *who == tenant(of) && is_it(news));
    assert!(!told("server", |news| matches!(news, KernelNews::Refused { .. })));
    assert!(told("trainer", |news| matches!(news, KernelNews::Parted { from, .. } if from.contains("server"))));
}

#[test]
fn a_forged_link_accuses_nobody() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    server.works(true, stage.now);
    for forged in [0, 7, u64::MAX] {
        trainer.ledger.lanes[0].stuck_link.store(forged, Ordering::Release);
        trainer.ledger.lanes[0].stuck_since_ns.store(1, Ordering::Release);
        stage.pass(ms(300), &mut [&mut server, &mut trainer]);
    }
    assert!(!server.is_hung_up && server.leads.len() == 1);
}
