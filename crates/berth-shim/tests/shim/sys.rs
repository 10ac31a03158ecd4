//! Sockets of the daemon's kind, which the standard library does not have.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

pub fn listen(path: &Path) -> OwnedFd {
    // SAFETY: the address is all zeros before its parts are written, and outlives the calls.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0);
        let mut address = std::mem::zeroed::<libc::sockaddr_un>();
        address.sun_family = libc::AF_UNIX as _;
        for (to, from) in address.sun_path.iter_mut().zip(path.to_str().unwrap().bytes()) {
            *to = from as _;
        }
        assert_eq!(libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as _), 0);
        assert_eq!(libc::listen(fd, 16), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

pub fn accept(listener: &OwnedFd) -> OwnedFd {
    assert!(is_readable(listener.as_raw_fd(), 20_000), "nobody has connected");
    // SAFETY: the address of the other side is left out.
    let fd =
        unsafe { libc::accept4(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: the kernel has just given this descriptor to nobody else.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

pub fn is_readable(fd: RawFd, within_ms: i32) -> bool {
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one element of this frame.
    unsafe { libc::poll(&raw mut polled, 1, within_ms) > 0 }
}

/// Empty when the other side has hung up.
pub fn receive(socket: &OwnedFd) -> Vec<u8> {
    let mut bytes = vec![0; 256];
    // SAFETY: pointer and length are of the same vector.
    let length = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    bytes.truncate(usize::try_from(length).unwrap_or(0));
    bytes
}

pub fn send(socket: &OwnedFd, bytes: &[u8], files: &[&File]) {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 16];
    let fds: Vec<RawFd> = files.iter().map(|file| file.as_raw_fd()).collect();
    let room = (size_of::<RawFd>() * fds.len()) as u32;
    // SAFETY: the header points to buffers of this frame; the control buffer is larger than a message with these descriptors.
    unsafe {
        let mut header = std::mem::zeroed::<libc::msghdr>();
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        if !fds.is_empty() {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(room) as _;
            let message = libc::CMSG_FIRSTHDR(&raw const header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(room) as _;
            libc::CMSG_DATA(message).cast::<RawFd>().copy_from_nonoverlapping(fds.as_ptr(), fds.len());
        }
        assert_eq!(libc::sendmsg(socket.as_raw_fd(), &raw const header, libc::MSG_NOSIGNAL), bytes.len() as isize);
    }
}

pub fn kill(pid: u32) {
    // SAFETY: the call takes integers only; the process is a child of this one.
    assert_eq!(unsafe { libc::kill(pid.cast_signed(), libc::SIGKILL) }, 0);
}
