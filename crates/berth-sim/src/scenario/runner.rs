//! Drives the processes of a scenario: steps on the host's time, calls on the engine's, until all have ended.
//!
//! A process that stands still does nothing on the host, and calls that need its threads stand still with it; its kernels do not.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_proto::sim::{CheckpointOp, Direction, Reply, Request};

use super::manager::{Command, Manager, Passage, Sight};
use super::process::{Next, Process};
use super::program::Step;
use super::spent::{Moment, Spent};
use super::{Failed, Order, ProgramFailed, Report, Run, Scenario};
use crate::engine::{Engine, Outcome, Ticket};

/// Pids of the scenario's processes are this plus their index.
pub const FIRST_PID: u32 = 1000;
/// The pid that asks the driver on a manager's behalf.
const MANAGER_PID: u32 = 1;
/// If nothing is under way and nobody was let go for this long, nobody will be.
const PATIENCE_NS: u64 = 3_600_000_000_000;

pub(super) struct Runner<'a> {
    engine: Engine,
    manager: &'a mut dyn Manager,
    order: Order,
    processes: Vec<Process>,
    /// (time, process): when a process does what its `next` says.
    timers: BTreeSet<(u64, usize)>,
    /// Calls that are not answered yet: the process's own, or a manager's about it.
    tickets: BTreeMap<Ticket, (usize, bool)>,
    turn: Turn,
    spent: Spent,
    last_step_at: u64,
}

/// The lock around kernels.
#[derive(Default)]
struct Turn {
    holder: Option<usize>,
    waiting: VecDeque<usize>,
}

impl<'a> Runner<'a> {
    pub(super) fn new(engine: Engine, scenario: &Scenario, manager: &'a mut dyn Manager) -> Runner<'a> {
        let takes_turns = scenario.order == Order::KernelsOneByOne;
        let delays = scenario.order != Order::OneByOne;
        let processes = scenario.programs.iter().zip(FIRST_PID..).map(|(program, pid)| {
            let start_ns = if delays { program.start_ns } else { 0 };
            Process::new(pid, program.steps(engine.profile(), takes_turns), start_ns)
        });
        Runner {
            processes: processes.collect(),
            engine,
            manager,
            order: scenario.order,
            timers: BTreeSet::new(),
            tickets: BTreeMap::new(),
            turn: Turn::default(),
            spent: Spent::default(),
            last_step_at: 0,
        }
    }

    pub(super) fn run(mut self) -> Result<Report, Failed> {
        let at_once = if self.order == Order::OneByOne { 1 } else { self.processes.len() };
        for index in 0..at_once.min(self.processes.len()) {
            self.begin_step(index)?;
        }
        self.obey();
        while self.processes.iter().any(|process| !process.steps.is_empty()) {
            self.next_event()?;
            self.obey();
        }
        let runs: Vec<Run> = self.processes.into_iter().map(|process| process.run).collect();
        Ok(Report { total_ns: runs.iter().map(Run::ended_ns).max().unwrap_or(0), runs, spent: self.spent })
    }

    fn next_event(&mut self) -> Result<(), Failed> {
        let now = self.engine.now();
        let timer = self.timers.first().map(|(at, _)| *at);
        let wish = self.manager.next_event().map(|at| at.max(now));
        let next = timer.into_iter().chain(self.engine.next_event()).chain(wish).min();
        let nothing_under_way =
            self.timers.is_empty() && !self.tickets.values().any(|call| self.may_be_answered(*call));
        let lost_patience = nothing_under_way && now > self.last_step_at.saturating_add(PATIENCE_NS);
        let Some(next) = next.filter(|_| !lost_patience) else {
            let waiting = self.processes.iter().filter(|process| !process.steps.is_empty()).count();
            return Err(Failed::Stuck { at_ns: self.last_step_at, waiting });
        };
        self.spent.count(next - now, self.moment());
        for completion in self.engine.advance(next) {
            match self.tickets.remove(&completion.ticket) {
                Some((index, false)) => self.answered(index, completion.reply)?,
                Some((index, true)) => self.driver_answered(index, &completion.reply),
                None => {}
            }
        }
        while let Some((_, index)) = self.timers.first().copied().filter(|(at, _)| *at <= next) {
            self.timers.pop_first();
            self.go_on(index)?;
        }
        Ok(())
    }

    /// A call of a process that stands still may wait for it to be let go.
    fn may_be_answered(&self, (index, by_manager): (usize, bool)) -> bool {
        by_manager || self.processes[index].still_since.is_none() || self.processes[index].has_submitted()
    }

    fn moment(&self) -> Moment {
        Moment {
            load: self.engine.compute_load(0),
            blocked: self.engine.compute_blocked(0),
            has_kernel: self.processes.iter().any(Process::has_kernel),
            has_waiting: !self.turn.waiting.is_empty() || self.processes.iter().any(Process::stands_before_kernel),
        }
    }

    /// What the process does at its timer.
    fn go_on(&mut self, index: usize) -> Result<(), ProgramFailed> {
        match std::mem::take(&mut self.processes[index].next) {
            Next::Step => self.begin_step(index),
            Next::Call => self.make_call(index),
            Next::End(reply) => self.end_step(index, reply),
        }
    }

    /// Lets the process do `next` after `ns`, or that long after it is let go.
    fn later(&mut self, index: usize, ns: u64, next: Next) {
        let process = &mut self.processes[index];
        process.next = next;
        match process.still_since {
            Some(_) => process.left_ns = Some(ns),
            None => {
                self.timers.insert((self.engine.now() + ns, index));
            }
        }
    }

    /// Shows the manager what the process does. True: it goes on at once; else it does `next` when it may.
    fn shown(&mut self, index: usize, sight: Sight, next: Next) -> bool {
        let now = self.engine.now();
        match self.manager.saw(now, index, sight) {
            Passage::AT_ONCE => return true,
            Passage::On { after_ns } => self.later(index, after_ns, next),
            Passage::Stop => {
                self.processes[index].stop(now);
                self.later(index, 0, next);
            }
        }
        false
    }

    fn begin_step(&mut self, index: usize) -> Result<(), ProgramFailed> {
        let process = &mut self.processes[index];
        process.step_began = self.engine.now();
        let Some((_, step)) = process.steps.front().copied() else { return Ok(()) };
        let sight = match step {
            Step::CreateContext { .. } => Some(Sight::Initialises),
            Step::Allocate { bytes } => Some(Sight::Allocates { bytes }),
            Step::Launch { .. } => Some(Sight::Launches),
            _ => None,
        };
        match sight.is_none_or(|sight| self.shown(index, sight, Next::Call)) {
            true => self.make_call(index),
            false => Ok(()),
        }
    }

    fn make_call(&mut self, index: usize) -> Result<(), ProgramFailed> {
        let now = self.engine.now();
        let process = &mut self.processes[index];
        let Some((_, step)) = process.steps.front().copied() else { return Ok(()) };
        if matches!(step, Step::Launch { .. }) {
            process.note_wait(now);
        }
        match step {
            Step::Host { ns } => {
                self.later(index, ns, Next::End(Reply::Done));
                return Ok(());
            }
            Step::Until { at_ns } => {
                self.later(index, at_ns.saturating_sub(now), Next::End(Reply::Done));
                return Ok(());
            }
            Step::TakeTurn if self.turn.holder.is_some() => {
                self.turn.waiting.push_back(index);
                return Ok(());
            }
            Step::TakeTurn => self.turn.holder = Some(index),
            Step::EndTurn => {
                self.turn.holder = self.turn.waiting.pop_front();
                if let Some(next) = self.turn.holder {
                    self.end_step(next, Reply::Done)?;
                }
            }
            _ => {}
        }
        let process = &self.processes[index];
        let last_pointer = process.pointers.last().copied().unwrap_or_default();
        match step.request(process.context, last_pointer).map(|request| self.engine.request(process.pid, request)) {
            Some(Outcome::Later(ticket)) => {
                self.tickets.insert(ticket, (index, false));
                Ok(())
            }
            Some(Outcome::Now(reply)) => self.end_step(index, reply),
            None => self.end_step(index, Reply::Done),
        }
    }

    /// The driver has answered the process's call; whether it can take the answer is another matter.
    fn answered(&mut self, index: usize, reply: Reply) -> Result<(), ProgramFailed> {
        if self.processes[index].still_since.is_none() {
            return self.end_step(index, reply);
        }
        self.later(index, 0, Next::End(reply));
        Ok(())
    }

    fn end_step(&mut self, index: usize, reply: Reply) -> Result<(), ProgramFailed> {
        let now = self.engine.now();
        self.last_step_at = now;
        let process = &mut self.processes[index];
        let Some((phase, step)) = process.steps.pop_front() else { return Ok(()) };
        match (step, reply) {
            (_, Reply::Error(code)) => return Err(ProgramFailed { program: index, phase, code }),
            (Step::CreateContext { .. }, Reply::Handle(context)) => process.context = context,
            (Step::Allocate { .. }, Reply::Handle(pointer)) => process.pointers.push(pointer),
            (Step::FreeLast, _) => {
                process.pointers.pop();
            }
            _ => {}
        }
        process.note(phase, now);
        if process.steps.is_empty() {
            return self.end_process(index);
        }
        let sight = match step {
            Step::CreateContext { .. } => Some(Sight::ContextReady),
            Step::Synchronise | Step::Copy { direction: Direction::DeviceToHost, .. } => Some(Sight::Drained),
            _ => None,
        };
        match sight.is_none_or(|sight| self.shown(index, sight, Next::Step)) {
            true => self.begin_step(index),
            false => Ok(()),
        }
    }

    fn end_process(&mut self, index: usize) -> Result<(), ProgramFailed> {
        self.engine.process_exited(self.processes[index].pid);
        for sight in [Sight::ContextGone, Sight::Exited] {
            self.manager.saw(self.engine.now(), index, sight);
        }
        let follows = self.order == Order::OneByOne && index + 1 < self.processes.len();
        if follows { self.begin_step(index + 1) } else { Ok(()) }
    }

    /// Does what the manager wants now.
    fn obey(&mut self) {
        for command in self.manager.act(&self.engine) {
            match command {
                Command::Stop(index) => self.stop(index),
                Command::Go(index) => self.let_go(index),
                Command::Driver(index, op) => self.ask_driver(index, op),
            }
        }
    }

    fn stop(&mut self, index: usize) {
        let now = self.engine.now();
        let process = &mut self.processes[index];
        if process.steps.is_empty() || process.still_since.is_some() {
            return;
        }
        process.stop(now);
        self.engine.stand_still(process.pid, true);
        let timer = self.timers.iter().find(|(_, whose)| *whose == index).copied();
        process.left_ns = timer.map(|(at, _)| at - now);
        if let Some(timer) = timer {
            self.timers.remove(&timer);
        }
    }

    fn let_go(&mut self, index: usize) {
        let now = self.engine.now();
        self.engine.stand_still(self.processes[index].pid, false);
        if let Some(left_ns) = self.processes[index].let_go(now) {
            self.timers.insert((now + left_ns, index));
        }
    }

    fn ask_driver(&mut self, index: usize, op: CheckpointOp) {
        let request = Request::Checkpoint { pid: self.processes[index].pid, op };
        match self.engine.request(MANAGER_PID, request) {
            Outcome::Later(ticket) => {
                self.tickets.insert(ticket, (index, true));
            }
            Outcome::Now(reply) => self.driver_answered(index, &reply),
        }
    }

    fn driver_answered(&mut self, index: usize, reply: &Reply) {
        let done = !matches!(reply, Reply::Error(_));
        self.manager.saw(self.engine.now(), index, Sight::DriverAnswered { done });
    }
}
