//! Which driver library a process has loaded, from the text of `/proc/PID/maps`.

use std::path::PathBuf;

/// A driver library mapped for execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// As it names the entry in `/proc/PID/map_files`.
    pub range: String,
    /// As the process sees it, in its own mount namespace.
    pub path: PathBuf,
}

/// The first driver library in `maps`. A process has one: the symbols of a second would not be used.
pub fn driver_library(maps: &str) -> Option<Mapped> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (permissions, rest) = rest.split_once(' ')?;
        // Offset, device and inode; the path is the rest, spaces and all.
        let path = rest.splitn(4, ' ').nth(3)?.trim_start();
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let name = path.rsplit('/').next()?;
        (permissions.contains('x') && is_driver_library(name))
            .then(|| Mapped { range: range.to_owned(), path: path.into() })
    })
}

/// `libcuda.so`, `libcuda.so.1`, `libcuda.so.580.159.03`; not `libcudart.so.13`.
fn is_driver_library(name: &str) -> bool {
    name.strip_prefix("libcuda.so").is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAPS: &str = "\
55d0c8a00000-55d0c8a02000 r--p 00000000 08:01 1311 /usr/bin/python3.11
7f10a0000000-7f10a0021000 rw-p 00000000 00:00 0
7f10b0000000-7f10b0100000 r-xp 00000000 08:01 77 /usr/lib/x86_64-linux-gnu/libcudart.so.13
7f10c0000000-7f10c0200000 r--p 00000000 00:2f 4242                       /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03
7f10c0200000-7f10c0a00000 r-xp 00200000 00:2f 4242                       /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03
7ffd5b5d0000-7ffd5b5f1000 rw-p 00000000 00:00 0                          [stack]
";

    #[test]
    fn the_executable_mapping_of_the_driver_is_found_among_its_like() {
        let mapped = driver_library(MAPS).unwrap();
        assert_eq!(mapped.range, "7f10c0200000-7f10c0a00000");
        assert_eq!(mapped.path, PathBuf::from("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03"));
    }

    #[test]
    fn a_library_replaced_on_disk_is_still_found_by_its_mapping() {
        let line = "7f10c0200000-7f10c0a00000 r-xp 00200000 00:2f 4242 /opt/my driver/libcuda.so.1 (deleted)\n";
        assert_eq!(driver_library(line).unwrap().path, PathBuf::from("/opt/my driver/libcuda.so.1"));
    }

    #[test]
    fn a_process_without_the_driver_has_none() {
        assert_eq!(driver_library("7f10b0000000-7f10b0100000 r-xp 00000000 08:01 77 /lib/libcudart.so.13\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reading(text in "[ -~\\n]{0,200}") {
            driver_library(&text);
        }
    }
}
