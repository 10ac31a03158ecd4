//! The page as scrapers see it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::*;
use crate::routes::samples::snapshot;

const USAGE: Usage = Usage { cpu_seconds: Some(1.25), resident_bytes: Some(9_000_000) };

#[test]
fn a_host_with_a_lost_gpu_and_unknown_numbers_as_prometheus_text() {
    insta::assert_snapshot!(page(snapshot(), USAGE, Format::Prometheus).unwrap());
}

#[test]
fn openmetrics_ends_with_its_end_mark_and_is_given_only_to_those_who_ask() {
    let asked = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    assert_eq!(Format::for_accept(asked), Format::OpenMetrics);
    assert_eq!(Format::for_accept("*/*"), Format::Prometheus);
    let page = page(snapshot(), USAGE, Format::OpenMetrics).unwrap();
    assert!(page.ends_with("# EOF\n") && page.contains("# TYPE berth_samples counter\n"), "{page}");
}

#[test]
fn what_is_unknown_has_no_series() {
    let page = page(snapshot(), Usage::default(), Format::Prometheus).unwrap();
    let series = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(series("berth_process_"), 0);
    assert_eq!(series("berth_tenant_memory_bytes{"), 1, "the user's memory and the one still opening are unknown");
    assert_eq!(series("berth_gpu_core_ratio{"), 1, "the lost GPU has no use");
}

#[test]
fn a_gpu_whose_processes_cannot_be_listed_is_not_taken_for_an_empty_one() {
    let mut blind = Snapshot::clone(&snapshot());
    blind.gpus[0].blind = Some("unknown error".into());
    let of = |snapshot| page(Arc::new(snapshot), USAGE, Format::Prometheus).unwrap();
    let readable = "berth_gpu_processes_readable{gpu=\"0\"}";
    assert!(of(Snapshot::clone(&snapshot())).contains(&format!("{readable} 1.0\n")));
    assert!(of(blind).contains(&format!("{readable} 0.0\n")));
}

#[test]
fn promtool_finds_nothing_to_complain_about() {
    let Some(promtool) = promtool() else {
        let required = std::env::var_os("BERTH_TEST_REQUIRED").is_some();
        assert!(!required, "promtool is neither in .tools/bin nor on the path: run scripts/setup-tests.sh");
        eprintln!("SKIPPED: promtool is neither in .tools/bin nor on the path; scripts/setup-tests.sh fetches it");
        return;
    };
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let page = page(snapshot(), USAGE, Format::Prometheus).unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}\n{page}");
}

fn promtool() -> Option<PathBuf> {
    let ours = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools/bin/promtool"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("promtool"));
    std::iter::once(ours).chain(on_path).find(|candidate| candidate.is_file())
}
