//! Pausing containers and letting them go on, for threads that may wait.
//!
//! Each call has a connection and a thread of its own: calls for other containers do not wait behind one the engine hangs
//! on, and an engine that restarts needs no care. The caller waits a bounded time; a pause that comes true after that is
//! taken back, since nobody counts on it any more.
//!
//! What the engine answers is told as it is. Its idea of a container's state can be wrong; see `hands` for who looks.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use berth_model::ContainerId;
use bollard::Docker;
use bollard::errors::Error as ApiError;

use super::asker::Asker;
use super::error::DockerError;
use super::session;

/// How long a call that the caller has given up is waited for, to take back what it may still do.
const LATE_ANSWER_WITHIN_S: u64 = 600;

/// An engine's pause and unpause. Cheap to clone; nothing is connected between calls.
#[derive(Debug, Clone)]
pub struct Pauser {
    socket: PathBuf,
    within: Duration,
}

/// What the engine answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// It is so already, it cannot be, or the engine's own tools failed.
    Refused {
        status: u16,
        message: String,
    },
    NoSuchContainer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Pause,
    Unpause,
    Inspect,
}

/// An answer with what was asked for: whether the engine has the container paused, if it says.
type Told = (Answer, Option<bool>);

impl Pauser {
    /// `within`: how long a caller waits for the engine.
    pub fn new(socket: &Path, within: Duration) -> Pauser {
        Pauser { socket: socket.to_owned(), within }
    }

    pub fn pause(&self, id: &ContainerId) -> Result<Answer, DockerError> {
        self.call(id, Call::Pause).map(|(answer, _)| answer)
    }

    pub fn unpause(&self, id: &ContainerId) -> Result<Answer, DockerError> {
        self.call(id, Call::Unpause).map(|(answer, _)| answer)
    }

    /// Whether the engine believes the container paused; `None` if it has no such container.
    pub fn says_paused(&self, id: &ContainerId) -> Result<Option<bool>, DockerError> {
        self.call(id, Call::Inspect).map(|(_, paused)| paused)
    }

    fn call(&self, id: &ContainerId, call: Call) -> Result<Told, DockerError> {
        // Without room for an answer, it is either taken or known not to be.
        let (told_tx, told_rx) = sync_channel(0);
        let (socket, id) = (self.socket.clone(), id.clone());
        let thread = std::thread::Builder::new().name("berth-pause".into());
        thread
            .spawn(move || {
                let told = ask(&socket, &id, call);
                let is_paused = matches!(told, Ok((Answer::Done, _))) && call == Call::Pause;
                if told_tx.send(told).is_err() && is_paused {
                    let undone = ask(&socket, &id, Call::Unpause);
                    tracing::warn!(container = %id, ?undone, "the engine paused too late; taken back");
                }
            })
            .map_err(|source| DockerError::Runtime { source })?;
        told_rx.recv_timeout(self.within).unwrap_or_else(|error| {
            debug_assert_eq!(error, RecvTimeoutError::Timeout, "the thread answers before it ends");
            Err(DockerError::Hung { path: self.socket.clone(), attempt: call.as_str(), within: self.within })
        })
    }
}

impl Call {
    fn as_str(self) -> &'static str {
        match self {
            Call::Pause => "pause",
            Call::Unpause => "unpause",
            Call::Inspect => "describe",
        }
    }

    async fn make(self, docker: &Docker, asker: &Asker, id: &ContainerId) -> Result<Option<bool>, ApiError> {
        match self {
            Call::Pause => docker.pause_container(&id.0).await.map(|()| None),
            Call::Unpause => docker.unpause_container(&id.0).await.map(|()| None),
            Call::Inspect => {
                let inspected = asker.inspect(id).await?.said;
                Ok(inspected.state.and_then(|state| state.paused))
            }
        }
    }
}

fn ask(socket: &Path, id: &ContainerId, call: Call) -> Result<Told, DockerError> {
    super::runtime()?.block_on(async {
        let docker = session::connect(socket).await?.with_timeout(Duration::from_secs(LATE_ANSWER_WITHIN_S));
        match call.make(&docker, &Asker::new(socket, &docker), id).await {
            Ok(paused) => Ok((Answer::Done, paused)),
            Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => Ok((Answer::NoSuchContainer, None)),
            Err(ApiError::DockerResponseServerError { status_code: status, message }) => {
                Ok((Answer::Refused { status, message }, None))
            }
            Err(source) => Err(DockerError::Api { path: socket.to_owned(), attempt: call.as_str(), source }),
        }
    })
}
