//! The conversation with the engine: connect, follow its events, describe containers; and again, when it breaks off.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use berth_model::{ContainerId, Event, Mono, Source, SourceStatus};
use bollard::errors::Error as ApiError;
use bollard::models::{ContainerInspectResponse, EventMessage};
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::asker::{Asker, Events, Read};
use super::error::DockerError;
use super::facts::from_inspect;
use super::health::{self, Health, Told};
use super::pauses::Pauses;
use super::text::MOST_BYTES;
use super::wanted::Wanted;
use crate::clock;

/// For one answer. Engines under load take long, and hang for single containers.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_LAST: Duration = Duration::from_secs(5);

/// Before asking again about a container the engine failed to describe.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What a container can do that matters here. A stop begins with a signal, and is seen by the end of its processes; it also
/// ends a pause. Commands that are run in it are told of for the checks of its health among them.
const ACTIONS: [&str; 9] = ["start", "rename", "pause", "unpause", "kill", "die", "destroy", "exec_create", "exec_die"];

type Inspected = (ContainerId, Result<Read<ContainerInspectResponse>, ApiError>);

/// Everything that outlasts one connection.
pub struct Connection {
    socket: PathBuf,
    event_tx: Sender<Event>,
    ask_rx: mpsc::Receiver<ContainerId>,
    wanted: Wanted,
    pauses: Pauses,
    health: Health,
    /// The engine failed to describe these, for another reason than that they are gone.
    failed: BTreeSet<ContainerId>,
    /// The labels of these are not read, and that has been told.
    too_long: BTreeSet<ContainerId>,
    /// Events before this instant of the engine's clock have been seen, in nanoseconds since 1970.
    seen_until_ns: i128,
    told: Option<SourceStatus>,
}

/// How a stretch of talk ended.
enum End {
    /// Nobody asks any more: stop.
    Asked,
    Broken(DockerError),
}

impl Connection {
    pub fn new(socket: &Path, event_tx: Sender<Event>, ask_rx: mpsc::Receiver<ContainerId>) -> Self {
        let seen_until_ns = clock::anchor().wall.as_nanosecond();
        Self {
            socket: socket.to_owned(),
            event_tx,
            ask_rx,
            wanted: Wanted::default(),
            pauses: Pauses::default(),
            health: Health::default(),
            failed: BTreeSet::new(),
            too_long: BTreeSet::new(),
            seen_until_ns,
            told: None,
        }
    }

    /// Runs until nobody can ask any more.
    pub async fn keep_up(mut self) {
        let mut delay = RETRY_FIRST;
        loop {
            let error = match connect(&self.socket).await {
                Err(error) => error,
                Ok(docker) => {
                    delay = RETRY_FIRST;
                    self.tell(SourceStatus::Up);
                    match self.talk(&docker).await {
                        End::Asked => return,
                        End::Broken(error) => error,
                    }
                }
            };
            self.tell(SourceStatus::Down { reason: error.to_string() });
            if !self.pause(delay).await {
                return;
            }
            delay = (delay * 2).min(RETRY_LAST);
        }
    }

    async fn talk(&mut self, docker: &Docker) -> End {
        self.wanted.start_over();
        self.pauses.start_over();
        let asker = Asker::new(&self.socket, docker);
        let mut events = match self.subscribe(&asker).await {
            Ok(events) => events,
            Err(source) => return End::Broken(self.refusal("tell its events", source)),
        };
        let mut requests = JoinSet::<Inspected>::new();
        let mut ask_again_at = Instant::now();
        loop {
            while let Some(id) = self.wanted.next() {
                requests.spawn(inspect(asker.clone(), id));
            }
            tokio::select! {
                asked = self.ask_rx.recv() => match asked {
                    Some(id) => self.wanted.ask(id),
                    None => return End::Asked,
                },
                event = events.next() => match event {
                    Some(Ok(event)) => self.react(event),
                    Some(Err(source)) => return End::Broken(self.refusal("tell its events", source)),
                    None => return End::Broken(DockerError::StreamEnded { path: self.socket.clone() }),
                },
                Some(Ok(inspected)) = requests.join_next() => {
                    self.answer(inspected);
                    ask_again_at = Instant::now() + ASK_AGAIN_AFTER;
                }
                () = sleep_until(ask_again_at), if !self.failed.is_empty() => {
                    std::mem::take(&mut self.failed).into_iter().for_each(|id| self.wanted.ask(id));
                }
            }
        }
    }

    /// Takes questions while there is nobody to pass them on to; `false` if nobody asks any more.
    async fn pause(&mut self, delay: Duration) -> bool {
        let until = Instant::now() + delay;
        loop {
            tokio::select! {
                asked = self.ask_rx.recv() => match asked {
                    Some(id) => self.wanted.ask(id),
                    None => return false,
                },
                () = sleep_until(until) => return true,
            }
        }
    }

    async fn subscribe(&self, asker: &Asker) -> Result<Events, ApiError> {
        let (seconds, nanos) = (self.seen_until_ns / 1_000_000_000, self.seen_until_ns % 1_000_000_000);
        let filters = serde_json::json!({ "type": ["container"], "event": ACTIONS }).to_string();
        within(asker.events(&format!("{seconds}.{nanos:09}"), &filters)).await
    }

    /// Of an event that is cut, attributes and time are unknown; what cannot even say whom it is about is a long command.
    fn react(&mut self, Read { said: event, is_cut }: Read<EventMessage>) {
        let at = event.time_nano.map_or_else(clock::now, at_engine_time);
        if let Some(nanos) = event.time_nano {
            self.seen_until_ns = self.seen_until_ns.max(i128::from(nanos) + 1);
        }
        let actor = event.actor.unwrap_or_default();
        let Some(id) = actor.id.map(ContainerId) else {
            if is_cut {
                tracing::warn!("passed over an event of the engine that is longer than {MOST_BYTES} bytes");
            }
            return;
        };
        let attributes = actor.attributes.unwrap_or_default();
        let signal = attributes.get("signal").and_then(|signal| signal.parse().ok());
        match event.action.as_deref() {
            Some("start") => {
                self.send(Event::Stirred { source: Source::Docker, at: clock::now() });
                self.wanted.ask(id);
            }
            Some("pause") if self.wanted.is_known(&id) => self.heard(id, true, at),
            Some("unpause" | "die") if self.wanted.is_known(&id) => self.heard(id, false, at),
            Some("kill") if self.wanted.is_known(&id) => self.send(Event::Signalled { id, signal, at }),
            Some("rename") if self.wanted.is_known(&id) => self.wanted.ask(id),
            Some("destroy") if self.wanted.is_known(&id) => self.gone(id),
            Some(action) => {
                let exec = attributes.get("execID").map_or("", String::as_str);
                if let Some(told) = self.health.heard(&id, action, exec) {
                    self.send(Event::HealthCheck { id, is_over: told == Told::Over, at });
                }
            }
            None => {}
        }
    }

    fn answer(&mut self, (id, inspected): Inspected) {
        if !self.wanted.done(&id) {
            return;
        }
        match inspected {
            Ok(Read { said, is_cut }) => {
                let id = self.known_as(id, said.id.as_ref());
                if is_cut && self.too_long.insert(id.clone()) {
                    tracing::warn!(container = %id, "its description is longer than {MOST_BYTES} bytes: its labels are not read");
                }
                self.described(id, said);
            }
            Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => self.gone(id),
            Err(error) => {
                tracing::warn!(container = %id, %error, "the engine did not describe the container");
                self.failed.insert(id);
            }
        }
    }

    /// One that was asked about by its name or the beginning of its id is known by its id from now on.
    fn known_as(&mut self, asked: ContainerId, id: Option<&String>) -> ContainerId {
        match id.filter(|id| **id != asked.0) {
            None => asked,
            Some(id) => {
                let id = ContainerId(id.clone());
                self.wanted.forget(&asked);
                self.wanted.know(id.clone());
                id
            }
        }
    }

    fn described(&mut self, id: ContainerId, inspected: ContainerInspectResponse) {
        let paused = inspected.state.as_ref().and_then(|state| state.paused);
        self.health.described(&id, inspected.config.as_ref().and_then(health::command));
        match from_inspect(inspected) {
            Some(facts) => self.send(Event::Container(Box::new(facts))),
            None => tracing::warn!(container = %id, "the engine described a container without an id"),
        }
        if let Some(paused) = paused.filter(|paused| self.pauses.described(&id, *paused)) {
            self.send(Event::Paused { id, paused, at: clock::now() });
        }
    }

    fn heard(&mut self, id: ContainerId, paused: bool, at: Mono) {
        if self.pauses.heard(&id, paused) {
            self.send(Event::Paused { id, paused, at });
        }
    }

    fn gone(&mut self, id: ContainerId) {
        self.wanted.forget(&id);
        self.pauses.forget(&id);
        self.health.forget(&id);
        self.failed.remove(&id);
        self.too_long.remove(&id);
        self.send(Event::ContainerGone { id });
    }

    /// Each change of status once.
    fn tell(&mut self, status: SourceStatus) {
        if self.told.as_ref() != Some(&status) {
            self.told = Some(status.clone());
            self.send(Event::Source { source: Source::Docker, status });
        }
    }

    /// Nobody listens any more when the daemon stops; then nothing needs to be told.
    fn send(&self, event: Event) {
        let _ = self.event_tx.send(event);
    }

    fn refusal(&self, attempt: &'static str, source: ApiError) -> DockerError {
        DockerError::Api { path: self.socket.clone(), attempt, source }
    }
}

/// Connects; an engine that answers with its version is one that works.
pub async fn connect(socket: &Path) -> Result<Docker, DockerError> {
    let path = || socket.to_owned();
    // The client library wraps what the system says beyond recognition, so the first try is made without it.
    let reached = timeout(ANSWER_WITHIN, tokio::net::UnixStream::connect(socket)).await;
    let reached = reached.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
    reached.map_err(|source| DockerError::connect(socket, source))?;
    let api = |source| DockerError::Api { path: path(), attempt: "agree on a version", source };
    let docker = Docker::connect_with_unix(&socket.to_string_lossy(), ANSWER_WITHIN.as_secs(), API_DEFAULT_VERSION)
        .map_err(api)?;
    docker.negotiate_version().await.map_err(api)
}

/// The engine dates its events by the system's clock. One that was set since makes an event at most as late as now.
fn at_engine_time(nanos: i64) -> Mono {
    let now = clock::anchor();
    let ago = now.wall.as_nanosecond().saturating_sub(i128::from(nanos));
    Mono(now.mono.0.saturating_sub(u64::try_from(ago).unwrap_or(0)))
}

async fn inspect(asker: Asker, id: ContainerId) -> Inspected {
    let inspected = within(asker.inspect(&id)).await;
    (id, inspected)
}

async fn within<T>(answer: impl Future<Output = Result<T, ApiError>>) -> Result<T, ApiError> {
    timeout(ANSWER_WITHIN, answer).await.unwrap_or(Err(ApiError::RequestTimeoutError))
}
