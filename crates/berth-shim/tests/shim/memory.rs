//! Memory: counted, capped, and told as the cap leaves it.

use std::sync::atomic::Ordering;

use crate::daemon::{Client, Daemon};
use crate::tenant::Tenant;

const MIB: u64 = 1 << 20;
const OUT_OF_MEMORY: i64 = 2;

fn capped(mib: u64) -> (Daemon, Tenant, Client) {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell(&format!("alloc 0 {}", 10 * MIB));
    let client = daemon.welcome(|orders| orders.memory_bytes.store(mib * MIB, Ordering::Relaxed));
    client.lane();
    assert_eq!(tenant.answer(), 0);
    (daemon, tenant, client)
}

fn used(client: &Client) -> u64 {
    client.ledger().memory_bytes.load(Ordering::Relaxed) / MIB
}

#[test]
fn an_allocation_beyond_the_cap_fails_as_the_driver_would_and_the_others_do_not() {
    let (_daemon, mut tenant, client) = capped(100);
    assert_eq!(used(&client), 10);
    tenant.run(&format!("alloc 1 {}", 80 * MIB));
    assert_eq!(tenant.ask(&format!("alloc 2 {}", 11 * MIB)), OUT_OF_MEMORY);
    assert_eq!(tenant.ask(&format!("allocasync 2 {}", 11 * MIB)), OUT_OF_MEMORY);
    assert_eq!(tenant.ask(&format!("create 2 {}", 11 * MIB)), OUT_OF_MEMORY);
    assert_eq!(client.ledger().memory_refused.load(Ordering::Relaxed), 3);
    assert_eq!((tenant.calls("cuMemAlloc_v2"), tenant.calls("cuMemAllocAsync")), (2, 0), "the driver was not asked");
    tenant.run("free 1");
    assert_eq!(used(&client), 10);
    tenant.run(&format!("create 2 {}", 90 * MIB));
    assert_eq!(used(&client), 100);
    tenant.run("release 2");
    assert_eq!(used(&client), 10);
}

#[test]
fn what_is_free_is_told_within_the_cap() {
    let (_daemon, mut tenant, _client) = capped(100);
    assert_eq!((tenant.ask("freemem"), tenant.ask("totalmem")), (90, 100));
    tenant.run(&format!("allocasync 1 {}", 30 * MIB));
    assert_eq!(tenant.ask("freemem"), 60);
}

#[test]
fn without_a_cap_memory_is_counted_and_told_as_the_driver_says() {
    let (_daemon, mut tenant, client) = capped(0);
    assert_eq!((tenant.ask("freemem"), tenant.ask("totalmem")), (70 << 10, 80 << 10));
    assert_eq!(tenant.ask(&format!("alloc 1 {}", 1u64 << 40)), OUT_OF_MEMORY, "the driver's own answer");
    assert_eq!(used(&client), 10, "and what was not allocated does not count");
}

#[test]
fn what_is_allocated_while_something_is_captured_counts_but_for_nodes_of_the_graph() {
    let (_daemon, mut tenant, client) = capped(100);
    tenant.run("streams 2");
    tenant.run("capture s0");
    tenant.run(&format!("alloc 1 {}", 60 * MIB));
    assert_eq!(used(&client), 70);
    assert_eq!(tenant.ask(&format!("alloc 2 {}", 60 * MIB)), OUT_OF_MEMORY);
    assert_eq!(tenant.ask(&format!("allocasync 2 {} s1", 60 * MIB)), OUT_OF_MEMORY);
    tenant.run(&format!("allocasync 2 {} s0", 60 * MIB));
    assert_eq!(used(&client), 70);
    tenant.run("endcapture s0");
    tenant.run("free 1");
    assert_eq!(used(&client), 10);
}
