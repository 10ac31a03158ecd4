//! The task table: readers see what `berth ps` shows, and can tell a dead daemon from a quiet one.

use std::process::Command;
use std::time::Duration;

use berth_proto::table::{Freshness, Reader, Row, State, Tenant};

use crate::support::{BERTH, Host, run, until};

#[test]
fn a_reader_of_the_table_sees_the_same_tenants_as_ps() {
    let host = Host::start();
    let daemon = host.daemon();
    let first = host.holder("first", &["--alloc-bytes", "2GiB"]);
    let second = host.holder("second", &["--device", "1"]);
    for tenant in [&first, &second] {
        daemon.row_where(&tenant.key(), |row| row.gpu_memory_bytes.is_some_and(|bytes| bytes.0 > 1 << 30));
    }
    let mut reader = Reader::open(&daemon.settings.table.path).unwrap();
    let table = until("both rows", || Some(reader.read().unwrap()).filter(|table| table.rows.len() == 2));
    let shown = daemon.ps();
    for (row, shown) in table.rows.iter().zip(&shown) {
        assert_eq!(row.tenant, Tenant::Cgroup);
        assert_eq!(shown["container_name"], row.name.as_str());
        assert_eq!(shown["owner"].as_str(), row.owner.as_deref());
        assert_eq!(shown["pids"], serde_json::json!(row.pids));
        assert_eq!(shown["gpu_index"].as_u64(), row.gpu_index.map(u64::from));
        assert_eq!(shown["gpu_uuid"].as_str(), row.gpu_uuid.as_deref());
        assert_eq!(shown["gpu_memory_bytes"].as_u64(), row.memory_bytes);
        assert_eq!(shown["task_id"].as_u64(), row.task_id);
        assert_eq!((&shown["state"], row.state), (&"loaded".into(), Some(State::Loaded)));
        let started: jiff::Timestamp = shown["task_started_at"].as_str().unwrap().parse().unwrap();
        assert_eq!(u64::try_from(started.as_nanosecond()).ok(), row.task_started.map(|at| at.wall_ns));
    }
    assert_eq!((table.freshness, table.writer_pid), (Freshness::Live, daemon.pid()));

    drop(second);
    assert!(reader.wait_changed(table.version, Duration::from_secs(30)).unwrap(), "the end is no change");
    until("one row", || (reader.read().unwrap().rows.len() == 1).then_some(()));
}

#[test]
fn after_a_killed_daemon_the_reader_says_so_and_follows_the_next_one() {
    let host = Host::start();
    let mut daemon = host.daemon();
    let tenant = host.holder("steady", &[]);
    daemon.sees(&tenant.key());
    let mut reader = Reader::open(&daemon.settings.table.path).unwrap();
    let names = |rows: &[Row]| rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>();
    until("the row", || (names(&reader.read().unwrap().rows) == [tenant.cgroup.path()]).then_some(()));

    daemon.kill();
    let last = reader.read().unwrap();
    assert_eq!(last.freshness, Freshness::WriterGone);
    assert_eq!(names(&last.rows), [tenant.cgroup.path()], "the last word is kept");

    let next = host.daemon();
    next.sees(&tenant.key());
    let taken_over = until("the new writer's rows", || {
        Some(reader.read().unwrap()).filter(|table| table.writer_pid == next.pid() && !table.rows.is_empty())
    });
    assert_eq!(
        (taken_over.freshness, names(&taken_over.rows)),
        (Freshness::Live, vec![tenant.cgroup.path().to_owned()])
    );
}

#[test]
fn two_daemons_with_files_of_their_own_see_the_same_and_do_not_disturb_each_other() {
    let host = Host::start();
    let (mut first, second) = (host.daemon_with("first", |_| ()), host.daemon_with("second", |_| ()));
    let tenant = host.holder("shared", &[]);
    for daemon in [&first, &second] {
        daemon.sees(&tenant.key());
        let rows = Reader::open(&daemon.settings.table.path).unwrap().read().unwrap().rows;
        assert_eq!(rows.len(), 1, "{rows:?}");
    }
    assert_eq!(first.stop(), 0);
    let late = host.holder("late", &[]);
    second.sees(&late.key());
}

#[test]
fn a_second_daemon_on_a_table_in_use_is_refused_and_the_first_keeps_it() {
    let host = Host::start();
    let first = host.daemon_with("first", |_| ());
    let mut settings = host.settings("second");
    settings.table.path.clone_from(&first.settings.table.path);
    let config = host.write_config("second", &settings);
    let refused = run(Command::new(BERTH).arg("--config").arg(config).arg("daemon"));
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    let (path, pid) = (first.settings.table.path.display().to_string(), first.pid().to_string());
    assert!(refused.stderr.contains(&path) && refused.stderr.contains(&pid), "who has what: {}", refused.stderr);
    assert!(!settings.api.socket.exists(), "the refused daemon left its socket");
    let tenant = host.holder("after", &[]);
    first.sees(&tenant.key());
    let table = Reader::open(&first.settings.table.path).unwrap().read().unwrap();
    assert_eq!((table.writer_pid, table.freshness), (first.pid(), Freshness::Live));
}
