//! Writers that die, files that are not what they should be.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use berth_proto::table::{Freshness, HeaderError, ReadError, Reader, TableError, Writer, monotonic_ns};
use proptest::prelude::*;

use crate::support::{Other, directory, eventually, path_in, row_of, stamp};

const SEQUENCE_OFFSET: u64 = 64;

fn sequence(path: &Path) -> Option<u64> {
    let mut word = [0; 8];
    File::open(path).ok()?.read_exact_at(&mut word, SEQUENCE_OFFSET).ok()?;
    Some(u64::from_le_bytes(word))
}

fn freshness(reader: &mut Reader) -> Freshness {
    reader.read().unwrap().freshness
}

#[test]
fn a_writer_that_closes_is_noticed_and_its_last_rows_stay() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 4).unwrap();
    let mut reader = Reader::open(path_in(&directory)).unwrap();
    writer.publish(&[row_of(1)], stamp(monotonic_ns())).unwrap();
    assert_eq!(freshness(&mut reader), Freshness::Live);
    drop(writer);
    let table = reader.read().unwrap();
    assert_eq!((table.freshness, table.rows), (Freshness::WriterGone, vec![row_of(1)]));
}

#[test]
fn a_killed_writer_is_noticed_at_once_and_the_next_one_takes_over() {
    let directory = directory();
    let mut other = Other::start("publishes_once_and_beats_until_killed", &path_in(&directory));
    let mut reader = eventually("table", || Reader::open(path_in(&directory)).ok());
    eventually("row", || (reader.read().unwrap().rows.len() == 1).then_some(()));
    eventually("heartbeat", || (freshness(&mut reader) == Freshness::Live).then_some(()));
    other.0.kill().unwrap();
    // Its exit status has not been asked for: the process is a zombie, and gone all the same.
    eventually("gone writer", || (freshness(&mut reader) == Freshness::WriterGone).then_some(()));
    let last = reader.read().unwrap();
    assert_eq!(last.rows, [row_of(5)]);
    // The lock goes with the last of its threads, which may outlive the first.
    other.kill();

    let mut writer = Writer::create(path_in(&directory), 4).unwrap();
    assert!(reader.wait_changed(last.version, Duration::from_secs(60)).unwrap());
    writer.publish(&[row_of(6)], stamp(monotonic_ns())).unwrap();
    let table = reader.read().unwrap();
    assert_eq!((table.freshness, table.rows), (Freshness::Live, vec![row_of(6)]));
    assert_eq!(table.writer_pid, std::process::id());
}

/// Stops a writer in the middle of a publish.
fn stop_while_writing(other: &Other, path: &Path) {
    eventually("writer stopped while writing", || {
        let odd = || sequence(path).is_some_and(|sequence| sequence % 2 == 1);
        if odd() {
            other.stop();
            if odd() {
                return Some(());
            }
            other.signal(libc::SIGCONT);
        }
        None
    });
}

#[test]
fn a_writer_stopped_or_killed_while_writing_is_told_apart_and_the_next_one_recovers() {
    let directory = directory();
    let mut other = Other::start("publishes_very_much_until_killed", &path_in(&directory));
    stop_while_writing(&other, &path_in(&directory));
    let mut reader = Reader::open(path_in(&directory)).unwrap();
    assert!(matches!(reader.read().unwrap_err(), ReadError::Busy { .. }));

    other.kill();
    let error = reader.read().unwrap_err();
    assert!(matches!(error, ReadError::Unfinished { pid, .. } if pid == other.0.id()), "{error}");
    let error = Reader::open(path_in(&directory)).unwrap().read().unwrap_err();
    assert!(error.to_string().contains("died while writing"), "{error}");

    let mut writer = Writer::create(path_in(&directory), 4).unwrap();
    assert_eq!(reader.read().unwrap().rows, []);
    writer.publish(&[row_of(1)], stamp(1)).unwrap();
    assert_eq!(reader.read().unwrap().rows, [row_of(1)]);
}

#[test]
fn a_second_writer_is_refused_with_the_pid_of_the_first_and_changes_nothing() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 4).unwrap();
    writer.publish(&[row_of(1)], stamp(1)).unwrap();
    let error = Writer::create(path_in(&directory), 4).unwrap_err();
    assert!(matches!(error, TableError::Owned { pid: Some(pid), .. } if pid == std::process::id()), "{error:?}");
    assert_eq!(Reader::open(path_in(&directory)).unwrap().read().unwrap().rows, [row_of(1)]);
    writer.publish(&[row_of(2)], stamp(2)).unwrap();
    drop(writer);
    Writer::create(path_in(&directory), 4).unwrap();
}

#[test]
fn a_writer_that_closes_is_followed_at_once_even_while_children_are_being_started() {
    let directory = directory();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                Command::new("true").status().unwrap();
            }
        });
        let result = (0..2_000).try_for_each(|_| Writer::create(path_in(&directory), 1).map(drop));
        done.store(true, Ordering::Relaxed);
        result.unwrap();
    });
}

#[test]
fn a_file_that_is_no_table_is_never_replaced() {
    let directory = directory();
    fs::write(path_in(&directory), "root:x:0:0").unwrap();
    let error = Writer::create(path_in(&directory), 4).unwrap_err();
    assert!(matches!(error, TableError::Foreign { .. }), "{error:?}");
    assert_eq!(fs::read_to_string(path_in(&directory)).unwrap(), "root:x:0:0");
}

#[test]
fn a_table_cut_short_under_its_reader_is_an_error_and_no_signal() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 64).unwrap();
    writer.publish(&vec![row_of(1); 64], stamp(1)).unwrap();
    let mut reader = Reader::open(path_in(&directory)).unwrap();
    let version = reader.read().unwrap().version;
    assert!(!reader.wait_changed(version, Duration::from_millis(1)).unwrap(), "its mapping is there now");
    let file = OpenOptions::new().write(true).open(path_in(&directory)).unwrap();
    for bytes in [10_000, 100, 0] {
        file.set_len(bytes).unwrap();
        assert!(matches!(reader.read().unwrap_err(), ReadError::Truncated { .. }));
        let opened = Reader::open(path_in(&directory)).unwrap_err();
        assert!(
            matches!(opened, ReadError::Header { .. }) && opened.to_string().contains(&bytes.to_string()),
            "{opened}"
        );
    }
    assert!(matches!(reader.wait_changed(version, Duration::from_secs(60)).unwrap_err(), ReadError::Truncated { .. }));
    let error = writer.publish(&[row_of(2)], stamp(2)).unwrap_err();
    assert!(matches!(error, TableError::Lost { .. }), "{error:?}");
}

#[test]
fn a_table_removed_under_its_writer_is_told_and_can_be_made_again() {
    let directory = directory();
    let writer = Writer::create(path_in(&directory), 4).unwrap();
    fs::remove_file(path_in(&directory)).unwrap();
    assert!(matches!(writer.heartbeat(1).unwrap_err(), TableError::Lost { .. }));
    drop(writer);
    Writer::create(path_in(&directory), 4).unwrap().publish(&[row_of(1)], stamp(1)).unwrap();
}

#[test]
fn what_is_no_table_is_refused_by_name() {
    let directory = directory();
    let path = path_in(&directory);
    assert!(matches!(Reader::open(&path).unwrap_err(), ReadError::Io { .. }));
    assert!(matches!(Reader::open(directory.path()).unwrap_err(), ReadError::NotAFile { .. }));
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    assert!(
        matches!(Reader::open(&path).unwrap_err(), ReadError::NotAFile { .. }),
        "and does not wait for its other end"
    );
    fs::remove_file(&path).unwrap();
    fs::write(&path, [b'x'; 4096]).unwrap();
    let error = Reader::open(&path).unwrap_err();
    assert!(matches!(error, ReadError::Header { problem: HeaderError::Magic { .. }, .. }), "{error:?}");
    assert!(error.to_string().contains("xxxxxxxx"), "{error}");
}

/// Runs `script` in namespaces of its own with the table's directory as `$1` and this program as `$2`.
fn unshare(script: &str, path: &Path) -> Option<Output> {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-ec", script, "sh"]);
    command.arg(path.parent()?).arg(std::env::current_exe().unwrap()).env("BERTH_TEST_TABLE", path);
    command.output().ok()
}

fn assert_in_namespaces(setup: &str, role: &str, path: &Path) {
    if !unshare(setup, path).is_some_and(|output| output.status.success()) {
        eprintln!("skipped: this machine allows no mounts, not even in a user namespace");
        return;
    }
    let script = format!("{setup}; exec \"$2\" --exact children::{role} --ignored");
    let output = unshare(&script, path).unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[test]
fn a_full_file_system_is_a_clean_error() {
    let directory = directory();
    assert_in_namespaces("mount -t tmpfs -o size=64k tmpfs \"$1\"", "finds_no_room", &path_in(&directory));
}

#[test]
fn a_reader_in_a_container_goes_by_the_heartbeat_since_the_pid_means_nothing_there() {
    let directory = directory();
    let _writer = Other::start("publishes_once_and_beats_until_killed", &path_in(&directory));
    let mut reader = eventually("table", || Reader::open(path_in(&directory)).ok());
    eventually("heartbeat", || (freshness(&mut reader) == Freshness::Live).then_some(()));
    assert_in_namespaces("true", "hears_the_writer", &path_in(&directory));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is in the file: an answer or an error, in bounded time.
    #[test]
    fn a_damaged_table_is_read_or_refused(damage in prop::collection::vec((0..192 + 2 * 384usize, any::<u8>()), 1..8)) {
        let directory = directory();
        let mut writer = Writer::create(path_in(&directory), 2).unwrap();
        writer.publish(&[row_of(1), row_of(2)], stamp(1)).unwrap();
        let mut bytes = fs::read(path_in(&directory)).unwrap();
        // An odd sequence is a case of its own, and slow.
        damage.iter().filter(|(at, _)| *at != 64).for_each(|(at, byte)| bytes[*at] = *byte);
        let copy = directory.path().join("copy");
        fs::write(&copy, &bytes).unwrap();
        if let Ok(table) = Reader::open(&copy).and_then(|mut reader| reader.read()) {
            prop_assert!(table.rows.len() <= 2);
        }
    }
}
