//! Holding and watching processes by their probes: what the daemon asks for, and when it is in place.
//!
//! What is asked for becomes a rule for the programs at once, and an interest of the process's stay that keeps its calls
//! probed. Whoever asked is answered when both are there: at once for a newcomer, whose calls are probed until its first
//! launch, else when they have been attached to again.

use std::sync::mpsc::Sender;

use berth_model::{Bytes, Event, GpuIndex, HaltedCall, Mono, ProcKey};

use super::super::error::ProbeError;
use super::super::function::{Call, Hot};
use super::super::program::Record;
use super::super::rule::{Phase, Rule};
use super::super::stay::Interest;
use super::super::sys;
use super::super::worker::Order;
use super::{NobodyListens, Process, Watcher};

/// Something to be done about one process.
#[derive(Debug)]
pub struct Ask {
    pub process: ProcKey,
    pub wish: Wish,
    /// Told when it is in place, or why it is not.
    pub reply: Sender<Result<(), ProbeError>>,
}

/// What is wished for; off, or out of no pool, is always possible, also for a process that is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    Gate(bool),
    Bar(bool),
    /// Its allocations come out of this GPU's pool.
    Limit(Option<GpuIndex>),
    Watch(bool),
}

/// Someone who asked, until the calls are probed.
#[derive(Debug)]
pub struct Waiting {
    interest: Interest,
    reply: Sender<Result<(), ProbeError>>,
}

// === impl Wish ===

impl Wish {
    fn interest(self) -> Interest {
        match self {
            Wish::Gate(_) => Interest::Gate,
            Wish::Bar(_) => Interest::Bar,
            Wish::Limit(_) => Interest::Limit,
            Wish::Watch(_) => Interest::Watch,
        }
    }

    /// The number of its rule; `None` for no rule.
    fn number(self) -> Option<u64> {
        match self {
            // Whatever it says: a rule is a rule.
            Wish::Gate(on) | Wish::Bar(on) => on.then_some(0),
            Wish::Limit(pool) => pool.map(|gpu| u64::from(gpu.0)),
            Wish::Watch(on) => on.then_some(Phase::Unknown as u64),
        }
    }
}

fn calls(hot: Hot) -> &'static str {
    match hot {
        Hot::Allocation => "allocations",
        Hot::Launch => "launches",
        Hot::Drained => "waits",
    }
}

// === impl Watcher ===

impl<R: Fn(u32) -> Option<ProcKey>> Watcher<R> {
    pub(super) fn on_ask(&mut self, ask: Ask) -> Result<(), NobodyListens> {
        let key = ask.process;
        let known = self.process(key.pid, None).filter(|process| process.key == key);
        let Some(process) = known else {
            let gone = ask.wish.number().map_or(Ok(()), |_| Err(ProbeError::Gone { process: key }));
            answer(&ask.reply, gone);
            return Ok(());
        };
        if process.library.is_none() && ask.wish.number().is_some() {
            // It is taken up again when its library is known.
            process.asked.push(ask);
            let _ = self.order_tx.send(Order::Locate { pid: key.pid });
            return Ok(());
        }
        // What is called off before it was taken up is not to be taken up later.
        for earlier in process.asked.extract_if(.., |earlier| earlier.wish.interest() == ask.wish.interest()) {
            answer(&earlier.reply, Ok(()));
        }
        self.grant(ask)
    }

    /// Takes up what had to wait until the process's library was known.
    pub(super) fn on_library_known(&mut self, pid: u32) -> Result<(), NobodyListens> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        let has_library = process.library.is_some();
        for ask in std::mem::take(&mut process.asked) {
            if has_library {
                self.grant(ask)?;
            } else {
                answer(&ask.reply, Err(ProbeError::NoDriver { process: ask.process }));
            }
        }
        Ok(())
    }

    /// The process is known, and so is its library if anything is to be attached.
    fn grant(&mut self, Ask { process: key, wish, reply }: Ask) -> Result<(), NobodyListens> {
        let Some(process) = self.processes.get_mut(&key.pid) else { return Ok(()) };
        let interest = wish.interest();
        if interest == Interest::Bar && process.stay.may_have_context() {
            // It is past what it would be stopped at.
            answer(&reply, Ok(()));
            return Ok(());
        }
        // The phase of a process that is watched already is not to be forgotten.
        let stays = interest == Interest::Watch && process.stay.has_interest(interest);
        match wish.number() {
            None => _ = self.kernel.revoke(key.pid, interest.rule()),
            Some(_) if stays => {}
            Some(number) => {
                if let Err(source) = self.kernel.rule(key.pid, interest.rule(), number) {
                    answer(&reply, Err(ProbeError::Rule { process: key, source }));
                    return Ok(());
                }
            }
        }
        let actions = process.stay.on_interest(interest, wish.number().is_some());
        process.waiting.push(Waiting { interest, reply });
        self.perform(key.pid, actions, Mono(0))?;
        self.answer_waiting(key.pid);
        Ok(())
    }

    /// Answers those whose calls are probed by now, or who need no probe any more.
    pub(super) fn answer_waiting(&mut self, pid: u32) {
        let Some(Process { waiting, stay, .. }) = self.processes.get_mut(&pid) else { return };
        waiting.retain(|one| {
            let is_settled = !stay.has_interest(one.interest) || stay.is_probed(one.interest);
            if is_settled {
                answer(&one.reply, Ok(()));
            }
            !is_settled
        });
    }

    /// Nothing can be attached to these calls of the process: whoever needs it is told, and what was begun is taken back.
    pub(super) fn on_attach_failed(&mut self, key: ProcKey, hot: Hot, error: &ProbeError) -> Result<(), NobodyListens> {
        tracing::debug!(process = %key, %error, "{} will not be seen", calls(hot));
        self.kernel.revoke(key.pid, Rule::First(hot.call()));
        let Some(process) = self.processes.get_mut(&key.pid) else { return Ok(()) };
        let concerned = |interest: Interest| interest.hots().contains(&hot);
        for interest in Interest::ALL.into_iter().filter(|interest| concerned(*interest)) {
            self.kernel.revoke(key.pid, interest.rule());
        }
        process.waiting.retain(|one| {
            if concerned(one.interest) {
                let reason = error.to_string();
                answer(&one.reply, Err(ProbeError::Unattached { process: key, calls: calls(hot), reason }));
            }
            !concerned(one.interest)
        });
        let actions = process.stay.on_attach_failed(hot);
        self.perform(key.pid, actions, Mono(0))
    }

    pub(super) fn halted(&self, process: ProcKey, call: Call, record: Record) -> Result<(), NobodyListens> {
        let call = match call {
            Call::ContextWanted => HaltedCall::Context,
            Call::Allocation => HaltedCall::Allocation { bytes: Bytes(record.takes) },
            _ => HaltedCall::Launch,
        };
        tracing::debug!(%process, ?call, at_ns = record.at, "halted");
        let event = Event::Halted { process, call, at: Mono(record.at) };
        self.event_tx.send(event).map_err(|_| NobodyListens)
    }

    /// From now on [`super::super::Probes::freezing`] has an entry to write to, and until the process has exited: what is told of
    /// one that is gone leaves nothing behind for whoever gets its pid.
    pub(super) fn expect_freezes(&self, process: ProcKey) {
        const NEVER: u64 = 0;
        if let Err(error) = self.kernel.rule(process.pid, Rule::Go, NEVER) {
            tracing::warn!(%process, %error, "its calls will wait though it is being frozen");
        }
    }

    pub(super) fn keep_unseen(&mut self, key: ProcKey) {
        self.adopt(key.pid);
        let is_known = self.process(key.pid, None).is_some_and(|process| process.key == key);
        if let Some(Err(error)) = is_known.then(|| self.kernel.rule(key.pid, Rule::Discreet, 0)) {
            tracing::warn!(process = %key, %error, "it may be stopped where that is seen");
        }
    }

    /// Nothing asked for the process holds any more, since it has exited.
    pub(super) fn release(&self, process: &mut Process) {
        let of_interest = Interest::ALL.map(Interest::rule);
        for rule in of_interest.into_iter().chain([Rule::Waiting, Rule::Go, Rule::Discreet]) {
            self.kernel.revoke(process.key.pid, rule);
        }
        // Not there is as good as deleted.
        let _ = sys::map_delete(self.kernel.halted(), &process.key.pid.to_ne_bytes());
        let asked = process.asked.drain(..).map(|ask| ask.reply);
        for reply in asked.chain(process.waiting.drain(..).map(|one| one.reply)) {
            answer(&reply, Err(ProbeError::Gone { process: process.key }));
        }
    }
}

/// Whoever asked may have stopped waiting.
fn answer(reply: &Sender<Result<(), ProbeError>>, outcome: Result<(), ProbeError>) {
    let _ = reply.send(outcome);
}
