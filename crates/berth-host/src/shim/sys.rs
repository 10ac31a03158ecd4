//! The one question about a socket's other end that `rustix` does not put.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Linux 6.5; not in `libc` for every target.
const SO_PEERPIDFD: libc::c_int = 77;
/// Of a descriptor.
const SIZE: libc::socklen_t = 4;
const _: () = assert!(size_of::<RawFd>() == 4);

/// A pidfd of the process that connected, which cannot come to mean another. An error on kernels before 6.5.
pub fn peer_pidfd(socket: impl AsFd) -> io::Result<OwnedFd> {
    let (mut pidfd, mut len): (RawFd, libc::socklen_t) = (-1, SIZE);
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: both pointers are to variables that outlive the call, and `len` is the size of what the first points to.
    let answer =
        unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, SO_PEERPIDFD, (&raw mut pidfd).cast(), &raw mut len) };
    if answer < 0 || pidfd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}
