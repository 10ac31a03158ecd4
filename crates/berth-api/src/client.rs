//! The client of the daemon's socket, and of the placer's: one typed request per connection, and an event stream that comes back by itself.

mod follow;
mod placer;
mod sse;

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use berth_model::control::{Admission, Candidate, DeadlineStanding, Explanation, FindingRow, MoodRow, SloStanding};
use berth_model::history::{Query, Told};
use berth_model::watch::series::{SeriesQuery, SeriesTold};

use crate::error::ErrorBody;
pub use crate::events::Lagged;
use crate::routes::paths;
pub use follow::{Follow, Followed};
pub use placer::PlacerClient;

/// A daemon answers from memory: one that takes longer is stuck.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    peer: Peer,
}

/// Who listens on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Daemon,
    Placer,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no {peer} listens on {socket}")]
    Absent { peer: Peer, socket: PathBuf, source: io::Error },
    #[error("connecting to the {peer} on {socket}")]
    Connect { peer: Peer, socket: PathBuf, source: io::Error },
    #[error("the {peer} on {socket} takes in no more connections: it is stuck, or has too many clients")]
    Busy { peer: Peer, socket: PathBuf },
    #[error("talking to the {peer} on {socket}")]
    Http { peer: Peer, socket: PathBuf, source: hyper::Error },
    #[error("the {peer} on {socket} did not answer within {} s", TIMEOUT.as_secs())]
    Silent { peer: Peer, socket: PathBuf },
    #[error("the {peer} refused {path}: {message} ({code})")]
    Refused { peer: Peer, path: String, code: String, message: String },
    #[error("whatever listens on {socket} is not berth: name the {peer}'s socket ({})", peer.setting())]
    Foreign { peer: Peer, socket: PathBuf },
    #[error("the {peer}'s answer to {path} is not understood: is it another version?")]
    NotUnderstood { peer: Peer, path: String, source: serde_json::Error },
    #[error("the daemon ended the event stream")]
    Ended,
}

impl Peer {
    /// By what its socket is named.
    fn setting(self) -> &'static str {
        match self {
            Peer::Daemon => "--socket, or api.socket",
            Peer::Placer => "placer.socket",
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Peer::Daemon => "daemon",
            Peer::Placer => "placer",
        })
    }
}

impl ClientError {
    /// Nobody is there, as opposed to somebody who does not let us in or answers badly.
    pub fn is_absent(&self) -> bool {
        matches!(self, ClientError::Absent { .. })
    }

    /// There is a snapshot soon: the daemon has only just started.
    pub fn is_not_ready(&self) -> bool {
        self.code() == Some("not_ready")
    }

    /// Why the daemon refused, for programs.
    pub fn code(&self) -> Option<&str> {
        match self {
            ClientError::Refused { code, .. } => Some(code),
            _ => None,
        }
    }

    /// This user may not: not even connect, or not what was asked for.
    pub fn is_denied(&self) -> bool {
        match self {
            ClientError::Connect { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => self.code() == Some("forbidden"),
        }
    }
}

impl Client {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into(), peer: Peer::Daemon }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// `path`: one of [`crate::paths`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let body = self.get_bytes(path).await?;
        self.read(path, &body)
    }

    /// Asks for something to be done: `body` is the JSON of it.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let unfit = |source| self.not_understood(path, source);
        let body = Bytes::from(serde_json::to_vec(body).map_err(unfit)?);
        let answer = self.bytes_of(path, request(Method::POST, path, body)).await?;
        self.read(path, &answer)
    }

    /// Why a tenant runs or does not. `tenant` is what a person calls it.
    pub async fn explain(&self, tenant: &str) -> Result<Explanation, ClientError> {
        self.get(&format!("{}?tenant={}", paths::EXPLAIN, percent_encoded(tenant))).await
    }

    /// Everybody's deadline, or that of whom a person calls so.
    pub async fn deadlines(&self, tenant: Option<&str>) -> Result<Vec<DeadlineStanding>, ClientError> {
        self.get(&with_query(paths::DEADLINES, &[("tenant", tenant.map(str::to_owned))])).await
    }

    /// Goals of one tenant, or of everybody who has some or takes part at the level of kernels.
    pub async fn slos(&self, tenant: Option<&str>) -> Result<Vec<SloStanding>, ClientError> {
        self.get(&with_query(paths::SLOS, &[("tenant", tenant.map(str::to_owned))])).await
    }

    /// Whether one more deadline would be met.
    pub async fn admit(&self, candidate: &Candidate) -> Result<Admission, ClientError> {
        let Candidate { deadline, unit, image, command, owner, takes, gpu } = candidate.clone();
        let query = [
            ("deadline", Some(deadline.to_string())),
            ("unit", Some(unit.as_str().to_owned())),
            ("image", image),
            ("command", command),
            ("owner", owner),
            ("takes", takes.map(|takes| takes.to_string())),
            ("gpu", gpu.map(|gpu| gpu.to_string())),
        ];
        self.get(&with_query(paths::ADMIT, &query)).await
    }

    /// What is remembered.
    pub async fn history(&self, query: &Query) -> Result<Told, ClientError> {
        let tenant = query.whom.iter().map(|whom| format!("&tenant={}", percent_encoded(whom)));
        let since = query.since.iter().map(|since| format!("&since={}", percent_encoded(&since.to_string())));
        let further: String = tenant.chain(since).collect();
        self.get(&format!("{}?limit={}{further}", paths::HISTORY, query.limit)).await
    }

    /// What is noticed of one tenant, or of all that the caller may be told of.
    pub async fn findings(&self, tenant: Option<&str>) -> Result<Vec<FindingRow>, ClientError> {
        self.get(&with_query(paths::FINDINGS, &[("tenant", tenant.map(str::to_owned))])).await
    }

    /// What its owner's words have come to.
    pub async fn mood(&self, tenant: &str) -> Result<MoodRow, ClientError> {
        self.get(&with_query(paths::FEEDBACK, &[("tenant", Some(tenant.to_owned()))])).await
    }

    /// Figures over time, those the caller may see.
    pub async fn series(&self, query: &SeriesQuery) -> Result<SeriesTold, ClientError> {
        let SeriesQuery { whom, metric, from_ms, until_ms, step_ms } = query.clone();
        let instant = |ms: i64| jiff::Timestamp::from_millisecond(ms).ok().map(|at| at.to_string());
        let query = [
            ("tenant", whom),
            ("metric", metric.map(|metric| metric.as_str().to_owned())),
            ("since", from_ms.and_then(instant)),
            ("until", until_ms.and_then(instant)),
            ("step", step_ms.map(|ms| format!("{ms}ms"))),
        ];
        self.get(&with_query(paths::SERIES, &query)).await
    }

    /// For answers that are no JSON: the metrics page.
    pub async fn get_text(&self, path: &str) -> Result<String, ClientError> {
        Ok(String::from_utf8_lossy(&self.get_bytes(path).await?).into_owned())
    }

    /// Follows the events. Does not connect yet; see [`Follow::next`].
    pub fn follow(&self, snapshot_every: Option<Duration>) -> Follow {
        Follow::new(self.clone(), snapshot_every)
    }

    fn read<T: DeserializeOwned>(&self, path: &str, body: &Bytes) -> Result<T, ClientError> {
        serde_json::from_slice(body).map_err(|source| match source.is_data() {
            true => self.not_understood(path, source),
            false => self.foreign(),
        })
    }

    async fn get_bytes(&self, path: &str) -> Result<Bytes, ClientError> {
        self.bytes_of(path, request(Method::GET, path, Bytes::new())).await
    }

    async fn bytes_of(&self, path: &str, request: Request<Full<Bytes>>) -> Result<Bytes, ClientError> {
        self.in_time(async {
            let response = self.request(path, request).await?;
            self.body_of(response).await
        })
        .await
    }

    /// The head of a successful answer, in time; its body may take as long as it likes.
    async fn stream(&self, path: &str) -> Result<Response<Incoming>, ClientError> {
        self.in_time(self.request(path, request(Method::GET, path, Bytes::new()))).await
    }

    async fn in_time<T>(&self, answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, ClientError> {
        let silent = |_| ClientError::Silent { peer: self.peer, socket: self.socket.clone() };
        tokio::time::timeout(TIMEOUT, answer).await.map_err(silent)?
    }

    async fn request(&self, path: &str, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|source| self.not_connected(source))?;
        let http = |source| self.failed(source);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
        // Ends with the response; its errors come out of the response too.
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(http)?;
        if response.status().is_success() { Ok(response) } else { Err(self.refusal(path, response).await?) }
    }

    async fn body_of(&self, response: Response<Incoming>) -> Result<Bytes, ClientError> {
        let http = |source| self.failed(source);
        Ok(response.into_body().collect().await.map_err(http)?.to_bytes())
    }

    async fn refusal(&self, path: &str, response: Response<Incoming>) -> Result<ClientError, ClientError> {
        let body = self.body_of(response).await?;
        // All that berth refuses, it refuses in these words.
        let Ok(ErrorBody { error }) = serde_json::from_slice(&body) else { return Ok(self.foreign()) };
        Ok(ClientError::Refused { peer: self.peer, path: path.to_owned(), code: error.code, message: error.message })
    }

    fn foreign(&self) -> ClientError {
        ClientError::Foreign { peer: self.peer, socket: self.socket.clone() }
    }

    fn not_understood(&self, path: &str, source: serde_json::Error) -> ClientError {
        ClientError::NotUnderstood { peer: self.peer, path: path.to_owned(), source }
    }

    fn failed(&self, source: hyper::Error) -> ClientError {
        // What it says is no HTTP.
        if source.is_parse() {
            return self.foreign();
        }
        ClientError::Http { peer: self.peer, socket: self.socket.clone(), source }
    }

    fn not_connected(&self, source: io::Error) -> ClientError {
        let (peer, socket) = (self.peer, self.socket.clone());
        match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::Absent { peer, socket, source },
            // Its queue is full. A Unix socket says so at once instead of waiting.
            io::ErrorKind::WouldBlock => ClientError::Busy { peer, socket },
            _ => ClientError::Connect { peer, socket, source },
        }
    }
}

fn request(method: Method, path: &str, body: Bytes) -> Request<Full<Bytes>> {
    let is_post = method == Method::POST;
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().expect("paths are constants of this crate, queries are encoded");
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_static("berth"));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    if is_post {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    request
}

/// Of those that have a value.
fn with_query(path: &str, pairs: &[(&str, Option<String>)]) -> String {
    let given = pairs.iter().filter_map(|(key, value)| Some(format!("{key}={}", percent_encoded(value.as_ref()?))));
    let query = given.collect::<Vec<_>>().join("&");
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// For a query: whatever is no letter, digit or one of a few marks is written by its bytes.
fn percent_encoded(text: &str) -> String {
    let encoded = text.bytes().map(|byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    });
    encoded.collect()
}

#[cfg(test)]
mod tests;
