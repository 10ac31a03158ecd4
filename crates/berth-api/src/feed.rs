//! The latest snapshot and the stream of changes, between one publisher and any number of listeners.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_model::{Change, Snapshot};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

/// How many changes a listener may be behind before it misses some.
const BACKLOG: usize = 1024;

/// A change as listeners get it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    /// Counts up by one from 1 since the daemon started, so a gap is a loss.
    pub id: u64,
    /// Wall time of the snapshot the change came with.
    pub time: Timestamp,
    #[serde(flatten)]
    pub change: Change,
}

/// Publishing is for a plain thread: it takes no time that depends on listeners.
#[derive(Debug)]
pub struct Feed {
    latest: watch::Sender<Option<Latest>>,
    notices: broadcast::Sender<Arc<Notice>>,
    /// Held while a notice is sent or a listener joins, so that "the last id" and "what follows" fit together.
    last_id: Mutex<u64>,
    closing: watch::Sender<bool>,
}

/// `at`: when it was published, by a clock that does not jump.
#[derive(Debug, Clone)]
pub(crate) struct Latest {
    pub snapshot: Arc<Snapshot>,
    pub at: Instant,
}

/// A listener's place in the stream, from the moment it joined.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub last_id: u64,
    pub notices: broadcast::Receiver<Arc<Notice>>,
    pub latest: watch::Receiver<Option<Latest>>,
    pub closing: watch::Receiver<bool>,
}

impl Default for Feed {
    fn default() -> Self {
        Self::with_backlog(BACKLOG)
    }
}

impl Feed {
    pub fn new() -> Self {
        Self::default()
    }

    /// `backlog`: how many changes a listener may be behind before it misses some.
    pub fn with_backlog(backlog: usize) -> Self {
        Self {
            latest: watch::Sender::new(None),
            notices: broadcast::Sender::new(backlog),
            last_id: Mutex::new(0),
            closing: watch::Sender::new(false),
        }
    }

    /// The snapshot goes first: who is told of a change finds it there.
    pub fn publish(&self, snapshot: Arc<Snapshot>, changes: &[Change]) {
        let time = snapshot.taken_at;
        self.latest.send_replace(Some(Latest { snapshot, at: Instant::now() }));
        if changes.is_empty() {
            return;
        }
        let mut last_id = self.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        for change in changes {
            *last_id += 1;
            // Fails only when nobody listens, which is fine.
            let _ = self.notices.send(Arc::new(Notice { id: *last_id, time, change: change.clone() }));
        }
    }

    /// `None` until the first snapshot is published.
    pub fn latest(&self) -> Option<Arc<Snapshot>> {
        self.latest.borrow().as_ref().map(|latest| Arc::clone(&latest.snapshot))
    }

    /// How long ago the latest snapshot was published. The engine publishes every second at least: more means trouble.
    pub fn age(&self) -> Option<Duration> {
        self.latest.borrow().as_ref().map(|latest| latest.at.elapsed())
    }

    /// Ends every event stream, so that a server can stop in time.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    pub(crate) fn subscribe(&self) -> Subscription {
        let last_id = self.last_id.lock().unwrap_or_else(PoisonError::into_inner);
        Subscription {
            last_id: *last_id,
            notices: self.notices.subscribe(),
            latest: self.latest.subscribe(),
            closing: self.closing.subscribe(),
        }
    }
}
