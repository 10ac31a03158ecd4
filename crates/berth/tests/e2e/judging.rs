//! Deadlines of real containers: which one counts, what became of each unit of work, and that no end of a daemon changes it.

use berth_load::Phase;
use berth_model::deadline::{Origin, Unit, Verdict};
use berth_model::settings::{Mode, PolicyName};
use berth_model::snapshot::DeadlineRow;
use berth_model::{Change, Settings, TaskRow};
use jiff::Timestamp;
use serde_json::Value;

use crate::support::held::stage;
use crate::support::{Container, Daemon, Engine, Host, until};

/// Computes for some ten seconds.
const LONG: [&str; 2] = ["--size", "30000"];

fn watching(host: &Host, engine: &Engine, change: impl FnOnce(&mut Settings)) -> Daemon {
    host.daemon_with("berth", |settings| {
        settings.docker.mode = Mode::Required;
        settings.docker.socket = engine.socket();
        change(settings);
    })
}

/// Its row once the engine has told what it is labelled with, and its unit is under way.
fn at_work(daemon: &Daemon, container: &Container) -> (TaskRow, DeadlineRow) {
    let row =
        daemon.row_where(&container.key(), |row| row.deadline.as_ref().is_some_and(|deadline| deadline.work.is_some()));
    let deadline = row.deadline.clone().unwrap();
    (row, deadline)
}

/// What is on record of its units, newest first.
fn judged(daemon: &Daemon, container: &Container) -> Vec<Value> {
    let told = daemon.berth(&["history", "--json", &container.id]).ok();
    let records: Vec<Value> = serde_json::from_str(&told).unwrap();
    records.into_iter().filter(|record| record["what"] == "judged").collect()
}

fn first_judged(daemon: &Daemon, container: &Container) -> Value {
    until("a unit on record", || judged(daemon, container).into_iter().next())
}

#[test]
fn a_task_is_judged_by_its_label_and_by_what_stock_docker_makes_of_the_flag() {
    let Some(engine) = Engine::for_test("a_task_is_judged_by_its_label") else { return };
    let host = Host::start();
    let daemon = watching(&host, &engine, |_| {});
    for (options, origin, hit) in [
        (&["--label", "berth.deadline=2m"][..], Origin::Label, true),
        (&["-dl", "120"], Origin::StockLabel, true),
        (&["-dl", "1ms"], Origin::StockLabel, false),
    ] {
        let container = engine.run(&host, "judged", options, &["--size", "15000"]);
        let (_, row) = at_work(&daemon, &container);
        assert_eq!((row.origin, row.unit), (origin, Unit::Task));
        let record = first_judged(&daemon, &container);
        assert_eq!((&record["deadline_hit"], &record["unit"]), (&hit.into(), &"task".into()), "{record}");
        let (float, seconds) = (record["float_seconds"].as_f64().unwrap(), record["seconds"].as_f64().unwrap());
        assert!((float + seconds - row.deadline.seconds()).abs() < 0.01, "{record}");
        assert_eq!(record["why"]["cause"].is_null(), hit, "{record}");
    }
}

#[test]
fn a_server_is_judged_by_each_burst_and_does_not_miss_for_ever() {
    let Some(engine) = Engine::for_test("a_server_is_judged_by_each_burst") else { return };
    let Some((host, daemon)) = stage("a_server_is_judged_by_each_burst", &engine, |_| {}) else { return };
    let serve = ["light", "--size", "3000", "--period", "3s"];
    let server = engine.run(&host, "server", &["--label", "berth.deadline=2"], &serve);
    let row = daemon.row_where(&server.key(), |row| {
        row.deadline.as_ref().is_some_and(|deadline| deadline.tally.hits + deadline.tally.misses >= 3)
    });
    assert!(row.task_seconds.unwrap() > 2.0, "as a task it would be late by now");
    let deadline = row.deadline.unwrap();
    assert_eq!((deadline.unit, deadline.tally.misses), (Unit::Burst, 0), "{deadline:?}");
    let record = first_judged(&daemon, &server);
    assert_eq!((&record["unit"], &record["deadline_hit"]), (&"burst".into(), &true.into()), "{record}");
}

/// One process of it has a context and never computes, another has computed long ago.
#[test]
fn a_burst_is_over_when_the_last_process_that_computed_is_done() {
    let test = "a_burst_is_over_when_the_last_process_that_computed_is_done";
    let Some(engine) = Engine::for_test(test) else { return };
    let Some((host, daemon)) = stage(test, &engine, |_| {}) else { return };
    let script =
        "/berth load hold & /berth load --size 3000 --idle 10m & exec /berth load light --size 3000 --period 3s";
    let server = engine.run_shell(&host, "several", &["--label", "berth.deadline=2"], script);
    let row = daemon.row_where(&server.key(), |row| {
        row.deadline.as_ref().is_some_and(|deadline| deadline.tally.hits + deadline.tally.misses >= 3)
    });
    assert_eq!(row.pids.len(), 3, "{row:?}");
    assert_eq!(row.deadline.unwrap().unit, Unit::Burst);
    let newest = first_judged(&daemon, &server);
    let (took, computed) = (newest["seconds"].as_f64().unwrap(), newest["active_seconds"].as_f64().unwrap());
    assert!(took > 0.0 && computed <= took, "{newest}");
}

#[test]
fn several_processes_of_a_container_are_one_unit() {
    let Some(engine) = Engine::for_test("several_processes_of_a_container_are_one_unit") else { return };
    let host = Host::start();
    let daemon = watching(&host, &engine, |_| {});
    let script = "/berth load --size 12000 & /berth load --size 12000 --repeats 2; wait";
    let container = engine.run_shell(&host, "several", &["--label", "berth.deadline=90s"], script);
    daemon.row_where(&container.key(), |row| row.pids.len() == 2);
    let record = first_judged(&daemon, &container);
    assert_eq!(record["deadline_hit"], true, "{record}");
    assert_eq!(judged(&daemon, &container).len(), 1);
}

#[test]
fn a_task_that_goes_on_is_judged_from_its_start_by_a_daemon_that_came_later() {
    let Some(engine) = Engine::for_test("a_task_that_goes_on_is_judged_from_its_start") else { return };
    let host = Host::start();
    for is_killed in [true, false] {
        let mut daemon = watching(&host, &engine, |_| {});
        let container = engine.run(&host, "goes-on", &["--label", "berth.deadline=2m"], &LONG);
        container.reaches(Phase::Kernel);
        let (_, before) = at_work(&daemon, &container);
        until("the unit on record", || {
            let open = std::fs::read_to_string(daemon.settings.history.dir.join("open.v1.jsonl")).ok()?;
            open.contains("\"deadline\":\"2m\"").then_some(())
        });
        if is_killed {
            daemon.kill()
        } else {
            assert_eq!(daemon.stop(), 0)
        };
        let daemon = watching(&host, &engine, |_| {});
        let (_, after) = at_work(&daemon, &container);
        let starts = [before, after].map(|row| row.work.unwrap().started_at);
        assert!(seconds_between(starts[0], starts[1]) < 0.1, "{starts:?}, killed: {is_killed}");
        let record = first_judged(&daemon, &container);
        assert_eq!(record["deadline_hit"], true, "{record}");
        assert!(record["seconds"].as_f64().unwrap() > 8.0, "with what it did before: {record}");
    }
}

#[test]
fn of_a_task_that_ended_while_no_daemon_was_there_it_is_said_that_nobody_knows() {
    let Some(engine) = Engine::for_test("of_a_task_that_ended_while_no_daemon_was_there") else { return };
    let host = Host::start();
    let mut daemon = watching(&host, &engine, |_| {});
    let container = engine.run(&host, "ends", &["--label", "berth.deadline=1"], &LONG);
    at_work(&daemon, &container);
    until("the unit on record", || {
        let open = std::fs::read_to_string(daemon.settings.history.dir.join("open.v1.jsonl")).ok()?;
        open.contains("\"deadline\":\"1s\"").then_some(())
    });
    daemon.kill();
    container.docker(&["kill"]).ok();
    let daemon = watching(&host, &engine, |_| {});
    let record = first_judged(&daemon, &container);
    assert!(record["deadline_hit"].is_null() && record["float_seconds"].is_null(), "{record}");
    assert_eq!(record["deadline"], "1s");
}

#[test]
fn it_is_said_before_and_after_that_a_container_is_late_because_it_waits_for_another() {
    let test = "it_is_said_before_and_after_that_a_container_is_late";
    let Some(engine) = Engine::for_test(test) else { return };
    let fifo = |settings: &mut Settings| settings.hold.policy = PolicyName::Fifo;
    let Some((host, daemon)) = stage(test, &engine, fifo) else { return };
    let first = engine.run(&host, "first", &[], &LONG);
    first.reaches(Phase::Kernel);
    let events = daemon.events();
    // Too long to compute beside the first, and in time if it need not wait.
    let late = engine.run(&host, "late", &["--label", "berth.deadline=7s"], &["--size", "22000"]);
    let key = late.key();
    let (warned, due) = events.wait_for("the warning", |change| match change {
        Change::DeadlineEndangered { tenant, at, due, .. } if *tenant == key => Some((*at, *due)),
        _ => None,
    });
    assert!(warned < due, "before it is late");
    let verdict = events.wait_for("the verdict", |change| match change {
        Change::UnitJudged { tenant, verdict, .. } if *tenant == key => Some(*verdict),
        _ => None,
    });
    assert_eq!(verdict, Verdict::Miss);
    let record = first_judged(&daemon, &late);
    assert_eq!(
        (&record["why"]["cause"], &record["why"]["behind"]),
        (&"held".into(), &first.name.as_str().into()),
        "{record}"
    );
    assert!(record["held_seconds"].as_f64().unwrap() > 1.0, "{record}");
}

fn seconds_between(one: Timestamp, other: Timestamp) -> f64 {
    one.duration_since(other).as_secs_f64().abs()
}
