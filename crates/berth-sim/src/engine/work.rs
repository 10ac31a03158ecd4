//! Streams and what is queued on them: kernels, copies, events, and the calls that wait.

use berth_proto::sim::{Direction, KernelCost, Reply, cu};

use crate::profile::Profile;

use super::context::{DEFAULT_STREAM, Event, Mark, Op, Stream, Then, Waiter};
use super::fluid::Job;
use super::gpu::Lane;
use super::{Answer, Engine, Ticket};

impl Engine {
    pub(super) fn create_stream(&mut self, pid: u32, id: u64) -> Answer {
        let stream = self.fresh_id();
        self.usable(pid, id)?.streams.insert(stream, Stream::default());
        Ok(Some(Reply::Handle(stream)))
    }

    /// Answers at once; what is queued still runs.
    pub(super) fn destroy_stream(&mut self, pid: u32, id: u64, stream: u64) -> Answer {
        let context = self.usable(pid, id)?;
        let known = context.streams.get_mut(&stream).filter(|known| stream != DEFAULT_STREAM && !known.closing);
        known.ok_or(cu::INVALID_HANDLE)?.closing = true;
        self.pump(id);
        Ok(Some(Reply::Done))
    }

    pub(super) fn create_event(&mut self, pid: u32, id: u64) -> Answer {
        let event = self.fresh_id();
        self.usable(pid, id)?.events.insert(event, Event::default());
        Ok(Some(Reply::Handle(event)))
    }

    pub(super) fn destroy_event(&mut self, pid: u32, id: u64, event: u64) -> Answer {
        self.usable(pid, id)?.events.remove(&event).ok_or(cu::INVALID_HANDLE)?;
        Ok(Some(Reply::Done))
    }

    /// `waits`: the ticket of a call that returns only when the copy is done.
    pub(super) fn copy(
        &mut self,
        pid: u32,
        id: u64,
        stream: u64,
        direction: Direction,
        bytes: u64,
        waits: Option<Ticket>,
    ) -> Answer {
        let op = copy_op(&self.profile, direction, bytes);
        let mark = self.enqueue(pid, id, stream, op)?;
        match waits {
            Some(ticket) => self.wait_for(id, ticket, vec![mark], Then::Answer),
            None => Ok(Some(Reply::Done)),
        }
    }

    pub(super) fn launch(&mut self, pid: u32, id: u64, stream: u64, cost: KernelCost) -> Answer {
        let op = kernel_op(&self.profile, cost).ok_or(cu::INVALID_VALUE)?;
        self.enqueue(pid, id, stream, op)?;
        Ok(Some(Reply::Done))
    }

    pub(super) fn record(&mut self, pid: u32, id: u64, stream: u64, event: u64) -> Answer {
        let context = self.usable(pid, id)?;
        if !context.events.contains_key(&event) {
            return Err(cu::INVALID_HANDLE);
        }
        let mark = context.enqueue(stream, Op::Record { event }).ok_or(cu::INVALID_HANDLE)?;
        context.events.insert(event, Event { mark: Some(mark), at: None });
        self.pump(id);
        Ok(Some(Reply::Done))
    }

    pub(super) fn stream_wait(&mut self, pid: u32, id: u64, stream: u64, event: u64) -> Answer {
        let event = self.usable(pid, id)?.events.get(&event).ok_or(cu::INVALID_HANDLE)?;
        if let Some(mark) = event.mark {
            self.enqueue(pid, id, stream, Op::Wait(mark))?;
        }
        Ok(Some(Reply::Done))
    }

    pub(super) fn sync_stream(&mut self, pid: u32, ticket: Ticket, id: u64, stream: u64) -> Answer {
        let mark = self.usable(pid, id)?.end_of(stream).ok_or(cu::INVALID_HANDLE)?;
        self.wait_for(id, ticket, vec![mark], Then::Answer)
    }

    pub(super) fn sync_context(&mut self, pid: u32, ticket: Ticket, id: u64) -> Answer {
        let marks = self.usable(pid, id)?.ends();
        self.wait_for(id, ticket, marks, Then::Answer)
    }

    pub(super) fn sync_event(&mut self, pid: u32, ticket: Ticket, id: u64, event: u64) -> Answer {
        let event = self.usable(pid, id)?.events.get(&event).ok_or(cu::INVALID_HANDLE)?;
        let marks = event.mark.into_iter().collect();
        self.wait_for(id, ticket, marks, Then::Answer)
    }

    pub(super) fn query_stream(&mut self, pid: u32, id: u64, stream: u64) -> Answer {
        let context = self.usable(pid, id)?;
        let mark = context.end_of(stream).ok_or(cu::INVALID_HANDLE)?;
        if context.is_passed(mark) { Ok(Some(Reply::Done)) } else { Err(cu::NOT_READY) }
    }

    pub(super) fn query_event(&mut self, pid: u32, id: u64, event: u64) -> Answer {
        let context = self.usable(pid, id)?;
        let event = context.events.get(&event).ok_or(cu::INVALID_HANDLE)?;
        let passed = event.mark.is_none_or(|mark| context.is_passed(mark));
        if passed { Ok(Some(Reply::Done)) } else { Err(cu::NOT_READY) }
    }

    pub(super) fn elapsed(&mut self, pid: u32, id: u64, start: u64, end: u64) -> Answer {
        let context = self.usable(pid, id)?;
        let at = |event: u64| {
            let event = context.events.get(&event).filter(|event| event.mark.is_some()).ok_or(cu::INVALID_HANDLE)?;
            event.at.ok_or(cu::NOT_READY)
        };
        let (start, end) = (at(start)?, at(end)?);
        Ok(Some(Reply::Nanos(end.saturating_sub(start))))
    }

    /// A kernel or copy has ended on the hardware.
    pub(super) fn complete_op(&mut self, id: u64, stream: u64, was_kernel: bool) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        if was_kernel && self.processes.get(&context.pid).is_some_and(|process| process.faulty) {
            self.break_context(id, cu::LAUNCH_FAILED);
            return;
        }
        context.complete_head(stream, self.now);
        self.pump(id);
    }

    /// The context is unusable from now on; calls waiting in it learn so.
    pub(super) fn break_context(&mut self, id: u64, code: u32) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        let pid = context.pid;
        let waiters = context.break_with(code);
        self.gpus[context.gpu].drop_jobs(self.now, id);
        for waiter in waiters {
            match waiter.then {
                Then::Destroy => self.begin_teardown(id, Some(waiter.ticket)),
                Then::Answer | Then::Free { .. } => self.complete(pid, waiter.ticket, Reply::Error(code)),
            }
        }
        self.lock_if_drained(pid);
    }

    /// Answers now if the marks are passed, by the ticket otherwise.
    pub(super) fn wait_for(&mut self, id: u64, ticket: Ticket, marks: Vec<Mark>, then: Then) -> Answer {
        let Some(context) = self.contexts.get_mut(&id) else { return Err(cu::INVALID_CONTEXT) };
        if !marks.iter().all(|mark| context.is_passed(*mark)) {
            context.wait(ticket, marks, then);
            return Ok(None);
        }
        Ok(self.conclude(id, ticket, then))
    }

    /// What a call does once its wait is over.
    fn conclude(&mut self, id: u64, ticket: Ticket, then: Then) -> Option<Reply> {
        match then {
            Then::Answer => Some(Reply::Done),
            Then::Free { pointer } => Some(self.release(id, pointer)),
            Then::Destroy => {
                self.begin_teardown(id, Some(ticket));
                None
            }
        }
    }

    fn enqueue(&mut self, pid: u32, id: u64, stream: u64, op: Op) -> Result<Mark, u32> {
        let mark = self.usable(pid, id)?.enqueue(stream, op).ok_or(cu::INVALID_HANDLE)?;
        self.pump(id);
        Ok(mark)
    }

    /// Puts on the hardware what can go there, and answers the calls whose wait is over.
    fn pump(&mut self, id: u64) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        let pid = context.pid;
        for (stream, op) in context.next_ops(self.now) {
            let (lane, job) = on_hardware(pid, id, stream, op);
            self.gpus[context.gpu].submit(self.now, lane, job);
        }
        for Waiter { ticket, then, .. } in context.take_ready_waiters() {
            if let Some(reply) = self.conclude(id, ticket, then) {
                self.complete(pid, ticket, reply);
            }
        }
        self.lock_if_drained(pid);
    }
}

fn on_hardware(pid: u32, context: u64, stream: u64, op: Op) -> (Lane, Job) {
    let (lane, remaining_ns, demand, memory_part) = match op {
        Op::Kernel { work_ns, demand, memory_part } => (Lane::Compute, work_ns, demand, memory_part),
        Op::CopyIn { work_ns } => (Lane::CopyIn, work_ns, 1.0, 0.0),
        Op::CopyOut { work_ns } => (Lane::CopyOut, work_ns, 1.0, 0.0),
        Op::Record { .. } | Op::Wait(_) => unreachable!("records and waits need no hardware"),
    };
    (lane, Job { pid, context, stream, demand, memory_part, remaining_ns, rate: 0.0 })
}

/// 10⁹ bytes per second is one byte per nanosecond, so a division gives nanoseconds.
fn copy_op(profile: &Profile, direction: Direction, bytes: u64) -> Op {
    let copy = &profile.copy;
    let work = |gbps: f64| copy.latency_us * 1e3 + bytes as f64 / gbps;
    match direction {
        Direction::HostToDevice => Op::CopyIn { work_ns: work(copy.h2d_process_gbps) },
        Direction::DeviceToHost => Op::CopyOut { work_ns: work(copy.d2h_process_gbps) },
        // Read and written once each, by the SMs.
        Direction::DeviceToDevice => {
            let work_ns = profile.compute.launch_us * 1e3 + 2.0 * bytes as f64 / profile.compute.bandwidth_gbps;
            Op::Kernel { work_ns, demand: 1.0, memory_part: 1.0 }
        }
    }
}

/// `None` when the cost is no cost: a grid without blocks, a number that is none.
fn kernel_op(profile: &Profile, cost: KernelCost) -> Option<Op> {
    let sane = |value: f64| value.is_finite() && value >= 0.0;
    if cost.blocks == 0 || !sane(cost.flops) || !sane(cost.bytes) {
        return None;
    }
    let room = f64::from(profile.gpu.sm_count) * f64::from(profile.gpu.blocks_per_sm);
    let demand = (cost.blocks as f64 / room).min(1.0);
    let memory_ns = cost.bytes / profile.compute.bandwidth_gbps;
    let busy_ns = (cost.flops / profile.compute.gflops).max(memory_ns);
    let memory_part = if busy_ns > 0.0 { memory_ns / busy_ns } else { 0.0 };
    Some(Op::Kernel { work_ns: profile.compute.launch_us * 1e3 + busy_ns / demand, demand, memory_part })
}
