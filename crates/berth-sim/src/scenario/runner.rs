//! Drives the processes of a scenario: steps on the host's time, calls on the engine's, until all have ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use berth_proto::sim::Reply;

use super::program::Step;
use super::{Order, Phase, ProgramFailed, Report, Run, Scenario};
use crate::engine::{Engine, Outcome, Ticket};

/// Pids of the scenario's processes are this plus their index.
const FIRST_PID: u32 = 1000;

pub(super) struct Runner {
    engine: Engine,
    order: Order,
    processes: Vec<Process>,
    /// (time, process): when a step on the host ends.
    timers: BTreeSet<(u64, usize)>,
    tickets: BTreeMap<Ticket, usize>,
    turn: Turn,
}

struct Process {
    pid: u32,
    steps: VecDeque<(Phase, Step)>,
    run: Run,
    step_began: u64,
    context: u64,
    pointers: Vec<u64>,
}

/// The lock around kernels.
#[derive(Default)]
struct Turn {
    holder: Option<usize>,
    waiting: VecDeque<usize>,
}

impl Runner {
    pub(super) fn new(engine: Engine, scenario: &Scenario) -> Runner {
        let takes_turns = scenario.order == Order::KernelsOneByOne;
        let processes = scenario.programs.iter().zip(FIRST_PID..).map(|(program, pid)| Process {
            pid,
            steps: program.steps(engine.profile(), takes_turns).into(),
            run: Run { phases: Vec::new() },
            step_began: 0,
            context: 0,
            pointers: Vec::new(),
        });
        let processes = processes.collect();
        let (timers, tickets) = (BTreeSet::new(), BTreeMap::new());
        Runner { engine, order: scenario.order, processes, timers, tickets, turn: Turn::default() }
    }

    pub(super) fn run(mut self) -> Result<Report, ProgramFailed> {
        let at_once = if self.order == Order::OneByOne { 1 } else { self.processes.len() };
        for index in 0..at_once.min(self.processes.len()) {
            self.begin_step(index)?;
        }
        while self.processes.iter().any(|process| !process.steps.is_empty()) {
            self.next_event()?;
        }
        let runs: Vec<Run> = self.processes.into_iter().map(|process| process.run).collect();
        Ok(Report { total_ns: runs.iter().map(Run::ended_ns).max().unwrap_or(0), runs })
    }

    fn next_event(&mut self) -> Result<(), ProgramFailed> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let next = timer.into_iter().chain(self.engine.next_event()).min();
        let next = next.expect("a process that has not ended waits for the host, the engine, or a turn someone holds");
        for completion in self.engine.advance(next) {
            if let Some(index) = self.tickets.remove(&completion.ticket) {
                self.end_step(index, completion.reply)?;
            }
        }
        while let Some((_, index)) = self.timers.first().copied().filter(|(at, _)| *at <= next) {
            self.timers.pop_first();
            self.end_step(index, Reply::Done)?;
        }
        Ok(())
    }

    fn begin_step(&mut self, index: usize) -> Result<(), ProgramFailed> {
        let now = self.engine.now();
        let process = &mut self.processes[index];
        process.step_began = now;
        let Some((_, step)) = process.steps.front().copied() else { return Ok(()) };
        match step {
            Step::Host { ns } => {
                self.timers.insert((now + ns, index));
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
                self.tickets.insert(ticket, index);
                Ok(())
            }
            Some(Outcome::Now(reply)) => self.end_step(index, reply),
            None => self.end_step(index, Reply::Done),
        }
    }

    fn end_step(&mut self, index: usize, reply: Reply) -> Result<(), ProgramFailed> {
        let now = self.engine.now();
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
            self.engine.process_exited(process.pid);
            let follows = self.order == Order::OneByOne && index + 1 < self.processes.len();
            return if follows { self.begin_step(index + 1) } else { Ok(()) };
        }
        self.begin_step(index)
    }
}

impl Process {
    fn note(&mut self, phase: Phase, now: u64) {
        match self.run.phases.last_mut() {
            Some((last, _, end)) if *last == phase => *end = now,
            _ => self.run.phases.push((phase, self.step_began, now)),
        }
    }
}
