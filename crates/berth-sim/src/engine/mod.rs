//! The pure engine: requests in, replies and completions out, virtual time in nanoseconds.
//!
//! Time moves only by [`Engine::advance`]. Between two events all rates are constant, so an hour of kernels costs as
//! little as a microsecond; thousands of scenarios a second are possible. Where things are:
//!
//! | file | holds |
//! |---|---|
//! | `api` | tickets, outcomes, the NVML view |
//! | `fluid`, `shares` | how work progresses and who gets how much |
//! | `sms`, `bandwidth`, `turns` | who gets how much of the SMs, of the memory's bandwidth, of the time |
//! | `gpu`, `context`, `process` | the state of each |
//! | `lifecycle` | making and ending contexts |
//! | `memory`, `work` | allocations; launches, copies, streams, events |
//! | `graph` | many launches as one |
//! | `host_work` | what a stream has its process do to words of host memory |
//! | `checkpoint` | the driver's process lock and checkpoint |
//! | `strike` | faults taking effect |
//! | `meter`, `view` | what NVML shows |

#![forbid(unsafe_code)]

mod api;
mod bandwidth;
mod checkpoint;
mod context;
mod fluid;
mod gpu;
mod graph;
mod host_work;
mod lifecycle;
mod memory;
mod meter;
mod process;
mod rng;
mod shares;
mod sms;
mod strike;
mod time;
mod turns;
mod view;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use berth_proto::sim::{Reply, Request, cu};

pub use api::{Completion, GpuView, NvmlView, Outcome, ProcessView, Sharing, SmSample, Ticket, Traffic, Utilisation};
pub(crate) use rng::Rng;
pub(crate) use time::{from_ms, nanos};

use crate::fault::{Fault, NoSuchTarget, NvmlFaults};
use crate::profile::Profile;

use context::Context;
use gpu::{Gpu, Lane};
use process::Process;

/// Where no program has memory of its own, so that a device address is never one of the host's.
const FIRST_POINTER: u64 = 0x1000_0000_0000;

/// A call's answer: `Ok(None)` comes later by its ticket, `Err` is a `CUresult`.
type Answer = Result<Option<Reply>, u32>;

#[derive(Debug)]
pub struct Engine {
    profile: Profile,
    sharing: Sharing,
    now: u64,
    rng: Rng,
    gpus: Vec<Gpu>,
    contexts: BTreeMap<u64, Context>,
    processes: BTreeMap<u32, Process>,
    timers: BTreeMap<(u64, u64), Timer>,
    /// Source of every ticket, handle and order of timers; never repeats.
    last_id: u64,
    next_pointer: u64,
    completions: Vec<Completion>,
    nvml_faults: NvmlFaults,
}

/// What happens at a time fixed in advance. A timer whose subject is gone or has moved on does nothing.
#[derive(Debug, Clone, Copy)]
enum Timer {
    Opened { pid: u32, ticket: Ticket },
    Listed { context: u64 },
    Ready { context: u64 },
    LockExpires { pid: u32, operation: u64 },
    OperationDone { pid: u32, operation: u64 },
    Strike(Fault),
}

impl Engine {
    /// `gpu_count` GPUs of one kind in one machine, taking turns between processes.
    pub fn new(profile: Profile, gpu_count: u32, seed: u64) -> Engine {
        Engine::with_sharing(profile, gpu_count, seed, Sharing::TimeSliced)
    }

    pub fn with_sharing(profile: Profile, gpu_count: u32, seed: u64, sharing: Sharing) -> Engine {
        let mut rng = Rng::new(seed);
        let gpus = (0..gpu_count).map(|_| Gpu::new(&profile, sharing, &mut rng)).collect();
        Engine {
            profile,
            sharing,
            now: 0,
            rng,
            gpus,
            contexts: BTreeMap::new(),
            processes: BTreeMap::new(),
            timers: BTreeMap::new(),
            last_id: 0,
            next_pointer: FIRST_POINTER,
            completions: Vec::new(),
            nvml_faults: NvmlFaults::default(),
        }
    }

    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Nanoseconds of virtual time.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// When something will happen by itself: a call is answered, or what NVML shows changes. `None`: nothing, ever.
    pub fn next_event(&self) -> Option<u64> {
        if self.completions.is_empty() { self.next_step() } else { Some(self.now) }
    }

    /// Moves time to `to` (never backwards) and returns what was answered on the way, in order.
    pub fn advance(&mut self, to: u64) -> Vec<Completion> {
        while let Some(at) = self.next_step().filter(|at| *at <= to) {
            self.now = self.now.max(at);
            self.step();
        }
        self.now = self.now.max(to);
        std::mem::take(&mut self.completions)
    }

    /// A call of process `pid`, which becomes known by its first one.
    pub fn request(&mut self, pid: u32, request: Request) -> Outcome {
        let ticket = Ticket(self.fresh_id());
        let process = self.processes.entry(pid).or_default();
        if process.holds(&request) {
            process.held.push_back((ticket, request));
            return Outcome::Later(ticket);
        }
        self.execute(pid, ticket, request).map_or(Outcome::Later(ticket), Outcome::Now)
    }

    /// The process is gone: its calls are forgotten, its kernels dropped, its contexts torn down.
    pub fn process_exited(&mut self, pid: u32) {
        self.stand_still(pid, false);
        self.abandon_operations(pid);
        self.processes.remove(&pid);
        let contexts: Vec<u64> = self.contexts_of(pid).collect();
        for context in contexts {
            self.orphan(context);
        }
        self.completions.retain(|completion| completion.pid != pid);
    }

    /// The process's threads stand still, or move again. Making and ending its contexts and its copies need them and stand
    /// still too, in nobody's way; its kernels run on.
    pub fn stand_still(&mut self, pid: u32, still: bool) {
        for gpu in &mut self.gpus {
            gpu.stand_still(self.now, pid, still);
        }
    }

    /// Processes whose threads are needed for what is under way: what [`Engine::stand_still`] would hold up.
    pub fn needed(&self) -> BTreeSet<u32> {
        self.gpus.iter().flat_map(Gpu::needed).collect()
    }

    /// The fault strikes now and stays. Refused if there is nothing it could strike.
    pub fn inject(&mut self, fault: Fault) -> Result<(), NoSuchTarget> {
        self.find_target(fault)?;
        self.strike(fault);
        Ok(())
    }

    /// The fault strikes at a time drawn from the seed, in `from..to` (from now on, when that is past); what is not there
    /// by then is spared.
    pub fn inject_between(&mut self, fault: Fault, from: u64, to: u64) {
        let span = to.saturating_sub(from) as f64;
        let at = from.saturating_add(nanos((self.rng.unit() * span).floor()));
        self.at(at, Timer::Strike(fault));
    }

    /// Runs a call whose process may go on; `None` comes later by the ticket.
    fn execute(&mut self, pid: u32, ticket: Ticket, request: Request) -> Option<Reply> {
        self.answer(pid, ticket, request).unwrap_or_else(|code| Some(Reply::Error(code)))
    }

    fn answer(&mut self, pid: u32, ticket: Ticket, request: Request) -> Answer {
        match request {
            Request::DeviceCount => Ok(Some(Reply::Count(u32::try_from(self.gpus.len()).unwrap_or(u32::MAX)))),
            Request::Device { device } => {
                let gpu = self.present_gpu(device)?;
                Ok(Some(Reply::Device(Box::new(self.gpus[gpu].device.clone()))))
            }
            Request::Init => self.initialise(pid, ticket),
            Request::ContextCreate { device } => self.create_context(pid, ticket, device),
            Request::ContextDestroy { context } => self.destroy_context(pid, ticket, context),
            Request::MemAlloc { context, bytes } => self.allocate(pid, context, bytes),
            Request::MemFree { context, pointer } => self.free(pid, ticket, context, pointer),
            Request::MemInfo { context } => self.memory_info(pid, context),
            Request::Checkpoint { pid: target, op } => self.checkpoint(pid, ticket, target, op),
            Request::StreamCreate { context } => self.create_stream(pid, context),
            Request::StreamCreateWith { context, priority, sms } => {
                self.create_stream_with(pid, context, priority, sms)
            }
            Request::MpsClient { percentage, priority } => self.mps_client(pid, percentage, priority),
            Request::StreamDestroy { context, stream } => self.destroy_stream(pid, context, stream),
            Request::EventCreate { context } => self.create_event(pid, context),
            Request::EventDestroy { context, event } => self.destroy_event(pid, context, event),
            Request::Copy { context, stream, direction, bytes, wait } => {
                self.copy(pid, context, stream, direction, bytes, wait.then_some(ticket))
            }
            Request::Launch { context, stream, cost } => self.launch(pid, context, stream, cost),
            Request::EventRecord { context, stream, event } => self.record(pid, context, stream, event),
            Request::StreamWait { context, stream, event } => self.stream_wait(pid, context, stream, event),
            Request::StreamSync { context, stream } => self.sync_stream(pid, ticket, context, stream),
            Request::StreamQuery { context, stream } => self.query_stream(pid, context, stream),
            Request::ContextSync { context } => self.sync_context(pid, ticket, context),
            Request::EventSync { context, event } => self.sync_event(pid, ticket, context, event),
            Request::EventQuery { context, event } => self.query_event(pid, context, event),
            Request::EventElapsed { context, start, end } => self.elapsed(pid, context, start, end),
            Request::HostWork { context, stream, token } => self.queue_host_work(pid, context, stream, token),
            Request::GraphCreate { context, tracks } => self.create_graph(pid, context, tracks),
            Request::GraphAdd { context, graph, track, work } => self.add_to_graph(pid, context, graph, track, work),
            Request::GraphLaunch { context, stream, graph } => self.launch_graph(pid, context, stream, graph),
            Request::GraphDestroy { context, graph } => self.destroy_graph(pid, context, graph),
            Request::HostWorkNext => self.listen_for_host_work(pid, ticket),
            Request::HostWorkDone { context, stream, token } => self.host_work_done(pid, context, stream, token),
        }
    }

    fn next_step(&self) -> Option<u64> {
        let timer = self.timers.keys().next().map(|(at, _)| *at);
        let ends = self.gpus.iter().filter_map(Gpu::next_end);
        let windows = self.gpus.iter().filter_map(|gpu| gpu.meter.window_end());
        timer.into_iter().chain(ends).chain(windows).min()
    }

    /// Does one thing that is due. The order among things due at the same instant is fixed.
    fn step(&mut self) {
        if let Some(entry) = self.timers.first_entry().filter(|entry| entry.key().0 <= self.now) {
            let timer = entry.remove();
            self.fire(timer);
            return;
        }
        for gpu in 0..self.gpus.len() {
            if self.gpus[gpu].next_end().is_some_and(|end| end <= self.now) {
                let ended = self.gpus[gpu].take_ended(self.now);
                for (lane, job) in ended {
                    match lane {
                        Lane::Driver => self.section_done(job.context),
                        Lane::Compute | Lane::CopyIn | Lane::CopyOut => {
                            self.complete_op(job.context, job.stream, lane == Lane::Compute);
                        }
                    }
                }
                return;
            }
            let meter = &mut self.gpus[gpu].meter;
            if let Some(end) = meter.window_end().filter(|end| *end <= self.now) {
                meter.close_window(end);
                return;
            }
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Opened { pid, ticket } => self.opened(pid, ticket),
            Timer::Listed { context } => self.context_listed(context),
            Timer::Ready { context } => self.context_ready(context),
            Timer::LockExpires { pid, operation } => self.lock_expires(pid, operation),
            Timer::OperationDone { pid, operation } => self.operation_done(pid, operation),
            Timer::Strike(fault) => self.strike(fault),
        }
    }

    fn at(&mut self, time: u64, timer: Timer) {
        let order = self.fresh_id();
        self.timers.insert((time.max(self.now), order), timer);
    }

    fn after_ns(&mut self, ns: u64, timer: Timer) {
        self.at(self.now.saturating_add(ns), timer);
    }

    fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn complete(&mut self, pid: u32, ticket: Ticket, reply: Reply) {
        self.completions.push(Completion { ticket, pid, reply });
    }

    /// The context, if it is this process's, ready, and not broken.
    fn usable(&mut self, pid: u32, context: u64) -> Result<&mut Context, u32> {
        let context = self.owned(pid, context)?;
        context.error.map_or(Ok(context), Err)
    }

    fn owned(&mut self, pid: u32, context: u64) -> Result<&mut Context, u32> {
        self.contexts
            .get_mut(&context)
            .filter(|context| context.pid == pid && context.phase == context::Phase::Ready)
            .ok_or(cu::INVALID_CONTEXT)
    }

    fn contexts_of(&self, pid: u32) -> impl Iterator<Item = u64> {
        self.contexts.iter().filter(move |(_, context)| context.pid == pid).map(|(id, _)| *id)
    }

    fn present_gpu(&self, device: u32) -> Result<usize, u32> {
        let index = device as usize;
        let gpu = self.gpus.get(index).ok_or(cu::INVALID_DEVICE)?;
        if gpu.lost { Err(cu::UNKNOWN) } else { Ok(index) }
    }
}
