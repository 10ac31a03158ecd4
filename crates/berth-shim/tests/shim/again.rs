//! A daemon that is followed by another: clients attach to it by themselves.

use std::sync::atomic::Ordering;

use crate::daemon::{Client, Daemon, Link};
use crate::links::{attached, orders, until_linked};
use crate::tenant::Tenant;

fn works_as_before(tenant: &mut Tenant, client: &Client) {
    let link = Link::new();
    link.set(3);
    client.yields(1, &link);
    until_linked(tenant, client);
    assert_eq!(tenant.ask("query s0"), 600);
    link.set(0);
    tenant.run("sync s0");
    assert_eq!(client.ledger().memory_bytes.load(Ordering::Relaxed), 4096 + 8192, "what it has is told anew");
}

#[test]
fn a_client_attaches_to_the_daemon_that_comes_after() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    drop(client);
    assert!(daemon.has_visitor(20_000));
    tenant.run("alloc 1 8192");
    let client = daemon.welcome(orders);
    assert_eq!(client.lane().uuid, [0x10; 16]);
    works_as_before(&mut tenant, &client);
}

#[test]
fn a_program_that_starts_before_its_daemon_attaches_when_it_comes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shim.sock");
    let mut tenant = Tenant::start(&path);
    tenant.run("prepare 0");
    tenant.run("alloc 0 4096");
    tenant.run("streams 2");
    tenant.run("launch s0 1000 10");
    tenant.run("alloc 1 8192");
    let daemon = Daemon::start_at(directory);
    let client = daemon.welcome(orders);
    assert_eq!(client.lane().uuid, [0x10; 16]);
    works_as_before(&mut tenant, &client);
}

#[test]
fn a_daemon_that_answers_too_late_is_asked_again() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env("BERTH_SHIM_WAIT_MS", "20");
    });
    tenant.run("prepare 0");
    tenant.run("alloc 0 4096");
    drop(daemon.accept());
    tenant.run("streams 2");
    tenant.run("alloc 1 8192");
    let client = daemon.welcome(orders);
    client.lane();
    works_as_before(&mut tenant, &client);
}

#[test]
fn a_program_that_closes_all_descriptors_comes_back_and_keeps_its_own() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    tenant.run("closeall");
    assert!(client.has_hung_up());
    tenant.run("alloc 1 8192");
    let client = daemon.welcome(orders);
    client.lane();
    works_as_before(&mut tenant, &client);
    assert!(tenant.finish());
}

#[test]
fn a_client_that_is_refused_does_not_ask_again() {
    let daemon = Daemon::start();
    let (mut tenant, client) = attached(&daemon, orders);
    drop(client);
    daemon.refuse();
    tenant.run("launch s0 1000 10");
    assert!(!daemon.has_visitor(2_500), "it does not ask again");
}
