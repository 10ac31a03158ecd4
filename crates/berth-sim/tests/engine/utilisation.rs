//! What NVML shows of use: right, but late.

use berth_proto::sim::{KernelCost, Request};
use berth_sim::{Engine, Profile, Sharing, SmSample, Utilisation};

use super::{MS, Rig, SECOND};

/// Runs on to the next end of a window of 200 ms.
fn to_window_end(rig: &mut Rig) -> u64 {
    let window = 200 * MS;
    let end = rig.engine.now() / window * window + window;
    rig.run_to(end);
    end
}

#[test]
fn busy_gpu_shows_it_only_after_a_window() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    to_window_end(&mut rig);
    rig.launch(1, context, 0, 300, 100);
    rig.run_for(199 * MS);
    assert_eq!(rig.gpu().utilisation, Utilisation::default());
    let end = to_window_end(&mut rig);
    assert_eq!(rig.gpu().utilisation.gpu_pct, 100);
    assert_eq!(rig.gpu().processes[0].sm, Some(SmSample { pct: 100, at_ns: end }));
    rig.run_for(199 * MS);
    assert_eq!(rig.gpu().utilisation.gpu_pct, 100, "stale, as the real one");
    to_window_end(&mut rig);
    assert_eq!(rig.gpu().utilisation.gpu_pct, 50);
    rig.run_for(SECOND);
    assert_eq!(rig.gpu().utilisation.gpu_pct, 0);
}

#[test]
fn processes_that_take_turns_share_the_percentage() {
    let mut rig = Rig::new();
    for pid in 1..=4 {
        let context = rig.context(pid);
        rig.launch(pid, context, 0, 5_000, 100);
    }
    to_window_end(&mut rig);
    to_window_end(&mut rig);
    let gpu = rig.gpu();
    assert_eq!(gpu.utilisation.gpu_pct, 100);
    let shares: Vec<u32> = gpu.processes.iter().filter_map(|process| process.sm).map(|sample| sample.pct).collect();
    assert_eq!(shares, [25; 4]);
}

#[test]
fn use_is_not_told_apart_by_process_under_mps() {
    let mut rig = Rig::with(1, Sharing::Mps);
    let context = rig.context(1);
    rig.launch(1, context, 0, 5_000, 100);
    rig.run_for(SECOND);
    assert_eq!(rig.gpu().utilisation.gpu_pct, 100);
    assert_eq!(rig.gpu().processes[0].sm, None);
}

#[test]
fn memory_use_follows_the_kernel_s_bytes() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    // Alone, the arithmetic takes 2 s and the memory traffic a quarter of that.
    let cost = KernelCost { flops: 2.0 * 5e12, bytes: 0.5 * 4e12, blocks: 1 << 20 };
    rig.call(1, Request::Launch { context, stream: 0, cost });
    rig.run_for(SECOND);
    assert_eq!(rig.gpu().utilisation, Utilisation { gpu_pct: 100, memory_pct: 25 });
}

#[test]
fn identities_are_well_formed_and_differ() {
    let rig = Rig::with(3, Sharing::TimeSliced);
    let gpus = rig.engine.nvml().gpus;
    for gpu in &gpus {
        let groups: Vec<usize> = gpu.uuid.split('-').map(str::len).collect();
        assert_eq!(groups, [3, 8, 4, 4, 4, 12], "{}", gpu.uuid);
    }
    assert_eq!(gpus[1].pci_bus_id, "00000000:02:00.0");
    assert_ne!(gpus[0].uuid, gpus[1].uuid);
    assert_ne!(gpus[0].pci_bus_id, gpus[1].pci_bus_id);
}

#[test]
fn a_gpu_is_the_same_for_the_same_seed_and_kind_and_another_for_others() {
    let uuid = |profile, seed| {
        let engine = Engine::new(Profile::builtin(profile).expect("built-in"), 1, seed);
        engine.nvml().gpus[0].uuid.clone()
    };
    assert_eq!(uuid("h200", 1), uuid("h200", 1));
    assert_ne!(uuid("h200", 1), uuid("h200", 2));
    assert_ne!(uuid("h200", 1), uuid("a100", 1));
}
