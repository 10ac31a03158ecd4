//! Names, labels and owners of containers, from the Docker Engine.
//!
//! Containers are described one by one, when somebody asks or when one starts; never all of them in turn. The engine's
//! event stream keeps descriptions right: a rename is described again, a removal is told. After a lost connection, what
//! happened meanwhile is had from the stream's past and by describing everything asked about once more. Async stays in
//! here, on a thread of its own ("berth-docker"); asking never blocks.
//!
//! It decides nothing about processes: which container a process is in is read from its cgroup.

mod asker;
mod error;
mod facts;
mod health;
mod pauser;
mod pauses;
mod session;
mod text;
mod wanted;

#[cfg(test)]
pub(crate) mod tests;

use std::path::Path;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use berth_model::{ContainerId, Event};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

pub use error::DockerError;
pub use facts::OWNER_LABEL;
pub use pauser::{Answer, Pauser};

/// Questions that may wait for the thread; it takes them in microseconds, even while the engine is away.
const QUEUE: usize = 1024;

/// The connection to an engine, kept up and made again for as long as this lives.
#[derive(Debug)]
pub struct DockerSource {
    /// `None` only while being dropped: its end is the sign to stop.
    ask_tx: Option<mpsc::Sender<ContainerId>>,
    thread: Option<JoinHandle<()>>,
}

/// An engine that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its version, such as `28.5.2`; `None` if it does not say.
    pub version: Option<String>,
}

impl DockerSource {
    /// Connects in the background. Whether the engine answers is told by [`Event::Source`], now and whenever it changes.
    pub fn start(socket: &Path, event_tx: Sender<Event>) -> Result<DockerSource, DockerError> {
        let runtime = runtime()?;
        let (ask_tx, ask_rx) = mpsc::channel(QUEUE);
        let session = session::Connection::new(socket, event_tx, ask_rx);
        let thread = std::thread::Builder::new()
            .name("berth-docker".into())
            .spawn(move || runtime.block_on(session.keep_up()))
            .map_err(|source| DockerError::Runtime { source })?;
        Ok(DockerSource { ask_tx: Some(ask_tx), thread: Some(thread) })
    }

    /// Asks about a container, by its id, its name, or the beginning of its id. The answer comes as [`Event::Container`], with the id in
    /// full; or as [`Event::ContainerGone`] with what was asked for, if the engine has none by that. While the engine is away it
    /// waits for its return. `false` if too many questions wait already: ask again later.
    pub fn describe(&self, id: ContainerId) -> bool {
        self.ask_tx.as_ref().is_some_and(|ask_tx| ask_tx.try_send(id).is_ok())
    }
}

impl Drop for DockerSource {
    fn drop(&mut self) {
        drop(self.ask_tx.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Asks the engine once who it is. Blocks for seconds at most.
pub fn available(socket: &Path) -> Result<Engine, DockerError> {
    runtime()?.block_on(async {
        let docker = session::connect(socket).await?;
        let api = |source| DockerError::Api { path: socket.to_owned(), attempt: "tell its version", source };
        Ok(Engine { version: docker.version().await.map_err(api)?.version })
    })
}

/// What the engine's swarm calls this node; `None` if it is in none. Blocks for seconds at most.
pub fn swarm_node(socket: &Path) -> Result<Option<String>, DockerError> {
    runtime()?.block_on(async {
        let docker = session::connect(socket).await?;
        let api = |source| DockerError::Api { path: socket.to_owned(), attempt: "tell of its swarm", source };
        let swarm = docker.info().await.map_err(api)?.swarm;
        Ok(swarm.and_then(|swarm| swarm.node_id).filter(|node| !node.is_empty()))
    })
}

fn runtime() -> Result<Runtime, DockerError> {
    Builder::new_current_thread().enable_all().build().map_err(|source| DockerError::Runtime { source })
}
