//! What a container is given so that it can take part at the level of kernels: mounts and environment, for whoever starts it.
//!
//! The library is preloaded by a path with glibc's `$LIB` in it, and mounted wherever that may lead. Another C library does not know the word,
//! finds no such file and goes on; by a plain path musl would find the library, fail to load it, and end every program of the container.

use std::path::{Path, PathBuf};

/// By which a container asks to take part; as its value `true`.
pub const LABEL: &str = "berth.kernel-level";
pub const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// As the library reads it.
pub const SOCKET_VARIABLE: &str = "BERTH_SHIM_SOCKET";
/// Where all of it is inside a container.
const INSIDE: &str = "/run/berth";
pub const LIBRARY_NAME: &str = "libberth_shim.so";
/// What `$LIB` is on x86-64, for which the library is built: on Red Hat and SUSE, on Arch, on Debian and Ubuntu.
const LIBRARY_PLACES: [&str; 3] = ["lib64", "lib", "lib/x86_64-linux-gnu"];

/// Everything is mounted read-only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub mounts: Vec<Mount>,
    /// What goes into [`PRELOAD_VARIABLE`].
    pub preload: String,
    /// What [`SOCKET_VARIABLE`] is.
    pub socket: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub source: PathBuf,
    pub target: String,
}

impl Share {
    /// By where library and socket are on the host. The socket's directory is mounted and not the socket: a later daemon's is found there, too.
    pub fn new(library: &Path, socket: &Path) -> Self {
        let mut mounts: Vec<Mount> = LIBRARY_PLACES
            .iter()
            .map(|place| Mount { source: library.to_owned(), target: format!("{INSIDE}/{place}/{LIBRARY_NAME}") })
            .collect();
        let directory = socket.parent().unwrap_or(Path::new("/")).to_owned();
        mounts.push(Mount { source: directory, target: format!("{INSIDE}/shim") });
        let name = socket.file_name().unwrap_or_default().to_string_lossy();
        Self { mounts, preload: format!("{INSIDE}/$LIB/{LIBRARY_NAME}"), socket: format!("{INSIDE}/shim/{name}") }
    }

    /// What is preloaded beside what a container preloads anyway, which goes first.
    pub fn preload_behind(&self, own: Option<&str>) -> String {
        match own.map(str::trim).filter(|own| !own.is_empty()) {
            Some(own) => format!("{own}:{}", self.preload),
            None => self.preload.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_wherever_a_loader_may_look_for_it() {
        let share = Share::new(Path::new("/l/own.so"), Path::new("/s/d/a.sock"));
        let targets: Vec<&str> = share.mounts.iter().map(|mount| mount.target.as_str()).collect();
        for (place, target) in LIBRARY_PLACES.iter().zip(&targets) {
            assert_eq!(*target, share.preload.replace("$LIB", place));
        }
        assert_eq!((targets.len(), targets[3]), (4, "/run/berth/shim"));
        assert_eq!(
            (share.mounts[3].source.as_path(), share.socket.as_str()),
            (Path::new("/s/d"), "/run/berth/shim/a.sock")
        );
    }

    #[test]
    fn what_a_container_preloads_itself_stays_and_goes_first() {
        let share = Share::new(Path::new("/l/own.so"), Path::new("/s/a.sock"));
        assert_eq!(share.preload_behind(Some("/a.so /b.so")), format!("/a.so /b.so:{}", share.preload));
        for nothing in [None, Some(""), Some(" ")] {
            assert_eq!(share.preload_behind(nothing), share.preload);
        }
    }
}
