//! `berth ps --json` as other programs rely on it: its keys, and that its values are true.

use std::process::Command;
use std::sync::Arc;

use berth_load::{Edge, Event, Moment};
use berth_model::ProcessKind;
use berth_sim::Profile;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::support::{BERTH, Cgroup, Host, Tenant, run, until};

/// Promised, in no order.
const PROMISED: [&str; 11] = [
    "container_id",
    "container_name",
    "owner",
    "pids",
    "gpu_uuid",
    "gpu_index",
    "gpu_memory_bytes",
    "gpu_core_pct",
    "state",
    "task_started_at",
    "task_seconds",
];
/// Beyond the promise. A key that joins or leaves is a change of the interface: it belongs into the changelog.
const FURTHER: [&str; 12] = [
    "tenant",
    "image",
    "container_started_at",
    "command",
    "process_kinds",
    "task_id",
    "task_start_evidence",
    "hold",
    "held_seconds",
    "deadline",
    "memory_needed_bytes",
    "placement",
];

const GIB: u64 = 1 << 30;

fn context_bytes() -> u64 {
    Profile::builtin("h200").unwrap().context.memory_mib << 20
}

/// A tenant with 3 GiB on the second GPU.
fn holder(host: &Host) -> Tenant {
    host.holder("holder", &["--alloc-bytes", "3GiB", "--device", "1"])
}

/// What must be true of the holder's row, whoever looked.
fn check_holder(row: &Value, tenant: &Tenant, uuid: &str) {
    assert_eq!(row["container_id"], Value::Null, "a plain cgroup is no container");
    assert_eq!(row["container_name"], tenant.cgroup.path());
    assert_eq!(row["owner"], "root");
    assert_eq!(row["pids"], json!([tenant.pid()]));
    assert_eq!(row["gpu_index"], 1);
    assert_eq!(row["gpu_uuid"], uuid);
    assert_eq!(row["gpu_memory_bytes"], context_bytes() + 3 * GIB);
    assert_eq!(row["state"], "loaded", "it has not computed");
    let started: Timestamp = row["task_started_at"].as_str().unwrap().parse().unwrap();
    assert!(started < Timestamp::now() && row["task_seconds"].as_f64().unwrap() > 0.0, "{row}");
}

fn keys(row: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = row.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn ps_json_has_the_promised_keys_with_true_values() {
    let host = Host::start();
    let daemon = host.daemon();
    let tenant = holder(&host);
    daemon.row_where(&tenant.key(), |row| row.gpu_memory_bytes.is_some_and(|bytes| bytes.0 > 3 * GIB));
    let rows = daemon.ps();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let mut wanted: Vec<&str> = PROMISED.iter().chain(&FURTHER).copied().collect();
    wanted.sort_unstable();
    assert_eq!(keys(&rows[0]), wanted);
    let uuid = daemon.snapshot().gpus[1].uuid.as_ref().unwrap().to_string();
    check_holder(&rows[0], &tenant, &uuid);

    let begun = tenant
        .lines()
        .into_iter()
        .find(|line| matches!(line.event, Event::Moment { moment: Moment::ContextReady, edge: Edge::End, .. }));
    let begun = Timestamp::from_nanosecond(begun.unwrap().at.wall_ns.into()).unwrap();
    let told: Timestamp = rows[0]["task_started_at"].as_str().unwrap().parse().unwrap();
    let late = told.duration_since(begun).as_secs_f64();
    assert!((-1.0..20.0).contains(&late), "it began at {begun}, and is said to have at {told}");
    until("the task to get older", || {
        let seconds = |rows: &[Value]| rows[0]["task_seconds"].as_f64().unwrap();
        (seconds(&daemon.ps()) > seconds(&rows)).then_some(())
    });
}

#[test]
fn a_core_figure_is_of_the_tenant_that_computes_and_not_of_the_one_that_waits() {
    let host = Host::start();
    let daemon = host.daemon();
    let busy = host.tenant("busy", &["--size", "4096", "--repeats", "forever"]);
    let quiet = host.holder("quiet", &["--device", "1"]);
    until("both figures", || {
        let rows = daemon.ps();
        let of = |tenant: &Tenant| rows.iter().find(|row| row["container_name"] == tenant.cgroup.path()).cloned();
        let (busy, quiet) = (of(&busy)?, of(&quiet)?);
        let figures = (busy["gpu_core_pct"].as_u64()?, quiet["gpu_core_pct"].as_u64()?);
        (figures.0 >= 90 && figures.1 == 0 && busy["state"] == "computing" && quiet["state"] == "loaded").then_some(())
    });
}

#[test]
fn ps_without_a_daemon_shows_the_same_tenant_and_says_who_looked() {
    let host = Host::start();
    let config = host.write_config("nobody", &host.settings("nobody"));
    let tenant = holder(&host);
    let ps = |args: &[&str]| run(Command::new(BERTH).arg("--config").arg(&config).arg("ps").args(args));
    let answer = ps(&["--json"]);
    assert_eq!(answer.code, 0, "{}", answer.stderr);
    assert!(answer.stderr.contains("no daemon listens on") && answer.stderr.contains("looked once"), "{answer:?}");
    let rows: Vec<Value> = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    let daemon = host.daemon();
    check_holder(&rows[0], &tenant, &daemon.snapshot().gpus[1].uuid.as_ref().unwrap().to_string());
    assert_eq!(keys(&rows[0]), keys(&serde_json::to_value(daemon.sees(&tenant.key())).unwrap()));
    assert_eq!(rows[0]["task_start_evidence"], "process");
    let table = ps(&[]).ok();
    assert!(table.lines().any(|line| line.contains(tenant.cgroup.path()) && line.contains("root")), "{table}");
}

#[test]
fn processes_of_one_tenant_are_one_row_per_gpu_with_their_memory_together() {
    let host = Host::start();
    let daemon = host.daemon();
    let cgroup = Arc::new(Cgroup::make("pair"));
    let hold = |gpu: &str| host.tenant_in(&cgroup, &["hold", "--alloc-bytes", "2GiB", "--device", gpu]);
    let (first, second, other) = (hold("0"), hold("0"), hold("1"));
    let rows = until("all three", || {
        let rows = daemon.ps();
        let bytes = |row: &Value| row["gpu_memory_bytes"].as_u64().unwrap_or(0);
        let sum: u64 = rows.iter().map(bytes).sum();
        (sum == 3 * (context_bytes() + 2 * GIB)).then_some(rows)
    });
    let mut pids = [first.pid(), second.pid()];
    pids.sort_unstable();
    let shown: Vec<_> = rows.iter().map(|row| (&row["gpu_index"], &row["pids"], &row["task_id"])).collect();
    assert_eq!(
        shown,
        [(&json!(0), &json!(pids), &rows[0]["task_id"]), (&json!(1), &json!([other.pid()]), &rows[0]["task_id"]),]
    );
}

#[test]
fn clients_of_mps_are_shown_as_such() {
    let host = Host::start_with(&["--mps"]);
    let daemon = host.daemon();
    let tenants = [host.holder("one", &[]), host.holder("two", &[])];
    for tenant in &tenants {
        let row = daemon.sees(&tenant.key());
        assert_eq!((row.process_kinds, row.pids), (vec![ProcessKind::MpsClient], vec![tenant.pid()]));
    }
    assert!(
        daemon.ps().iter().all(|row| row["process_kinds"] == json!(["mps-client"]) && row["gpu_core_pct"].is_null())
    );
}
