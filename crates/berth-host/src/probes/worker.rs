//! Threads for what the kernel is slow at: attaching (1–24 ms) and detaching (33–144 ms).
//!
//! They are apart so that a newcomer's probes do not wait for those of others to be taken away, and apart from the
//! reader of the ring so that neither delays a moment. Attaching is one thread: one attach after the other is fast, as
//! the kernel then has to wait for a grace period only once.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use berth_model::ProcKey;

use super::error::ProbeError;
use super::function::Hot;
use super::inbox::{Inbox, Message};
use super::kernel::{Kernel, Links};
use super::library::{Libraries, LibraryId};

/// What the attaching thread is asked for.
#[derive(Debug)]
pub enum Order {
    Watch {
        library: PathBuf,
        reply: Sender<Result<LibraryId, ProbeError>>,
    },
    /// Which library has this process loaded?
    Locate {
        pid: u32,
    },
    Attach {
        process: ProcKey,
        library: LibraryId,
        hot: Hot,
    },
}

/// What the detaching thread is asked for. It tells [`Message::Detached`] when done.
#[derive(Debug)]
pub struct Detach {
    pub process: ProcKey,
    pub hot: Hot,
    pub links: Links,
    /// The function whose hit ended the probe.
    pub hit: u8,
}

/// The attaching thread's belongings.
#[derive(Debug)]
pub struct Attacher {
    pub kernel: Arc<Kernel>,
    /// Also read for [`super::Stats`].
    pub libraries: Arc<Mutex<Libraries>>,
    /// Looked up again and again, as a driver upgrade puts another file there.
    pub configured: Vec<PathBuf>,
    pub proc_root: PathBuf,
    pub inbox: Inbox,
}

/// How soon a replaced library is noticed even if no process tells.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

// === impl Attacher ===

impl Attacher {
    pub fn start(self) -> io::Result<(Sender<Order>, JoinHandle<()>)> {
        let (order_tx, order_rx) = mpsc::channel();
        let thread = thread::Builder::new().name("berth-probes-on".into()).spawn(move || self.run(&order_rx))?;
        Ok((order_tx, thread))
    }

    fn run(self, orders: &Receiver<Order>) {
        loop {
            match orders.recv_timeout(LOOK_AGAIN) {
                Ok(order) => self.obey(order),
                Err(RecvTimeoutError::Timeout) => self.watch_configured(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Watches what the settings name. A library that is not there may come; one that cannot be probed is told once.
    pub fn watch_configured(&self) {
        for library in &self.configured {
            if let Err(error) = self.watch(library) {
                tracing::debug!(%error, "driver library not watched");
            }
        }
    }

    fn obey(&self, order: Order) {
        match order {
            // Whoever asked may have stopped waiting.
            Order::Watch { library, reply } => drop(reply.send(self.watch(&library))),
            Order::Locate { pid } => {
                let located = self.libraries().watch_of(&self.kernel, &self.proc_root, pid);
                let library = located.unwrap_or_else(|error| {
                    tracing::warn!(pid, %error, "process not probed");
                    None
                });
                self.inbox.send(Message::Located { pid, library });
            }
            Order::Attach { process, library, hot } => {
                let links = self.libraries().attach_hot(&self.kernel, library, hot, process);
                self.inbox.send(Message::Attached { process, hot, links });
            }
        }
    }

    fn watch(&self, library: &Path) -> Result<LibraryId, ProbeError> {
        self.libraries().watch(&self.kernel, library)
    }

    fn libraries(&self) -> std::sync::MutexGuard<'_, Libraries> {
        self.libraries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each detach gets a thread of its own for as long as it takes: until the kernel comes to it, the process goes on being
/// hit, and what comes first in a queue may be a probe that nobody hits.
pub fn start_detacher(inbox: Inbox) -> io::Result<(Sender<Detach>, JoinHandle<()>)> {
    let (detach_tx, detach_rx) = mpsc::channel::<Detach>();
    let run = move || {
        // Ending the scope waits for those under way.
        thread::scope(|scope| {
            for detach in detach_rx {
                let inbox = inbox.clone();
                let one = thread::Builder::new().name("berth-probes-1".into());
                if let Err(error) = one.spawn_scoped(scope, move || take_away(detach, &inbox)) {
                    // What was to be detached is dropped with the closure, which detaches it here and now.
                    tracing::warn!(%error, "start a thread to detach probes");
                }
            }
        });
    };
    let thread = thread::Builder::new().name("berth-probes-off".into()).spawn(run)?;
    Ok((detach_tx, thread))
}

fn take_away(Detach { process, hot, links, hit }: Detach, inbox: &Inbox) {
    links.detach(hit);
    inbox.send(Message::Detached { process, hot });
}
