//! A daemon's server on a real socket of its own, for tests.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::feed::Feed;
use crate::server::{Access, ServeError, Server};

/// Far more than anything here takes; only a hang gets there.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct Daemon {
    dir: TempDir,
    pub feed: Arc<Feed>,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl Daemon {
    pub fn start(dir: TempDir, feed: Feed) -> Self {
        let feed = Arc::new(feed);
        let server = Server::bind(&dir.path().join("s"), &Access { mode: 0o600, group: None }).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        let serving = tokio::spawn(server.serve(Arc::clone(&feed), stopped));
        Self { dir, feed, stop, serving }
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
