//! `berth ps --watch`: what is shown when. A snapshot is shown as it arrives, never more often than asked for.

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::Result;
use berth_model::{Settings, Snapshot};

use super::{Args, Told, show};
use crate::live::{Live, Origin, Update};
use crate::out::Stdout;

/// With nothing to show there is nothing to do but listen.
const NOTHING_DUE: Duration = Duration::from_secs(3600);
const HOME_AND_CLEAR: &str = "\u{1b}[H\u{1b}[2J";

/// A line per interval, or a screen if somebody looks at it.
pub fn run(args: &Args, settings: &Settings, interval: Duration) -> Result<()> {
    let live = Live::open(settings, interval)?;
    if let Origin::OurOwn { because } = &live.origin {
        eprintln!("berth: {because}; watching without it");
    }
    let (mut pace, mut told) = (Pace::new(interval, Instant::now()), Told::default());
    loop {
        match live.update_rx.recv_timeout(pace.wait(Instant::now())) {
            Ok(Update::Snapshot(snapshot)) => pace.latest = Some(snapshot),
            Ok(Update::Lost(reason)) => eprintln!("berth: {reason}; trying again"),
            Ok(Update::Change(_) | Update::Missed(_) | Update::Connected) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if let Some(snapshot) = pace.take(Instant::now()) {
            let (snapshot, record) = live.origin.with_record(settings, snapshot);
            if Stdout::is_terminal() && !args.json {
                Stdout::text(HOME_AND_CLEAR)?;
                // What was said is wiped off, too.
                told = Told::default();
            }
            show(args, &snapshot, record.as_ref(), &mut told)?;
        }
    }
}

/// Keeps the newest snapshot until the interval since the last one shown is over, which it mostly is.
#[derive(Debug)]
struct Pace {
    interval: Duration,
    due: Instant,
    latest: Option<Arc<Snapshot>>,
}

impl Pace {
    /// The first snapshot is due at once.
    fn new(interval: Duration, now: Instant) -> Self {
        Self { interval, due: now, latest: None }
    }

    /// How long nothing can be due, unless a snapshot arrives.
    fn wait(&self, now: Instant) -> Duration {
        if self.latest.is_some() { self.due.saturating_duration_since(now) } else { NOTHING_DUE }
    }

    /// What is to be shown now.
    fn take(&mut self, now: Instant) -> Option<Arc<Snapshot>> {
        if now < self.due {
            return None;
        }
        let latest = self.latest.take()?;
        self.due = now + self.interval;
        Some(latest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{busy, empty, shared};

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    fn a_snapshot_that_arrives_when_one_is_due_is_shown_at_once_and_once() {
        let begin = Instant::now();
        let mut pace = Pace::new(INTERVAL, begin);
        for turn in [0, 1, 2] {
            // A little late, as what a daemon sends after exactly one interval is.
            let now = begin + INTERVAL * turn + Duration::from_millis(u64::from(turn) * 5);
            assert_eq!(pace.take(now), None, "there is nothing new in turn {turn}");
            assert_eq!(pace.wait(now), NOTHING_DUE);
            let arrived = shared(busy());
            pace.latest = Some(arrived.clone());
            assert_eq!(pace.wait(now), Duration::ZERO);
            assert!(pace.take(now).is_some_and(|shown| Arc::ptr_eq(&shown, &arrived)), "turn {turn}");
        }
    }

    #[test]
    fn of_snapshots_that_come_too_often_the_newest_is_shown_when_the_interval_is_over() {
        let begin = Instant::now();
        let mut pace = Pace::new(INTERVAL, begin);
        pace.latest = Some(shared(busy()));
        assert!(pace.take(begin).is_some());
        let newest = shared(empty());
        for early in [shared(busy()), newest.clone()] {
            pace.latest = Some(early);
            assert_eq!(pace.take(begin + INTERVAL / 2), None);
        }
        assert_eq!(pace.wait(begin + INTERVAL / 2), INTERVAL / 2);
        assert!(pace.take(begin + INTERVAL).is_some_and(|shown| Arc::ptr_eq(&shown, &newest)));
    }
}
