//! The engine's answers whose length people decide: its events, and descriptions of containers.
//!
//! The client library reads an event again with every piece of it that comes in, and answers of any length. Both are had here on a
//! connection of their own, within the bounds of [`Text`].

use std::path::{Path, PathBuf};

use berth_model::ContainerId;
use bollard::Docker;
use bollard::errors::Error as ApiError;
use bollard::models::{ContainerInspectResponse, EventMessage};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::UnixStream;

use super::text::{Lines, Text};

/// Asks in the words of one version of the engine's interface. Cheap to clone; nothing is connected between questions.
#[derive(Debug, Clone)]
pub struct Asker {
    socket: PathBuf,
    version: String,
}

/// What the engine said, and whether that is all of it.
#[derive(Debug)]
pub struct Read<T> {
    pub said: T,
    pub is_cut: bool,
}

/// The events as they come.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    piece: Bytes,
    lines: Lines,
}

/// How the engine says why not.
#[derive(Debug, Default, Deserialize)]
struct Refusal {
    message: String,
}

impl Asker {
    /// `docker` has agreed on a version with the engine at `socket`.
    pub fn new(socket: &Path, docker: &Docker) -> Self {
        Self { socket: socket.to_owned(), version: docker.client_version().to_string() }
    }

    /// `filters`: as the engine wants them, in JSON.
    pub async fn events(&self, since: &str, filters: &str) -> Result<Events, ApiError> {
        let body = self.get(&format!("/events?since={since}&filters={}", escaped(filters))).await?;
        Ok(Events { body, piece: Bytes::new(), lines: Lines::default() })
    }

    /// Without labels if there are too many of them to say.
    pub async fn inspect(&self, id: &ContainerId) -> Result<Read<ContainerInspectResponse>, ApiError> {
        let text = text(self.get(&format!("/containers/{}/json", escaped(&id.0))).await?).await?;
        let mut said: ContainerInspectResponse = text.read()?;
        if let Some(config) = said.config.as_mut().filter(|_| text.is_cut) {
            config.labels = None;
        }
        Ok(Read { said, is_cut: text.is_cut })
    }

    async fn get(&self, path: &str) -> Result<Incoming, ApiError> {
        let stream = UnixStream::connect(&self.socket).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // Ends with the answer's body; what goes wrong in it is told there.
        tokio::spawn(connection);
        let request = Request::get(format!("/v{}{path}", self.version)).header(HOST, "docker");
        let answer = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer.into_body());
        }
        let Refusal { message } = text(answer.into_body()).await?.read().unwrap_or_default();
        Err(ApiError::DockerResponseServerError { status_code: status.as_u16(), message })
    }
}

impl Events {
    /// `None` once the stream has ended. Nothing is lost if the caller stops waiting and asks again.
    pub async fn next(&mut self) -> Option<Result<Read<EventMessage>, ApiError>> {
        loop {
            if let Some(line) = self.lines.next_in(&mut self.piece) {
                if line.is_blank() {
                    continue;
                }
                return Some(line.read().map(|said| Read { said, is_cut: line.is_cut }).map_err(ApiError::from));
            }
            match self.body.frame().await? {
                Ok(frame) => self.piece = frame.into_data().unwrap_or_default(),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

/// Does not wait for what would be passed over.
async fn text(mut body: Incoming) -> Result<Text, ApiError> {
    let mut text = Text::default();
    while !text.is_cut
        && let Some(frame) = body.frame().await
    {
        text.add(&frame?.into_data().unwrap_or_default());
    }
    Ok(text)
}

/// For a part of a path or query: everything but letters, digits and a few signs as `%XX`.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(escape).collect()
}
