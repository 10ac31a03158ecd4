//! The event stream as the client sees it: it outlives the daemon it is connected to.

use std::collections::VecDeque;
use std::time::Duration;

use berth_model::{Snapshot, Span};
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;

use super::sse::{Parser, RawEvent};
use super::{Client, ClientError, Peer};
use crate::events::Lagged;
use crate::feed::Notice;
use crate::routes::paths;

const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// What a follower learns.
#[derive(Debug)]
pub enum Followed {
    Connected,
    Change(Notice),
    Snapshot(Box<Snapshot>),
    Lagged(Lagged),
    /// The connection is gone or could not be made; the next call tries again after a while.
    Lost(ClientError),
}

/// An endless stream: after a loss it connects again, waiting longer each time.
///
/// A local connection is lost when the daemon ends, and ids start anew with the next one: they cannot tell what was
/// missed in between, so that is told as unknown.
#[derive(Debug)]
pub struct Follow {
    client: Client,
    path: String,
    /// There was a connection before.
    was_connected: bool,
    connection: Option<Connection>,
    wait: Duration,
    ready: VecDeque<Followed>,
}

#[derive(Debug)]
struct Connection {
    response: Response<Incoming>,
    parser: Parser,
}

impl Follow {
    pub(super) fn new(client: Client, snapshot_every: Option<Duration>) -> Self {
        let path = match snapshot_every {
            Some(every) => format!("{}?snapshot_every={}", paths::EVENTS, Span(every)),
            None => paths::EVENTS.to_owned(),
        };
        Self { client, path, was_connected: false, connection: None, wait: Duration::ZERO, ready: VecDeque::new() }
    }

    pub async fn next(&mut self) -> Followed {
        loop {
            if let Some(followed) = self.ready.pop_front() {
                return followed;
            }
            let Some(connection) = &mut self.connection else { return self.connect().await };
            match connection.events().await {
                Ok(events) => self.ready.extend(events.iter().filter_map(understand)),
                Err(error) => return self.lose(error),
            }
        }
    }

    async fn connect(&mut self) -> Followed {
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).clamp(FIRST_WAIT, LONGEST_WAIT);
        match self.client.stream(&self.path).await {
            Ok(response) => {
                self.wait = FIRST_WAIT;
                self.connection = Some(Connection { response, parser: Parser::default() });
                if std::mem::replace(&mut self.was_connected, true) {
                    self.ready.push_back(Followed::Lagged(Lagged { missed: None }));
                }
                Followed::Connected
            }
            Err(error) => Followed::Lost(error),
        }
    }

    fn lose(&mut self, error: Option<hyper::Error>) -> Followed {
        self.connection = None;
        Followed::Lost(error.map_or(ClientError::Ended, |source| self.client.failed(source)))
    }
}

impl Connection {
    /// Some events, or the error that ended the stream; `Err(None)` is its regular end.
    async fn events(&mut self) -> Result<Vec<RawEvent>, Option<hyper::Error>> {
        match self.response.frame().await {
            Some(Ok(frame)) => Ok(frame.data_ref().map(|bytes| self.parser.push(bytes)).unwrap_or_default()),
            Some(Err(error)) => Err(Some(error)),
            None => Err(None),
        }
    }
}

/// `None` for events a newer daemon may send and this client does not know.
fn understand(raw: &RawEvent) -> Option<Followed> {
    let understood = match raw.event.as_str() {
        "change" => serde_json::from_str(&raw.data).map(Followed::Change),
        "snapshot" => serde_json::from_str(&raw.data).map(Followed::Snapshot),
        "lagged" => serde_json::from_str(&raw.data).map(Followed::Lagged),
        _ => return None,
    };
    let (peer, path) = (Peer::Daemon, paths::EVENTS.to_owned());
    let failed = |source| Followed::Lost(ClientError::NotUnderstood { peer, path, source });
    Some(understood.unwrap_or_else(failed))
}
