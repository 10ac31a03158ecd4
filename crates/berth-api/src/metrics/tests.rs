//! The page as scrapers see it. What promtool says to it is asked end to end, in `crates/berth/tests/e2e/metrics.rs`.

use berth_model::snapshot::HoldStage;

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
    assert_eq!(series("berth_probe"), 5);
    let unprobed = Snapshot { probes: None, ..Snapshot::clone(&snapshot()) };
    let page = super::page(Arc::new(unprobed), USAGE, Format::Prometheus).unwrap();
    assert!(!page.contains("berth_probe"), "without probes nothing is counted: {page}");
}

#[test]
fn what_a_dry_run_would_do_is_not_counted_as_done() {
    let mut dry = Snapshot::clone(&snapshot());
    let management = dry.management.as_mut().unwrap();
    (management.dry_run, management.would_be_holds.gate) = (true, 3);
    dry.tasks.iter_mut().flat_map(|row| &mut row.hold).for_each(|hold| hold.stage = HoldStage::WouldHold);
    let page = page(Arc::new(dry), USAGE, Format::Prometheus).unwrap();
    for line in [
        "berth_dry_run 1.0",
        "berth_tenants_held 0.0",
        "berth_tenants_would_be_held 1.0",
        "berth_would_be_holds_total{means=\"gate\"} 3.0",
        "berth_holds_total{means=\"gate\"} 4.0",
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line} is not in {page}");
    }
    let real = super::page(snapshot(), USAGE, Format::Prometheus).unwrap();
    assert!(real.contains("berth_dry_run 0.0\n") && !real.contains("would_be"), "{real}");
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
