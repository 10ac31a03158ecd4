//! Docker containers: what the engine says about them is shown, and nothing it does in the middle of a look harms.

use std::sync::Arc;

use berth_load::Phase;
use berth_model::settings::Mode;
use berth_model::{Source, SourceStatus};

use crate::support::{Cgroup, CgroupParent, Container, Daemon, Engine, Host, Proxy, until};

fn watching(host: &Host, socket: std::path::PathBuf) -> Daemon {
    host.daemon_with("berth", |settings| {
        settings.docker.mode = Mode::Auto;
        settings.docker.socket = socket;
    })
}

fn holder(engine: &Engine, host: &Host, name: &str) -> Container {
    engine.run(host, name, &["--label", "berth.owner=ada"], &["hold"])
}

#[test]
fn a_container_is_shown_with_what_the_engine_says_about_it_and_follows_a_rename() {
    let Some(engine) = Engine::for_test("a_container_is_shown_with_what_the_engine_says_about_it") else { return };
    let host = Host::start();
    let daemon = watching(&host, engine.socket());
    let mut container = holder(&engine, &host, "before");
    let name = container.name.clone();
    let row = daemon.row_where(&container.key(), |row| row.container_name == name && row.gpu_memory_bytes.is_some());
    assert_eq!(row.container_id.map(|id| id.0), Some(container.id.clone()));
    assert_eq!(row.owner.as_deref(), Some("ada"));
    assert_eq!(row.image.as_deref(), Some(engine.image.as_str()));
    assert_eq!(row.pids, [container.pid()], "host pids, not the container's own");

    let renamed = format!("{name}-after");
    container.rename(&renamed);
    daemon.row_where(&container.key(), |row| row.container_name == renamed);
    assert!(daemon.berth(&["ps", "--no-trunc"]).ok().contains(&format!("{renamed}  {}", container.id)));
}

/// Parents for containers that this engine takes: paths, or with systemd's cgroup driver the name of a slice.
fn parents(engine: &Engine) -> Vec<CgroupParent> {
    let driver = engine.docker(&["info", "--format", "{{.CgroupDriver}}"]).ok();
    let pid = std::process::id();
    let names = match driver.trim() {
        "systemd" => vec![format!("berthe2e{pid}.slice"), format!("berthe2e{pid}-lab.slice")],
        _ => ["", "/lab/ada", ".slice"].map(|end| format!("/berth-e2e-{pid}{end}")).to_vec(),
    };
    names.into_iter().map(CgroupParent::at).collect()
}

#[test]
fn containers_with_another_cgroup_parent_are_told_apart_by_their_names() {
    let Some(engine) = Engine::for_test("containers_with_another_cgroup_parent") else { return };
    let host = Host::start();
    let daemon = watching(&host, engine.socket());
    for parent in parents(&engine) {
        let options = ["--cgroup-parent", parent.path(), "--label", "berth.owner=ada"];
        let (one, two) = (engine.run(&host, "one", &options, &["hold"]), engine.run(&host, "two", &options, &["hold"]));
        for container in [&one, &two] {
            let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", container.pid())).unwrap();
            let is_there = |line: &str| line.contains(parent.path()) && line.contains(&container.id);
            assert!(cgroups.lines().any(is_there), "it is not below {parent:?}: {cgroups}");
            let row = daemon.row_where(&container.key(), |row| row.container_name == container.name);
            assert_eq!((row.pids, row.owner.as_deref()), (vec![container.pid()], Some("ada")));
        }
        assert_eq!(daemon.snapshot().tasks.len(), 2, "nobody else is there");
        let (gone, left) = (one.key(), two.key());
        one.remove();
        daemon.sees_nothing_of(&gone);
        daemon.sees(&left);
        two.remove();
        daemon.sees_nothing_of(&left);
    }
}

#[test]
fn a_process_in_the_scope_that_systemd_makes_for_a_container_is_the_containers() {
    let Some(engine) = Engine::for_test("a_process_in_the_scope_that_systemd_makes_for_a_container") else { return };
    let host = Host::start();
    let daemon = watching(&host, engine.socket());
    // The engine's systemd driver needs systemd on the machine; what it would make is made by hand, and put to use.
    let container = engine.run(&host, "scoped", &["--label", "berth.owner=ada"], &["hold", "--host-time", "1h"]);
    let scope = format!("/berth-e2e-{}.slice/docker-{}.scope", std::process::id(), container.id);
    let scope = Arc::new(Cgroup::at(&scope));
    let tenant = host.tenant_in(&scope, &["hold"]);
    let row = daemon.row_where(&container.key(), |row| row.container_name == container.name && row.task_id.is_some());
    assert_eq!((row.pids, row.owner.as_deref()), (vec![tenant.pid()], Some("ada")));
}

#[test]
fn a_container_removed_in_mid_task_ends_the_task_under_its_name() {
    let Some(engine) = Engine::for_test("a_container_removed_in_mid_task_ends_the_task") else { return };
    let host = Host::start();
    let daemon = watching(&host, engine.socket());
    let events = daemon.events();
    let container = holder(&engine, &host, "removed");
    let (key, name) = (container.key(), container.name.clone());
    daemon.row_where(&key, |row| row.container_name == name && row.task_id.is_some());
    container.remove();
    let tasks = events.ended(&key, 1);
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    daemon.sees_nothing_of(&key);
    let ended = &daemon.snapshot().ended[0];
    assert_eq!((&ended.container_name, ended.owner.as_deref()), (&name, Some("ada")));
}

#[test]
fn containers_that_come_and_are_removed_at_any_moment_leave_no_ghosts() {
    let Some(engine) = Engine::for_test("containers_that_come_and_are_removed_at_any_moment") else { return };
    let host = Host::start();
    let mut daemon = watching(&host, engine.socket());
    let events = daemon.events();
    // Each is removed at another moment of its life: before the driver is asked, while the context is made, after.
    let moments = [None, Some(Phase::Host), Some(Phase::Context), Some(Phase::Alloc), Some(Phase::Hold)];
    std::thread::scope(|scope| {
        for host_time in ["10ms", "100ms", "200ms"] {
            let (engine, host) = (&engine, &host);
            scope.spawn(move || {
                for moment in moments {
                    let container = engine.run(host, "brief", &[], &["hold", "--host-time", host_time]);
                    moment.inspect(|phase| container.reaches(*phase));
                    container.remove();
                }
            });
        }
    });
    until("everybody to be gone", || daemon.snapshot().tasks.is_empty().then_some(()));
    assert!(daemon.is_running() && daemon.ps().is_empty());
    let counters = daemon.snapshot().counters;
    assert_eq!(counters.tasks_started, counters.tasks_ended);
    assert!(counters.tasks_started > 0, "all were removed before they came: this test shows nothing");

    let last = holder(&engine, &host, "last");
    daemon.row_where(&last.key(), |row| row.container_name == last.name && row.gpu_memory_bytes.is_some());
    assert_eq!(events.began(&last.key(), 1).len(), 1);
}

#[test]
fn an_engine_that_goes_away_and_comes_back_costs_no_names() {
    let Some(engine) = Engine::for_test("an_engine_that_goes_away_and_comes_back_costs_no_names") else { return };
    let host = Host::start();
    let socket = host.file("docker.sock");
    let mut proxy = Proxy::start(&socket, &engine.socket());
    let daemon = watching(&host, socket.clone());
    let mut known = holder(&engine, &host, "known");
    daemon.row_where(&known.key(), |row| row.container_name == known.name && row.task_id.is_some());

    proxy.cut();
    let down = daemon.source(Source::Docker, |status| matches!(status, SourceStatus::Down { .. }));
    let SourceStatus::Down { reason } = down else { unreachable!("asked for") };
    assert!(reason.contains(socket.to_str().unwrap()), "{reason}");
    let unknown = engine.run(&host, "unknown", &["--label", "berth.owner=alan"], &["hold"]);
    let row = daemon.sees(&unknown.key());
    assert_eq!(row.container_name, unknown.id[..12], "no name is known, so the id stands for it");
    assert_eq!(daemon.sees(&known.key()).container_name, known.name, "a name that was known is kept");
    let old = known.name.clone();
    known.rename(&format!("{old}-meanwhile"));

    proxy.restore();
    daemon.source(Source::Docker, |status| *status == SourceStatus::Up);
    let row = daemon.row_where(&unknown.key(), |row| row.container_name == unknown.name);
    assert_eq!(row.owner.as_deref(), Some("alan"));
    daemon.row_where(&known.key(), |row| row.container_name == known.name);
}

/// The engine tells in order: whoever knows of a rename that came after a removal knows of the removal.
fn wait_for_word_of(daemon: &Daemon, container: &mut Container, suffix: &str) {
    let renamed = format!("{}{suffix}", container.name);
    container.rename(&renamed);
    daemon.row_where(&container.key(), |row| row.container_name == renamed);
}

#[test]
fn a_removed_container_is_forgotten_and_the_next_of_its_name_is_another_tenant() {
    let Some(engine) = Engine::for_test("a_removed_container_is_forgotten") else { return };
    let host = Host::start();
    let socket = host.file("docker.sock");
    let mut proxy = Proxy::start(&socket, &engine.socket());
    let daemon = watching(&host, socket);
    let events = daemon.events();
    let first = engine.run(&host, "first", &["--label", "berth.owner=ada"], &["hold"]);
    let (key, id, name) = (first.key(), first.id.clone(), first.name.clone());
    let row = daemon.row_where(&key, |row| row.container_name == name && row.task_id.is_some());
    assert!(proxy.was_asked_about(&id), "nobody asked for its name: this test shows nothing");
    first.remove();
    daemon.sees_nothing_of(&key);

    let mut second = engine.run(&host, "second", &["--label", "berth.owner=alan"], &["hold"]);
    second.rename(&name);
    let next = daemon.row_where(&second.key(), |row| row.container_name == name && row.task_id.is_some());
    assert_eq!((next.owner.as_deref(), row.owner.as_deref()), (Some("alan"), Some("ada")));
    assert_ne!((next.task_id, next.tenant), (row.task_id, row.tenant));
    assert_eq!(events.ended(&key, 1).len(), 1);

    // Whoever comes back to an engine asks about all that may have changed, not about those that are gone.
    wait_for_word_of(&daemon, &mut second, "-a");
    proxy.cut();
    daemon.source(Source::Docker, |status| matches!(status, SourceStatus::Down { .. }));
    proxy.restore();
    wait_for_word_of(&daemon, &mut second, "-b");
    wait_for_word_of(&daemon, &mut second, "-c");
    assert!(proxy.was_asked_about(&second.id) && !proxy.was_asked_about(&id));
}

#[test]
fn ps_without_a_daemon_asks_the_engine_for_names() {
    let Some(engine) = Engine::for_test("ps_without_a_daemon_asks_the_engine_for_names") else { return };
    let host = Host::start();
    // The watcher only tells when the container is on the GPU; the answer must not come from it.
    let watcher = host.daemon_with("watcher", |settings| settings.docker.mode = Mode::Off);
    let container = holder(&engine, &host, "asked");
    watcher.sees(&container.key());
    let socket = format!("docker.socket={}", engine.socket().display());
    let nobody = host.file("nobody.sock");
    let args = ["--socket", nobody.to_str().unwrap(), "--set", "docker.mode=auto", "--set", &socket, "ps", "--json"];
    let rows: Vec<serde_json::Value> = serde_json::from_str(&watcher.berth(&args).ok()).unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!((&rows[0]["container_name"], &rows[0]["owner"]), (&container.name.clone().into(), &"ada".into()));
}

#[test]
fn two_processes_of_one_container_are_one_task() {
    let Some(engine) = Engine::for_test("two_processes_of_one_container_are_one_task") else { return };
    let host = Host::start();
    let daemon = watching(&host, engine.socket());
    let container = holder(&engine, &host, "pair");
    let first = daemon.sees(&container.key());
    engine.docker(&["exec", "--detach", &container.id, "/berth", "load", "hold"]).ok();
    let row = daemon.row_where(&container.key(), |row| row.pids.len() == 2);
    assert_eq!(row.task_id, first.task_id);
    assert!(row.pids.contains(&container.pid()), "{row:?}");
}
