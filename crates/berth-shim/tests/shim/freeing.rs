//! Who is stopped is freed, whatever its leader, the driver or the program do; and the daemon can see it.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use berth_proto::shim::{FromDaemon, LaneOrders};

use crate::daemon::{Daemon, Link};
use crate::links::{attached, attached_as, leading, orders, stopped, until_linked};
use crate::tenant::{Tenant, until};

fn short(lane: &LaneOrders) {
    orders(lane);
    lane.longest_stop_ns.store(30_000_000, Ordering::Relaxed);
}

#[test]
fn a_stop_is_given_up_for_one_raise_and_the_next_one_counts() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, short);
    tenant.run("launch s0 1000 10");
    tenant.run("sync s0");
    assert_eq!((link.word(), client.ledger().stops_given_up.load(Ordering::Relaxed)), (0, 1));
    until("it to be told", || client.ledger().given_up.load(Ordering::Relaxed) == 1);
    client.orders.lanes[0].longest_stop_ns.store(60_000_000_000, Ordering::Relaxed);
    // A raise that comes before the streams are seen to have got on counts as the same.
    until("a client that is idle", || client.ledger().busy.load(Ordering::Relaxed) == 0);
    link.set(6);
    until("the next raise to be obeyed", || client.ledger().given_up.load(Ordering::Relaxed) == 0);
    tenant.until("a launch that stands", |tenant| {
        tenant.run("launch s0 1000 1");
        client.ledger().stopped_since_ns.load(Ordering::Relaxed) > 0
    });
    link.set(6);
    let done = tenant.done();
    tenant.run("launch s0 1000 10");
    assert_eq!((tenant.done(), tenant.ask("query s0")), (done, 600));
    link.set(0);
    tenant.run("sync s0");
    until("it to go on", || client.ledger().stopped_since_ns.load(Ordering::Relaxed) == 0);
}

#[test]
fn a_leader_that_stays_busy_raises_a_word_again_that_was_let_go() {
    let daemon = Daemon::start();
    let (mut tenant, _client, link) = leading(&daemon);
    tenant.run("launch s0 30000000000 1");
    let first = link.word();
    assert_ne!(first, 0);
    link.set(0);
    until("it to be up again", || link.word() != 0);
    assert_ne!(link.word(), first, "that is another raise");
    link.page.muted.store(1, Ordering::SeqCst);
    link.set(0);
    tenant.run("launch s0 1000 1");
    std::thread::sleep(std::time::Duration::from_millis(250));
    assert_eq!(link.word(), 0, "nobody wants it");
}

#[test]
fn a_word_that_is_raised_on_and_on_holds_nobody_for_ever() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, short);
    tenant.run("launch s0 1000 40");
    let (link, ends) = (Arc::new(link), Arc::new(AtomicBool::new(false)));
    let hostile = std::thread::spawn({
        let (link, ends) = (Arc::clone(&link), Arc::clone(&ends));
        move || {
            let mut value = 1;
            while !ends.load(Ordering::Relaxed) {
                value = u32::wrapping_add(value, 2) | 1;
                link.set(value);
            }
        }
    });
    tenant.run("sync s0");
    assert!(client.ledger().stops_given_up.load(Ordering::Relaxed) > 0);
    client.send(FromDaemon::Unlink { link: 7 }, &[]);
    tenant.run("launch s0 1000 40");
    tenant.run("sync s0");
    tenant.until("its page to be given back", |tenant| tenant.calls("cuMemHostUnregister") == 1);
    ends.store(true, Ordering::Relaxed);
    hostile.join().unwrap();
}

#[test]
fn a_call_that_waits_for_the_gpu_itself_stands_no_longer_than_any_other() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, orders);
    link.set(0);
    tenant.run("sync s0");
    until("a client that is idle", || client.ledger().busy.load(Ordering::Relaxed) == 0);
    client.orders.lanes[0].longest_stop_ns.store(60_000_000_000, Ordering::Relaxed);
    link.set(9);
    // The first of an idle stream: nothing comes behind its wait before it comes back.
    tenant.tell("copynow 4096");
    let since = || client.ledger().stopped_since_ns.load(Ordering::Relaxed);
    // What was there before the wait may be seen to have passed a little later.
    until("it to stand, and not to be thought to get on", || {
        let first = since();
        let mut looks = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            since()
        });
        first > 0 && looks.by_ref().take(100).all(|now| now == first)
    });
    client.orders.lanes[0].longest_stop_ns.store(1, Ordering::Relaxed);
    assert_eq!(tenant.answer(), 0);
    assert!(client.ledger().stops_given_up.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_thread_s_own_stream_that_stands_is_seen_to_have_work() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, orders);
    link.set(0);
    tenant.run("sync s0");
    until("a client that is idle", || client.ledger().busy.load(Ordering::Relaxed) == 0);
    link.set(9);
    // The second is within the grain of the first, so it comes without a wait of its own.
    tenant.run("launch 2 1000 2");
    for _ in 0..50 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        assert_eq!(client.ledger().busy.load(Ordering::Relaxed), 1);
    }
    until("it to be told", || client.ledger().stopped_since_ns.load(Ordering::Relaxed) > 0);
    link.set(0);
    tenant.run("sync 2");
    until("its end", || client.ledger().busy.load(Ordering::Relaxed) == 0);
}

#[test]
fn one_that_the_daemon_frees_obeys_no_stop_until_it_is_to_again() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, orders);
    client.orders.lanes[0].free.store(1, Ordering::Relaxed);
    tenant.run("sync s0");
    assert_eq!(link.word(), 0);
    link.set(9);
    tenant.run("launch s0 100000 10");
    tenant.run("sync s0");
    client.orders.lanes[0].free.store(0, Ordering::Relaxed);
    // Until the order is heard the word is still kept at 0.
    tenant.until("a launch that stands", |tenant| {
        link.set(11);
        tenant.run("launch s0 1000 1");
        client.ledger().stopped_since_ns.load(Ordering::Relaxed) > 0
    });
    link.set(0);
    tenant.run("sync s0");
}

#[test]
fn a_driver_that_blocks_delays_nobodys_freeing() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, orders);
    let led = Link::new();
    client.leads(8, &led);
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch s1 1000 1");
        led.word() != 0
    });
    tenant.run("hold 30000");
    drop(client);
    until("both words to be let go", || link.word() == 0 && led.word() == 0);
    link.set(3);
    until("a late raise to be let go", || link.word() == 0);
}

#[test]
fn a_page_is_waited_for_on_the_gpu_only_when_nobody_can_exchange_it() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    let link = Link::unled();
    client.yields(7, &link);
    until_linked(&mut tenant, &client);
    assert_eq!(tenant.calls("cuMemHostRegister_v2"), 0, "its leader has not mapped it");
    link.page.is_led.store(1, Ordering::SeqCst);
    tenant.until("a wait on the GPU", |tenant| {
        tenant.run("launch s0 100000 2");
        tenant.calls("cuMemHostRegister_v2") == 1
    });
    // SAFETY: the call takes integers only.
    let punched = unsafe { libc::fallocate(link.file.as_raw_fd(), libc::FALLOC_FL_PUNCH_HOLE | 1, 0, 4096) };
    assert_eq!(punched, -1, "the memory that the GPU looks at stays the file's");
    tenant.run("sync s0");
}

#[test]
fn a_page_whose_leader_never_maps_it_is_waited_for_in_the_end() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    let link = Link::unled();
    client.yields(7, &link);
    tenant.until("a wait on the GPU", |tenant| {
        tenant.run("launch s0 100000 2");
        tenant.calls("cuMemHostRegister_v2") == 1
    });
}

#[test]
fn few_waits_are_ever_in_a_stream() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, |lane| {
        orders(lane);
        lane.grain_ns.store(1, Ordering::Relaxed);
        lane.longest_stop_ns.store(60_000_000_000, Ordering::Relaxed);
    });
    let stops = || client.ledger().stops.load(Ordering::Relaxed);
    tenant.tell("launch s0 1000 2000");
    until("as many waits as there may be", || stops() >= 512);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(stops(), 512, "the next one waits until some have passed");
    link.set(0);
    assert_eq!(tenant.answer(), 0);
    tenant.run("sync s0");
    assert_eq!(tenant.done(), tenant.calls("cuLaunchKernel"));
}

#[test]
fn however_a_leader_ends_its_word_is_let_go() {
    for way in ["leave", "_exit", "abort"] {
        let daemon = Daemon::start();
        let (mut tenant, client, link) = leading(&daemon);
        tenant.tell(way);
        if way == "leave" {
            // Its other threads go on, and so do ours.
            until("the word to be let go", || link.word() == 0);
        }
        assert!(client.has_hung_up(), "{way}: the daemon hears of it, and lets go of what it held");
    }
}

#[test]
fn a_stream_that_is_destroyed_while_it_works_keeps_the_word_up() {
    let daemon = Daemon::start();
    let (mut tenant, _client, link) = leading(&daemon);
    let ways: [&[&str]; 3] = [
        &["launch s0 200000000 1", "destroy s0"],
        // Before anybody has looked at it.
        &["launchlast s1 200000000"],
        &["streams 1", "launch s0 200000000 1", "primary 0"],
    ];
    for way in ways {
        until("the word to be down", || link.word() == 0);
        tenant.run("device 0");
        let done = tenant.done();
        way.iter().for_each(|command| tenant.run(command));
        until("the word to be down", || link.word() == 0);
        assert_eq!(tenant.done(), done + 1, "{way:?}: it is lowered after the work, not before");
    }
}

#[test]
fn a_stream_that_several_threads_meet_at_once_is_one() {
    let daemon = Daemon::start();
    let tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env("FAKE_SLOW_CONTEXT", "1");
    });
    let (mut tenant, client) = attached_as(tenant, &daemon, orders);
    let link = Link::new();
    client.leads(1, &link);
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch 1 1000 1");
        link.word() != 0
    });
    let events = |tenant: &mut Tenant| tenant.calls("cuEventCreate") - tenant.calls("cuEventDestroy_v2");
    until("the word to be down", || link.word() == 0);
    let before = events(&mut tenant);
    tenant.run("streams 100");
    tenant.run("together");
    // By then all were looked at.
    until("the word to be down", || link.word() == 0);
    assert_eq!(events(&mut tenant), before + 100, "each has one event for its end");
}
