//! Observing changes nothing for the observed: not when it begins, not while it lasts, not when the daemon is killed.

use berth_load::{Event, Line, Phase};
use berth_model::{Evidence, Source, SourceStatus};

use crate::support::{Host, Tenant};

/// Everything a line says except when, by whom, and how long.
fn shape(lines: &[Line]) -> Vec<String> {
    let shape = |line: &Line| match &line.event {
        Event::Summary(summary) => format!("{} summary {}", line.task, summary.exit_code),
        event => format!("{} {event:?}", line.task),
    };
    lines.iter().map(shape).collect()
}

fn finished(mut tenant: Tenant) -> (i32, Vec<String>) {
    let code = tenant.wait();
    (code, shape(&tenant.lines()))
}

/// Runs that between them go through every phase, well and badly.
const RUNS: [&[&str]; 4] = [
    &["--size", "1024", "--repeats", "5", "--streams", "2", "--tasks", "2", "--task-gap", "10ms", "--idle", "10ms"],
    &["hold", "--hold", "300ms"],
    &["hold", "--alloc-bytes", "200GiB"],
    &["light", "--repeats", "10", "--period", "10ms", "--lookup", "dlsym"],
];

#[test]
fn a_tenant_runs_the_same_watched_and_unwatched() {
    let host = Host::start();
    let run = |args: &&[&str]| finished(host.tenant("run", args));
    let unwatched: Vec<_> = RUNS.iter().map(run).collect();
    let daemon = host.daemon();
    let watched: Vec<_> = RUNS.iter().map(run).collect();
    assert_eq!(unwatched, watched);
    assert_eq!(unwatched.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [0, 0, 1, 0]);
    assert!(daemon.snapshot().counters.tasks_started >= 4, "nobody was watched");
}

#[test]
fn a_daemon_killed_in_mid_task_leaves_the_tenant_alone_and_the_next_one_watches_it() {
    let host = Host::start();
    let args = ["--size", "2048", "--repeats", "3", "--gap", "1s", "--hold", "1s"];
    let expected = finished(host.tenant("unwatched", &args));
    let mut daemon = host.daemon();
    let tenant = host.tenant("watched", &args);
    tenant.reaches(Phase::Hold);
    daemon.sees(&tenant.key());
    let probed = daemon.source(Source::Probes, |_| true) == SourceStatus::Up;
    daemon.kill();

    let next = host.daemon();
    let row = next.sees(&tenant.key());
    assert_eq!((row.pids, row.task_start_evidence), (vec![tenant.pid()], Some(Evidence::Process)));
    let events = next.events();
    let mut other = host.tenant("other", &["--size", "512"]);
    assert_eq!(other.wait(), 0);
    if probed {
        assert_eq!(next.source(Source::Probes, |_| true), SourceStatus::Up, "probes of the dead daemon are in the way");
        assert_eq!(events.ended(&other.key(), 1)[0].evidence, Evidence::Probe);
    }
    assert_eq!(finished(tenant), expected);
}
