//! Asks a node's daemon. One question is one connection: nodes come and go, and a question costs less than what it is about.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use berth_model::cluster::{NodeId, Past, Report};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONNECTION, HOST};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::{NONCE, SIGNATURE, path};
use crate::frame::{
    self, FrameError, Fresh, Kind, MOST_BYTES, NONCE_BYTES, NodeKey, Nonce, Told, decode_pasts, decode_report, hex,
};

/// Of what a daemon says when it refuses, shown to people.
const MOST_WORDS: usize = 200;
/// More than a report has but of a host with many GPUs and hundreds of deadlines. Until it is signed an answer is anybody's: of those that
/// are longer only so many are read at a time.
const SMALL: usize = 64 << 10;
pub(super) static LARGE: Semaphore = Semaphore::const_new(8);

#[derive(Debug, thiserror::Error)]
pub enum AskError {
    #[error("{address} has not answered within {within:?}")]
    Silent { address: SocketAddr, within: Duration },
    #[error("connecting to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("asking {address}")]
    Http { address: SocketAddr, source: hyper::Error },
    #[error("{address} refuses ({}): {words}", status.as_u16())]
    Refused { address: SocketAddr, status: StatusCode, words: String },
    #[error("the answer of {address} has more than {MOST_BYTES} bytes")]
    TooLong { address: SocketAddr },
    #[error("the answer of {address} is not believed")]
    NotBelieved { address: SocketAddr, source: FrameError },
    #[error("asking the kernel for random bytes")]
    Random { source: getrandom::Error },
}

/// What the node says of itself now. `key` is the node's own.
pub async fn ask(
    address: SocketAddr,
    node: &NodeId,
    key: &NodeKey,
    within: Duration,
) -> Result<Told<Report>, AskError> {
    let (frame, fresh) = answered(address, Kind::Report, key, within).await?;
    decode_report(&frame, node, key, &fresh).map_err(|source| AskError::NotBelieved { address, source })
}

/// What it knows of the past.
pub async fn ask_pasts(
    address: SocketAddr,
    node: &NodeId,
    key: &NodeKey,
    within: Duration,
) -> Result<Vec<Past>, AskError> {
    let (frame, fresh) = answered(address, Kind::Pasts, key, within).await?;
    let told: Result<Told<frame::Pasts>, FrameError> = decode_pasts(&frame, node, key, &fresh);
    told.map(|told| told.what.pasts).map_err(|source| AskError::NotBelieved { address, source })
}

/// The answer, and what must be true of it.
async fn answered(
    address: SocketAddr,
    kind: Kind,
    key: &NodeKey,
    within: Duration,
) -> Result<(Bytes, Fresh), AskError> {
    let mut nonce = [0; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|source| AskError::Random { source })?;
    let nonce = Nonce(nonce);
    let signature = hex(&key.sign_ask(kind, &nonce));
    let asked = tokio::time::timeout(within, exchange(address, path(kind), &hex(&nonce.0), &signature)).await;
    let (status, body) = asked.map_err(|_| AskError::Silent { address, within })??;
    if status != StatusCode::OK {
        return Err(AskError::Refused { address, status, words: words(&body) });
    }
    Ok((body, Fresh::Answer(nonce)))
}

pub(super) async fn exchange(
    address: SocketAddr,
    path: &str,
    nonce: &str,
    signature: &str,
) -> Result<(StatusCode, Bytes), AskError> {
    let failed = |source| AskError::Http { address, source };
    let stream = TcpStream::connect(address).await.map_err(|source| AskError::Connect { address, source })?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    let request = Request::get(path)
        .header(HOST, address.to_string())
        .header(CONNECTION, "close")
        .header(NONCE, nonce)
        .header(SIGNATURE, signature)
        .body(Empty::<Bytes>::new())
        .expect("a request of our own is well-formed");
    let answer = async {
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status();
        Ok((status, read(response.into_body(), address).await?))
    };
    // The connection moves the bytes; it is dropped with the answer.
    let driver = async {
        let _ = connection.await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        answer = answer => answer,
        () = driver => unreachable!("it never ends"),
    }
}

/// To its end, or until it is too long to be a frame.
async fn read(mut body: Incoming, address: SocketAddr) -> Result<Bytes, AskError> {
    let (mut bytes, mut large) = (Vec::new(), None);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|source| AskError::Http { address, source })?;
        let Some(data) = frame.data_ref() else { continue };
        if bytes.len() + data.len() > MOST_BYTES {
            return Err(AskError::TooLong { address });
        }
        if bytes.len() + data.len() > SMALL && large.is_none() {
            large = Some(LARGE.acquire().await.expect("it is never closed"));
        }
        bytes.extend_from_slice(data);
    }
    Ok(bytes.into())
}

/// A refusal is anybody's: of what it says only what can be shown.
fn words(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(MOST_WORDS)]).into_owned();
    text.chars().filter(|letter| !letter.is_control()).collect()
}
