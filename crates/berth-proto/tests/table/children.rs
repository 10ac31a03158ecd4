//! Roles for other processes; run by `support::Other`, never by themselves.

use std::path::PathBuf;

use berth_proto::table::{Freshness, Reader, Row, TableError, Writer, monotonic_ns};

use crate::support::{row_of, rows_of, stamp};

fn path() -> Option<PathBuf> {
    std::env::var_os("BERTH_TEST_TABLE").map(PathBuf::from)
}

#[test]
#[ignore = "a role for another process"]
fn publishes_until_killed() {
    let Some(path) = path() else { return };
    let mut writer = Writer::create(path, 64).unwrap();
    for counter in 1.. {
        writer.publish(&rows_of(counter, 64), stamp(counter)).unwrap();
    }
}

/// So many rows that most of its time goes into writing them.
#[test]
#[ignore = "a role for another process"]
fn publishes_very_much_until_killed() {
    let Some(path) = path() else { return };
    let mut writer = Writer::create(path, 1 << 14).unwrap();
    for counter in 1.. {
        let row = Row { name: counter.to_string(), ..Row::default() };
        writer.publish(&vec![row; 1 << 14], stamp(counter)).unwrap();
    }
}

#[test]
#[ignore = "a role for another process"]
fn publishes_once_and_beats_until_killed() {
    let Some(path) = path() else { return };
    let mut writer = Writer::create(path, 4).unwrap();
    writer.publish(&[row_of(5)], stamp(5)).unwrap();
    loop {
        writer.heartbeat(monotonic_ns()).unwrap();
        std::thread::yield_now();
    }
}

#[test]
#[ignore = "a role for another process"]
fn reads_until_killed() {
    let Some(path) = path() else { return };
    let mut reader = Reader::open(path).unwrap();
    loop {
        reader.read().unwrap();
    }
}

#[test]
#[ignore = "a role for another process"]
fn finds_no_room() {
    let Some(path) = path() else { return };
    let error = Writer::create(&path, 1 << 14).unwrap_err();
    assert!(matches!(error, TableError::Allocate { bytes: 6_291_648, .. }), "{error:?}");
    assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "only the lock is left");
    Writer::create(&path, 4).unwrap().publish(&[row_of(1)], stamp(1)).unwrap();
}

#[test]
#[ignore = "a role for another process"]
fn hears_the_writer() {
    let Some(path) = path() else { return };
    assert_eq!(Reader::open(path).unwrap().freshness().unwrap(), Freshness::Live);
}
