//! Places that are kept: for whoever is about to have a container made, and for what the engine has.
//!
//! What the engine has counts on its GPUs at any time, by the report of its node or by its reservation, also while it is started again. A
//! place is *judged* when it is given, by what is known then. What this book did not give itself (a placer before it did, or somebody
//! starts a container again that was over) is judged before it is started: its place may be another's by now.

use std::collections::BTreeSet;
use std::time::Duration;

use berth_model::Mono;
use berth_model::cluster::api::PlaceRequest;
use berth_model::cluster::{Choice, NodeId, NotHere, PlacementId, Report};

use super::{Book, of};
use crate::placer::constraint::InvalidConstraint;

/// How long after its connection has closed a place is kept, if the engine does not tell of a container that carries it.
pub(super) const ENGINE_TELLS_WITHIN: Duration = Duration::from_secs(10);

/// A container of the engine's that was placed, and is there or on its way.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    pub id: PlacementId,
    pub request: PlaceRequest,
    pub choice: Choice,
    /// It runs: from then on its node's report is expected to tell of it.
    pub is_started: bool,
}

/// A place that is kept.
#[derive(Debug)]
pub(super) struct Kept {
    pub request: PlaceRequest,
    pub choice: Choice,
    pub by: By,
    /// This book gave it, or has found it good since: whoever comes later comes after it.
    pub is_judged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum By {
    /// Whoever asked for it is about to have it made.
    Connection,
    /// Whoever asked for it has gone; the engine may yet tell of it.
    Nobody { until: Mono },
    /// The engine has something that carries it.
    Engine { is_started: bool },
}

impl Book {
    /// All containers of the engine's that were placed and are not over. What it has told of before and does not now is over.
    pub fn placed(&mut self, placed: Vec<Placed>, now: Mono) {
        let told: BTreeSet<PlacementId> = placed.iter().map(|placed| placed.id).collect();
        for placed in placed {
            self.is_placed(placed, now);
        }
        let is_over = |id: &PlacementId, by: By| match by {
            By::Connection => false,
            By::Nobody { until } => !told.contains(id) && until <= now,
            By::Engine { .. } => !told.contains(id),
        };
        let over: Vec<PlacementId> =
            self.kept.iter().filter(|(id, kept)| is_over(id, kept.by)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.release(id));
    }

    fn is_placed(&mut self, placed: Placed, now: Mono) {
        let Placed { id, request, choice, is_started } = placed;
        // Else it is of before a restart, was over, or somebody else has moved it.
        let known = self.kept.get(&id).filter(|kept| kept.choice == choice);
        let is_judged = known.is_some_and(|kept| kept.is_judged);
        if known.is_none() {
            // What its node tells of is not reserved, GPU by GPU.
            self.list.reserve(id, &self.pasts.wanted(&request), &choice, now);
        }
        self.kept.insert(id, Kept { request, choice, by: By::Engine { is_started }, is_judged });
    }

    /// Before its last report, the node said `before`. What it told of and does not any more has ended, and may be started again: for as
    /// long as the engine has it, it is on its way.
    pub(super) fn keep_what_left(&mut self, before: &Report, now: Mono) {
        let Some(report) = self.members.get(&before.node).and_then(|entry| entry.report.clone()) else { return };
        for gpu in &before.gpus {
            let after = report.gpus.iter().find(|after| after.uuid == gpu.uuid);
            for id in gpu.placed.iter().filter(|id| after.is_none_or(|after| !after.placed.contains(id))) {
                let kept = self.kept.get(id).filter(|kept| matches!(kept.by, By::Engine { .. }));
                if let Some(kept) = kept.filter(|kept| kept.choice.node == before.node) {
                    self.list.reserve(*id, &self.pasts.wanted(&kept.request), &kept.choice, now);
                }
            }
        }
    }

    /// Why a container that waits may not be started where it was placed; `None` if it may.
    pub fn why_not_start(&mut self, id: PlacementId, now: Mono) -> Option<NotHere> {
        let kept = self.kept.get(&id)?;
        let held = self.list.holds(id, &self.pasts.wanted(&kept.request), &kept.choice, now);
        // While its node still tells of it, what it takes there is its own.
        let is_own = kept.is_judged || self.sees(&kept.choice.node, id);
        if held.is_ok() && !is_own {
            self.kept.get_mut(&id).into_iter().for_each(|kept| kept.is_judged = true);
        }
        held.err().filter(|why| match why {
            // Nobody knows how its node stands, or it cannot have its GPUs.
            NotHere::Stale { .. } | NotHere::NoReport | NotHere::GpusLost => true,
            NotHere::TooFewGpus { .. } | NotHere::Engine { .. } => true,
            // Somebody else has what it was given.
            NotHere::TooLittleMemory { .. } | NotHere::MemoryFull => !is_own,
            NotHere::WouldBeLate { .. } | NotHere::FloatTooShort { .. } => !is_own,
            _ => false,
        })
    }

    /// Chooses, and keeps the place for whoever is about to have the container made. `without` are nodes that have turned out not to do.
    pub fn reserve(
        &mut self,
        id: PlacementId,
        request: &PlaceRequest,
        without: &[NodeId],
        now: Mono,
    ) -> Result<Option<Choice>, InvalidConstraint> {
        let mut among = self.among(&request.constraints)?;
        if !without.is_empty() {
            let all = among.unwrap_or_else(|| self.members.keys().cloned().collect());
            among = Some(all.into_iter().filter(|node| !without.contains(node)).collect());
        }
        let wanted = self.pasts.wanted(request);
        let Some(place) = self.list.choose(&wanted, of(among.as_deref()), now) else { return Ok(None) };
        self.list.reserve(id, &wanted, &place.choice, now);
        let (request, choice) = (request.clone(), place.choice.clone());
        self.kept.insert(id, Kept { request, choice, by: By::Connection, is_judged: true });
        Ok(Some(place.choice))
    }

    /// Whether its node still takes it, by what it said last, which may be on another of its GPUs. If not, the place is given up.
    pub fn confirm(&mut self, id: PlacementId, now: Mono) -> Option<Choice> {
        let kept = self.kept.get_mut(&id)?;
        let wanted = self.pasts.wanted(&kept.request);
        self.list.release(id);
        match self.list.verdict(&kept.choice.node, &wanted, now) {
            Ok(place) => {
                self.list.reserve(id, &wanted, &place.choice, now);
                kept.choice = place.choice.clone();
                Some(place.choice)
            }
            Err(_) => {
                self.kept.remove(&id);
                None
            }
        }
    }

    /// Nobody is left to say whether the container was made: the engine will tell.
    pub fn hung_up(&mut self, id: PlacementId, now: Mono) {
        if let Some(kept) = self.kept.get_mut(&id).filter(|kept| kept.by == By::Connection) {
            kept.by = By::Nobody { until: now + ENGINE_TELLS_WITHIN };
        }
    }

    pub fn release(&mut self, id: PlacementId) {
        self.kept.remove(&id);
        self.list.release(id);
    }

    /// Places end that nobody came to. What is still being made, waits to be started, or runs and has not come to its GPU, keeps its own.
    pub fn expire(&mut self, now: Mono) {
        for id in self.list.expire(now) {
            let Some(kept) = self.kept.get(&id) else { continue };
            match kept.by {
                By::Connection | By::Engine { .. } => {
                    self.list.reserve(id, &self.pasts.wanted(&kept.request), &kept.choice, now);
                }
                By::Nobody { .. } => drop(self.kept.remove(&id)),
            }
        }
    }
}
