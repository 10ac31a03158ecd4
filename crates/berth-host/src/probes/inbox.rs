//! How other threads talk to the one that reads the ring, which waits in epoll and nowhere else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SendError, Sender};

use berth_model::{Event, ProcKey};
use rustix::event::{EventfdFlags, eventfd};

use super::error::ProbeError;
use super::function::Hot;
use super::kernel::Links;
use super::library::LibraryId;
use super::watcher::Ask;

/// What other threads tell the watcher.
#[derive(Debug)]
pub enum Message {
    /// A process was found using a GPU.
    Adopt {
        pid: u32,
    },
    Located {
        pid: u32,
        library: Option<LibraryId>,
    },
    Attached {
        process: ProcKey,
        hot: Hot,
        links: Result<Links, ProbeError>,
    },
    Detached {
        process: ProcKey,
        hot: Hot,
    },
    /// A process is to be held, watched, or let go.
    Ask(Ask),
    /// A process is never to be stopped by a signal.
    KeepUnseen(ProcKey),
    /// An event of another source, to be passed on behind all hits that happened before it.
    PassOn(Event),
    Stop,
}

/// Where messages are put; wakes the watcher.
#[derive(Debug, Clone)]
pub struct Inbox {
    message_tx: Sender<Message>,
    wake: Arc<OwnedFd>,
}

// === impl Inbox ===

impl Inbox {
    pub fn new() -> io::Result<(Inbox, Receiver<Message>)> {
        let (message_tx, message_rx) = mpsc::channel();
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Inbox { message_tx, wake }, message_rx))
    }

    /// A message to a watcher that has ended is dropped, with whatever it holds.
    pub fn send(&self, message: Message) {
        drop(self.try_send(message));
    }

    /// A message to a watcher that has ended comes back.
    pub fn try_send(&self, message: Message) -> Result<(), Message> {
        self.message_tx.send(message).map_err(|SendError(message)| message)?;
        // Cannot fail but by overflow, and then it is awake already.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        Ok(())
    }

    /// To be called before reading messages, so that one sent meanwhile wakes again.
    pub fn acknowledge(&self) {
        // Nothing to read is fine: someone was faster.
        let _ = rustix::io::read(&*self.wake, &mut [0_u8; 8]);
    }
}

impl AsFd for Inbox {
    /// Readable when there may be messages.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
