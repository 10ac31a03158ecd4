//! Making and ending contexts: parts that run side by side, and parts the driver does by turns.
//!
//! ```text
//! first call ──(wake)──open──▶ listed, memory charged ──▶ [driver: serial + blocking] ──finish──▶ ready
//! destroy or exit ──▶ [driver: serial + blocking] ──▶ memory released, unlisted
//! ```
//!
//! In the brackets the driver works on one context at a time, but in pieces so small that all in its hands advance together.
//! Here that is a lane of its own ([`Lane::Driver`]), shared equally: the limit of small pieces, and no events for them.

use berth_proto::sim::{Reply, cu};

use super::context::{Context, DEFAULT_STREAM, Phase, Then};
use super::fluid::{Job, Need};
use super::gpu::{Lane, MIB};
use super::{Answer, Engine, Sharing, Ticket, Timer, from_ms};

impl Engine {
    /// Opens all GPUs, as `cuInit` does.
    pub(super) fn initialise(&mut self, pid: u32, ticket: Ticket) -> Answer {
        let opened_at = (0..self.gpus.len()).map(|gpu| self.open(gpu)).max().unwrap_or(self.now);
        self.at(opened_at, Timer::Opened { pid, ticket });
        Ok(None)
    }

    pub(super) fn opened(&mut self, pid: u32, ticket: Ticket) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.has_opened = true;
            self.complete(pid, ticket, Reply::Done);
        }
    }

    pub(super) fn create_context(&mut self, pid: u32, ticket: Ticket, device: u32) -> Answer {
        let gpu = self.present_gpu(device)?;
        let has_opened = self.processes.get(&pid).is_some_and(|process| process.has_opened);
        let opened_at = if has_opened { self.now } else { self.open(gpu) };
        let context = self.fresh_id();
        self.contexts.insert(context, Context::new(pid, gpu, ticket));
        self.at(opened_at, Timer::Listed { context });
        Ok(None)
    }

    /// When a GPU that is asked for now will be open.
    fn open(&mut self, gpu: usize) -> u64 {
        let awake_at = self.wake(gpu);
        awake_at.saturating_add(self.spread_ns(self.profile.context.create_open_ms))
    }

    /// Waits for the context's work, then tears it down. Works on a broken context too.
    pub(super) fn destroy_context(&mut self, pid: u32, ticket: Ticket, id: u64) -> Answer {
        let context = self.owned(pid, id)?;
        context.phase = Phase::Closing;
        let marks = context.ends();
        self.wait_for(id, ticket, marks, Then::Destroy)
    }

    pub(super) fn context_listed(&mut self, id: u64) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        let Phase::Opening(ticket) = context.phase else { return };
        let (pid, gpu) = (context.pid, context.gpu);
        if self.set_charge(id, self.own_memory()) {
            self.set_phase(id, Phase::Creating(ticket));
            let (context, mps) = (&self.profile.context, &self.profile.mps);
            let parts = match self.sharing {
                Sharing::TimeSliced => (context.create_serial_ms, context.create_blocking_ms),
                Sharing::Mps => (mps.create_serial_ms, mps.create_blocking_ms),
            };
            self.enter_driver(id, pid, gpu, parts);
        } else {
            self.contexts.remove(&id);
            self.complete(pid, ticket, Reply::Error(cu::OUT_OF_MEMORY));
            self.lock_if_drained(pid);
        }
    }

    /// The driver is done with the context for now.
    pub(super) fn section_done(&mut self, id: u64) {
        match self.contexts.get(&id).map(|context| context.phase) {
            Some(Phase::Creating(ticket)) => {
                self.set_phase(id, Phase::Finishing(ticket));
                let finish_ns = self.spread_ns(self.profile.context.create_finish_ms);
                self.after_ns(finish_ns, Timer::Ready { context: id });
            }
            Some(Phase::Dying(_)) => self.remove_context(id),
            Some(Phase::Opening(_) | Phase::Finishing(_) | Phase::Ready | Phase::Closing) | None => {}
        }
    }

    pub(super) fn context_ready(&mut self, id: u64) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        let Phase::Finishing(ticket) = context.phase else { return };
        context.phase = Phase::Ready;
        let pid = context.pid;
        self.complete(pid, ticket, Reply::Handle(id));
        self.lock_if_drained(pid);
    }

    /// Ends a context with no work left. One that holds nothing on the GPU goes at once.
    pub(super) fn begin_teardown(&mut self, id: u64, ticket: Option<Ticket>) {
        self.set_phase(id, Phase::Dying(ticket));
        let Some(context) = self.contexts.get(&id) else { return };
        let (pid, gpu) = (context.pid, context.gpu);
        if context.charged == 0 || self.gpus[gpu].lost {
            self.remove_context(id);
            return;
        }
        let (context, mps) = (&self.profile.context, &self.profile.mps);
        let parts = match self.sharing {
            Sharing::TimeSliced => (context.teardown_serial_ms, context.teardown_blocking_ms),
            Sharing::Mps => (mps.teardown_serial_ms, mps.teardown_blocking_ms),
        };
        self.enter_driver(id, pid, gpu, parts);
    }

    /// The context's process is gone.
    pub(super) fn orphan(&mut self, id: u64) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        context.waiters.clear();
        context.break_with(cu::UNKNOWN);
        let gpu = &mut self.gpus[context.gpu];
        gpu.drop_jobs(self.now, id);
        match context.phase {
            Phase::Dying(_) => context.phase = Phase::Dying(None),
            Phase::Creating(_) => {
                gpu.drop_section(self.now, id);
                self.begin_teardown(id, None);
            }
            Phase::Opening(_) | Phase::Finishing(_) | Phase::Ready | Phase::Closing => self.begin_teardown(id, None),
        }
    }

    pub(super) fn remove_context(&mut self, id: u64) {
        self.set_charge(id, 0);
        let Some(context) = self.contexts.remove(&id) else { return };
        let (pid, gpu) = (context.pid, context.gpu);
        self.gpus[gpu].drop_section(self.now, id);
        if !self.contexts.values().any(|other| other.pid == pid && other.gpu == gpu) {
            self.gpus[gpu].meter.forget(pid);
        }
        if let Phase::Dying(Some(ticket)) = context.phase {
            self.complete(pid, ticket, Reply::Done);
        }
        self.lock_if_drained(pid);
    }

    /// Device memory of a context without allocations.
    pub(super) fn own_memory(&self) -> u64 {
        self.profile.context.memory_mib * MIB
    }

    /// When the GPU is there to be opened: a driver lets a GPU sleep that nobody has a context on.
    fn wake(&mut self, gpu: usize) -> u64 {
        if !self.contexts.values().any(|context| context.gpu == gpu) {
            self.gpus[gpu].awake_at = self.now.saturating_add(from_ms(self.profile.context.wake_ms));
        }
        self.gpus[gpu].awake_at.max(self.now)
    }

    /// Puts a context into the driver's hands, for a part during which kernels run and one during which they do not.
    fn enter_driver(&mut self, context: u64, pid: u32, gpu: usize, (serial_ms, blocking_ms): (f64, f64)) {
        let ms = serial_ms + blocking_ms;
        let demand = if ms > 0.0 { blocking_ms / ms } else { 0.0 };
        let remaining_ns = self.spread_ns(ms) as f64;
        let job = Job {
            pid,
            context,
            stream: DEFAULT_STREAM,
            demand,
            memory_part: 0.0,
            remaining_ns,
            rate: 0.0,
            need: Need::default(),
            held: 0.0,
        };
        self.gpus[gpu].submit(self.now, Lane::Driver, job);
    }

    fn set_phase(&mut self, id: u64, phase: Phase) {
        if let Some(context) = self.contexts.get_mut(&id) {
            context.phase = phase;
        }
    }

    fn spread_ns(&mut self, ms: f64) -> u64 {
        from_ms(self.rng.spread(ms, self.profile.context.jitter_pct))
    }
}
