//! The way from a request to the loop: who asks, by what the kernel says of the socket's other end, and the answer.
//!
//! Whoever may open the socket may read; acting is judged by the loop, ask by ask, from the [`Caller`] made here.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use berth_model::Snapshot;
use berth_model::cluster::Report;
use berth_model::control::{Answer, Ask, Caller, Reply, What};
use berth_model::history::{Query, Told};
use berth_model::watch::series::{SeriesQuery, SeriesTold};
use tokio::net::UnixStream;
use tokio::sync::oneshot;

use crate::error::ApiError;
use crate::feed::Feed;

const USERS: &str = "/etc/passwd";

/// Longer than the loop takes to answer that something is still under way, shorter than clients wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(4);

/// Who decides about holds. Asking does not block; a reply that is dropped means that nobody decides any more.
pub trait Control: Send + Sync {
    fn ask(&self, ask: Ask, reply: Reply);

    /// What is remembered, from files: called where blocking is no harm. `Err`: why it cannot be told.
    fn history(&self, query: &Query) -> Result<Told, String>;

    /// Figures over time, those the caller may see; from files, as above.
    fn series(&self, caller: &Caller, query: &SeriesQuery) -> Result<SeriesTold, String>;

    /// What this host tells whoever places containers; with a number of its own each time.
    fn report(&self, snapshot: &Snapshot) -> Report;

    /// What came of questions for it over the network; `None` where nobody may ask.
    fn reports(&self) -> Option<ReportTotals>;
}

/// Reports that were asked for over the network, since the daemon started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportTotals {
    pub served: u64,
    /// By the reason, in one word.
    pub refused: BTreeMap<&'static str, u64>,
}

/// What answers are made of.
#[derive(Clone)]
pub(crate) struct Served {
    pub feed: Arc<Feed>,
    pub control: Arc<dyn Control>,
    /// Held by whoever reads the history: one at a time.
    pub reading: Arc<tokio::sync::Mutex<()>>,
}

impl FromRef<Served> for Arc<Feed> {
    fn from_ref(served: &Served) -> Self {
        Arc::clone(&served.feed)
    }
}

impl Served {
    pub async fn ask(&self, peer: Option<Peer>, what: What) -> Result<Answer, ApiError> {
        let caller = peer.ok_or(ApiError::Stranger)?.caller();
        let (answer_tx, answer_rx) = oneshot::channel();
        let reply = move |answer| {
            // Gone if the client was.
            let _ = answer_tx.send(answer);
        };
        self.control.ask(Ask { caller, what }, Box::new(reply));
        match tokio::time::timeout(ANSWER_WITHIN, answer_rx).await {
            Ok(Ok(answer)) => Ok(answer?),
            Ok(Err(_)) => Err(ApiError::Stopping),
            Err(_) => Err(ApiError::Stalled { age: ANSWER_WITHIN }),
        }
    }
}

/// The user at the other end of a connection, when it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Peer {
    pub uid: u32,
}

impl Peer {
    /// `None` if the kernel does not say.
    pub fn of(stream: &UnixStream) -> Option<Self> {
        stream.peer_cred().ok().map(|credentials| Self { uid: credentials.uid() })
    }

    pub fn caller(self) -> Caller {
        let own = rustix::process::geteuid().as_raw();
        let user = fs::read_to_string(USERS).ok().and_then(|users| name_of(self.uid, &users));
        Caller { uid: self.uid, user, is_admin: self.uid == 0 || self.uid == own }
    }
}

/// Local users only: asking a directory service could block.
fn name_of(uid: u32, users: &str) -> Option<String> {
    let named = |line: &str| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    };
    users.lines().find_map(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_user_counts_and_others_have_none() {
        let users = "root:x:0:0::/root:/bin/sh\nbroken\nada:x:1000:1000::/:/\nalias:x:1000:1000::/:/\n";
        assert_eq!(name_of(1000, users).as_deref(), Some("ada"));
        assert_eq!((name_of(0, users).as_deref(), name_of(7, users)), (Some("root"), None));
    }

    #[test]
    fn root_and_whoever_runs_the_daemon_are_admins_and_nobody_else_is() {
        let own = rustix::process::geteuid().as_raw();
        assert!(Peer { uid: 0 }.caller().is_admin && Peer { uid: own }.caller().is_admin);
        assert!(!Peer { uid: own.wrapping_add(54_321) }.caller().is_admin);
    }
}
