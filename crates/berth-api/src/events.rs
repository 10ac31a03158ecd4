//! `/v1/events`: the stream of changes as server-sent events.
//!
//! A listener pulls; the feed never waits for it. One that falls further behind than the feed's backlog gets a `lagged`
//! event with the number of changes it missed, and goes on from there. With `snapshot_every` the latest snapshot comes
//! along too, never more often than asked for and never queued: a slow listener gets fewer of them, not older ones.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use berth_model::{Snapshot, Span};
use futures_util::Stream;
use futures_util::stream;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::feed::{Feed, Latest, Notice, Subscription};

/// A comment this often keeps proxies and clients from taking silence for death.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Also send snapshots, at most this often.
    pub snapshot_every: Option<Span>,
}

/// Data of a `lagged` event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lagged {
    /// How many changes were missed; `None` after a restart of the daemon, when nobody can know.
    pub missed: Option<u64>,
}

#[derive(Debug, PartialEq)]
enum Message {
    Change(Arc<Notice>),
    Snapshot(Arc<Snapshot>),
    Lagged(Lagged),
}

struct Follower {
    subscription: Subscription,
    /// What was missed before this connection, to be told first.
    missed_before: Option<Lagged>,
    snapshots: Option<SnapshotTimer>,
}

struct SnapshotTimer {
    every: Duration,
    due: Instant,
}

/// `last_seen`: the id of the last change this client got on an earlier connection.
pub(crate) fn stream(
    feed: &Feed,
    query: &EventsQuery,
    last_seen: Option<u64>,
) -> Sse<impl Stream<Item = Result<Event, Infallible>> + use<>> {
    let follower = Follower::new(feed, query, last_seen);
    let events = stream::unfold(follower, |mut follower| async move {
        let message = follower.next().await?;
        Some((Ok(message.into_event()), follower))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

impl Follower {
    fn new(feed: &Feed, query: &EventsQuery, last_seen: Option<u64>) -> Self {
        let mut subscription = feed.subscribe();
        let snapshots = query.snapshot_every.map(|every| {
            subscription.latest.mark_changed();
            SnapshotTimer { every: every.get(), due: Instant::now() }
        });
        let missed_before = missed_before(last_seen, subscription.last_id);
        Self { subscription, missed_before, snapshots }
    }

    /// `None` at the end of the stream: the daemon is stopping.
    async fn next(&mut self) -> Option<Message> {
        if let Some(lagged) = self.missed_before.take() {
            return Some(Message::Lagged(lagged));
        }
        let Subscription { notices, latest, closing, .. } = &mut self.subscription;
        tokio::select! {
            biased;
            _ = closing.wait_for(|closing| *closing) => None,
            received = notices.recv() => match received {
                Ok(notice) => Some(Message::Change(notice)),
                Err(RecvError::Lagged(missed)) => Some(Message::Lagged(Lagged { missed: Some(missed) })),
                Err(RecvError::Closed) => None,
            },
            snapshot = next_snapshot(latest, &mut self.snapshots) => snapshot.map(Message::Snapshot),
        }
    }
}

/// Can be dropped at any await and asked again: the time it is due is kept outside.
async fn next_snapshot(
    latest: &mut watch::Receiver<Option<Latest>>,
    timer: &mut Option<SnapshotTimer>,
) -> Option<Arc<Snapshot>> {
    let Some(timer) = timer else { return std::future::pending().await };
    tokio::time::sleep_until(timer.due).await;
    loop {
        latest.changed().await.ok()?;
        if let Some(latest) = latest.borrow_and_update().clone() {
            timer.due = Instant::now() + timer.every;
            return Some(latest.snapshot);
        }
    }
}

fn missed_before(last_seen: Option<u64>, last_id: u64) -> Option<Lagged> {
    match last_seen?.cmp(&last_id) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Less => Some(Lagged { missed: last_seen.map(|seen| last_id - seen) }),
        std::cmp::Ordering::Greater => Some(Lagged { missed: None }),
    }
}

impl Message {
    fn into_event(self) -> Event {
        let (event, json) = match &self {
            Message::Change(notice) => {
                (Event::default().event("change").id(notice.id.to_string()), serde_json::to_string(notice.as_ref()))
            }
            Message::Snapshot(snapshot) => {
                (Event::default().event("snapshot"), serde_json::to_string(snapshot.as_ref()))
            }
            Message::Lagged(lagged) => (Event::default().event("lagged"), serde_json::to_string(lagged)),
        };
        match json {
            Ok(json) => event.data(json),
            Err(error) => Event::default().comment(format!("left out: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::samples::{change, snapshot};

    fn follower(feed: &Feed, every: Option<u64>, last_seen: Option<u64>) -> Follower {
        Follower::new(feed, &EventsQuery { snapshot_every: every.map(Span::from_millis) }, last_seen)
    }

    #[tokio::test]
    async fn a_listener_too_slow_is_told_how_many_it_missed_and_goes_on_with_the_rest() {
        let feed = Feed::with_backlog(4);
        let mut slow = follower(&feed, None, None);
        for _ in 0..10 {
            feed.publish(snapshot(), &[change()]);
        }
        assert_eq!(slow.next().await, Some(Message::Lagged(Lagged { missed: Some(6) })));
        for id in 7..=10 {
            assert!(matches!(slow.next().await, Some(Message::Change(notice)) if notice.id == id), "{id}");
        }
    }

    #[tokio::test]
    async fn a_listener_that_comes_back_is_told_what_it_missed_meanwhile() {
        let feed = Feed::new();
        feed.publish(snapshot(), &[change(), change(), change()]);
        assert_eq!(follower(&feed, None, Some(1)).next().await, Some(Message::Lagged(Lagged { missed: Some(2) })));
        assert_eq!(follower(&feed, None, Some(9)).next().await, Some(Message::Lagged(Lagged { missed: None })));
        assert!(follower(&feed, None, Some(3)).missed_before.is_none());
        assert!(follower(&feed, None, None).missed_before.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn snapshots_come_no_more_often_than_asked_for_and_are_the_latest() {
        let feed = Feed::new();
        feed.publish(snapshot(), &[]);
        let mut listener = follower(&feed, Some(500), None);
        let begin = Instant::now();
        assert!(matches!(listener.next().await, Some(Message::Snapshot(_))));
        assert_eq!(begin.elapsed(), Duration::ZERO);
        for _ in 0..20 {
            feed.publish(snapshot(), &[]);
        }
        let newest = feed.latest().unwrap();
        assert!(matches!(listener.next().await, Some(Message::Snapshot(got)) if Arc::ptr_eq(&got, &newest)));
        assert_eq!(begin.elapsed(), Duration::from_millis(500));
    }

    #[tokio::test]
    async fn closing_the_feed_ends_the_stream() {
        let feed = Feed::new();
        let mut listener = follower(&feed, Some(500), None);
        feed.close();
        assert_eq!(listener.next().await, None);
    }
}
