//! What is told of a tenant's deadline to those who ask: which counts and how it does, also of tenants that are not here.

use std::collections::{BTreeMap, BTreeSet};

use berth_host::docker::OWNER_LABEL;
use berth_model::control::DeadlineStanding;
use berth_model::deadline::{Given, Terms, Unit, UnitRule, Who, terms};
use berth_model::snapshot::DeadlineRow;
use berth_model::{ContainerFacts, ContainerId, Runtime, TenantKey};

use super::asks::{Meant, Stage};
use super::{Deadlines, counted};

impl Deadlines {
    /// Who is not here, and something is known of all the same.
    pub(super) fn absent(&self, stage: &Stage<'_>) -> BTreeMap<TenantKey, String> {
        let is_here = |tenant: &TenantKey| stage.snapshot.tasks.iter().any(|row| row.tenant.is(tenant));
        let docker = |id: &ContainerId| TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        let said = self.said.all().iter().map(|said| (said.tenant.clone(), said.name.clone()));
        let mut absent: BTreeMap<TenantKey, String> = said.collect();
        for (id, facts) in &self.asks.strangers {
            let known = absent.keys().find(|tenant| tenant.container_id() == Some(id)).cloned();
            absent.insert(known.unwrap_or_else(|| docker(id)), facts.name.clone());
        }
        absent.retain(|tenant, _| !is_here(tenant));
        absent
    }

    /// Everybody once: those who are here first, in the order they are shown.
    pub(super) fn standings(&self, stage: &Stage<'_>) -> Vec<DeadlineStanding> {
        let mut told: BTreeSet<&TenantKey> = BTreeSet::new();
        let rows = stage.snapshot.tasks.iter().filter(|row| told.insert(&row.tenant));
        let is_unread = |tenant| self.reads.get(tenant).is_some_and(|read| !read.unread.is_empty());
        let is_told = |tenant| self.said.of(tenant).is_some() || is_unread(tenant);
        let here = rows.filter(|row| row.deadline.is_some() || is_told(&row.tenant));
        let here: Vec<Meant<'_>> = here
            .map(|row| Meant { tenant: row.tenant.clone(), name: row.container_name.clone(), row: Some(row) })
            .collect();
        let absent = self.absent(stage).into_iter().filter(|(tenant, _)| self.said.of(tenant).is_some());
        let absent = absent.map(|(tenant, name)| Meant { tenant, name, row: None });
        here.into_iter().chain(absent).map(|meant| self.standing(&meant, stage)).collect()
    }

    pub(super) fn standing(&self, meant: &Meant<'_>, stage: &Stage<'_>) -> DeadlineStanding {
        self.standing_by(self.said.of(&meant.tenant), meant, stage)
    }

    /// By this word of a person.
    pub(super) fn standing_by(&self, given: Option<Given>, meant: &Meant<'_>, stage: &Stage<'_>) -> DeadlineStanding {
        let stranger = self.stranger(&meant.tenant);
        let owner = meant.row.and_then(|row| row.owner.clone());
        let owner = owner.or_else(|| stranger.and_then(|facts| facts.owner.clone()));
        let labels = self.labels_of(&meant.tenant, stage);
        let owners = owners(owner.clone(), labels, (stage.uids)(&meant.tenant));
        let read = terms(Who { labels, owners: &owners, given }, &self.rules);
        DeadlineStanding {
            tenant: meant.tenant.clone(),
            name: meant.name.clone(),
            owner,
            is_here: meant.row.is_some(),
            given,
            is_durable: self.said.is_durable(),
            counts: read.terms.map(|terms| self.counts(terms, meant)),
            unread_labels: read.unread,
        }
    }

    /// As it is shown; of one whose deadline shows with the next turn, or when it comes, what would be.
    fn counts(&self, terms: Terms, meant: &Meant<'_>) -> DeadlineRow {
        let shown = meant.row.and_then(|row| row.deadline.clone());
        if let Some(shown) = shown.filter(|shown| (shown.deadline, shown.origin) == (terms.deadline, terms.origin)) {
            return shown;
        }
        let unit = if terms.unit == UnitRule::Burst { Unit::Burst } else { Unit::Task };
        let unit = self.judge.unit(&meant.tenant).unwrap_or(unit);
        let takes = [unit, Unit::Burst].map(|unit| self.takes(&meant.tenant, unit));
        counted(terms, unit, None, takes, self.totals.of(&meant.tenant))
    }

    pub(super) fn labels_of<'s>(
        &'s self,
        tenant: &TenantKey,
        stage: &'s Stage<'_>,
    ) -> Option<&'s BTreeMap<String, String>> {
        (stage.labels)(tenant).or_else(|| self.stranger(tenant).map(|facts| &facts.labels))
    }

    fn stranger(&self, tenant: &TenantKey) -> Option<&ContainerFacts> {
        self.asks.strangers.get(tenant.container_id()?)
    }
}

/// Every name of an owner: as shown, and by number where no label says whose it is.
pub(crate) fn owners(
    shown: Option<String>,
    labels: Option<&BTreeMap<String, String>>,
    uids: Vec<Option<u32>>,
) -> Vec<String> {
    let is_labelled = labels.and_then(|labels| labels.get(OWNER_LABEL)).is_some_and(|owner| !owner.is_empty());
    let uids = uids.into_iter().flatten().filter(|_| !is_labelled).map(|uid| uid.to_string());
    shown.into_iter().chain(uids).collect()
}
