//! What is remembered: across daemons that are killed, and of the same program run before.

use std::process::Stdio;
use std::sync::Arc;

use berth_load::{Edge, Event, Line, Phase};
use berth_model::TenantKey;
use berth_model::settings::{Mode, PolicyName};
use berth_model::snapshot::HoldCounters;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::held::explained;
use crate::support::{Cgroup, Daemon, Engine, Host, Nobody, Running, run, until};

/// Computes for five seconds.
const PRODUCT: [&str; 3] = ["load", "--size", "24000"];

fn history(daemon: &Daemon, args: &[&str]) -> Vec<Value> {
    serde_json::from_str(&daemon.berth(&[&["history", "--json"], args].concat()).ok()).unwrap()
}

/// What happened, newest first.
fn kinds(records: &[Value]) -> Vec<&str> {
    records.iter().map(|record| record["what"].as_str().unwrap()).collect()
}

#[test]
fn holds_and_tasks_are_remembered_when_the_daemon_is_killed() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let mut tenant = host.holder("remembered", &[]);
    daemon.sees(&tenant.key());
    let cgroup = Arc::clone(&tenant.cgroup);
    let name = cgroup.path();
    daemon.berth(&["hold", name, "--reason", "demo at noon"]).ok();
    daemon.berth(&["release", name]).ok();
    tenant.signal(Signal::TERM);
    tenant.wait();
    daemon.sees_nothing_of(&tenant.key());
    let before = until("all of it on record", || {
        let records = history(&daemon, &[name]);
        (kinds(&records) == ["task", "released", "held"]).then_some(records)
    });
    assert_eq!(before[2]["reason"], "demo at noon");
    assert!(before[0]["held_seconds"].as_f64().unwrap() > 0.0, "{}", before[0]);
    assert_eq!(before[0]["command"].as_str().map(|command| command.contains(" load hold ")), Some(true));

    daemon.kill();
    assert_eq!(history(&daemon, &[name]), before, "its files tell the same without it");
    let mut daemon = host.daemon();
    assert_eq!(history(&daemon, &[name]), before);
    let table = daemon.berth(&["history", name, "--limit", "2"]);
    assert!(table.stdout.contains("released by root") && table.stderr.contains("--limit"), "{table:?}");
    let left = daemon.berth(&["explain", name]).ok();
    assert!(left.contains("demo at noon"), "{left}");

    // One who comes back is told what was done to it before.
    let back = host.tenant_in(&cgroup, &["hold"]);
    daemon.sees(&back.key());
    let past = explained(&daemon, name)["history"].clone();
    assert_eq!((&past[0]["reason"], &past[0]["released"]["by_uid"]), (&"demo at noon".into(), &0.into()), "{past}");

    // Killed while it holds: the next one knows that nobody is held any more, and that nobody wrote why.
    daemon.berth(&["hold", name, "--reason", "until the end"]).ok();
    until("the hold on record", || (history(&daemon, &[name])[0]["reason"] == "until the end").then_some(()));
    daemon.kill();
    let daemon = host.daemon();
    let last = until("the end of the hold on record", || {
        let newest = history(&daemon, &[name]).into_iter().next()?;
        (newest["what"] == "released").then_some(newest)
    });
    assert!(last["reason"].as_str().unwrap().contains("ended"), "{last}");
}

/// The same program with the same arguments each time: where it writes is no argument.
fn runs(host: &Host, cgroup: &Cgroup, load: &[&str], lines: &str) -> Running {
    let mut command = cgroup.command(crate::support::BERTH);
    command.args(load).args(["--library", &host.library("libcuda.so.1")]).stdin(Stdio::null());
    let lines = std::fs::File::create(host.file(lines)).unwrap();
    Running::start(command.stdout(lines).stderr(Stdio::null()))
}

/// By its own account.
fn kernel_seconds(host: &Host, lines: &str) -> f64 {
    let text = std::fs::read_to_string(host.file(lines)).unwrap();
    let lines: Vec<Line> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let time_of = |wanted: Edge| {
        let is_it =
            |line: &&Line| matches!(&line.event, Event::Phase { phase: Phase::Kernel, edge, .. } if *edge == wanted);
        lines.iter().find(is_it).unwrap().at.mono_ns
    };
    std::time::Duration::from_nanos(time_of(Edge::End) - time_of(Edge::Begin)).as_secs_f64()
}

#[test]
fn the_same_program_is_known_when_it_is_run_again() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let cgroup = Cgroup::make("again");
    let key: TenantKey = cgroup.key();
    let mut first = runs(&host, &cgroup, &PRODUCT, "first.jsonl");
    daemon.sees(&key);
    assert!(explained(&daemon, cgroup.path())["before"].is_null(), "nobody knows it yet");
    assert_eq!(first.wait(), 0);
    let told = until("the task on record", || history(&daemon, &[cgroup.path()]).into_iter().next());
    assert_eq!(told["what"], "task", "{told}");
    daemon.kill();

    let daemon = host.daemon();
    let mut second = runs(&host, &cgroup, &PRODUCT, "second.jsonl");
    daemon.sees(&key);
    let before = explained(&daemon, cgroup.path())["before"].clone();
    let (active, kernel) = (before["active_seconds"].as_f64().unwrap(), kernel_seconds(&host, "first.jsonl"));
    assert!((active - kernel).abs() < kernel * 0.25, "it computed for {kernel} s: {before}");
    assert_eq!((&before["tasks"], &before["peak_memory_bytes"]), (&1.into(), &told["peak_memory_bytes"]), "{before}");
    let duty = before["duty"].as_f64().unwrap();
    assert!(duty > 0.1 && duty <= 1.0, "{before}");
    second.kill();
}

/// Each computes for a tenth of the time, and for more than a second in all: to hold one of them cannot pay. Far from the share
/// from which it would count as heavy, because a busy machine makes bursts look longer.
#[test]
fn light_tenants_that_were_seen_before_are_not_held() {
    const LIGHT: [&str; 8] = ["load", "light", "--size", "5000", "--period", "500ms", "--repeats", "24"];
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| settings.hold.policy = PolicyName::Fifo);
    // Beside another it is watched call by call; alone it is known by the driver's averages, which are coarse.
    let _neighbour = host.holder("neighbour", &[]);
    let first = Cgroup::make("light-first");
    assert_eq!(runs(&host, &first, &LIGHT, "first.jsonl").wait(), 0);
    until("the task on record", || history(&daemon, &[first.path()]).into_iter().next());
    let groups: Vec<Cgroup> = (0..4).map(|number| Cgroup::make(&format!("light-{number}"))).collect();
    let mut tenants: Vec<Running> = groups.iter().map(|group| runs(&host, group, &LIGHT, "lines.jsonl")).collect();
    let before = daemon.row_where(&groups[3].key(), |row| row.task_id.is_some());
    let known = explained(&daemon, &before.container_name)["before"].clone();
    assert!((0.03..0.2).contains(&known["duty"].as_f64().unwrap()), "{known}");
    assert!(tenants.iter_mut().all(|tenant| tenant.wait() == 0));
    let management = daemon.snapshot().management.unwrap();
    assert_eq!(management.holds, HoldCounters::default(), "nobody was held: {:?}", history(&daemon, &[]));
}

#[test]
fn a_container_is_known_by_its_image_and_command_whatever_its_name() {
    let test = "a_container_is_known_by_its_image_and_command_whatever_its_name";
    let Some(engine) = Engine::for_test(test) else { return };
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| {
        (settings.docker.mode, settings.docker.socket) = (Mode::Required, engine.socket());
    });
    let first = engine.run(&host, "one", &[], &["hold"]);
    daemon.row_where(&first.key(), |row| {
        row.container_name == first.name && row.task_id.is_some() && row.gpu_memory_bytes.is_some()
    });
    first.docker(&["kill"]).ok();
    let told = until("the task on record", || history(&daemon, &[&engine.image]).into_iter().next());
    let says = |key: &str| told[key].as_str().unwrap_or_default();
    assert_eq!(
        (says("what"), says("name"), says("command"), says("end")),
        ("task", &*first.name, "/berth load hold", "exited")
    );

    let second = engine.run(&host, "two", &[], &["hold"]);
    daemon.row_where(&second.key(), |row| row.container_name == second.name && row.task_id.is_some());
    let before = explained(&daemon, &second.name)["before"].clone();
    assert_eq!((&before["tasks"], &before["peak_memory_bytes"]), (&1.into(), &told["peak_memory_bytes"]), "{before}");
    let other = engine.run(&host, "three", &[], &["hold", "--alloc-bytes", "64MiB"]);
    daemon.row_where(&other.key(), |row| row.container_name == other.name && row.task_id.is_some());
    assert!(explained(&daemon, &other.name)["before"].is_null(), "with other arguments it may do anything else");
}

#[test]
fn a_daemon_that_cannot_remember_watches_all_the_same_and_says_why() {
    let host = Host::start();
    std::fs::write(host.file("in-the-way"), "").unwrap();
    let daemon = host.daemon_with("berth", |settings| settings.history.dir = host.file("in-the-way/history"));
    let tenant = host.holder("unwritten", &[]);
    daemon.sees(&tenant.key());
    let told = daemon.berth(&["history"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("in-the-way"), "{told:?}");
    let log = std::fs::read_to_string(host.file("berth.log")).unwrap();
    assert!(log.contains("will not be remembered") && log.contains("in-the-way"), "{log}");
}

#[test]
fn whoever_may_ask_the_daemon_may_read_and_its_files_are_for_nobody_else() {
    let host = Host::start();
    let nobody = Nobody::on(&host);
    let mut daemon = host.daemon_with("berth", |settings| settings.api.socket_mode = "0666".into());
    let tenant = host.holder("told", &[]);
    daemon.sees(&tenant.key());
    daemon.berth(&["hold", tenant.cgroup.path(), "--reason", "demo at noon"]).ok();
    let (socket, dir) = (daemon.settings.api.socket.display(), daemon.settings.history.dir.display());
    let set = ["--socket", &socket.to_string(), "--set", &format!("history.dir={dir}"), "history"];
    let told = until("the hold on record", || {
        let told = run(&mut nobody.berth(&set)).ok();
        told.contains("demo at noon").then_some(told)
    });
    assert!(told.contains("held (freeze) by root"), "{told}");
    assert_eq!(daemon.stop(), 0);
    let refused = run(&mut nobody.berth(&set));
    assert_eq!((refused.code, refused.stdout.as_str()), (1, ""), "{refused:?}");
    assert!(
        refused.stderr.contains("only its user may read") && refused.stderr.contains("Permission denied"),
        "{refused:?}"
    );
}

#[test]
fn a_task_that_ends_while_no_daemon_runs_is_remembered_as_lost_sight_of_and_only_once() {
    let host = Host::start();
    for is_killed in [true, false] {
        let mut daemon = host.daemon();
        let mut tenant = host.holder("unseen", &[]);
        daemon.sees(&tenant.key());
        let name = tenant.cgroup.path().to_owned();
        until("it to be on record as under way", || {
            let open = std::fs::read_to_string(daemon.settings.history.dir.join("open.v1.jsonl")).ok()?;
            open.contains(&name).then_some(())
        });
        assert_eq!(history(&daemon, &[&name]), Vec::<Value>::new(), "what is under way is not history yet");
        if is_killed {
            daemon.kill()
        } else {
            assert_eq!(daemon.stop(), 0)
        }
        tenant.kill();
        for _ in 0..2 {
            let mut daemon = host.daemon();
            let told = until("it on record", || Some(history(&daemon, &[&name])).filter(|told| !told.is_empty()));
            assert_eq!((kinds(&told), &told[0]["end"]), (vec!["task"], &Value::Null), "{told:?}");
            assert!(told[0]["seconds"].as_f64().unwrap() >= 0.0, "{told:?}");
            let text = daemon.berth(&["history", &name]).ok();
            assert!(text.contains("task lost sight of"), "{text}");
            assert_eq!(daemon.stop(), 0);
        }
    }
}
