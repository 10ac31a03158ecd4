//! From a library's bare name to the files it may be, the way the dynamic loader looks: its cache, then the usual
//! directories. Containers' private copies are not found here but through the processes that have them loaded.

use std::fs;
use std::path::{Path, PathBuf};

const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// Where drivers are put, on distributions, by NVIDIA's installer and container toolkit, and under WSL.
const DIRECTORIES: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/nvidia/lib64",
    "/usr/lib/wsl/lib",
    "/run/opengl-driver/lib",
];

/// Files that `library` may mean, best first; a path means itself. They need not exist.
pub fn candidates(library: &Path) -> Vec<PathBuf> {
    match library.to_str() {
        Some(name) if !name.contains('/') => {
            let cache = fs::read(LOADER_CACHE).unwrap_or_default();
            let mut found = in_loader_cache(&cache, name);
            found.extend(DIRECTORIES.iter().map(|directory| Path::new(directory).join(name)));
            found
        }
        _ => vec![library.to_owned()],
    }
}

/// What the cache says about `name`, for every architecture; empty for a cache of another format.
fn in_loader_cache(cache: &[u8], name: &str) -> Vec<PathBuf> {
    const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
    const HEADER_LEN: usize = 48;
    const ENTRY_LEN: usize = 24;
    // An old-format cache may come first; the new one follows it.
    let Some(start) = cache.windows(MAGIC.len()).position(|w| w == MAGIC) else { return Vec::new() };
    let cache = &cache[start..];
    let Some(count) = word(cache, MAGIC.len()) else { return Vec::new() };
    let entries = (0..count).map_while(|entry| {
        let at = HEADER_LEN + entry * ENTRY_LEN;
        Some((word(cache, at + 4)?, word(cache, at + 8)?))
    });
    let named = entries.filter(|(key, _)| text(cache, *key) == Some(name));
    named.filter_map(|(_, value)| text(cache, value)).map(PathBuf::from).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let word = bytes.get(at..)?.first_chunk().map(|b| u32::from_le_bytes(*b))?;
    usize::try_from(word).ok()
}

fn text(bytes: &[u8], at: usize) -> Option<&str> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
        let (mut table, mut strings) = (Vec::new(), Vec::new());
        let base = 48 + 24 * entries.len();
        let mut put = |text: &str| {
            let at = u32::try_from(base + strings.len()).unwrap();
            strings.extend(text.bytes().chain([0]));
            at
        };
        for (name, path) in entries {
            for word in [0x0303, put(name), put(path), 0, 0, 0] {
                table.extend(word.to_le_bytes());
            }
        }
        let mut cache = b"glibc-ld.so.cache1.1".to_vec();
        cache.extend(u32::try_from(entries.len()).unwrap().to_le_bytes());
        cache.resize(48, 0);
        [cache, table, strings].concat()
    }

    #[test]
    fn the_loader_cache_is_asked_before_the_usual_directories() {
        let cache = cache(&[("libc.so.6", "/lib/libc.so.6"), ("libcuda.so.1", "/opt/driver/libcuda.so.1")]);
        assert_eq!(in_loader_cache(&cache, "libcuda.so.1"), [PathBuf::from("/opt/driver/libcuda.so.1")]);
        assert!(in_loader_cache(&cache, "libcuda.so").is_empty());
    }

    #[test]
    fn this_machines_own_loader_cache_can_be_read() {
        let Ok(cache) = fs::read(LOADER_CACHE) else { return };
        let found = in_loader_cache(&cache, "libc.so.6");
        assert!(found.iter().any(|path| path.exists()), "{found:?}");
    }

    #[test]
    fn a_path_means_itself() {
        assert_eq!(candidates(Path::new("/opt/libcuda.so.1")), [PathBuf::from("/opt/libcuda.so.1")]);
        assert_eq!(candidates(Path::new("./libcuda.so.1")), [PathBuf::from("./libcuda.so.1")]);
    }

    proptest! {
        #[test]
        fn a_broken_cache_gives_nothing_and_no_panic(tail: Vec<u8>) {
            in_loader_cache(&[b"glibc-ld.so.cache1.1", &tail[..]].concat(), "libcuda.so.1");
        }
    }
}
