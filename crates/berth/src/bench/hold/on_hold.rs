//! A tenant that is held and let go the way the daemon does it, step by step, each written down first; let go in any case
//! when this is dropped.

use std::collections::BTreeSet;

use anyhow::anyhow;
use berth_host::clock;
use berth_host::hands::{Hands, Subject};
use berth_model::hold::{self, Body, By, Freezer, Grip, Want};
use berth_model::{Mono, ProcKey};
use berth_store::{Entry, Journal};

/// From a wish until it is so, on the tenants' clock.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub from_ns: u64,
    pub to_ns: u64,
}

impl Span {
    pub fn ms(self) -> f64 {
        ms_between(self.from_ns, self.to_ns)
    }
}

pub fn ms_between(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / 1e6
}

pub struct OnHold<'a> {
    hands: &'a dyn Hands,
    journal: &'a Journal,
    subject: Subject,
    processes: BTreeSet<ProcKey>,
    grip: Grip,
}

impl<'a> OnHold<'a> {
    /// Free, so far.
    pub fn new(hands: &'a dyn Hands, journal: &'a Journal, subject: Subject, process: ProcKey) -> Self {
        Self { hands, journal, subject, processes: BTreeSet::from([process]), grip: Grip::default() }
    }

    /// Performs what leads there; confirmed when it returns.
    pub fn go(&mut self, want: Want) -> anyhow::Result<Span> {
        let from_ns = clock::now().0;
        let body =
            Body { processes: &self.processes, can_freeze: self.subject.cgroup.is_some(), freezer: Freezer::Cgroup };
        while let Some(step) = hold::next(&self.grip, want, body) {
            self.grip = self.grip.begun(step);
            self.journal.write(&self.entry(want, from_ns))?;
            self.hands.perform(&self.subject, step).map_err(|failed| anyhow!("{}", failed.message))?;
            self.grip = self.grip.done(step);
        }
        let to_ns = clock::now().0;
        if self.grip.is_empty() {
            self.journal.remove(&self.subject.tenant)?;
        }
        Ok(Span { from_ns, to_ns })
    }

    fn entry(&self, want: Want, since_ns: u64) -> Entry {
        let since = Mono(since_ns);
        Entry {
            tenant: self.subject.tenant.clone(),
            cgroup: self.subject.cgroup.clone(),
            container: self.subject.container.clone(),
            grip: self.grip.clone(),
            want,
            needs_back: Vec::new(),
            by: By::Policy,
            since,
            since_wall: clock::anchor().wall_at(since),
            name: self.subject.tenant.to_string(),
            reason: "measured".to_owned(),
        }
    }

    /// The gate has stopped a process of it.
    pub fn stopped(&mut self, process: ProcKey) {
        self.grip.stopped.insert(process);
    }
}

impl Drop for OnHold<'_> {
    fn drop(&mut self) {
        // Whoever was gated may have been stopped since, whatever else went wrong.
        self.grip = self.grip.after_crash();
        if let Err(error) = self.go(Want::Free) {
            tracing::warn!(error = format!("{error:#}"), tenant = %self.subject.tenant, "could not be let go");
        }
    }
}
