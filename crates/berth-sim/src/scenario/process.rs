//! One process of a scenario: what it has still to do, and what standing still does to it.

use std::collections::VecDeque;

use berth_proto::sim::Reply;

use super::program::Step;
use super::{Phase, Run};

#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) steps: VecDeque<(Phase, Step)>,
    pub(super) run: Run,
    pub(super) step_began: u64,
    pub(super) context: u64,
    pub(super) pointers: Vec<u64>,
    /// What it does when its time comes.
    pub(super) next: Next,
    pub(super) still_since: Option<u64>,
    /// While it stands still: how long after it is let go it does `next`. `None`: it waits for the driver.
    pub(super) left_ns: Option<u64>,
}

#[derive(Debug, Default)]
pub(super) enum Next {
    /// Begin the step.
    #[default]
    Step,
    /// Make the step's call, which the manager has seen.
    Call,
    End(Reply),
}

impl Process {
    pub(super) fn new(pid: u32, steps: Vec<(Phase, Step)>, start_ns: u64) -> Process {
        let arrival = (start_ns > 0).then_some((Phase::Arrival, Step::Host { ns: start_ns }));
        Process {
            pid,
            steps: arrival.into_iter().chain(steps).collect(),
            run: Run::default(),
            step_began: 0,
            context: 0,
            pointers: Vec::new(),
            next: Next::Step,
            still_since: None,
            left_ns: None,
        }
    }

    pub(super) fn stop(&mut self, now: u64) {
        self.still_since = Some(now);
        self.run.holds += 1;
    }

    /// How long until it does what is next; `None` when it was not still, or waits for the driver.
    pub(super) fn let_go(&mut self, now: u64) -> Option<u64> {
        let still_ns = now - self.still_since.take()?;
        self.run.held_ns += still_ns;
        self.left_ns.take()
    }

    /// A kernel of it has been submitted and it has not been told of its end.
    pub(super) fn has_kernel(&self) -> bool {
        self.still_since.is_none() && self.has_submitted()
    }

    /// It waits for a kernel, which runs whether it stands still or not.
    pub(super) fn has_submitted(&self) -> bool {
        matches!(self.steps.front(), Some((_, Step::Synchronise)))
    }

    pub(super) fn stands_before_kernel(&self) -> bool {
        self.still_since.is_some() && matches!(self.steps.front(), Some((_, Step::Launch { .. })))
    }

    pub(super) fn note(&mut self, phase: Phase, now: u64) {
        match self.run.phases.last_mut() {
            Some((last, _, end)) if *last == phase => *end = now,
            _ => self.run.phases.push((phase, self.step_began, now)),
        }
    }

    /// The step begins only now; what it waited is no part of it.
    pub(super) fn note_wait(&mut self, now: u64) {
        if now > self.step_began {
            self.note(Phase::Turn, now);
            self.step_began = now;
        }
    }
}
