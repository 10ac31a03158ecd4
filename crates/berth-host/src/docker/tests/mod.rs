//! Against a small engine of our own, which can fail on demand, and against a real one where there is one.

pub(crate) mod engine;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use berth_model::{Source, SourceStatus};

use super::*;
use crate::testing::{PATIENCE, eventually, skip_unprepared};
use engine::{FakeEngine, PauseAnswer};

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn id(text: &str) -> ContainerId {
    ContainerId(text.into())
}

// === what is told ===

struct Told(Receiver<Event>);

impl Told {
    fn next(&self) -> Event {
        self.0.recv_timeout(PATIENCE).expect("an event in time")
    }

    fn name(&self) -> (String, Option<String>) {
        match self.next() {
            Event::Container(facts) => (facts.name, facts.owner),
            other => panic!("no description: {other:?}"),
        }
    }

    fn up(&self) {
        assert_eq!(self.next(), Event::Source { source: Source::Docker, status: SourceStatus::Up });
    }

    fn down(&self) -> String {
        match self.next() {
            Event::Source { source: Source::Docker, status: SourceStatus::Down { reason } } => reason,
            other => panic!("not down: {other:?}"),
        }
    }

    fn paused(&self) -> (ContainerId, bool) {
        match self.next() {
            Event::Paused { id, paused, .. } => (id, paused),
            other => panic!("no pause: {other:?}"),
        }
    }

    fn stirred(&self) {
        let event = self.next();
        assert!(matches!(event, Event::Stirred { source: Source::Docker, .. }), "{event:?}");
    }
}

fn source(socket: &Path) -> (DockerSource, Told) {
    let (event_tx, event_rx) = channel();
    (DockerSource::start(socket, event_tx).unwrap(), Told(event_rx))
}

fn connected(engine: &FakeEngine) -> (DockerSource, Told) {
    let (docker, told) = source(&engine.socket);
    told.up();
    eventually("the event stream is open", || engine.listeners() == 1);
    (docker, told)
}

// === claims ===

#[test]
fn a_container_is_described_when_asked_about() {
    let engine = FakeEngine::start();
    engine.change(|state| state.containers.insert(A.into(), "trainer".into()));
    let (docker, told) = connected(&engine);
    assert!(docker.describe(id(A)));
    assert_eq!(told.name(), ("trainer".into(), Some("ann".into())));
}

#[test]
fn a_container_asked_about_by_name_is_known_by_its_id() {
    let engine = FakeEngine::start();
    engine.change(|state| state.containers.insert(A.into(), "trainer".into()));
    let (docker, told) = connected(&engine);
    assert!(docker.describe(id("trainer")));
    let Event::Container(facts) = told.next() else { panic!("not described") };
    assert_eq!((facts.id, facts.name.as_str()), (id(A), "trainer"));
    engine.remove(A);
    assert_eq!(told.next(), Event::ContainerGone { id: id(A) }, "its end is told, though nobody asked by its id");
    assert!(docker.describe(id("trainer")));
    assert_eq!(told.next(), Event::ContainerGone { id: id("trainer") }, "there is none by that name");
}

#[test]
fn nothing_is_asked_about_containers_nobody_named() {
    let engine = FakeEngine::start();
    engine.change(|state| state.containers.insert(A.into(), "other".into()));
    let (docker, told) = connected(&engine);
    engine.rename(A, "renamed");
    engine.remove(A);
    assert!(docker.describe(id(B)));
    assert_eq!(told.next(), Event::ContainerGone { id: id(B) }, "and nothing told of the other before");
    let asked = engine.change(|state| state.requests.iter().filter(|path| path.contains("/containers/")).count());
    assert_eq!(asked, 1);
}

#[test]
fn a_container_that_is_removed_is_told_gone_whoever_notices_first() {
    let engine = FakeEngine::start();
    let (docker, told) = connected(&engine);
    engine.run(A, "short");
    told.stirred();
    assert_eq!(told.name().0, "short");
    engine.remove(A);
    assert_eq!(told.next(), Event::ContainerGone { id: id(A) });
    assert!(docker.describe(id(A)), "asked about in mid-sample, gone by then");
    assert_eq!(told.next(), Event::ContainerGone { id: id(A) });
}

#[test]
fn a_rename_is_followed() {
    let engine = FakeEngine::start();
    let (_docker, told) = connected(&engine);
    engine.run(A, "before");
    told.stirred();
    assert_eq!(told.name().0, "before");
    engine.rename(A, "after");
    assert_eq!(told.name().0, "after");
}

#[test]
fn what_happens_while_the_stream_is_cut_is_not_lost() {
    let engine = FakeEngine::start();
    let (_docker, told) = connected(&engine);
    engine.run(A, "before");
    told.stirred();
    assert_eq!(told.name().0, "before");
    engine.change(|state| state.refuses = Some("503 Service Unavailable"));
    engine.cut();
    assert!(told.down().contains("ended its event stream"));
    assert!(told.down().contains("not today"), "the reason changed, and is told");
    engine.rename(A, "after");
    engine.run(B, "newcomer");
    engine.change(|state| state.refuses = None);
    told.up();
    let mut names = Vec::new();
    let mut starts = 0;
    while names.len() < 2 {
        match told.next() {
            Event::Stirred { .. } => starts += 1,
            Event::Container(facts) => names.push(facts.name),
            other => panic!("{other:?}"),
        }
        names.dedup();
    }
    names.sort();
    assert_eq!((names, starts), (vec!["after".into(), "newcomer".into()], 1), "the old start is not told again");
}

#[test]
fn a_container_the_engine_fails_to_describe_is_asked_about_again() {
    let engine = FakeEngine::start();
    engine.change(|state| {
        state.containers.insert(A.into(), "slow".into());
        state.inspect_failures = 1;
    });
    let (docker, told) = connected(&engine);
    assert!(docker.describe(id(A)));
    assert_eq!(told.name().0, "slow");
}

/// The CPU time that the connection takes while a container with so many labels starts, and another after it.
fn cost_beside(labels: usize) -> Duration {
    let engine = FakeEngine::start();
    let (event_tx, event_rx) = channel();
    let (ask_tx, ask_rx) = mpsc::channel(1);
    let connection = session::Connection::new(&engine.socket, event_tx, ask_rx);
    let thread = std::thread::spawn(move || {
        runtime().unwrap().block_on(connection.keep_up());
        rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime)
    });
    let told = Told(event_rx);
    told.up();
    eventually("the event stream is open", || engine.listeners() == 1);
    engine.change(|state| state.labels.insert(A.into(), labels));
    engine.run(A, "crowded");
    engine.run(B, "other");
    let mut facts = std::collections::BTreeMap::new();
    while facts.len() < 2 {
        if let Event::Container(told) = told.next() {
            facts.insert(told.name, (told.image, told.owner, told.labels.len()));
        }
    }
    assert_eq!(facts["crowded"], ("img".into(), None, 0), "no part of its labels is taken for all of them");
    assert_eq!(facts["other"], ("img".into(), Some("ann".into()), 1));
    drop(ask_tx);
    Duration::try_from(thread.join().unwrap()).unwrap()
}

#[test]
fn a_container_with_a_million_labels_keeps_no_other_from_being_named() {
    let (fewer, million) = (cost_beside(100_000), cost_beside(1_000_000));
    assert!(million < fewer * 30, "ten times the labels take {million:?} instead of {fewer:?}");
}

#[test]
fn pauses_are_told_and_so_is_their_end() {
    let engine = FakeEngine::start();
    let (docker, told) = connected(&engine);
    engine.run(A, "trainer");
    told.stirred();
    assert_eq!(told.name().0, "trainer");
    for (action, paused) in [("pause", true), ("unpause", false), ("pause", true), ("die", false)] {
        engine.happen(action, A);
        assert_eq!(told.paused(), (id(A), paused), "{action}");
    }
    engine.happen("die", A);
    engine.happen("pause", B);
    assert!(docker.describe(id(A)));
    assert_eq!(told.name().0, "trainer", "nothing told of an end without pause, and of containers nobody named");
}

#[test]
fn a_container_paused_before_anybody_listened_is_told_paused() {
    let engine = FakeEngine::start();
    engine.change(|state| {
        state.containers.insert(A.into(), "trainer".into());
        state.paused.insert(A.into());
    });
    let (docker, told) = connected(&engine);
    assert!(docker.describe(id(A)));
    assert_eq!(told.name().0, "trainer");
    assert_eq!(told.paused(), (id(A), true));
}

#[test]
fn the_engine_s_answers_to_a_pause_are_told_apart() {
    let engine = FakeEngine::start();
    engine.change(|state| state.containers.insert(A.into(), "trainer".into()));
    let pauser = Pauser::new(&engine.socket, Duration::from_secs(10));
    assert_eq!(pauser.says_paused(&id(A)).unwrap(), Some(false));
    assert_eq!(pauser.pause(&id(A)).unwrap(), Answer::Done);
    assert_eq!(pauser.says_paused(&id(A)).unwrap(), Some(true));
    engine.change(|state| state.answers.push_back(PauseAnswer::Status("409 Conflict")));
    let refused = Answer::Refused { status: 409, message: "as the test has it".into() };
    assert_eq!(pauser.pause(&id(A)).unwrap(), refused);
    assert_eq!(pauser.unpause(&id(A)).unwrap(), Answer::Done);
    assert_eq!(pauser.unpause(&id(B)).unwrap(), Answer::NoSuchContainer);
    assert_eq!(pauser.says_paused(&id(B)).unwrap(), None);
}

#[test]
fn an_engine_that_hangs_is_given_up_and_its_late_pause_taken_back() {
    let engine = FakeEngine::start();
    engine.change(|state| {
        state.containers.insert(A.into(), "trainer".into());
        state.answers.push_back(PauseAnswer::Late(Duration::from_millis(300)));
    });
    let pauser = Pauser::new(&engine.socket, Duration::from_millis(100));
    let error = pauser.pause(&id(A)).unwrap_err();
    assert!(matches!(error, DockerError::Hung { .. }), "{error}");
    let is_asked = |verb: &str| engine.change(|state| state.requests.iter().any(|path| path.ends_with(verb)));
    eventually("the pause is taken back", || is_asked("/unpause"));
    eventually("it is not paused", || !engine.change(|state| state.paused.contains(A)));
}

#[test]
fn an_engine_that_starts_later_is_found_and_answers_what_was_asked_before() {
    let engine = FakeEngine::start();
    fs::remove_file(&engine.socket).unwrap();
    engine.change(|state| state.containers.insert(A.into(), "early".into()));
    let (docker, told) = source(&engine.socket);
    let reason = told.down();
    assert!(reason.contains("no Docker socket at") && reason.contains("docker.socket"), "{reason}");
    assert!(docker.describe(id(A)));
    engine.listen();
    told.up();
    assert_eq!(told.name().0, "early");
}

#[test]
fn a_socket_nobody_listens_on_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("docker.sock");
    drop(UnixListener::bind(&socket).unwrap());
    assert!(matches!(available(&socket), Err(DockerError::NobodyListens { .. })));
    let (_docker, told) = source(&socket);
    assert!(told.down().contains("nobody listens on"));
}

#[test]
fn an_engine_that_answers_tells_its_version() {
    let engine = FakeEngine::start();
    assert_eq!(available(&engine.socket).unwrap(), Engine { version: Some("20.10.24".into()) });
    engine.change(|state| state.refuses = Some("403 Forbidden"));
    let error = available(&engine.socket).unwrap_err();
    assert!(matches!(error, DockerError::Api { .. }) && error.to_string().contains("403"), "{error}");
}

/// Root may connect to anything, so the question is put by a child that gave up that privilege.
#[test]
fn a_socket_without_permission_is_told_as_such() {
    const TEST: &str = "a_socket_without_permission_is_told_as_such";
    if let Some(socket) = std::env::var_os("BERTH_TEST_DOCKER_CHILD") {
        let socket = PathBuf::from(socket);
        assert!(matches!(available(&socket), Err(DockerError::NoPermission { .. })));
        let (_docker, told) = source(&socket);
        let reason = told.down();
        assert!(reason.contains("not permitted") && reason.contains("as root"), "{reason}");
        return;
    }
    let engine = FakeEngine::start();
    fs::set_permissions(&engine.socket, fs::Permissions::from_mode(0o000)).unwrap();
    let mut child = Command::new("setpriv");
    if rustix::process::geteuid().is_root() {
        child.arg("--bounding-set=-dac_override,-dac_read_search");
    }
    let status = child
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &format!("docker::tests::{TEST}"), "--nocapture"])
        .env("BERTH_TEST_DOCKER_CHILD", &engine.socket)
        .status()
        .unwrap();
    assert!(status.success());
}

// === a real engine ===

struct RealContainer {
    host: String,
    name: String,
}

impl RealContainer {
    fn docker(&self, args: &[&str]) -> String {
        let output = Command::new("docker").args(["-H", &self.host]).args(args).output().unwrap();
        assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }
}

impl Drop for RealContainer {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["-H", &self.host, "rm", "-f", &self.name]).output();
    }
}

#[test]
fn a_real_engine_s_container_is_followed_through_its_life() {
    const TEST: &str = "a_real_engine_s_container_is_followed_through_its_life";
    let (Ok(host), Ok(image)) = (std::env::var("BERTH_TEST_DOCKER"), std::env::var("BERTH_TEST_IMAGE")) else {
        return skip_unprepared(
            TEST,
            "BERTH_TEST_DOCKER and BERTH_TEST_IMAGE name no engine and image (make test sets them)",
        );
    };
    let socket = PathBuf::from(host.strip_prefix("unix://").expect("a unix:// address"));
    assert!(available(&socket).unwrap().version.is_some());
    let (docker, told) = source(&socket);
    told.up();
    let pid = std::process::id();
    let container = RealContainer { host, name: format!("berth-host-test-{pid}") };
    let run = ["run", "-d", "--network", "none", "--label", "berth.owner=ann", "--name", &container.name];
    let check = ["--health-cmd", "true", "--health-interval", "1500ms"];
    let created = id(&container.docker(&[&run[..], &check[..], &[&image, "sleep", "600"]].concat()));
    let facts = of(&told, &created);
    assert_eq!((facts.name.as_str(), facts.owner.as_deref()), (container.name.as_str(), Some("ann")));
    assert_eq!(facts.image, image);
    assert!(facts.started_at.is_some());
    assert_eq!(facts.health.map(|health| health.every), Some(Duration::from_millis(1_500)));

    for asked in [created.0.as_str(), &container.name, created.short()] {
        assert!(docker.describe(id(asked)));
        assert_eq!(of(&told, &created), facts, "{asked}");
    }

    let renamed = format!("{}-renamed", container.name);
    container.docker(&["rename", &container.name, &renamed]);
    assert_eq!(of(&told, &created).name, renamed);

    for (action, paused) in [("pause", true), ("unpause", false), ("pause", true), ("restart", false), ("pause", true)]
    {
        container.docker(&[action, &renamed]);
        assert_eq!(next_pause(&told, &created), paused, "{action}");
    }
    container.docker(&["rm", "-f", &renamed]);
    assert!(!next_pause(&told, &created), "removed while paused");
    while told.next() != (Event::ContainerGone { id: created.clone() }) {}
}

fn next_pause(told: &Told, id: &ContainerId) -> bool {
    loop {
        match told.next() {
            Event::Paused { id: changed, paused, .. } if changed == *id => return paused,
            _ => {}
        }
    }
}

/// Other tests may use the engine too: their containers are passed over.
fn of(told: &Told, id: &ContainerId) -> berth_model::ContainerFacts {
    loop {
        match told.next() {
            Event::Container(facts) if facts.id == *id => return *facts,
            Event::ContainerGone { id: gone } => assert_ne!(gone, *id),
            Event::Source { status, .. } => panic!("the engine went away: {status:?}"),
            _ => {}
        }
    }
}
