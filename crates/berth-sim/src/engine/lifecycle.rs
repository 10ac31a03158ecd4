//! Making and ending contexts: parts that run side by side, parts under the driver's lock, parts that stop the SMs.
//!
//! ```text
//! call ──open──▶ listed, memory charged ──▶ [driver lock: serial ──▶ blocking] ──finish──▶ ready
//! destroy or exit ──▶ [driver lock: serial ──▶ blocking] ──▶ memory released, unlisted
//! ```

use berth_proto::sim::{Reply, cu};

use super::context::{Context, Phase, Then};
use super::gpu::{MIB, Section, SectionKind};
use super::{Answer, Engine, Sharing, Ticket, Timer, from_ms};

impl Engine {
    pub(super) fn create_context(&mut self, pid: u32, ticket: Ticket, device: u32) -> Answer {
        let gpu = self.present_gpu(device)?;
        let context = self.fresh_id();
        self.contexts.insert(context, Context::new(pid, gpu, ticket));
        let open_ms = self.spread_ms(self.profile.context.create_open_ms);
        self.after_ns(open_ms, Timer::Listed { context });
        Ok(None)
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
            self.enter_driver(gpu, Section { context: id, kind: SectionKind::Create });
        } else {
            self.contexts.remove(&id);
            self.complete(pid, ticket, Reply::Error(cu::OUT_OF_MEMORY));
            self.lock_if_drained(pid);
        }
    }

    pub(super) fn serial_done(&mut self, id: u64) {
        let Some((gpu, section)) = self.held_section(id) else { return };
        let (_, blocking_ms) = self.section_ms(section.kind);
        if blocking_ms > 0.0 {
            self.gpus[gpu].set_blocked(self.now, true);
            self.after_ns(from_ms(blocking_ms), Timer::BlockingDone { context: id });
        } else {
            self.section_done(id);
        }
    }

    /// The context's turn with the driver is over; the next one's begins.
    pub(super) fn section_done(&mut self, id: u64) {
        let Some((gpu, section)) = self.held_section(id) else { return };
        self.gpus[gpu].driver.holder = None;
        self.gpus[gpu].set_blocked(self.now, false);
        match (section.kind, self.contexts.get(&id).map(|context| context.phase)) {
            (SectionKind::Create, Some(Phase::Creating(ticket))) => {
                self.set_phase(id, Phase::Finishing(ticket));
                let finish_ns = self.spread_ms(self.profile.context.create_finish_ms);
                self.after_ns(finish_ns, Timer::Ready { context: id });
            }
            (SectionKind::Create, _) => self.begin_teardown(id, None),
            (SectionKind::Teardown, _) => self.remove_context(id),
        }
        self.grant_driver(gpu);
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
        let gpu = context.gpu;
        if context.charged == 0 || self.gpus[gpu].lost {
            self.remove_context(id);
        } else {
            self.enter_driver(gpu, Section { context: id, kind: SectionKind::Teardown });
        }
    }

    /// The context's process is gone.
    pub(super) fn orphan(&mut self, id: u64) {
        let Some(context) = self.contexts.get_mut(&id) else { return };
        context.waiters.clear();
        context.break_with(cu::UNKNOWN);
        let gpu = &mut self.gpus[context.gpu];
        gpu.drop_jobs(self.now, id);
        let holds_driver = gpu.driver.holder.is_some_and(|section| section.context == id);
        match context.phase {
            Phase::Dying(_) => context.phase = Phase::Dying(None),
            Phase::Creating(_) if holds_driver => context.phase = Phase::Dying(None),
            Phase::Creating(_) => {
                gpu.driver.forget_waiting(id);
                self.begin_teardown(id, None);
            }
            Phase::Opening(_) | Phase::Finishing(_) | Phase::Ready | Phase::Closing => self.begin_teardown(id, None),
        }
    }

    pub(super) fn remove_context(&mut self, id: u64) {
        self.set_charge(id, 0);
        let Some(context) = self.contexts.remove(&id) else { return };
        let (pid, gpu) = (context.pid, context.gpu);
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

    fn enter_driver(&mut self, gpu: usize, section: Section) {
        self.gpus[gpu].driver.waiting.push_back(section);
        self.grant_driver(gpu);
    }

    fn grant_driver(&mut self, gpu: usize) {
        let driver = &mut self.gpus[gpu].driver;
        if driver.holder.is_some() {
            return;
        }
        let Some(section) = driver.waiting.pop_front() else { return };
        driver.holder = Some(section);
        let (serial_ms, _) = self.section_ms(section.kind);
        self.after_ns(from_ms(serial_ms), Timer::SerialDone { context: section.context });
    }

    /// The parts of a turn with the driver: kernels run on, kernels stand still.
    fn section_ms(&self, kind: SectionKind) -> (f64, f64) {
        let (context, mps) = (&self.profile.context, &self.profile.mps);
        match (self.sharing, kind) {
            (Sharing::TimeSliced, SectionKind::Create) => (context.create_serial_ms, context.create_blocking_ms),
            (Sharing::TimeSliced, SectionKind::Teardown) => (context.teardown_serial_ms, context.teardown_blocking_ms),
            (Sharing::Mps, SectionKind::Create) => (mps.create_serial_ms, mps.create_blocking_ms),
            (Sharing::Mps, SectionKind::Teardown) => (mps.teardown_serial_ms, mps.teardown_blocking_ms),
        }
    }

    fn held_section(&self, id: u64) -> Option<(usize, Section)> {
        let gpu = self.contexts.get(&id)?.gpu;
        let section = self.gpus[gpu].driver.holder.filter(|section| section.context == id)?;
        Some((gpu, section))
    }

    fn set_phase(&mut self, id: u64, phase: Phase) {
        if let Some(context) = self.contexts.get_mut(&id) {
            context.phase = phase;
        }
    }

    fn spread_ms(&mut self, ms: f64) -> u64 {
        from_ms(self.rng.spread(ms, self.profile.context.jitter_pct))
    }
}
