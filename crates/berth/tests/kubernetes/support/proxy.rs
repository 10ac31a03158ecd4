//! Between scheduler and placer: takes the time of each call as the scheduler sees it, and can lose one.
//!
//! The scheduler speaks plain HTTP to it, the placer TLS.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// One call that was answered.
#[derive(Debug, Clone)]
pub struct Call {
    pub path: String,
    /// The first name in the question.
    pub pod: Option<String>,
    pub took: Duration,
    pub status: u16,
}

#[derive(Clone)]
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: SocketAddr,
    tls: Arc<ClientConfig>,
    calls: Mutex<Vec<Call>>,
    /// Answers to calls of this path are thrown away, so many of them.
    loses: Mutex<Option<(String, u32)>>,
}

impl Proxy {
    pub fn start(upstream: SocketAddr, certificate: &Path) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let shared = Arc::new(Shared { upstream, tls, calls: Mutex::default(), loses: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                // Ends with its connection; what goes wrong is the scheduler's to see.
                std::thread::spawn(move || drop(shared.serve(stream)));
            }
        });
        Self { address, shared }
    }

    /// Where the scheduler asks.
    pub fn extender(&self) -> String {
        format!("http://{}/extender", self.address)
    }

    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.lock().unwrap().clone()
    }

    /// The next `times` answers to calls of `path` do not come back.
    pub fn lose(&self, path: &str, times: u32) {
        *self.shared.loses.lock().unwrap() = Some((path.to_owned(), times));
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        stream.set_nodelay(true)?;
        let mut answers = stream.try_clone()?;
        let mut questions = BufReader::new(stream);
        let mut upstream = None;
        while let Some((head, body)) = message(&mut questions)? {
            let begin = Instant::now();
            let link = match upstream.take() {
                Some(link) => link,
                None => self.connect()?,
            };
            let path = head.split_whitespace().nth(1).unwrap_or_default().to_owned();
            let (mut link, answer) = Self::forward(link, &head, &body)?;
            let Some((answer_head, answer_body)) = answer else { return Ok(()) };
            let status =
                answer_head.split_whitespace().nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
            link.get_mut().sock.set_nodelay(true)?;
            upstream = Some(link);
            if self.is_lost(&path) {
                return Ok(());
            }
            answers.write_all(answer_head.as_bytes())?;
            answers.write_all(&answer_body)?;
            let took = begin.elapsed();
            self.calls.lock().unwrap().push(Call { path, pod: pod(&body), took, status });
        }
        Ok(())
    }

    fn is_lost(&self, path: &str) -> bool {
        let mut loses = self.loses.lock().unwrap();
        match loses.as_mut() {
            Some((lost, left)) if *lost == path && *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    fn connect(&self) -> std::io::Result<Link> {
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let connection = ClientConnection::new(Arc::clone(&self.tls), name).unwrap();
        let stream = TcpStream::connect(self.upstream)?;
        stream.set_nodelay(true)?;
        Ok(BufReader::new(StreamOwned::new(connection, stream)))
    }

    fn forward(mut link: Link, head: &str, body: &[u8]) -> std::io::Result<(Link, Option<Message>)> {
        link.get_mut().write_all(head.as_bytes())?;
        link.get_mut().write_all(body)?;
        link.get_mut().flush()?;
        let answer = message(&mut link)?;
        Ok((link, answer))
    }
}

/// The scheduler writes the pod first, and its name before anything else of it.
fn pod(question: &[u8]) -> Option<String> {
    let begin = String::from_utf8_lossy(&question[..question.len().min(200)]).into_owned();
    Some(begin.split_once("\"name\":\"")?.1.split_once('"')?.0.to_owned())
}

/// A head with its empty line, and a body.
type Message = (String, Vec<u8>);
type Link = BufReader<StreamOwned<ClientConnection, TcpStream>>;

/// A request or an answer; `None` at the end of the stream.
fn message(from: &mut impl BufRead) -> std::io::Result<Option<Message>> {
    let (mut head, mut length) = (String::new(), 0_usize);
    loop {
        let begin = head.len();
        if from.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        let line = head[begin..].trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some((head, body)))
}

/// A port nobody listens on, for those who cannot say which they got.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
