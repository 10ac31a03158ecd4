//! Scheduling at the level of kernels: who takes part, what is planned, and carrying it out.
//!
//! One thread, "berth-kernels", owns everything and is woken by clients that come and go, by the loop when it knows something new of a
//! tenant, and by time: every half a millisecond while two have work on the same GPU, seldom otherwise, never without clients. A leader's
//! stop needs none of that: it is a word in memory between the two.
//!
//! The loop tells it what it knows of tenants ([`Kernels::attend`]) and shows what came of it; neither waits for the other. Who is to be held it
//! tells before it begins to hold.

mod account;
mod bandwidth;
mod carry;
mod choosing;
mod client;
mod copies;
mod goals;
mod gpu;
mod guests;
mod lead;
mod links;
mod look;
mod measure;
mod memory;
mod offences;
mod orders;
mod places;
mod policies;
mod profile;
mod reading;
mod record;
mod room;
mod show;
pub(crate) mod slos;
mod sms;
mod standing;
mod still;
#[cfg(test)]
mod tests;
mod windows;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use berth_host::clock;
use berth_host::procs::Registry;
use berth_host::shim::{ClientId, Shim, ShimError, Told};
use berth_model::kernels::KernelLevel;
use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_model::{BandwidthUse, Event, GpuIndex, GpuUuid, ProcKey, ProcessKind, Sample, Snapshot, TaskRow, TenantKey};

use crate::watch::Noticed;
use standing::{Standing, standing};
pub(crate) use standing::{Terms, terms};
use still::Still;
use world::World;

/// Between two looks at a GPU on which two have work at the same time.
const CONTENDED: Duration = Duration::from_micros(500);
/// The same where two could, and where one is alone.
const CALM: Duration = Duration::from_millis(10);
const ALONE: Duration = Duration::from_millis(100);
/// How often what is shown is made anew.
const SHOWN_EVERY: Duration = Duration::from_millis(200);
/// How old what is known of free memory may get where some is reserved.
const FREE_EVERY: Duration = Duration::from_secs(1);
/// What is taken in before the next look.
const BATCH: usize = 256;

/// What the thread is told.
#[derive(Debug)]
enum Input {
    Client(Told),
    Tenant(TenantKey, Box<Standing>),
    Gpus(OnGpus),
    Exited(ProcKey),
    Bandwidth(Vec<BandwidthUse>),
    Sample(Box<Sample>),
    Policy(Option<GpuUuid>, KernelPolicyName),
    Stop,
}

/// The GPUs there are, and whom the driver sees on them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct OnGpus {
    indices: BTreeMap<GpuUuid, GpuIndex>,
    pids: BTreeMap<GpuUuid, BTreeSet<u32>>,
}

/// What the loop knows beside its snapshot.
pub(crate) struct Known<'a> {
    pub terms: &'a dyn Fn(&TenantKey) -> Terms,
    /// It is kept off the GPU.
    pub is_held: &'a dyn Fn(&TenantKey) -> bool,
    /// What its owner says and what is found of it.
    pub noticed: &'a dyn Fn(&TenantKey) -> Noticed,
    /// Processes that compute for others and do nothing of their own.
    pub mps_servers: &'a BTreeSet<u32>,
}

/// What the thread leaves for the loop.
#[derive(Debug, Default)]
struct Shared {
    /// Of whom it wants to know, with the first of its clients that is there: of one that has left and is back nothing is known any more.
    tenants: BTreeMap<TenantKey, ClientId>,
    level: Option<KernelLevel>,
    /// Who is to be kept from running for a moment, and why.
    keep_off: BTreeMap<TenantKey, String>,
    /// Somebody has reserved memory: what is free has to be known.
    keeps_memory: bool,
}

/// The running thread; dropping it frees everybody and hangs up.
#[derive(Debug)]
pub(crate) struct Kernels {
    input_tx: Sender<Input>,
    shared: Arc<Mutex<Shared>>,
    /// What the thread was told last, and for which client.
    told: BTreeMap<TenantKey, (ClientId, Standing)>,
    told_gpus: OnGpus,
    thread: Option<JoinHandle<()>>,
}

impl Kernels {
    pub fn start(
        settings: &KernelSettings,
        proc_root: &Path,
        names: Registry,
        event_tx: Sender<Event>,
    ) -> Result<Self, ShimError> {
        let (input_tx, input_rx) = mpsc::channel();
        let told_tx = input_tx.clone();
        let names = Box::new(move |pid| names.facts(pid));
        // The receiver lives until the socket is gone.
        let shim = Shim::start(&settings.socket, names, move |told| drop(told_tx.send(Input::Client(told))))?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let world = World::new(settings.clone(), Still::new(proc_root), shim, event_tx, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("berth-kernels".into()).spawn(move || run(world, &input_rx));
        let thread = thread.map_err(|source| ShimError::Io { attempt: "start a thread", source })?;
        Ok(Self { input_tx, shared, told: BTreeMap::new(), told_gpus: OnGpus::default(), thread: Some(thread) })
    }

    pub fn note(&self, event: &Event) {
        match event {
            Event::ProcessExited { process, .. } => self.tell(Input::Exited(*process)),
            Event::Bandwidth(uses) => self.tell(Input::Bandwidth(uses.clone())),
            Event::Sample(sample) if self.has_clients() => self.tell(Input::Sample(Box::new(sample.clone()))),
            _ => {}
        }
    }

    /// Whether somebody takes part or asks to.
    pub fn has_clients(&self) -> bool {
        !self.shared.lock().unwrap_or_else(PoisonError::into_inner).tenants.is_empty()
    }

    /// How soon the driver has to be asked again what is free; `None` where nobody goes by it.
    pub fn look_within(&self) -> Option<Duration> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.keeps_memory.then_some(FREE_EVERY)
    }

    /// `None`: on all GPUs.
    pub fn set_policy(&self, gpu: Option<GpuUuid>, policy: KernelPolicyName) {
        self.tell(Input::Policy(gpu, policy));
    }

    /// Who is to be kept from running for a moment, and why.
    pub fn keep_off(&self) -> BTreeMap<TenantKey, String> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).keep_off.clone()
    }

    /// What came of it all.
    pub fn level(&self) -> Option<KernelLevel> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).level.clone()
    }

    /// Tells what is known of those who take part or ask to, where that has changed.
    pub fn attend(&mut self, snapshot: &Snapshot, known: &Known<'_>) {
        let tenants = self.shared.lock().unwrap_or_else(PoisonError::into_inner).tenants.clone();
        self.told.retain(|tenant, _| tenants.contains_key(tenant));
        for (tenant, first) in tenants {
            let Known { terms, is_held, noticed, .. } = known;
            let now = standing(&tenant, &snapshot.tasks, terms(&tenant), is_held(&tenant), noticed(&tenant));
            let now = (first, now);
            if self.told.get(&tenant) != Some(&now) {
                self.tell(Input::Tenant(tenant.clone(), Box::new(now.1.clone())));
                self.told.insert(tenant, now);
            }
        }
        let gpus = OnGpus::of(snapshot, known.mps_servers);
        if self.told_gpus != gpus {
            self.told_gpus = gpus;
            self.tell(Input::Gpus(self.told_gpus.clone()));
        }
    }

    /// It ends only with this.
    fn tell(&self, input: Input) {
        if self.input_tx.send(input).is_err() {
            tracing::debug!("the thread berth-kernels has ended");
        }
    }
}

impl OnGpus {
    /// A server of MPS is no stranger where it has clients: what it does is theirs. Which they are `berth_host::nvml` tells, and not by a name alone.
    fn of(snapshot: &Snapshot, mps_servers: &BTreeSet<u32>) -> Self {
        let indices = snapshot.gpus.iter().filter_map(|gpu| Some((gpu.uuid.clone()?, gpu.index))).collect();
        let is_client = |task: &&TaskRow| task.process_kinds.contains(&ProcessKind::MpsClient);
        let served: BTreeSet<&GpuUuid> =
            snapshot.tasks.iter().filter(is_client).filter_map(|task| task.gpu_uuid.as_ref()).collect();
        let mut pids: BTreeMap<GpuUuid, BTreeSet<u32>> = BTreeMap::new();
        for task in &snapshot.tasks {
            let Some(gpu) = &task.gpu_uuid else { continue };
            let is_own = |pid: &&u32| !(served.contains(gpu) && mps_servers.contains(pid));
            pids.entry(gpu.clone()).or_default().extend(task.pids.iter().filter(is_own));
        }
        Self { indices, pids }
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        self.tell(Input::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on its own thread.
            let _ = thread.join();
        }
    }
}

fn run(mut world: World, input_rx: &Receiver<Input>) {
    loop {
        let first = match world.wait(clock::now()) {
            None => input_rx.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => input_rx.recv_timeout(wait),
        };
        let first = match first {
            Ok(input) => Some(input),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return world.end(),
        };
        for input in first.into_iter().chain(input_rx.try_iter().take(BATCH)) {
            match input {
                Input::Client(told) => world.hear(told, clock::now()),
                Input::Tenant(tenant, standing) => world.know(tenant, *standing, clock::now()),
                Input::Gpus(OnGpus { indices, pids }) => world.meet_gpus(indices, pids),
                Input::Exited(process) => world.exited(process),
                Input::Bandwidth(uses) => world.see_bandwidth(&uses),
                Input::Sample(sample) => world.see_memory(&sample),
                Input::Policy(gpu, policy) => world.set_policy(gpu, policy, clock::now()),
                Input::Stop => return world.end(),
            }
        }
        world.turn(clock::now());
    }
}
