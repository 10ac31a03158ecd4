//! What earlier daemons wrote down, taken in when its tenant is seen: detectors need not learn anew what is usual.
//!
//! Read once, on a thread of its own: of each figure the latest values, so that one that is written often takes no room from one that is written seldom. A figure is taken in only for the tenant it was written of while it has the same owner: what is
//! said of somebody's work is said by its own figures.

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use berth_model::watch::series::{Key, Line, Metric, Of};
use berth_model::{Anchor, Mono, TenantKey};
use jiff::Timestamp;

use super::tenant::Watched;

/// What has lasted for so many values is usual: older ones say nothing more.
const MOST: usize = 1_000;
/// Of which detectors and moods are made.
const WANTED: [Metric; 8] = [
    Metric::Slack,
    Metric::ActiveSeconds,
    Metric::PredictorError,
    Metric::Feedback,
    Metric::WaitSeconds,
    Metric::KernelWaitSeconds,
    Metric::IdleHoldSeconds,
    Metric::MemoryBytes,
];

#[derive(Debug, Default)]
pub(super) struct Past {
    reading: Option<Receiver<Vec<Line>>>,
    lines: Vec<Line>,
}

impl Past {
    pub fn read(dir: PathBuf) -> Self {
        let (lines_tx, reading) = mpsc::channel();
        // What this daemon writes itself is none of it.
        let until_ms = Timestamp::now().as_millisecond();
        let read = move || {
            let is_wanted = |key: &Key| matches!(key.of, Of::Tenant { .. }) && WANTED.contains(&key.metric);
            match berth_store::series::latest(&dir, MOST, until_ms, &is_wanted) {
                // Nobody waits for it if the daemon has ended.
                Ok(lines) => drop(lines_tx.send(lines)),
                Err(error) => tracing::warn!(error = crate::describe(&error), "what is usual is learned anew"),
            }
        };
        match std::thread::Builder::new().name("berth-past".into()).spawn(read) {
            Ok(_) => Self { reading: Some(reading), lines: Vec::new() },
            Err(error) => {
                tracing::warn!(%error, "what is usual is learned anew");
                Self::default()
            }
        }
    }

    /// Gives a tenant what is its own, once.
    pub fn taken_in(&mut self, tenant: &TenantKey, watched: &mut Watched, now: &Anchor) {
        self.hear();
        if self.lines.is_empty() {
            return;
        }
        let of = watched.of(tenant);
        let at = |at_ms: i64| {
            let ago_ms = now.wall.as_millisecond().saturating_sub(at_ms);
            let ago = Duration::from_millis(u64::try_from(ago_ms).unwrap_or(0));
            Mono(now.mono.0.saturating_sub(u64::try_from(ago.as_nanos()).unwrap_or(u64::MAX)))
        };
        self.lines.extract_if(.., |line| is_of(&line.key.of, &of)).for_each(|line| watched.recall(&line, &at));
    }

    /// Until all of it has been read.
    #[cfg(test)]
    pub fn wait(&mut self) {
        self.lines = self.reading.take().map(|reading| reading.recv().unwrap()).unwrap_or_default();
    }

    fn hear(&mut self) {
        match self.reading.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(lines)) => self.lines = lines,
            Some(Err(TryRecvError::Disconnected)) => {}
        }
        self.reading = None;
    }
}

/// Whatever it was called.
fn is_of(one: &Of, other: &Of) -> bool {
    match (one, other) {
        (Of::Tenant { tenant, owner, .. }, Of::Tenant { tenant: other, owner: its, .. }) => {
            tenant == other && owner == its
        }
        _ => false,
    }
}
