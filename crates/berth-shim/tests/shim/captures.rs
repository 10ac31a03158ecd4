//! Captures: what goes into a graph is left alone, and whatever else the program does meanwhile is minded as ever.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::daemon::{Client, Daemon, Link};
use crate::links::{attached, attached_as, orders, stopped, until_linked, waits_on_its_cpu};
use crate::tenant::{Tenant, until};

fn launches(client: &Client) -> u64 {
    client.ledger().launches.load(Ordering::Relaxed)
}

fn stops(client: &Client) -> u64 {
    client.ledger().stops.load(Ordering::Relaxed)
}

/// The next launch is the first after a pause, before which there is a wait in any case.
fn until_idle(client: &Client) {
    until("a client that is idle", || client.ledger().busy.load(Ordering::Relaxed) == 0);
}

/// Leads and yields, measures each launch, and has done so in its second stream.
fn linked(daemon: &Daemon) -> (Tenant, Client, Link, Link) {
    let (mut tenant, client) = attached(daemon, |lane| {
        orders(lane);
        lane.sample_every.store(1, Ordering::Relaxed);
    });
    let (leads, yields) = (Link::new(), Link::new());
    client.leads(1, &leads);
    client.yields(2, &yields);
    tenant.until("links", |tenant| {
        tenant.run("launch s1 1000 1");
        leads.word() != 0 && stops(&client) > 0
    });
    tenant.run("sync s1");
    (tenant, client, leads, yields)
}

#[test]
fn a_capture_is_not_disturbed_and_its_graph_is_one_piece_of_work() {
    let daemon = Daemon::start();
    let (mut tenant, client, leads, _yields) = linked(&daemon);
    tenant.run("capture s0");
    let (records, before) = (tenant.calls("cuEventRecord"), launches(&client));
    tenant.run("launch s0 100000000 5");
    tenant.run("copy s0 4096");
    assert_eq!(tenant.calls("cuEventRecord"), records, "nothing of ours in what is captured");
    tenant.run("endcapture s0");
    assert_eq!((tenant.ask("disturbed"), launches(&client)), (0, before));
    until("the word to be down", || leads.word() == 0);
    tenant.run("graph s0");
    assert_ne!(leads.word(), 0, "a graph is work");
    assert_eq!(launches(&client), before + 1);
    tenant.run("sync s0");
}

#[test]
fn work_beside_a_capture_is_counted_and_measured_and_raises_the_word_until_it_is_done() {
    let daemon = Daemon::start();
    let (mut tenant, client, leads, _yields) = linked(&daemon);
    tenant.run("capture s0");
    until("the word to be down", || leads.word() == 0);
    let (before, sampled) = (launches(&client), client.ledger.sampled.load(Ordering::Acquire));
    for stream in ["s1", "0"] {
        tenant.run(&format!("launch {stream} 300000000 1"));
        assert_ne!(leads.word(), 0);
        until("the word to be down", || leads.word() == 0);
        assert_eq!(tenant.ask(&format!("query {stream}")), 0, "not before it was done");
    }
    assert_eq!(launches(&client), before + 2);
    until("both to be measured", || client.ledger.sampled.load(Ordering::Acquire) >= sampled + 2);
    tenant.run("endcapture s0");
    assert_eq!(tenant.ask("disturbed"), 0);
}

#[test]
fn who_captures_on_and_on_is_stopped_like_anybody() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = stopped(&daemon, orders);
    link.set(0);
    tenant.run("sync s0");
    tenant.run("capture s1");
    until_idle(&client);
    link.set(7);
    let (done, before) = (tenant.done(), stops(&client));
    tenant.run("launch s0 1000 5");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(tenant.done(), done, "its stream stands");
    assert!(stops(&client) > before);
    link.set(0);
    tenant.run("sync s0");
    assert_eq!(tenant.done(), done + 5);
    // A link of which the GPU knows nothing yet, and one that goes.
    let second = Link::new();
    second.set(9);
    client.yields(8, &second);
    client.send(berth_proto::shim::FromDaemon::Unlink { link: 7 }, &[]);
    let done = tenant.done();
    tenant.until("a launch that stands", |tenant| {
        tenant.run("launch s0 1000 1");
        tenant.calls("cuLaunchKernel") > tenant.done() && tenant.ask("query s0") != 0
    });
    second.set(0);
    tenant.run("sync s0");
    assert!(tenant.done() > done);
    tenant.run("endcapture s1");
    assert_eq!(tenant.ask("disturbed"), 0);
}

#[test]
fn a_stream_that_waits_for_what_is_captured_is_left_alone_until_the_end() {
    let daemon = Daemon::start();
    let (mut tenant, client, leads, _yields) = linked(&daemon);
    tenant.run("launch s1 1000 1");
    tenant.run("capture s0");
    tenant.run("joins s1 s0");
    let before = launches(&client);
    tenant.run("launch s1 1000000 5");
    until("the word to be down", || leads.word() == 0);
    std::thread::sleep(Duration::from_millis(10));
    tenant.run("endcapture s0");
    assert_eq!((tenant.ask("disturbed"), launches(&client)), (0, before));
    tenant.run("launch s1 1000 1");
    assert_eq!(launches(&client), before + 1);
}

#[test]
fn streams_that_join_captures_while_they_are_looked_at_find_nothing_of_ours_in_them() {
    let daemon = Daemon::start();
    let tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env("FAKE_SLOW_CAPTURES", "1");
    });
    let (mut tenant, client) = attached_as(tenant, &daemon, orders);
    let link = Link::new();
    client.leads(1, &link);
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch s0 1000 1");
        link.word() != 0
    });
    for _ in 0..200 {
        tenant.run("launch s0 1000 1");
        tenant.run("launch s1 1000 1");
        tenant.run("capture s0");
        tenant.run("joins s1 s0");
        tenant.run("launch s1 1000 1");
        tenant.run("endcapture s0");
    }
    assert_eq!(tenant.ask("disturbed"), 0);
}

#[test]
fn a_launch_that_waits_on_its_cpu_is_let_go_when_its_own_stream_captures_and_not_for_another() {
    let daemon = Daemon::start();
    let (mut tenant, client, link) = waits_on_its_cpu(&daemon);
    for (captures, waits) in [("s1", true), ("s0", false)] {
        until_idle(&client);
        link.set(3);
        let (before, done) = (stops(&client), tenant.calls("cuLaunchKernel"));
        tenant.run("aside s0 1000");
        until("a launch that waits", || stops(&client) > before);
        let records = tenant.calls("cuEventRecord");
        tenant.run(&format!("capture {captures}"));
        std::thread::sleep(Duration::from_millis(10));
        if waits {
            assert_eq!(tenant.calls("cuLaunchKernel"), done, "another's capture is no reason");
            link.set(0);
        }
        tenant.run("join");
        if !waits {
            assert_eq!(tenant.calls("cuEventRecord"), records, "nothing of ours in what is captured");
        }
        tenant.run(&format!("endcapture {captures}"));
        assert_eq!(tenant.ask("disturbed"), 0);
        link.set(0);
        tenant.run("sync s0");
    }
}

#[test]
fn links_that_come_and_go_while_it_captures_are_obeyed_however_many_there_were() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, |lane| {
        orders(lane);
        lane.longest_stop_ns.store(60_000_000_000, Ordering::Relaxed);
    });
    tenant.run("capture s1");
    // As many as may wait until the GPU can be told that they are gone, which is not done beside a capture.
    let registered = |tenant: &mut Tenant| tenant.calls("cuMemHostRegister_v2");
    for id in 0..256 {
        let (link, before) = (Link::new(), registered(&mut tenant));
        client.yields(id, &link);
        tenant.until("a link the GPU knows", |tenant| {
            tenant.run("launch s0 100000 1");
            registered(tenant) > before
        });
        client.send(berth_proto::shim::FromDaemon::Unlink { link: id }, &[]);
    }
    let link = Link::new();
    link.set(5);
    client.yields(256, &link);
    tenant.run("sync s0");
    let launched = tenant.calls("cuLaunchKernel");
    let mut asides = 0;
    tenant.until("a launch that waits", |tenant| {
        until_idle(&client);
        tenant.run("aside s0 1000");
        asides += 1;
        std::thread::sleep(Duration::from_millis(10));
        let waits = tenant.calls("cuLaunchKernel") < launched + asides;
        if !waits {
            tenant.run("join");
        }
        waits
    });
    assert_eq!(registered(&mut tenant), 256, "the GPU is shown no more");
    link.set(0);
    tenant.run("join");
    tenant.run("endcapture s1");
    until("pages to be taken away", || tenant.calls("cuMemHostUnregister") == 256);
    assert_eq!(tenant.ask("disturbed"), 0);
}

#[test]
fn a_call_that_ends_no_capture_leaves_those_alone_that_are_under_way() {
    for (end, answer) in [("endcapture s1", 903), ("badend s0", 1), ("endcapture s2", 401)] {
        let daemon = Daemon::start();
        let (mut tenant, client, leads, _yields) = linked(&daemon);
        tenant.run("streams 3");
        tenant.run("capture s0");
        tenant.run("joins s1 s0");
        assert_eq!(tenant.ask(end), answer);
        let before = launches(&client);
        for stream in ["s0", "s1"] {
            tenant.run(&format!("launch {stream} 1000000 5"));
        }
        until("the word to be down", || leads.word() == 0);
        assert_eq!((tenant.ask("disturbed"), launches(&client)), (0, before), "{end}");
        tenant.run("endcapture s0");
    }
}

#[test]
fn a_capture_does_not_wait_for_pages_that_are_given_back() {
    let daemon = Daemon::start();
    let tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env("FAKE_UNREGISTER_WAITS", "1");
    });
    let (mut tenant, client) = attached_as(tenant, &daemon, orders);
    let link = Link::new();
    client.yields(7, &link);
    until_linked(&mut tenant, &client);
    tenant.run("sync s0");
    // Seconds of work past the library, which does not know of it: the page goes at once, and the driver waits.
    tenant.ask("time s1 60000 1");
    client.send(berth_proto::shim::FromDaemon::Unlink { link: 7 }, &[]);
    tenant.until("a page that is being given back", |tenant| tenant.calls("cuMemHostUnregister") == 1);
    tenant.run("capture s0");
    assert_eq!(tenant.ask("query s1"), 600, "it has waited");
    tenant.run("endcapture s0");
}

#[test]
fn no_capture_begins_while_a_part_of_the_gpu_is_made() {
    let daemon = Daemon::start();
    let tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env("FAKE_SLOW_GREEN", "1");
    });
    let (mut tenant, client) = attached_as(tenant, &daemon, |lane| {
        orders(lane);
        lane.sample_every.store(1, Ordering::Relaxed);
        lane.long_sms.store(72, Ordering::Relaxed);
    });
    tenant.run("blocks 1057");
    for sampled in 1..=3 {
        tenant.run("launch s0 10000000 1");
        tenant.run("sync s0");
        until("its measurement", || client.ledger.sampled.load(Ordering::Acquire) >= sampled);
    }
    client.orders.lanes[0].long_ns.store(5_000_000, Ordering::Relaxed);
    let mut asides = 0;
    tenant.until("a part that is being made", |tenant| {
        if asides > 0 {
            tenant.run("join");
        }
        asides += 1;
        tenant.run("aside s0 10000000");
        std::thread::sleep(Duration::from_millis(20));
        tenant.calls("cuGreenCtxCreate") > 0
    });
    tenant.run("capture s1");
    tenant.run("join");
    tenant.run("endcapture s1");
    assert_eq!(tenant.ask("disturbed"), 0);
}

#[test]
fn a_capture_that_goes_with_its_context_is_over() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    let link = Link::new();
    client.leads(1, &link);
    tenant.run("context 0");
    tenant.run("streams 1");
    tenant.run("capture s0");
    tenant.run("nocontext 0");
    tenant.run("device 0");
    tenant.run("streams 1");
    let asked = tenant.calls("cuStreamIsCapturing");
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch s0 1000 1");
        link.word() != 0
    });
    assert_eq!(tenant.calls("cuStreamIsCapturing"), asked, "nothing captures, so nobody is asked");
}
