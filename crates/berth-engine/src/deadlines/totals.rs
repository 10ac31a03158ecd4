//! Units counted: by tenant as far back as is remembered, by owner since the daemon started. Bounded in number.

use std::collections::BTreeMap;

use berth_model::deadline::{Tally, Unit};
use berth_model::history::{Happening, Judgement, Record};
use berth_model::snapshot::{DeadlineTotals, Histogram, OwnerTally};
use berth_model::{ContainerId, TenantKey};

/// Tenants whose units are counted; of more, the one that was judged longest ago is forgotten.
const MOST_TENANTS: usize = 1_024;
/// Owners told apart; the rest are counted together, without a name.
const MOST_OWNERS: usize = 64;
/// Upper ends of the histograms' buckets, in seconds.
const FLOATS: [f64; 15] = [-300.0, -60.0, -10.0, -5.0, -1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
const RUNS: [f64; 14] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0];

#[derive(Debug)]
pub(super) struct Totals {
    tenants: BTreeMap<TenantKey, Sum>,
    owners: BTreeMap<(Option<String>, Unit), Tally>,
    warnings: u64,
    floats: Histogram,
    runs: Histogram,
    count: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    tally: Tally,
    last_float_seconds: Option<f64>,
    newest: u64,
}

impl Default for Totals {
    fn default() -> Self {
        let (floats, runs) = (empty(&FLOATS), empty(&RUNS));
        Self { tenants: BTreeMap::new(), owners: BTreeMap::new(), warnings: 0, floats, runs, count: 0 }
    }
}

impl Totals {
    /// A unit of an earlier daemon.
    pub fn recall(&mut self, record: &Record) {
        if let Happening::Judged(judgement) = &record.what {
            self.count_tenant(&record.tenant, judgement);
        }
    }

    pub fn note(&mut self, tenant: &TenantKey, judgement: &Judgement) {
        self.count_tenant(tenant, judgement);
        let owner = judgement.workload.owner.clone();
        let is_known = self.owners.keys().any(|(known, _)| *known == owner);
        let owner = owner.filter(|_| is_known || self.owners.len() < MOST_OWNERS);
        self.owners.entry((owner, judgement.unit)).or_default().add(judgement.verdict());
        if let Some(float) = judgement.float_seconds {
            count(&mut self.floats, float);
        }
        if let Some(seconds) = judgement.seconds {
            count(&mut self.runs, seconds);
        }
    }

    pub fn warned(&mut self) {
        self.warnings += 1;
    }

    pub fn forget(&mut self, id: &ContainerId) {
        self.tenants.retain(|tenant, _| tenant.container_id() != Some(id));
    }

    /// A tenant's units, and what was left in the last one that was seen to end.
    pub fn of(&self, tenant: &TenantKey) -> (Tally, Option<f64>) {
        self.tenants.get(tenant).map(|sum| (sum.tally, sum.last_float_seconds)).unwrap_or_default()
    }

    pub fn view(&self) -> DeadlineTotals {
        let tallies = self.owners.iter().map(|((owner, unit), tally)| OwnerTally {
            owner: owner.clone(),
            unit: *unit,
            tally: *tally,
        });
        DeadlineTotals {
            tallies: tallies.collect(),
            warnings: self.warnings,
            float_seconds: self.floats.clone(),
            run_seconds: self.runs.clone(),
        }
    }

    fn count_tenant(&mut self, tenant: &TenantKey, judgement: &Judgement) {
        self.count += 1;
        let sum = self.tenants.entry(tenant.clone()).or_default();
        sum.newest = self.count;
        sum.tally.add(judgement.verdict());
        sum.tally += judgement.unwritten;
        sum.last_float_seconds = judgement.float_seconds.or(sum.last_float_seconds);
        if self.tenants.len() > MOST_TENANTS {
            let oldest = self.tenants.iter().min_by_key(|(_, sum)| sum.newest).map(|(tenant, _)| tenant.clone());
            oldest.map(|tenant| self.tenants.remove(&tenant));
        }
    }
}

fn empty(ends: &[f64]) -> Histogram {
    Histogram { buckets: ends.iter().map(|end| (Some(*end), 0)).chain([(None, 0)]).collect(), sum: 0.0 }
}

fn count(histogram: &mut Histogram, value: f64) {
    histogram.sum += value;
    let bucket = histogram.buckets.iter_mut().find(|(end, _)| end.is_none_or(|end| value <= end));
    if let Some((_, count)) = bucket {
        *count += 1;
    }
}
