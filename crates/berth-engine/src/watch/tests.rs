//! What is noticed on a host of which only the snapshot is known, and who is told.

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

/// Nobody has attached yet.
fn with_kernels(snapshot: &mut Snapshot) {
    let totals = json!({"attached": 0, "refused": 0, "leads_lost": 0, "plans": 0});
    let level = json!({"policy": "slo", "gpu_policies": [], "rows": [], "totals": totals});
    snapshot.kernels = Some(serde_json::from_value(level).unwrap());
}

#[test]
fn who_asks_for_the_level_of_kernels_and_does_not_attach_is_told_so() {
    let mut host = host(Watch::default());
    assert_eq!(host.seconds(60, |_, _| ()), [], "nobody can attach here");
    let told = host.seconds(60, |snapshot, _| with_kernels(snapshot));
    let [Change::Found { name, kind: Kind::NotAttached, .. }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(name, "ada", "the other does not ask for it");
    let [finding] = &host.findings(user(1000, "ada"))[..] else { panic!("one finding") };
    assert!(finding.words.contains("berth run --kernel-level"), "{finding:?}");
}

fn unit(seconds: f64) -> (TenantKey, String, Judgement) {
    let judgement = Judgement {
        task_id: berth_model::TaskId(1),
        workload: Workload { owner: None, image: None, command: "python".into() },
        unit: Unit::Task,
        deadline: "10s".parse().unwrap(),
        started_at: Timestamp::UNIX_EPOCH,
        due_at: Timestamp::UNIX_EPOCH,
        seconds: Some(seconds),
        float_seconds: Some(10.0 - seconds),
        deadline_hit: Some(true),
        active_seconds: Some(seconds),
        held_seconds: 0.0,
        contended_seconds: 0.0,
        why: None,
        unwritten: Default::default(),
    };
    (TenantKey::User { uid: 1000 }, "ada".into(), judgement)
}

/// What an earlier daemon has learned of `ada`: a hundred units that took so long, and a complaint.
fn earlier(parent: &Path, seconds: f64) -> settings::History {
    let settings = settings::History { dir: parent.to_owned(), ..settings::History::default() };
    let mut host = host(Watch::open(&settings, Path::new("/proc")));
    host.ask(user(1000, "ada"), WatchAsk::Feedback { tenant: "ada".into(), said: Feedback::Stuck }).unwrap();
    host.units = vec![unit(seconds)];
    host.seconds(100, |_, _| ());
    host.watch.writer.as_ref().unwrap().flush();
    settings
}

#[test]
fn what_is_usual_and_what_was_said_outlive_a_daemon() {
    let parent = tempfile::tempdir().unwrap();
    let settings = earlier(parent.path(), 1.0);
    let kinds = |before: bool| {
        let mut host = host(if before { Watch::open(&settings, Path::new("/proc")) } else { Watch::default() });
        host.watch.past.wait();
        host.now.wall = Timestamp::UNIX_EPOCH.saturating_add(jiff::SignedDuration::from_secs(200)).unwrap();
        host.now.mono = Mono(200_000_000_000);
        host.units = vec![unit(2.0)];
        let told = host.seconds(40, |_, _| ());
        let kinds =
            told.iter().filter_map(|change| if let Change::Found { kind, .. } = change { Some(*kind) } else { None });
        let (ada, eve) = (TenantKey::User { uid: 1000 }, TenantKey::User { uid: 1001 });
        let weights = [&ada, &eve].map(|tenant| host.watch.weight(tenant, host.now.mono));
        (kinds.collect::<Vec<_>>(), weights.map(|weight| weight > 1.0))
    };
    assert_eq!(kinds(false), (vec![], [false, false]), "without its past nobody knows that it was faster");
    assert_eq!(kinds(true), (vec![Kind::Degradation], [true, false]));
}

/// Holds for nobody of so many seconds, with as many between them.
fn held_for_nobody(seconds: u64) -> impl FnMut(&mut Snapshot, u64) {
    move |snapshot, second| snapshot.tasks[1].hold = (second % (2 * seconds) < seconds).then(|| hold(None))
}

/// One has its turns after so many seconds, and twice as long.
fn by_turns(seconds: u64) -> impl FnMut(&mut Snapshot, u64) {
    move |snapshot, second| {
        let waits = second % (3 * seconds) < seconds;
        snapshot.tasks[0].state = TaskState::Computing;
        snapshot.tasks[1].state = if waits { TaskState::Idle } else { TaskState::Computing };
        snapshot.tasks[1].hold = waits.then(|| HoldRow { place: Some(1), ..hold(None) });
    }
}

/// The same inside a GPU.
fn kernels_by_turns(seconds: u64) -> impl FnMut(&mut Snapshot, u64) {
    let (mut wanted, mut stopped) = (0.0, 0.0);
    move |snapshot, second| {
        wanted += 1.0;
        stopped += if second % (3 * seconds) < seconds { 1.0 } else { 0.0 };
        with_kernels(snapshot);
        let level = snapshot.kernels.as_mut().unwrap();
        level.rows = vec![kernels_of(1000, wanted, 0.0), kernels_of(1001, wanted, stopped)];
    }
}

#[test]
fn what_is_usual_of_holds_waits_and_memory_outlives_a_daemon() {
    type Changes = Box<dyn FnMut(&mut Snapshot, u64)>;
    let played = |before: Changes, seconds: u64, after: Changes| {
        let parent = tempfile::tempdir().unwrap();
        let settings = settings::History { dir: parent.path().to_owned(), ..settings::History::default() };
        let mut first = host(Watch::open(&settings, Path::new("/proc")));
        assert_eq!(first.seconds(seconds, before), [], "nothing is wrong yet");
        first.watch.writer.as_ref().unwrap().flush();
        let (now, mut after) = (first.now, after);
        drop(first.watch);
        let mut then = |watch: Watch| {
            let mut second = host(watch);
            second.watch.past.wait();
            second.now = now;
            let told = second.seconds(60, &mut after);
            let kinds =
                told.iter().filter_map(|one| if let Change::Found { kind, .. } = one { Some(*kind) } else { None });
            kinds.collect::<Vec<_>>()
        };
        (then(Watch::open(&settings, Path::new("/proc"))), then(Watch::default()))
    };
    let (with, without) = played(Box::new(held_for_nobody(10)), 120, Box::new(held_for_nobody(50)));
    assert_eq!((with, without), (vec![], vec![Kind::StuckHold]), "six times ten seconds are not unusual");
    let (with, without) = played(Box::new(by_turns(30)), 600, Box::new(by_turns(55)));
    assert_eq!((with, without), (vec![], vec![Kind::Starvation]), "it had to wait for long before");
    let (with, without) = played(Box::new(kernels_by_turns(30)), 600, Box::new(kernels_by_turns(55)));
    assert_eq!((with, without), (vec![], vec![Kind::Starvation]), "its kernels had to wait for long before");
    let leaks = |from: u64| Box::new(move |snapshot: &mut Snapshot, second| leak(snapshot, from + second));
    let (with, without) = played(leaks(0), 260, leaks(260));
    assert_eq!((with, without), (vec![Kind::MemoryDrift], vec![]), "it grew before, too");
}

/// Figures that are written often, of others, fill more than an answer to a question may have.
#[test]
fn what_is_usual_is_taken_in_however_much_was_written_of_others_since() {
    let parent = tempfile::tempdir().unwrap();
    let settings = earlier(parent.path(), 1.0);
    let series = Series::open(&settings.dir.join(DIR), Limits::default(), Path::new("/proc")).unwrap();
    let of = |uid| Of::tenant(TenantKey::User { uid }, "other", Owner::new(None, vec![Some(uid)]));
    let key = |uid| Key { of: of(uid), gpu: Some(berth_model::GpuUuid("GPU-0".into())), metric: Metric::MemoryBytes };
    for turn in 0..300 {
        series.writer().write(150_000 + turn, (0..200).map(|uid| (key(2_000 + uid), 1.0)).collect());
        series.writer().flush();
    }
    drop(series);
    let mut past = Past::read(settings.dir.join(DIR));
    past.wait();
    let mut watched = Watched::default();
    watched.is_called("ada", Owner::new(None, vec![Some(1000)]));
    let now = Anchor { mono: Mono(200_000_000_000), wall: Timestamp::from_second(200).unwrap() };
    past.taken_in(&TenantKey::User { uid: 1000 }, &mut watched, &now);
    assert!(watched.mood.get(now.mono) < 0.0, "what its owner said is still known");
}

#[test]
fn another_owner_s_past_is_not_taken_in() {
    let parent = tempfile::tempdir().unwrap();
    let settings = earlier(parent.path(), 1.0);
    let mut past = Past::read(settings.dir.join(DIR));
    past.wait();
    let (ada, now) = (TenantKey::User { uid: 1000 }, Anchor { mono: Mono(1), wall: Timestamp::UNIX_EPOCH });
    let mut watched = Watched::default();
    watched.is_called("ada", Owner::new(Some("eve".into()), vec![Some(1001)]));
    past.taken_in(&ada, &mut watched, &now);
    assert_eq!(watched.mood.get(now.mono), 0.0);
    watched.is_called("ada", Owner::new(None, vec![Some(1000)]));
    past.taken_in(&ada, &mut watched, &now);
    assert!(watched.mood.get(now.mono) < 0.0);
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
fn a_word_is_its_owner_s_is_kept_and_is_shown_to_nobody_else() {
    let parent = tempfile::tempdir().unwrap();
    let settings = settings::History { dir: parent.path().to_owned(), ..settings::History::default() };
    let mut host = host(Watch::open(&settings, Path::new("/proc")));
    let ask = WatchAsk::Feedback { tenant: "ada".into(), said: Feedback::Slow };
    let refused = host.ask(user(1001, "eve"), ask.clone());
    assert!(matches!(refused, Err(Refusal::NotYours { .. })), "{refused:?}");
    let Ok(Answer::Heard(heard)) = host.ask(user(1000, "ada"), ask) else { panic!("it is hers") };
    let Heard { said, weight, is_kept, .. } = *heard;
    assert!(said == Feedback::Slow && weight > 1.0 && is_kept);
    let mood = |host: &mut Host, caller| host.ask(caller, WatchAsk::Mood { tenant: "ada".into() });
    let Ok(Answer::Mood(told)) = mood(&mut host, user(1000, "ada")) else { panic!("it is hers") };
    assert!((told.weight - weight).abs() < 1e-3 && told.mood < 0.0, "{told:?}");
    let refused = mood(&mut host, user(1001, "eve"));
    assert!(matches!(refused, Err(Refusal::NotYours { .. })), "{refused:?}");
    host.watch.writer.as_ref().unwrap().flush();
    let seen = |caller: Caller| {
        let query = SeriesQuery { metric: Some(Metric::Feedback), ..SeriesQuery::default() };
        let dir = parent.path().join(DIR);
        berth_store::series::read(&dir, &query, &|key| key.is_visible_to(&caller)).unwrap().lines.len()
    };
    assert_eq!((seen(user(1000, "ada")), seen(user(1001, "eve")), seen(user(0, "root"))), (1, 0, 1));
}

#[test]
fn one_who_says_it_without_end_is_told_to_wait_and_fills_no_store() {
    let parent = tempfile::tempdir().unwrap();
    let settings = settings::History { dir: parent.path().to_owned(), ..settings::History::default() };
    let mut host = host(Watch::open(&settings, Path::new("/proc")));
    let say = |host: &mut Host, caller, tenant: &str| {
        host.ask(caller, WatchAsk::Feedback { tenant: tenant.into(), said: Feedback::Slow })
    };
    let said = (0..1_000).map(|_| u64::from(say(&mut host, user(1000, "ada"), "ada").is_ok())).sum::<u64>();
    let refused = say(&mut host, user(1000, "ada"), "ada");
    assert!(said <= 30 && matches!(refused, Err(Refusal::SaidTooOften { .. })), "{said}: {refused:?}");
    say(&mut host, user(1001, "eve"), "eve").unwrap();
    say(&mut host, user(0, "root"), "ada").unwrap();
    host.watch.writer.as_ref().unwrap().flush();
    let query = SeriesQuery { metric: Some(Metric::Feedback), ..SeriesQuery::default() };
    let told = berth_store::series::read(&parent.path().join(DIR), &query, &|_| true).unwrap();
    assert_eq!(told.lines.iter().flat_map(|line| &line.values).map(|value| value.count).sum::<u64>(), said + 2);
}

/// `ada` as the level of kernels shows it: so long it had work, and for so long of that it might not run.
fn kernels_of(uid: u32, wanted_seconds: f64, stopped_seconds: f64) -> KernelRow {
    let row = row(uid, "of kernels");
    KernelRow {
        tenant: row.tenant,
        name: row.container_name,
        gpu_index: Some(GPU),
        gpu_uuid: row.gpu_uuid.unwrap(),
        clients: 1,
        role: KernelRole::Equal,
        yields_to: vec![],
        is_busy: true,
        is_stopped: false,
        reason: None,
        chosen: None,
        urged_by: vec![],
        slo: berth_model::Slo::default(),
        unread_labels: vec![],
        attainment: None,
        lead_lost_until: None,
        served_seconds: wanted_seconds - stopped_seconds,
        wanted_seconds,
        stopped_seconds,
        kernel_kinds: 1,
        kernel_seconds: None,
        kernel_spread: None,
        longest_kernel_seconds: None,
        prediction_error: None,
        prediction_off: None,
        sm_share: None,
        confined_to_sms: None,
        slowed_by: vec![],
        memory: Default::default(),
        bandwidth_share: Some(0.25),
        requests: RequestFigures::default(),
        counters: KernelCounters::default(),
    }
}

#[test]
fn whose_kernels_are_not_let_run_starves_also_where_nobody_holds_it_and_by_turns_nobody_does() {
    let kinds = |stopped: f64| {
        let mut host = host(Watch::default());
        host.seconds(300, |snapshot, second| {
            let second = f64::from(u32::try_from(second).unwrap());
            with_kernels(snapshot);
            // The row of the task says nothing: the driver tells nobody apart.
            snapshot.tasks.iter_mut().for_each(|task| task.state = TaskState::Computing);
            let level = snapshot.kernels.as_mut().unwrap();
            level.rows = vec![kernels_of(1000, second, 0.5 * second), kernels_of(1001, second, stopped * second)];
        });
        host.findings(user(0, "root"))
    };
    assert_eq!(kinds(0.5), [], "they have turns");
    let told = kinds(0.98);
    let [found] = &told[..] else { panic!("{told:?}") };
    assert!(found.kind == Kind::Starvation && found.words.contains("its kernels"), "{found:?}");
}

#[test]
fn estimates_of_kernels_that_stay_off_are_told_once_something_was_measured_and_it_is_reckoned_with() {
    let play = |samples: u64| {
        let mut host = host(Watch::default());
        host.seconds(400, |snapshot, second| {
            with_kernels(snapshot);
            let off = if second < 200 { 0.01 * f64::from(u32::try_from(second % 5).unwrap()) } else { 0.7 };
            let counters = KernelCounters { samples: samples * second, ..KernelCounters::default() };
            let row = KernelRow { prediction_off: Some(off), counters, ..kernels_of(1000, 0.0, 0.0) };
            snapshot.kernels.as_mut().unwrap().rows = vec![row];
        });
        let ada = TenantKey::User { uid: 1000 };
        (host.findings(user(0, "root")), host.watch.noticed(&ada, host.now.mono).is_misjudged)
    };
    assert_eq!(play(0), (vec![], false), "the same figure over and over says nothing new");
    let (told, is_misjudged) = play(1);
    let [found] = &told[..] else { panic!("{told:?}") };
    assert!(found.kind == Kind::PredictorError && found.words.contains("kernels") && is_misjudged, "{found:?}");
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
