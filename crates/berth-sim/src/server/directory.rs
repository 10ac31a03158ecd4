//! The server's directory: owned by one server at a time, with the libraries in place.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use berth_proto::sim_dir;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::libraries::Libraries;
use super::options::ServeError;

/// Everybody may ask the GPU something; only the owner may break it.
const SOCKET_MODE: u32 = 0o666;
const CONTROL_MODE: u32 = 0o600;

/// The directory while this server owns it. Dropping it takes the sockets away.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    /// The lock goes with the process, however it ends.
    _lock: File,
}

impl Directory {
    pub(super) fn claim(path: &Path) -> Result<Self, ServeError> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(path);
        made.map_err(|source| ServeError::File { what: "make directory", path: path.into(), source })?;
        let lock_path = path.join(sim_dir::LOCK);
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&lock_path);
        let lock = lock.map_err(|source| ServeError::File { what: "open", path: lock_path.clone(), source })?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { path: path.into(), _lock: lock }),
            Err(Errno::WOULDBLOCK) => Err(ServeError::AlreadyServed { dir: path.into() }),
            Err(errno) => Err(ServeError::File { what: "lock", path: lock_path, source: errno.into() }),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the libraries under their real names. A program that has the old file mapped keeps it.
    pub(super) fn install(&self, libraries: &Libraries) -> Result<(), ServeError> {
        let folder = self.path.join(sim_dir::LIBRARIES);
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&folder);
        made.map_err(|source| ServeError::File { what: "make directory", path: folder.clone(), source })?;
        replace(&libraries.cuda, &folder.join(sim_dir::CUDA_SONAME))?;
        replace(&libraries.nvml, &folder.join(sim_dir::NVML_SONAME))
    }

    pub(super) fn listen(&self) -> Result<UnixListener, ServeError> {
        listen(&self.path.join(sim_dir::SOCKET), SOCKET_MODE)
    }

    pub(super) fn listen_control(&self) -> Result<UnixListener, ServeError> {
        listen(&self.path.join(sim_dir::CONTROL), CONTROL_MODE)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Nothing to be done about a failure: the next server replaces what is left.
        let _ = fs::remove_file(self.path.join(sim_dir::SOCKET));
        let _ = fs::remove_file(self.path.join(sim_dir::CONTROL));
    }
}

/// Copies, then renames: whoever opens `to` gets the old file or the new one, whole.
fn replace(from: &Path, to: &Path) -> Result<(), ServeError> {
    let new = to.with_extension("new");
    let copied = fs::copy(from, &new).and_then(|_| fs::set_permissions(&new, Permissions::from_mode(0o755)));
    copied.map_err(|source| ServeError::File { what: "copy library", path: from.into(), source })?;
    fs::rename(&new, to).map_err(|source| ServeError::File { what: "put library in place at", path: to.into(), source })
}

/// A socket left by a server that was killed is replaced: the lock says that it is dead.
fn listen(path: &Path, mode: u32) -> Result<UnixListener, ServeError> {
    let failed = |what| move |source| ServeError::File { what, path: path.into(), source };
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed("remove old socket")(error)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed("listen on"))?;
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(failed("set mode of"))?;
    listener.set_nonblocking(true).map_err(failed("listen on"))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_server_is_refused_by_the_directorys_name() {
        let dir = tempfile::tempdir().unwrap();
        let first = Directory::claim(dir.path()).unwrap();
        let error = Directory::claim(dir.path()).unwrap_err();
        assert!(matches!(&error, ServeError::AlreadyServed { dir: named } if named == dir.path()), "{error}");
        drop(first);
        Directory::claim(dir.path()).unwrap();
    }

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_clean_stop_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join(sim_dir::SOCKET);
        drop(UnixListener::bind(&socket).unwrap());
        assert!(socket.exists());
        let directory = Directory::claim(dir.path()).unwrap();
        let listener = directory.listen().unwrap();
        assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, SOCKET_MODE);
        std::os::unix::net::UnixStream::connect(&socket).unwrap();
        drop((listener, directory));
        assert!(!socket.exists());
    }
}
