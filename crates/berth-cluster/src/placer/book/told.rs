//! What an engine tells of one thing at a time, as the watches of Kubernetes do, and a scheduler that is not ours asks.

use std::collections::BTreeSet;
use std::sync::Arc;

use berth_model::Mono;
use berth_model::cluster::api::PlaceRequest;
use berth_model::cluster::{Choice, NodeId, NotHere, PlacementId, Report, Stamp};
use berth_model::id::GpuUuid;
use berth_policy::nodes::{Among, Verdict};

use super::places::{By, ENGINE_TELLS_WITHIN, Kept, Placed};
use super::{Book, Entry, Member};

impl Book {
    /// One node, as the engine has it now. It reports by itself and is not asked.
    pub fn member_is(&mut self, node: &NodeId, member: Member, now: Mono) {
        let engine = member.engine;
        match self.members.get_mut(node) {
            Some(entry) if entry.member == member => return,
            Some(entry) => entry.member = member,
            None => {
                self.members.insert(node.clone(), Entry::new(member));
                self.list.engine(node, engine);
                return self.reserve_anew(node, now);
            }
        }
        self.list.engine(node, engine);
    }

    /// What is kept on a node that was gone for a while: the list has forgotten it.
    fn reserve_anew(&mut self, node: &NodeId, now: Mono) {
        for (id, kept) in self.kept.iter().filter(|(_, kept)| kept.choice.node == *node) {
            self.list.reserve(*id, &self.pasts.wanted(&kept.request), &kept.choice, now);
        }
    }

    pub fn member_is_gone(&mut self, node: &NodeId) {
        self.members.remove(node);
        self.list.remove(node);
        self.pasts.remove(node);
        self.due.retain(|(_, due)| due != node);
    }

    /// Every node that is not among these is gone.
    pub fn members_are_only(&mut self, nodes: &BTreeSet<NodeId>) {
        let gone: Vec<NodeId> = self.members.keys().filter(|node| !nodes.contains(*node)).cloned().collect();
        gone.iter().for_each(|node| self.member_is_gone(node));
    }

    /// A report that came unasked, made at that instant of this placer's clock; or why it is not believed.
    pub fn reported(&mut self, node: &NodeId, report: Result<Report, String>, made: Mono) {
        let Some(entry) = self.members.get_mut(node) else { return };
        let before = entry.report.clone();
        let applied = report.and_then(|report| {
            let report = Arc::new(report);
            self.list.apply(Arc::clone(&report), made).map_err(|error| error.to_string()).map(|()| report)
        });
        match applied {
            Ok(report) => {
                entry.refused = None;
                (entry.report, entry.made) = (Some(report), Some(made));
            }
            Err(why) => entry.refused = Some(why),
        }
        before.into_iter().for_each(|before| self.keep_what_left(&before, made));
    }

    /// Of the last report that was believed.
    pub fn stamp(&self, node: &NodeId) -> Option<Stamp> {
        Some(self.members.get(node)?.report.as_ref()?.stamp)
    }

    /// Whether the node has all of these GPUs, by its last report; `None` if there is none.
    pub fn has_gpus(&self, node: &NodeId, gpus: &[GpuUuid]) -> Option<bool> {
        let report = self.members.get(node)?.report.as_ref()?;
        Some(gpus.iter().all(|uuid| report.gpus.iter().any(|gpu| gpu.uuid == *uuid)))
    }

    /// Whether the node tells that it is there.
    pub fn sees(&self, node: &NodeId, id: PlacementId) -> bool {
        !self.seen_on(node, id).is_empty()
    }

    /// The GPUs on which the node says it is; none while it does not tell of it.
    pub fn seen_on(&self, node: &NodeId, id: PlacementId) -> Vec<GpuUuid> {
        let report = self.members.get(node).and_then(|entry| entry.report.as_ref());
        let gpus = report.iter().flat_map(|report| &report.gpus).filter(|gpu| gpu.placed.contains(&id));
        gpus.map(|gpu| gpu.uuid.clone()).collect()
    }

    /// The place that is kept for it.
    pub fn choice(&self, id: PlacementId) -> Option<&Choice> {
        self.kept.get(&id).map(|kept| &kept.choice)
    }

    /// How many are on their way to a node.
    pub fn reserved_on(&self, node: &NodeId) -> usize {
        self.list.reserved(node)
    }

    /// On each of these nodes, best first, then the refused.
    pub fn verdicts(&self, request: &PlaceRequest, nodes: &[NodeId], now: Mono) -> Vec<Verdict> {
        self.list.rank(&self.pasts.wanted(request), Among::Only(nodes), now)
    }

    /// Whether any node would take it now.
    pub fn takes(&self, request: &PlaceRequest, now: Mono) -> bool {
        self.list.choose(&self.pasts.wanted(request), Among::All, now).is_some()
    }

    /// Gives back a place that somebody was about to take; what the engine has told of stays where it is.
    pub fn reconsider(&mut self, id: PlacementId) {
        if self.kept.get(&id).is_some_and(|kept| !matches!(kept.by, By::Engine { .. })) {
            self.release(id);
        }
    }

    /// It was taken, or nobody knows: its place is kept, however late the engine tells of it.
    pub fn taken(&mut self, id: PlacementId, now: Mono) {
        if let Some(Kept { by: By::Nobody { until }, .. }) = self.kept.get_mut(&id) {
            *until = now + self.lasts;
        }
    }

    /// Keeps a place that somebody else is about to take, for as long as the engine may need to tell of it. One that the engine has told
    /// of has its own.
    pub fn keep(&mut self, id: PlacementId, request: &PlaceRequest, choice: &Choice, now: Mono) {
        if self.kept.get(&id).is_some_and(|kept| matches!(kept.by, By::Engine { .. })) {
            return;
        }
        self.list.reserve(id, &self.pasts.wanted(request), choice, now);
        let by = By::Nobody { until: now + ENGINE_TELLS_WITHIN };
        self.kept.insert(id, Kept { request: request.clone(), choice: choice.clone(), by, is_judged: true });
    }

    /// Takes a place on this node, if it would do. Whatever place it had is given up.
    pub fn take(
        &mut self,
        id: PlacementId,
        request: &PlaceRequest,
        node: &NodeId,
        now: Mono,
    ) -> Result<Choice, NotHere> {
        self.release(id);
        let place = self.list.verdict(node, &self.pasts.wanted(request), now)?;
        self.keep(id, request, &place.choice, now);
        Ok(place.choice)
    }

    /// The emptiest GPUs of a node, for what was put there against every reason.
    pub fn emptiest(&self, request: &PlaceRequest, node: &NodeId) -> Option<Choice> {
        let report = self.members.get(node)?.report.as_ref()?;
        let mut gpus: Vec<_> = report.gpus.iter().filter(|gpu| !gpu.is_lost).collect();
        gpus.sort_by_key(|gpu| std::cmp::Reverse(gpu.free_bytes()));
        let gpus: Vec<_> = gpus.iter().take(request.gpus as usize).map(|gpu| gpu.uuid.clone()).collect();
        (!gpus.is_empty()).then(|| Choice { node: node.clone(), gpus })
    }

    /// The engine has this container, there or on its way there. Once it has told so its place is kept until it tells otherwise.
    pub fn stands(&mut self, placed: Placed, now: Mono) {
        let Placed { id, request, choice, is_started } = placed;
        let before = self.kept.get(&id).filter(|kept| kept.choice == choice).map(|kept| kept.by);
        let is_back = before == Some(By::Engine { is_started: true }) && !is_started;
        if before.is_none() || is_back {
            // What its node tells of is not reserved, GPU by GPU.
            self.list.reserve(id, &self.pasts.wanted(&request), &choice, now);
        }
        self.kept.insert(id, Kept { request, choice, by: By::Engine { is_started }, is_judged: true });
    }

    /// Every container that is not among these is gone. Places that somebody is about to take are kept as long as they are.
    pub fn placed_are_only(&mut self, told: &BTreeSet<PlacementId>) {
        let is_gone = |id: &PlacementId, by: By| matches!(by, By::Engine { .. }) && !told.contains(id);
        let gone: Vec<PlacementId> =
            self.kept.iter().filter(|(id, kept)| is_gone(id, kept.by)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.release(id));
    }

    /// The places that nobody has told of in time end.
    pub fn forget_untold(&mut self, now: Mono) {
        let is_over = |kept: &Kept| matches!(kept.by, By::Nobody { until } if until <= now);
        let over: Vec<PlacementId> = self.kept.iter().filter(|(_, kept)| is_over(kept)).map(|(id, _)| *id).collect();
        over.into_iter().for_each(|id| self.release(id));
    }
}
