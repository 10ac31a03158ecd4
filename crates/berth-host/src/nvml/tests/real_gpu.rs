//! On a real GPU, where `BERTH_TEST_GPU=1` says there is one: the same claims as on the simulated driver, and the costs.

use std::path::Path;
use std::time::Duration;

use berth_model::{Bytes, Event, GpuReading, ProcessKind};

use super::tenant::tenant;
use super::{FIRST, listed, reading};
use crate::clock;
use crate::nvml::{GpuProbe, Listings, NvmlProbe, RawReading};
use crate::procs::Registry;
use crate::testing::eventually;

fn mean_look(probe: &mut NvmlProbe, per_process_core: bool) -> Duration {
    let begin = clock::now();
    for _ in 0..100 {
        probe.look(per_process_core);
    }
    clock::now().since(begin) / 100
}

#[test]
fn a_real_gpu_is_seen_as_the_simulated_one_is() {
    if std::env::var_os("BERTH_TEST_GPU").is_none_or(|value| value != "1") {
        eprintln!("SKIPPED a_real_gpu_is_seen_as_the_simulated_one_is: BERTH_TEST_GPU is not 1");
        return;
    }
    let mut probe = NvmlProbe::open(Path::new("libnvidia-ml.so.1")).unwrap();
    let gpus = probe.inventory().unwrap();
    eprintln!("driver {:?}: {gpus:?}", probe.driver_version());
    let before = listed(&probe.look(false), FIRST).len();
    eprintln!("{before} processes: look {:?}", mean_look(&mut probe, false));
    let RawReading::Ok { memory_used: Some(_), core: Some(_), .. } = reading(&probe.look(false), FIRST) else {
        panic!("memory and use are unknown");
    };

    let (event_tx, event_rx) = std::sync::mpsc::channel();
    let registry = Registry::new(Path::new("/proc"), event_tx).unwrap();
    let mut tenants = Vec::new();
    for count in 1..=20 {
        tenants.push(tenant(Path::new("libcuda.so.1"), FIRST, Bytes::from_mib(64)));
        let look = probe.look(false);
        assert_eq!(listed(&look, FIRST).len(), before + count, "listed as soon as it has memory");
        if [1, 5, 20].contains(&count) {
            let (plain, with_use) = (mean_look(&mut probe, false), mean_look(&mut probe, true));
            eprintln!("{} processes: look {plain:?}, with use per process {with_use:?}", before + count);
        }
    }
    let look = probe.look(true);
    for tenant in &tenants {
        let process = listed(&look, FIRST).iter().find(|process| process.pid == tenant.id()).expect("host pids");
        assert_eq!((process.kind, process.core.map(|core| core.get())), (ProcessKind::Compute, Some(0)));
        assert!(process.memory.is_some_and(|memory| memory >= Bytes::from_mib(64)), "{process:?}");
    }
    let GpuReading::Ok { processes: Ok(named), .. } =
        &look.resolve(&registry, &mut Listings::default()).gpus[0].reading
    else {
        panic!()
    };
    assert!(named.len() >= tenants.len());

    let victim = &mut tenants[0];
    let pid = victim.id();
    victim.kill().unwrap();
    let begin = clock::now();
    let exited = |event: Event| matches!(event, Event::ProcessExited { process, .. } if process.pid == pid);
    assert!(std::iter::from_fn(|| event_rx.recv_timeout(Duration::from_secs(10)).ok()).any(exited));
    eprintln!("exit told {:?} after the kill", clock::now().since(begin));
    eventually("it is unlisted", || listed(&probe.look(false), FIRST).iter().all(|process| process.pid != pid));
    eprintln!("unlisted {:?} after the kill", clock::now().since(begin));
    for tenant in &mut tenants {
        let _ = tenant.kill();
        let _ = tenant.wait();
    }
}
