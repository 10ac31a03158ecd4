//! Deadlines in the arena: what is asked of each tenant's work, and what the daemon would know of it.
//!
//! Units are followed by the daemon's own [`Judge`]. What is to be expected of one is by choice nothing, what earlier ones of its kind
//! took, as the daemon's history has it, or exactly what it will take.

use std::collections::{BTreeMap, BTreeSet};

use berth_model::deadline::{Judge, Pulse, Sitting, Spread, Terms, UnitRule};
use berth_model::event::Evidence;
use berth_model::{Mono, TaskId, settings};
use berth_policy::{Activity, Past, Work};

use super::tenant::Tenant;

/// Earlier units of a kind that count for the next one, as in the daemon's history.
const REMEMBERED: usize = 20;

/// What one tenant is there for.
#[derive(Debug, Clone, PartialEq)]
pub struct Errand {
    /// `None`: it has no deadline.
    pub terms: Option<Terms>,
    /// Tenants of one kind run the same program.
    pub kind: usize,
    pub known: Known,
}

/// What is known of how much a unit of work computes, before it has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Known {
    Nothing,
    /// What earlier ones of its kind did.
    Kind,
    Exactly(Spread),
}

#[derive(Debug)]
pub(super) struct Errands {
    of: Vec<Errand>,
    judge: Judge,
    here: BTreeSet<usize>,
    annals: BTreeMap<usize, Annals>,
}

/// What was seen of one kind, oldest first.
#[derive(Debug, Default)]
struct Annals {
    active_seconds: Vec<f64>,
    pasts: Vec<Past>,
}

impl Errands {
    /// One for each tenant, or none at all.
    pub(super) fn new(of: Vec<Errand>) -> Errands {
        let judge = Judge::new(settings::Deadlines::default());
        Errands { of, judge, here: BTreeSet::new(), annals: BTreeMap::new() }
    }

    /// Takes in what everybody does now, and remembers those that have left. `crowd`: how many compute.
    pub(super) fn follow(&mut self, tenants: &[Tenant], crowd: u32, now: Mono) {
        for (index, (tenant, errand)) in tenants.iter().zip(&self.of).enumerate() {
            let over = if let Some(arrived) = tenant.arrived {
                self.here.insert(index);
                self.judge.sit(sitting(index, tenant, errand, Mono(arrived), crowd), now)
            } else if self.here.remove(&index) {
                let annals = self.annals.entry(errand.kind).or_default();
                annals.pasts.extend(tenant.stay.past(now.0));
                self.judge.task_ended(&tenant.key, now)
            } else {
                continue;
            };
            if let Some(seconds) = over.and_then(|judged| judged.active_seconds) {
                self.annals.entry(errand.kind).or_default().active_seconds.push(seconds);
            }
        }
    }

    pub(super) fn work(&self, index: usize, tenant: &Tenant) -> Option<Work> {
        let work = self.judge.work(&tenant.key)?;
        let errand = self.of.get(index)?;
        let takes = match errand.known {
            Known::Nothing => None,
            Known::Kind => self.annals.get(&errand.kind).and_then(Annals::spread),
            Known::Exactly(spread) => Some(spread),
        };
        Some(Work { started: work.started, due: work.due, done: work.active, takes })
    }

    /// What tenants of its kind did before.
    pub(super) fn past(&self, index: usize) -> Option<Past> {
        let errand = self.of.get(index).filter(|errand| errand.known != Known::Nothing)?;
        self.annals.get(&errand.kind)?.usual()
    }

    pub(super) fn again_at(&self) -> Option<u64> {
        self.judge.again_at().map(|at| at.0)
    }
}

impl Annals {
    fn spread(&self) -> Option<Spread> {
        Spread::of(self.active_seconds.iter().rev().take(REMEMBERED).copied())
    }

    /// The stay in the middle of the last ones.
    fn usual(&self) -> Option<Past> {
        let mut last: Vec<&Past> = self.pasts.iter().rev().take(REMEMBERED).collect();
        last.sort_by(|a, b| a.active_seconds.total_cmp(&b.active_seconds));
        last.get(last.len() / 2).map(|past| **past)
    }
}

fn sitting<'a>(index: usize, tenant: &'a Tenant, errand: &'a Errand, arrived: Mono, crowd: u32) -> Sitting<'a> {
    let pulse = match tenant.activity {
        Activity::Opening { .. } | Activity::Loading => Pulse::Loads,
        Activity::AtContext { .. } | Activity::AtAllocation { .. } => Pulse::Waits { since: None, behind: None },
        Activity::AtLaunch { since, .. } => Pulse::Waits { since: Some(since), behind: None },
        Activity::Computing { since } => Pulse::Computes { since, crowd },
        Activity::Quiet { since } => Pulse::Quiet { since },
        Activity::Unseen => Pulse::Unknown,
    };
    Sitting {
        tenant: &tenant.key,
        task: TaskId(index as u64 + 1),
        task_started: arrived,
        evidence: Evidence::Probe,
        processes: BTreeSet::from([tenant.process]),
        unit: errand.terms.as_ref().map_or(UnitRule::Auto, |terms| terms.unit),
        terms: errand.terms.as_ref(),
        pulse,
    }
}
