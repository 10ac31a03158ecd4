//! The page as scrapers see it. What promtool says to it is asked end to end, in `crates/berth/tests/e2e/metrics.rs`.

use berth_model::snapshot::HoldStage;

use super::*;
use crate::routes::samples::snapshot;

const USAGE: Usage = Usage { cpu_seconds: Some(1.25), resident_bytes: Some(9_000_000) };

#[test]
fn a_host_with_a_lost_gpu_and_unknown_numbers_as_prometheus_text() {
    insta::assert_snapshot!(page(snapshot(), USAGE, None, Format::Prometheus).unwrap());
}

#[test]
fn openmetrics_ends_with_its_end_mark_and_is_given_only_to_those_who_ask() {
    let asked = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    assert_eq!(Format::for_accept(asked), Format::OpenMetrics);
    assert_eq!(Format::for_accept("*/*"), Format::Prometheus);
    let page = page(snapshot(), USAGE, None, Format::OpenMetrics).unwrap();
    assert!(page.ends_with("# EOF\n") && page.contains("# TYPE berth_samples counter\n"), "{page}");
}

#[test]
fn what_is_unknown_has_no_series() {
    let page = page(snapshot(), Usage::default(), None, Format::Prometheus).unwrap();
    let series = |start: &str| page.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(series("berth_process_"), 0);
    assert_eq!(series("berth_tenant_memory_bytes{"), 1, "the user's memory and the one still opening are unknown");
    assert_eq!(series("berth_gpu_core_ratio{"), 1, "the lost GPU has no use");
    assert_eq!(series("berth_probe"), 5);
    let unprobed = Snapshot { probes: None, ..Snapshot::clone(&snapshot()) };
    let page = super::page(Arc::new(unprobed), USAGE, None, Format::Prometheus).unwrap();
    assert!(!page.contains("berth_probe"), "without probes nothing is counted: {page}");
}

#[test]
fn what_a_dry_run_would_do_is_not_counted_as_done() {
    let mut dry = Snapshot::clone(&snapshot());
    let management = dry.management.as_mut().unwrap();
    (management.dry_run, management.would_be_holds.gate) = (true, 3);
    dry.tasks.iter_mut().flat_map(|row| &mut row.hold).for_each(|hold| hold.stage = HoldStage::WouldHold);
    let page = page(Arc::new(dry), USAGE, None, Format::Prometheus).unwrap();
    for line in [
        "berth_dry_run 1.0",
        "berth_tenants_held 0.0",
        "berth_tenants_would_be_held 1.0",
        "berth_would_be_holds_total{means=\"gate\"} 3.0",
        "berth_holds_total{means=\"gate\"} 4.0",
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line} is not in {page}");
    }
    let real = super::page(snapshot(), USAGE, None, Format::Prometheus).unwrap();
    assert!(real.contains("berth_dry_run 0.0\n") && !real.contains("would_be"), "{real}");
}

#[test]
fn a_gpu_whose_processes_cannot_be_listed_is_not_taken_for_an_empty_one() {
    let mut blind = Snapshot::clone(&snapshot());
    blind.gpus[0].blind = Some("unknown error".into());
    let of = |snapshot| page(Arc::new(snapshot), USAGE, None, Format::Prometheus).unwrap();
    let readable = "berth_gpu_processes_readable{gpu=\"0\"}";
    assert!(of(Snapshot::clone(&snapshot())).contains(&format!("{readable} 1.0\n")));
    assert!(of(blind).contains(&format!("{readable} 0.0\n")));
}

#[test]
fn floats_below_zero_have_buckets_and_in_openmetrics_no_sum() {
    let of = |format| page(snapshot(), USAGE, None, format).unwrap();
    let (prometheus, openmetrics) = (of(Format::Prometheus), of(Format::OpenMetrics));
    for page in [&prometheus, &openmetrics] {
        for line in [
            "# TYPE berth_deadline_float_seconds histogram",
            "berth_deadline_float_seconds_bucket{le=\"-1.0\"} 1",
            "berth_deadline_float_seconds_bucket{le=\"0.0\"} 3",
            "berth_deadline_float_seconds_bucket{le=\"+Inf\"} 15",
            "berth_deadline_run_seconds_sum 61.5",
            "berth_deadline_run_seconds_count 15",
        ] {
            assert!(page.contains(&format!("{line}\n")), "{line} is not in {page}");
        }
    }
    let sums = |page: &str| page.lines().filter(|line| line.starts_with("berth_deadline_float_seconds_sum")).count();
    assert_eq!((sums(&prometheus), sums(&openmetrics)), (1, 0));
    assert!(!openmetrics.contains("berth_deadline_float_seconds_count") && openmetrics.ends_with("# EOF\n"));
}

/// Counters outlive tenants: by container they would grow without bound.
#[test]
fn what_is_counted_of_deadlines_names_owners_and_never_containers() {
    let page = page(snapshot(), USAGE, None, Format::Prometheus).unwrap();
    let counted: Vec<&str> = page.lines().filter(|line| line.starts_with("berth_deadline_")).collect();
    let units = counted.iter().filter(|line| line.starts_with("berth_deadline_units_total{"));
    assert_eq!(units.count(), 6, "two tallies of three verdicts: {counted:#?}");
    assert!(counted.contains(&"berth_deadline_units_total{owner=\"\",unit=\"burst\",verdict=\"miss\"} 2.0"));
    assert!(counted.iter().all(|line| !line.contains("container=") && !line.contains("tenant=")), "{counted:#?}");
}

#[test]
fn a_tenant_has_a_float_only_while_something_is_due() {
    let series = |snapshot: Arc<Snapshot>, name: &str| {
        let page = page(snapshot, USAGE, None, Format::Prometheus).unwrap();
        page.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count()
    };
    assert_eq!(series(snapshot(), "berth_tenant_deadline_seconds"), 1);
    assert_eq!(series(snapshot(), "berth_tenant_float_seconds"), 1);
    let mut resting = Snapshot::clone(&snapshot());
    resting.tasks.iter_mut().flat_map(|row| &mut row.deadline).for_each(|deadline| deadline.work = None);
    let resting = Arc::new(resting);
    assert_eq!(series(Arc::clone(&resting), "berth_tenant_deadline_seconds"), 1);
    assert_eq!(series(resting, "berth_tenant_float_seconds"), 0);
}

#[test]
fn reports_are_counted_where_somebody_may_ask_for_them() {
    let reports = ReportTotals { served: 3, refused: [("wrong-key", 2)].into() };
    let page = page(snapshot(), USAGE, Some(reports), Format::Prometheus).unwrap();
    assert!(page.contains("berth_reports_served_total 3\n"), "{page}");
    assert!(page.contains("berth_reports_refused_total{reason=\"wrong-key\"} 2.0\n"), "{page}");
    let nobody = super::page(snapshot(), USAGE, None, Format::Prometheus).unwrap();
    assert!(!nobody.contains("berth_reports"), "{nobody}");
}
