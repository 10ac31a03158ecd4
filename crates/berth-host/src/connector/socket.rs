//! The netlink socket: subscribing and receiving.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use berth_model::Mono;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with};

use super::ConnectorError;
use super::message::{Message, Request};
use crate::clock;

const GROUP: u32 = 1;

/// Numbers requests, so that answers can be told apart.
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The kernel answers while the request is being sent, so this is long.
const ANSWER_WITHIN: Duration = Duration::from_millis(200);

/// A subscription; ends when dropped.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    /// The kernel passes on only what was asked for.
    pub is_filtered: bool,
}

/// What was waiting on the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// When the last program was started; `None` if none was.
    pub last_exec: Option<Mono>,
}

impl Socket {
    pub fn subscribe() -> Result<Socket, ConnectorError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(netlink::CONNECTOR))
            .map_err(ConnectorError::io("open a netlink socket"))?;
        bind(&fd, &SocketAddrNetlink::new(0, GROUP)).map_err(ConnectorError::io("bind a netlink socket"))?;
        let mut socket = Socket { fd, is_filtered: false };
        if socket.ask(Request::ListenAllFilterable)? {
            socket.send(Request::ListenExec, 0).map_err(ConnectorError::io("ask"))?;
            socket.is_filtered = true;
        } else if !socket.ask(Request::ListenAll)? {
            return Err(ConnectorError::NoAnswer);
        }
        Ok(socket)
    }

    /// Whether the kernel agreed; `false` if it did not answer.
    fn ask(&self, request: Request) -> Result<bool, ConnectorError> {
        // Other listeners' answers come by the same group; the number tells ours.
        let own = NUMBER.fetch_add(1, Ordering::Relaxed) ^ std::process::id().rotate_left(16);
        let deadline = clock::now() + ANSWER_WITHIN;
        self.send(request, own).map_err(ConnectorError::io("ask"))?;
        let mut buffer = [0u8; 256];
        loop {
            match recv(&self.fd, &mut buffer, RecvFlags::empty()) {
                Ok((length, _)) => match Message::decode(&buffer[..length]) {
                    Some(Message::Ack { number, error: 0 }) if number == own => return Ok(true),
                    Some(Message::Ack { number, error }) if number == own => return Err(refusal(error)),
                    _ => {}
                },
                Err(Errno::AGAIN) if clock::now() < deadline => {
                    let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
                    let left = timespec(deadline.since(clock::now()));
                    poll(&mut fds, Some(&left)).map_err(ConnectorError::io("wait for an answer"))?;
                }
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(errno) => return Err(ConnectorError::io("receive an answer")(errno)),
            }
        }
    }

    fn send(&self, request: Request, number: u32) -> Result<(), Errno> {
        let kernel = SocketAddrNetlink::new(0, 0);
        sendto(&self.fd, &request.encode(number), SendFlags::empty(), &kernel).map(drop)
    }

    /// Takes everything that waits, without blocking.
    pub fn drain(&self) -> Result<Drained, ConnectorError> {
        let mut buffer = [0u8; 256];
        let mut last_exec = None;
        loop {
            match recv(&self.fd, &mut buffer, RecvFlags::empty()) {
                Ok((length, _)) => {
                    if let Some(Message::Exec { at }) = Message::decode(&buffer[..length]) {
                        last_exec = last_exec.max(Some(at));
                    }
                }
                Err(Errno::AGAIN) => return Ok(Drained { last_exec }),
                Err(Errno::INTR) => {}
                // More was told than fits: surely something was started.
                Err(Errno::NOBUFS) => last_exec = last_exec.max(Some(clock::now())),
                Err(errno) => return Err(ConnectorError::io("receive")(errno)),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Socket {
    /// Kernels before 6.6 count listeners by their word, not by their sockets.
    fn drop(&mut self) {
        let _ = self.send(Request::Ignore, 0);
    }
}

/// What the kernel means by this error number. Kernels before 6.6 ask for a privilege.
pub(super) fn refusal(error: u32) -> ConnectorError {
    match i32::try_from(error).map(Errno::from_raw_os_error) {
        Ok(Errno::PERM) => ConnectorError::NoPermission,
        Ok(errno) => ConnectorError::Refused { source: errno.into() },
        Err(_) => ConnectorError::NoAnswer,
    }
}

pub fn timespec(duration: Duration) -> Timespec {
    let secs = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: secs, tv_nsec: duration.subsec_nanos().into() }
}
