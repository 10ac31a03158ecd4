//! The socket to the daemon. Nothing here blocks but `wait`.
//!
//! A program may close descriptors that are not its own, and then get their numbers for something else. So before it is used a descriptor is
//! looked at: if it is not the socket any more, it is left alone and counts as hung up.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use berth_proto::shim::message::{MESSAGE_BYTES, Packet};

/// Our descriptors are above this where the limit allows it, which is 1024 or more.
const HIGH: libc::c_int = 960;
/// Descriptors that can come with a message.
const MOST_FILES: usize = 4;

/// The socket of this process, for a forked child to close.
static KNOWN: Known = Known { descriptor: AtomicI32::new(-1), identity: [const { AtomicU64::new(0) }; 2] };

#[derive(Debug)]
pub(crate) struct Socket {
    /// Negative once it is closed.
    descriptor: AtomicI32,
    identity: [u64; 2],
}

#[derive(Debug)]
struct Known {
    descriptor: AtomicI32,
    identity: [AtomicU64; 2],
}

#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) packet: Packet,
    pub(crate) length: usize,
    pub(crate) files: Vec<File>,
}

/// Room for the control message with the descriptors, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

impl Socket {
    /// Fails at once where nobody listens, or where those who do are behind.
    pub(crate) fn connect(path: &Path) -> io::Result<Self> {
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the call takes integers only.
        let descriptor = checked(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
        // SAFETY: the kernel has just given this descriptor to nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let (address, length) = address(path)?;
        // SAFETY: the address is of `length` bytes and outlives the call.
        checked(unsafe { libc::connect(descriptor, (&raw const address).cast(), length) })?;
        let socket = out_of_the_way(socket);
        let identity = identity(socket.as_raw_fd()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { descriptor: AtomicI32::new(socket.into_raw_fd()), identity })
    }

    /// Has a forked child close it.
    pub(crate) fn remember(&self) {
        for (known, own) in KNOWN.identity.iter().zip(self.identity) {
            known.store(own, Ordering::Relaxed);
        }
        KNOWN.descriptor.store(self.descriptor.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// If it is still the socket.
    fn own(&self) -> io::Result<RawFd> {
        let descriptor = self.descriptor.load(Ordering::Relaxed);
        if descriptor < 0 || identity(descriptor) != Some(self.identity) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(descriptor)
    }

    pub(crate) fn close(&self) {
        let own = self.own();
        self.descriptor.store(-1, Ordering::Relaxed);
        if let Ok(descriptor) = own {
            // SAFETY: it is our own, and nobody has its number after this.
            unsafe { libc::close(descriptor) };
        }
    }

    pub(crate) fn send(&self, packet: &Packet) -> io::Result<()> {
        let descriptor = self.own()?;
        // SAFETY: pointer and length are the packet's.
        let sent = unsafe {
            libc::send(descriptor, packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next message, with a length of 0 when the daemon has hung up. `WouldBlock` if there is none.
    pub(crate) fn receive(&self) -> io::Result<Received> {
        let descriptor = self.own()?;
        let (mut packet, mut control) = ([0; MESSAGE_BYTES], Control([0; 64]));
        let mut part = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
        // SAFETY: all zeros is a message header without anything in it.
        let mut header = unsafe { std::mem::zeroed::<libc::msghdr>() };
        header.msg_iov = &raw mut part;
        header.msg_iovlen = 1;
        header.msg_control = control.0.as_mut_ptr().cast();
        header.msg_controllen = control.0.len() as _;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        // SAFETY: the header points to buffers of this frame with their sizes.
        let length = unsafe { libc::recvmsg(descriptor, &raw mut header, flags) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        Ok(Received { packet, length, files: files(&header) })
    }

    /// Until there is something to receive, or to be found out.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        let mut polled = libc::pollfd { fd: self.descriptor.load(Ordering::Relaxed), events: libc::POLLIN, revents: 0 };
        let time = libc::timespec {
            tv_sec: longest.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        // SAFETY: one element of this frame; a negative descriptor is passed over.
        let ready = unsafe { libc::ppoll(&raw mut polled, 1, &raw const time, std::ptr::null()) };
        ready > 0 && polled.revents != 0
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.close();
    }
}

/// In a forked child, where nobody uses the parent's.
pub(crate) fn close_in_child() {
    let identity = KNOWN.identity.each_ref().map(|number| number.load(Ordering::Relaxed));
    drop(Socket { descriptor: AtomicI32::new(KNOWN.descriptor.swap(-1, Ordering::Relaxed)), identity });
}

/// What a descriptor is: another one of the same number is something else.
fn identity(descriptor: RawFd) -> Option<[u64; 2]> {
    // The one of the two that scripts/shim.sh has for old C libraries.
    // SAFETY: all zeros is a value of it, and the call writes it.
    let mut about = unsafe { std::mem::zeroed::<libc::stat64>() };
    // SAFETY: as above.
    let told = unsafe { libc::fstat64(descriptor, &raw mut about) };
    (told == 0 && about.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some([about.st_dev, about.st_ino])
}

fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros is an address without a name.
    let mut address = unsafe { std::mem::zeroed::<libc::sockaddr_un>() };
    let name = path.as_os_str().as_bytes();
    if name.len() >= address.sun_path.len() || name.contains(&0) {
        return Err(io::Error::other(format!("{} is too long for a socket's name", path.display())));
    }
    address.sun_family = libc::AF_UNIX.try_into().unwrap_or_default();
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = from.cast_signed() as libc::c_char;
    }
    Ok((address, size_of::<libc::sockaddr_un>().try_into().unwrap_or_default()))
}

/// Whatever descriptors came, so that none is left open.
fn files(header: &libc::msghdr) -> Vec<File> {
    let mut files = Vec::new();
    // SAFETY: the kernel has filled in the control buffer this header points to; the macros stay within it.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(header);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let bytes = ((*message).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(message).cast::<RawFd>();
                for index in 0..(bytes / size_of::<RawFd>()).min(MOST_FILES * 2) {
                    files.push(File::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(header, message);
        }
    }
    files
}

/// A number that the program is unlikely to get again, should it close descriptors that are not its own.
fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    // SAFETY: the call takes integers only.
    let higher = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) };
    if higher < 0 {
        return descriptor;
    }
    // SAFETY: the kernel has just given this descriptor to nobody else.
    unsafe { OwnedFd::from_raw_fd(higher) }
}

fn checked(answer: RawFd) -> io::Result<RawFd> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}
