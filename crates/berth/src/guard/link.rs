//! The socket between a daemon and its guard: a line and some descriptors one way, one byte back, then silence.
//!
//! Its end is the message that matters: the kernel hangs up when the daemon is gone. This is the guard's end; the daemon's is in
//! `supervise`.

use std::io::{self, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use berth_model::{ProcKey, Settings};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde::{Deserialize, Serialize};

/// Descriptors in one message; the daemon sends them one by one.
const MOST_AT_ONCE: usize = 4;
pub const READY: &[u8] = b"r";

/// What a guard is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// Whose journal it is until it dies.
    pub daemon: ProcKey,
    /// Those of the daemon, as it has them: the file may have changed since.
    pub settings: Settings,
}

/// What a guard has received.
#[derive(Debug)]
pub struct Inbox {
    socket: UnixStream,
    bytes: Vec<u8>,
    /// Those that the daemon handed over, in its order.
    pub descriptors: Vec<OwnedFd>,
}

impl Inbox {
    pub fn new(socket: UnixStream) -> Self {
        Self { socket, bytes: Vec::new(), descriptors: Vec::new() }
    }

    pub fn plan(&mut self) -> io::Result<Plan> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                return Ok(serde_json::from_slice(&line)?);
            }
            if !self.take()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The guard is in place.
    pub fn tell_ready(&self) -> io::Result<()> {
        (&self.socket).write_all(READY)
    }

    /// Returns when the other end is gone. Takes what is handed over until then.
    pub fn wait_hang_up(&mut self) {
        while matches!(self.take(), Ok(true)) {}
    }

    /// `false`: nothing more will come.
    fn take(&mut self) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_AT_ONCE))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffer = [0; 4096];
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let length = match recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => message.bytes,
            Err(Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.bytes.extend(&buffer[..length]);
        Ok(length > 0)
    }
}
