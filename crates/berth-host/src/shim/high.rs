//! Connections that are closed before anything else when the daemon is killed.
//!
//! The kernel closes what a dead process had open from the highest descriptor down (since 4.3), and takes milliseconds for each probe among
//! them. Whoever is stopped goes on when it hears the hang-up, so connections lie above all else.

use std::os::fd::OwnedFd;

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Resource, getrlimit};

/// Above what a daemon has open otherwise, and not so high that the kernel's table grows large.
const LOWEST: u64 = 4_096;

/// The same open file by a high descriptor; where there is none to be had, by the one it has.
pub fn high(fd: OwnedFd) -> OwnedFd {
    let lowest = getrlimit(Resource::Nofile).current.map_or(LOWEST, |limit| LOWEST.min(limit / 2));
    match i32::try_from(lowest).map(|lowest| fcntl_dupfd_cloexec(&fd, lowest)) {
        Ok(Ok(high)) => high,
        _ => fd,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_connection_is_the_same_above_whatever_else_is_open() {
        let (one, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let low = one.as_raw_fd();
        let one = high(one);
        assert!(one.as_raw_fd() >= 256 && one.as_raw_fd() > low, "{one:?}");
        assert!(rustix::io::fcntl_getfd(&one).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        rustix::io::write(&other, b"heard").unwrap();
        let mut heard = [0; 8];
        assert_eq!(rustix::io::read(&one, &mut heard).unwrap(), 5);
        drop(one);
        assert_eq!(rustix::io::read(&other, &mut heard).unwrap(), 0, "it was open once, and is closed");
    }
}
