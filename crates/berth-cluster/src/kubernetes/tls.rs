//! The listener for kube-scheduler and the API server: TLS with a certificate that is read again when its files change.
//!
//! Whoever can reach it may be slow, broken or ill-disposed: connections, the time to ask and what is read of a request are bounded. Who
//! comes may show a certificate of its own; whether it has to is for what it asks to say ([`Caller`]).

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::door::{Limits, Place, Places, host_of};

/// A scheduler and an API server keep a few connections each; a proxy between them and the placer makes one host of many.
const LIMITS: Limits = Limits { connections: 256, per_host: 64, for_known: 64 };
/// To agree on a key.
const AGREE_WITHIN: Duration = Duration::from_secs(10);
/// Until the head of the next request has come. A client of Go's keeps a connection for 90 s and does not repeat a request that meets its
/// end, so that this is longer.
const NEXT_WITHIN: Duration = Duration::from_secs(120);
/// Between two looks at the files: a certificate is renewed days before it ends.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Between two attempts to accept when the first failed, as for want of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// Where a certificate and its key are kept, and those of who may sign for clients.
#[derive(Debug, Clone)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// `None`: clients are not asked for a certificate.
    pub client_ca: Option<PathBuf>,
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// It has shown a certificate that somebody in `client_ca` has signed, or nobody is asked for one.
    pub is_known: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{}: not PEM: {source}", path.display())]
    Pem { path: PathBuf, source: rustls::pki_types::pem::Error },
    #[error("{}: no certificate is in it", path.display())]
    NoCertificate { path: PathBuf },
    #[error("{}: the key cannot be used, or is not that of the certificate: {source}", path.display())]
    Key { path: PathBuf, source: rustls::Error },
    #[error("{}: it cannot sign for clients: {source}", path.display())]
    ClientCa { path: PathBuf, source: rustls::Error },
    #[error("{}: nobody in it can sign for clients", path.display())]
    NoClientCa { path: PathBuf, source: rustls::server::VerifierBuilderError },
    #[error("setting up TLS: {0}")]
    Setup(#[source] rustls::Error),
}

/// What is shown and asked for now.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    current: RwLock<(Contents, Arc<ServerConfig>)>,
}

#[derive(Debug, PartialEq, Eq)]
struct Contents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
}

// === impl Tls ===

impl Tls {
    pub fn load(files: Files) -> Result<Arc<Self>, TlsError> {
        let contents = Contents::read(&files)?;
        let config = contents.parse(&files)?;
        Ok(Arc::new(Self { files, current: RwLock::new((contents, Arc::new(config))) }))
    }

    /// Takes what the files hold now. If that cannot be used, what was used before still is. Whether it has changed.
    pub fn look(&self) -> Result<bool, TlsError> {
        let contents = Contents::read(&self.files)?;
        if self.current.read().unwrap_or_else(PoisonError::into_inner).0 == contents {
            return Ok(false);
        }
        let config = Arc::new(contents.parse(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (contents, config);
        Ok(true)
    }

    fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner).1)
    }

    async fn look_again_and_again(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.look() {
                Ok(false) => {}
                Ok(true) => tracing::info!(file = %self.files.certificate.display(), "a new certificate is shown"),
                Err(error) => tracing::warn!(%error, "the certificate on file cannot be used; the last one is"),
            }
        }
    }
}

// === impl Contents ===

impl Contents {
    fn read(files: &Files) -> Result<Self, TlsError> {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|source| TlsError::Read { path: path.clone(), source });
        let client_ca = files.client_ca.as_ref().map(read).transpose()?;
        Ok(Self { certificate: read(&files.certificate)?, key: read(&files.key)?, client_ca })
    }

    fn parse(&self, files: &Files) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(&self.certificate, &files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|source| TlsError::Pem { path: files.key.clone(), source })?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?;
        let builder = match (&self.client_ca, &files.client_ca) {
            (Some(pem), Some(path)) => builder.with_client_cert_verifier(verifier(pem, path, provider)?),
            _ => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key);
        config.map_err(|source| TlsError::Key { path: files.key.clone(), source })
    }
}

/// Who shows none is let in: probes and the API server have none to show.
fn verifier(
    pem: &[u8],
    path: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, path)? {
        roots.add(certificate).map_err(|source| TlsError::ClientCa { path: path.to_owned(), source })?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).allow_unauthenticated();
    builder.build().map_err(|source| TlsError::NoClientCa { path: path.to_owned(), source })
}

fn certificates(pem: &[u8], path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|source| TlsError::Pem { path: path.to_owned(), source })?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { path: path.to_owned() });
    }
    Ok(chain)
}

/// Answers until it is dropped. Each request has a [`Caller`] among its extensions.
pub async fn serve(listener: TcpListener, tls: Arc<Tls>, router: Router) {
    tokio::select! {
        () = accept(listener, &tls, router) => {}
        () = tls.look_again_and_again() => {}
    }
}

async fn accept(listener: TcpListener, tls: &Tls, router: Router) {
    let (places, asks_nobody) = (Places::new(LIMITS), tls.files.client_ca.is_none());
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match places.take(host_of(peer.ip())) {
                Some(place) => {
                    let acceptor = TlsAcceptor::from(tls.config());
                    tokio::spawn(answer(stream, place, acceptor, router.clone(), asks_nobody));
                }
                None => tracing::debug!(%peer, "a connection too many is closed"),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// `place` is left with the connection.
async fn answer(stream: TcpStream, place: Place, acceptor: TlsAcceptor, router: Router, asks_nobody: bool) {
    // An answer is not held back for more to come; if it cannot be said so, it is only later.
    let _ = stream.set_nodelay(true);
    let stream = match tokio::time::timeout(AGREE_WITHIN, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        // Probes and scanners come and go.
        Ok(Err(error)) => return tracing::debug!(%error, "no TLS was agreed on"),
        Err(_) => return,
    };
    let has_shown = stream.get_ref().1.peer_certificates().is_some_and(|shown| !shown.is_empty());
    if has_shown {
        place.is_known();
    }
    let router = router.layer(Extension(Caller { is_known: asks_nobody || has_shown }));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(NEXT_WITHIN);
    if let Err(error) = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await {
        tracing::debug!(%error, "a connection broke off");
    }
}

#[cfg(test)]
mod tests;
