//! Streams and what is queued on them: kernels, copies, events, and the calls that wait.

use berth_proto::sim::{Direction, KernelCost, Reply, Sms, cu};

use crate::profile::Profile;

use super::bandwidth;
use super::context::{DEFAULT_STREAM, Event, Kernel, Mark, Op, Stream, Then, Waiter};
use super::fluid::{Job, Need};
use super::gpu::Lane;
use super::{Answer, Engine, Sharing, Ticket};

impl Engine {
    pub(super) fn create_stream(&mut self, pid: u32, id: u64) -> Answer {
        let stream = self.fresh_id();
        self.usable(pid, id)?.streams.insert(stream, Stream::default());
        Ok(Some(Reply::Handle(stream)))
    }

    pub(super) fn create_stream_with(&mut self, pid: u32, id: u64, priority: i32, sms: Sms) -> Answer {
        let all = self.profile.gpu.sm_count;
        let end = sms.first.checked_add(sms.count).filter(|end| *end <= all).ok_or(cu::INVALID_VALUE)?;
        let part = |count: u32| f64::from(count) / f64::from(all);
        let sms = (sms.count > 0).then(|| (part(sms.first), part(end)));
        let stream = self.fresh_id();
        self.usable(pid, id)?.streams.insert(stream, Stream::with(priority, sms));
        Ok(Some(Reply::Handle(stream)))
    }

    /// For kernels that are launched from now on.
    pub(super) fn mps_client(&mut self, pid: u32, percentage: u32, priority: u32) -> Answer {
        if !(1..=100).contains(&percentage) {
            return Err(cu::INVALID_VALUE);
        }
        let has_mps = self.sharing == Sharing::Mps;
        if let Some(process) = self.processes.get_mut(&pid).filter(|_| has_mps) {
            process.mps_percentage = Some(percentage);
            process.mps_priority = priority;
        }
        Ok(Some(Reply::Done))
    }

    /// Answers at once; what is queued still runs.
    pub(super) fn destroy_stream(&mut self, pid: u32, id: u64, stream: u64) -> Answer {
        let context = self.usable(pid, id)?;
        if stream == DEFAULT_STREAM || !context.close(stream) {
            return Err(cu::INVALID_HANDLE);
        }
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
        let op = kernel_op(&self.profile, cost, self.profile.compute.launch_us).ok_or(cu::INVALID_VALUE)?;
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

    pub(super) fn enqueue(&mut self, pid: u32, id: u64, stream: u64, op: Op) -> Result<Mark, u32> {
        let mark = self.usable(pid, id)?.enqueue(stream, op).ok_or(cu::INVALID_HANDLE)?;
        self.pump(id);
        Ok(mark)
    }

    /// Begins what can begin, and answers the calls whose wait is over.
    pub(super) fn pump(&mut self, id: u64) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        let pid = context.pid;
        let client = self.processes.get(&pid);
        let (priority, percentage) = client.map_or((0, None), |client| (client.mps_priority, client.mps_percentage));
        let cap = f64::from(percentage.unwrap_or(100)) / 100.0;
        let mut reached = Vec::new();
        for (stream, op) in context.next_ops(self.now) {
            let of_stream = context.streams.get(&stream);
            let rank = (priority, of_stream.map_or(0, |stream| stream.priority));
            let sms = of_stream.and_then(|stream| stream.sms).unwrap_or((0.0, 1.0));
            let need = Need { rank, sms, cap, ..Need::default() };
            match on_hardware(op, need) {
                Ok((lane, job)) => {
                    self.gpus[context.gpu].submit(self.now, lane, Job { pid, context: id, stream, ..job });
                }
                Err(token) => reached.push(token),
            }
        }
        let waiters = context.take_ready_waiters();
        self.tell_of_host_work(pid, reached);
        for Waiter { ticket, then, .. } in waiters {
            if let Some(reply) = self.conclude(id, ticket, then) {
                self.complete(pid, ticket, reply);
            }
        }
        self.lock_if_drained(pid);
    }
}

/// The job an operation is, of nobody yet, or the host work. `need` is what its stream and process say.
fn on_hardware(op: Op, need: Need) -> Result<(Lane, Job), u64> {
    let job = |remaining_ns, demand, memory_part, need| Job {
        pid: 0,
        context: 0,
        stream: 0,
        demand,
        memory_part,
        remaining_ns,
        rate: 0.0,
        need,
        held: 0.0,
    };
    match op {
        Op::Kernel(Kernel { work_ns, demand, memory_part, compute_part, wave_ns }) => {
            let need = Need { compute_part, wave_ns, whole_ns: work_ns, ..need };
            Ok((Lane::Compute, job(work_ns, demand, memory_part, need)))
        }
        Op::CopyIn { work_ns } => Ok((Lane::CopyIn, job(work_ns, 1.0, 0.0, need))),
        Op::CopyOut { work_ns } => Ok((Lane::CopyOut, job(work_ns, 1.0, 0.0, need))),
        Op::Host { token } => Err(token),
        Op::Record { .. } | Op::Wait(_) => unreachable!("records and waits need no hardware"),
    }
}

/// 10⁹ bytes per second is one byte per nanosecond, so a division gives nanoseconds.
pub(super) fn copy_op(profile: &Profile, direction: Direction, bytes: u64) -> Op {
    let copy = &profile.copy;
    let work = |gbps: f64| copy.latency_us * 1e3 + bytes as f64 / gbps;
    match direction {
        Direction::HostToDevice => Op::CopyIn { work_ns: work(copy.h2d_process_gbps) },
        Direction::DeviceToHost => Op::CopyOut { work_ns: work(copy.d2h_process_gbps) },
        // Read and written once each, by the SMs.
        Direction::DeviceToDevice => {
            let move_ns = 2.0 * bytes as f64 / profile.compute.bandwidth_gbps;
            let blocks = bytes.div_ceil(COPY_BLOCK_BYTES).max(1);
            kernel(profile, profile.compute.launch_us, (0.0, move_ns), blocks)
        }
    }
}

/// `None` when the cost is no cost: a grid without blocks, a number that is none. `launch_us` is the fixed part.
pub(super) fn kernel_op(profile: &Profile, cost: KernelCost, launch_us: f64) -> Option<Op> {
    let sane = |value: f64| value.is_finite() && value >= 0.0;
    if cost.blocks == 0 || !sane(cost.flops) || !sane(cost.bytes) {
        return None;
    }
    let compute_ns = cost.flops / profile.compute.gflops;
    let memory_ns = cost.bytes / profile.compute.bandwidth_gbps;
    Some(kernel(profile, launch_us, (compute_ns, memory_ns), cost.blocks))
}

/// Of what arithmetic and memory accesses take on all SMs.
fn kernel(profile: &Profile, launch_us: f64, (compute_ns, memory_ns): (f64, f64), blocks: u64) -> Op {
    let room = f64::from(profile.gpu.sm_count) * f64::from(profile.gpu.blocks_per_sm);
    let demand = (blocks as f64 / room).min(1.0);
    let busy_ns = compute_ns.max(memory_ns);
    let part = |ns: f64, idle: f64| if busy_ns > 0.0 { ns / busy_ns } else { idle };
    let (compute_part, memory_part) = (part(compute_ns, 1.0), part(memory_ns, 0.0));
    let alone_ns = busy_ns * bandwidth::alone(compute_part, memory_part, demand, profile.compute.memory_sms);
    let waves = (blocks as f64 / room).ceil();
    Op::Kernel(Kernel {
        work_ns: launch_us * 1e3 + alone_ns,
        demand,
        memory_part,
        compute_part,
        wave_ns: alone_ns / waves,
    })
}

/// What one block of a copy within the device moves.
const COPY_BLOCK_BYTES: u64 = 16 << 10;
