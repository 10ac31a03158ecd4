//! The loop: events of every source in, the model's snapshot and the task table out.
//!
//! One plain thread owns the [`Monitor`]; nothing in it blocks. Each source has a thread of its own and one way to be
//! heard: an [`Event`] on the channel. Looking at the GPUs is a source too (`sampler`), paced by the model's wish. What
//! leaves the loop is a finished [`Snapshot`], the list of changes, and the shared-memory table.
#![forbid(unsafe_code)]

mod control;
mod deadlines;
mod describe;
mod guarded;
mod kernels;
mod log;
mod manage;
mod once;
mod sampler;
mod sources;
mod steady;
mod table;
mod watch;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use berth_host::clock;
use berth_host::docker::OWNER_LABEL;
use berth_host::probes::Probes;
use berth_host::procs::ProcsError;
use berth_model::control::{Answer, Ask, Caller, KernelAsk, Refusal, Reply, What};
use berth_model::history::{LeftOpen, Spent};
use berth_model::monitor::Wish;
use berth_model::settings::{EdfSettings, KernelPolicyName, KernelSettings};
use berth_model::snapshot::GpuView;
use berth_model::taking_part;
use berth_model::watch::series::Owner;
use berth_model::{Anchor, Change, Event, GpuUuid, Monitor, Mono, Settings, Snapshot, TaskRow, TenantKey};
use berth_store::deadlines::Deadlines as Store;
use berth_store::history::History;
use berth_store::slos::SetSlo;

pub use control::Control;
use deadlines::{Deadlines, Said, Scene, Stage, by_looks, owners};
pub use describe::describe;
pub use guarded::Guarded;
use kernels::slos::{self, Slos};
use kernels::{Kernels, Known};
use log::log_change;
use manage::{Annals, Manager, Unmanaged};
pub use once::sample_once;
pub use sources::Names;
use sources::{Sources, ask_names};
use steady::Steady;
use table::TaskTable;
use watch::{Sight, Watch};

/// How long the loop waits for events before it shows that it is alive.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a daemon that stops tries to set everybody free.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);
/// Why nothing can be asked of a view.
const WATCHES: &str = "it only watches";
/// Events taken in before the result is published: bounds how stale a snapshot can get in a storm.
const BATCH: usize = 256;

/// A running loop with its sources.
#[derive(Debug)]
pub struct Engine {
    stop: Arc<AtomicBool>,
    control: Control,
    thread: Option<JoinHandle<()>>,
    probes: Option<Arc<Probes>>,
}

/// What is published besides snapshots.
#[derive(Debug, Clone)]
pub enum Publish {
    /// Snapshots and the shared-memory table: the host's daemon, which holds while it is guarded.
    WithTable(Guarded),
    /// Snapshots only: a view that must not disturb a daemon on the same host.
    SnapshotsOnly,
}

/// Why the loop cannot run at all. A source that is missing is no such reason.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot watch processes")]
    Processes(#[source] ProcsError),
    #[error("{name} is required by the settings but missing: {reason}")]
    Required { name: &'static str, reason: String },
    #[error("cannot keep a journal of holds")]
    Journal(#[source] berth_store::JournalError),
    #[error("cannot create the task table")]
    Table(#[source] berth_proto::table::TableError),
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

impl Engine {
    /// Opens every source the settings ask for and starts the loop. `publish` is called on the loop's thread with each new
    /// snapshot and must not block.
    pub fn start(
        settings: &Settings,
        what: Publish,
        publish: impl FnMut(Arc<Snapshot>, &[Change]) + Send + 'static,
    ) -> Result<Engine, StartError> {
        Self::start_with_names(settings, what, |_| None, publish)
    }

    /// The same, with somebody who tells of containers in place of Docker: `names` starts them.
    pub fn start_with_names(
        settings: &Settings,
        what: Publish,
        names: impl FnOnce(&Sender<Event>) -> Option<Box<dyn Names>>,
        publish: impl FnMut(Arc<Snapshot>, &[Change]) + Send + 'static,
    ) -> Result<Engine, StartError> {
        let (event_tx, event_rx) = mpsc::channel();
        let table = match what {
            Publish::WithTable(_) => Some(TaskTable::create(&settings.table).map_err(StartError::Table)?),
            Publish::SnapshotsOnly => None,
        };
        let sources = Sources::start(settings, names(&event_tx), &event_tx)?;
        let is_daemon = table.is_some();
        let mut history = None;
        let mut deadlines = Deadlines::new(settings.deadline.clone());
        let manager = match what {
            Publish::WithTable(guarded) => {
                let (annals, opened) =
                    manage::open_annals(settings, |record| deadlines.recall(record), &clock::anchor());
                let left = opened.as_ref().map(|history| history.left_units.clone()).unwrap_or_default();
                deadlines.resume(annals.writer(), left, clock::boot().as_deref());
                deadlines.keep(said(settings, opened.is_some(), &event_tx));
                for id in deadlines.containers() {
                    // Without room for the question it is asked when the container comes.
                    let _ = sources.describe(id.clone());
                }
                history = opened;
                manage::manager(settings, sources.probes(), &event_tx, annals, guarded, clock::now())?
            }
            Publish::SnapshotsOnly => {
                deadlines.keep(Said::refused(WATCHES.to_owned()));
                Err(Unmanaged { reason: WATCHES.to_owned(), ..Unmanaged::default() })
            }
        };
        let kernels = match is_daemon {
            true => sources.start_kernels(settings, &event_tx)?,
            false => None,
        };
        let slos = Slos::open(kept_in(settings, history.is_some(), is_daemon), event_tx.clone());
        let watch =
            if is_daemon { Watch::open(&settings.history, &settings.processes.proc_root) } else { Watch::default() };
        let (control, ask_rx) = Control::new(event_tx);
        let probes = sources.probes();
        let stop = Arc::new(AtomicBool::new(false));
        let looper = Loop {
            monitor: Monitor::new(settings.monitor.clone()),
            manager,
            kernels,
            kernel_rules: settings.kernels.clone(),
            slos,
            kernel_asks: Vec::new(),
            deadlines,
            watch,
            boot: clock::boot(),
            idle_after: settings.monitor.idle_after.get(),
            edf: settings.edf.clone(),
            turn_at: None,
            sources,
            table,
            event_rx,
            ask_rx,
            publish: Box::new(publish),
            stop: stop.clone(),
            steady: Steady::new(clock::anchor()),
            _history: history,
        };
        let thread = std::thread::Builder::new()
            .name("berth-loop".into())
            .spawn(move || looper.run())
            .map_err(StartError::Thread)?;
        Ok(Engine { stop, control, thread: Some(thread), probes })
    }

    /// For asking something of the loop.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// False once the loop has ended by itself, which only a bug can make it do.
    pub fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// The gate's list of processes it has stopped, for whoever cleans up after this one.
    pub fn halted_map(&self) -> Option<OwnedFd> {
        self.probes.as_ref()?.halted_map().try_clone_to_owned().ok()
    }

    /// Ends the loop and its sources; returns when they are gone.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.probes = None;
        if let Some(thread) = self.thread.take() {
            // A panic in the loop has been reported on its own thread.
            let _ = thread.join();
        }
    }
}

type PublishFn = Box<dyn FnMut(Arc<Snapshot>, &[Change]) + Send>;

struct Loop {
    monitor: Monitor,
    /// Before the sources: whoever is held is set free while there still are probes.
    manager: Result<Manager, Unmanaged>,
    /// After the manager's and before the sources' end everybody is free.
    kernels: Option<Kernels>,
    /// By which goals are bounded, also where nobody takes part.
    kernel_rules: KernelSettings,
    slos: Slos,
    kernel_asks: Vec<(Caller, KernelAsk, Reply)>,
    deadlines: Deadlines,
    watch: Watch,
    /// By which instants of this boot are told from those of another.
    boot: Option<String>,
    idle_after: Duration,
    /// The numbers by which it is said whether one more deadline would be met.
    edf: EdfSettings,
    /// When the manager wants to be asked again though nothing has happened.
    turn_at: Option<Mono>,
    sources: Sources,
    table: Option<TaskTable>,
    event_rx: Receiver<Event>,
    ask_rx: Receiver<(Ask, Reply)>,
    publish: PublishFn,
    stop: Arc<AtomicBool>,
    steady: Steady,
    /// After the manager, which writes in it: what it wrote is on disk when this is gone.
    _history: Option<History>,
}

impl Loop {
    fn run(mut self) {
        while !self.stop.load(Ordering::Relaxed) {
            let wait = self.turn_at.map_or(HEARTBEAT, |at| at.since(clock::now()).min(HEARTBEAT));
            let first = match self.event_rx.recv_timeout(wait) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut changes = Vec::new();
            for event in first.into_iter().chain(self.event_rx.try_iter().take(BATCH)) {
                self.sources.note(&event);
                self.deadlines.overhear(&event);
                self.watch.note(&event);
                if let Some(kernels) = &self.kernels {
                    kernels.note(&event);
                }
                if let Ok(manager) = &mut self.manager {
                    manager.note(&event, clock::now());
                }
                changes.extend(self.monitor.apply(event));
            }
            self.hear();
            self.after(changes);
        }
        self.release_all();
        self.leave();
    }

    /// Takes in what was asked; a manager answers in its turn.
    fn hear(&mut self) {
        for (ask, reply) in self.ask_rx.try_iter().take(BATCH) {
            match (&mut self.manager, ask) {
                (_, Ask { caller, what: What::Kernels(ask) }) => self.kernel_asks.push((caller, ask, reply)),
                (_, Ask { caller, what: What::Watch(ask) }) => self.watch.ask(caller, ask, reply),
                (_, Ask { caller, what: What::Deadline(ask) }) => self.deadlines.ask(caller, ask, reply),
                (Ok(manager), ask) => manager.ask(ask, reply),
                (Err(unmanaged), _) => reply(Err(Refusal::NoHolds { reason: unmanaged.reason.clone() })),
            }
        }
    }

    /// What follows from a batch of events: questions to sources, the next look, and what everybody sees.
    fn after(&mut self, mut changes: Vec<Change>) {
        ask_names(&mut self.monitor, |id| self.sources.describe(id));
        let now = self.steady.date(clock::anchor());
        let by_looks = self.manager.as_ref().is_ok_and(Manager::goes_by_looks);
        let bandwidth = self.kernels.as_ref().is_some_and(Kernels::has_clients);
        let wish = self.monitor.wish(now.mono, by_looks);
        let within = self.kernels.as_ref().and_then(Kernels::look_within);
        let look_in = within.map_or(wish.look_in, |within| within.min(wish.look_in));
        self.sources.look(Wish { bandwidth, look_in, ..wish });
        let mut snapshot = Snapshot { probes: self.sources.probe_counters(), ..self.monitor.snapshot(&now) };
        snapshot.kernels = self.kernels.as_ref().and_then(Kernels::level);
        self.answer_kernels(&snapshot, &now);
        self.manage(&mut snapshot, &mut changes, &now);
        changes.iter().for_each(log_change);
        let snapshot = Arc::new(snapshot);
        if let Some(table) = &mut self.table {
            table.publish(&snapshot, &now);
        }
        (self.publish)(snapshot, &changes);
    }

    /// Lets the policy decide upon what is known now, and shows what came of it.
    fn manage(&mut self, snapshot: &mut Snapshot, changes: &mut Vec<Change>, now: &Anchor) {
        self.deadlines.settle();
        self.attend(snapshot, changes, now);
        self.tasks_ended(snapshot, changes);
        self.turn_at = None;
        let Self { kernels, manager, monitor, slos, kernel_rules, watch, .. } = self;
        if let (Ok(manager), Some(kernels)) = (&mut *manager, &*kernels) {
            manager.keep_off(&kernels.keep_off(), now.mono);
        }
        let shown = &*snapshot;
        // The level of kernels is told what is known of those who take part there, before anybody is held.
        let mut tell_kernels = |annals: &Annals, is_held: &dyn Fn(&TenantKey) -> bool| {
            let Some(kernels) = kernels else { return };
            let terms = |tenant: &TenantKey| {
                kernel_terms(monitor, shown, annals, kernel_rules, tenant, slos.said(tenant).as_ref())
            };
            let noticed = |tenant: &TenantKey| watch.noticed(tenant, now.mono);
            let mps_servers = monitor.mps_servers();
            kernels.attend(shown, &Known { terms: &terms, is_held, noticed: &noticed, mps_servers: &mps_servers });
        };
        if let Err(unmanaged) = &*manager {
            tell_kernels(&unmanaged.annals, &|_| false);
        }
        if let Ok(manager) = manager {
            let labels = |tenant: &TenantKey| monitor.labels_of(tenant).cloned();
            let mut decided = |manager: &Manager| {
                tell_kernels(manager.annals(), &|tenant| manager.is_kept_off(tenant, now.mono));
            };
            let outcome = manager.turn(shown, &labels, &self.deadlines, &mut decided, now);
            self.turn_at = outcome.again_at;
            changes.extend(outcome.changes.into_iter().map(|change| manager.change(change)));
            changes.extend(outcome.gone);
            changes.extend(outcome.rehearsed.into_iter().map(|change| manager.rehearsed(change)));
            manager.show(snapshot, now);
        }
        changes.extend(self.deadlines.show(snapshot, now));
        self.deadlines.tasks().into_iter().for_each(|judgement| self.monitor.judged(judgement));
        changes.extend(self.watch(snapshot, now));
        snapshot.watch = self.watch.totals();
        changes.extend(self.answer(snapshot, now));
        self.turn_at = self.turn_at.into_iter().chain(self.deadlines.again_at(now.mono)).min();
        if self.deadlines.looks_for_some() {
            return;
        }
        let left = left_of(&self.deadlines, self.boot.as_ref(), now.mono);
        match &mut self.manager {
            Ok(manager) => manager.keep_open(snapshot, &left, now),
            Err(unmanaged) => unmanaged.annals.keep_open(snapshot, &left, now),
        }
    }

    /// What is noticed in what is shown now.
    fn watch(&mut self, snapshot: &Snapshot, now: &Anchor) -> Vec<Change> {
        let Self { monitor, deadlines, watch, .. } = self;
        let owner = |tenant: &TenantKey| {
            let named = monitor.labels_of(tenant).and_then(|labels| labels.get(OWNER_LABEL)).cloned();
            let uids = match tenant {
                TenantKey::User { uid } => vec![Some(*uid)],
                tenant => monitor.uids_of(tenant),
            };
            Owner::new(named.filter(|owner| !owner.is_empty()), uids)
        };
        let asks_for_kernels = |tenant: &TenantKey| {
            let label = monitor.labels_of(tenant).and_then(|labels| labels.get(taking_part::LABEL));
            label.is_some_and(|value| value == "true")
        };
        let sight = Sight { snapshot, owner: &owner, asks_for_kernels: &asks_for_kernels, now };
        watch.turn(&sight, &deadlines.units())
    }

    /// Answers those who asked about deadlines, with what is shown now.
    fn answer(&mut self, snapshot: &Snapshot, now: &Anchor) -> Vec<Change> {
        let Self { monitor, sources, deadlines, edf, .. } = self;
        let (monitor, sources) = (&*monitor, &*sources);
        let stage = Stage {
            snapshot,
            labels: &|tenant| monitor.labels_of(tenant),
            uids: &|tenant| monitor.uids_of(tenant),
            describe: &|id| sources.describe(id),
            edf,
            now,
        };
        deadlines.answer(&stage)
    }

    /// Answers those who asked about the level of kernels.
    fn answer_kernels(&mut self, snapshot: &Snapshot, now: &Anchor) {
        for (caller, ask, reply) in std::mem::take(&mut self.kernel_asks) {
            match ask {
                KernelAsk::SetPolicy { policy, gpu } => {
                    reply(self.set_kernel_policy(&caller, policy, gpu.as_deref(), snapshot));
                }
                ask => {
                    let monitor = &self.monitor;
                    let may =
                        |caller: &Caller, tenant: &TenantKey, name: &str| may_decide(monitor, caller, tenant, name);
                    let terms = |tenant: &TenantKey, said: Option<&SetSlo>| {
                        kernel_terms(monitor, snapshot, annals(&self.manager), &self.kernel_rules, tenant, said)
                    };
                    let stage = slos::Stage { snapshot, terms: &terms, may: &may, now };
                    self.slos.ask(&caller, ask, reply, &stage);
                }
            }
        }
    }

    fn set_kernel_policy(
        &self,
        caller: &Caller,
        policy: KernelPolicyName,
        gpu: Option<&str>,
        snapshot: &Snapshot,
    ) -> Result<Answer, Refusal> {
        if !caller.is_admin {
            return Err(Refusal::AdminsOnly);
        }
        let reason =
            || Refusal::NoKernels { reason: "`kernels.enabled` is false, or its socket is missing".to_owned() };
        let kernels = self.kernels.as_ref().ok_or_else(reason)?;
        kernels.set_policy(gpu.map(|gpu| gpu_named(gpu, snapshot)).transpose()?, policy);
        Ok(Answer::KernelPolicy(policy))
    }

    /// Judges those who have a deadline.
    fn attend(&mut self, snapshot: &Snapshot, changes: &[Change], now: &Anchor) {
        let Self { monitor, manager, deadlines, idle_after, .. } = self;
        let (monitor, manager) = (&*monitor, &*manager);
        let owners_of = |row: &TaskRow| match manager {
            Ok(manager) => manager.owners_of(row, monitor.labels_of(&row.tenant)),
            Err(_) => {
                let (labels, uids) = (monitor.labels_of(&row.tenant), monitor.uids_of(&row.tenant));
                owners(row.owner.clone(), labels, uids)
            }
        };
        let pulse = |row: &TaskRow| match manager {
            Ok(manager) => manager.pulse(row, now.mono),
            Err(_) => by_looks(row, *idle_after, now.mono),
        };
        let scene = Scene {
            snapshot,
            labels: &|tenant| monitor.labels_of(tenant),
            owners: &owners_of,
            pulse: &pulse,
            processes: &|tenant| monitor.processes_of(tenant),
            now,
        };
        deadlines.attend(&scene, changes);
    }

    /// Tasks that ended are remembered, also where nobody can be held.
    fn tasks_ended(&mut self, snapshot: &Snapshot, changes: &[Change]) {
        for change in changes {
            let Change::TaskEnded { task, tenant, at, .. } = change else { continue };
            let ended = snapshot.ended.iter().find(|ended| ended.task_id == *task);
            let record = match (&mut self.manager, ended) {
                (Ok(manager), ended) => manager.task_ended(tenant, *at, ended.map(Arc::as_ref)),
                (Err(unmanaged), Some(ended)) => Some(unmanaged.annals.task(ended, Spent::default())),
                (Err(_), None) => None,
            };
            if let Some(record) = &record {
                self.deadlines.learn(record);
            }
        }
    }

    /// Nobody stays held by a daemon that stops. What cannot be undone in time is on record, for the guard.
    fn release_all(&mut self) {
        let Ok(manager) = &mut self.manager else { return };
        let started = clock::now();
        manager.release_all(started);
        while manager.holds_any() && clock::now().since(started) < RELEASE_WITHIN {
            manager.carry_out(&self.steady.date(clock::anchor()));
            if let Ok(event) = self.event_rx.recv_timeout(Duration::from_millis(100)) {
                manager.note(&event, clock::now());
            }
        }
        manager.carry_out(&self.steady.date(clock::anchor()));
    }

    /// Tasks that go on are lost sight of.
    fn leave(&mut self) {
        let now = self.steady.date(clock::anchor());
        let mut snapshot = self.monitor.snapshot(&now);
        self.deadlines.flush();
        let left = left_of(&self.deadlines, self.boot.as_ref(), now.mono);
        let left: Option<&manage::LeftOf<'_>> = if self.deadlines.looks_for_some() { None } else { Some(&left) };
        match &self.manager {
            Ok(manager) => manager.leave(&mut snapshot, left, &now),
            Err(unmanaged) => unmanaged.annals.leave(&snapshot, left, &now),
        }
    }
}

/// What was said of a tenant that takes part, or might.
fn kernel_terms(
    monitor: &Monitor,
    snapshot: &Snapshot,
    annals: &Annals,
    rules: &KernelSettings,
    tenant: &TenantKey,
    said: Option<&SetSlo>,
) -> kernels::Terms {
    let labels = monitor.labels_of(tenant);
    let row = snapshot.tasks.iter().find(|row| row.tenant.is(tenant));
    let seen = row.and_then(|row| annals.before(row)).and_then(|before| before.peak_memory_bytes);
    let owners = owners(row.and_then(|row| row.owner.clone()), labels, monitor.uids_of(tenant));
    kernels::terms(tenant, labels, &owners, said, rules, seen)
}

/// What is remembered, also where nobody can be held.
fn annals(manager: &Result<Manager, Unmanaged>) -> &Annals {
    match manager {
        Ok(manager) => manager.annals(),
        Err(unmanaged) => &unmanaged.annals,
    }
}

/// The GPU a person means, by its index or its UUID.
fn gpu_named(gpu: &str, snapshot: &Snapshot) -> Result<GpuUuid, Refusal> {
    let is_it = |row: &&GpuView| {
        row.index.to_string() == gpu || row.uuid.as_ref().is_some_and(|uuid| uuid.0.eq_ignore_ascii_case(gpu))
    };
    let found = snapshot.gpus.iter().find(is_it).and_then(|row| row.uuid.clone());
    let known = || snapshot.gpus.iter().map(|row| row.index.to_string()).collect();
    found.ok_or_else(|| Refusal::NoSuchGpu { gpu: gpu.to_owned(), known: known() })
}

/// As for deadlines: its owner by label, else the users its processes run as.
fn may_decide(monitor: &Monitor, caller: &Caller, tenant: &TenantKey, name: &str) -> Result<(), Refusal> {
    let owner = monitor.labels_of(tenant).and_then(|labels| labels.get(OWNER_LABEL)).filter(|owner| !owner.is_empty());
    let uids = match tenant {
        TenantKey::User { uid } => vec![Some(*uid)],
        tenant => monitor.uids_of(tenant),
    };
    if caller.may_act_on(owner.map(String::as_str), &uids) {
        return Ok(());
    }
    Err(Refusal::NotYours { name: name.to_owned(), owner: owner.cloned() })
}

/// What persons have said, beside the history: whoever may write that is alone there.
fn said(settings: &Settings, is_ours: bool, event_tx: &Sender<Event>) -> Said {
    match settings.history.enabled {
        false => Said::in_memory(),
        true if is_ours => Said::on_disk(Store::open(&settings.history.dir), event_tx.clone()),
        true => Said::refused(
            "the history cannot be written, and they are kept with it; the daemon's log says why".to_owned(),
        ),
    }
}

/// Where goals that are set are kept; `None`: nowhere.
fn kept_in(settings: &Settings, is_ours: bool, is_daemon: bool) -> Option<Result<&Path, String>> {
    match settings.history.enabled && is_daemon {
        false => None,
        true if is_ours => Some(Ok(&settings.history.dir)),
        true => Some(Err("the history cannot be written, and they are kept with it".to_owned())),
    }
}

/// Whose units go on, for the next daemon; nobody's where boots cannot be told apart.
fn left_of(deadlines: &Deadlines, boot: Option<&String>, now: Mono) -> impl Fn(&TenantKey) -> Option<LeftOpen> {
    move |tenant| Some(LeftOpen { boot: boot?.clone(), left: deadlines.open(tenant, now)? })
}
