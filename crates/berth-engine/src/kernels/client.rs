//! One process that has attached, and what is known of its work on each GPU.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_host::shim::{ClientClock, Pages};
use berth_model::{GpuUuid, Mono, ProcessFacts};
use berth_policy::kernels::Orders;
use berth_proto::shim::message;
use berth_proto::shim::{LaneOrders, SAMPLES, Sample};

use super::lead::Lead;
use super::profile::Book;
use super::reading::{Doing, Totals};
use super::requests::Requests;

#[derive(Debug)]
pub(super) struct Client {
    pub facts: Arc<ProcessFacts>,
    pub clock: ClientClock,
    /// When it attached.
    pub attached_at: Mono,
    pages: Arc<Pages>,
    /// What is known of its tenant says that it takes part. Until then it is ordered nothing.
    pub takes_part: bool,
    pub lanes: BTreeMap<u8, Lane>,
    /// Samples read so far.
    sampled: u64,
}

/// One GPU of a client.
#[derive(Debug)]
pub(super) struct Lane {
    pub gpu: GpuUuid,
    pub sms: u32,
    pub divides: bool,
    pub arrived: Mono,
    pub totals: Totals,
    pub doing: Doing,
    pub book: Book,
    pub requests: Requests,
    pub lead: Lead,
    /// Time in which it had work and might run, its part where others ran beside it.
    pub served_ns: u64,
    /// Since when it has work and may not run.
    pub waiting_since: Option<Mono>,
    orders: Option<Told>,
}

/// What a client was told last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    orders: Orders,
    /// SMs it is confined to.
    sms: Option<u32>,
    sample_every: u32,
}

impl Client {
    pub fn new(facts: Arc<ProcessFacts>, clock: ClientClock, pages: Arc<Pages>, now: Mono) -> Self {
        Self { facts, clock, attached_at: now, pages, takes_part: false, lanes: BTreeMap::new(), sampled: 0 }
    }

    /// A second lane with the same GPU is a mistake, and has no say.
    pub fn add_lane(&mut self, lane: message::Lane, now: Mono) -> bool {
        let gpu = gpu_uuid(lane.uuid);
        let is_new = self.lanes.values().all(|other| other.gpu != gpu);
        if is_new {
            self.lanes.insert(lane.lane, Lane::new(gpu, lane, now));
        }
        is_new
    }

    /// Takes in what its ledger says of one GPU.
    pub fn read(&mut self, lane: u8, now: Mono) {
        let (pages, Some(own)) = (&self.pages, self.lanes.get_mut(&lane)) else { return };
        let ledger = &pages.ledger.lanes[usize::from(lane)];
        own.totals.read(ledger);
        own.doing = Doing::read(ledger, self.clock, now);
    }

    /// Samples since the last time, as many as the ring still has.
    pub fn take_samples(&mut self) -> Vec<Sample> {
        let ledger = &self.pages.ledger;
        let written = ledger.sampled.load(Ordering::Acquire);
        let from = self.sampled.max(written.saturating_sub(SAMPLES as u64));
        self.sampled = self.sampled.max(written);
        let place = |number: u64| usize::try_from(number % SAMPLES as u64).ok();
        let slots = (from..written).filter_map(|number| ledger.samples.get(place(number)?));
        let samples: Vec<Sample> = slots.filter_map(|slot| slot.read()).collect();
        for sample in &samples {
            if let Some(lane) = self.lanes.get_mut(&sample.lane) {
                lane.book.add(sample, lane.sms);
            }
        }
        samples
    }

    /// Writes what it is to do, if that is not what it was told before.
    pub fn order(&mut self, lane: u8, orders: Orders, sms: Option<u32>, sample_every: u32) {
        let (pages, Some(own)) = (&self.pages, self.lanes.get_mut(&lane)) else { return };
        let told = Told { orders, sms, sample_every };
        if own.orders != Some(told) {
            own.orders = Some(told);
            told.write(&pages.orders.lanes[usize::from(lane)]);
            pages.orders.changes.fetch_add(1, Ordering::Release);
        }
    }
}

impl Lane {
    fn new(gpu: GpuUuid, lane: message::Lane, now: Mono) -> Self {
        Self {
            gpu,
            sms: lane.sm_count,
            divides: lane.divides,
            arrived: now,
            totals: Totals::default(),
            doing: Doing::default(),
            book: Book::default(),
            requests: Requests::default(),
            lead: Lead::default(),
            served_ns: 0,
            waiting_since: None,
            orders: None,
        }
    }

    /// Time has passed in which it might run beside so many others with work, or had to wait.
    pub fn pass(&mut self, may_run: bool, together: usize, passed: Duration, now: Mono) {
        if self.doing.busy && may_run {
            let part = passed.as_nanos() / together.max(1) as u128;
            self.served_ns = self.served_ns.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        }
        self.waiting_since = (self.doing.busy && !may_run).then(|| self.waiting_since.unwrap_or(now));
        self.requests.look(self.doing, self.served_ns, may_run, passed, now);
    }
}

impl Told {
    /// A part of the SMs for all of its work is one for work that takes any time at all.
    fn write(&self, page: &LaneOrders) {
        let Self { orders, sms, sample_every } = *self;
        let (long_ns, long_sms) = match (sms, orders.long) {
            (Some(sms), _) => (1, sms),
            (None, Some(long)) => (nanos(long.from), long.sms),
            (None, None) => (0, 0),
        };
        let (long_ns, longest_stop) = (u32::try_from(long_ns).unwrap_or(u32::MAX), nanos(orders.longest_stop));
        let short = |duration| u32::try_from(nanos(duration)).unwrap_or(u32::MAX);
        page.grain_ns.store(short(orders.grain), Ordering::Relaxed);
        page.linger_ns.store(short(orders.linger), Ordering::Relaxed);
        page.long_sms.store(long_sms, Ordering::Relaxed);
        page.long_ns.store(long_ns, Ordering::Relaxed);
        page.longest_stop_ns.store(longest_stop, Ordering::Relaxed);
        page.copy_bytes_per_second.store(orders.copy_bytes_per_second.unwrap_or(0), Ordering::Relaxed);
        page.memory_bytes.store(orders.memory_bytes.unwrap_or(0), Ordering::Relaxed);
        page.sample_every.store(sample_every, Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// As NVML writes it.
fn gpu_uuid(bytes: [u8; 16]) -> GpuUuid {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    GpuUuid(format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_called_as_the_driver_calls_it() {
        let bytes = [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        assert_eq!(gpu_uuid(bytes).0, "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
