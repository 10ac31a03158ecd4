//! One writer, one reader, nothing goes wrong.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use berth_proto::table::{Freshness, Published, Reader, Row, Stamp, TableError, Writer, monotonic_ns};

use crate::support::{directory, eventually, path_in, row_of, stamp};

#[test]
fn what_was_published_is_read() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 4).unwrap();
    let mut reader = Reader::open(path_in(&directory)).unwrap();
    let empty = reader.read().unwrap();
    assert_eq!((empty.rows.len(), empty.updated, empty.writer_pid), (0, None, std::process::id()));
    for rows in [vec![row_of(1), row_of(2), row_of(3)], vec![row_of(9)], vec![]] {
        writer.publish(&rows, stamp(7)).unwrap();
        let table = reader.read().unwrap();
        assert_eq!((table.rows, table.rows_left_out, table.updated), (rows, 0, Some(stamp(7))));
    }
}

#[test]
fn the_same_rows_again_change_nothing_but_the_heartbeat() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 4).unwrap();
    let mut reader = Reader::open(path_in(&directory)).unwrap();
    assert_eq!(writer.publish(&[], stamp(1)).unwrap(), Published::Changed, "that there is nobody is news at first");
    assert_eq!(writer.publish(&[row_of(1)], stamp(2)).unwrap(), Published::Changed);
    let before = reader.read().unwrap();
    assert!(matches!(before.freshness, Freshness::Stale { .. }), "2 ns after boot is long ago");
    assert_eq!(writer.publish(&[row_of(1)], stamp(monotonic_ns())).unwrap(), Published::Unchanged);
    let after = reader.read().unwrap();
    assert_eq!((after.version, after.updated, after.rows), (before.version, before.updated, before.rows));
    assert_eq!(after.freshness, Freshness::Live);
}

#[test]
fn rows_that_are_gone_leave_nothing_in_the_file() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 4).unwrap();
    writer.publish(&[row_of(1), row_of(2)], stamp(1)).unwrap();
    writer.publish(&[row_of(3)], stamp(2)).unwrap();
    let bytes = std::fs::read(path_in(&directory)).unwrap();
    assert!(bytes[192..192 + 384].iter().any(|byte| *byte != 0));
    assert!(bytes[192 + 384..].iter().all(|byte| *byte == 0));
}

#[test]
fn rows_without_room_are_counted() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 2).unwrap();
    writer.publish(&[row_of(1), row_of(2), row_of(3), row_of(4), row_of(5)], stamp(1)).unwrap();
    let table = Reader::open(path_in(&directory)).unwrap().read().unwrap();
    assert_eq!((table.rows, table.rows_left_out), (vec![row_of(1), row_of(2)], 3));
}

#[test]
fn a_table_is_for_everyone_to_read_and_its_lock_for_nobody_else_to_hold() {
    let directory = directory();
    let _writer = Writer::create(path_in(&directory), 1).unwrap();
    let mode = |name: &str| directory.path().join(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tasks"), mode("tasks.lock")), (0o644, 0o600));
}

#[test]
fn tables_of_no_or_absurdly_many_rows_are_refused() {
    let directory = directory();
    for rows in [0, 65_537, u32::MAX] {
        let error = Writer::create(path_in(&directory), rows).unwrap_err();
        assert!(error.to_string().contains(&format!("of {rows} rows")), "{error}");
    }
    let missing = directory.path().join("missing/tasks");
    let error = Writer::create(&missing, 1).unwrap_err();
    assert!(matches!(&error, TableError::Io { .. }) && error.to_string().contains("missing/tasks.lock"), "{error}");
}

#[test]
fn a_sleeping_reader_is_woken_by_a_change() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 1).unwrap();
    let mut reader = Reader::open(path_in(&directory)).unwrap();
    let (to_writer, waiting) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let delay = |at: Stamp| Duration::from_nanos(monotonic_ns() - at.mono_ns);
        let wait = |_| {
            let version = reader.read().unwrap().version;
            to_writer.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            assert!(reader.wait_changed(version, Duration::from_secs(60)).unwrap());
            reader.read().unwrap().updated.map(delay)
        };
        (0..20).filter_map(wait).min()
    });
    for (counter, thread) in waiting.iter().enumerate() {
        let stat = PathBuf::from("/proc").join(thread).join("stat");
        eventually("sleeping reader", || std::fs::read_to_string(&stat).ok()?.contains(") S ").then_some(()));
        let rows = [Row { name: counter.to_string(), ..Row::default() }];
        writer.publish(&rows, stamp(monotonic_ns())).unwrap();
    }
    let fastest = waiter.join().unwrap().unwrap();
    assert!(fastest < Duration::from_millis(100), "woken only by looking now and then: {fastest:?}");
}

#[test]
fn a_reader_of_an_unchanged_table_wakes_at_its_timeout() {
    let directory = directory();
    let writer = Writer::create(path_in(&directory), 1).unwrap();
    let mut reader = Reader::open(path_in(&directory)).unwrap();
    let version = reader.read().unwrap().version;
    writer.heartbeat(monotonic_ns()).unwrap();
    assert!(!reader.wait_changed(version, Duration::from_millis(20)).unwrap());
}
