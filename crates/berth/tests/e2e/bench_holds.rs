//! `berth bench hold` and `berth bench live`: real processes held by real means, and what is told of them.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{BERTH, Engine, Host, Nobody, Staged, run, until_within};

/// A measurement is many holds, each of which takes its time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
const HOLD: &str = "berth-hold";
const LIVE: &str = "berth-live";

/// Runs to its end, and leaves nothing.
fn measured(stage: &'static str, args: &[&str]) -> Value {
    let host = Host::bare();
    let mut bench = Staged::start(&host, "bench", stage, args);
    until_within(PATIENCE, "the end of a measurement", || (!bench.process.is_running()).then_some(()));
    assert_eq!(bench.process.wait(), 0, "{}", told(&host));
    bench.leaves_nothing();
    assert_eq!(kept(bench.process.pid()), Vec::<String>::new(), "something is left");
    serde_json::from_str(&bench.printed()).unwrap()
}

/// What a measurement with this pid has in the v1 freezer, on a host that has both hierarchies, and in memory.
fn kept(pid: u32) -> Vec<String> {
    let entries = |dir: &str| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = ["/sys/fs/cgroup/freezer", "/dev/shm"].into_iter().flat_map(entries);
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| [HOLD, LIVE].iter().any(|stage| name.starts_with(&format!("{stage}-{pid}-")))).collect()
}

/// What it said on the way.
fn told(host: &Host) -> String {
    std::fs::read_to_string(host.file("bench.log")).unwrap_or_default()
}

fn rows<'a>(report: &'a Value, means: &str) -> Vec<&'a Value> {
    let all = report["rows"].as_array().unwrap();
    all.iter().filter(|row| row["means"].as_str().unwrap().starts_with(means)).collect()
}

fn p50_ms(row: &Value) -> f64 {
    row["times_ms"]["p50"].as_f64().unwrap_or_else(|| panic!("not measured: {row}"))
}

#[test]
fn every_freezer_of_this_host_and_the_lock_are_measured_beside_their_limits() {
    let report = measured(
        HOLD,
        &["bench", "hold", "--ground", "cgroup", "--part", "cgroup", "--part", "lock", "--turns", "5", "--json"],
    );
    assert_eq!(rows(&report, "cgroup").len(), if has_both_hierarchies() { 4 } else { 2 }, "{report:#}");
    for row in rows(&report, "cgroup").into_iter().chain(rows(&report, "lock, idle")) {
        assert!(p50_ms(row) > 0.0 && row["bare"]["times_ms"]["p50"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["goal"]["at_most_ms"], 1.0, "{row}");
    }
    // The simulated driver takes 0.4 ms for each, and a busy tenant's kernel must end first.
    let [idle, _] = rows(&report, "lock, idle")[..] else { panic!("{report:#}") };
    assert!(p50_ms(idle) >= 0.4, "{idle}");
    assert_eq!(rows(&report, "lock, busy").len(), 2, "{report:#}");
}

#[test]
fn the_gate_is_measured_from_arming_to_its_residue() {
    let report = measured(HOLD, &["bench", "hold", "--ground", "cgroup", "--part", "gate", "--turns", "3", "--json"]);
    if let Some(why) = report["absent"][0].as_str() {
        crate::support::skip("the_gate_is_measured_from_arming_to_its_residue", why);
        return;
    }
    let what: Vec<&str> = rows(&report, "gate").iter().map(|row| row["what"].as_str().unwrap()).collect();
    for part in ["armed before a first launch", "hit → frozen", "release → running"] {
        assert!(what.contains(&part), "{what:?}");
    }
}

#[test]
fn parking_is_measured_by_size_and_what_does_not_fit_is_told() {
    let args = ["bench", "hold", "--ground", "cgroup", "--part", "park", "--size", "64MiB", "--size", "100TiB"];
    let report = measured(HOLD, &[&args[..], &["--json"]].concat());
    let parked = rows(&report, "park 64");
    assert_eq!(parked.len(), 2, "{report:#}");
    // The profile: 1.72 s and more to move out, 0.28 s and more to move in.
    assert!(p50_ms(parked[0]) >= 1_720.0 && p50_ms(parked[1]) >= 280.0, "{report:#}");
    assert!(rows(&report, "park 100")[0]["refused"].is_string(), "{report:#}");
}

#[test]
fn a_measurement_of_holds_ended_in_the_middle_tells_what_it_has_and_leaves_nobody_held() {
    let host = Host::bare();
    let args = ["bench", "hold", "--ground", "cgroup", "--part", "cgroup", "--part", "lock", "--turns", "50"];
    let mut bench = Staged::start(&host, "bench", HOLD, &args);
    until_within(PATIENCE, "the second part", || {
        assert!(bench.process.is_running(), "the measurement ended: {}", told(&host));
        told(&host).contains("measuring lock").then_some(())
    });
    bench.process.signal(Signal::INT);
    assert_eq!(bench.process.wait(), 130);
    assert!(bench.printed().contains("cgroup v"), "what was measured is lost: {}", bench.printed());
    bench.leaves_nothing();
}

#[test]
fn who_is_left_frozen_by_a_killed_measurement_is_removed_by_the_next_one() {
    if !has_both_hierarchies() {
        return;
    }
    let host = Host::bare();
    let args = |turns| ["bench", "hold", "--ground", "cgroup", "--part", "cgroup", "--turns", turns, "--json"];
    let mut killed = Staged::start_in(&host, "tmp", "killed", HOLD, &args("60000"));
    until_within(PATIENCE, "a tenant in a cgroup made for it", || {
        (!kept(killed.process.pid()).is_empty()).then_some(())
    });
    killed.process.kill();
    let mut next = Staged::start_in(&host, "tmp", "next", HOLD, &args("1"));
    until_within(PATIENCE, "the end of a measurement", || (!next.process.is_running()).then_some(()));
    assert_eq!(next.process.wait(), 0);
    assert_eq!(kept(killed.process.pid()), Vec::<String>::new(), "something of it is left");
    killed.leaves_nothing();
}

fn has_both_hierarchies() -> bool {
    ["freezer", "unified"].iter().all(|name| std::path::Path::new("/sys/fs/cgroup").join(name).exists())
}

#[test]
fn containers_are_paused_by_their_engine_and_frozen_behind_its_back() {
    let Some(engine) = Engine::for_test("containers_are_paused_by_their_engine_and_frozen_behind_its_back") else {
        return;
    };
    let socket = format!("docker.socket={}", engine.socket().display());
    let args = ["--part", "docker", "--part", "cgroup", "--turns", "3", "--json"];
    let report = measured(HOLD, &[&["--set", &socket, "bench", "hold", "--ground", "docker"], &args[..]].concat());
    let [pause, unpause] = rows(&report, "docker pause")[..] else { panic!("{report:#}") };
    assert!(p50_ms(pause) > 0.0 && p50_ms(unpause) > 0.0, "{report:#}");
    assert!(!rows(&report, "cgroup").is_empty(), "{report:#}");
}

/// Of the first cell.
fn way<'a>(report: &'a Value, name: &str) -> &'a Value {
    let ways = report["cells"][0]["ways"].as_array().unwrap();
    ways.iter().find(|way| way["way"] == name).unwrap_or_else(|| panic!("no {name} in {report:#}"))
}

#[test]
fn ways_to_share_are_measured_in_turn_and_what_is_missing_is_told() {
    let args = ["bench", "live", "--ground", "cgroup", "--cell", "2x1024", "--rounds", "2", "--json"];
    let ways = ["fifo", "lock:1", "one-by-one:1", "mps"].map(|way| ["--contender", way]).concat();
    let report = measured(LIVE, &[&args[..], &ways].concat());
    let runs = |name: &str| way(&report, name)["runs"].as_array().unwrap().len();
    assert_eq!(["unmanaged", "fifo", "lock", "one-by-one"].map(runs), [2, 2, 1, 1]);
    assert!(report["notes"][0].as_str().unwrap().contains("mps is left out"), "{report:#}");
    let fifo = &way(&report, "fifo")["total_over_unmanaged"];
    let [low, mean, high] = ["low", "mean", "high"].map(|of| fifo[of].as_f64().unwrap());
    assert!(low <= mean && mean <= high && mean > 0.0, "{fifo}");
    assert_eq!(report["cells"][0]["kernel"]["was_alone"], true);
    // The whole run is told: what the kernels take alone, and where the rest went.
    let run = &way(&report, "one-by-one")["runs"][0];
    let part = |of: &str| run["timeline"][of].as_f64().unwrap();
    let parts: f64 = ["start_s", "busy_s", "gaps_s", "end_s"].map(part).iter().sum();
    assert!((parts - run["total_s"].as_f64().unwrap()).abs() < 1e-6, "{run}");
}

#[test]
fn a_live_cell_is_set_beside_virtual_time() {
    let args = ["bench", "live", "--ground", "cgroup", "--cell", "3x8192", "--rounds", "1", "--compare", "--json"];
    let report = measured(LIVE, &args);
    let compared = report["cells"][0]["compared"].as_array().unwrap();
    let ways: Vec<&str> = compared.iter().map(|compared| compared["way"].as_str().unwrap()).collect();
    assert_eq!(ways, ["unmanaged", "fifo", "paper", "off", "one-by-one"]);
    for (compared, of) in compared.iter().flat_map(|one| ["total", "mean_completion"].map(|of| (one, &one[of]))) {
        let [live, predicted, ratio] = ["live_s", "predicted_s", "ratio"].map(|value| of[value].as_f64().unwrap());
        assert!((live / predicted - ratio).abs() < 1e-9, "{compared}");
        assert_eq!(of["is_within"], (ratio - 1.0).abs() <= 0.1, "{compared}");
        // A machine that is busy with other tests makes those slower who have the GPU to themselves, never faster. Of many
        // that come at once the first may gain by the others' coming late.
        assert!(ratio > 0.95 || compared["way"] != "one-by-one", "{compared}");
    }
}

#[test]
fn a_live_measurement_ended_while_containers_are_held_prints_what_it_has_and_leaves_nothing() {
    let Some(engine) = Engine::for_test("a_live_measurement_ended_while_containers_are_held") else { return };
    let host = Host::bare();
    let socket = format!("docker.socket={}", engine.socket().display());
    let args = ["--ground", "docker", "--cell", "4x13312", "--contender", "paper", "--rounds", "1"];
    let mut bench = Staged::start(&host, "bench", LIVE, &[&["--set", &socket, "bench", "live"], &args[..]].concat());
    // Whom `paper` holds waits for a second at least.
    until_within(PATIENCE, "a held container", || {
        assert!(bench.process.is_running(), "the measurement ended: {}", told(&host));
        let logs = bench.files().into_iter().map(|dir| std::fs::read_to_string(dir.join("daemon.log")));
        logs.flatten().any(|log| log.contains("a tenant is held")).then_some(())
    });
    bench.process.signal(Signal::INT);
    assert_eq!(bench.process.wait(), 130);
    assert!(bench.printed().contains("unmanaged"), "what was measured is lost: {}", bench.printed());
    bench.leaves_nothing_on(&engine);
    assert_eq!(kept(bench.process.pid()), Vec::<String>::new(), "something is left");
}

#[test]
fn tenants_that_cannot_be_told_apart_are_not_measured_and_it_is_told_what_is_missing() {
    let host = Host::bare();
    let nobody = Nobody::on(&host);
    let refused = run(&mut nobody.berth(&["bench", "live", "--cell", "2x1024", "--rounds", "1"]));
    assert_eq!(refused.code, 1, "{refused:?}");
    for told in ["one tenant", "as root", "not as Docker containers: ", "not as plain cgroups: "] {
        assert!(refused.stderr.contains(told), "{told}: {refused:?}");
    }
    assert_eq!(std::fs::read_dir(nobody.home()).unwrap().count(), 0, "files are left");
    let missing =
        run(Command::new(BERTH).args(["--set", "docker.socket=/nowhere", "bench", "live", "--ground", "docker"]));
    assert_eq!(missing.code, 1, "{missing:?}");
    assert!(missing.stderr.contains("docker.socket") && missing.stderr.contains("/nowhere"), "{missing:?}");
}
