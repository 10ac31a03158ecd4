//! The socket in the file system: made with its permissions in place, never taken from a daemon that lives, removed at the end.
//!
//! Containers mount its directory, not the socket: one that a later daemon makes is found there, too. Everybody may connect; who is let
//! attach is decided by who it is.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};

use super::ShimError;

/// Connections that wait to be accepted; more are turned away by the kernel.
const BACKLOG: i32 = 1_024;
const SOCKET_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o755;

#[derive(Debug)]
pub struct Place {
    pub listener: OwnedFd,
    path: PathBuf,
    /// Device and inode of our socket: somebody else's at the same path is left alone.
    identity: (u64, u64),
}

impl Place {
    /// What a dead daemon left at `path` is replaced.
    pub fn take(path: &Path) -> Result<Self, ShimError> {
        make_directory(path)?;
        refuse_if_taken(path)?;
        let failed = |source| ShimError::Listen { path: path.to_owned(), source };
        let (listener, identity) = bind_in_place(path).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), identity })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "socket could not be removed");
        }
    }
}

/// One that is there keeps its permissions.
fn make_directory(path: &Path) -> Result<(), ShimError> {
    let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty() && !parent.exists()) else {
        return Ok(());
    };
    let made =
        fs::create_dir_all(parent).and_then(|()| fs::set_permissions(parent, Permissions::from_mode(DIRECTORY_MODE)));
    made.map_err(|source| ShimError::Directory { path: parent.to_owned(), source })
}

fn refuse_if_taken(path: &Path) -> Result<(), ShimError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(ShimError::NotASocket { path: path.to_owned() });
    }
    let answers = packet_socket().and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?));
    match answers {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        Ok(()) | Err(_) => Err(ShimError::InUse { path: path.to_owned() }),
    }
}

fn packet_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Binds under another name and renames, so that a stale socket is replaced at once.
fn bind_in_place(path: &Path) -> io::Result<(OwnedFd, (u64, u64))> {
    let hidden = path.with_extension(std::process::id().to_string());
    let listener = packet_socket()?;
    // Left by a process of this pid that was killed in between.
    let _ = fs::remove_file(&hidden);
    bind(&listener, &SocketAddrUnix::new(&hidden)?)?;
    let placed = (|| {
        fs::set_permissions(&hidden, Permissions::from_mode(SOCKET_MODE))?;
        listen(&listener, BACKLOG)?;
        let found = fs::symlink_metadata(&hidden)?;
        fs::rename(&hidden, path)?;
        Ok((found.dev(), found.ino()))
    })();
    if placed.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&hidden);
    }
    placed.map(|identity| (listener, identity))
}
