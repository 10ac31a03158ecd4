//! Keys in files: for their owner's eyes alone, and never lost to a slip of the hand.

use std::fs::{self, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use berth_model::cluster::NodeId;

use crate::frame::{ClusterKey, InvalidKey, KeyFile, NodeKey};

/// Longer than any key file.
const MOST_BYTES: u64 = 1024;
const MODE: u32 = 0o600;

#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error("reading the key in {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} can be read by others (its permissions are {mode:04o}): whoever has it can speak for this node; `chmod 600` it, and make a new key if others may have seen it", path.display())]
    OpenToOthers { path: PathBuf, mode: u32 },
    #[error("the key in {}", path.display())]
    Invalid { path: PathBuf, source: InvalidKey },
    #[error("{} holds the key of one node, and the cluster's is needed (`berth cluster key new`)", path.display())]
    NotTheClusters { path: PathBuf },
    #[error("{} holds the key of node `{found}`, and this is node `{node}`", path.display())]
    OtherNode { path: PathBuf, found: NodeId, node: NodeId },
    #[error("{} is there already: everybody who has its key would have to be given the new one; `--force` replaces it", path.display())]
    Exists { path: PathBuf },
    #[error("writing the key to {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Refuses a file that others may read.
pub fn read(path: &Path) -> Result<KeyFile, KeyFileError> {
    let failed = |source| KeyFileError::Read { path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(failed)?;
    // Of what was opened, not of what the name may stand for by now.
    let mode = file.metadata().map_err(failed)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::OpenToOthers { path: path.to_owned(), mode });
    }
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(failed)?;
    text.parse().map_err(|source| KeyFileError::Invalid { path: path.to_owned(), source })
}

/// The cluster's key, for the placer.
pub fn cluster(path: &Path) -> Result<ClusterKey, KeyFileError> {
    match read(path)? {
        KeyFile::Cluster(key) => Ok(key),
        KeyFile::Node { .. } => Err(KeyFileError::NotTheClusters { path: path.to_owned() }),
    }
}

/// The key of this node, from its own file or from the cluster's.
pub fn node(path: &Path, node: &NodeId) -> Result<NodeKey, KeyFileError> {
    of_node(read(path)?, path, node)
}

/// The same of a file that was read; `path` is where.
pub fn of_node(file: KeyFile, path: &Path, node: &NodeId) -> Result<NodeKey, KeyFileError> {
    match file {
        KeyFile::Cluster(key) => Ok(key.node(node)),
        KeyFile::Node { node: found, key } if found == *node => Ok(key),
        KeyFile::Node { node: found, .. } => {
            Err(KeyFileError::OtherNode { path: path.to_owned(), found, node: node.clone() })
        }
    }
}

/// Readable by its owner alone. One that is there is replaced only if that is meant, and then at once or not at all.
pub fn write(path: &Path, key: &KeyFile, replace: bool) -> Result<(), KeyFileError> {
    let failed = |source| KeyFileError::Write { path: path.to_owned(), source };
    if replace {
        let beside = beside(path);
        let written = write_new(&beside, key).and_then(|()| fs::rename(&beside, path));
        return written.map_err(|source| {
            // The first error is the one to tell.
            let _ = fs::remove_file(&beside);
            failed(source)
        });
    }
    write_new(path, key).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => KeyFileError::Exists { path: path.to_owned() },
        _ => failed(source),
    })
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    name.into()
}

/// Nobody else can open it at any moment.
fn write_new(path: &Path, key: &KeyFile) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(key.to_string().as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::KEY_BYTES;

    fn cluster_key() -> ClusterKey {
        ClusterKey::new([7; KEY_BYTES])
    }

    fn id(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    #[test]
    fn a_key_is_for_its_owner_alone_and_is_not_overwritten_by_accident() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.key");
        write(&path, &KeyFile::Cluster(cluster_key()), false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(cluster(&path).unwrap(), cluster_key());
        let other = KeyFile::Cluster(ClusterKey::new([8; KEY_BYTES]));
        let error = write(&path, &other, false).unwrap_err();
        assert!(matches!(error, KeyFileError::Exists { .. }), "{error}");
        assert_eq!(cluster(&path).unwrap(), cluster_key());
        write(&path, &other, true).unwrap();
        assert_eq!(read(&path).unwrap(), other);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k");
        write(&path, &KeyFile::Cluster(cluster_key()), false).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read(&path).unwrap_err();
            assert!(matches!(error, KeyFileError::OpenToOthers { .. }), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_node_finds_its_key_in_its_own_file_or_the_cluster_s_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let (whole, own) = (dir.path().join("cluster.key"), dir.path().join("node.key"));
        let key = cluster_key().node(&id("a"));
        write(&whole, &KeyFile::Cluster(cluster_key()), false).unwrap();
        write(&own, &KeyFile::Node { node: id("a"), key: key.clone() }, false).unwrap();
        assert_eq!(node(&whole, &id("a")).unwrap(), key);
        assert_eq!(node(&own, &id("a")).unwrap(), key);
        let told = node(&own, &id("b")).unwrap_err().to_string();
        assert!(told.ends_with("holds the key of node `a`, and this is node `b`"), "{told}");
        assert!(matches!(cluster(&own), Err(KeyFileError::NotTheClusters { .. })));
        assert!(matches!(read(&dir.path().join("none")), Err(KeyFileError::Read { .. })));
    }
}
