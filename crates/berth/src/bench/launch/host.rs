//! The other end of the library in a program: lets programs attach and links them as the measurement says, without a daemon or a policy.
//!
//! So a program is attached, leads or yields by construction, and what is measured is the library's work alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use berth_host::shim::{ClientId, End, Link, Pages, Shim, Told};
use berth_model::settings::KernelSettings;
use berth_model::{ProcKey, ProcessFacts, TenantKey};
use berth_proto::shim::message::{Lane, Refusal};
use berth_proto::shim::{LaneLedger, LaneOrders, SOCKET_NAME};
use serde::Serialize;

/// A program may attach before it is known what it is to be.
const EXPECTED_WITHIN: Duration = Duration::from_secs(5);

/// Pages of everybody who has attached.
type Ledgers = Arc<Mutex<Vec<Arc<Pages>>>>;

/// What a program is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Attached, and linked with nobody.
    Attached,
    /// The other yields to it.
    Leads,
    Yields,
}

/// Pieces of work, and waits put before them: the proof that the library was at work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    pub launches: u64,
    pub stops: u64,
}

/// Ends when it is dropped: everybody goes on without it.
#[derive(Debug)]
pub struct Host {
    parts: Arc<Mutex<BTreeMap<u32, Part>>>,
    linked: Arc<Mutex<Counts>>,
    ledgers: Ledgers,
    socket: PathBuf,
    // Dropped last: the thread ends when the socket's own has.
    thread: Option<JoinHandle<()>>,
    shim: Option<Arc<Shim>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    /// Programs that have a GPU.
    lanes: usize,
    links: usize,
}

impl Counted {
    /// Since then.
    pub fn since(self, before: Self) -> Self {
        let Self { launches, stops } = before;
        Self { launches: self.launches.saturating_sub(launches), stops: self.stops.saturating_sub(stops) }
    }
}

impl Host {
    /// Its socket is in `dir`. Where kernels of several programs overlap, long ones are kept on a part of the GPU.
    pub fn start(dir: &Path, settings: &KernelSettings, kernels_overlap: bool) -> anyhow::Result<Self> {
        let socket = dir.join(SOCKET_NAME);
        let (told_tx, told_rx) = channel();
        let tell = move |told| drop(told_tx.send(told));
        let shim = Arc::new(Shim::start(&socket, Box::new(facts), tell).context("listening for programs")?);
        let (parts, linked, ledgers) = (Arc::default(), Arc::default(), Arc::default());
        let linker = Linker {
            shim: Arc::downgrade(&shim),
            parts: Arc::clone(&parts),
            counts: Arc::clone(&linked),
            settings: settings.clone(),
            kernels_overlap,
            ledgers: Arc::clone(&ledgers),
            clients: BTreeMap::new(),
            links: Vec::new(),
        };
        let thread = std::thread::spawn(move || linker.run(&told_rx));
        Ok(Self { parts, linked, ledgers, socket, thread: Some(thread), shim: Some(shim) })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// To be called as soon as a program was started.
    pub fn expect(&self, pid: u32, part: Part) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).insert(pid, part);
    }

    /// What the library in all programs so far has counted.
    pub fn counted(&self) -> Counted {
        let pages = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = |of: fn(&LaneLedger) -> &AtomicU64| {
            let lanes = pages.iter().flat_map(|pages| &pages.ledger.lanes);
            lanes.map(|lane| of(lane).load(Ordering::Relaxed)).sum()
        };
        Counted { launches: sum(|lane| &lane.launches), stops: sum(|lane| &lane.stops) }
    }

    /// Other orders for everybody who is there.
    pub fn vary(&self, settings: &KernelSettings) {
        for pages in self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            for lane in 0..u8::try_from(pages.orders.lanes.len()).unwrap_or(0) {
                order(settings, pages, lane, None);
            }
        }
    }

    /// Whether so many programs use a GPU and so many links are there.
    pub fn has(&self, lanes: usize, links: usize) -> bool {
        *self.linked.lock().unwrap_or_else(PoisonError::into_inner) == Counts { lanes, links }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.shim.take());
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on its own thread.
            let _ = thread.join();
        }
    }
}

struct Linker {
    shim: std::sync::Weak<Shim>,
    parts: Arc<Mutex<BTreeMap<u32, Part>>>,
    counts: Arc<Mutex<Counts>>,
    settings: KernelSettings,
    kernels_overlap: bool,
    ledgers: Ledgers,
    clients: BTreeMap<ClientId, Client>,
    links: Vec<Link>,
}

struct Client {
    part: Part,
    pages: Arc<Pages>,
    lane: Option<u8>,
}

impl Linker {
    fn run(mut self, told_rx: &Receiver<Told>) {
        for told in told_rx {
            let Some(shim) = self.shim.upgrade() else { return };
            match told {
                Told::Asks { client, facts, .. } => self.welcome(&shim, client, facts.process.pid),
                Told::Lane { client, lane } => self.lane(&shim, client, lane),
                Told::Gone { client } => self.gone(client),
            }
            let lanes = self.clients.values().filter(|client| client.lane.is_some()).count();
            let counts = Counts { lanes, links: self.links.len() };
            *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
        }
    }

    fn welcome(&mut self, shim: &Shim, client: ClientId, pid: u32) {
        let Some(part) = self.part(pid) else { return shim.refuse(client, Refusal::NotAsked) };
        if let Some(pages) = shim.welcome(client) {
            self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&pages));
            self.clients.insert(client, Client { part, pages, lane: None });
        }
    }

    fn part(&self, pid: u32) -> Option<Part> {
        let deadline = Instant::now() + EXPECTED_WITHIN;
        loop {
            let part = self.parts.lock().unwrap_or_else(PoisonError::into_inner).get(&pid).copied();
            if part.is_some() || Instant::now() > deadline {
                return part;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn lane(&mut self, shim: &Shim, client: ClientId, lane: Lane) {
        let Some(found) = self.clients.get_mut(&client) else { return };
        let divides = lane.divides && self.kernels_overlap && found.part == Part::Yields;
        order(&self.settings, &found.pages, lane.lane, divides.then_some(lane.sm_count));
        found.lane = Some(lane.lane);
        let ends = |part| {
            let of_part = self.clients.iter().filter(move |(_, client)| client.part == part);
            of_part.filter_map(|(id, client)| Some(End { client: *id, lane: client.lane? }))
        };
        let missing = ends(Part::Yields).flat_map(|yields| ends(Part::Leads).map(move |leads| (yields, leads)));
        let known = |(yields, leads): &(End, End)| {
            self.links.iter().any(|link| link.yields == *yields && link.leads == Some(*leads))
        };
        let missing: Vec<_> = missing.filter(|pair| !known(pair)).collect();
        self.links.extend(missing.into_iter().filter_map(|(yields, leads)| shim.link(yields, Some(leads))));
    }

    fn gone(&mut self, client: ClientId) {
        self.clients.remove(&client);
        self.links.retain(|link| link.yields.client != client && link.leads.is_none_or(|leads| leads.client != client));
    }
}

/// As a daemon would. `divided`: of so many SMs, long kernels get a part.
fn order(settings: &KernelSettings, pages: &Pages, lane: u8, divided: Option<u32>) {
    let Some(orders) = pages.orders.lanes.get(usize::from(lane)) else { return };
    let LaneOrders { grain_ns, linger_ns, long_ns, long_sms, longest_stop_ns, sample_every, preempt_ns, .. } = orders;
    let LaneOrders { yield_slice_us, lead_slice_us, .. } = orders;
    let ns = |span: berth_model::Span| u32::try_from(span.get().as_nanos()).unwrap_or(u32::MAX);
    let us = |span: berth_model::Span| u32::try_from(span.get().as_micros()).unwrap_or(u32::MAX);
    yield_slice_us.store(us(settings.yield_slice), Ordering::Relaxed);
    lead_slice_us.store(us(settings.lead_slice), Ordering::Relaxed);
    grain_ns.store(ns(settings.grain), Ordering::Relaxed);
    linger_ns.store(ns(settings.linger), Ordering::Relaxed);
    preempt_ns.store(ns(settings.preempt), Ordering::Relaxed);
    longest_stop_ns.store(ns(settings.longest_stop).into(), Ordering::Relaxed);
    sample_every.store(settings.sample_every, Ordering::Relaxed);
    if let Some(sms) = divided {
        let part = sms * u32::from(settings.long_part.get()) / 100;
        long_ns.store(ns(settings.long_kernel), Ordering::Relaxed);
        long_sms.store(part - part % settings.sm_step, Ordering::Relaxed);
    }
    pages.orders.changes.fetch_add(1, Ordering::Release);
}

/// Programs of the measurement are known by their pids alone.
fn facts(pid: u32) -> Option<Arc<ProcessFacts>> {
    let tenant = TenantKey::Cgroup { path: format!("/bench/{pid}") };
    let process = ProcKey { pid, start_ticks: 0 };
    Some(Arc::new(ProcessFacts { process, tenant, uid: None, user: None, command: String::new(), started: None }))
}
