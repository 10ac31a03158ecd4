//! Units of work by what became of them: counted by owner, a bounded number of them, and never by container.

use std::fmt;

use berth_model::deadline::{Tally, Verdict};
use berth_model::snapshot::{DeadlineTotals, Histogram, OwnerTally};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::{Labels, Page, float};
use crate::metrics::names::{self, Named, label};

impl Page<'_, '_> {
    pub(super) fn deadlines(&mut self, totals: &DeadlineTotals) -> fmt::Result {
        self.counters(names::DEADLINE_UNITS, totals.tallies.iter().flat_map(by_verdict))?;
        self.single(names::DEADLINE_WARNINGS, ConstCounter::new(totals.warnings))?;
        self.histogram(names::DEADLINE_FLOAT, &totals.float_seconds)?;
        self.histogram(names::DEADLINE_RUN, &totals.run_seconds)
    }

    /// Nothing is written for one without buckets: there is nobody who counts.
    fn histogram(&mut self, (name, help): Named, histogram: &Histogram) -> fmt::Result {
        if histogram.buckets.is_empty() {
            return Ok(());
        }
        let end = |end: &Option<f64>| end.unwrap_or(f64::INFINITY);
        let buckets: Vec<(f64, u64)> = histogram.buckets.iter().map(|(upto, count)| (end(upto), *count)).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let mut encoder = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        encoder.encode_histogram::<[(&str, &str); 0]>(histogram.sum, count, &buckets, None)
    }
}

fn by_verdict(OwnerTally { owner, unit, tally }: &OwnerTally) -> [(Labels, f64); 3] {
    let Tally { hits, misses, unknown } = *tally;
    let each = [(Verdict::Hit, hits), (Verdict::Miss, misses), (Verdict::Unknown, unknown)];
    each.map(|(verdict, units)| {
        let labels = vec![
            (label::OWNER, owner.clone().unwrap_or_default()),
            (label::UNIT, unit.as_str().to_owned()),
            (label::VERDICT, verdict.as_str().to_owned()),
        ];
        (labels, float(units))
    })
}
