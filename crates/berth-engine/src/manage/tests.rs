//! The manager with a real keeper, journal and policy, and hands that only write down what they are asked to do.

mod annals;
mod asks;
mod breath;
mod room;
mod rules;
mod signals;

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_host::hands::{Hands, Subject};
use berth_model::deadline::Pulse;
use berth_model::hold::{Grip, Signal, Step};
use berth_model::{
    Bytes, Change, GpuIndex, GpuInfo, GpuProcess, GpuReading, GpuSample, GpuUuid, HaltedCall, Moment, Monitor,
    ProcessFacts, ProcessKind, Sample, TaskRow, settings,
};
use berth_store::{Kept, Role};
use jiff::Timestamp;

use super::*;

const GPU: GpuIndex = GpuIndex(0);
const MS: u64 = 1_000_000;

#[derive(Debug, Default)]
struct NotingHands {
    steps: Mutex<Vec<(TenantKey, Step)>>,
    /// What goes wrong with every step that makes a hold, if something does.
    fail: Mutex<Option<String>>,
}

impl Hands for NotingHands {
    fn perform(&self, subject: &Subject, step: Step) -> Result<(), StepFailure> {
        self.steps.lock().unwrap().push((subject.tenant.clone(), step));
        match self.fail.lock().unwrap().clone() {
            Some(message) if !step.sets_free() => Err(StepFailure { message, is_passing: false }),
            _ => Ok(()),
        }
    }
}

/// Everybody has a cgroup and can be gated.
struct OpenGround(Arc<Meter>);

/// The pool of the one GPU, by decree.
#[derive(Debug, Default)]
struct Meter {
    taken: Mutex<Bytes>,
    ceiling: Mutex<Option<Bytes>>,
    limited: Mutex<BTreeMap<ProcKey, GpuIndex>>,
    unparkable: Mutex<Option<String>>,
    awaited: Mutex<Option<Signal>>,
}

impl Ground for OpenGround {
    fn place(&self, _: &BTreeSet<ProcKey>) -> Place {
        Place { cgroup: Some("/sys/fs/cgroup/freezer/test".into()), shows_stops: false }
    }

    fn shows_stops(&self, _: &BTreeSet<ProcKey>) -> bool {
        false
    }

    fn offered(&self, _: &Place) -> BTreeSet<Means> {
        BTreeSet::from([Means::Gate, Means::Freeze, Means::Park])
    }

    fn watch_drains(&self, _: ProcKey, _: bool) {}

    fn can_park(&self, _: &BTreeSet<ProcKey>) -> Option<Result<(), String>> {
        Some(self.0.unparkable.lock().unwrap().clone().map_or(Ok(()), Err))
    }

    fn limit(&self, process: ProcKey, pool: Option<GpuIndex>) {
        let mut limited = self.0.limited.lock().unwrap();
        match pool {
            Some(gpu) => limited.insert(process, gpu),
            None => limited.remove(&process),
        };
    }

    fn taken(&self, _: GpuIndex) -> Bytes {
        *self.0.taken.lock().unwrap()
    }

    fn allow(&self, gpu: GpuIndex, ceiling: Bytes) {
        if gpu == GPU {
            *self.0.ceiling.lock().unwrap() = Some(ceiling);
        }
    }

    fn awaited_signal(&self, _: &Place, _: &BTreeSet<ProcKey>) -> Option<Signal> {
        *self.0.awaited.lock().unwrap()
    }

    fn verified(&self, kept: &Kept) -> Grip {
        kept.entry.grip.clone()
    }
}

struct Host {
    manager: Manager,
    monitor: Monitor,
    hands: Arc<NotingHands>,
    meter: Arc<Meter>,
    event_rx: Receiver<Event>,
    now: u64,
    /// How long a step takes.
    takes: u64,
    /// When the manager wants its next turn.
    again_at: Option<Mono>,
    labels: BTreeMap<TenantKey, BTreeMap<String, String>>,
    changes: Vec<Change>,
    /// Whom the level of kernels was told to be kept off, and how many steps had been taken then.
    kept_off: BTreeMap<TenantKey, usize>,
    guarded: Guarded,
    deadlines: Deadlines,
    _dir: tempfile::TempDir,
}

impl Host {
    fn new() -> Self {
        Self::under(PolicyName::Fifo)
    }

    fn under(policy: PolicyName) -> Self {
        Self::ruled(Rules { hold: settings::Hold { policy, ..Default::default() }, ..Default::default() })
    }

    fn ruled(rules: Rules) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("holds"), Role::Daemon, Duration::ZERO, "/proc".as_ref());
        let (journal, found) = journal.unwrap();
        let (event_tx, event_rx) = mpsc::channel();
        let hands = Arc::new(NotingHands::default());
        let meter = Arc::new(Meter::default());
        let guarded = Guarded::default();
        guarded.set(true);
        let parts = Parts {
            rules,
            hands: hands.clone(),
            journal,
            ground: Box::new(OpenGround(meter.clone())),
            event_tx,
            annals: Annals::default(),
            guarded: guarded.clone(),
        };
        let manager = Manager::new(parts, found, Mono(0));
        let monitor = Monitor::new(settings::Monitor::default());
        let mut host = Host {
            manager,
            monitor,
            hands,
            meter,
            event_rx,
            now: 1_000 * MS,
            takes: 0,
            again_at: None,
            labels: BTreeMap::new(),
            changes: Vec::new(),
            kept_off: BTreeMap::new(),
            guarded,
            deadlines: Deadlines::new(settings::Deadlines::default()),
            _dir: dir,
        };
        let (uuid, name) = (GpuUuid("GPU-0".into()), "a GPU".to_owned());
        let gpu = GpuInfo { index: GPU, uuid, name, memory_total: Some(Bytes(24 << 30)), mig: None };
        host.tell(Event::Gpus(vec![gpu]));
        host
    }

    fn tell(&mut self, event: Event) {
        self.manager.note(&event, Mono(self.now));
        self.monitor.apply(event);
    }

    /// A turn of the loop, and whatever its steps bring with them, until nothing more happens.
    fn settle(&mut self) {
        loop {
            let now = Anchor { mono: Mono(self.now), wall: Timestamp::from_second(1_000).unwrap() };
            let snapshot = self.monitor.snapshot(&now);
            let labels = |tenant: &TenantKey| self.labels.get(tenant).cloned();
            let (hands, kept_off) = (&self.hands, &mut self.kept_off);
            let mut decided = |manager: &Manager| {
                let steps = hands.steps.lock().unwrap().len();
                for tenant in snapshot.tasks.iter().map(|row| &row.tenant) {
                    if manager.is_kept_off(tenant, now.mono) {
                        kept_off.entry(tenant.clone()).or_insert(steps);
                    }
                }
            };
            let outcome = self.manager.turn(&snapshot, &labels, &self.deadlines, &mut decided, &now);
            self.again_at = outcome.again_at;
            let Self { manager, changes, .. } = self;
            changes.extend(outcome.changes.into_iter().map(|change| manager.change(change)));
            changes.extend(outcome.rehearsed.into_iter().map(|change| manager.rehearsed(change)));
            match self.event_rx.recv_timeout(Duration::from_millis(200)) {
                // Done in so much time by the clock of the test, usually none.
                Ok(Event::Step { tenant, step, outcome, .. }) => {
                    self.now += self.takes;
                    self.tell(Event::Step { tenant, step, outcome, at: Mono(self.now) });
                }
                Ok(event) => self.tell(event),
                Err(_) => return,
            }
        }
    }

    fn arrives(&mut self, pid: u32) {
        self.opens(pid);
        for moment in [Moment::ContextReady, Moment::FirstAllocation] {
            self.tell(Event::Moment { process: key(pid), moment, at: Mono(self.now) });
        }
    }

    fn opens(&mut self, pid: u32) {
        self.opens_for(pid, tenant(pid));
    }

    fn opens_for(&mut self, pid: u32, tenant: TenantKey) {
        let process = key(pid);
        self.tell(Event::Process(ProcessFacts {
            process,
            tenant,
            uid: Some(pid),
            user: None,
            command: "product".into(),
            started: None,
        }));
        self.tell(Event::Moment { process, moment: Moment::DeviceOpen, at: Mono(self.now) });
    }

    /// A look that finds these processes.
    fn look(&mut self, pids: &[u32]) {
        let processes = pids.iter().map(|pid| GpuProcess {
            process: key(*pid),
            kind: ProcessKind::Compute,
            memory: Some(Bytes(1 << 30)),
            core: None,
        });
        let reading = GpuReading::Ok {
            memory_used: Some(Bytes(2 << 30)),
            memory_free: None,
            core: None,
            processes: Ok(processes.collect()),
        };
        let gpus = vec![GpuSample { index: GPU, reading }];
        self.tell(Event::Sample(Sample { at: Mono(self.now), gpus, ..Sample::default() }));
    }

    /// The first computes; the second is gated.
    fn second_comes(&mut self) {
        self.arrives(1);
        self.tell(Event::Moment { process: key(1), moment: Moment::FirstLaunch, at: Mono(self.now) });
        self.arrives(2);
        self.look(&[1, 2]);
        self.settle();
    }

    /// It has come to its launch.
    fn stops(&mut self, pid: u32) {
        self.tell(Event::Halted { process: key(pid), call: HaltedCall::Launch, at: Mono(self.now) });
        self.settle();
    }

    /// What a tenant does, for its deadlines.
    fn pulse(&mut self, pid: u32) -> Pulse {
        let now = Anchor { mono: Mono(self.now), wall: Timestamp::from_second(1_000).unwrap() };
        let snapshot = self.monitor.snapshot(&now);
        let row = snapshot.tasks.iter().find(|row| row.tenant == tenant(pid)).expect("it is here");
        self.manager.pulse(row, now.mono)
    }

    fn steps(&self) -> Vec<(TenantKey, Step)> {
        std::mem::take(&mut self.hands.steps.lock().unwrap())
    }
}

fn key(pid: u32) -> ProcKey {
    ProcKey { pid, start_ticks: 1 }
}

fn tenant(pid: u32) -> TenantKey {
    TenantKey::Cgroup { path: format!("/t{pid}") }
}

#[test]
fn a_newcomer_waits_at_its_launch_until_the_one_that_computes_is_done() {
    let mut host = Host::new();
    host.arrives(1);
    host.tell(Event::Moment { process: key(1), moment: Moment::FirstLaunch, at: Mono(host.now) });
    host.look(&[1]);
    host.settle();
    assert_eq!(host.steps(), [], "alone, it is left alone");

    host.now += 500 * MS;
    host.arrives(2);
    host.look(&[1, 2]);
    host.settle();
    assert_eq!(host.steps(), [(tenant(2), Step::Gate(key(2)))]);

    host.now += 100 * MS;
    host.stops(2);
    assert_eq!(host.steps(), [(tenant(2), Step::Freeze(Freezer::Cgroup)), (tenant(2), Step::Continue(key(2)))]);
    assert!(host.manager.holds_any() && !host.manager.journal.is_empty());

    host.now += 1_000 * MS;
    host.tell(Event::Drained { process: key(1), at: Mono(host.now) });
    host.settle();
    let steps = host.steps();
    assert!(steps.contains(&(tenant(2), Step::Thaw(Freezer::Cgroup))), "{steps:?}");
}

#[test]
fn of_six_that_come_at_once_the_last_waits_before_its_context_until_one_is_ready() {
    let fifo = settings::FifoSettings { contexts_at_once: 5, ..Default::default() };
    let hold = settings::Hold { policy: PolicyName::Fifo, ..Default::default() };
    let mut host = Host::ruled(Rules { hold, fifo, ..Default::default() });
    for pid in 1..=6 {
        host.opens(pid);
        host.now += MS;
    }
    host.settle();
    let steps = host.steps();
    let barred: Vec<_> = steps.iter().filter(|(_, step)| matches!(step, Step::Bar(_))).collect();
    assert_eq!(barred, [&(tenant(6), Step::Bar(key(6)))], "the others stop at their launches only: {steps:?}");
    host.tell(Event::Halted { process: key(6), call: HaltedCall::Context, at: Mono(host.now) });
    host.settle();
    assert_eq!(host.steps(), [(tenant(6), Step::Freeze(Freezer::Cgroup)), (tenant(6), Step::Continue(key(6)))]);

    host.now += 500 * MS;
    host.tell(Event::Moment { process: key(3), moment: Moment::ContextReady, at: Mono(host.now) });
    host.settle();
    let steps: Vec<Step> = host.steps().into_iter().map(|(_, step)| step).collect();
    let ours = [Step::Ungate(key(6)), Step::Thaw(Freezer::Cgroup), Step::Gate(key(6))];
    assert_eq!(steps, ours, "from then on it stops at its launch, as the others do");
}

#[test]
fn everybody_is_free_and_off_the_record_after_a_stop() {
    let mut host = Host::new();
    host.second_comes();
    host.stops(2);
    assert!(host.manager.holds_any());
    host.manager.release_all(Mono(host.now));
    while host.manager.holds_any() {
        let now = Anchor { mono: Mono(host.now), wall: Timestamp::from_second(1_000).unwrap() };
        host.manager.carry_out(&now);
        let event = host.event_rx.recv_timeout(Duration::from_secs(5)).expect("the step ends");
        host.tell(event);
    }
    let now = Anchor { mono: Mono(host.now), wall: Timestamp::from_second(1_000).unwrap() };
    host.manager.carry_out(&now);
    assert!(host.manager.journal.is_empty());
    assert_eq!(host.steps().last(), Some(&(tenant(2), Step::Thaw(Freezer::Cgroup))));
}

#[test]
fn a_process_nobody_knows_is_continued() {
    let mut host = Host::new();
    host.stops(9);
    let steps: Vec<Step> = host.steps().into_iter().map(|(_, step)| step).collect();
    assert_eq!(steps, [Step::Continue(key(9))]);
    assert!(!host.manager.holds_any());
}

#[test]
fn who_computed_before_it_was_watched_is_judged_by_looks_until_it_launches_again() {
    let mut host = Host::new();
    host.arrives(1);
    host.tell(Event::Moment { process: key(1), moment: Moment::FirstLaunch, at: Mono(host.now) });
    host.look(&[1]);
    host.settle();
    host.now += 60_000 * MS;
    host.arrives(2);
    host.look(&[1, 2]);
    host.settle();
    let pulse = host.pulse(1);
    assert!(!matches!(pulse, Pulse::Computes { .. }), "its first launch is long ago: {pulse:?}");

    let again = Mono(host.now + 100 * MS);
    host.tell(Event::Launched { process: key(1), at: again });
    for _ in 0..2 {
        host.now += 200 * MS;
        host.settle();
        let pulse = host.pulse(1);
        assert!(matches!(pulse, Pulse::Computes { since, .. } if since == again), "{pulse:?}");
    }
}
