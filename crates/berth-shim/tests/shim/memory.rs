//! Memory: counted, capped, and told as the cap leaves it.

use std::sync::atomic::Ordering;
use std::time::Duration;

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

#[test]
fn what_a_pool_keeps_counts_and_is_given_back_where_the_cap_leaves_no_room_otherwise() {
    let (_daemon, mut tenant, client) = capped(100);
    let trims = |tenant: &mut Tenant| tenant.calls("cuMemPoolTrimTo");
    tenant.run(&format!("keep 0 {}", u64::MAX));
    for _ in 0..2 {
        tenant.run(&format!("allocasync 1 {}", 60 * MIB));
        assert_eq!((used(&client), tenant.ask("freemem")), (70, 30));
        tenant.run("freeasync 1");
        assert_eq!((used(&client), tenant.ask("freemem")), (70, 30), "the pool keeps it");
    }
    assert_eq!(trims(&mut tenant), 0, "and gives it out again");
    tenant.run("streams 1");
    tenant.run("capture s0");
    assert_eq!(tenant.ask(&format!("alloc 2 {}", 80 * MIB)), OUT_OF_MEMORY, "the driver may wait for all streams");
    tenant.run("endcapture s0");
    tenant.run(&format!("alloc 2 {}", 80 * MIB));
    assert_eq!((trims(&mut tenant), used(&client)), (1, 90));
    assert_eq!(tenant.ask(&format!("allocasync 1 {}", 20 * MIB)), OUT_OF_MEMORY);
    tenant.run("free 2");
    assert_eq!((used(&client), tenant.ask("disturbed")), (10, 0));
}

#[test]
fn no_number_of_pools_keeps_more_than_the_cap() {
    let (_daemon, mut tenant, client) = capped(100);
    for pool in 1..20 {
        tenant.run(&format!("pool {pool}"));
        tenant.run(&format!("keep {pool} {}", u64::MAX));
        tenant.run(&format!("allocpool 1 {} {pool}", 60 * MIB));
        tenant.run("freeasync 1");
        assert_eq!(used(&client), 70);
    }
    tenant.run("trim 19");
    assert_eq!(used(&client), 10, "the program gives it back itself");
    tenant.run(&format!("allocpool 1 {} 1", 60 * MIB));
    tenant.run("freeasync 1");
    tenant.run("nopool 1");
    tenant.run(&format!("alloc 1 {}", 90 * MIB));
    assert_eq!(used(&client), 100, "one that is gone keeps nothing, and is not asked");
}

#[test]
fn a_pool_that_keeps_nothing_is_not_asked() {
    let (_daemon, mut tenant, client) = capped(100);
    tenant.run("pool 1");
    // How much each GPU's own is to keep is asked once.
    let asked = tenant.calls("cuMemPoolGetAttribute");
    tenant.run(&format!("allocpool 1 {} 1", 60 * MIB));
    tenant.run("freeasync 1");
    tenant.run(&format!("allocasync 1 {}", 60 * MIB));
    tenant.run("freeasync 1");
    assert_eq!((used(&client), tenant.calls("cuMemPoolGetAttribute")), (10, asked));
}

#[test]
fn arrays_and_mipmaps_count_like_any_memory() {
    let (_daemon, mut tenant, client) = capped(100);
    tenant.run("array 1 4096");
    assert_eq!(used(&client), 10 + 64);
    assert_eq!(tenant.ask("mipmap 2 2048"), OUT_OF_MEMORY, "40 MiB with its second level");
    tenant.run("noarray 1");
    tenant.run("mipmap 2 2048");
    assert_eq!(used(&client), 10 + 40);
    tenant.run("nomipmap 2");
    assert_eq!(used(&client), 10);
}

#[test]
fn what_another_thread_allocates_while_the_first_attaches_counts() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell(&format!("alloctwo {}", 60 * MIB));
    std::thread::sleep(Duration::from_millis(200));
    let client = daemon.welcome(|orders| orders.memory_bytes.store(100 * MIB, Ordering::Relaxed));
    client.lane();
    assert_eq!((tenant.answer(), used(&client)), (OUT_OF_MEMORY, 60), "one of them has no room");
}

#[test]
fn a_child_that_is_forked_while_its_parent_attaches_allocates_and_goes_on() {
    let daemon = Daemon::start();
    let mut tenant = Tenant::with("tenant", &daemon.path(), |command| {
        command.env("BERTH_SHIM_WAIT_MS", "500");
    });
    tenant.run("prepare 0");
    assert_eq!(tenant.ask("forkattaching"), 0, "how the child ended");
}

/// Two GPUs, of which the second has a cap, and is not used yet.
fn two_gpus() -> (Daemon, Tenant, Client) {
    let (daemon, tenant, client) = capped(0);
    client.orders.lanes[1].memory_bytes.store(100 * MIB, Ordering::Relaxed);
    (daemon, tenant, client)
}

fn used_of(client: &Client, lane: usize) -> u64 {
    client.ledger.lanes[lane].memory_bytes.load(Ordering::Relaxed) / MIB
}

#[test]
fn memory_of_a_pool_counts_where_the_pool_is() {
    let (_daemon, mut tenant, client) = two_gpus();
    tenant.run("device 1");
    tenant.run(&format!("alloc 1 {}", 10 * MIB));
    tenant.run("poolon 1 1 1");
    tenant.run("poolon 2 0 2");
    tenant.run("device 0");
    assert_eq!(tenant.ask(&format!("allocpool 2 {} 1", 500 * MIB)), OUT_OF_MEMORY, "by a stream of the other GPU");
    tenant.run(&format!("allocpool 2 {} 2", 500 * MIB));
    assert_eq!((used_of(&client, 0), used_of(&client, 1)), (10, 10), "that is memory of the host");
}

#[test]
fn a_pool_that_was_told_to_keep_before_its_gpu_was_used_counts() {
    let (_daemon, mut tenant, client) = two_gpus();
    tenant.run("poolof 1 1");
    tenant.run(&format!("keep 1 {}", u64::MAX));
    tenant.run("device 1");
    tenant.run(&format!("allocasync 1 {}", 90 * MIB));
    tenant.run("freeasync 1");
    assert_eq!(used_of(&client, 1), 90);
}

#[test]
fn what_another_thread_allocates_while_a_gpu_is_used_for_the_first_time_waits_for_its_cap() {
    let (_daemon, mut tenant, client) = capped(0);
    tenant.tell(&format!("alloctwoon 1 {}", 60 * MIB));
    // As late as a client waits for it: it has not looked before.
    client.lane();
    client.orders.lanes[1].memory_bytes.store(100 * MIB, Ordering::Relaxed);
    client.orders.changes.fetch_add(1, Ordering::Release);
    tenant.answer();
    assert!(used_of(&client, 1) <= 100, "{}", used_of(&client, 1));
}

#[test]
fn a_cap_that_is_lowered_beneath_what_a_pool_keeps_holds_for_what_comes_next() {
    let (_daemon, mut tenant, client) = capped(100);
    tenant.run("free 0");
    tenant.run(&format!("keep 0 {}", u64::MAX));
    tenant.run(&format!("allocasync 1 {}", 90 * MIB));
    tenant.run("freeasync 1");
    client.orders.lanes[0].memory_bytes.store(50 * MIB, Ordering::Relaxed);
    tenant.run(&format!("allocasync 1 {}", 40 * MIB));
    assert_eq!(used(&client), 40);
}
