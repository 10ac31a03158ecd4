//! The loop from outside, on a host without a GPU: what it publishes, what it refuses, what it leaves. With GPUs, real
//! processes and containers it is tested end to end, in `crates/berth/tests/e2e`.

// A panic is how a test fails.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use berth_engine::{Control, Engine, Guarded, Publish, StartError, sample_once};
use berth_model::control::{Answer, Ask, Caller, PolicyView, Refusal, What};
use berth_model::settings::{EdfSettings, FifoSettings, Mode, PaperSettings, PolicyName};
use berth_model::{Change, Settings, Snapshot, Source, SourceStatus};
use berth_proto::table::{Freshness, Reader};
use tempfile::TempDir;

/// Far more than anything here takes; only a hang gets there.
const PATIENCE: Duration = Duration::from_secs(20);

type Published = (Arc<Snapshot>, Vec<Change>);

/// Nothing but the loop: no GPU, no engine, no probes.
fn settings(dir: &TempDir) -> Settings {
    let mut settings = Settings::default();
    settings.nvml.library = dir.path().join("libnvidia-ml.so.1");
    settings.table.path = dir.path().join("tasks");
    settings.hold.journal = dir.path().join("holds");
    settings.history.dir = dir.path().join("history");
    settings.hold.driver = dir.path().join("libcuda.so.1");
    settings.docker.mode = Mode::Off;
    settings.probes.mode = Mode::Off;
    settings.processes.connector = Mode::Off;
    settings
}

fn start(settings: &Settings, what: Publish) -> (Engine, Receiver<Published>) {
    let (published_tx, published_rx) = channel();
    let publish = move |snapshot: Arc<Snapshot>, changes: &[Change]| {
        // Whoever has seen enough hangs up.
        let _ = published_tx.send((snapshot, changes.to_vec()));
    };
    (Engine::start(settings, what, publish).unwrap(), published_rx)
}

fn status(snapshot: &Snapshot, source: Source) -> Option<&SourceStatus> {
    snapshot.sources.iter().find(|view| view.source == source).map(|view| &view.status)
}

fn names(status: Option<&SourceStatus>, path: &Path) -> bool {
    matches!(status, Some(SourceStatus::Down { reason }) if reason.contains(path.to_str().unwrap()))
}

#[test]
fn a_driver_that_is_not_there_is_published_with_its_reason_and_told_once() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let (engine, published_rx) = start(&settings, Publish::SnapshotsOnly);
    let mut told = 0;
    let mut last = None;
    // Long enough for the driver to be tried again.
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        let (snapshot, changes) = published_rx.recv_timeout(PATIENCE).unwrap();
        told += changes.iter().filter(|c| matches!(c, Change::SourceChanged { source: Source::Nvml, .. })).count();
        last = Some(snapshot);
    }
    let last = last.unwrap();
    assert!(names(status(&last, Source::Nvml), &settings.nvml.library), "{last:?}");
    assert_eq!(status(&last, Source::Docker), Some(&SourceStatus::Off));
    assert_eq!((told, last.tasks.len(), last.gpus.len()), (1, 0, 0));
    assert!(engine.is_running());
    engine.stop();
}

#[test]
fn a_stopped_loop_publishes_no_more_and_its_table_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let (engine, published_rx) = start(&settings, Publish::WithTable(Guarded::default()));
    published_rx.recv_timeout(PATIENCE).unwrap();
    let mut reader = Reader::open(&settings.table.path).unwrap();
    assert_eq!(reader.read().unwrap().freshness, Freshness::Live);
    engine.stop();
    while published_rx.try_recv().is_ok() {}
    assert!(published_rx.recv().is_err(), "somebody still publishes");
    assert_eq!(reader.read().unwrap().freshness, Freshness::WriterGone);
}

#[test]
fn a_loop_without_events_still_shows_that_it_is_alive() {
    let dir = tempfile::tempdir().unwrap();
    let (_engine, published_rx) = start(&settings(&dir), Publish::SnapshotsOnly);
    let taken_at = || published_rx.recv_timeout(PATIENCE).unwrap().0.taken_at;
    let first = taken_at();
    let deadline = Instant::now() + PATIENCE;
    while taken_at().duration_since(first) < jiff::SignedDuration::from_secs(3) {
        assert!(Instant::now() < deadline, "the loop has gone quiet");
    }
}

#[test]
fn a_table_in_use_is_refused_and_a_view_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let (view, _) = start(&settings, Publish::SnapshotsOnly);
    assert!(!settings.table.path.exists(), "a view wrote a table");
    let (first, published_rx) = start(&settings, Publish::WithTable(Guarded::default()));
    published_rx.recv_timeout(PATIENCE).unwrap();
    let refused = Engine::start(&settings, Publish::WithTable(Guarded::default()), |_, _| ()).unwrap_err();
    assert!(matches!(&refused, StartError::Table(error) if error.to_string().contains("tasks")), "{refused:?}");
    assert!(first.is_running() && view.is_running());
}

#[test]
fn a_table_removed_under_way_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let (_engine, published_rx) = start(&settings, Publish::WithTable(Guarded::default()));
    published_rx.recv_timeout(PATIENCE).unwrap();
    std::fs::remove_file(&settings.table.path).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let is_live = || Reader::open(&settings.table.path).is_ok_and(|mut r| r.read().is_ok_and(is_kept_up));
    while !is_live() {
        assert!(Instant::now() < deadline, "nobody made the table anew");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_kept_up(table: berth_proto::table::Table) -> bool {
    table.freshness == Freshness::Live
}

#[test]
fn what_the_settings_require_and_the_host_lacks_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&dir);
    settings.docker.mode = Mode::Required;
    settings.docker.socket = dir.path().join("docker.sock");
    let refused = Engine::start(&settings, Publish::SnapshotsOnly, |_, _| ()).unwrap_err().to_string();
    assert!(refused.contains("docker is required") && refused.contains("docker.sock"), "{refused}");
}

#[test]
fn a_proc_that_is_none_is_refused_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = settings(&dir);
    settings.processes.proc_root = dir.path().into();
    let refused = Engine::start(&settings, Publish::SnapshotsOnly, |_, _| ()).unwrap_err();
    assert!(matches!(refused, StartError::Processes(_)), "{refused:?}");
    assert!(matches!(sample_once(&settings), Err(StartError::Processes(_))));
}

fn root() -> Caller {
    Caller { uid: 0, user: None, is_admin: true }
}

/// `None`: nobody answers any more.
fn asked(control: &Control, what: What) -> Option<Result<Answer, Refusal>> {
    let (answer_tx, answer_rx) = channel();
    let reply = move |answer| answer_tx.send(answer).unwrap();
    control.ask(Ask { caller: root(), what }, Box::new(reply));
    match answer_rx.recv_timeout(PATIENCE) {
        Ok(answer) => Some(answer),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("the loop does not answer"),
    }
}

#[test]
fn a_daemon_answers_while_no_policy_decides_and_nobody_does_after_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let guarded = Guarded::default();
    guarded.set(true);
    let (engine, published_rx) = start(&settings(&dir), Publish::WithTable(guarded));
    let control = engine.control();
    let nobody = asked(&control, What::Explain { tenant: "x".into() });
    assert!(matches!(nobody, Some(Err(Refusal::NoSuchTenant { .. }))), "{nobody:?}");
    let policy = PolicyName::Fifo;
    let (fifo, edf, paper) = (FifoSettings::default(), EdfSettings::default(), PaperSettings::default());
    let view = PolicyView { policy, dry_run: false, fifo, edf, paper };
    let set = What::SetPolicy { policy, dry_run: None };
    assert_eq!(asked(&control, set), Some(Ok(Answer::Policy(Box::new(view)))));
    let deadline = Instant::now() + PATIENCE;
    while published_rx.recv_timeout(PATIENCE).unwrap().0.management.as_ref().map(|m| m.policy) != Some(policy) {
        assert!(Instant::now() < deadline, "the new policy is not shown");
    }
    engine.stop();
    assert_eq!(asked(&control, What::ReleaseAll), None);
}

#[test]
fn whoever_cannot_hold_says_why_and_a_policy_does_not_start_without_its_journal() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let (view, _) = start(&settings, Publish::SnapshotsOnly);
    assert!(matches!(asked(&view.control(), What::ReleaseAll), Some(Err(Refusal::NoHolds { .. }))));

    let (first, _) = start(&settings, Publish::WithTable(Guarded::default()));
    let mut second = settings.clone();
    second.table.path = dir.path().join("tasks-2");
    let (without, published_rx) = start(&second, Publish::WithTable(Guarded::default()));
    let Some(Err(Refusal::NoHolds { reason })) = asked(&without.control(), What::ReleaseAll) else {
        panic!("it holds")
    };
    assert!(reason.contains(settings.hold.journal.to_str().unwrap()), "{reason}");
    assert_eq!(published_rx.recv_timeout(PATIENCE).unwrap().0.management, None);
    assert!(first.is_running());

    second.table.path = dir.path().join("tasks-3");
    second.hold.policy = PolicyName::Fifo;
    let refused = Engine::start(&second, Publish::WithTable(Guarded::default()), |_, _| ()).unwrap_err();
    assert!(matches!(refused, StartError::Journal(_)), "{refused:?}");
}

#[test]
fn one_look_without_a_driver_answers_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(&dir);
    let snapshot = sample_once(&settings).unwrap();
    assert!(names(status(&snapshot, Source::Nvml), &settings.nvml.library), "{snapshot:?}");
    assert!(snapshot.tasks.is_empty() && !settings.table.path.exists());
}
