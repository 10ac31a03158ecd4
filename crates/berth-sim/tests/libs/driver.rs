//! A program's ordinary life on the simulated driver.

use std::time::Duration;

use crate::support::{Client, Sim, until};
use berth_proto::cuda::result;
use berth_proto::sim_dir;

const MIB: u64 = 1 << 20;

#[test]
fn a_program_lives_its_life_and_nvml_sees_it() {
    let sim = Sim::start();
    let idle = sim.used_bytes();
    let mut client = sim.client().ready();
    let pid = client.pid();
    let process =
        until("the process to be listed", || sim.listed(pid).filter(|process| process.used_bytes > Some(550 * MIB)));
    // The context's own 518 MiB and the 64 MiB of `ready`.
    assert_eq!(process.used_bytes, Some((518 + 64) * MIB));
    client.must("upload 67108864");
    client.must("launch 10");
    client.must("sync");
    client.must("download 67108864");
    client.must("free");
    client.quit();
    until("the process to be unlisted", || sim.listed(pid).is_none().then_some(()));
    until("its memory to be free", || (sim.used_bytes() == idle).then_some(()));
}

#[test]
fn work_takes_as_long_as_the_profile_says() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    let mut client = sim.client().ready();
    // 4970 GFLOP/s: 1,500 are 302 ms, 500 are 101 ms.
    client.must("launch 1500");
    let long = client.ask("sync").took;
    client.must("launch 500");
    let short = client.ask("sync").took;
    assert!((250..500).contains(&long.as_millis()), "{long:?}");
    let ratio = long.as_secs_f64() / short.as_secs_f64();
    assert!((2.2..4.0).contains(&ratio), "{long:?} / {short:?}");
}

#[test]
fn a_launch_returns_before_its_kernel_ends_and_events_time_it() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    let mut client = sim.client().ready();
    client.must("events");
    client.must("record 0");
    let launched = client.ask("launch 1000");
    assert_eq!(launched.code, 0);
    client.must("record 1");
    assert_eq!(client.ask("elapsed-us").code, result::NOT_READY);
    let waited = client.ask("event-sync 1").took;
    assert!(launched.took < waited, "{launched:?} {waited:?}");
    let micros = client.must("elapsed-us");
    assert!((195_000..260_000).contains(&micros), "{micros}");
}

#[test]
fn a_stream_runs_beside_the_default_one_until_waited_for() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    let mut client = sim.client().ready();
    client.must("stream");
    client.must("launch-stream 1000");
    assert_eq!(client.ask("stream-query").code, result::NOT_READY);
    client.must("stream-sync");
    client.must("stream-query");
}

#[test]
fn more_memory_than_there_is_is_refused_and_nothing_is_lost() {
    let sim = Sim::start();
    let mut client = sim.client().ready();
    let free = client.must("memory");
    assert_eq!(client.ask(&format!("alloc {}", free + MIB)).code, result::OUT_OF_MEMORY);
    assert_eq!(client.must("memory"), free);
    client.must(&format!("alloc {}", free / 2));
}

#[test]
fn two_programs_share_the_memory() {
    let sim = Sim::start();
    let mut first = sim.client().ready();
    let mut second = sim.client().ready();
    let free = second.must("memory");
    first.must(&format!("alloc {}", free - 10 * MIB));
    assert_eq!(second.ask(&format!("alloc {}", 100 * MIB)).code, result::OUT_OF_MEMORY);
    first.quit();
    until("the first one's memory to be free", || {
        (second.ask(&format!("alloc {}", 100 * MIB)).code == 0).then_some(())
    });
}

#[test]
fn a_copy_outside_of_an_allocation_is_refused() {
    let sim = Sim::start();
    let mut client = sim.client().ready();
    assert_eq!(client.ask("upload 67108865").code, result::INVALID_VALUE);
}

#[test]
fn the_primary_context_is_counted() {
    let sim = Sim::start();
    let mut client = sim.client();
    client.must("init");
    let first = client.must("retain 0");
    assert_eq!(client.must("retain 0"), first);
    client.must("release 0");
    client.must(&format!("use {first}"));
    client.must("memory");
    client.must("release 0");
    assert_eq!(client.ask("memory").code, result::CONTEXT_IS_DESTROYED);
    assert_eq!(client.ask("release 0").code, result::INVALID_CONTEXT);
}

#[test]
fn a_thread_that_waits_does_not_make_the_others_wait() {
    let sim = Sim::with(|options| options.time_scale = 1.0);
    let mut client = sim.client().ready();
    // 201 ms: eight threads that wait one after the other would take eight times as long.
    client.must("launch 1000");
    let done = client.ask("threads 8");
    assert_eq!(done.code, 0);
    assert!(done.took < Duration::from_millis(800), "{done:?}");
}

#[test]
fn what_is_not_supported_says_so_and_is_counted() {
    let sim = Sim::start();
    let mut client = sim.client();
    client.must("init");
    assert_eq!(client.ask("graph").code, result::NOT_SUPPORTED);
}

#[test]
fn a_program_sees_the_devices_it_may_see() {
    let sim = Sim::with(|options| options.gpu_count = 3);
    let library = sim.library(sim_dir::CUDA_SONAME);
    let mut all = Client::start(&library, &[]);
    all.must("init");
    assert_eq!(all.must("count"), 3);
    let mut one = Client::start(&library, &[("CUDA_VISIBLE_DEVICES", "2")]);
    one.must("init");
    assert_eq!(one.must("count"), 1);
    one.must("ctx 0");
    let listed = |gpu: usize| sim.snapshot().gpu(gpu).unwrap().processes.len();
    until("the context on the third GPU", || (listed(2) == 1).then_some(()));
    assert_eq!((listed(0), listed(1)), (0, 0));
    let mut none = Client::start(&library, &[("CUDA_VISIBLE_DEVICES", "")]);
    assert_eq!(none.ask("init").code, result::NO_DEVICE);
}

#[test]
fn a_locked_process_waits_and_goes_on_when_unlocked() {
    let sim = Sim::start();
    let mut tenant = sim.client().ready();
    let mut keeper = sim.client();
    keeper.must("init");
    let pid = tenant.pid();
    keeper.must(&format!("lock {pid}"));
    assert_eq!(keeper.must(&format!("state {pid}")), 1);
    tenant.send("launch 1");
    tenant.send("sync");
    keeper.must(&format!("unlock {pid}"));
    assert_eq!(tenant.answer().code, 0);
    assert_eq!(tenant.answer().code, 0);
    assert_eq!(keeper.must(&format!("state {pid}")), 0);
}
