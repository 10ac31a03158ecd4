//! Why the engine cannot be asked, each with what to do about it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum DockerError {
    #[error("there is no Docker socket at {path}: start Docker, or set docker.socket to where its socket is")]
    NoSocket { path: PathBuf },
    #[error("connecting to {path} is not permitted: run berth as root{}", or_member(group.as_deref()))]
    NoPermission { path: PathBuf, group: Option<String> },
    #[error("nobody listens on {path}: start Docker (systemctl start docker)")]
    NobodyListens { path: PathBuf },
    #[error("cannot connect to {path}: {source}")]
    Connect { path: PathBuf, source: io::Error },
    #[error("the engine at {path} refused to {attempt}: {source}")]
    Api { path: PathBuf, attempt: &'static str, source: bollard::errors::Error },
    #[error("the engine at {path} did not {attempt} within {} ms", within.as_millis())]
    Hung { path: PathBuf, attempt: &'static str, within: Duration },
    #[error("the engine at {path} ended its event stream: it stops or restarts")]
    StreamEnded { path: PathBuf },
    #[error("cannot set up the connection to the engine: {source}")]
    Runtime { source: io::Error },
}

impl DockerError {
    pub(super) fn connect(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NoSocket { path },
            io::ErrorKind::PermissionDenied => Self::NoPermission { group: group_of(&path), path },
            io::ErrorKind::ConnectionRefused => Self::NobodyListens { path },
            _ => Self::Connect { path, source },
        }
    }
}

fn or_member(group: Option<&str>) -> String {
    group.map_or_else(String::new, |group| format!(", or as a member of the group {group} (usermod -aG {group} USER)"))
}

/// The group whose members may use the socket; `None` if that is root's, or it cannot be seen.
fn group_of(path: &Path) -> Option<String> {
    let gid = fs::metadata(path).ok().filter(|meta| meta.mode() & 0o020 != 0)?.gid();
    let groups = fs::read_to_string("/etc/group").ok()?;
    let name = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(gid)).then(|| name.to_owned())
    });
    name.filter(|_| gid != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_to_connect_says_what_to_do() {
        let told = |kind: io::ErrorKind| DockerError::connect(Path::new("/run/x.sock"), kind.into()).to_string();
        assert!(told(io::ErrorKind::NotFound).contains("no Docker socket at /run/x.sock"));
        assert!(told(io::ErrorKind::PermissionDenied).contains("run berth as root"));
        assert!(told(io::ErrorKind::ConnectionRefused).contains("systemctl start docker"));
        assert!(told(io::ErrorKind::TimedOut).contains("cannot connect to /run/x.sock"));
    }

    #[test]
    fn a_socket_of_a_group_says_which_to_join() {
        let error = DockerError::NoPermission { path: "/run/docker.sock".into(), group: Some("docker".into()) };
        assert!(error.to_string().ends_with("member of the group docker (usermod -aG docker USER)"), "{error}");
    }
}
