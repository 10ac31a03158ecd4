//! One node: what its engine says, its latest report, what is on its way there, and what follows from these for each GPU.

use std::sync::Arc;
use std::time::Duration;

use berth_model::Mono;
use berth_model::cluster::{Engine, GpuReport, LoadReport, NodeId, PlacementId, Report, Stamp};

use super::line::Line;
use super::paper::Best;
use super::reservation::Reservation;
use super::{NodesSettings, NotApplied};
use crate::admit::share_is_enough;

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub id: NodeId,
    pub engine: Engine,
    pub latest: Option<Latest>,
    /// Of the newest that was heard, believed or not.
    heard: Option<(Stamp, Mono)>,
    /// The latest report is known to be too old.
    pub is_stale: bool,
    pub reservations: Vec<Reservation>,
}

#[derive(Debug, Clone)]
pub(super) struct Latest {
    pub report: Arc<Report>,
    pub made: Mono,
}

/// One GPU that answers, with what is on its way there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gpu<'a> {
    pub report: &'a GpuReport,
    reservations: &'a [Reservation],
    made: Mono,
}

// === impl Node ===

impl Node {
    pub fn new(id: NodeId, engine: Engine) -> Self {
        Self { id, engine, latest: None, heard: None, is_stale: false, reservations: Vec::new() }
    }

    /// Those that the report shows to have arrived everywhere.
    pub fn apply(
        &mut self,
        report: Arc<Report>,
        made: Mono,
        settings: &NodesSettings,
    ) -> Result<Vec<PlacementId>, NotApplied> {
        if !self.is_newer(report.stamp, made, settings) {
            return Err(NotApplied::NotNewer { node: self.id.clone() });
        }
        self.heard = Some((report.stamp, made));
        let checked = report.check();
        self.latest = checked.is_ok().then_some(Latest { report, made });
        self.is_stale = false;
        let arrived = self.arrive();
        checked.map_err(|source| NotApplied::Impossible { node: self.id.clone(), source })?;
        Ok(arrived)
    }

    /// A daemon that says it started before the last one is believed when that one has been silent: its host's clock was set back.
    fn is_newer(&self, stamp: Stamp, made: Mono, settings: &NodesSettings) -> bool {
        self.heard.is_none_or(|(last, last_made)| {
            (stamp.started_ms, stamp.number) > (last.started_ms, last.number)
                || (stamp.started_ms < last.started_ms && made.since(last_made) > settings.stale_after)
        })
    }

    /// `false` if it has been seen there already, everywhere.
    pub fn reserve(&mut self, reservation: Reservation) -> bool {
        let id = reservation.id;
        self.reservations.push(reservation);
        !self.arrive().contains(&id)
    }

    /// Its latest report is too old by now, and that was not known before.
    pub fn goes_stale(&self, now: Mono, stale_after: Duration) -> bool {
        !self.is_stale && self.latest.as_ref().is_some_and(|latest| now.since(latest.made) > stale_after)
    }

    /// What was seen on a GPU is not on its way there. Those of which nothing is left are gone.
    fn arrive(&mut self) -> Vec<PlacementId> {
        let Some(latest) = self.latest.as_ref().filter(|_| !self.reservations.is_empty()) else { return Vec::new() };
        for gpu in &latest.report.gpus {
            for reservation in self.reservations.iter_mut().filter(|one| gpu.placed.contains(&one.id)) {
                reservation.gpus.retain(|uuid| *uuid != gpu.uuid);
            }
        }
        self.reservations.extract_if(.., |one| one.gpus.is_empty()).map(|one| one.id).collect()
    }

    /// As it would be if nothing was on its way.
    pub fn without_reservations(&self) -> Self {
        Self { reservations: Vec::new(), ..self.clone() }
    }

    /// As it would be if this one was not on its way.
    pub fn without(&self, id: PlacementId) -> Self {
        let others = self.reservations.iter().filter(|reservation| reservation.id != id);
        Self { reservations: others.cloned().collect(), ..self.clone() }
    }

    /// It may be chosen, as far as that does not depend on the question.
    pub fn is_listed(&self) -> bool {
        self.engine == Engine::Ready && !self.is_stale
    }

    /// Those of its GPUs that answer, with their number in the report.
    pub fn gpus(&self) -> impl Iterator<Item = (usize, Gpu<'_>)> {
        self.latest.iter().flat_map(|Latest { report, made }| {
            let gpus = report.gpus.iter().enumerate().filter(|(_, gpu)| !gpu.is_lost);
            gpus.map(|(number, report)| (number, Gpu { report, reservations: &self.reservations, made: *made }))
        })
    }
}

// === impl Gpu ===

impl Gpu<'_> {
    /// Of memory, what nobody has, was promised or is on its way with; `None` if the driver does not say.
    pub fn free_bytes(&self) -> Option<u64> {
        let reserved = self.coming().map(|reservation| reservation.memory_bytes).fold(0, u64::saturating_add);
        self.report.free_bytes().map(|free| free.0.saturating_sub(reserved))
    }

    /// A deadline was missed there lately, at the instant of the report.
    pub fn has_missed(&self, window: Duration) -> bool {
        self.report.misses_ago_seconds.iter().any(|ago| *ago <= window.as_secs_f64())
    }

    /// Those with a deadline who are there or on their way, as of an instant.
    pub fn loads(&self, now: Mono) -> impl Iterator<Item = LoadReport> + Clone {
        let now = now.max(self.made);
        let age_seconds = now.since(self.made).as_secs_f64();
        let aged = move |load: &LoadReport| {
            let mut load = *load;
            if let Some(work) = &mut load.under_way {
                work.due_in_seconds -= age_seconds;
            }
            load
        };
        self.report.loads.iter().map(aged).chain(self.coming().filter_map(move |one| one.load(now)))
    }

    /// Of its time what those with a deadline have.
    pub fn share(&self) -> f64 {
        if self.has_others() { self.report.share } else { 1.0 }
    }

    fn has_others(&self) -> bool {
        self.report.others > 0 || self.coming().any(|reservation| !reservation.has_deadline())
    }

    /// Whether the share of one without a deadline makes nobody late, as of the report; it changes nothing where one is there. If it does, how
    /// much is due where there is how much time.
    pub fn has_time_for_others(&self) -> Result<(), (f64, f64)> {
        if self.has_others() { Ok(()) } else { share_is_enough(self.loads(self.made), self.report.share) }
    }

    /// `fit`: how much of its time is missing, from the instant of the report.
    pub fn line(&self) -> Line {
        let coming = self.coming().map(|reservation| reservation.load(self.made));
        Line::of(self.report, coming, || self.has_time_for_others().is_ok())
    }

    /// `paper`: how good it can be.
    pub fn best(&self) -> Best {
        Best::of(self.report, self.free_bytes(), self.coming().map(|reservation| reservation.load(self.made)))
    }

    fn coming(&self) -> impl Iterator<Item = &Reservation> + Clone {
        self.reservations.iter().filter(|reservation| reservation.is_on(&self.report.uuid))
    }
}
