//! Answers the placer, over TCP, from what is known: nothing here asks a GPU or waits for the loop that does.
//!
//! Anybody who can reach the port may connect, be slow, broken or ill-disposed. None of that costs the daemon more than a bounded number of
//! descriptors and bytes: a place is for a short time, and each host has its share of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use berth_model::cluster::{NodeId, Past, Report};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::{NONCE, PATHS, SIGNATURE};
use crate::door::{Limits, Place, Places, host_of};
use crate::frame::{
    FrameError, Kind, NONCE_BYTES, NodeKey, Nonce, Pasts, encode_pasts, encode_report, tellable, unhex,
};

/// Placers are few, and ask one question a connection.
const LIMITS: Limits = Limits { connections: 64, per_host: 8, for_known: 16 };
/// How long a question may take to be asked.
const ASK_WITHIN: Duration = Duration::from_secs(2);
/// How long a connection may be there at all.
const LASTS: Duration = Duration::from_secs(10);
/// Larger than any question.
const REQUEST_BYTES: usize = 8 << 10;
/// The loop tells what it sees every second at least: what is older says nothing of now.
const STALLED_AFTER: Duration = Duration::from_secs(3);
/// How long the loop may take to tell of the past.
const PASTS_WITHIN: Duration = Duration::from_secs(1);
/// After a connection could not be taken: most likely there are no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// Called once, from any thread; dropped if there is nothing to tell.
pub type PastsReply = Box<dyn FnOnce(Vec<Past>) + Send>;

/// What a node tells of. Neither call waits.
pub trait Facts: Send + Sync + 'static {
    /// The latest, and how old it is; each has a number of its own. `None` before the first look.
    fn report(&self) -> Option<(Report, Duration)>;

    fn pasts(&self, reply: PastsReply);
}

/// A port that is bound.
#[derive(Debug)]
pub struct Listener {
    listener: StdListener,
    address: SocketAddr,
}

#[derive(Debug, thiserror::Error)]
#[error("listening on {address} (cluster.listen chooses another place)")]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

/// What came of questions, since the daemon started.
#[derive(Debug, Default)]
pub struct Counters {
    served: AtomicU64,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// [`Counters`] at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    pub served: u64,
    pub refused: BTreeMap<&'static str, u64>,
}

/// Everything an answer is made of.
struct Node {
    node: NodeId,
    key: NodeKey,
    facts: Arc<dyn Facts>,
    counters: Arc<Counters>,
}

/// Why a question is not answered.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("there is nothing at this path; ask for /v1/report or /v1/pasts")]
    NotFound,
    #[error("only GET is answered")]
    Method,
    #[error("the question is not signed: give {NONCE} and {SIGNATURE}")]
    NotSigned,
    #[error(
        "the question is not signed with the key of this node: node and placer have different keys, or the engine has another name for this node than cluster.node"
    )]
    WrongKey,
    #[error("no look at the host has been finished yet")]
    NotReady,
    #[error("the loop that watches the GPUs has told nothing for {} ms", age.as_millis())]
    Stalled { age: Duration },
    #[error("the report cannot be told")]
    Frame(#[from] FrameError),
}

// === impl Listener ===

impl Listener {
    pub fn bind(address: SocketAddr) -> Result<Self, BindError> {
        let failed = |source| BindError { address, source };
        let listener = StdListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address })
    }

    /// With the port the kernel chose, where none was given.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until it is dropped.
    pub async fn serve(
        self,
        node: NodeId,
        key: NodeKey,
        facts: Arc<dyn Facts>,
        counters: Arc<Counters>,
    ) -> Result<Infallible, BindError> {
        let listener =
            TcpListener::from_std(self.listener).map_err(|source| BindError { address: self.address, source })?;
        let node = Arc::new(Node { node, key, facts, counters });
        let mut connections = JoinSet::new();
        let places = Places::new(LIMITS);
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        match places.take(host_of(peer.ip())) {
                            Some(place) => drop(connections.spawn(attend(stream, Arc::clone(&node), place))),
                            // Hung up on: it costs nothing, and who has the key comes again.
                            None => node.counters.refused("full"),
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection of the cluster could not be taken");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(ended) = connections.join_next() => {
                    if let Err(error) = ended {
                        tracing::warn!(%error, "answering the cluster has failed");
                    }
                }
            }
        }
    }
}

async fn attend(stream: TcpStream, node: Arc<Node>, place: Place) {
    let (node, place) = (&node, &place);
    let service = service_fn(move |request| async move { Ok::<_, Infallible>(node.answer(&request, place).await) });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(ASK_WITHIN)
        .max_buf_size(REQUEST_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let connection = pin!(connection);
    match tokio::time::timeout(LASTS, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection of the cluster ended"),
        Err(_) => tracing::debug!("a connection of the cluster has taken too long"),
    }
}

// === impl Node ===

impl Node {
    async fn answer(&self, request: &Request<Incoming>, place: &Place) -> Response<Full<Bytes>> {
        match self.frame(request, place).await {
            Ok(frame) => {
                self.counters.served.fetch_add(1, Ordering::Relaxed);
                response(StatusCode::OK, "application/octet-stream", frame)
            }
            Err(refusal) => {
                self.counters.refused(refusal.word());
                response(refusal.status(), "text/plain; charset=utf-8", refusal.to_string().into_bytes())
            }
        }
    }

    async fn frame(&self, request: &Request<Incoming>, place: &Place) -> Result<Vec<u8>, Refusal> {
        let (_, kind) = PATHS.iter().find(|(path, _)| *path == request.uri().path()).ok_or(Refusal::NotFound)?;
        if request.method() != Method::GET {
            return Err(Refusal::Method);
        }
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        let nonce = header(NONCE).and_then(unhex::<NONCE_BYTES>).map(Nonce).ok_or(Refusal::NotSigned)?;
        let signature: [u8; 32] = header(SIGNATURE).and_then(unhex).ok_or(Refusal::NotSigned)?;
        if !self.key.is_ask(*kind, &nonce, &signature) {
            return Err(Refusal::WrongKey);
        }
        place.is_known();
        let (report, age) = self.facts.report().ok_or(Refusal::NotReady)?;
        if age > STALLED_AFTER {
            return Err(Refusal::Stalled { age });
        }
        match kind {
            Kind::Report => Ok(encode_report(&report, age, Some(&nonce), &self.key)?),
            Kind::Pasts => {
                let (stamp, number) = (report.stamp, report.pasts);
                let pasts = Pasts { node: self.node.clone(), stamp, number, pasts: tellable(self.pasts().await?) };
                Ok(encode_pasts(&pasts, age, Some(&nonce), &self.key)?)
            }
        }
    }

    async fn pasts(&self) -> Result<Vec<Past>, Refusal> {
        let (told_tx, told_rx) = oneshot::channel();
        self.facts.pasts(Box::new(move |pasts| {
            // Gone if whoever asked was.
            let _ = told_tx.send(pasts);
        }));
        let told = tokio::time::timeout(PASTS_WITHIN, told_rx).await;
        told.ok().and_then(Result::ok).ok_or(Refusal::Stalled { age: PASTS_WITHIN })
    }
}

fn response(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

// === impl Refusal ===

impl Refusal {
    fn status(&self) -> StatusCode {
        match self {
            Refusal::NotFound => StatusCode::NOT_FOUND,
            Refusal::Method => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::NotSigned | Refusal::WrongKey => StatusCode::UNAUTHORIZED,
            Refusal::NotReady | Refusal::Stalled { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Frame(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// For metrics.
    fn word(&self) -> &'static str {
        match self {
            Refusal::NotFound | Refusal::Method => "malformed",
            Refusal::NotSigned => "not-signed",
            Refusal::WrongKey => "wrong-key",
            Refusal::NotReady => "not-ready",
            Refusal::Stalled { .. } => "stalled",
            Refusal::Frame(_) => "impossible",
        }
    }
}

// === impl Counters ===

impl Counters {
    fn refused(&self, why: &'static str) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner).entry(why).or_default() += 1;
    }

    pub fn totals(&self) -> Totals {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Totals { served: self.served.load(Ordering::Relaxed), refused }
    }
}
