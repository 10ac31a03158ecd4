//! Readers and a writer that never pause: no copy may ever mix two publishes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use berth_proto::table::{ReadError, Reader, Table, Writer};

use crate::support::{Other, directory, eventually, path_in, rows_of, stamp};

const MOST_ROWS: u64 = 64;

/// Whether all of it was published together. The counter it was published with.
fn assert_whole(table: &Table) -> u64 {
    let counter = table.updated.map_or(0, |updated| updated.mono_ns);
    assert_eq!(table.version.sequence, 2 * counter, "the rows belong to another sequence");
    if counter > 0 {
        assert_eq!(table.updated, Some(stamp(counter)));
        assert_eq!(table.rows, rows_of(counter, MOST_ROWS));
    }
    counter
}

/// Reads until 1,000 different tables were seen.
fn read_many(reader: &mut Reader) {
    let (mut last, mut seen) = (0, 0);
    eventually("1,000 changes", || {
        let counter = match reader.read() {
            Ok(table) => assert_whole(&table),
            // Only if the writer was off the processor for long in the middle of a publish.
            Err(ReadError::Busy { .. }) => last,
            Err(error) => panic!("{error}"),
        };
        assert!(counter >= last, "went back from {last} to {counter}");
        seen += u32::from(counter > last);
        last = counter;
        (seen >= 1_000).then_some(())
    });
}

#[test]
fn no_reader_ever_sees_a_torn_table() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 64).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for counter in (1..).take_while(|_| !done.load(Ordering::Relaxed)) {
                writer.publish(&rows_of(counter, MOST_ROWS), stamp(counter)).unwrap();
            }
        });
        let readers = [0, 1].map(|_| {
            let mut reader = Reader::open(path_in(&directory)).unwrap();
            scope.spawn(move || read_many(&mut reader))
        });
        let results = readers.map(thread::ScopedJoinHandle::join);
        done.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
}

#[test]
fn no_reader_ever_sees_a_torn_table_of_another_process() {
    let directory = directory();
    let _writer = Other::start("publishes_until_killed", &path_in(&directory));
    let mut reader = eventually("table", || Reader::open(path_in(&directory)).ok());
    read_many(&mut reader);
}

#[test]
fn a_stopped_reader_does_not_hold_up_the_writer() {
    let directory = directory();
    let mut writer = Writer::create(path_in(&directory), 64).unwrap();
    writer.publish(&rows_of(1, MOST_ROWS), stamp(1)).unwrap();
    let readers = [0, 1].map(|_| Other::start("reads_until_killed", &path_in(&directory)));
    for round in 0..10 {
        readers.iter().for_each(Other::stop);
        // Publishing has no way to wait: if it had, this would never end, since nobody continues the readers.
        for counter in 0..100 {
            let counter = 2 + round * 100 + counter;
            writer.publish(&rows_of(counter, MOST_ROWS), stamp(counter)).unwrap();
        }
        readers.iter().for_each(|reader| reader.signal(libc::SIGCONT));
    }
    let table = Reader::open(path_in(&directory)).unwrap().read().unwrap();
    assert_eq!(assert_whole(&table), 1_001);
}
