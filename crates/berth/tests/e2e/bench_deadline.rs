//! `berth bench deadline`: containers with deadlines, what is told of their tasks, and whether that agrees with itself.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Engine, Host, Staged, skip, until, until_within};

const STAGE: &str = "berth-deadline";
/// Containers come and go one after another, on a machine that may be busy.
const PATIENCE: Duration = Duration::from_secs(300);
/// Far above what a monitor needs that is told, below what one that polls is late by. Of the median: an exit is dated by a thread that may
/// have to wait for a CPU, and measured by another, so a single one may be wrong by any time on a busy machine.
const MOST_ERROR_MS: f64 = 100.0;

/// Runs to its end, and leaves nothing. `None`, said loudly, where the kernel offers no probes.
fn measured(test: &str, args: &[&str]) -> Option<Value> {
    let host = Host::bare();
    let mut bench = Staged::start(&host, "bench", STAGE, args);
    until_within(PATIENCE, "the end of a measurement", || (!bench.process.is_running()).then_some(()));
    let code = bench.process.wait();
    let told = std::fs::read_to_string(host.file("bench.log")).unwrap_or_default();
    bench.leaves_nothing();
    if code != 0 && told.contains("probes") {
        skip(test, &told);
        return None;
    }
    assert_eq!(code, 0, "{told}");
    Some(serde_json::from_str(&bench.printed()).unwrap())
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("no number: {value}"))
}

fn all_tasks(report: &Value) -> Vec<(&Value, &Value)> {
    let containers = report["containers"].as_array().unwrap();
    containers.iter().flat_map(|one| one["tasks"].as_array().unwrap().iter().map(move |task| (one, task))).collect()
}

/// What is said of start, end and run time follows from what is said of every task.
fn errors_follow_from_the_tasks(report: &Value) {
    let tasks = all_tasks(report);
    for (of, error) in [("start_ms", "/start/error_ms"), ("end_ms", "/end/error_ms"), ("run_ms", "/run_error_ms")] {
        let mut errors: Vec<f64> = tasks.iter().map(|(_, task)| number(task.pointer(error).unwrap())).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        let told = &report["errors"][of];
        assert!((number(&told["mean"]) - mean).abs() < 1e-6, "{of}: {told}");
        let [min, max] = ["min", "max"].map(|end| number(&told[end]));
        assert!(errors.iter().all(|error| (min..=max).contains(error)), "{of}: {told}");
        errors.sort_by(f64::total_cmp);
        assert!(errors[errors.len() / 2].abs() < MOST_ERROR_MS, "{of}: {told}");
    }
    for (_, task) in tasks {
        let difference = number(&task["end"]["error_ms"]) - number(&task["start"]["error_ms"]);
        assert!((difference - number(&task["run_error_ms"])).abs() < 1e-3, "{task}");
        // A timer may lose its CPU between what it times and its look at the clock: then others are told before it has looked. But
        // nothing is told before it was seen.
        for edge in ["start", "end"] {
            let told_after_seen = number(&task[edge]["told_after_ms"]) - number(&task[edge]["error_ms"]);
            assert!(told_after_seen > 0.0, "told before it was seen: {task}");
        }
    }
}

/// berth's float is the true one but for the error of the run time, and every verdict is that of the timers except where
/// that error decides.
fn verdicts_are_the_timers(report: &Value) {
    for (container, task) in all_tasks(report) {
        let (judged, true_float_s) = (&task["judged"], number(&task["float_s"]));
        assert_eq!(judged["deadline"], container["deadline"], "judged by another deadline: {task}");
        let late_ms = (true_float_s - number(&judged["float_s"])) * 1e3;
        assert!((late_ms - number(&task["run_error_ms"])).abs() < 1e-3, "not judged by what was seen: {task}");
        let truth = if true_float_s < 0.0 { "miss" } else { "hit" };
        assert!(judged["verdict"] == truth || true_float_s.abs() * 1e3 <= late_ms.abs() + 1e-3, "{task}");
    }
    let judging = &report["judging"];
    assert_eq!((&judging["disagree"], &judging["not_judged"]), (&0.into(), &0.into()), "{judging}");
}

fn cost_is_told_by_the_number_of_containers(report: &Value) {
    let points = report["cost"].as_array().unwrap();
    let counts = |watched: bool| {
        let points = points.iter().filter(|point| point["watched"] == watched);
        points.map(|point| point["containers"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((counts(true), counts(false)), (vec![0, 1, 2], vec![0, 1, 2]));
    for point in points.iter().filter(|point| point["watched"] == true) {
        let [resident, proportional] = ["resident_bytes", "proportional_bytes"].map(|of| number(&point[of]));
        assert!(0.0 < proportional && proportional <= resident, "{point}");
        assert!(number(&point["cpu_pct"]) > 0.0 && number(&point["host_cpu_pct"]) > 0.0, "{point}");
    }
    let samples = report["over_time"].as_array().unwrap();
    let times: Vec<f64> = samples.iter().map(|sample| number(&sample["at_s"])).collect();
    assert!(times.len() >= 3 && times.is_sorted(), "{times:?}");
}

#[test]
fn containers_are_judged_by_their_deadlines_as_their_own_timers_would() {
    let test = "containers_are_judged_by_their_deadlines_as_their_own_timers_would";
    let Some(engine) = Engine::for_test(test) else { return };
    let socket = format!("docker.socket={}", engine.socket().display());
    let plots = tempfile::tempdir().unwrap();
    let args = ["--set", &socket, "bench", "deadline", "--ground", "docker", "--quick", "--containers", "2", "--json"];
    let Some(report) = measured(test, &[&args[..], &["--plots", plots.path().to_str().unwrap()]].concat()) else {
        return;
    };
    assert_eq!(all_tasks(&report).len(), 2 * 4, "{report:#}");
    errors_follow_from_the_tasks(&report);
    verdicts_are_the_timers(&report);
    cost_is_told_by_the_number_of_containers(&report);
    for chart in ["errors", "told", "cpu", "memory", "over-time"] {
        let svg = std::fs::read_to_string(plots.path().join(format!("{chart}.svg"))).unwrap();
        assert!(svg.contains("<polyline"), "{chart}");
    }
}

#[test]
fn deadlines_can_be_given_and_those_that_nobody_can_miss_or_meet_are_not() {
    let test = "deadlines_can_be_given_and_those_that_nobody_can_miss_or_meet_are_not";
    let Some(engine) = Engine::for_test(test) else { return };
    let socket = format!("docker.socket={}", engine.socket().display());
    let args = ["--set", &socket, "bench", "deadline", "--ground", "docker", "--quick", "--containers", "2", "--json"];
    let rest = ["--part", "tasks", "--rounds", "1", "--deadline", "1h", "--deadline", "1ms"];
    let Some(report) = measured(test, &[&args[..], &rest[..]].concat()) else { return };
    for (container, deadline, tally) in [(0, "1h", [2, 0, 0]), (1, "1ms", [0, 2, 0])] {
        let container = &report["containers"][container];
        assert_eq!(container["deadline"], deadline);
        for by in ["by_berth", "by_timers"] {
            let told = ["hits", "misses", "unknown"].map(|of| container[by][of].as_u64().unwrap());
            assert_eq!(told, tally, "{deadline} {by}: {container:#}");
        }
    }
    verdicts_are_the_timers(&report);
    assert_eq!(report["cost"].as_array().unwrap().len(), 0, "not asked for");
}

#[test]
fn who_has_no_labels_is_given_a_deadline_when_it_comes() {
    let test = "who_has_no_labels_is_given_a_deadline_when_it_comes";
    let args = ["bench", "deadline", "--ground", "cgroup", "--quick", "--containers", "1", "--rounds", "2", "--json"];
    let Some(report) = measured(test, &[&args[..], &["--part", "tasks", "--deadline", "1h"]].concat()) else { return };
    // The first task may be over before it is known whom to give a deadline to.
    let told = &report["containers"][0]["by_berth"];
    assert!(told["hits"].as_u64() >= Some(1) && told["misses"] == 0 && told["unknown"] == 0, "{report:#}");
}

#[test]
fn a_measurement_of_deadlines_ended_in_the_middle_leaves_nothing() {
    let host = Host::bare();
    let mut bench =
        Staged::start(&host, "bench", STAGE, &["bench", "deadline", "--ground", "cgroup", "--part", "cost"]);
    until("a tenant at work", || {
        assert!(bench.process.is_running(), "the measurement ended");
        bench.processes().iter().any(|command| command.contains(" bench tenant ")).then_some(())
    });
    bench.process.signal(Signal::INT);
    assert_eq!(bench.process.wait(), 130);
    assert_eq!(bench.printed(), "", "half a report");
    bench.leaves_nothing();
}
