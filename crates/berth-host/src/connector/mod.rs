//! Word from the kernel that a program was started, by the proc connector (`CN_PROC`).
//!
//! Which program it is does not matter here: a start only means that a closer look at the GPUs may pay. So starts are
//! coalesced, to at most one [`Event::Stirred`] in [`QUIET`], and on kernels that can (6.6) all other events are left out
//! at the source. Ends of processes are told by `procs`, not here: pidfds need no privilege and lose nothing.

mod error;
mod message;
mod socket;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use berth_model::{Event, Source, SourceStatus};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

pub use error::ConnectorError;
use socket::{Socket, timespec};

/// After a start nothing is read for this long: a build that runs a thousand programs a second costs 200 wake-ups.
pub const QUIET: Duration = Duration::from_millis(5);

/// The running listener; dropping it ends it.
#[derive(Debug)]
pub struct Connector {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Whether the kernel tells starts alone or everything, which costs more on a busy host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filtering {
    InKernel,
    None,
}

// === impl Connector ===

impl Connector {
    /// Subscribes, then listens on a thread of its own. The outcome is told both ways: as the result, and as
    /// [`Event::Source`]; should listening break off later, that is told as an event.
    pub fn start(event_tx: Sender<Event>) -> Result<Connector, ConnectorError> {
        let started = listen(event_tx.clone());
        let status = match &started {
            Ok(_) => SourceStatus::Up,
            Err(error) => SourceStatus::Down { reason: error.to_string() },
        };
        let _ = event_tx.send(Event::Source { source: Source::ProcessEvents, status });
        started
    }
}

impl Drop for Connector {
    fn drop(&mut self) {
        if let Err(error) = rustix::io::write(&*self.stop, &1u64.to_ne_bytes()) {
            tracing::error!(%error, "cannot stop the thread berth-starts");
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Whether this host tells process events to us; subscribes for a moment to find out.
pub fn available() -> Result<Filtering, ConnectorError> {
    let socket = Socket::subscribe()?;
    Ok(if socket.is_filtered { Filtering::InKernel } else { Filtering::None })
}

fn listen(event_tx: Sender<Event>) -> Result<Connector, ConnectorError> {
    let socket = Socket::subscribe()?;
    let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).map_err(ConnectorError::io("make an eventfd"))?);
    let stop_listening = stop.clone();
    let thread = std::thread::Builder::new()
        .name("berth-starts".into())
        .spawn(move || {
            if let Err(error) = run(&socket, &stop_listening, &event_tx) {
                let status = SourceStatus::Down { reason: error.to_string() };
                let _ = event_tx.send(Event::Source { source: Source::ProcessEvents, status });
            }
        })
        .map_err(|source: io::Error| ConnectorError::Io { attempt: "start a thread", source })?;
    Ok(Connector { stop, thread: Some(thread) })
}

/// Ends well when asked to stop or when nobody listens any more.
fn run(socket: &Socket, stop: &OwnedFd, event_tx: &Sender<Event>) -> Result<(), ConnectorError> {
    loop {
        if wait(&mut [PollFd::new(stop, PollFlags::IN), PollFd::new(socket, PollFlags::IN)], None)? {
            return Ok(());
        }
        if let Some(at) = socket.drain()?.last_exec {
            if event_tx.send(Event::Stirred { source: Source::ProcessEvents, at }).is_err() {
                return Ok(());
            }
            if wait(&mut [PollFd::new(stop, PollFlags::IN)], Some(QUIET))? {
                return Ok(());
            }
        }
    }
}

/// Whether the first of `fds` is ready, once any is or the time is up.
fn wait(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> Result<bool, ConnectorError> {
    match poll(fds, limit.map(timespec).as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(fds[0].revents().contains(PollFlags::IN)),
        Err(errno) => Err(ConnectorError::io("wait")(errno)),
    }
}
