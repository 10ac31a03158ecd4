//! Connections: how many at a time, how long each may take to ask, and how long it may leave its answer unread.
//!
//! Whoever may open the socket may be slow, broken or ill-disposed: none of that may cost the daemon more than a bounded
//! number of descriptors and bytes, nor keep others out for good. Who comes when all places are taken is told so; who
//! comes when even that takes too long is hung up on. Streams of events are no exception: a listener has a place for as
//! long as it reads.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use crate::control::{Peer, Served};
use crate::error::ApiError;
use crate::routes::{metrics_router, router};
use crate::unread::Unread;

/// Connections that are answered at a time. Each scraper, `berth top` and `berth ps --watch` keeps one.
pub const CONNECTIONS: usize = 128;

/// The same of those who read metrics over TCP.
const SCRAPERS: usize = 16;

/// Connections beyond [`CONNECTIONS`] that are told so at a time.
const REFUSALS: usize = 128;

/// A request is in by then, or the connection is closed; so is one that asks for nothing for so long.
const ASK_WITHIN: Duration = Duration::from_secs(10);
/// The same for those who are about to be refused.
const REFUSED_ASK_WITHIN: Duration = Duration::from_secs(1);

/// Bytes of a request's head that are ever held. How much of a body is read, its handler says.
const REQUEST_LEN: usize = 16 << 10;

/// Answers under way get this long at a stop.
const DRAIN: Duration = Duration::from_secs(2);

/// Between two attempts to accept when the first failed, as for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// Answers until `stop` is done, then ends the event streams and lets other answers finish.
pub(crate) async fn serve(listener: UnixListener, served: Served, stop: impl Future<Output = ()>) {
    let mut places = Places::new(CONNECTIONS, router(served.clone()));
    let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if let Some(place) = places.take() {
                        let peer = Peer::of(&stream);
                        connections.spawn(place.answer(stream, peer, &graceful));
                    }
                }
                Err(error) => accept_again(&error).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    served.feed.close();
    // Who is not done by then is cut off with the set of connections.
    let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
}

/// Metrics and nothing else, for as long as it is polled. Who asks is not known, and does not matter.
pub(crate) async fn serve_metrics(listener: TcpListener, served: Served) -> Infallible {
    let mut places = Places::new(SCRAPERS, metrics_router(served));
    let (graceful, mut connections) = (GracefulShutdown::new(), JoinSet::new());
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if let Some(place) = places.take() {
                        connections.spawn(place.answer(stream, None, &graceful));
                    }
                }
                Err(error) => accept_again(&error).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn accept_again(error: &std::io::Error) {
    tracing::warn!(%error, "a connection to the API could not be accepted");
    tokio::time::sleep(ACCEPT_AGAIN).await;
}

/// Who is let in.
struct Places {
    /// How many at a time.
    most: usize,
    answered: (Arc<Semaphore>, Router),
    refused: (Arc<Semaphore>, Router),
    /// Somebody was refused since there was room last.
    was_full: bool,
}

/// A connection's right to be served.
struct Place {
    router: Router,
    ask_within: Duration,
    /// Refusals are for one request.
    keep_alive: bool,
    permit: OwnedSemaphorePermit,
}

impl Places {
    fn new(most: usize, router: Router) -> Self {
        let refusal = Router::new().fallback(move || async move { ApiError::Full { most } });
        Self {
            most,
            answered: (Arc::new(Semaphore::new(most)), router),
            refused: (Arc::new(Semaphore::new(REFUSALS)), refusal),
            was_full: false,
        }
    }

    /// `None`: there is not even room to refuse.
    fn take(&mut self) -> Option<Place> {
        let (free, router) = &self.answered;
        if let Ok(permit) = Arc::clone(free).try_acquire_owned() {
            self.was_full = false;
            return Some(Place { router: router.clone(), ask_within: ASK_WITHIN, keep_alive: true, permit });
        }
        if !std::mem::replace(&mut self.was_full, true) {
            tracing::warn!(most = self.most, "more clients than are answered at a time; others are refused");
        }
        let (free, router) = &self.refused;
        let permit = Arc::clone(free).try_acquire_owned().ok()?;
        Some(Place { router: router.clone(), ask_within: REFUSED_ASK_WITHIN, keep_alive: false, permit })
    }
}

impl Place {
    /// Serves `stream` until it ends or `graceful` is shut down; the place is free again then.
    fn answer<S>(self, stream: S, peer: Option<Peer>, graceful: &GracefulShutdown) -> impl Future<Output = ()> + use<S>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Place { router, ask_within, keep_alive, permit } = self;
        let service = WithPeer { peer, router: TowerToHyperService::new(router) };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(ask_within)
            .max_buf_size(REQUEST_LEN)
            .keep_alive(keep_alive)
            .serve_connection(TokioIo::new(Unread::new(stream)), service);
        let connection = graceful.watch(connection);
        async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the API ended");
            }
            drop(permit);
        }
    }
}

/// Tells whoever answers who is asking.
#[derive(Debug, Clone)]
struct WithPeer {
    peer: Option<Peer>,
    router: TowerToHyperService<Router>,
}

impl Service<Request<Incoming>> for WithPeer {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        self.router.call(request)
    }
}

#[cfg(test)]
mod tests;
