//! The thread that writes, so that nobody who has something to record waits for a disk.
//!
//! A record is with the kernel as soon as the thread has run, and so outlives the daemon; it is synced to the disk within
//! [`SYNC_WITHIN`], and so outlives the machine but for that. What cannot be written, or comes faster than it can be, is
//! dropped, counted and told.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_model::history::Record;

use super::append::Appender;
use super::{HistoryError, line, open_tasks, read};
use crate::place::Place;

/// Records that wait to be written; a task or a hold is one.
const QUEUE: usize = 4_096;
/// Records written at once.
const BATCH: usize = 256;
const SYNC_WITHIN: Duration = Duration::from_secs(1);
/// Bytes of the newest records that are looked at when a daemon starts, some ten thousand: it must not take long.
const REPLAYED: u64 = 8 << 20;

/// The history of this host, and the right to write it. Dropping it ends the writing, when all writers are gone and all
/// they wrote is on disk.
#[derive(Debug)]
pub struct History {
    writer: Option<Writer>,
    thread: Option<JoinHandle<()>>,
    /// Tasks that were under way when the daemon before this one was last heard of, and of whose end nothing is written.
    pub left_open: Vec<Record>,
    /// Of these the units of work may go on: whatever is not known to have ended.
    pub left_units: Vec<Record>,
}

#[derive(Debug)]
enum Message {
    Record(Box<Record>),
    /// All tasks that are under way now.
    Open(Vec<Record>),
}

/// Hands records to the history. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    message_tx: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

impl History {
    /// Takes the history in `dir`, which keeps at most `most` bytes, and gives the last records to `each` in the order they
    /// were written. Blocks for the reading of them.
    pub fn open(
        dir: &Path,
        most: u64,
        proc_root: &Path,
        mut each: impl FnMut(Record),
    ) -> Result<History, HistoryError> {
        let appender = Appender::open(dir, most, proc_root)?;
        let mut left_open = left_open(appender.place());
        let mut left_units = left_open.clone();
        let damaged = read::replay(appender.place(), REPLAYED, |record| {
            left_open.retain(|open| !open_tasks::is_same(open, &record));
            left_units.retain(|open| !open_tasks::is_same(open, &record) || !open_tasks::has_ended(&record));
            left_units.iter_mut().for_each(|open| open_tasks::forget_judged(open, &record));
            each(record);
        })?;
        if damaged > 0 {
            tracing::warn!(damaged, dir = %dir.display(), "lines of the history cannot be read and are left out");
        }
        let (message_tx, message_rx) = mpsc::sync_channel(QUEUE);
        let writer = Writer { message_tx, dropped: Arc::default() };
        let mut scribe = Scribe { appender, dropped: writer.dropped.clone(), lost: 0, dirty_since: None };
        let thread = std::thread::Builder::new()
            .name("berth-history".into())
            .spawn(move || scribe.run(&message_rx))
            .map_err(|source| HistoryError::Thread { source })?;
        Ok(History { writer: Some(writer), thread: Some(thread), left_open, left_units })
    }

    pub fn writer(&self) -> Writer {
        self.writer.clone().expect("there is one until it is dropped")
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.writer = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on its own thread.
            let _ = thread.join();
        }
    }
}

impl Writer {
    /// Never blocks. A record that finds no room is dropped, and the thread tells of it.
    pub fn write(&self, record: Record) {
        match self.message_tx.try_send(Message::Record(Box::new(record))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Tasks that are under way, as they would be recorded if nothing more were heard of them; they take the place of those told
    /// before. Never blocks; `false` if there was no room for them.
    pub fn keep_open(&self, tasks: Vec<Record>) -> bool {
        self.message_tx.try_send(Message::Open(tasks)).is_ok()
    }
}

fn left_open(place: &Place) -> Vec<Record> {
    open_tasks::read(place).unwrap_or_else(|error| {
        tracing::warn!(%error, dir = %place.path().display(), "tasks that were under way cannot be read");
        Vec::new()
    })
}

struct Scribe {
    appender: Appender,
    /// Dropped by writers for want of room, and not told yet.
    dropped: Arc<AtomicU64>,
    /// Records lost since writing last worked.
    lost: u64,
    /// When the first of what is not synced was written.
    dirty_since: Option<Instant>,
}

impl Scribe {
    fn run(&mut self, message_rx: &Receiver<Message>) {
        loop {
            let patience = self.dirty_since.map(|since| SYNC_WITHIN.saturating_sub(since.elapsed()));
            let first = match patience {
                Some(patience) => message_rx.recv_timeout(patience),
                None => message_rx.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match first {
                Ok(first) => self.take(std::iter::once(first).chain(message_rx.try_iter()).take(BATCH)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
            if self.dirty_since.is_some_and(|since| since.elapsed() >= SYNC_WITHIN) {
                self.sync();
            }
        }
    }

    /// Records first: a task that has ended is then told twice at worst, which is noticed, and never not at all.
    fn take(&mut self, messages: impl Iterator<Item = Message>) {
        let (mut records, mut open) = (Vec::new(), None);
        for message in messages {
            match message {
                Message::Record(record) => records.push(*record),
                Message::Open(tasks) => open = Some(tasks),
            }
        }
        if !records.is_empty() {
            self.write(records.into_iter());
        }
        if let Some(Err(error)) = open.map(|tasks| open_tasks::write(self.appender.place(), &tasks)) {
            tracing::debug!(%error, "tasks under way are not on record");
        }
    }

    fn write(&mut self, records: impl Iterator<Item = Record>) {
        let (mut lines, mut count) = (Vec::new(), 0);
        for record in records {
            if line::encode(&record, &mut lines) {
                count += 1;
            } else {
                tracing::warn!(tenant = %record.tenant, "a record is too long to be written down");
            }
        }
        match self.appender.append(&lines) {
            Ok(()) => {
                self.dirty_since.get_or_insert_with(Instant::now);
                if self.lost > 0 {
                    tracing::info!(lost = self.lost, "the history is written again; some records are missing from it");
                }
                self.lost = 0;
            }
            Err(error) => {
                // Once per outage: a full disk need not be filled with this.
                if self.lost == 0 {
                    tracing::warn!(
                        error = chain(&error),
                        "the history cannot be written; records are dropped until it can"
                    );
                }
                self.lost += count;
            }
        }
        match self.dropped.swap(0, Ordering::Relaxed) {
            0 => {}
            dropped => tracing::warn!(dropped, "more happened than the history's disk could take; records are missing"),
        }
    }

    fn sync(&mut self) {
        if self.dirty_since.take().is_some()
            && let Err(error) = self.appender.sync()
        {
            tracing::warn!(error = chain(&error), "the history may not outlive a power failure");
        }
    }
}

fn chain(error: &HistoryError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::testing::released;

    /// Nobody takes records from the queue, as if the disk hung.
    #[test]
    fn a_record_that_finds_no_room_is_dropped_and_counted_and_nobody_waits() {
        let (message_tx, message_rx) = mpsc::sync_channel(2);
        let writer = Writer { message_tx, dropped: Arc::default() };
        for second in 0..5 {
            writer.write(released(second, "its turn"));
        }
        assert_eq!((message_rx.try_iter().count(), writer.dropped.load(Ordering::Relaxed)), (2, 3));
    }
}
