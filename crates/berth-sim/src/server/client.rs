//! One conversation: bytes in, calls out; replies in, bytes out. Never blocks, never grows without bound.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use berth_proto::sim::{Reply, VERSION};
use berth_proto::wire::{Call, Frames, Hello, Message, Role, Welcome, WireError};

use super::poll::Interest;
use super::sys::Peer;
use crate::Ticket;

/// A client with more unread answers than this is not reading: it is dropped.
const MAX_UNREAD_BYTES: usize = 64 << 10;

/// Read from one client before the others get a turn.
const READ_BYTES: usize = 4 << 10;

/// Calls without an answer that a client may send before it has to wait for its own queue on the GPU, as the real
/// driver's queue has an end.
const MAX_POSTED: u32 = 1024;

#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the client closed the connection")]
    Closed,
    #[error("the client does not read its answers")]
    NotReading,
}

#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    pub(super) peer: Peer,
    /// `None` until its first message.
    pub(super) role: Option<Role>,
    frames: Frames,
    unread: Vec<u8>,
    waiting: Option<Waiting>,
    /// An error of a call without an answer, kept for the next call with one.
    deferred: Option<u32>,
    posted: u32,
    /// As the epoll knows it.
    pub(super) interest: Interest,
}

/// A call the engine has not finished.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    ticket: Ticket,
    wants_reply: bool,
}

/// What the client wants next.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    Nothing,
    Joined(Role),
    Call(Call),
}

impl Client {
    pub(super) fn new(stream: UnixStream, peer: Peer) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            peer,
            role: None,
            frames: Frames::default(),
            unread: Vec::new(),
            waiting: None,
            deferred: None,
            posted: 0,
            interest: Interest::Read,
        })
    }

    /// Takes what has come, and says whether anything had. Not called while a call is unfinished, so at most one
    /// read's bytes wait here.
    pub(super) fn receive(&mut self) -> Result<bool, ClientError> {
        let mut chunk = [0; READ_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(ClientError::Closed),
            Ok(bytes) => {
                self.frames.push(&chunk[..bytes]);
                Ok(true)
            }
            Err(error) if is_momentary(&error) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The next whole message, if the one before is done with.
    pub(super) fn next(&mut self) -> Result<Next, ClientError> {
        if self.waiting.is_some() {
            return Ok(Next::Nothing);
        }
        let Some(frame) = self.frames.next_frame()? else {
            return Ok(Next::Nothing);
        };
        if self.role.is_some() {
            return Ok(Next::Call(Call::decode(frame)?));
        }
        let hello = Hello::decode(frame);
        // Said to everybody, so that another version learns which one this is before it is dropped.
        self.send(&Welcome { version: VERSION })?;
        let role = hello?.role;
        self.role = Some(role);
        Ok(Next::Joined(role))
    }

    /// An error kept from before answers this call instead of the engine.
    pub(super) fn take_deferred(&mut self, call: &Call) -> Option<u32> {
        self.deferred.take_if(|_| call.wants_reply)
    }

    /// The call was answered at once. Says whether the client has sent so much without waiting that it must wait now.
    pub(super) fn answered(&mut self, wants_reply: bool, reply: &Reply) -> Result<bool, ClientError> {
        if wants_reply {
            self.posted = 0;
            self.send(reply)?;
            return Ok(false);
        }
        if let Reply::Error(code) = reply {
            self.deferred.get_or_insert(*code);
        }
        self.posted += 1;
        Ok(self.posted >= MAX_POSTED)
    }

    /// The call is unfinished: nothing more is taken from this client until its ticket comes back.
    pub(super) fn wait_for(&mut self, ticket: Ticket, wants_reply: bool) {
        self.waiting = Some(Waiting { ticket, wants_reply });
    }

    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.waiting.map(|waiting| waiting.ticket)
    }

    /// The unfinished call is done.
    pub(super) fn completed(&mut self, reply: &Reply) -> Result<(), ClientError> {
        self.posted = 0;
        match self.waiting.take() {
            Some(waiting) => self.answered(waiting.wants_reply, reply).map(drop),
            None => Ok(()),
        }
    }

    fn send<M: Message>(&mut self, message: &M) -> Result<(), ClientError> {
        message.encode(&mut self.unread)?;
        self.flush()
    }

    /// Writes as much as the client's socket takes; the rest is tried again when there is room.
    pub(super) fn flush(&mut self) -> Result<(), ClientError> {
        while !self.unread.is_empty() {
            match self.stream.write(&self.unread) {
                Ok(bytes) => drop(self.unread.drain(..bytes)),
                Err(error) if is_momentary(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if self.unread.len() > MAX_UNREAD_BYTES { Err(ClientError::NotReading) } else { Ok(()) }
    }

    /// What the epoll should watch for now.
    pub(super) fn wanted(&self) -> Interest {
        match (self.unread.is_empty(), self.waiting.is_none()) {
            (false, _) => Interest::Write,
            (true, true) => Interest::Read,
            (true, false) => Interest::Nothing,
        }
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn is_momentary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
