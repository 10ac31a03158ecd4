//! The threads that perform steps, so that nothing in the loop waits.
//!
//! One thread per step: a lock may take seconds, a park minutes, and nobody else's release may queue behind it. There is at
//! most one step in flight per tenant, so there are never more threads than tenants on their way.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use berth_host::clock;
use berth_host::hands::{Hands, Subject};
use berth_model::hold::{Held, Step};
use berth_model::{Event, ProcKey, StepFailure};

#[derive(Debug)]
pub(super) struct Crew {
    hands: Arc<dyn Hands>,
    event_tx: Sender<Event>,
    threads: Vec<JoinHandle<()>>,
}

impl Crew {
    pub fn new(hands: Arc<dyn Hands>, event_tx: Sender<Event>) -> Self {
        Self { hands, event_tx, threads: Vec::new() }
    }

    /// What a process that was parked needs back.
    pub fn needs_back(&self, process: ProcKey) -> Option<Held> {
        self.hands.needs_back(process)
    }

    /// Begins a step; its outcome comes as an [`Event::Step`].
    pub fn begin(&mut self, subject: Subject, step: Step) {
        self.threads.retain(|thread| !thread.is_finished());
        let (hands, event_tx, tenant) = (self.hands.clone(), self.event_tx.clone(), subject.tenant.clone());
        let tell = move |outcome| {
            // Nobody listens any more only when the daemon stops.
            let _ = event_tx.send(Event::Step { tenant, step, outcome, at: clock::now() });
        };
        let refuse = tell.clone();
        let thread = std::thread::Builder::new().name("berth-step".into());
        match thread.spawn(move || tell(hands.perform(&subject, step))) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => {
                let message = format!("cannot start a thread for {step:?}: {error}");
                refuse(Err(StepFailure { message, is_passing: true }));
            }
        }
    }
}
