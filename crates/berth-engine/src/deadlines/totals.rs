//! Units counted: by tenant as far back as is remembered, by owner since the daemon started. Bounded in number.

use std::collections::BTreeMap;

use berth_model::deadline::{Tally, Unit};
use berth_model::history::{Happening, Judgement, Record};
use berth_model::snapshot::{DeadlineTotals, Histogram, OwnerTally};
use berth_model::{ContainerId, TenantKey};

/// Tenants whose units are counted; of more, the one that was judged longest ago is forgotten.
const MOST_TENANTS: usize = 1_024;
/// Owners told apart. A label makes up any number of them, so that of more the one that was judged longest ago is forgotten: its
/// counters end, and begin anew if it comes back. To count it on among others would count the same units again.
const MOST_OWNERS: usize = 64;
/// Upper ends of the histograms' buckets, in seconds.
const FLOATS: [f64; 15] = [-300.0, -60.0, -10.0, -5.0, -1.0, -0.5, -0.1, 0.0, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0];
const RUNS: [f64; 14] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0];

#[derive(Debug)]
pub(super) struct Totals {
    tenants: BTreeMap<TenantKey, Sum>,
    owners: BTreeMap<Option<String>, OwnerSum>,
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

#[derive(Debug, Default)]
struct OwnerSum {
    tallies: BTreeMap<Unit, Tally>,
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
        self.count_owner(judgement);
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

    /// What is not counted here is others' to add.
    pub fn view(&self) -> DeadlineTotals {
        let tallies = self.owners.iter().flat_map(|(owner, sum)| {
            let of_unit =
                |(unit, tally): (&Unit, &Tally)| OwnerTally { owner: owner.clone(), unit: *unit, tally: *tally };
            sum.tallies.iter().map(of_unit)
        });
        DeadlineTotals {
            tallies: tallies.collect(),
            warnings: self.warnings,
            float_seconds: self.floats.clone(),
            run_seconds: self.runs.clone(),
            ..DeadlineTotals::default()
        }
    }

    fn count_owner(&mut self, judgement: &Judgement) {
        let sum = self.owners.entry(judgement.workload.owner.clone()).or_default();
        sum.newest = self.count;
        sum.tallies.entry(judgement.unit).or_default().add(judgement.verdict());
        if self.owners.len() > MOST_OWNERS {
            let oldest = self.owners.iter().min_by_key(|(_, sum)| sum.newest).map(|(owner, _)| owner.clone());
            oldest.map(|owner| self.owners.remove(&owner));
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

#[cfg(test)]
mod tests {
    use berth_model::TaskId;
    use berth_model::history::Workload;
    use jiff::Timestamp;

    use super::*;

    /// A unit of this owner that was in time.
    fn hit(owner: &str, unit: Unit) -> Judgement {
        Judgement {
            task_id: TaskId(1),
            workload: Workload { owner: Some(owner.to_owned()), image: None, command: String::new() },
            unit,
            deadline: "9s".parse().unwrap(),
            started_at: Timestamp::UNIX_EPOCH,
            due_at: Timestamp::UNIX_EPOCH,
            seconds: Some(1.0),
            float_seconds: Some(8.0),
            deadline_hit: Some(true),
            active_seconds: None,
            held_seconds: 0.0,
            contended_seconds: 0.0,
            why: None,
            unwritten: Tally::default(),
        }
    }

    fn note(totals: &mut Totals, owner: &str, unit: Unit) {
        totals.note(&TenantKey::User { uid: 1 }, &hit(owner, unit));
    }

    fn owners(totals: &Totals) -> Vec<String> {
        totals.view().tallies.into_iter().filter_map(|tally| tally.owner).collect()
    }

    #[test]
    fn owners_are_counted_and_not_their_kinds_of_work() {
        let mut totals = Totals::default();
        for number in 0..MOST_OWNERS {
            note(&mut totals, &number.to_string(), Unit::Task);
            note(&mut totals, &number.to_string(), Unit::Burst);
        }
        assert_eq!(owners(&totals).len(), 2 * MOST_OWNERS);
    }

    #[test]
    fn owners_that_were_made_up_push_nobody_out_for_good() {
        let mut totals = Totals::default();
        note(&mut totals, "gone", Unit::Task);
        for number in 0..2 * MOST_OWNERS {
            note(&mut totals, &number.to_string(), Unit::Task);
            note(&mut totals, "ada", Unit::Task);
        }
        let ada = totals.view().tallies.into_iter().find(|tally| tally.owner.as_deref() == Some("ada")).unwrap();
        assert_eq!(ada.tally.hits, 2 * MOST_OWNERS as u64, "she comes often enough");
        assert!(!owners(&totals).contains(&"gone".to_owned()));
        note(&mut totals, "gone", Unit::Task);
        assert!(owners(&totals).contains(&"gone".to_owned()));
        assert_eq!(owners(&totals).len(), MOST_OWNERS);
    }
}
