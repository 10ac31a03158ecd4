//! The state of the host as it changes: from the daemon if one answers, else from an engine of our own.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use anyhow::{Context, Result};
use berth_api::{Client, ClientError, Followed, Notice, Version, paths};
use berth_engine::Engine;
pub use berth_engine::describe;
use berth_model::time::InvalidSpan;
use berth_model::{Settings, Snapshot, Span};

use crate::engine;
use crate::on_record::OnRecord;

/// More often is more work for the daemon than for the eyes.
const SHORTEST: Span = Span(Duration::from_millis(100));
const LONGEST: Span = Span(Duration::from_secs(3600));

#[derive(Debug, thiserror::Error)]
pub enum InvalidInterval {
    #[error(transparent)]
    Unreadable(#[from] InvalidSpan),
    #[error("the shortest interval is {SHORTEST}")]
    TooShort,
    #[error("the longest interval is {LONGEST}")]
    TooLong,
}

/// An interval of a view, as given on the command line.
pub fn interval(text: &str) -> Result<Span, InvalidInterval> {
    match text.parse::<Span>()? {
        span if span.get() < SHORTEST.get() => Err(InvalidInterval::TooShort),
        span if span.get() > LONGEST.get() => Err(InvalidInterval::TooLong),
        span => Ok(span),
    }
}

/// What a view is told.
#[derive(Debug)]
pub enum Update {
    Snapshot(Arc<Snapshot>),
    Change(Notice),
    /// Changes were missed; how many, if that can be known.
    Missed(Option<u64>),
    Connected,
    /// The daemon does not answer; it is being tried again.
    Lost(String),
}

/// Who does the looking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    Daemon,
    /// This process, and why it has to.
    OurOwn {
        because: String,
    },
}

impl Origin {
    /// Without a daemon: also what is on record about holds, in the rows and by itself.
    pub fn with_record(&self, settings: &Settings, snapshot: Arc<Snapshot>) -> (Arc<Snapshot>, Option<OnRecord>) {
        if *self == Origin::Daemon {
            return (snapshot, None);
        }
        let (mut snapshot, record) = (Arc::unwrap_or_clone(snapshot), OnRecord::read(settings));
        record.mark(&mut snapshot);
        (Arc::new(snapshot), Some(record))
    }
}

/// Updates until dropped.
#[derive(Debug)]
pub struct Live {
    pub origin: Origin,
    pub update_rx: Receiver<Update>,
    _engine: Option<Engine>,
}

impl Live {
    /// `every`: how often snapshots are wanted.
    pub fn open(settings: &Settings, every: Duration) -> Result<Self> {
        let client = Client::new(&settings.api.socket);
        let (update_tx, update_rx) = mpsc::channel();
        match ask::<Version>(&client, paths::VERSION)? {
            Ok(_) => {
                std::thread::Builder::new()
                    .name("berth-follow".into())
                    .spawn(move || follow(&client, every, &update_tx))?;
                Ok(Self { origin: Origin::Daemon, update_rx, _engine: None })
            }
            Err(error) => {
                let engine = watch(settings, update_tx, |_| ())?;
                let because = describe(&error);
                Ok(Self { origin: Origin::OurOwn { because }, update_rx, _engine: Some(engine) })
            }
        }
    }

    /// Updates of an engine of our own until the engine is dropped; `tap` sees every snapshot first.
    pub fn tapped(settings: &Settings, tap: impl FnMut(&Arc<Snapshot>) + Send + 'static) -> Result<(Self, Engine)> {
        let (update_tx, update_rx) = mpsc::channel();
        let engine = watch(settings, update_tx, tap)?;
        let origin = Origin::OurOwn { because: "this is a demonstration".to_owned() };
        Ok((Self { origin, update_rx, _engine: None }, engine))
    }
}

/// One request, for commands that need no stream. The outer error is our own failure, the inner one the daemon's.
pub fn ask<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<Result<T, ClientError>> {
    Ok(runtime()?.block_on(client.get(path)))
}

pub fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting an event loop")
}

/// Ends when nobody takes the updates any more.
fn follow(client: &Client, every: Duration, update_tx: &Sender<Update>) {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return drop(update_tx.send(Update::Lost(format!("{error:#}")))),
    };
    runtime.block_on(async {
        let mut follow = client.follow(Some(every));
        loop {
            let update = match follow.next().await {
                Followed::Connected => Update::Connected,
                Followed::Change(notice) => Update::Change(notice),
                Followed::Snapshot(snapshot) => Update::Snapshot(Arc::from(snapshot)),
                Followed::Lagged(lagged) => Update::Missed(lagged.missed),
                Followed::Lost(error) => Update::Lost(describe(&error)),
            };
            if update_tx.send(update).is_err() {
                return;
            }
        }
    });
}

fn watch(
    settings: &Settings,
    update_tx: Sender<Update>,
    mut tap: impl FnMut(&Arc<Snapshot>) + Send + 'static,
) -> Result<Engine> {
    let mut last_id = 0;
    engine::for_view(settings, move |snapshot, changes| {
        for change in changes {
            last_id += 1;
            // Nobody listens any more: the engine is about to be dropped.
            let _ =
                update_tx.send(Update::Change(Notice { id: last_id, time: snapshot.taken_at, change: change.clone() }));
        }
        tap(&snapshot);
        let _ = update_tx.send(Update::Snapshot(snapshot));
    })
}
