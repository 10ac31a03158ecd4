//! Limits on memory and copies, and what is reserved.

use std::sync::atomic::Ordering;

use berth_model::{Bytes, GpuIndex, GpuReading, GpuSample, Sample};

use super::stage::{Client, Stage, gpu};
use super::{ms, pair};

#[test]
fn limits_are_of_the_tenant_and_not_of_each_process() {
    let mut stage = Stage::start();
    let limits = &[("memory", "10GB"), ("copy", "8GB/s")];
    let (mut one, mut other) = (stage.client("trainer", limits), stage.client_on("trainer", 0));
    one.ledger.lanes[0].memory_bytes.store(7_000_000_000, Ordering::Release);
    for client in [&one, &other] {
        client.ledger.lanes[0].copied_bytes.store(5, Ordering::Release);
    }
    stage.pass(ms(2), &mut [&mut one, &mut other]);
    let told = |client: &Client| {
        let lane = client.lane();
        (lane.memory_bytes.load(Ordering::Relaxed), lane.copy_bytes_per_second.load(Ordering::Relaxed))
    };
    assert_eq!(told(&one), (10_000_000_000, 4_000_000_000));
    assert_eq!(told(&other), (3_000_000_000, 4_000_000_000));
    one.ledger.lanes[0].memory_bytes.store(10_000_000_000, Ordering::Release);
    stage.pass(ms(2), &mut [&mut one, &mut other]);
    assert_eq!(told(&other).0, 1, "what is used up is not without limit, which 0 would be");
}

#[test]
fn a_trainer_that_copies_leaves_the_way_to_a_server_that_does() {
    let mut stage = Stage::start();
    let (mut server, mut trainer) = pair(&mut stage);
    let copy = |client: &Client, bytes: u64| _ = client.ledger.lanes[0].copied_bytes.fetch_add(bytes, Ordering::AcqRel);
    let budget = |client: &Client| client.lane().copy_bytes_per_second.load(Ordering::Relaxed);
    trainer.works(true, stage.now);
    stage.pass_while(ms(2_500), &mut [&mut server, &mut trainer], |_, clients| copy(clients[1], 20_000_000));
    assert_eq!(budget(&trainer), 0, "it has the way to itself");
    stage.pass_while(ms(2_500), &mut [&mut server, &mut trainer], |_, clients| {
        copy(clients[0], 4_000_000);
        copy(clients[1], 10_000_000);
    });
    let left = budget(&trainer);
    assert!((29_000_000_000..31_000_000_000).contains(&left), "40 GB/s without 8 and a quarter of it: {left}");
    assert_eq!(budget(&server), 0);
    stage.pass(ms(2_500), &mut [&mut server, &mut trainer]);
    assert_eq!(budget(&trainer), 0, "the server copies no more");
}

#[test]
fn a_tenant_of_two_processes_that_copy_has_one_part_of_the_way() {
    let mut stage = Stage::start();
    let (mut server, mut one) = pair(&mut stage);
    let (mut two, mut other) = (stage.client_on("trainer", 0), stage.client("other", &[]));
    let copy = |client: &Client, bytes: u64| _ = client.ledger.lanes[0].copied_bytes.fetch_add(bytes, Ordering::AcqRel);
    let budget = |client: &Client| client.lane().copy_bytes_per_second.load(Ordering::Relaxed);
    one.works(true, stage.now);
    stage.pass_while(ms(2_500), &mut [&mut server, &mut one, &mut two, &mut other], |_, clients| {
        clients.iter().for_each(|client| copy(client, 4_000_000));
    });
    let parts = [&one, &two, &other].map(budget);
    assert!(parts[0] > 1_000_000_000 && parts[0] == parts[1], "{parts:?}");
    assert!(parts[2].abs_diff(parts[0] + parts[1]) <= 2, "each tenant has as much: {parts:?}");
}

/// The driver has seen so much used of the first GPU, of 80 GiB of which it keeps one for itself.
fn sees_used(stage: &mut Stage, gib: u64) {
    let (memory_used, memory_free) = (Some(Bytes(gib << 30)), Some(Bytes((79 - gib) << 30)));
    let reading = GpuReading::Ok { memory_used, memory_free, core: None, processes: Ok(vec![]) };
    let gpus = vec![GpuSample { index: GpuIndex(0), reading }];
    stage.world.see_memory(&Sample { at: stage.now, gpus, ..Sample::default() });
}

#[test]
fn memory_that_is_reserved_is_kept_from_others_whether_they_came_before_or_after() {
    let mut stage = Stage::start();
    stage.world.meet_gpus([(gpu(0), GpuIndex(0))].into(), [].into());
    let mut trainer = stage.client("trainer", &[]);
    let limit = |client: &Client| client.lane().memory_bytes.load(Ordering::Relaxed) >> 30;
    stage.pass(ms(2), &mut [&mut trainer]);
    assert_eq!(limit(&trainer), 0, "nobody has reserved any");
    assert!(!stage.shared.lock().unwrap().keeps_memory);
    let mut server = stage.client("server", &[("memory-reserve", "20GiB")]);
    stage.pass(ms(2), &mut [&mut trainer, &mut server]);
    assert!(stage.shared.lock().unwrap().keeps_memory, "what is free is to be asked for");
    sees_used(&mut stage, 10);
    stage.pass(ms(2), &mut [&mut trainer, &mut server]);
    assert_eq!((limit(&trainer), limit(&server)), (49, 0));
    trainer.ledger.lanes[0].memory_bytes.store(30 << 30, Ordering::Release);
    let mut late = stage.client("late", &[]);
    stage.pass(ms(2), &mut [&mut trainer, &mut server, &mut late]);
    assert_eq!((limit(&trainer), limit(&late)), (49, 19), "30 of the 49 that nobody has reserved are taken");
    let row = stage.row("server");
    assert_eq!(row.memory.memory_kept_bytes, Some(Bytes(20 << 30)));
    assert_eq!(stage.row("late").memory.memory_limit_bytes, Some(Bytes(19 << 30)));
    // One that says it uses a GPU on which the driver has not seen it keeps nothing from others.
    stage.knows("server", &[("memory-reserve", "20GiB")], |standing| standing.gpus.clear());
    stage.pass(ms(2), &mut [&mut trainer, &mut server, &mut late]);
    assert_eq!((limit(&trainer), limit(&late)), (0, 0));
}
