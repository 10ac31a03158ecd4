//! The socket to the daemon and the bell that wakes our thread. Nothing here blocks but `wait`.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use berth_proto::shim::message::{MESSAGE_BYTES, Packet};

/// Our descriptors are above this where the limit allows it, which is 1024 or more.
const HIGH: libc::c_int = 960;
/// Descriptors that can come with a message.
const MOST_FILES: usize = 4;

#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) packet: Packet,
    pub(crate) length: usize,
    pub(crate) files: Vec<File>,
}

/// An eventfd.
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

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
        Ok(Self(out_of_the_way(socket)))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn send(&self, packet: &Packet) -> io::Result<()> {
        // SAFETY: pointer and length are the packet's.
        let sent = unsafe {
            libc::send(self.descriptor(), packet.as_ptr().cast(), packet.len(), libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The next message, with a length of 0 when the daemon has hung up. `WouldBlock` if there is none.
    pub(crate) fn receive(&self) -> io::Result<Received> {
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
        let length = unsafe { libc::recvmsg(self.descriptor(), &raw mut header, flags) };
        let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
        Ok(Received { packet, length, files: files(&header) })
    }

    /// Until there is something to receive.
    pub(crate) fn wait(&self, longest: Duration) -> bool {
        wait_for([self.descriptor(), -1], longest)[0]
    }
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes integers only.
        let descriptor = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel has just given this descriptor to nobody else.
        Ok(Self(out_of_the_way(unsafe { OwnedFd::from_raw_fd(descriptor) })))
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    pub(crate) fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes of this frame. It fails only when the bell has rung very often already.
        unsafe { libc::write(self.descriptor(), one.as_ptr().cast(), one.len()) };
    }

    pub(crate) fn silence(&self) {
        let mut count = [0u8; 8];
        // SAFETY: eight bytes of this frame. It fails if it has not rung.
        unsafe { libc::read(self.descriptor(), count.as_mut_ptr().cast(), count.len()) };
    }
}

/// Until the socket has something, the bell rings or the time is over; whether the socket has something. `None` leaves it out.
pub(crate) fn wait(socket: Option<&Socket>, bell: &Bell, longest: Duration) -> bool {
    wait_for([socket.map_or(-1, Socket::descriptor), bell.descriptor()], longest)[0]
}

fn wait_for(descriptors: [RawFd; 2], longest: Duration) -> [bool; 2] {
    let mut polled = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    let time = libc::timespec {
        tv_sec: longest.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: the array and its length are of this frame; a negative descriptor is passed over.
    let ready = unsafe { libc::ppoll(polled.as_mut_ptr(), 2, &raw const time, std::ptr::null()) };
    polled.map(|one| ready > 0 && one.revents != 0)
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
