//! What is measured, what is paced, and long kernels on a part of the GPU.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use berth_proto::shim::{LaneOrders, Sample, SampleKind};

use crate::daemon::{Client, Daemon};
use crate::tenant::{Tenant, until};

const MS: u64 = 1_000_000;

fn attached(order: impl FnOnce(&LaneOrders)) -> (Daemon, Tenant, Client) {
    let daemon = Daemon::start();
    let mut tenant = Tenant::start(&daemon.path());
    tenant.run("prepare 0");
    tenant.tell("alloc 0 4096");
    let client = daemon.welcome(order);
    let lane = client.lane();
    assert_eq!((lane.lane, lane.uuid, lane.sm_count), (0, [0x10; 16], 132));
    assert!(lane.waits_on_gpu && lane.divides);
    assert_eq!(tenant.answer(), 0);
    tenant.run("streams 2");
    (daemon, tenant, client)
}

fn samples(client: &Client) -> Vec<Sample> {
    client.ledger.samples.iter().filter_map(berth_proto::shim::SampleSlot::read).collect()
}

#[test]
fn the_first_launches_of_a_kernel_are_measured_and_its_estimate_follows() {
    let (_daemon, mut tenant, client) = attached(|orders| orders.sample_every.store(1_000, Ordering::Relaxed));
    for _ in 0..3 {
        tenant.run("launch s0 8000000 1");
        tenant.run("sync s0");
    }
    until("three samples", || client.ledger.sampled.load(Ordering::Acquire) == 3);
    let samples = samples(&client);
    for sample in &samples {
        assert_eq!((sample.kind, sample.blocks, sample.threads_per_block), (SampleKind::Kernel, 8, 256));
        assert_eq!((sample.function, sample.position, sample.lane), (8 * MS, 0, 0));
        assert!(sample.took_ns >= 8 * MS, "{}", sample.took_ns);
    }
    let before = client.ledger().submitted_ns.load(Ordering::Relaxed);
    tenant.run("launch s0 8000000 10");
    let estimated = (client.ledger().submitted_ns.load(Ordering::Relaxed) - before) / 10;
    assert!(estimated >= 8 * MS, "it is estimated by what was measured, not by what is assumed: {estimated}");
    assert_eq!(client.ledger.sampled.load(Ordering::Acquire), 3, "the next thousand are not measured");
}

#[test]
fn with_nothing_to_mind_the_driver_gets_nothing_but_the_programs_own_calls() {
    let (_daemon, mut tenant, client) = attached(|_| {});
    tenant.run("launch s0 1000 100");
    tenant.run("sync s0");
    assert_eq!((tenant.calls("cuEventRecord"), tenant.calls("cuEventCreate")), (0, 0));
    assert_eq!(client.ledger().launches.load(Ordering::Relaxed), 0, "and nothing is counted");
}

#[test]
fn each_gpu_is_a_lane_of_its_own() {
    let (_daemon, mut tenant, client) = attached(|_| {});
    tenant.run("device 1");
    tenant.tell("alloc 1 4096");
    let second = client.lane();
    assert_eq!((second.lane, second.uuid), (1, [0x11; 16]));
    assert_eq!(tenant.answer(), 0);
    assert_eq!(client.ledger.lanes[1].memory_bytes.load(Ordering::Relaxed), 4096);
    assert_eq!(client.ledger.lane_count.load(Ordering::Relaxed), 2);
}

#[test]
fn copies_keep_to_their_budget() {
    let (_daemon, mut tenant, client) =
        attached(|orders| orders.copy_bytes_per_second.store(10 << 20, Ordering::Relaxed));
    let before = Instant::now();
    for _ in 0..6 {
        tenant.run(&format!("copy s0 {}", 1 << 20));
    }
    let took = before.elapsed();
    assert!(took >= Duration::from_millis(450), "{took:?}");
    assert_eq!(client.ledger().copied_bytes.load(Ordering::Relaxed), 6 << 20);
    // What a busy machine takes anyway need not be waited for.
    let paced = Duration::from_nanos(client.ledger().paced_ns.load(Ordering::Relaxed));
    assert!(paced > Duration::ZERO && paced <= took, "{paced:?} of {took:?}");
}

#[test]
fn a_copy_of_seconds_is_paid_for_in_full_unless_the_daemon_goes() {
    let (_daemon, mut tenant, client) =
        attached(|orders| orders.copy_bytes_per_second.store(10 << 20, Ordering::Relaxed));
    let before = Instant::now();
    tenant.run(&format!("copy s0 {}", 15 << 20));
    tenant.run(&format!("copy s0 {}", 1_000 << 20));
    assert!(before.elapsed() >= Duration::from_millis(1_490), "{:?}", before.elapsed());
    // What is owed now are 100 seconds.
    tenant.tell("copy s0 4096");
    std::thread::sleep(Duration::from_millis(50));
    drop(client);
    assert_eq!(tenant.answer(), 0);
    assert!(before.elapsed() < Duration::from_secs(60), "{:?}", before.elapsed());
}

#[test]
fn what_is_owed_is_paid_at_the_budget_of_now() {
    let (_daemon, mut tenant, client) =
        attached(|orders| orders.copy_bytes_per_second.store(1 << 20, Ordering::Relaxed));
    let begun = Instant::now();
    tenant.run(&format!("copy s0 {}", 100 << 20));
    tenant.tell("copy s0 4096");
    std::thread::sleep(Duration::from_millis(50));
    client.orders.lanes[0].copy_bytes_per_second.store(10 << 30, Ordering::Relaxed);
    assert_eq!(tenant.answer(), 0);
    tenant.run("copy s0 4096");
    assert!(begun.elapsed() < Duration::from_secs(40), "it owed 100 seconds: {:?}", begun.elapsed());
}

#[test]
fn long_kernels_go_to_a_part_of_the_gpu_and_keep_their_order() {
    let (_daemon, mut tenant, client) = attached(|orders| {
        orders.sample_every.store(1, Ordering::Relaxed);
        orders.long_ns.store(5_000_000, Ordering::Relaxed);
        orders.long_sms.store(72, Ordering::Relaxed);
    });
    tenant.run("blocks 1057");
    tenant.until("a kernel that is known to be long", |tenant| {
        tenant.run("launch s0 10000000 1");
        tenant.run("sync s0");
        tenant.ask("green") > 0
    });
    assert!(samples(&client).iter().any(|sample| sample.sms == 0));
    let (done, green) = (tenant.done(), tenant.ask("green"));
    tenant.run("launch s0 1000 1");
    tenant.run("launch s0 10000000 2");
    tenant.run("launch s0 1000 1");
    tenant.run("sync s0");
    assert_eq!((tenant.done(), tenant.ask("green")), (done + 4, green + 2), "all are done when their stream is");
    assert!(samples(&client).iter().all(|sample| sample.blocks_per_sm == 8));
    assert_eq!(tenant.calls("cuOccupancyMaxActiveBlocksPerMultiprocessor"), 2, "once for each shape");
    tenant.run("cooperative s0 10000000");
    tenant.run("cooperative s0 10000000");
    tenant.run("sync s0");
    assert_eq!(tenant.ask("green"), green + 2, "blocks that wait for each other stay where they are");
    tenant.run("context 0");
    tenant.run("launch s0 10000000 2");
    tenant.run("sync s0");
    assert_eq!(tenant.ask("green"), green + 2, "green contexts are parts of the primary one, and of no other");
    until("a sample of a kernel on fewer SMs", || samples(&client).iter().any(|sample| sample.sms == 72));
}

#[test]
fn a_grid_whose_blocks_could_all_run_at_once_stays_on_the_whole_gpu() {
    let (_daemon, mut tenant, _client) = attached(|orders| {
        orders.sample_every.store(1, Ordering::Relaxed);
        orders.long_ns.store(5_000_000, Ordering::Relaxed);
        orders.long_sms.store(72, Ordering::Relaxed);
    });
    tenant.run("blocks 1056");
    for _ in 0..8 {
        tenant.run("launch s0 10000000 1");
        tenant.run("sync s0");
    }
    assert_eq!(tenant.ask("green"), 0, "8 blocks on each of 132 SMs may wait for each other");
}

#[test]
fn only_copies_with_an_end_on_the_host_count_against_the_budget() {
    let (_daemon, mut tenant, client) =
        attached(|orders| orders.copy_bytes_per_second.store(1 << 40, Ordering::Relaxed));
    let copied = || client.ledger().copied_bytes.load(Ordering::Relaxed);
    tenant.until("orders that count", |tenant| {
        tenant.run("copy s0 1000");
        copied() > 0
    });
    let (before, launches) = (copied(), client.ledger().launches.load(Ordering::Relaxed));
    for way in ["dtod s0 5000", "within s0 5000", "fillnow 5000"] {
        tenant.run(way);
        assert_eq!(copied(), before, "{way}");
    }
    for (way, bytes) in [("upload s0 7000", 7_000), ("copynow 9000", 16_000)] {
        tenant.run(way);
        assert_eq!(copied(), before + bytes, "{way}");
    }
    assert_eq!(client.ledger().launches.load(Ordering::Relaxed), launches + 5, "all of them are work");
}

#[test]
fn more_sms_than_there_are_leave_long_kernels_where_they_are() {
    let (_daemon, mut tenant, client) = attached(|orders| {
        orders.sample_every.store(1, Ordering::Relaxed);
        orders.long_ns.store(1, Ordering::Relaxed);
        orders.long_sms.store(500, Ordering::Relaxed);
    });
    tenant.run("launch s0 1000000 20");
    tenant.run("sync s0");
    assert_eq!((tenant.ask("green"), tenant.done()), (0, 20));
    until("samples", || client.ledger.sampled.load(Ordering::Acquire) > 0);
}
