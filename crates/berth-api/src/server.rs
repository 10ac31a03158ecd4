//! The Unix socket: made with its permissions in place, never taken from a daemon that lives, removed at a clean stop. And a port for metrics.

use std::convert::Infallible;
use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use tokio::net::{TcpListener, UnixListener};

use berth_model::settings::LONGEST_SOCKET;

use crate::control::{Control, Served};
use crate::feed::Feed;
use crate::serve::{serve, serve_metrics};

const GROUPS: &str = "/etc/group";

/// A socket that is bound and owned; dropping it removes the socket from the file system.
#[derive(Debug)]
pub struct Server {
    listener: StdListener,
    path: PathBuf,
    /// Device and inode of our socket: somebody else's at the same path is left alone.
    identity: (u64, u64),
}

/// Who may connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Permissions of the socket.
    pub mode: u32,
    /// The group it belongs to; `None` leaves it with the daemon's own.
    pub group: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(
        "there is no group `{group}` in {GROUPS}: make it (`groupadd {group}`), or set api.socket_group to one that is there"
    )]
    NoSuchGroup { group: String },
    #[error("reading {GROUPS} for api.socket_group")]
    Groups { source: io::Error },
    #[error("another daemon answers on {path}: stop it, or give this one a socket of its own (api.socket)")]
    InUse { path: PathBuf },
    #[error("{path} exists and is no socket: remove it, or set api.socket to another path")]
    NotASocket { path: PathBuf },
    #[error("making the directory {path} for the socket (api.socket chooses another place)")]
    Directory { path: PathBuf, source: io::Error },
    #[error("listening on {path} (api.socket chooses another place)")]
    Listen { path: PathBuf, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
#[error("serving {path}")]
pub struct ServeError {
    path: PathBuf,
    source: io::Error,
}

impl Server {
    /// What a dead daemon left at `path` is replaced.
    pub fn bind(path: &Path, access: &Access) -> Result<Self, BindError> {
        let gid = access.group.as_deref().map(gid_of).transpose()?;
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            let failed = |source| BindError::Directory { path: parent.to_owned(), source };
            fs::create_dir_all(parent).map_err(failed)?;
        }
        refuse_if_taken(path)?;
        let failed = |source| BindError::Listen { path: path.to_owned(), source };
        let (listener, identity) = bind_in_place(path, access.mode, gid).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), identity })
    }

    /// For whoever answers by itself, as the placer does. The socket is removed when this is dropped.
    pub fn listener(&self) -> Result<UnixListener, ServeError> {
        let failed = |source| ServeError { path: self.path.clone(), source };
        self.listener.try_clone().and_then(UnixListener::from_std).map_err(failed)
    }

    /// Answers until `stop` is done, then ends the event streams and lets other answers finish.
    pub async fn serve(
        self,
        feed: Arc<Feed>,
        control: Arc<dyn Control>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let listener = self.listener()?;
        serve(listener, Served { feed, control, reading: Arc::default() }, stop).await;
        Ok(())
    }
}

/// A port for metrics alone.
#[derive(Debug)]
pub struct MetricsPort {
    listener: StdTcpListener,
}

impl MetricsPort {
    pub fn bind(address: SocketAddr) -> Result<Self, PortError> {
        let bound = StdTcpListener::bind(address).and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = bound.map_err(|source| PortError { address, source })?;
        Ok(Self { listener })
    }

    /// Where it listens: the port, where the settings left that to the kernel.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Answers for as long as it is polled.
    pub async fn serve(self, feed: Arc<Feed>, control: Arc<dyn Control>) -> io::Result<Infallible> {
        let listener = TcpListener::from_std(self.listener)?;
        Ok(serve_metrics(listener, Served { feed, control, reading: Arc::default() }).await)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("listening on {address} for metrics (api.metrics_listen)")]
pub struct PortError {
    address: SocketAddr,
    source: io::Error,
}

impl Drop for Server {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "socket could not be removed");
        }
    }
}

/// Local groups only: asking a directory service could block.
fn gid_of(group: &str) -> Result<u32, BindError> {
    let text = fs::read_to_string(GROUPS).map_err(|source| BindError::Groups { source })?;
    let gid = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == group).then(|| fields.nth(1)?.parse().ok())?
    };
    text.lines().find_map(gid).ok_or_else(|| BindError::NoSuchGroup { group: group.to_owned() })
}

fn refuse_if_taken(path: &Path) -> Result<(), BindError> {
    let Ok(found) = fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.to_owned() });
    }
    match connect_at_once(path) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        Ok(_) | Err(_) => Err(BindError::InUse { path: path.to_owned() }),
    }
}

/// Somebody who listens and is too stuck to accept is found too: a connection that would have to wait fails.
fn connect_at_once(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Binds under another name and renames, so that nobody can connect before the permissions are right, and a stale
/// socket is replaced at once.
fn bind_in_place(path: &Path, mode: u32, gid: Option<u32>) -> io::Result<(StdListener, (u64, u64))> {
    let (listener, hidden) = bind_beside(path)?;
    let placed = (|| {
        listener.set_nonblocking(true)?;
        // The group before the permissions, which are for it.
        std::os::unix::fs::chown(&hidden, None, gid)?;
        fs::set_permissions(&hidden, Permissions::from_mode(mode))?;
        let found = fs::symlink_metadata(&hidden)?;
        fs::rename(&hidden, path)?;
        Ok((found.dev(), found.ino()))
    })();
    match placed {
        Ok(identity) => Ok((listener, identity)),
        Err(error) => {
            // The first error is the one to tell.
            let _ = fs::remove_file(&hidden);
            Err(error)
        }
    }
}

/// Binds under a name that is free for the moment. It must fit where the socket's own does, which may be shorter.
fn bind_beside(path: &Path) -> io::Result<(StdListener, PathBuf)> {
    let name_bytes = path.file_name().map_or(0, std::ffi::OsStr::len);
    let room = LONGEST_SOCKET.saturating_sub(path.as_os_str().len() - name_bytes);
    let ours = format!(".{:x}", std::process::id());
    if ours.len() <= room {
        let hidden = path.with_file_name(ours);
        // If it is there, then from another process that had our pid and was killed.
        match fs::remove_file(&hidden) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => return Ok((StdListener::bind(&hidden)?, hidden)),
        }
    }
    let short = ('a'..='z').map(|letter| path.with_file_name(letter.to_string())).filter(|hidden| hidden != path);
    for hidden in short {
        match StdListener::bind(&hidden) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            bound => return Ok((bound?, hidden)),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    fn access(mode: u32) -> Access {
        Access { mode, group: None }
    }

    #[test]
    fn the_socket_belongs_to_its_group_and_a_missing_group_is_named() {
        let dir = dir();
        let path = dir.path().join("s");
        let own_gid = fs::metadata(dir.path()).unwrap().gid();
        let groups = fs::read_to_string(GROUPS).unwrap();
        let own = groups.lines().find(|line| line.split(':').nth(2) == Some(&own_gid.to_string())).unwrap();
        let group = Some(own.split(':').next().unwrap().to_owned());
        let _server = Server::bind(&path, &Access { mode: 0o660, group }).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().gid(), own_gid);
        let nobody = Access { mode: 0o660, group: Some("no-such-group".into()) };
        let error = Server::bind(&dir.path().join("t"), &nobody).unwrap_err().to_string();
        assert!(error.contains("`no-such-group`") && error.contains("api.socket_group"), "{error}");
    }

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn the_socket_has_its_permissions_and_a_missing_directory_is_made() {
        let dir = dir();
        let path = dir.path().join("made/berth.sock");
        let _server = Server::bind(&path, &access(0o640)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn a_living_daemon_s_socket_is_refused_and_stays_its_own() {
        let dir = dir();
        let path = dir.path().join("s");
        let _first = Server::bind(&path, &access(0o600)).unwrap();
        let error = Server::bind(&path, &access(0o600)).unwrap_err();
        assert!(matches!(error, BindError::InUse { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()));
        UnixStream::connect(&path).unwrap();
    }

    /// Its queue is full: a connection that waits for room would wait for ever.
    #[test]
    fn a_stuck_daemon_s_socket_is_refused_without_waiting() {
        let dir = dir();
        let path = dir.path().join("s");
        let stuck = StdListener::bind(&path).unwrap();
        rustix::net::listen(&stuck, 0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(socket) = connect_at_once(&path) {
            waiting.push(socket);
        }
        assert!(matches!(Server::bind(&path, &access(0o600)), Err(BindError::InUse { .. })));
    }

    #[test]
    fn a_dead_daemon_s_socket_is_replaced() {
        let dir = dir();
        let path = dir.path().join("s");
        drop(StdListener::bind(&path).unwrap());
        assert!(path.exists(), "a plain listener leaves its socket");
        let _server = Server::bind(&path, &access(0o600)).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_touched() {
        let dir = dir();
        let path = dir.path().join("s");
        fs::write(&path, "mine").unwrap();
        assert!(matches!(Server::bind(&path, &access(0o600)), Err(BindError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    /// A longer one could be made too, under its shorter name, and nobody could connect to it.
    #[test]
    fn a_path_as_long_as_the_settings_allow_can_be_connected_to() {
        let dir = dir();
        let name = "x".repeat(LONGEST_SOCKET - dir.path().as_os_str().len() - 1);
        let path = dir.path().join(&name);
        let _server = Server::bind(&path, &access(0o600)).unwrap();
        UnixStream::connect(&path).unwrap();
        UnixStream::connect(dir.path().join(name + "x")).unwrap_err();
    }

    #[test]
    fn a_short_name_in_a_long_directory_can_be_bound_and_connected_to() {
        for name in ["s", "a", "ab", "sock", "b.sock", "be.sock"] {
            let dir = dir();
            let room = LONGEST_SOCKET - dir.path().as_os_str().len() - name.len() - 2;
            let deep = dir.path().join("d".repeat(room));
            let path = deep.join(name);
            assert_eq!(path.as_os_str().len(), LONGEST_SOCKET);
            fs::create_dir(&deep).unwrap();
            fs::write(deep.join("b"), "mine").unwrap();
            let _server = Server::bind(&path, &access(0o600)).unwrap();
            UnixStream::connect(&path).unwrap();
            assert_eq!(fs::read_to_string(deep.join("b")).unwrap(), "mine");
            assert_eq!(fs::read_dir(&deep).unwrap().count(), 2, "something is left in {deep:?}");
        }
    }

    #[test]
    fn at_the_end_only_our_own_socket_is_removed() {
        let dir = dir();
        let path = dir.path().join("s");
        drop(Server::bind(&path, &access(0o600)).unwrap());
        assert!(!path.exists());

        let server = Server::bind(&path, &access(0o600)).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = StdListener::bind(&path).unwrap();
        drop(server);
        assert!(path.exists(), "another's socket was removed");
    }
}
