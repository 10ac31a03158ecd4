//! What is noticed on a host of which only the snapshot is known, and who is told.

mod inside;
mod past;
mod words;

use std::sync::{Arc, Mutex};

use berth_model::control::{Answer, FindingRow, Heard, Refusal};
use berth_model::deadline::Unit;
use berth_model::history::Workload;
use berth_model::hold::Means;
use berth_model::kernels::{KernelCounters, KernelRole, KernelRow, RequestFigures};
use berth_model::settings;
use berth_model::snapshot::{HoldRow, HoldStage};
use berth_model::watch::feedback::Feedback;
use berth_model::watch::series::SeriesQuery;
use berth_model::{BandwidthUse, Bytes, GpuView, Monitor, TaskState};
use jiff::Timestamp;
use serde_json::json;

use super::*;

use inside::{kernels_of, with_kernels};

const GPU: GpuIndex = GpuIndex(0);

struct Host {
    watch: Watch,
    snapshot: Snapshot,
    now: Anchor,
    /// Units of work that end with each turn.
    units: Vec<(TenantKey, String, Judgement)>,
}

fn host(watch: Watch) -> Host {
    let now = Anchor { mono: Mono(1_000_000_000), wall: Timestamp::UNIX_EPOCH };
    let mut snapshot = Monitor::new(settings::Monitor::default()).snapshot(&now);
    snapshot.gpus.push(GpuView {
        index: GPU,
        uuid: Some(berth_model::GpuUuid("GPU-0".into())),
        name: None,
        memory_used_bytes: None,
        memory_total_bytes: Some(Bytes::from_mib(80 << 10)),
        core_pct: None,
        tenants: 2,
        lost: None,
        blind: None,
        mig: None,
    });
    snapshot.tasks = vec![row(1000, "ada"), row(1001, "eve")];
    Host { watch, snapshot, now, units: Vec::new() }
}

/// Of somebody on the first GPU.
pub(crate) fn row(uid: u32, name: &str) -> TaskRow {
    TaskRow {
        tenant: TenantKey::User { uid },
        container_id: None,
        container_name: name.into(),
        owner: Some(name.into()),
        image: None,
        container_started_at: None,
        command: "python".into(),
        pids: vec![uid],
        process_kinds: Vec::new(),
        gpu_uuid: Some(berth_model::GpuUuid("GPU-0".into())),
        gpu_index: Some(GPU),
        gpu_memory_bytes: Some(Bytes::from_mib(8_000)),
        gpu_core_pct: None,
        state: TaskState::Idle,
        task_id: None,
        task_started_at: None,
        task_seconds: None,
        task_start_evidence: None,
        hold: None,
        held_seconds: Some(0.0),
        deadline: None,
        memory_needed_bytes: None,
        placement: None,
    }
}

fn hold(by_uid: Option<u32>) -> HoldRow {
    HoldRow {
        stage: HoldStage::Held,
        means: Some(Means::Freeze),
        by_uid,
        reason: "`ada` computes".into(),
        stands_at: None,
        since: Timestamp::UNIX_EPOCH,
        held_seconds: 1.0,
        place: None,
        places: None,
        behind: None,
        expected_at: None,
        until: None,
    }
}

fn user(uid: u32, name: &str) -> Caller {
    Caller { uid, user: Some(name.into()), is_admin: uid == 0 }
}

impl Host {
    fn turn(&mut self) -> Vec<Change> {
        let owner = |tenant: &TenantKey| match tenant {
            TenantKey::User { uid } => Owner::new(None, vec![Some(*uid)]),
            other => panic!("{other}"),
        };
        let asks_for_kernels = |tenant: &TenantKey| *tenant == TenantKey::User { uid: 1000 };
        let sight =
            Sight { snapshot: &self.snapshot, owner: &owner, asks_for_kernels: &asks_for_kernels, now: &self.now };
        self.watch.turn(&sight, &self.units)
    }

    /// A second goes by for each, and what is told meanwhile.
    fn seconds(&mut self, many: u64, mut change: impl FnMut(&mut Snapshot, u64)) -> Vec<Change> {
        let mut told = Vec::new();
        for second in 0..many {
            self.now.mono = self.now.mono + Duration::from_secs(1);
            self.now.wall = self.now.wall.saturating_add(jiff::SignedDuration::from_secs(1)).unwrap();
            change(&mut self.snapshot, second);
            told.extend(self.turn());
        }
        told
    }

    fn ask(&mut self, caller: Caller, ask: WatchAsk) -> Result<Answer, Refusal> {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        self.watch.ask(caller, ask, Box::new(move |told| *slot.lock().unwrap() = Some(told)));
        self.turn();
        answer.lock().unwrap().take().expect("it is answered in its turn")
    }

    fn findings(&mut self, caller: Caller) -> Vec<FindingRow> {
        match self.ask(caller, WatchAsk::Findings { tenant: None }).unwrap() {
            Answer::Findings(rows) => rows,
            other => panic!("{other:?}"),
        }
    }
}

fn leak(snapshot: &mut Snapshot, second: u64) {
    snapshot.tasks[0].gpu_memory_bytes = Some(Bytes::from_mib(8_000 + 3 * second));
}

#[test]
fn memory_that_grows_is_told_once_and_its_figures_to_its_owner_alone() {
    let mut host = host(Watch::default());
    let told = host.seconds(600, leak);
    let [Change::Found { tenant, name, kind: Kind::MemoryDrift, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!((tenant, name.as_str()), (&TenantKey::User { uid: 1000 }, "ada"));
    let [finding] = &host.findings(user(1000, "ada"))[..] else { panic!("one finding") };
    assert!(finding.words.contains("GiB an hour") && finding.gpu == Some(GPU) && finding.sure > 0.9, "{finding:?}");
    assert_eq!(host.findings(user(1001, "eve")), []);
    assert_eq!(host.findings(user(0, "root")).len(), 1);
    assert_eq!(host.watch.totals().findings, [(Kind::MemoryDrift, 1)].into());
    let refused = host.ask(user(1001, "eve"), WatchAsk::Findings { tenant: Some("ada".into()) });
    assert!(matches!(refused, Err(Refusal::NotYours { .. })), "{refused:?}");
    let over = host.seconds(400, |_, _| ());
    assert!(matches!(&over[..], [Change::FoundNoMore { kind: Kind::MemoryDrift, .. }]), "{over:?}");
    let totals = host.watch.totals();
    assert_eq!((totals.findings.len(), totals.found), (0, [(Kind::MemoryDrift, 1)].into()));
}

#[test]
fn a_hold_for_nobody_is_told_unless_a_person_asked_for_it() {
    for (by_uid, expected) in [(None, 1), (Some(1000), 0)] {
        let mut host = host(Watch::default());
        let told = host.seconds(60, |snapshot, _| snapshot.tasks[1].hold = Some(hold(by_uid)));
        let stuck = told.iter().filter(|change| matches!(change, Change::Found { kind: Kind::StuckHold, .. }));
        assert_eq!(stuck.count(), expected, "{by_uid:?}: {told:?}");
    }
}

#[test]
fn who_is_held_while_another_computes_is_not_stuck_and_who_stands_in_line_for_ever_starves() {
    let mut host = host(Watch::default());
    let told = host.seconds(400, |snapshot, _| {
        snapshot.tasks[0].state = TaskState::Computing;
        snapshot.tasks[1].hold = Some(HoldRow { place: Some(1), ..hold(None) });
    });
    let kinds: Vec<Kind> = told
        .iter()
        .filter_map(|change| if let Change::Found { kind, .. } = change { Some(*kind) } else { None })
        .collect();
    assert_eq!(kinds, [Kind::Starvation]);
}

/// `eve` stands in line and has no turn.
fn starve(snapshot: &mut Snapshot, _: u64) {
    snapshot.tasks[0].state = TaskState::Computing;
    snapshot.tasks[1].hold = Some(HoldRow { place: Some(1), ..hold(None) });
}

#[test]
fn who_starves_counts_for_a_quarter_more_until_it_has_got_on_again_whatever_is_said_beside() {
    let mut host = host(Watch::default());
    let eve = TenantKey::User { uid: 1001 };
    let noticed = |host: &Host| host.watch.noticed(&eve, host.now.mono);
    host.seconds(10, starve);
    assert_eq!(noticed(&host), Noticed { weight: 1.0, urged_by: vec![], is_misjudged: false });
    host.seconds(200, starve);
    assert_eq!(noticed(&host), Noticed { weight: URGENCY, urged_by: vec![Kind::Starvation], is_misjudged: false });
    for _ in 0..100 {
        let stuck = WatchAsk::Feedback { tenant: "eve".into(), said: Feedback::Stuck };
        host.ask(user(0, "root"), stuck).unwrap();
    }
    let loud = noticed(&host).weight;
    assert!((1.5..=URGENCY * 1.25).contains(&loud), "{loud}");
    let ada = TenantKey::User { uid: 1000 };
    assert_eq!(host.watch.noticed(&ada, host.now.mono).weight, 1.0, "others count as they did");
    host.seconds(600, |snapshot, _| {
        snapshot.tasks[0].state = TaskState::Idle;
        (snapshot.tasks[1].hold, snapshot.tasks[1].state) = (None, TaskState::Computing);
    });
    assert_eq!(noticed(&host).urged_by, [], "it has had its part");
    assert!(noticed(&host).weight <= 1.25);
}

#[test]
fn figures_are_written_every_few_seconds_of_gpus_and_tenants() {
    let parent = tempfile::tempdir().unwrap();
    let settings = settings::History { dir: parent.path().to_owned(), ..settings::History::default() };
    let mut host = host(Watch::open(&settings, Path::new("/proc")));
    host.seconds(60, |snapshot, second| {
        snapshot.tasks[0].held_seconds = Some(f64::from(u32::try_from(second).unwrap()) / 2.0);
    });
    let seen = BandwidthUse { gpu: GPU, share: 0.6, since: host.now.mono, until: host.now.mono };
    host.watch.note(&Event::Bandwidth(vec![seen]));
    host.seconds(20, |snapshot, _| {
        with_kernels(snapshot);
        snapshot.kernels.as_mut().unwrap().rows = vec![kernels_of(1000, 0.0, 0.0)];
    });
    host.watch.writer.as_ref().unwrap().flush();
    let query = SeriesQuery { whom: Some("ada".into()), ..SeriesQuery::default() };
    let told = berth_store::series::read(&parent.path().join(DIR), &query, &|_| true).unwrap();
    let of = |metric| told.lines.iter().find(|line| line.key.metric == metric).unwrap();
    assert_eq!(of(Metric::MemoryBytes).values.len(), 16);
    let query = SeriesQuery { metric: Some(Metric::BandwidthShare), ..SeriesQuery::default() };
    let used = berth_store::series::read(&parent.path().join(DIR), &query, &|_| true).unwrap().lines;
    let means = |is_of: &dyn Fn(&Of) -> bool| {
        let own = used.iter().filter(|line| is_of(&line.key.of)).flat_map(|line| &line.values);
        own.map(|value| value.mean().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(means(&|of| *of == Of::Gpu), [0.6]);
    assert_eq!(means(&|of| matches!(of, Of::Tenant { name, .. } if name == "ada")), [0.25; 4]);
    let share = of(Metric::HeldShare).values.get(10).unwrap().mean().unwrap();
    assert!((share - 0.5).abs() < 0.01, "{share}");
}

#[test]
fn tenants_without_end_are_forgotten_the_longest_unseen_first() {
    let mut host = host(Watch::default());
    host.seconds(2_000, |snapshot, second| {
        snapshot.tasks.truncate(1);
        snapshot.tasks.push(row(2_000 + u32::try_from(second).unwrap(), "new"));
    });
    assert_eq!(host.watch.tenants.len(), MOST_TENANTS);
    assert!(host.watch.tenants.contains_key(&TenantKey::User { uid: 1000 }));
}
