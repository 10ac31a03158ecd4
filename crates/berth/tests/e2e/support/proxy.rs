//! A socket in front of the container engine's that can be cut: an engine that stops, without stopping it for others.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

#[derive(Debug)]
pub struct Proxy {
    path: PathBuf,
    engine: PathBuf,
    line: Option<Line>,
    /// All that clients said, since the last [`Proxy::restore`].
    said: Arc<Mutex<Vec<u8>>>,
}

/// The proxy while it is up.
#[derive(Debug)]
struct Line {
    cut: Arc<AtomicBool>,
    /// Both ends of every connection.
    streams: Arc<Mutex<Vec<UnixStream>>>,
    thread: JoinHandle<()>,
}

impl Proxy {
    pub fn start(path: &Path, engine: &Path) -> Self {
        let mut proxy = Self { path: path.into(), engine: engine.into(), line: None, said: Arc::default() };
        proxy.restore();
        proxy
    }

    /// The socket vanishes and every connection breaks off.
    pub fn cut(&mut self) {
        let Some(line) = self.line.take() else { return };
        line.cut.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for a connection.
        drop(UnixStream::connect(&self.path));
        let _ = line.thread.join();
        let _ = std::fs::remove_file(&self.path);
        for stream in line.streams.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            // Fails where the other side has hung up already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn restore(&mut self) {
        let listener = UnixListener::bind(&self.path).unwrap();
        let (cut, streams) = (Arc::new(AtomicBool::new(false)), Arc::default());
        self.said = Arc::default();
        let (is_cut, kept, engine, said) =
            (Arc::clone(&cut), Arc::clone(&streams), self.engine.clone(), Arc::clone(&self.said));
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().take_while(|_| !is_cut.load(Ordering::Relaxed)) {
                join(client.unwrap(), UnixStream::connect(&engine).unwrap(), &kept, &said).unwrap();
            }
        });
        self.line = Some(Line { cut, streams, thread });
    }

    /// Whether a client has asked the engine about a container since the proxy was last restored.
    pub fn was_asked_about(&self, id: &str) -> bool {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&said).contains(&format!("/containers/{id}/json"))
    }
}

/// Carries what either side says to the other, until one of them hangs up.
fn join(
    client: UnixStream,
    engine: UnixStream,
    streams: &Mutex<Vec<UnixStream>>,
    said: &Arc<Mutex<Vec<u8>>>,
) -> io::Result<()> {
    let mut heard = Heard { client: client.try_clone()?, said: Arc::clone(said) };
    let (mut to, mut answers, mut back) = (engine.try_clone()?, engine.try_clone()?, client.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut heard, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    std::thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    });
    streams.lock().unwrap_or_else(PoisonError::into_inner).extend([client, engine]);
    Ok(())
}

/// A client's words, kept as they are read.
#[derive(Debug)]
struct Heard {
    client: UnixStream,
    said: Arc<Mutex<Vec<u8>>>,
}

impl Read for Heard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.client.read(buffer)?;
        self.said.lock().unwrap_or_else(PoisonError::into_inner).write_all(&buffer[..length])?;
        Ok(length)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}
