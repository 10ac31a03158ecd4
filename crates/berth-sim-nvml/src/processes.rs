//! Who is on a GPU. The process list takes as long as the real one does, on the caller's time.

use std::ffi::c_uint;

use berth_proto::nvml::{NO_INSTANCE, ProcessInfo, ProcessInfoV1, ProcessUtilization, VALUE_NOT_AVAILABLE, result};
use berth_proto::nvml_state::{Area, Host, Process};

use crate::edge::{Answer, Out, OutArray};
use crate::state;

pub(crate) fn compute(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) -> Answer {
    out.fill(count, &list(device)?.iter().map(info).collect::<Vec<_>>())
}

pub(crate) fn compute_v1(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfoV1>) -> Answer {
    let old = |process: &Process| {
        let ProcessInfo { pid, used_bytes, .. } = info(process);
        ProcessInfoV1 { pid, used_bytes }
    };
    out.fill(count, &list(device)?.iter().map(old).collect::<Vec<_>>())
}

/// Clients of the MPS server: everybody, or nobody.
pub(crate) fn mps(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) -> Answer {
    let (host, gpu) = state::gpu(device, Area::ProcessList)?;
    let clients = if host.mps { gpu.processes.iter().map(info).collect() } else { Vec::new() };
    out.fill(count, &clients)
}

/// Graphics are not modelled.
pub(crate) fn graphics(device: u64, count: Out<c_uint>, out: OutArray<ProcessInfo>) -> Answer {
    state::gpu(device, Area::ProcessList)?;
    out.fill(count, &[])
}

fn list(device: u64) -> Answer<Vec<Process>> {
    let asked_ns = state::monotonic_ns();
    let (host, gpu) = state::gpu(device, Area::ProcessList)?;
    spend(asked_ns, &host, gpu.processes.len());
    Ok(gpu.processes)
}

/// Keeps the caller's CPU busy: the real call is the driver's work, not a sleep.
fn spend(since_ns: u64, host: &Host, processes: usize) {
    let cost_ns = host.process_list_ns(processes);
    while (state::monotonic_ns().saturating_sub(since_ns) as f64) < cost_ns {
        std::hint::spin_loop();
    }
}

fn info(process: &Process) -> ProcessInfo {
    ProcessInfo {
        pid: process.pid,
        used_bytes: process.used_bytes.unwrap_or(VALUE_NOT_AVAILABLE),
        gpu_instance: NO_INSTANCE,
        compute_instance: NO_INSTANCE,
    }
}

/// Samples newer than `last_seen_us`. None at all is "not found", and a missing array asks how many there are.
pub(crate) fn utilization(
    device: u64,
    out: OutArray<ProcessUtilization>,
    count: Out<c_uint>,
    last_seen_us: u64,
) -> Answer {
    let (_, gpu) = state::gpu(device, Area::ProcessUtilisation)?;
    let samples: Vec<ProcessUtilization> =
        gpu.processes.iter().filter_map(|process| sample(process, last_seen_us)).collect();
    if samples.is_empty() {
        count.set(0)?;
        return Err(result::NOT_FOUND);
    }
    out.fill(count, &samples)
}

fn sample(process: &Process, last_seen_us: u64) -> Option<ProcessUtilization> {
    let sample = process.sm.filter(|sample| sample.at_us > last_seen_us)?;
    Some(ProcessUtilization { pid: process.pid, time_us: sample.at_us, sm_pct: sample.pct, ..Default::default() })
}
