//! What moves as one: a tenant on all its GPUs, or a gang of tenants.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::hold::Means;
use berth_model::{GpuIndex, Mono, TenantKey};

use super::book::{Book, Weight};
use super::claim::Claim;
use super::computing::Computing;
use super::length::Length;
use crate::settings::FifoSettings;
use crate::view::{Activity, Stand, Tenant, View};

/// A gang is its owner's: the same word used by another is another gang.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UnitName {
    Gang { owner: Option<String>, gang: String },
    Tenant(TenantKey),
}

#[derive(Debug)]
pub(crate) struct Unit<'a> {
    pub name: UnitName,
    /// In order of arrival; never empty.
    pub members: Vec<&'a Tenant>,
    /// Where it computes or may. A tenant of whom this is not known yet may do so anywhere.
    pub gpus: BTreeSet<GpuIndex>,
    pub owner: Option<&'a str>,
    pub arrived: Mono,
    pub weight: Weight,
    pub length: Length,
    pub claim: Claim,
    /// By how much it may be delayed without it, or anyone due after it, being late; `None` if nobody minds.
    pub spare: Option<Duration>,
    /// It has a deadline and cannot meet it any more.
    pub is_lost: bool,
    /// It has a deadline it may meet, and some of its work is left, or nothing says how much.
    pub is_midway: bool,
    /// The policy may hold every member of it.
    pub is_movable: bool,
    /// Since when some member computes.
    pub busy_since: Option<Mono>,
    /// Since when some member stands at a launch, or is held where it cannot go on.
    pub standing_since: Option<Mono>,
    /// Some member stands at a launch, so that it computes as soon as it is let.
    pub is_at_launch: bool,
    /// Since when every member that has computed is quiet.
    pub quiet_since: Option<Mono>,
    /// Some member has yet to launch for the first time, and nothing keeps it from doing so.
    pub is_loading: bool,
}

/// The units of a view, in no particular order.
pub(super) fn units<'a>(view: &'a View, book: &Book, settings: &FifoSettings, now: Mono) -> Vec<Unit<'a>> {
    let mut groups: BTreeMap<UnitName, Vec<&Tenant>> = BTreeMap::new();
    for tenant in super::order::by_arrival(view) {
        groups.entry(name_of(tenant)).or_default().push(tenant);
    }
    let computing = Computing::of(view, book, settings, now);
    groups.into_iter().map(|(name, members)| unit(name, members, view, book, settings, &computing)).collect()
}

fn name_of(tenant: &Tenant) -> UnitName {
    match &tenant.gang {
        Some(gang) => UnitName::Gang { owner: tenant.owner.clone(), gang: gang.clone() },
        None => UnitName::Tenant(tenant.key.clone()),
    }
}

fn unit<'a>(
    name: UnitName,
    members: Vec<&'a Tenant>,
    view: &View,
    book: &Book,
    settings: &FifoSettings,
    computing: &Computing<'_>,
) -> Unit<'a> {
    let each = || members.iter().copied();
    let gpus = if members.iter().any(|tenant| tenant.gpus.is_empty()) {
        view.gpus.iter().map(|gpu| gpu.index).collect()
    } else {
        each().flat_map(|tenant| tenant.gpus.iter().copied()).collect()
    };
    let busy_since = each().filter_map(|tenant| computing.since(tenant)).min();
    Unit {
        gpus,
        owner: members.first().and_then(|tenant| tenant.owner.as_deref()),
        arrived: each().map(|tenant| tenant.arrived).min().unwrap_or_default(),
        weight: each().map(|tenant| book.weight(tenant, settings)).max().unwrap_or(Weight::Unknown),
        length: Length::of(&members, view, book, settings),
        claim: Claim::default(),
        spare: None,
        is_lost: false,
        is_midway: false,
        is_movable: each().all(|tenant| !tenant.means.is_empty() && tenant.stand != Stand::ByPerson),
        busy_since,
        standing_since: each().filter_map(standing_since).min(),
        is_at_launch: each().any(|tenant| matches!(tenant.activity, Activity::AtLaunch { .. })),
        quiet_since: each().filter_map(quiet_since).max().filter(|_| busy_since.is_none()),
        is_loading: each().any(is_loading),
        name,
        members,
    }
}

fn standing_since(tenant: &Tenant) -> Option<Mono> {
    match (tenant.activity, tenant.stand) {
        (_, Stand::Held { means: Means::Park, .. }) => None,
        (Activity::AtAllocation { .. } | Activity::AtContext { .. }, _) => None,
        (Activity::AtLaunch { since: at, .. }, Stand::Held { since, .. }) => Some(at.min(since)),
        (Activity::AtLaunch { since, .. }, _) | (_, Stand::Held { since, .. }) => Some(since),
        _ => None,
    }
}

fn quiet_since(tenant: &Tenant) -> Option<Mono> {
    if let Activity::Quiet { since } = tenant.activity { Some(since) } else { None }
}

fn is_loading(tenant: &Tenant) -> bool {
    let is_on_its_way = matches!(tenant.activity, Activity::Opening { .. } | Activity::Loading | Activity::Unseen);
    is_on_its_way && !matches!(tenant.stand, Stand::Held { .. })
}

impl Unit<'_> {
    pub fn contends(&self) -> bool {
        self.weight != Weight::Light
    }

    /// It computes, or would if it was let.
    pub fn wants(&self) -> bool {
        self.busy_since.is_some() || self.standing_since.is_some()
    }

    /// The GPU both want; `None` if they are no rivals. Two that may both turn out to be light are none until one has shown
    /// what it is; but where one of them may be late for that, they are.
    pub fn meets(&self, other: &Unit<'_>) -> Option<GpuIndex> {
        let has_deadline = self.claim.due().or(other.claim.due()).is_some();
        let are_slight = self.weight.max(other.weight) <= Weight::Slight;
        let is_light = self.weight.min(other.weight) == Weight::Light;
        if self.name == other.name || are_slight && (is_light || !has_deadline) {
            return None;
        }
        self.gpus.intersection(&other.gpus).next().copied()
    }

    /// What people call it.
    pub fn title(&self) -> String {
        match &self.name {
            UnitName::Gang { gang, .. } => gang.clone(),
            UnitName::Tenant(_) => self.members.first().map_or_else(String::new, |tenant| tenant.name.clone()),
        }
    }
}
