//! Whether tenants can take part at the level of kernels here: the library that is mounted into them, the place of the socket, and MPS.
//!
//! What the driver lets a process do (waits on the GPU, green contexts) is known of those who have attached, and of nobody else.

use std::path::Path;

use berth_host::levels::Status;
use berth_model::settings::KernelSettings;
use rustix::fs::{Access, access};

use crate::mps;

/// By which a library says what it needs of the C library.
const NEEDS: &str = "GLIBC_";

pub fn check(settings: &KernelSettings) -> Status {
    if !settings.enabled {
        return Status::Off;
    }
    let library = match std::fs::read(&settings.library) {
        Ok(library) => library,
        Err(error) => {
            let path = settings.library.display();
            return Status::Missing { reason: format!("{path} cannot be read (kernels.library): {error}") };
        }
    };
    if let Err(reason) = socket_can_be(&settings.socket) {
        return Status::Missing { reason };
    }
    let floor = newest_needed(&library).map_or_else(String::new, |(major, minor)| {
        format!(" for images with glibc from {major}.{minor} on, and none with musl")
    });
    let mps = match mps::is_there() {
        true => format!("MPS runs ({}): kernels of several tenants can run side by side", mps::directory().display()),
        false => "no MPS runs: kernels of several tenants run one after the other".to_owned(),
    };
    let path = settings.library.display();
    Status::Available { detail: format!("{path}{floor}; {mps}; policy {}", settings.policy.as_str()) }
}

/// Of the nearest directory there is.
fn socket_can_be(socket: &Path) -> Result<(), String> {
    let there = socket.ancestors().skip(1).find(|directory| directory.exists()).unwrap_or(Path::new("/"));
    access(there, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
        format!("no socket can be made in {} (kernels.socket): {}", there.display(), std::io::Error::from(error))
    })
}

/// The newest version of glibc that is named in it.
fn newest_needed(library: &[u8]) -> Option<(u32, u32)> {
    let version = |at: usize| {
        let text = library[at + NEEDS.len()..].split(|byte| *byte == 0).next()?;
        let mut numbers = std::str::from_utf8(text).ok()?.split('.').map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    let places = library.windows(NEEDS.len()).enumerate().filter(|(_, window)| *window == NEEDS.as_bytes());
    places.filter_map(|(at, _)| version(at)).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(directory: &Path) -> KernelSettings {
        KernelSettings {
            enabled: true,
            library: directory.join("lib.so"),
            socket: directory.join("shim/shim.sock"),
            ..KernelSettings::default()
        }
    }

    #[test]
    fn the_library_s_floor_is_the_newest_version_it_names() {
        let library = b"\0GLIBC_2.2.5\0x\0GLIBC_2.17\0GLIBC_2.3\0GLIBC_PRIVATE\0";
        assert_eq!(newest_needed(library), Some((2, 17)));
        assert_eq!(newest_needed(b"none"), None);
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("lib.so"), library).unwrap();
        let Status::Available { detail } = check(&settings(directory.path())) else { panic!("it is there") };
        assert!(detail.contains("glibc from 2.17 on"), "{detail}");
    }

    #[test]
    fn what_is_off_is_off_and_a_library_that_is_not_there_is_named() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(check(&KernelSettings { enabled: false, ..settings(directory.path()) }), Status::Off);
        let Status::Missing { reason } = check(&settings(directory.path())) else { panic!("there is none") };
        assert!(reason.contains("lib.so") && reason.contains("kernels.library"), "{reason}");
    }
}
