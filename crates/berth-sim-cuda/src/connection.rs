//! One conversation with the simulator's server.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use berth_proto::sim::{Reply, Request};
use berth_proto::wire::{Call, Frames, Hello, Message, Role, Welcome, WireError};

#[derive(Debug)]
pub(crate) enum Lost {
    Io(io::Error),
    Wire(WireError),
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Lost::Io(error)
    }
}

impl From<WireError> for Lost {
    fn from(error: WireError) -> Self {
        Lost::Wire(error)
    }
}

#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    frames: Frames,
    outgoing: Vec<u8>,
}

impl Connection {
    /// Connects and makes sure that both sides speak the same version. The socket does not survive an `exec`.
    pub(crate) fn open(socket: &Path, role: Role) -> Result<Self, Lost> {
        let stream = UnixStream::connect(socket)?;
        let mut connection = Self { stream, frames: Frames::default(), outgoing: Vec::new() };
        connection.send(&Hello::new(role))?;
        connection.receive::<Welcome>()?;
        Ok(connection)
    }

    /// Asks and waits for the answer.
    pub(crate) fn call(&mut self, request: Request) -> Result<Reply, Lost> {
        self.send(&Call { wants_reply: true, request })?;
        self.receive()
    }

    /// Asks without waiting for anything but room in the socket.
    pub(crate) fn post(&mut self, request: Request) -> Result<(), Lost> {
        self.send(&Call { wants_reply: false, request })
    }

    /// Asks for an answer that [`Connection::answer_within`] fetches.
    pub(crate) fn ask(&mut self, request: Request) -> Result<(), Lost> {
        self.send(&Call { wants_reply: true, request })
    }

    /// The answer, if it comes in this time; without a limit it is waited for.
    pub(crate) fn answer_within(&mut self, patience: Option<Duration>) -> Result<Option<Reply>, Lost> {
        if let Some(frame) = self.frames.next_frame()? {
            return Ok(Some(Reply::decode(frame)?));
        }
        match patience {
            Some(patience) if !self.is_readable_within(patience)? => Ok(None),
            _ => self.receive().map(Some),
        }
    }

    fn is_readable_within(&self, patience: Duration) -> io::Result<bool> {
        let mut fds = libc::pollfd { fd: self.stream.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let limit = libc::timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        // SAFETY: one descriptor that is ours and open, and a limit that lives through the call.
        let ready = unsafe { libc::ppoll(&raw mut fds, 1, &raw const limit, std::ptr::null()) };
        match ready {
            -1 => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                error => Err(error),
            },
            ready => Ok(ready > 0),
        }
    }

    fn send<M: Message>(&mut self, message: &M) -> Result<(), Lost> {
        self.outgoing.clear();
        message.encode(&mut self.outgoing)?;
        // The standard library sends on sockets without raising SIGPIPE and starts again after a signal.
        self.stream.write_all(&self.outgoing)?;
        Ok(())
    }

    fn receive<M: Message>(&mut self) -> Result<M, Lost> {
        let mut chunk = [0; 512];
        loop {
            if let Some(frame) = self.frames.next_frame()? {
                return Ok(M::decode(frame)?);
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Lost::Io(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => self.frames.push(&chunk[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
