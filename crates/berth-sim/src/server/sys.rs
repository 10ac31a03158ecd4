//! What the kernel knows about the other end of a socket. All unsafe code of the server is here.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The process that connected, as seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) pid: u32,
    pub(super) uid: u32,
}

/// `None` for a process that has no pid here (it lives in a pid namespace this server cannot see).
pub(super) fn peer(socket: &impl AsFd) -> io::Result<Option<Peer>> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    option(socket, libc::SO_PEERCRED, &mut credentials)?;
    let pid = u32::try_from(credentials.pid).ok().filter(|pid| *pid != 0);
    Ok(pid.map(|pid| Peer { pid, uid: credentials.uid }))
}

/// A pidfd of the process that connected. Where the kernel cannot give that (before 6.5), one of whoever has its pid.
pub(super) fn peer_pidfd(socket: &impl AsFd, pid: u32) -> io::Result<OwnedFd> {
    let mut raw: libc::c_int = -1;
    if option(socket, libc::SO_PEERPIDFD, &mut raw).is_ok() {
        // SAFETY: the kernel just made this descriptor for us.
        return Ok(unsafe { OwnedFd::from_raw_fd(raw) });
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn option<T>(socket: &impl AsFd, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `value` is a plain C value of `length` bytes, and the descriptor is open.
    let status = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, std::ptr::from_mut(value).cast(), &mut length) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_kernel_says_who_is_there() {
        let (here, _there) = UnixStream::pair().unwrap();
        let peer = peer(&here).unwrap().unwrap();
        assert_eq!(peer.pid, std::process::id());
        peer_pidfd(&here, peer.pid).unwrap();
    }
}
