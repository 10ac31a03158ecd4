//! Having a place kept, over a placer's Unix socket. Questions that change nothing are `berth_api`'s.

use std::io;
use std::path::{Path, PathBuf};

use berth_model::cluster::PlacementId;
use berth_model::cluster::api::{PlaceAnswer, PlaceRequest, Reserved};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;

use super::routes::paths;

/// A hundred thousand nodes with their reports, where all are told of.
const MOST_BYTES: usize = 1 << 30;

#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

/// A place that is kept for as long as this is.
#[derive(Debug)]
pub struct Held {
    pub reserved: Reserved,
    _connection: Incoming,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no placer answers at {} (`berth cluster serve`; placer.socket names another)", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    #[error("asking the placer at {}", socket.display())]
    Ask { socket: PathBuf, source: hyper::Error },
    #[error("reading the placer's answer")]
    Body { source: Box<dyn std::error::Error + Send + Sync> },
    #[error("the placer answers in words that are not understood: is it of another version?")]
    Words { source: serde_json::Error },
    /// Counts and reasons are in the answer.
    #[error("no node takes it")]
    Nobody(Box<PlaceAnswer>),
    /// What was asked for cannot be read.
    #[error("{message}")]
    Wrong { message: String },
    #[error("{message}")]
    Refused { message: String },
}

impl Client {
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    pub async fn reserve(&self, request: &PlaceRequest) -> Result<Held, ClientError> {
        let answer = self.ask(Method::POST, paths::RESERVATIONS, Some(request)).await?;
        if answer.status() == StatusCode::CONFLICT {
            return Err(ClientError::Nobody(Box::new(json(answer).await?)));
        }
        let mut body = successful(answer).await?.into_body();
        let mut line = Vec::new();
        // One line; the rest of the answer does not come while the place is kept.
        while !line.ends_with(b"\n")
            && let Some(frame) = body.frame().await
        {
            let frame = frame.map_err(|source| ClientError::Body { source: source.into() })?;
            line.extend(frame.into_data().unwrap_or_default());
        }
        let reserved = serde_json::from_slice(&line).map_err(|source| ClientError::Words { source })?;
        Ok(Held { reserved, _connection: body })
    }

    /// Nothing was made of it.
    pub async fn release(&self, id: PlacementId) -> Result<(), ClientError> {
        let path = format!("{}/{id}", paths::RESERVATIONS);
        successful(self.ask(Method::DELETE, &path, None).await?).await.map(drop)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<&PlaceRequest>,
    ) -> Result<Response<Incoming>, ClientError> {
        let failed = |source| ClientError::Ask { socket: self.socket.clone(), source };
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|source| ClientError::Connect { socket: self.socket.clone(), source })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        // Ends with the answer's body; what goes wrong in it is told there.
        tokio::spawn(connection);
        let body = body.map(|body| serde_json::json!(body).to_string()).unwrap_or_default();
        let request = Request::builder().method(method).uri(path).header(HOST, "placer");
        let request = request.header(CONTENT_TYPE, "application/json").body(Full::new(Bytes::from(body)));
        sender.send_request(request.expect("paths of this module are URIs")).await.map_err(failed)
    }
}

async fn json<T: DeserializeOwned>(answer: Response<Incoming>) -> Result<T, ClientError> {
    let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
    let body = body.map_err(|source| ClientError::Body { source })?.to_bytes();
    serde_json::from_slice(&body).map_err(|source| ClientError::Words { source })
}

async fn successful(answer: Response<Incoming>) -> Result<Response<Incoming>, ClientError> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let status = answer.status();
    let told: Option<Value> = json(answer).await.ok();
    let message = told.as_ref().and_then(|told| told["error"]["message"].as_str()).map(str::to_owned);
    let message = message.unwrap_or_else(|| format!("the placer answers {status}"));
    match status {
        StatusCode::BAD_REQUEST => Err(ClientError::Wrong { message }),
        _ => Err(ClientError::Refused { message }),
    }
}
