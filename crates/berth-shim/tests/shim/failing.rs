//! Nothing of ours changes what the program sees: without a daemon, with a silent or hostile one, across fork, while capturing.

use std::sync::atomic::Ordering;

use berth_proto::shim::message::MESSAGE_BYTES;

use crate::daemon::{Daemon, Link};
use crate::sys;
use crate::tenant::{Tenant, until};

fn computes(tenant: &mut Tenant) {
    tenant.run("sync 0");
    let before = tenant.done();
    tenant.run("launch 0 1000 10");
    tenant.run("sync 0");
    assert_eq!(tenant.done(), before + 10);
}

/// Neither event nor wait was given to the driver.
fn is_untouched(tenant: &mut Tenant) {
    for symbol in ["cuEventCreate", "cuEventRecord", "cuStreamWaitValue32_v2", "cuMemHostRegister_v2"] {
        assert_eq!(tenant.calls(symbol), 0, "{symbol}");
    }
}

#[test]
fn without_a_daemon_nothing_happens() {
    let mut tenant = Tenant::start("/nowhere/shim.sock".as_ref());
    tenant.run("prepare 0");
    computes(&mut tenant);
    is_untouched(&mut tenant);
    assert!(tenant.finish());
}

#[test]
fn without_the_variable_nobody_is_asked() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env_remove("BERTH_SHIM_SOCKET");
    });
    tenant.run("prepare 0");
    computes(&mut tenant);
    is_untouched(&mut tenant);
    assert!(!daemon.has_visitor(0));
}

#[test]
fn a_client_that_is_refused_goes_on_without() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell("launch 0 1000 1");
    daemon.refuse();
    assert_eq!(tenant.answer(), 0);
    computes(&mut tenant);
    is_untouched(&mut tenant);
    assert!(!daemon.has_visitor(0), "it does not ask again");
}

#[test]
fn a_daemon_that_never_answers_is_waited_for_once() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env_remove("BERTH_SHIM_WAIT_MS");
    });
    tenant.run("prepare 0");
    computes(&mut tenant);
    let _silent = daemon.accept();
    computes(&mut tenant);
    is_untouched(&mut tenant);
}

#[test]
fn garbage_from_the_daemon_is_passed_over() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell("alloc 0 4096");
    let client = daemon.welcome(|orders| {
        // Every number there is means something, or nothing.
        for word in [&orders.grain_ns, &orders.linger_ns, &orders.long_ns, &orders.long_sms, &orders.sample_every] {
            word.store(u32::MAX, Ordering::Relaxed);
        }
        orders.longest_stop_ns.store(u64::MAX, Ordering::Relaxed);
        orders.copy_bytes_per_second.store(u64::MAX, Ordering::Relaxed);
    });
    client.lane();
    assert_eq!(tenant.answer(), 0);
    for kind in 0..16u8 {
        for byte in [0, 1, 8, 0xff] {
            let mut packet = [byte; MESSAGE_BYTES];
            packet[..4].copy_from_slice(&[kind, 0, 0, 0]);
            if kind != 2 {
                sys::send(&client.socket, &packet, &[]);
                sys::send(&client.socket, &packet[..7], &[]);
            }
        }
    }
    let short = tempfile::tempfile().unwrap();
    client.send(berth_proto::shim::FromDaemon::Yield { link: 3, lane: 0 }, &[&short]);
    client.send(berth_proto::shim::FromDaemon::Yield { link: 4, lane: 7 }, &[&Link::new().file]);
    computes(&mut tenant);
    tenant.run("copy 0 1000000");
    computes(&mut tenant);
    assert!(tenant.finish());
}

#[test]
fn garbage_in_a_stop_page_stops_and_does_no_more() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell("alloc 0 4096");
    let client = daemon.welcome(|orders| orders.longest_stop_ns.store(20_000_000, Ordering::Relaxed));
    client.lane();
    assert_eq!(tenant.answer(), 0);
    let link = Link::new();
    for byte in 0..4096 {
        std::os::unix::fs::FileExt::write_at(&link.file, &[0xa5], byte).unwrap();
    }
    client.yields(1, &link);
    until("the page to be looked at", || {
        tenant.run("launch 1 1000 1");
        client.ledger().stops.load(Ordering::Relaxed) > 0
    });
    tenant.run("sync 1");
    computes(&mut tenant);
    assert_eq!(client.ledger().stops_given_up.load(Ordering::Relaxed), 1);
}

#[test]
fn a_forked_child_attaches_for_itself_and_leaves_its_parent_alone() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell("alloc 0 4096");
    let parent = daemon.welcome(|orders| orders.linger_ns.store(100_000, Ordering::Relaxed));
    parent.lane();
    assert_eq!(tenant.answer(), 0);
    let link = Link::new();
    parent.leads(1, &link);
    tenant.until("a word that is raised", |tenant| {
        tenant.run("launch 1 1000 1");
        link.word() != 0
    });
    until("the word to be down", || link.word() == 0);
    let launches = parent.ledger().launches.load(Ordering::Relaxed);
    tenant.tell("fork 0");
    let child = daemon.welcome(|orders| orders.sample_every.store(1, Ordering::Relaxed));
    child.lane();
    assert_eq!(tenant.answer(), 0, "the child computes and ends well");
    assert!(child.has_hung_up());
    assert_eq!(parent.ledger().launches.load(Ordering::Relaxed), launches, "the child writes in its own ledger");
    tenant.run("launch 1 5000000 1");
    assert_ne!(link.word(), 0, "the parent goes on as before");
    // A child that lives on does not keep the parent's socket open.
    tenant.tell("fork 5");
    let _second = daemon.welcome(|_| {});
    let _ = tenant.answer();
    sys::kill(tenant.pid());
    assert!(parent.has_hung_up());
}

#[test]
fn thousands_of_streams_are_all_stopped_and_all_let_go() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell("alloc 0 4096");
    let client = daemon.welcome(|_| {});
    client.lane();
    assert_eq!(tenant.answer(), 0);
    let (leads, yields) = (Link::new(), Link::new());
    yields.set(1);
    client.leads(1, &leads);
    client.yields(2, &yields);
    tenant.run("streams 3000");
    tenant.until("links", |tenant| {
        tenant.run("launch s0 1000 1");
        leads.word() != 0 && client.ledger().stops.load(Ordering::Relaxed) > 0
    });
    let done = tenant.done();
    tenant.run("launchall 1000");
    tenant.run("launchall 1000");
    assert_eq!(tenant.done(), done, "all of them stand");
    yields.set(0);
    tenant.run("syncall");
    assert!(tenant.done() >= done + 6000);
    until("the word to be down", || leads.word() == 0);
    client.send(berth_proto::shim::FromDaemon::Unlink { link: 2 }, &[]);
    tenant.until("the page to be given back", |tenant| tenant.calls("cuMemHostUnregister") == 1);
    tenant.run("destroyall");
    assert!(tenant.finish());
}

#[test]
fn a_program_that_closes_our_descriptors_goes_on_without() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell("alloc 0 4096");
    let client = daemon.welcome(|orders| orders.sample_every.store(1, Ordering::Relaxed));
    client.lane();
    assert_eq!(tenant.answer(), 0);
    tenant.run("closeall");
    assert!(client.has_hung_up());
    computes(&mut tenant);
    assert!(tenant.finish());
}
