//! A socket in front of the container engine's that can be cut: an engine that stops, without stopping it for others.

use std::io;
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
        let mut proxy = Self { path: path.into(), engine: engine.into(), line: None };
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
        let (is_cut, kept, engine) = (Arc::clone(&cut), Arc::clone(&streams), self.engine.clone());
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().take_while(|_| !is_cut.load(Ordering::Relaxed)) {
                join(client.unwrap(), UnixStream::connect(&engine).unwrap(), &kept).unwrap();
            }
        });
        self.line = Some(Line { cut, streams, thread });
    }
}

/// Carries what either side says to the other, until one of them hangs up.
fn join(client: UnixStream, engine: UnixStream, streams: &Mutex<Vec<UnixStream>>) -> io::Result<()> {
    for (mut from, mut to) in [(client.try_clone()?, engine.try_clone()?), (engine.try_clone()?, client.try_clone()?)] {
        std::thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
    streams.lock().unwrap_or_else(PoisonError::into_inner).extend([client, engine]);
    Ok(())
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
    }
}
