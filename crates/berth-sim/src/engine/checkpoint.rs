//! The driver's calls on another process: lock, checkpoint, restore, unlock.
//!
//! ```text
//! Running ──lock──▶ Locked ──checkpoint──▶ Checkpointed ──restore──▶ Locked ──unlock──▶ Running
//! ```
//! Anything else, or a second call while one is under way, is `ILLEGAL_STATE`. A lock waits for queued work and for a
//! context being made; new calls of the process wait from the moment it is asked for until the unlock is done.

use berth_proto::sim::{CheckpointOp, Reply, cu};

use super::context::Phase;
use super::process::{Operation, OperationKind, State};
use super::time::{from_ms, from_us, nanos};
use super::{Answer, Engine, Ticket, Timer};

impl Engine {
    pub(super) fn checkpoint(&mut self, asker: u32, ticket: Ticket, target: u32, op: CheckpointOp) -> Answer {
        let process = self.processes.get(&target).ok_or(cu::INVALID_VALUE)?;
        let state = process.state;
        let idle = process.operation.is_none();
        match op {
            CheckpointOp::GetState => return Ok(Some(Reply::ProcessState(state as u32))),
            CheckpointOp::Lock { timeout_ms } if idle && state == State::Running => {
                self.begin_lock(asker, ticket, target, timeout_ms);
            }
            CheckpointOp::Checkpoint if idle && state == State::Locked => {
                let save_ns = self.transfer_ns(target, true);
                self.begin(asker, ticket, target, OperationKind::Save, Some(save_ns));
            }
            CheckpointOp::Restore if idle && state == State::Checkpointed => {
                self.bring_back(target)?;
                let restore_ns = self.transfer_ns(target, false);
                self.begin(asker, ticket, target, OperationKind::Restore, Some(restore_ns));
            }
            CheckpointOp::Unlock if idle && state == State::Locked => {
                self.begin(asker, ticket, target, OperationKind::Unlock, Some(self.lock_ns()));
            }
            _ => return Err(cu::ILLEGAL_STATE),
        }
        Ok(None)
    }

    /// If a lock only waits for this process's work, and there is none left, the lock is taken.
    pub(super) fn lock_if_drained(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let waits = |operation: &&mut Operation| operation.kind == OperationKind::Drain;
        let Some(operation) = process.operation.as_mut().filter(waits) else { return };
        let mut its = self.contexts.values().filter(|context| context.pid == pid);
        if its.all(|context| context.phase == Phase::Ready && context.is_idle()) {
            operation.kind = OperationKind::Lock;
            let operation = operation.id;
            self.after_ns(self.lock_ns(), Timer::OperationDone { pid, operation });
        }
    }

    pub(super) fn lock_expires(&mut self, pid: u32, id: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let waiting = |operation: &mut Operation| operation.id == id && operation.kind == OperationKind::Drain;
        if let Some(operation) = process.operation.take_if(waiting) {
            self.answer_operation(operation, Reply::Error(cu::TIMEOUT));
            self.release_held(pid);
        }
    }

    pub(super) fn operation_done(&mut self, pid: u32, id: u64) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let Some(operation) = process.operation.take_if(|operation| operation.id == id) else { return };
        process.state = match operation.kind {
            OperationKind::Drain | OperationKind::Lock | OperationKind::Restore => State::Locked,
            OperationKind::Save => State::Checkpointed,
            OperationKind::Unlock => State::Running,
        };
        if operation.kind == OperationKind::Save {
            self.take_away(pid);
        }
        self.answer_operation(operation, Reply::Done);
        if operation.kind == OperationKind::Unlock {
            self.release_held(pid);
        }
    }

    /// The process is gone: what was asked of it fails, what it asked of others is answered to nobody.
    pub(super) fn abandon_operations(&mut self, pid: u32) {
        if let Some(operation) = self.processes.get_mut(&pid).and_then(|process| process.operation.take()) {
            self.answer_operation(operation, Reply::Error(cu::INVALID_VALUE));
        }
        for operation in self.processes.values_mut().filter_map(|process| process.operation.as_mut()) {
            operation.asker = operation.asker.filter(|(asker, _)| *asker != pid);
        }
    }

    /// A GPU of the process is lost in the middle of an operation: a lock is not taken, moving memory leaves it failed.
    pub(super) fn fail_operation(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let fails = |operation: &mut Operation| operation.kind != OperationKind::Unlock;
        let Some(operation) = process.operation.take_if(fails) else { return };
        if matches!(operation.kind, OperationKind::Save | OperationKind::Restore) {
            process.state = State::Failed;
        }
        self.answer_operation(operation, Reply::Error(cu::UNKNOWN));
        self.release_held(pid);
    }

    fn begin_lock(&mut self, asker: u32, ticket: Ticket, target: u32, timeout_ms: u32) {
        let operation = self.begin(asker, ticket, target, OperationKind::Drain, None);
        if timeout_ms > 0 {
            self.after_ns(u64::from(timeout_ms) * 1_000_000, Timer::LockExpires { pid: target, operation });
        }
        self.lock_if_drained(target);
    }

    /// `done_in_ns`: `None` when the end is not known yet.
    fn begin(&mut self, asker: u32, ticket: Ticket, target: u32, kind: OperationKind, done_in_ns: Option<u64>) -> u64 {
        let id = self.fresh_id();
        if let Some(process) = self.processes.get_mut(&target) {
            process.operation = Some(Operation { id, kind, asker: Some((asker, ticket)) });
        }
        if let Some(ns) = done_in_ns {
            self.after_ns(ns, Timer::OperationDone { pid: target, operation: id });
        }
        id
    }

    fn answer_operation(&mut self, operation: Operation, reply: Reply) {
        if let Some((asker, ticket)) = operation.asker {
            self.complete(asker, ticket, reply);
        }
    }

    /// Runs the calls that waited, in order.
    fn release_held(&mut self, pid: u32) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        for (ticket, request) in std::mem::take(&mut process.held) {
            if let Some(reply) = self.execute(pid, ticket, request) {
                self.complete(pid, ticket, reply);
            }
        }
    }

    /// The process's memory is on the host now.
    fn take_away(&mut self, pid: u32) {
        let contexts: Vec<u64> = self.contexts_of(pid).collect();
        for context in contexts {
            self.set_charge(context, 0);
        }
    }

    /// Charges the process's memory again, all of it or nothing.
    fn bring_back(&mut self, pid: u32) -> Result<(), u32> {
        let contexts: Vec<(u64, u64)> = self.footprints(pid).collect();
        for (context, bytes) in &contexts {
            if !self.set_charge(*context, *bytes) {
                self.take_away(pid);
                return Err(cu::OUT_OF_MEMORY);
            }
        }
        Ok(())
    }

    /// Memory of each context of the process when it is on the GPU.
    fn footprints(&self, pid: u32) -> impl Iterator<Item = (u64, u64)> {
        let own = self.own_memory();
        let contexts = self.contexts.iter().filter(move |(_, context)| context.pid == pid);
        contexts.map(move |(id, context)| (*id, own + context.pages_with(0).unwrap_or_default()))
    }

    fn transfer_ns(&self, pid: u32, save: bool) -> u64 {
        let bytes: u64 = self.footprints(pid).map(|(_, bytes)| bytes).sum();
        let costs = &self.profile.checkpoint;
        let (base_ms, gbps) =
            if save { (costs.save_base_ms, costs.save_gbps) } else { (costs.restore_base_ms, costs.restore_gbps) };
        from_ms(base_ms) + nanos(bytes as f64 / gbps)
    }

    fn lock_ns(&self) -> u64 {
        from_us(self.profile.checkpoint.lock_us)
    }
}
