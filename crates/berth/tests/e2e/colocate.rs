//! `berth bench colocate` and the programs it puts on a GPU, on the simulated one.

use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::kernels::programs::library;
use crate::support::{BERTH, Host, Staged, run, until_within};

const PATIENCE: Duration = Duration::from_secs(300);
const COLOCATE: &str = "berth-colocate";
const SHORT: [&str; 6] = ["bench", "colocate", "--pair", "short", "--mode", "time-slicing"];

/// Programs that find the measurement's GPU by their environment.
fn programs(host: &Host) -> Vec<String> {
    let tmp = host.file("tmp-bench").display().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let ours = entries.filter(|dir| {
        let environment = std::fs::read(dir.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment)
            .split('\0')
            .any(|line| line.contains("LD_LIBRARY_PATH") && line.contains(&tmp))
    });
    ours.filter_map(|dir| std::fs::read(dir.join("cmdline")).ok())
        .map(|command| String::from_utf8_lossy(&command).replace('\0', " "))
        .collect()
}

/// What it said on the way.
fn told(host: &Host) -> String {
    std::fs::read_to_string(host.file("bench.log")).unwrap_or_default()
}

#[test]
fn a_pair_is_measured_alone_before_and_after_and_together() {
    let host = Host::bare();
    let args = [&SHORT[..], &["--load", "light", "--seconds", "1", "--json"]].concat();
    let mut bench = Staged::start(&host, "bench", COLOCATE, &args);
    until_within(PATIENCE, "the end of a measurement", || (!bench.process.is_running()).then_some(()));
    assert_eq!(bench.process.wait(), 0, "{}", told(&host));
    let report: Value = serde_json::from_str(&bench.printed()).unwrap();
    let (pair, load) = (&report["pairs"][0], &report["pairs"][0]["loads"][0]);
    assert_eq!(pair["service_ms"].as_array().unwrap().len(), 2, "{report:#}");
    assert_eq!(
        (pair["trainer_alone_per_s"].as_array().unwrap().len(), load["alone"].as_array().unwrap().len()),
        (2, 2)
    );
    let row = &load["rows"][0];
    assert_eq!((row["mode"].as_str(), load["rows"].as_array().unwrap().len()), (Some("time-slicing"), 1));
    // About fifty arrive in a second; the same ones in every window.
    let served = &row["rounds"][0]["served"];
    assert_eq!(served["requests"], load["alone"][0][0]["requests"]);
    assert!((20..90).contains(&served["requests"].as_u64().unwrap()), "{row}");
    // 60 kernels of 20 µs; together they share the GPU with those of the trainer.
    assert!(pair["service_ms"][0].as_f64().unwrap() > 1.1, "{pair:#}");
    assert!(row["trainer_over_alone"].as_f64().is_none_or(|share| share < 1.1), "{row}");
    bench.leaves_nothing();
    assert_eq!(programs(&host), Vec::<String>::new());
}

#[test]
fn a_pair_that_is_ended_in_the_middle_leaves_no_program() {
    let host = Host::bare();
    let mut bench = Staged::start(&host, "bench", COLOCATE, &[&SHORT[..], &["--seconds", "60"]].concat());
    until_within(PATIENCE, "a server and a trainer", || {
        assert!(bench.process.is_running(), "the measurement ended: {}", told(&host));
        (programs(&host).len() >= 2).then_some(())
    });
    bench.process.signal(Signal::INT);
    assert_eq!(bench.process.wait(), 130);
    bench.leaves_nothing();
    assert_eq!(programs(&host), Vec::<String>::new());
}

#[test]
fn links_are_measured_by_other_settings_without_another_start() {
    if library("links_are_measured_by_other_settings_without_another_start").is_none() {
        return;
    }
    const OTHERS: &str = "kernels.grain=8ms kernels.linger=20us";
    let host = Host::bare();
    let links = ["bench", "colocate", "--pair", "short", "--mode", "links", "--load", "light", "--seconds", "1"];
    let mut bench = Staged::start(&host, "bench", COLOCATE, &[&links[..], &["--vary", OTHERS, "--json"]].concat());
    until_within(PATIENCE, "the end of a measurement", || (!bench.process.is_running()).then_some(()));
    assert_eq!(bench.process.wait(), 0, "{}", told(&host));
    let report: Value = serde_json::from_str(&bench.printed()).unwrap();
    let rows = report["pairs"][0]["loads"][0]["rows"].as_array().unwrap();
    let with: Vec<&str> = rows.iter().map(|row| row["with"].as_str().unwrap_or_default()).collect();
    assert_eq!(with, ["", OTHERS], "{report:#}");
    let stops = |row: &Value| row["deeds"]["stops"].as_u64().unwrap();
    assert!(stops(&rows[1]) * 4 < stops(&rows[0]), "a coarser grain has fewer stops: {rows:#?}");
    let wrong = run(Command::new(BERTH).args(links).args(["--vary", "kernels.grain=1us"]));
    assert!(
        wrong.code == 2 && wrong.stderr.contains("kernels.grain is 1us: must be at least 10us"),
        "{}",
        wrong.stderr
    );
    let elsewhere = ["bench", "colocate", "--mode", "berth-slo", "--vary", "kernels.grain=50us"];
    let useless = run(Command::new(BERTH).args(elsewhere));
    assert!(useless.code == 1 && useless.stderr.contains("add `--mode links`"), "{}", useless.stderr);
}
