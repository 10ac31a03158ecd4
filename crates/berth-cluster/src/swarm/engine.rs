//! The HTTP interface of a Docker engine that is a manager of a swarm, as much of it as placing needs.
//!
//! Answers are read as JSON and services are given back as they came, but for what is changed: a client with types of its own would
//! drop what a newer engine says and it does not know, and with it part of a user's service.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

/// A manager that has lost its quorum does not answer for a long time.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Of what changes something: what whoever holds the lease begins has ended before another can take it.
const CHANGES_WITHIN: Duration = Duration::from_secs(3);
/// Ten thousand services of some KiB each.
const MOST_BYTES: usize = 256 << 20;

#[derive(Debug, Clone)]
pub struct Manager {
    socket: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error("connecting to the Docker engine at {}", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    #[error("asking the Docker engine for {path}")]
    Ask { path: String, source: hyper::Error },
    #[error("reading the Docker engine's answer to {path}")]
    Body { path: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the Docker engine answered something else than JSON to {path}")]
    Json { path: String, source: serde_json::Error },
    #[error("the Docker engine did not answer to {path} within {} s", within.as_secs())]
    Silent { path: String, within: Duration },
    #[error("the Docker engine refuses {path}: {message} ({status})")]
    Refused { path: String, status: u16, message: String },
}

impl Manager {
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, EngineError> {
        let body = self.ask(Method::GET, path, None).await?;
        serde_json::from_slice(&body).map_err(|source| EngineError::Json { path: path.to_owned(), source })
    }

    /// What comes back is `Null` where nothing does.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, EngineError> {
        let answer = self.ask(Method::POST, path, Some(body)).await?;
        if answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer).map_err(|source| EngineError::Json { path: path.to_owned(), source })
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes, EngineError> {
        let within = if method == Method::GET { ANSWER_WITHIN } else { CHANGES_WITHIN };
        let silent = |_| EngineError::Silent { path: path.to_owned(), within };
        tokio::time::timeout(within, self.exchange(method, path, body)).await.map_err(silent)?
    }

    async fn exchange(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Bytes, EngineError> {
        let failed = |source| EngineError::Ask { path: path.to_owned(), source };
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|source| EngineError::Connect { socket: self.socket.clone(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // Ends with the exchange; what goes wrong in it is told there.
        tokio::spawn(connection);
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(HOST, "docker");
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(body)));
        let request = request.expect("paths of this module are URIs");
        let answer = sender.send_request(request).await.map_err(failed)?;
        let status = answer.status();
        let unread = |source| EngineError::Body { path: path.to_owned(), source };
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await.map_err(unread)?.to_bytes();
        if !status.is_success() {
            let message = message(&body);
            return Err(EngineError::Refused { path: path.to_owned(), status: status.as_u16(), message });
        }
        Ok(body)
    }
}

/// What the engine says of why not.
fn message(body: &[u8]) -> String {
    let told: Option<Value> = serde_json::from_slice(body).ok();
    let told = told.as_ref().and_then(|told| told["message"].as_str());
    told.map_or_else(|| "it does not say why".to_owned(), |told| told.chars().take(300).collect())
}

impl EngineError {
    /// Somebody else has changed it in the meantime.
    pub fn is_out_of_date(&self) -> bool {
        match self {
            EngineError::Refused { status, message, .. } => *status == 409 || message.contains("out of sequence"),
            _ => false,
        }
    }

    /// It has answered, and does not want to.
    pub fn is_refusal(&self) -> bool {
        matches!(self, EngineError::Refused { .. })
    }

    pub fn is_missing(&self) -> bool {
        matches!(self, EngineError::Refused { status: 404, .. })
    }
}

/// `path?filters=…`: by a label, whatever its value.
pub fn with_label(path: &str, label: &str) -> String {
    let filters = serde_json::json!({ "label": [label] }).to_string();
    let escaped: String = filters.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("{path}?filters={escaped}")
}
