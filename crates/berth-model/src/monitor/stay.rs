//! One process's stays on the GPUs, as a state machine over what probes and the driver's list say.
//!
//! ```text
//!         device opened              context ready (probe)                last context destroyed (probe)
//!   Off ─────────────────► Opening ───────────────────────► On, probed ─────────────────────────────────► Leaving
//!    │                                                          │ exited, or unlisted for too long            │
//!    │      listed by the driver                                ▼                                             │
//!    └───────────────────────────► On, looked at ────────────► Off ◄──────────────────────────────────────────┘
//!                                                 exited or no longer listed
//! ```
//! A process that probes have seen come is judged by probes: it is on from the return of its context creation to the
//! return of its last context's destruction. The driver lists it up to 0.6 s earlier and drops it up to 0.3 s before
//! the destruction returns (more when many do it at once), and when one notices depends on when one looks; the same run must be
//! dated the same however often one looks. A process no probe has seen come is on from the first look that lists it to
//! the first that does not; one that the very first look lists was there before, and is dated by its own start.
//!
//! A process that the driver has locked may be *parked*: its memory is in host memory, and no list has it. From its lock to its
//! unlock it is where it was, and a list says nothing but what it finds.
//!
//! Probes can miss something, so neither `Opening` nor "on but not listed" lasts for ever. A list that could not be read
//! says nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::event::{Evidence, GpuProcess, Moment, ProcessFacts, ProcessKind};
use crate::id::GpuIndex;
use crate::quantity::{Bytes, Percent};
use crate::time::Mono;

/// A probed process listed this long without its context being seen ready was missed by the probes: it counts as on.
/// Creating a context takes 0.3 s alone and seconds beside twenty others.
const OPENING_BOUND: Duration = Duration::from_secs(10);
/// A probed process that is on but not listed for this long has lost its contexts unseen.
const UNLISTED_BOUND: Duration = Duration::from_secs(5);
/// The driver may list a process this long after its last context is gone.
const LINGER: Duration = Duration::from_secs(3);

/// A process as the monitor knows it.
#[derive(Debug, Clone)]
pub(super) struct Stay {
    pub facts: ProcessFacts,
    pub phase: Phase,
    /// When each moment of this stay was passed.
    moments: BTreeMap<Moment, Mono>,
    /// Where the driver lists it.
    pub on_gpus: BTreeMap<GpuIndex, Presence>,
    /// Last sign of computing.
    pub computed_at: Option<Mono>,
    /// Contexts made and not destroyed, while [`Phase::On`] and probed.
    contexts: u32,
    /// Probes see this process, now and in later stays.
    is_probed: bool,
    /// Since when it is on but on no list.
    unlisted_since: Option<Mono>,
    locked: Locked,
}

/// Whether the driver keeps the process locked, by berth's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Locked {
    No,
    Yes,
    /// Looks that began before say nothing yet.
    Until(Mono),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Off,
    Opening { since: Mono },
    On { since: Mono, probed: bool },
    Leaving { since: Mono },
}

#[derive(Debug, Clone)]
pub(super) struct Presence {
    pub kind: ProcessKind,
    pub memory: Option<Bytes>,
    /// With the time it was read: not every look asks for it.
    pub core: Option<(Percent, Mono)>,
    first_listed: Mono,
    last_listed: Mono,
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
            is_probed: false,
            unlisted_since: None,
            locked: Locked::No,
        }
    }

    /// The driver has locked it, or lets it go on.
    pub fn lock(&mut self, is_locked: bool, at: Mono) {
        self.locked = if is_locked { Locked::Yes } else { Locked::Until(at) };
    }

    /// Nothing that a look which began at `at` misses is evidence: its memory may have been moved out.
    fn may_be_parked(&self, at: Mono) -> bool {
        match self.locked {
            Locked::No => false,
            Locked::Yes => true,
            Locked::Until(end) => at <= end,
        }
    }

    pub fn is_on(&self) -> bool {
        matches!(self.phase, Phase::On { .. })
    }

    /// Worth showing: on, or about to be.
    pub fn is_present(&self) -> bool {
        matches!(self.phase, Phase::On { .. } | Phase::Opening { .. })
    }

    /// Whether `moment`, seen now, is what it says: a process found on a GPU after it came there has allocated and launched
    /// before, unseen; what probes then take for the first is none.
    pub fn is_first(&self, moment: Moment) -> bool {
        match moment {
            Moment::FirstAllocation | Moment::FirstLaunch => self.is_probed && !self.moments.contains_key(&moment),
            Moment::DeviceOpen | Moment::ContextReady => !self.moments.contains_key(&moment),
            Moment::ContextGone => true,
        }
    }

    /// A probe saw `moment`.
    pub fn moment(&mut self, moment: Moment, at: Mono) -> Step {
        if moment == Moment::ContextGone {
            return self.context_gone(at);
        }
        self.moments.entry(moment).or_insert(at);
        if moment == Moment::FirstLaunch {
            self.computed_at = self.computed_at.max(Some(at));
        }
        self.is_probed |= matches!(moment, Moment::DeviceOpen | Moment::ContextReady);
        match (moment, self.phase) {
            (Moment::DeviceOpen, Phase::Off) => {
                self.phase = Phase::Opening { since: at };
                Step::Same
            }
            (Moment::DeviceOpen | Moment::ContextGone, _) => Step::Same,
            (Moment::ContextReady, Phase::On { probed: true, .. }) => {
                self.contexts += 1;
                Step::Same
            }
            (_, Phase::On { .. }) => Step::Same,
            (_, Phase::Off | Phase::Opening { .. } | Phase::Leaving { .. }) => {
                self.contexts = 1;
                self.begin(at, Evidence::Probe)
            }
        }
    }

    fn context_gone(&mut self, at: Mono) -> Step {
        self.moments.insert(Moment::ContextGone, at);
        if !matches!(self.phase, Phase::On { probed: true, .. }) {
            return Step::Same;
        }
        self.contexts = self.contexts.saturating_sub(1);
        if self.contexts > 0 {
            return Step::Same;
        }
        let ended = self.end(at);
        self.phase = Phase::Leaving { since: at };
        ended
    }

    /// A look that began at `at` lists the process on `gpu`; `first_look` if none came before.
    pub fn listed(&mut self, gpu: GpuIndex, seen: &GpuProcess, at: Mono, first_look: bool) -> Step {
        match self.phase {
            Phase::Leaving { since } if at.since(since) < LINGER => return Step::Same,
            Phase::Leaving { .. } => self.phase = Phase::Off,
            Phase::Off | Phase::Opening { .. } | Phase::On { .. } => {}
        }
        self.unlisted_since = None;
        let first_listed = self.note_presence(gpu, seen, at);
        match self.phase {
            Phase::Off if self.is_probed => {
                self.phase = Phase::Opening { since: at };
                Step::Same
            }
            Phase::Off if first_look => self.begin(self.facts.started.unwrap_or(at).min(at), Evidence::Process),
            Phase::Off => self.begin(at, Evidence::Look),
            Phase::Opening { .. } if at.since(first_listed) >= OPENING_BOUND => {
                self.begin(first_listed, Evidence::Look)
            }
            Phase::Opening { .. } | Phase::On { .. } | Phase::Leaving { .. } => Step::Same,
        }
    }

    /// Returns when the process was first listed there.
    fn note_presence(&mut self, gpu: GpuIndex, seen: &GpuProcess, at: Mono) -> Mono {
        let core = seen.core.map(|core| (core, at));
        if seen.core.is_some_and(|core| core.get() > 0) {
            self.computed_at = self.computed_at.max(Some(at));
        }
        let (kind, memory) = (seen.kind, seen.memory);
        let fresh = Presence { kind, memory, core, first_listed: at, last_listed: at };
        let presence = self.on_gpus.entry(gpu).or_insert(fresh);
        (presence.kind, presence.memory, presence.last_listed) = (kind, memory, at);
        presence.core = core.or(presence.core);
        presence.first_listed
    }

    /// The list of `gpu` was read by a look that began at `at`, and the process is not on it. Call [`Stay::settle`] when all
    /// lists are in.
    pub fn not_listed(&mut self, gpu: GpuIndex, at: Mono) {
        if !self.may_be_parked(at) {
            self.on_gpus.remove(&gpu);
        } else if let Some(presence) = self.on_gpus.get_mut(&gpu) {
            (presence.memory, presence.core, presence.last_listed) = (None, None, at);
        }
    }

    /// `gpu` is no longer there, so no list will tell. On no other, the process is unlisted since it was last seen there.
    pub fn gpu_gone(&mut self, gpu: GpuIndex) {
        if let Some(presence) = self.on_gpus.remove(&gpu)
            && self.on_gpus.is_empty()
            && self.is_on()
        {
            self.unlisted_since = Some(presence.last_listed);
        }
    }

    /// Concludes a look that began at `at`; `last_listed` is when an earlier look last listed the process anywhere.
    pub fn settle(&mut self, at: Mono, last_listed: Option<Mono>) -> Step {
        if let Phase::Opening { since } = self.phase
            && self.on_gpus.is_empty()
            && (last_listed.is_some() || at.since(since) >= OPENING_BOUND)
        {
            // Its context was not made after all.
            self.phase = Phase::Off;
        }
        let Phase::On { since, probed } = self.phase else { return Step::Same };
        if !self.on_gpus.is_empty() || at <= since {
            return Step::Same;
        }
        if probed {
            // Never listed yet: nothing to conclude.
            let since = self.unlisted_since.or(last_listed.map(|_| at));
            self.unlisted_since = since;
            return match since {
                Some(since) if at.since(since) >= UNLISTED_BOUND => self.end(since),
                _ => Step::Same,
            };
        }
        let after = last_listed.unwrap_or(since);
        let gone = self.moments.get(&Moment::ContextGone).copied().filter(|gone| (after..at).contains(gone));
        self.end(gone.unwrap_or(at))
    }

    pub fn last_listed(&self) -> Option<Mono> {
        self.on_gpus.values().map(|presence| presence.last_listed).max()
    }

    pub fn exited(&mut self, at: Mono) -> Step {
        if self.is_on() { self.end(at) } else { Step::Same }
    }

    fn begin(&mut self, at: Mono, evidence: Evidence) -> Step {
        self.phase = Phase::On { since: at, probed: evidence == Evidence::Probe };
        Step::Began { at, evidence }
    }

    fn end(&mut self, at: Mono) -> Step {
        let at = if let Phase::On { since, .. } = self.phase { at.max(since) } else { at };
        *self = Self { is_probed: self.is_probed, locked: self.locked, ..Self::new(self.facts.clone()) };
        Step::Ended { at }
    }
}
