//! Faults: each surface fails alone, and stays failed.

use berth_proto::sim::{CheckpointOp, Reply, Request, cu};
use berth_sim::{Engine, Fault, NvmlArea, Profile, Sharing, fault};

use super::{MS, Rig, SECOND};

#[test]
fn lost_gpu_fails_every_call_on_it_for_good() {
    let mut rig = Rig::with(2, Sharing::TimeSliced);
    let context = rig.context(1);
    rig.launch(1, context, 0, 3000, 100);
    let waiting = rig.start(1, Request::ContextSync { context });
    let creating = rig.start(2, Request::ContextCreate { device: 0 });
    rig.run_for(10 * MS);
    rig.engine.inject(Fault::GpuLost { gpu: 0 }).unwrap();
    assert_eq!(rig.wait(waiting).1, Reply::Error(cu::UNKNOWN));
    assert_eq!(rig.wait(creating).1, Reply::Error(cu::UNKNOWN));
    for request in [
        Request::MemInfo { context },
        Request::ContextSync { context },
        Request::ContextCreate { device: 0 },
        Request::Device { device: 0 },
    ] {
        assert_eq!(rig.call(1, request), Reply::Error(cu::UNKNOWN), "{request:?}");
    }
    assert_eq!(rig.call(1, Request::ContextDestroy { context }), Reply::Done, "cleaning up works");
    let view = rig.engine.nvml();
    assert_eq!((view.gpus[0].lost, view.gpus[1].lost), (true, false));
}

#[test]
fn other_gpu_goes_on_when_one_is_lost() {
    let mut rig = Rig::with(2, Sharing::TimeSliced);
    let context = rig.handle(1, Request::ContextCreate { device: 1 });
    rig.launch(1, context, 0, 100, 100);
    rig.engine.inject(Fault::GpuLost { gpu: 0 }).unwrap();
    assert_eq!(rig.call(1, Request::ContextSync { context }), Reply::Done);
}

#[test]
fn gpu_lost_in_mid_checkpoint_leaves_the_process_failed() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.call(9, Request::Checkpoint { pid: 1, op: CheckpointOp::Lock { timeout_ms: 0 } });
    let held = rig.start(1, Request::MemInfo { context });
    let saved = rig.start(9, Request::Checkpoint { pid: 1, op: CheckpointOp::Checkpoint });
    rig.engine.inject(Fault::GpuLost { gpu: 0 }).unwrap();
    assert_eq!(rig.wait(saved).1, Reply::Error(cu::UNKNOWN));
    assert_eq!(rig.wait(held).1, Reply::Error(cu::UNKNOWN), "nobody waits for a failed process");
    assert_eq!(rig.call(1, Request::MemInfo { context }), Reply::Error(cu::UNKNOWN));
    let state = rig.call(9, Request::Checkpoint { pid: 1, op: CheckpointOp::GetState });
    assert_eq!(state, Reply::ProcessState(3));
}

#[test]
fn gpu_lost_in_mid_lock_lets_the_process_go_on_to_fail() {
    let mut rig = Rig::new();
    let context = rig.context(1);
    rig.launch(1, context, 0, 3000, 100);
    let locked = rig.start(9, Request::Checkpoint { pid: 1, op: CheckpointOp::Lock { timeout_ms: 0 } });
    rig.engine.inject(Fault::GpuLost { gpu: 0 }).unwrap();
    assert_eq!(rig.wait(locked).1, Reply::Error(cu::UNKNOWN));
    assert_eq!(rig.call(1, Request::ContextSync { context }), Reply::Error(cu::UNKNOWN));
}

#[test]
fn failing_kernel_breaks_its_process_s_context_only() {
    let mut rig = Rig::new();
    let (broken, sound) = (rig.context(1), rig.context(2));
    rig.engine.inject(Fault::KernelFault { pid: 1 }).unwrap();
    rig.launch(1, broken, 0, 10, 100);
    rig.launch(2, sound, 0, 10, 100);
    assert_eq!(rig.call(1, Request::ContextSync { context: broken }), Reply::Error(cu::LAUNCH_FAILED));
    assert_eq!(rig.call(1, Request::MemInfo { context: broken }), Reply::Error(cu::LAUNCH_FAILED), "it is sticky");
    assert_eq!(rig.call(2, Request::ContextSync { context: sound }), Reply::Done);
}

#[test]
fn nvml_areas_fail_one_by_one() {
    let mut rig = Rig::new();
    rig.context(1);
    rig.engine.inject(Fault::Nvml { area: NvmlArea::ProcessList, code: fault::nvml::UNKNOWN }).unwrap();
    let faults = rig.engine.nvml().faults;
    assert_eq!(faults.codes.get(&NvmlArea::ProcessList), Some(&999));
    assert_eq!(faults.codes.get(&NvmlArea::Memory), None);
    assert!(rig.used_by(1).is_some());
}

#[test]
fn reader_without_permission_sees_processes_but_not_their_use() {
    let mut rig = Rig::new();
    rig.context(1);
    rig.engine.inject(Fault::NoPermission).unwrap();
    let processes = rig.gpu().processes;
    assert_eq!((processes.len(), processes[0].pid, processes[0].used_bytes), (1, 1, None));
}

#[test]
fn planned_fault_strikes_once_in_its_time_and_always_at_the_same() {
    let strike = |seed| {
        let mut engine = Engine::new(Profile::builtin("h200").expect("built-in"), 1, seed);
        engine.inject_between(Fault::GpuLost { gpu: 0 }, SECOND, 3 * SECOND);
        let at = engine.next_event().expect("a fault is planned");
        engine.advance(at - 1);
        assert!(!engine.nvml().gpus[0].lost);
        engine.advance(at);
        assert!(engine.nvml().gpus[0].lost);
        at
    };
    let times: Vec<u64> = (0..20).map(strike).collect();
    assert!(times.iter().all(|at| (SECOND..3 * SECOND).contains(at)));
    assert_eq!(times, (0..20).map(strike).collect::<Vec<_>>());
    assert_ne!(times[0], times[1]);
}
