//! One process's stay on the GPUs, as a state machine over what probes and the driver's list say.
//!
//! ```text
//!        device opened          context ready (probe), or listed by the driver
//!   Off ───────────────► Opening ───────────────► On ──► Off
//!    └──────────────────────────────────────────►  │      ▲
//!                                                  └──────┘ exited, or no longer listed
//! ```
//! - A probed process is on from the return of its context creation: the driver lists it up to 0.3 s earlier, and when
//!   exactly depends on when one looks. A process no probe has seen is on from the first look that lists it; one that
//!   the very first look lists was there before, and is dated by its own start.
//! - `ContextGone` alone ends nothing (a process may hold several contexts, and a primary context counts its users); it
//!   dates the end once a later look no longer lists the process.
//! - A list that could not be read says nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{Evidence, GpuProcess, Moment, ProcessFacts, ProcessKind};
use crate::id::GpuIndex;
use crate::quantity::{Bytes, Percent};
use crate::time::Mono;

/// A probed process listed this long without its context being seen ready was missed by the probes: it counts as on.
const OPENING_BOUND: Duration = Duration::from_secs(2);

/// A process as the monitor knows it.
#[derive(Debug, Clone)]
pub(super) struct Stay {
    pub facts: ProcessFacts,
    pub phase: Phase,
    /// When each moment of this stay was passed.
    pub moments: BTreeMap<Moment, Mono>,
    /// Where the driver lists it.
    pub on_gpus: BTreeMap<GpuIndex, Presence>,
    /// Last sign of computing.
    pub computed_at: Option<Mono>,
    /// Contexts made and not destroyed, as far as probes saw.
    contexts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Off,
    Opening { since: Mono },
    On { since: Mono },
}

#[derive(Debug, Clone)]
pub(super) struct Presence {
    pub kind: ProcessKind,
    pub memory: Option<Bytes>,
    /// With the time it was read: not every look asks for it.
    pub core: Option<(Percent, Mono)>,
    pub first_listed: Mono,
    pub last_listed: Mono,
}

/// What an input made of the stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Same,
    Began { at: Mono, evidence: Evidence },
    Ended { at: Mono },
}

impl Stay {
    pub fn new(facts: ProcessFacts) -> Self {
        Self {
            facts,
            phase: Phase::Off,
            moments: BTreeMap::new(),
            on_gpus: BTreeMap::new(),
            computed_at: None,
            contexts: 0,
        }
    }

    pub fn is_on(&self) -> bool {
        matches!(self.phase, Phase::On { .. })
    }

    /// Whether `moment`, seen now, is what it says: a process found on a GPU after it came there has allocated and launched
    /// before, unseen; what probes then take for the first is none.
    pub fn is_first(&self, moment: Moment) -> bool {
        match moment {
            Moment::FirstAllocation | Moment::FirstLaunch => {
                let came_by_probe = [Moment::DeviceOpen, Moment::ContextReady];
                !self.moments.contains_key(&moment) && came_by_probe.iter().any(|seen| self.moments.contains_key(seen))
            }
            Moment::DeviceOpen | Moment::ContextReady => !self.moments.contains_key(&moment),
            Moment::ContextGone => true,
        }
    }

    /// A probe saw `moment`. Only the first of each kind within a stay counts, except the end of a context: the last.
    pub fn moment(&mut self, moment: Moment, at: Mono) -> Step {
        if moment == Moment::ContextGone {
            self.contexts = self.contexts.saturating_sub(1);
            self.moments.insert(moment, at);
            return Step::Same;
        }
        if moment == Moment::ContextReady {
            self.contexts += 1;
        }
        self.moments.entry(moment).or_insert(at);
        match (moment, self.phase) {
            (Moment::DeviceOpen, Phase::Off) => {
                self.phase = Phase::Opening { since: at };
                Step::Same
            }
            (Moment::DeviceOpen | Moment::ContextGone, _) => Step::Same,
            (Moment::ContextReady | Moment::FirstAllocation, Phase::Off | Phase::Opening { .. }) => {
                self.begin(at, Evidence::Probe)
            }
            (Moment::ContextReady | Moment::FirstAllocation, Phase::On { .. }) => Step::Same,
            (Moment::FirstLaunch, phase) => {
                self.computed_at = self.computed_at.max(Some(at));
                if matches!(phase, Phase::On { .. }) { Step::Same } else { self.begin(at, Evidence::Probe) }
            }
        }
    }

    /// A look that began at `at` lists the process on `gpu`; `first_look` if none came before.
    pub fn listed(&mut self, gpu: GpuIndex, seen: &GpuProcess, at: Mono, first_look: bool) -> Step {
        let core = seen.core.map(|core| (core, at));
        if seen.core.is_some_and(|core| core.get() > 0) {
            self.computed_at = self.computed_at.max(Some(at));
        }
        let presence = self.on_gpus.entry(gpu).or_insert(Presence {
            kind: seen.kind,
            memory: seen.memory,
            core,
            first_listed: at,
            last_listed: at,
        });
        (presence.kind, presence.memory, presence.last_listed) = (seen.kind, seen.memory, at);
        presence.core = core.or(presence.core);
        let first_listed = presence.first_listed;
        match self.phase {
            Phase::Off if first_look => self.begin(self.facts.started.unwrap_or(at).min(at), Evidence::Process),
            Phase::Off => self.begin(at, Evidence::Look),
            Phase::Opening { .. } if at.since(first_listed) >= OPENING_BOUND => {
                self.begin(first_listed, Evidence::Look)
            }
            Phase::Opening { .. } | Phase::On { .. } => Step::Same,
        }
    }

    /// The list of `gpu` was read and the process is not on it. Call [`Stay::settle`] when all lists are in.
    pub fn not_listed(&mut self, gpu: GpuIndex) {
        self.on_gpus.remove(&gpu);
    }

    /// Concludes a look that began at `at`; `last_listed` is when an earlier look last listed the process anywhere, and
    /// `complete` whether the lists of all GPUs could be read.
    pub fn settle(&mut self, at: Mono, last_listed: Option<Mono>, complete: bool) -> Step {
        let Phase::On { since } = self.phase else { return Step::Same };
        if !self.on_gpus.is_empty() || at <= since {
            return Step::Same;
        }
        let gone = self.context_gone_between(since, last_listed, at);
        match (gone, last_listed) {
            (Some(gone), Some(_)) => self.end(gone),
            (Some(gone), None) if complete => self.end(gone),
            (None, Some(_)) => self.end(at),
            // Probes have seen a context the driver does not list (yet): nothing to conclude.
            (_, None) => Step::Same,
        }
    }

    pub fn last_listed(&self) -> Option<Mono> {
        self.on_gpus.values().map(|presence| presence.last_listed).max()
    }

    /// The process is gone. If probes saw it come and saw its last context destroyed, that was the end, not the exit.
    pub fn exited(&mut self, at: Mono) -> Step {
        let Phase::On { since } = self.phase else { return Step::Same };
        let gone = self.context_gone_between(since, self.last_listed(), at).filter(|_| self.saw_every_context_go());
        self.end(gone.unwrap_or(at))
    }

    fn saw_every_context_go(&self) -> bool {
        self.contexts == 0 && self.moments.contains_key(&Moment::ContextReady)
    }

    /// The destruction of a context that may date the end of this stay. The driver lists a process for a moment longer,
    /// so a later listing speaks against it only if another context may be left.
    fn context_gone_between(&self, since: Mono, last_listed: Option<Mono>, until: Mono) -> Option<Mono> {
        let after = if self.saw_every_context_go() { since } else { last_listed.unwrap_or(since) };
        self.moments.get(&Moment::ContextGone).copied().filter(|gone| (after..until).contains(gone))
    }

    fn begin(&mut self, at: Mono, evidence: Evidence) -> Step {
        self.phase = Phase::On { since: at };
        Step::Began { at, evidence }
    }

    fn end(&mut self, at: Mono) -> Step {
        let at = if let Phase::On { since } = self.phase { at.max(since) } else { at };
        *self = Self::new(self.facts.clone());
        Step::Ended { at }
    }
}
