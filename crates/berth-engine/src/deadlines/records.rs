//! Judged units on their way to the history: each on its own, unless they come faster than is worth a line.

use std::collections::BTreeMap;
use std::time::Duration;

use berth_model::deadline::Verdict;
use berth_model::history::{Happening, Judgement, Record};
use berth_model::{Anchor, Mono, TenantKey};
use berth_store::history::Writer;

/// Bursts of one tenant are written down at most this often; the others are counted with the next.
const BETWEEN: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Records {
    /// `None`: nothing is written down.
    writer: Option<Writer>,
    tenants: BTreeMap<TenantKey, Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    written: Option<Mono>,
    waiting: Option<Record>,
}

impl Records {
    pub fn open(&mut self, writer: Option<Writer>) {
        self.writer = writer;
    }

    pub fn add(&mut self, tenant: &TenantKey, name: String, judgement: Judgement, ended: Option<Mono>, now: &Anchor) {
        let record = |at| Record { at, tenant: tenant.clone(), name, what: Happening::Judged(judgement) };
        // One whose end nobody saw is rare, and not until now: counted with others it would tell wrongly how far they reach.
        let Some(ended) = ended else { return write(self.writer.as_ref(), record(now.wall)) };
        self.tenants.entry(tenant.clone()).or_default().take(record(now.wall_at(ended)));
        self.write_due(now);
    }

    /// Writes down what has waited long enough.
    pub fn write_due(&mut self, now: &Anchor) {
        for recent in self.tenants.values_mut() {
            let is_due = recent.written.is_none_or(|written| now.mono.since(written) >= BETWEEN);
            if is_due && let Some(record) = recent.waiting.take() {
                recent.written = Some(now.mono);
                write(self.writer.as_ref(), record);
            }
        }
    }

    /// Its task has ended: nothing more comes to wait for.
    pub fn flush(&mut self, tenant: &TenantKey) {
        if let Some(record) = self.tenants.remove(tenant).and_then(|recent| recent.waiting) {
            write(self.writer.as_ref(), record);
        }
    }

    pub fn flush_all(&mut self) {
        for record in std::mem::take(&mut self.tenants).into_values().filter_map(|recent| recent.waiting) {
            write(self.writer.as_ref(), record);
        }
    }

    pub fn again_at(&self) -> Option<Mono> {
        let waiting = self.tenants.values().filter(|recent| recent.waiting.is_some());
        waiting.filter_map(|recent| Some(recent.written? + BETWEEN)).min()
    }
}

impl Recent {
    /// Of two that come too fast the one that was missed is written, and the other counted with it. The record is of when the last of them
    /// ended: whatever was under way until then is not any more.
    fn take(&mut self, record: Record) {
        let Some(before) = self.waiting.take() else {
            self.waiting = Some(record);
            return;
        };
        let is_miss = |record: &Record| matches!(&record.what, Happening::Judged(it) if it.verdict() == Verdict::Miss);
        let (mut kept, counted) =
            if is_miss(&before) && !is_miss(&record) { (before, record) } else { (record, before) };
        if let (Happening::Judged(kept), Happening::Judged(counted)) = (&mut kept.what, &counted.what) {
            kept.unwritten.add(counted.verdict());
            kept.unwritten += counted.unwritten;
        }
        kept.at = kept.at.max(counted.at);
        self.waiting = Some(kept);
    }
}

fn write(writer: Option<&Writer>, record: Record) {
    if let Some(writer) = writer {
        writer.write(record);
    }
}
