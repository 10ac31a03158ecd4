//! With certificates made here, and a client that believes only them.

use super::*;

use axum::routing::get;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ClientConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;

fn make(files: &Files) -> CertificateDer<'static> {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["placer.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(&files.certificate, certificate.pem()).unwrap();
    std::fs::write(&files.key, key.serialize_pem()).unwrap();
    certificate.der().clone()
}

fn files(dir: &tempfile::TempDir) -> Files {
    Files { certificate: dir.path().join("tls.crt"), key: dir.path().join("tls.key"), client_ca: None }
}

/// What `GET /` is answered, by a client that believes this certificate.
async fn asked(port: u16, believed: &CertificateDer<'static>) -> std::io::Result<String> {
    asked_by(port, believed, None).await
}

/// A certificate for a client, with its key.
type Shown = (CertificateDer<'static>, PrivateKeyDer<'static>);

async fn asked_by(port: u16, believed: &CertificateDer<'static>, shown: Option<Shown>) -> std::io::Result<String> {
    let mut roots = RootCertStore::empty();
    roots.add(believed.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match shown {
        Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).unwrap(),
        None => config.with_no_client_auth(),
    };
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect("placer.test".try_into().unwrap(), stream).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: placer.test\r\nConnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}

#[tokio::test]
async fn a_certificate_that_is_renewed_is_shown_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let old = make(&files(&dir));
    let tls = Tls::load(files(&dir)).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().route("/", get(|| async { "here" }));
    tokio::spawn(serve(listener, Arc::clone(&tls), router));

    assert!(asked(port, &old).await.unwrap().ends_with("here"));
    assert!(!tls.look().unwrap());
    let new = make(&files(&dir));
    assert!(tls.look().unwrap());
    assert!(asked(port, &new).await.unwrap().ends_with("here"));
    asked(port, &old).await.unwrap_err();
}

#[tokio::test]
async fn what_cannot_be_used_leaves_the_last_one_in_use() {
    let dir = tempfile::tempdir().unwrap();
    make(&files(&dir));
    let tls = Tls::load(files(&dir)).unwrap();
    std::fs::write(files(&dir).key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    assert!(tls.look().unwrap_err().to_string().contains("not that of the certificate"));
    std::fs::write(files(&dir).certificate, "").unwrap();
    assert!(tls.look().unwrap_err().to_string().contains("no certificate"));
    std::fs::remove_file(files(&dir).certificate).unwrap();
    assert!(tls.look().unwrap_err().to_string().contains("tls.crt"));
}

/// Somebody who signs, and a certificate that it has signed.
fn signs(path: &Path) -> Shown {
    let (key, client_key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    std::fs::write(path, params.self_signed(&key).unwrap().pem()).unwrap();
    let client = CertificateParams::new(vec!["scheduler.test".to_owned()]).unwrap();
    let client = client.signed_by(&client_key, &Issuer::new(params, key)).unwrap();
    (client.der().clone(), PrivateKeyDer::try_from(client_key.serialize_der()).unwrap())
}

#[tokio::test]
async fn who_shows_a_certificate_that_is_signed_is_told_from_who_shows_none() {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    let (scheduler, stranger) = (signs(&ca), signs(&dir.path().join("other.crt")));
    let believed = make(&files(&dir));
    let tls = Tls::load(Files { client_ca: Some(ca), ..files(&dir) }).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let told = |caller: Extension<Caller>| async move { format!("known: {}", caller.is_known) };
    tokio::spawn(serve(listener, tls, Router::new().route("/", get(told))));

    assert!(asked(port, &believed).await.unwrap().ends_with("known: false"));
    assert!(asked_by(port, &believed, Some(scheduler)).await.unwrap().ends_with("known: true"));
    asked_by(port, &believed, Some(stranger)).await.unwrap_err();
}

#[test]
fn who_signs_for_clients_must_be_somebody() {
    let dir = tempfile::tempdir().unwrap();
    make(&files(&dir));
    let ca = dir.path().join("ca.crt");
    let load = || Tls::load(Files { client_ca: Some(ca.clone()), ..files(&dir) }).unwrap_err().to_string();
    assert!(load().contains("reading"), "{}", load());
    std::fs::write(&ca, "").unwrap();
    assert!(load().contains("no certificate is in it"), "{}", load());
}

#[tokio::test]
async fn one_host_that_says_nothing_does_not_keep_the_others_out() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = make(&files(&dir));
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new().route("/", get(|| async { "here" }));
    tokio::spawn(serve(listener, Tls::load(files(&dir)).unwrap(), router));

    let socket = || {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        socket
    };
    let mut silent = Vec::new();
    for _ in 0..LIMITS.connections {
        silent.push(socket().connect(([127, 0, 0, 1], port).into()).await.unwrap());
    }
    assert!(asked(port, &certificate).await.unwrap().ends_with("here"));
}
