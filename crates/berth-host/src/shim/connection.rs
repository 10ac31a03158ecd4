//! One connection: what was heard on it so far, and sending on it without ever waiting.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use berth_model::{Mono, ProcessFacts};
use berth_proto::shim::FromDaemon;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg, shutdown};

use super::budget::Budget;

/// Messages a client may send at once, and in a second. It has one to say per GPU.
const AT_ONCE: u32 = 32;
const PER_SECOND: u32 = 8;
/// Memory files that ever come with one message.
const MOST_FILES: usize = 2;

#[derive(Debug)]
pub struct Connection {
    pub socket: Arc<OwnedFd>,
    /// Who it is.
    pub facts: Arc<ProcessFacts>,
    pub stage: Stage,
    pub budget: Budget,
    pub since: Mono,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Has said nothing yet.
    Silent,
    /// Waits for a word whether it is let attach.
    Asking,
    /// Bits of the lanes it has told.
    Attached { lanes: u8 },
    /// Was hung up on; it is gone when the kernel says so. It may have asked before.
    Ending { has_asked: bool },
}

impl Connection {
    pub fn new(socket: OwnedFd, facts: Arc<ProcessFacts>, now: Mono) -> Self {
        let budget = Budget::new(AT_ONCE, PER_SECOND, now);
        Self { socket: Arc::new(socket), facts, stage: Stage::Silent, budget, since: now }
    }

    /// Whether it has told of this lane.
    pub fn has(&self, lane: u8) -> bool {
        matches!(self.stage, Stage::Attached { lanes } if lanes & 1 << lane != 0)
    }

    /// `false` if there was no room for it, or nobody hears it any more: the connection is hung up on then.
    pub fn send(&mut self, message: FromDaemon, files: &[BorrowedFd<'_>]) -> bool {
        if self.stage.is_ending() {
            return false;
        }
        let sent = send(&self.socket, message, files);
        if let Err(error) = sent {
            tracing::debug!(%error, ?message, "a client does not read; it is hung up on");
            self.hang_up();
        }
        sent.is_ok()
    }

    /// The thread that reads hears of it like of any other hang-up.
    pub fn hang_up(&mut self) {
        self.stage = Stage::Ending { has_asked: self.stage.has_asked() };
        // Fails only if the other side was faster.
        let _ = shutdown(&*self.socket, Shutdown::Both);
    }
}

impl Stage {
    pub fn is_ending(self) -> bool {
        matches!(self, Self::Ending { .. })
    }

    /// Others were told of it.
    pub fn has_asked(self) -> bool {
        match self {
            Self::Silent => false,
            Self::Asking | Self::Attached { .. } => true,
            Self::Ending { has_asked } => has_asked,
        }
    }
}

fn send(socket: &OwnedFd, message: FromDaemon, files: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(Errno::INVAL);
    }
    let packet = message.to_packet();
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket.as_fd(), &[IoSlice::new(&packet)], &mut ancillary, flags).map(drop)
}
