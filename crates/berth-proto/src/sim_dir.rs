//! The simulator's directory: what is in it, and how a library inside it finds the rest.
//!
//! The directory is mounted into containers at any path, so a library goes by its own file: it is `lib/<soname>`, and
//! everything else lies one folder up. `BERTH_SIM_DIR` overrides that.

mod sys;

use std::path::{Path, PathBuf};

/// The driver's socket.
pub const SOCKET: &str = "gpu.sock";
/// The socket for making things go wrong.
pub const CONTROL: &str = "control.sock";
/// Locked by the server that owns the directory.
pub const LOCK: &str = "lock";
/// The folder of the two libraries.
pub const LIBRARIES: &str = "lib";
pub const CUDA_SONAME: &str = "libcuda.so.1";
pub const NVML_SONAME: &str = "libnvidia-ml.so.1";

/// The environment variable that overrides the search.
pub const VARIABLE: &str = "BERTH_SIM_DIR";

/// The directory of the simulator that the library holding `address` belongs to.
pub fn find(address: *const std::ffi::c_void) -> Option<PathBuf> {
    let forced = std::env::var_os(VARIABLE).filter(|dir| !dir.is_empty());
    match forced {
        Some(dir) => Some(dir.into()),
        None => above_library(&sys::file_of(address)?),
    }
}

/// `<dir>/lib/libcuda.so.1` → `<dir>`, at the file's absolute path so that a later change of directory does not matter.
fn above_library(library: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(library).ok()?;
    absolute.parent()?.parent().map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_one_above_the_librarys_folder() {
        let dir = above_library(Path::new("/sim/lib/libcuda.so.1"));
        assert_eq!(dir.as_deref(), Some(Path::new("/sim")));
        assert_eq!(above_library(Path::new("/")), None);
    }

    #[test]
    fn an_address_is_traced_to_the_file_it_was_loaded_from() {
        let address = find as *const std::ffi::c_void;
        let exe = std::env::current_exe().unwrap();
        let found = sys::file_of(address).unwrap();
        assert_eq!(found.file_name(), exe.file_name());
    }
}
