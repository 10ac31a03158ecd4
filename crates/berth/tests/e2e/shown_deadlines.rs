//! Deadlines as they are shown: in `berth ps`, the task table, metrics and history it is the same.

use berth_model::deadline::Risk;
use berth_model::{TaskRow, TenantKey};
use berth_proto::table::{self, Reader, Row};
use serde_json::{Value, json};

use crate::support::{Daemon, Host, until};

fn json(daemon: &Daemon, args: &[&str]) -> Value {
    serde_json::from_str(&daemon.berth(args).ok()).unwrap()
}

fn has_risk(row: &TaskRow, risk: Risk) -> bool {
    row.deadline.as_ref().and_then(|deadline| deadline.work.as_ref()).is_some_and(|work| work.risk == risk)
}

/// The tenant's row of the task table, when it has a deadline with such a risk.
fn in_table(reader: &mut Reader, tenant: &TenantKey, risk: table::Risk) -> Row {
    let TenantKey::Cgroup { path } = tenant else { panic!("{tenant} is no cgroup") };
    let is_it = |row: &Row| {
        let due = row.deadline.and_then(|deadline| deadline.due);
        row.name == *path && due.is_some_and(|due| due.risk == Some(risk))
    };
    until(&format!("the row of {tenant} in the table"), || reader.read().unwrap().rows.into_iter().find(is_it))
}

/// The line of a tenant in `berth ps`, with single spaces between its cells.
fn line_of(table: &str, name: &str) -> String {
    let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut its = words.filter(|words| words.contains(&name)).map(|words| words.join(" "));
    its.next().unwrap_or_else(|| panic!("{name} is not in {table}"))
}

#[test]
fn a_deadline_is_the_same_in_ps_the_task_table_metrics_and_history() {
    let host = Host::start();
    let daemon = host.daemon();
    let (early, late) = (host.holder("early", &[]), host.holder("late", &[]));
    for (tenant, deadline) in [(&early, "1h"), (&late, "1ms")] {
        daemon.sees(&tenant.key());
        daemon.berth(&["deadline", "set", tenant.cgroup.path(), deadline]).ok();
    }
    daemon.row_where(&early.key(), |row| has_risk(row, Risk::Safe));
    daemon.row_where(&late.key(), |row| has_risk(row, Risk::Late));

    let mut reader = Reader::open(&daemon.settings.table.path).unwrap();
    let safe = in_table(&mut reader, &early.key(), table::Risk::Safe);
    let deadline = safe.deadline.unwrap();
    assert_eq!((deadline.deadline_ns, deadline.unit), (3_600_000_000_000, Some(table::Unit::Task)));
    let began_ns = deadline.due.unwrap().mono_ns - deadline.deadline_ns;
    assert!(began_ns.abs_diff(safe.task_started.unwrap().mono_ns) < 1_000_000, "{safe:?}");
    in_table(&mut reader, &late.key(), table::Risk::Late);

    let shown = daemon.berth(&["ps"]).ok();
    assert!(shown.lines().next().is_some_and(|head| head.contains("DEADLINE  ") && head.contains("HITS")), "{shown}");
    assert!(line_of(&shown, late.cgroup.path()).contains(" 1ms set -"), "{shown}");
    assert!(line_of(&shown, early.cgroup.path()).contains(" 1h set 59m"), "{shown}");
    let wide = daemon.berth(&["ps", "--wide"]).ok();
    assert!(line_of(&wide, early.cgroup.path()).contains(" task set by root"), "{wide}");

    let name = late.cgroup.path().to_owned();
    drop(late);
    let ended = until("the verdict", || {
        let all = json(&daemon, &["ps", "--all", "--json"]);
        let ended = all["ended"].as_array().unwrap().iter().find(|task| task["container_name"] == *name).cloned();
        ended.filter(|task| !task["judgement"].is_null())
    });
    assert_eq!(ended["judgement"]["deadline_hit"], json!(false), "{ended}");
    let all = daemon.berth(&["ps", "--all"]).ok();
    assert!(all.contains("VERDICT") && line_of(&all, &name).ends_with("miss"), "{all}");

    let page = daemon.metrics();
    for line in [
        r#"berth_deadline_units_total{owner="root",unit="task",verdict="miss"} 1.0"#,
        "berth_deadline_float_seconds_count 1",
        r#"berth_deadline_float_seconds_bucket{le="0.0"} 1"#,
        "berth_deadline_run_seconds_count 1",
    ] {
        assert!(page.contains(&format!("{line}\n")), "{line} is not in {page}");
    }

    // What is remembered is written by a thread of its own.
    let summary = until("the summary", || {
        let summaries = json(&daemon, &["history", &name, "--summary", "--json"]);
        summaries.as_array().filter(|all| all.len() == 1).map(|all| all[0].clone())
    });
    assert_eq!((&summary["misses"], &summary["units"], &summary["unit"]), (&json!(1), &json!(1), &json!("task")));
    assert_eq!(summary["float_seconds"]["least_seconds"], ended["judgement"]["float_seconds"]);
    let misses = json(&daemon, &["history", "--misses", "--json"]);
    assert_eq!(misses.as_array().map(Vec::len), Some(1), "{misses}");
    daemon.sees_nothing_of(&TenantKey::Cgroup { path: name.clone() });
    let left = daemon.berth(&["explain", &name]).ok();
    assert!(left.contains("deadline missed by"), "{left}");
}
