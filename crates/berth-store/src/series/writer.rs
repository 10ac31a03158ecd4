//! The thread that writes, so that nobody who has measured something waits for a disk.
//!
//! Values are with the kernel as soon as the thread has run, and so outlive the daemon; they are synced to the disk within
//! [`SYNC_WITHIN`]. What cannot be written, or comes faster than it can be, is lost, counted and told.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use berth_model::watch::series::Key;

use super::append::Appender;
use super::upkeep::upkeep;
use super::{Limits, SeriesError};

/// Lots that wait to be written; one is of an instant.
const QUEUE: usize = 256;
const SYNC_WITHIN: Duration = Duration::from_secs(5);
/// Of the values' own time.
const UPKEEP_EVERY_MS: i64 = 10 * 60 * 1_000;

/// The figures of this host, and the right to write them. Dropping it ends the writing, when all writers are gone and all they
/// wrote is on disk.
#[derive(Debug)]
pub struct Series {
    writer: Option<Writer>,
    thread: Option<JoinHandle<()>>,
}

/// Hands values over. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Writer {
    message_tx: SyncSender<Message>,
    counts: Arc<Counts>,
}

/// How the store does, since the daemon started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Health {
    pub written: u64,
    /// Values that could not be written, or came too fast.
    pub lost: u64,
    /// On disk, when it was last looked after.
    pub bytes: u64,
    pub segments: u64,
}

#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    lost: AtomicU64,
    bytes: AtomicU64,
    segments: AtomicU64,
}

#[derive(Debug)]
enum Message {
    Values {
        at_ms: i64,
        values: Vec<(Key, f64)>,
    },
    /// Answered when everything before it is with the kernel.
    Flush(SyncSender<()>),
}

impl Series {
    /// Takes the figures in `dir`, which is made if it is missing.
    pub fn open(dir: &Path, limits: Limits, proc_root: &Path) -> Result<Series, SeriesError> {
        let appender = Appender::open(dir, limits, proc_root)?;
        let (message_tx, message_rx) = mpsc::sync_channel(QUEUE);
        let counts = Arc::<Counts>::default();
        let writer = Writer { message_tx, counts: Arc::clone(&counts) };
        let mut scribe = Scribe { appender, counts, lost: 0, dirty_since: None, upkeep_at: None, has_told: false };
        let thread = std::thread::Builder::new()
            .name("berth-series".into())
            .spawn(move || scribe.run(&message_rx))
            .map_err(|source| SeriesError::Thread { source })?;
        Ok(Series { writer: Some(writer), thread: Some(thread) })
    }

    pub fn writer(&self) -> Writer {
        self.writer.clone().expect("there is one until it is dropped")
    }
}

impl Drop for Series {
    fn drop(&mut self) {
        self.writer = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been reported on its own thread.
            let _ = thread.join();
        }
    }
}

impl Writer {
    /// Values of one instant, in milliseconds since 1970. Never blocks: what finds no room is lost. Numbers that are none (NaN,
    /// infinite) are left out.
    pub fn write(&self, at_ms: i64, mut values: Vec<(Key, f64)>) {
        values.retain(|(_, value)| value.is_finite());
        let many = values.len() as u64;
        match self.message_tx.try_send(Message::Values { at_ms, values }) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counts.lost.fetch_add(many, Ordering::Relaxed);
            }
        }
    }

    /// Waits until everything handed over before is with the kernel, or lost.
    pub fn flush(&self) {
        let (done_tx, done_rx) = mpsc::sync_channel(1);
        if self.message_tx.send(Message::Flush(done_tx)).is_ok() {
            // An error is a thread that has ended: there is nothing left to wait for.
            let _ = done_rx.recv();
        }
    }

    pub fn health(&self) -> Health {
        let Counts { written, lost, bytes, segments } = &*self.counts;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Health { written: of(written), lost: of(lost), bytes: of(bytes), segments: of(segments) }
    }
}

struct Scribe {
    appender: Appender,
    counts: Arc<Counts>,
    /// Values lost since writing last worked.
    lost: u64,
    /// When the first of what is not synced was written.
    dirty_since: Option<Instant>,
    /// When segments are looked after next, by the time of values.
    upkeep_at: Option<i64>,
    /// That they cannot be looked after has been told.
    has_told: bool,
}

impl Scribe {
    fn run(&mut self, message_rx: &Receiver<Message>) {
        loop {
            let patience = self.dirty_since.map(|since| SYNC_WITHIN.saturating_sub(since.elapsed()));
            let message = match patience {
                Some(patience) => message_rx.recv_timeout(patience),
                None => message_rx.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Values { at_ms, values }) => self.write(at_ms, values),
                // Nobody waits for it any more if the other end is gone.
                Ok(Message::Flush(done)) => drop(done.send(())),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return self.sync(),
            }
            if self.dirty_since.is_some_and(|since| since.elapsed() >= SYNC_WITHIN) {
                self.sync();
            }
        }
    }

    fn write(&mut self, at_ms: i64, values: Vec<(Key, f64)>) {
        let many = values.len() as u64;
        match self.appender.append(at_ms, values) {
            Ok(is_new) => {
                self.dirty_since.get_or_insert_with(Instant::now);
                self.counts.written.fetch_add(many, Ordering::Relaxed);
                if self.lost > 0 {
                    tracing::info!(lost = self.lost, "figures are written again; some are missing");
                }
                self.lost = 0;
                let is_time = self.upkeep_at.is_none_or(|at| at_ms >= at || at - at_ms > UPKEEP_EVERY_MS);
                if is_new || is_time {
                    self.upkeep(at_ms);
                }
            }
            Err(error) => {
                // Once per outage: a full disk need not be filled with this.
                if self.lost == 0 {
                    tracing::warn!(error = chain(&error), "figures cannot be written; they are lost until they can");
                }
                self.lost += many;
                self.counts.lost.fetch_add(many, Ordering::Relaxed);
                // Room may be made by what is too old.
                self.upkeep(at_ms);
            }
        }
    }

    fn upkeep(&mut self, now_ms: i64) {
        self.upkeep_at = Some(now_ms.saturating_add(UPKEEP_EVERY_MS));
        let (place, limits) = (self.appender.place(), self.appender.limits());
        match upkeep(place, limits, now_ms, self.appender.growing()) {
            Ok(stock) => {
                self.counts.bytes.store(stock.bytes, Ordering::Relaxed);
                self.counts.segments.store(stock.segments, Ordering::Relaxed);
                self.has_told = false;
                if stock.has_more {
                    self.upkeep_at = None;
                }
            }
            Err(error) if !self.has_told => {
                tracing::warn!(error = chain(&error), "old figures cannot be put together or removed");
                self.has_told = true;
            }
            Err(_) => {}
        }
    }

    fn sync(&mut self) {
        if self.dirty_since.take().is_some()
            && let Err(error) = self.appender.sync()
        {
            tracing::warn!(error = chain(&error), "figures may not outlive a power failure");
        }
    }
}

fn chain(error: &SeriesError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::tests::key;

    /// Nobody takes values from the queue, as if the disk hung.
    #[test]
    fn values_that_find_no_room_are_lost_and_counted_and_nobody_waits() {
        let (message_tx, message_rx) = mpsc::sync_channel(2);
        let writer = Writer { message_tx, counts: Arc::default() };
        for at_ms in 0..5 {
            writer.write(at_ms, vec![(key(1), 1.0), (key(2), f64::NAN)]);
        }
        assert_eq!((message_rx.try_iter().count(), writer.health().lost), (2, 3));
    }
}
