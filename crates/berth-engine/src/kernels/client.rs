//! One process that has attached, and what is known of its work on each GPU.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_host::shim::{ClientClock, Pages};
use berth_model::{GpuUuid, Mono, ProcessFacts};
use berth_policy::kernels::{Queue, Settled, Work};
use berth_proto::shim::message;
use berth_proto::shim::{REQUESTS, Request, SAMPLES, Sample};

use super::orders::Told;
use super::profile::Book;
use super::reading::{Doing, Totals};
use super::sms;

/// Longer no request is.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Over about this long it counts who had how much of the GPU: with all of a day, one that counts a little more from now on would have hours to make up for.
const LATELY: Duration = Duration::from_secs(10);
/// Weight of the latest request in what one usually takes.
const FOLLOWS: f64 = 0.2;

#[derive(Debug)]
pub(super) struct Client {
    pub facts: Arc<ProcessFacts>,
    pub clock: ClientClock,
    /// When it attached.
    pub attached_at: Mono,
    pages: Arc<Pages>,
    /// What is known of its tenant says that it takes part. Until then it is ordered nothing.
    pub takes_part: bool,
    /// Nothing of it runs.
    pub is_still: bool,
    pub lanes: BTreeMap<u8, Lane>,
    sampled: Ring,
    requested: Ring,
}

/// How far a ring of the ledger was read. A place is counted before it is written, so what is new at one look is read at the next.
#[derive(Debug, Clone, Copy, Default)]
struct Ring {
    read: u64,
    written: u64,
}

/// One GPU of a client.
#[derive(Debug)]
pub(super) struct Lane {
    pub gpu: GpuUuid,
    pub sms: u32,
    pub divides: bool,
    pub totals: Totals,
    pub doing: Doing,
    pub book: Book,
    /// Time in which it had work and might run, its part where others ran beside it.
    pub served_ns: u64,
    /// The same of late, and the time it is about, in seconds: both fade.
    had_lately: f64,
    lately: f64,
    /// Since when it has work and may not run.
    pub waiting_since: Option<Mono>,
    /// When it last was seen to have copied.
    pub copied_at: Option<Mono>,
    copied_bytes: u64,
    /// GPU time a request usually takes.
    pub takes: Option<Duration>,
    under_way: Option<UnderWay>,
    /// Of its own requests, inside the program.
    queue: Queue,
    /// The one that was under way before, and the GPU time it had.
    last: Option<(Mono, Duration)>,
    pub settled: Settled,
    orders: Option<Told>,
    /// The most memory it was told it may have.
    memory_limit: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
struct UnderWay {
    began: Mono,
    served_ns: u64,
}

/// A request that is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    pub lane: u8,
    pub at: Mono,
    pub took: Duration,
    /// GPU time the like usually has.
    pub usual: Duration,
}

impl Client {
    pub fn new(facts: Arc<ProcessFacts>, clock: ClientClock, pages: Arc<Pages>, now: Mono) -> Self {
        Self {
            facts,
            clock,
            attached_at: now,
            pages,
            takes_part: false,
            is_still: false,
            lanes: BTreeMap::new(),
            sampled: Ring::default(),
            requested: Ring::default(),
        }
    }

    /// A second lane with the same GPU is a mistake, and has no say.
    pub fn add_lane(&mut self, lane: message::Lane) -> bool {
        let gpu = gpu_uuid(lane.uuid);
        let is_new = self.lanes.values().all(|other| other.gpu != gpu);
        if is_new {
            self.lanes.insert(lane.lane, Lane::new(gpu, lane));
        }
        is_new
    }

    /// Takes in what its ledger says of one GPU. One that stands still has no work, whatever it says.
    pub fn read(&mut self, lane: u8, now: Mono) {
        let (pages, Some(own)) = (&self.pages, self.lanes.get_mut(&lane)) else { return };
        let ledger = &pages.ledger.lanes[usize::from(lane)];
        own.totals.read(ledger);
        own.doing = Doing::read(ledger, self.clock, now);
        own.doing.busy &= !self.is_still;
    }

    /// Samples since the last time, as many as the ring still has.
    pub fn take_samples(&mut self) -> Vec<Sample> {
        let ledger = &self.pages.ledger;
        let places = self.sampled.unread(ledger.sampled.load(Ordering::Acquire), SAMPLES);
        places.filter_map(|place| ledger.samples.get(place)?.read()).collect()
    }

    /// Requests that have ended since the last time, likewise.
    pub fn take_requests(&mut self, now: Mono) -> Vec<Ended> {
        let ledger = &self.pages.ledger;
        let places = self.requested.unread(ledger.requested.load(Ordering::Acquire), REQUESTS);
        let read: Vec<Request> = places.filter_map(|place| ledger.requests.get(place)?.read()).collect();
        let ended = read.into_iter().filter_map(|request| {
            let (began, took) = (Mono(self.clock.to_own(request.began_ns)), Duration::from_nanos(request.took_ns));
            let at = began + took.min(LONGEST);
            let lane = self.lanes.get_mut(&request.lane)?;
            let is_one = took <= LONGEST && began > Mono(0) && at <= now;
            is_one.then(|| {
                let usual = lane.ended(began, took);
                Ended { lane: request.lane, at, took, usual }
            })
        });
        ended.collect()
    }

    /// Writes what it is to do, if that is not what it was told before.
    pub fn order(&mut self, lane: u8, told: Told) {
        let (pages, Some(own)) = (&self.pages, self.lanes.get_mut(&lane)) else { return };
        if own.orders != Some(told) {
            own.orders = Some(told);
            told.write(&pages.orders.lanes[usize::from(lane)]);
            pages.orders.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// The most device memory it may have there; `None`: as much as there is.
    pub fn order_memory(&mut self, lane: u8, limit: Option<u64>) {
        let (pages, Some(own)) = (&self.pages, self.lanes.get_mut(&lane)) else { return };
        if own.memory_limit != limit {
            own.memory_limit = limit;
            pages.orders.lanes[usize::from(lane)].memory_bytes.store(limit.unwrap_or(0), Ordering::Relaxed);
            pages.orders.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// SMs it is confined to now.
    pub fn confined_to(&self, lane: u8) -> Option<u32> {
        let lane = self.lanes.get(&lane)?;
        lane.orders?.confined_to(lane.sms)
    }
}

impl Ring {
    /// Places that were written by the last look and not read, the oldest first.
    fn unread(&mut self, counted: u64, places: usize) -> impl Iterator<Item = usize> + use<> {
        let until = self.written;
        self.written = until.max(counted);
        let from = self.read.max(until.saturating_sub(places as u64));
        self.read = until;
        (from..until).filter_map(move |number| usize::try_from(number % places as u64).ok())
    }
}

impl Lane {
    fn new(gpu: GpuUuid, lane: message::Lane) -> Self {
        Self {
            gpu,
            sms: sms::believed(lane.sm_count),
            divides: lane.divides,
            totals: Totals::default(),
            doing: Doing::default(),
            book: Book::default(),
            served_ns: 0,
            had_lately: 0.0,
            lately: 0.0,
            waiting_since: None,
            copied_at: None,
            copied_bytes: 0,
            takes: None,
            under_way: None,
            queue: Queue::default(),
            last: None,
            settled: Settled::default(),
            orders: None,
            memory_limit: None,
        }
    }

    /// Time has passed in which it might run beside so many others with work, or had to wait.
    pub fn pass(&mut self, may_run: bool, together: usize, passed: Duration, now: Mono) {
        let fades = (-passed.as_secs_f64() / LATELY.as_secs_f64()).exp();
        (self.had_lately, self.lately) = (self.had_lately * fades, self.lately * fades + passed.as_secs_f64());
        if self.doing.busy && may_run {
            let part = passed.as_nanos() / together.max(1) as u128;
            self.had_lately += passed.as_secs_f64() / together.max(1) as f64;
            self.served_ns = self.served_ns.saturating_add(u64::try_from(part).unwrap_or(u64::MAX));
        }
        self.waiting_since = (self.doing.busy && !may_run).then(|| self.waiting_since.unwrap_or(now));
        if self.totals.copied_bytes > self.copied_bytes {
            (self.copied_bytes, self.copied_at) = (self.totals.copied_bytes, Some(now));
        }
        let began = self.doing.busy.then(|| self.doing.since.unwrap_or(now));
        if self.under_way.map(|one| one.began) != began {
            began.into_iter().for_each(|began| self.queue.begins(began));
            self.last = self.under_way.map(|one| (one.began, self.had(one))).or(self.last);
            self.under_way = began.map(|began| UnderWay { began, served_ns: self.served_ns });
        }
    }

    /// GPU time it had of late, and since when that is.
    pub fn had_lately(&self, now: Mono) -> (Duration, Mono) {
        let since = Mono(now.0.saturating_sub(nanos(Duration::from_secs_f64(self.lately))));
        (Duration::from_secs_f64(self.had_lately), since)
    }

    fn had(&self, one: UnderWay) -> Duration {
        Duration::from_nanos(self.served_ns.saturating_sub(one.served_ns))
    }

    /// A request took so long. Where looks saw how much of that it had the GPU for, that is what the like takes.
    fn ended(&mut self, began: Mono, took: Duration) -> Duration {
        self.queue.ends(began, began + took);
        let seen = self.last.filter(|(of, had)| *of == began && !had.is_zero()).map(|(_, had)| had);
        let took = seen.map_or(took, |had| had.min(took));
        let usual = self.takes.unwrap_or(took);
        *self.takes.insert(usual.mul_f64(1.0 - FOLLOWS) + took.mul_f64(FOLLOWS))
    }

    pub fn work(&self) -> Option<Work> {
        self.under_way.map(|one| Work {
            began: one.began,
            came: self.queue.came(one.began),
            done: self.had(one),
            takes: self.takes,
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// As NVML writes it.
fn gpu_uuid(bytes: [u8; 16]) -> GpuUuid {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    GpuUuid(format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

#[cfg(test)]
mod tests;
