//! The driver's calls on another process: lock, checkpoint, restore, unlock.
//!
//! A pid is the server's: from inside a container's pid namespace the host's pids must be known.

use std::ffi::c_int;

use berth_proto::cuda::{CheckpointLockArgs, CheckpointRestoreArgs, result};
use berth_proto::sim::{CheckpointOp, Reply, Request};

use crate::edge::{Answer, In, Out};
use crate::process::{call, demand, unexpected};

fn process_id(pid: c_int) -> Answer<u32> {
    u32::try_from(pid).ok().filter(|pid| *pid != 0).ok_or(result::INVALID_VALUE)
}

pub(crate) fn state(pid: c_int, out: Out<u32>) -> Answer {
    out.check()?;
    match call(Request::Checkpoint { pid: process_id(pid)?, op: CheckpointOp::GetState })? {
        Reply::ProcessState(state) => out.set(state),
        reply => Err(unexpected(&reply)),
    }
}

pub(crate) fn lock(pid: c_int, arguments: In<CheckpointLockArgs>) -> Answer {
    let timeout_ms = arguments.get().map_or(0, |arguments| arguments.timeout_ms);
    act(pid, CheckpointOp::Lock { timeout_ms })
}

pub(crate) fn act(pid: c_int, op: CheckpointOp) -> Answer {
    demand(Request::Checkpoint { pid: process_id(pid)?, op })
}

/// Restoring onto another GPU is not modelled.
pub(crate) fn restore(pid: c_int, arguments: In<CheckpointRestoreArgs>) -> Answer {
    match arguments.get() {
        Some(arguments) if arguments.gpu_pair_count != 0 => Err(result::NOT_SUPPORTED),
        _ => act(pid, CheckpointOp::Restore),
    }
}

/// No thread of the target does the restoring here; its first thread stands for the one that would.
pub(crate) fn restore_thread(pid: c_int, out: Out<c_int>) -> Answer {
    out.check()?;
    call(Request::Checkpoint { pid: process_id(pid)?, op: CheckpointOp::GetState })?;
    out.set(pid)
}
