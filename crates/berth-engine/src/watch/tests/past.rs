//! What one daemon has learned and the next one knows.

use super::inside::{kernels_of, with_kernels};
use super::*;

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
