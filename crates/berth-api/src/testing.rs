//! A daemon's server on a real socket of its own, for tests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_model::Snapshot;
use berth_model::cluster::Report;
use berth_model::control::{Answer, Ask, Caller, Refusal, Reply};
use berth_model::history::{Query, Told};
use berth_model::watch::series::{SeriesQuery, SeriesTold};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::control::{Control, ReportTotals};
use crate::feed::Feed;
use crate::routes::samples;
use crate::server::{Access, ServeError, Server};

/// Far more than anything here takes; only a hang gets there.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Daemon {
    dir: TempDir,
    pub feed: Arc<Feed>,
    pub asked: Arc<Asked>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ServeError>>,
}

/// Writes down what is asked, and gives the answer it was told to give; without one it is as if the loop had ended.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub asks: Mutex<Vec<Ask>>,
    pub answer: Mutex<Option<Result<Answer, Refusal>>>,
    pub queries: Mutex<Vec<Query>>,
    pub told: Mutex<Option<Told>>,
    pub figures: Mutex<Vec<(Caller, SeriesQuery)>>,
}

impl Control for Asked {
    fn ask(&self, ask: Ask, reply: Reply) {
        self.asks.lock().unwrap().push(ask);
        if let Some(answer) = self.answer.lock().unwrap().clone() {
            reply(answer);
        }
    }

    fn history(&self, query: &Query) -> Result<Told, String> {
        self.queries.lock().unwrap().push(query.clone());
        self.told.lock().unwrap().clone().ok_or_else(|| "it is switched off".to_owned())
    }

    fn series(&self, caller: &Caller, query: &SeriesQuery) -> Result<SeriesTold, String> {
        self.figures.lock().unwrap().push((caller.clone(), query.clone()));
        Ok(SeriesTold::default())
    }

    fn report(&self, snapshot: &Snapshot) -> Report {
        Report::of(snapshot, &samples::about(), 1)
    }

    fn reports(&self) -> Option<ReportTotals> {
        None
    }
}

impl Daemon {
    pub fn start(dir: TempDir, feed: Feed) -> Self {
        let feed = Arc::new(feed);
        let server = Server::bind(&dir.path().join("s"), &Access { mode: 0o600, group: None }).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let asked = Arc::new(Asked::default());
        let serving = tokio::spawn(server.serve(Arc::clone(&feed), asked.clone(), stopped));
        Self { dir, feed, asked, stop, serving }
    }

    pub fn client(&self) -> Client {
        Client::new(self.dir.path().join("s"))
    }

    pub async fn stop(self) -> TempDir {
        self.stop.send(()).unwrap();
        tokio::time::timeout(DEADLINE, self.serving).await.unwrap().unwrap().unwrap();
        self.dir
    }
}

pub(crate) fn daemon() -> Daemon {
    Daemon::start(tempfile::tempdir().unwrap(), Feed::new())
}
