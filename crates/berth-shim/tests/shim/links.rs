//! Stop words between two: raised before work, lowered after it, obeyed on the GPU, and let go when somebody dies.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use berth_proto::shim::{FromDaemon, LaneOrders};

use crate::daemon::{Client, Daemon, Link};
use crate::sys;
use crate::tenant::{Tenant, until};

/// The longest that a stop without anybody behind it may last.
const LET_GO: Duration = Duration::from_millis(100);

pub fn orders(orders: &LaneOrders) {
    orders.linger_ns.store(200_000, Ordering::Relaxed);
    orders.grain_ns.store(50_000, Ordering::Relaxed);
}

/// A process with a stream that has attached and told of its GPU.
pub fn attached(daemon: &Daemon, order: impl FnOnce(&LaneOrders)) -> (Tenant, Client) {
    attached_as(Tenant::start(&daemon.path()), daemon, order)
}

pub fn attached_as(mut tenant: Tenant, daemon: &Daemon, order: impl FnOnce(&LaneOrders)) -> (Tenant, Client) {
    tenant.run("prepare 0");
    tenant.tell("alloc 0 4096");
    let client = daemon.welcome(order);
    client.lane();
    assert_eq!(tenant.answer(), 0);
    tenant.run("streams 2");
    (tenant, client)
}

/// Leads on a link, and has raised its word for a moment's work.
pub fn leading(daemon: &Daemon) -> (Tenant, Client, Link) {
    let (mut tenant, client) = attached(daemon, orders);
    let link = Link::new();
    client.leads(1, &link);
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch s0 1000 1");
        link.word() != 0
    });
    (tenant, client, link)
}

/// Yields on a link that is up, and stands.
pub fn stopped(daemon: &Daemon, order: impl FnOnce(&LaneOrders)) -> (Tenant, Client, Link) {
    let (mut tenant, client) = attached(daemon, order);
    let link = Link::new();
    link.set(5);
    client.yields(7, &link);
    until_linked(&mut tenant, &client);
    (tenant, client, link)
}

/// Yields, and its driver's streams cannot wait for words.
pub fn waits_on_its_cpu(daemon: &Daemon) -> (Tenant, Client, Link) {
    let tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env("FAKE_NO_WAITS", "1");
    });
    let (mut tenant, client) = attached_as(tenant, daemon, |lane| {
        orders(lane);
        lane.longest_stop_ns.store(60_000_000_000, Ordering::Relaxed);
    });
    let link = Link::new();
    client.yields(7, &link);
    until_linked(&mut tenant, &client);
    tenant.run("sync s0");
    (tenant, client, link)
}

/// Launches until one of them stands at a stop.
pub fn until_linked(tenant: &mut Tenant, client: &Client) {
    tenant.until("a launch that waits", |tenant| {
        tenant.run("launch s0 1000 1");
        client.ledger().stops.load(Ordering::Relaxed) > 0
    });
}

/// Whether it goes on within the time that is promised. It goes on in any case.
fn goes_on(tenant: &mut Tenant, since: Instant) -> bool {
    tenant.run("sync s0");
    since.elapsed() < LET_GO
}

/// On a machine that does other things a process may not run for longer than is promised: one of a few tries must keep it.
fn keeps_its_promise(mut attempt: impl FnMut() -> bool) {
    assert!((0..5).any(|_| attempt()), "it never went on within {LET_GO:?}");
}

#[test]
fn a_leaders_word_is_up_before_its_work_and_down_after_it() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    let link = Link::new();
    client.leads(1, &link);
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch s0 20000000 1");
        link.word() != 0
    });
    until("a word that is lowered", || link.word() == 0);
    assert_eq!(tenant.ask("query s0"), 0, "it is lowered after the work, not before");
    for _ in 0..5 {
        tenant.run("launch s0 50000000 1");
        assert_ne!(link.word(), 0, "it is up once the launch has returned");
        assert_eq!(client.ledger().busy.load(Ordering::Relaxed), 1);
        tenant.run("sync s0");
        until("a word that is lowered", || link.word() == 0);
    }
    until("a client that is idle", || client.ledger().busy.load(Ordering::Relaxed) == 0);
}

#[test]
fn a_leaders_many_small_kernels_cost_it_no_event_each() {
    let daemon = Daemon::start();
    let (mut tenant, _client, link) = leading(&daemon);
    for stream in ["s0", "0"] {
        let records = tenant.calls("cuEventRecord");
        tenant.run(&format!("launch {stream} 1000 500"));
        tenant.run(&format!("sync {stream}"));
        until("the word to go down", || link.word() == 0);
        let more = tenant.calls("cuEventRecord") - records;
        assert!(more < 100, "{more} events for 500 kernels in {stream}");
    }
}

#[test]
fn whoever_waits_for_its_work_itself_is_hardly_asked_and_lets_go_after_the_linger() {
    const LINGER: Duration = Duration::from_millis(30);
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, |lane| {
        orders(lane);
        lane.linger_ns.store(30_000_000, Ordering::Relaxed);
    });
    let link = Link::new();
    client.leads(1, &link);
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch s0 1000 1");
        link.word() != 0
    });
    for wait in ["sync s0", "syncctx"] {
        // The first of a kind is asked until the driver says so.
        for _ in 0..2 {
            tenant.run("launch s0 2000000 3");
            tenant.run(wait);
            until("the word to go down", || link.word() == 0);
        }
        let asked = |tenant: &mut Tenant| tenant.calls("cuEventQuery");
        let before = asked(&mut tenant);
        let launched = Instant::now();
        tenant.run("launch s0 100000000 1");
        tenant.run(wait);
        until("the word to go down", || link.word() == 0);
        let least = Duration::from_millis(100) + LINGER;
        assert!(launched.elapsed() >= least, "{:?}", launched.elapsed());
        let more = asked(&mut tenant) - before;
        assert!(more < 1_000, "asked {more} times, where every 25 µs would be 4,000");
    }
}

#[test]
fn whoever_never_has_a_queue_learns_to_let_go_at_once() {
    const LINGER: Duration = Duration::from_secs(2);
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, |lane| {
        orders(lane);
        lane.linger_ns.store(2_000_000_000, Ordering::Relaxed);
    });
    let link = Link::new();
    client.leads(1, &link);
    let mut lingered = |requests: usize| {
        for _ in 0..requests {
            tenant.run("launch s0 1000 1");
            tenant.run("sync s0");
            // The pause that is learned from.
            std::thread::sleep(Duration::from_millis(2));
        }
        let done = Instant::now();
        until("the word to go down", || link.word() == 0);
        done.elapsed()
    };
    assert!(lingered(3) > LINGER / 2, "nothing is known yet");
    assert!(lingered(60) < LINGER / 2);
}

#[test]
fn a_wait_for_one_stream_says_nothing_of_another() {
    for wait in ["sync s1", "syncctx"] {
        let daemon = Daemon::start();
        let (mut tenant, _client, link) = leading(&daemon);
        tenant.run("launch s0 1000000000 1");
        tenant.run("launch s1 1000 1");
        tenant.run(wait);
        assert_eq!(tenant.ask("query s0") == 0, wait == "syncctx");
        until("the word to go down", || link.word() == 0);
        assert_eq!(tenant.ask("query s0"), 0, "not before it was done");
    }
}

#[test]
fn a_word_stays_up_between_pieces_of_work_that_follow_each_other() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, |orders| orders.linger_ns.store(2_000_000_000, Ordering::Relaxed));
    let link = Link::new();
    client.leads(1, &link);
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch s0 1000 1");
        link.word() != 0
    });
    let first = link.word();
    for _ in 0..20 {
        tenant.run("launch s0 1000 1");
        tenant.run("sync s0");
        assert_eq!(link.word(), first, "it was not lowered in between");
    }
    until("the end of it", || link.word() == 0);
}

#[test]
fn work_in_every_kind_of_stream_raises_and_keeps_the_word() {
    let daemon = Daemon::start();
    let (mut tenant, _client, link) = leading(&daemon);
    let ways = [
        "launch 0 30000000 1",
        "launch 1 30000000 1",
        "launch 2 30000000 1",
        "thread 30000000",
        "launchex s1 30000000",
        "cooperative s1 30000000",
    ];
    for way in ways {
        until("the word to be down", || link.word() == 0);
        let before = Instant::now();
        tenant.run(way);
        assert_ne!(link.word(), 0, "{way}");
        until("the word to be down", || link.word() == 0);
        assert!(before.elapsed() >= Duration::from_millis(30), "{way}: it was lowered before the work was done");
    }
}

#[test]
fn a_yielder_stands_while_the_word_is_up_and_goes_on_when_it_is_lowered() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, orders);
    let done = tenant.done();
    tenant.run("launch s0 1000 50");
    assert_eq!(tenant.done(), done, "its CPU goes on, its stream does not");
    assert_eq!(tenant.ask("query s0"), 600);
    link.set(0);
    tenant.run("sync s0");
    assert!(tenant.done() >= done + 50);
    assert!(client.ledger().stops.load(Ordering::Relaxed) > 1, "it has looked more than once");
}

#[test]
fn streams_wait_only_for_what_was_registered_in_their_own_context() {
    let daemon = Daemon::start();
    let tenant = Tenant::start(&daemon.path());
    let (mut tenant, client) = attached_as(tenant, &daemon, |lane| {
        orders(lane);
        lane.longest_stop_ns.store(60_000_000_000, Ordering::Relaxed);
    });
    tenant.run("context 0");
    tenant.run("streams 2");
    let link = Link::new();
    client.yields(7, &link);
    until_linked(&mut tenant, &client);
    tenant.run("sync s0");
    tenant.run("device 0");
    tenant.run("streams 1");
    let counts = |tenant: &mut Tenant| (tenant.calls("cuStreamWaitValue32_v2"), tenant.calls("cuLaunchKernel"));
    let idle = || client.ledger().busy.load(Ordering::Relaxed) == 0;
    until("an idle client", idle);
    link.set(3);
    let before = counts(&mut tenant);
    tenant.run("aside s0 1000");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(counts(&mut tenant), before, "it waits on its CPU");
    link.set(0);
    tenant.run("join");
    // The other context goes, and with it what was registered there.
    tenant.run("nocontext 0");
    until("an idle client", idle);
    link.set(5);
    tenant.run("launch s0 1000 1");
    assert_eq!(counts(&mut tenant), (before.0 + 1, before.1 + 2));
    assert_eq!(tenant.ask("query s0"), 600);
    link.set(0);
    tenant.run("sync s0");
}

#[test]
fn whoever_has_long_work_listens_until_it_is_done() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, |lane| {
        orders(lane);
        lane.sample_every.store(1, Ordering::Relaxed);
        lane.preempt_ns.store(5_000_000, Ordering::Relaxed);
    });
    let link = Link::new();
    client.yields(7, &link);
    let listens = || link.page.listens.load(Ordering::SeqCst) != 0;
    tenant.until("a kernel that is known to be long", |tenant| {
        tenant.run("launch s0 10000000 1");
        tenant.run("sync s0");
        listens()
    });
    // All at once: nothing is submitted for as long as this takes.
    tenant.run("launch s0 10000000 150");
    std::thread::sleep(Duration::from_secs(1));
    assert!(tenant.ask("query s0") == 0 || listens(), "its work goes on");
    tenant.run("sync s0");
    until("the end of it", || !listens());
}

#[test]
fn one_that_yields_to_several_waits_for_all() {
    let daemon = Daemon::start();
    let (mut tenant, client, first) = stopped(&daemon, orders);
    let second = Link::new();
    second.set(9);
    client.yields(8, &second);
    tenant.until("a wait for both", |tenant| {
        tenant.run("launch s0 100000 2");
        tenant.calls("cuStreamBatchMemOp_v2") > 0
    });
    tenant.run("launch s0 1000 1");
    first.set(0);
    tenant.until("what was behind the first stop only", |tenant| tenant.done() > 0);
    assert_eq!(tenant.ask("query s0"), 600);
    second.set(0);
    tenant.run("sync s0");
}

#[test]
fn one_whose_streams_cannot_wait_has_little_outstanding_when_a_stop_comes() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = waits_on_its_cpu(&daemon);
    link.set(0);
    until("a client that is idle", || client.ledger().busy.load(Ordering::Relaxed) == 0);
    let before = tenant.done();
    // Of a hundred that take 2 ms each, a grain is a few.
    tenant.run("launch s0 2000000 100");
    let outstanding = 100 - (tenant.done() - before);
    assert!(outstanding <= 10, "{outstanding}");
}

#[test]
fn one_whose_streams_cannot_wait_waits_before_it_launches() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = waits_on_its_cpu(&daemon);
    link.set(3);
    let (before, stops) = (tenant.done(), client.ledger().stops.load(Ordering::Relaxed));
    tenant.tell("launch s0 1000000 8");
    until("a launch that waits", || client.ledger().stops.load(Ordering::Relaxed) > stops);
    link.set(0);
    assert_eq!(tenant.answer(), 0);
    tenant.run("sync s0");
    assert_eq!(tenant.done(), before + 8);
    assert_eq!(tenant.calls("cuStreamWaitValue32_v2"), 0);
}

#[test]
fn two_processes_a_leader_and_a_yielder() {
    let daemon = Daemon::start();
    let (mut server, leads) = attached(&daemon, orders);
    let (mut trainer, yields) = attached(&daemon, orders);
    let link = Link::unled();
    leads.leads(1, &link);
    yields.yields(1, &link);
    trainer.until("a wait on the GPU", |trainer| {
        trainer.run("launch s0 100000 2");
        trainer.calls("cuMemHostRegister_v2") == 1
    });
    trainer.run("sync s0");
    let before = trainer.done();
    server.until("a word that is raised", |server| {
        server.run("launch s0 300000000 1");
        link.word() != 0
    });
    trainer.run("launch s0 100000 20");
    assert!(trainer.done() <= before + 2, "at most a grain of it goes on");
    assert_eq!(server.ask("query s0"), 600, "the server still computes");
    server.run("sync s0");
    trainer.run("sync s0");
    assert_eq!(trainer.done(), before + 20);
}

#[test]
fn a_leader_that_is_killed_stops_nobody_for_long() {
    keeps_its_promise(leader_is_killed);
}

fn leader_is_killed() -> bool {
    let daemon = Daemon::start();
    let (mut server, leads) = attached(&daemon, orders);
    let (mut trainer, yields) = attached(&daemon, |lane| {
        orders(lane);
        lane.longest_stop_ns.store(30_000_000, Ordering::Relaxed);
    });
    let link = Link::unled();
    leads.leads(1, &link);
    yields.yields(1, &link);
    until_linked(&mut trainer, &yields);
    trainer.run("sync s0");
    server.until("a word that is raised", |server| {
        server.run("launch s0 1000 1");
        if link.word() == 0 {
            return false;
        }
        server.run("launch s0 5000000000 1");
        link.word() != 0
    });
    sys::kill(server.pid());
    let killed = Instant::now();
    trainer.run("launch s0 1000 8");
    let in_time = goes_on(&mut trainer, killed);
    assert_eq!(yields.ledger().stops_given_up.load(Ordering::Relaxed), 1);
    trainer.run("launch s0 1000 10");
    trainer.run("sync s0");
    in_time
}

#[test]
fn a_daemon_that_is_gone_stops_nobody() {
    keeps_its_promise(daemon_is_gone);
}

fn daemon_is_gone() -> bool {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, orders);
    assert_ne!(link.word(), 0);
    drop(client);
    let in_time = goes_on(&mut tenant, Instant::now());
    let waits = tenant.calls("cuStreamWaitValue32_v2");
    tenant.run("launch s0 1000 1000");
    tenant.run("sync s0");
    assert_eq!(tenant.calls("cuStreamWaitValue32_v2"), waits, "it goes on without berth");
    assert!(tenant.finish());
    in_time
}

#[test]
fn a_leader_and_the_daemon_gone_at_once_stop_nobody() {
    keeps_its_promise(both_are_gone);
}

fn both_are_gone() -> bool {
    let daemon = Daemon::start();
    let (mut server, leads) = attached(&daemon, orders);
    let (mut trainer, yields) = attached(&daemon, orders);
    let link = Link::unled();
    leads.leads(1, &link);
    yields.yields(1, &link);
    until_linked(&mut trainer, &yields);
    trainer.run("sync s0");
    server.until("a word that is raised", |server| {
        server.run("launch s0 5000000000 1");
        link.word() != 0
    });
    trainer.run("launch s0 1000 8");
    sys::kill(server.pid());
    drop((leads, yields));
    let in_time = goes_on(&mut trainer, Instant::now());
    assert_eq!(link.word(), 0);
    in_time
}

#[test]
fn a_late_store_of_a_leader_that_did_not_hear_the_hang_up_holds_nobody() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, orders);
    tenant.run("launch s0 50000000 1");
    drop(client);
    until("the word to be let go", || link.word() == 0);
    link.set(3);
    tenant.run("sync s0");
}

#[test]
fn a_leader_that_ends_by_itself_or_loses_the_daemon_leaves_no_word_up() {
    let daemon = Daemon::start();
    for loses_the_daemon in [false, true] {
        let (mut tenant, client) = attached(&daemon, |orders| orders.linger_ns.store(u32::MAX, Ordering::Relaxed));
        let link = Link::new();
        client.leads(1, &link);
        tenant.until("a word that is raised", |tenant| {
            tenant.run("launch s0 1000 1");
            link.word() != 0
        });
        if loses_the_daemon {
            drop(client);
        } else {
            assert!(tenant.finish());
        }
        until("the word to be let go", || link.word() == 0);
    }
}

#[test]
fn links_come_and_go_under_load() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    let mut launched = tenant.done();
    for id in 0..200 {
        let link = Link::new();
        if id % 2 == 0 {
            client.yields(id, &link)
        } else {
            client.leads(id, &link)
        }
        tenant.run("launch s0 1000 20");
        tenant.run("launch s1 1000 20");
        launched += 40;
        client.send(FromDaemon::Unlink { link: id }, &[]);
    }
    tenant.run("syncall");
    assert_eq!(tenant.done(), launched, "no launch is lost");
    tenant.until("pages that are given back", |tenant| {
        tenant.calls("cuMemHostRegister_v2") == tenant.calls("cuMemHostUnregister")
    });
    assert!(tenant.finish());
}

#[test]
fn pages_are_given_back_while_work_never_ends() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    tenant.run("launch s0 2000000 150");
    for id in 0..5 {
        let (link, stops) = (Link::new(), client.ledger().stops.load(Ordering::Relaxed));
        client.yields(id, &link);
        tenant.until("a wait for it", |tenant| {
            tenant.run("launch s0 2000000 1");
            client.ledger().stops.load(Ordering::Relaxed) > stops
        });
        client.send(FromDaemon::Unlink { link: id }, &[]);
    }
    tenant.until("pages that are given back", |tenant| {
        // Further and further ahead of the GPU.
        tenant.run("launch s0 2000000 2");
        tenant.calls("cuMemHostUnregister") == 5
    });
    assert_eq!(tenant.ask("query s0"), 600, "it never was idle");
}
