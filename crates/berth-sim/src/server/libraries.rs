//! Finding the built cdylibs.

use std::path::{Path, PathBuf};

use super::options::ServeError;

const CUDA_FILE: &str = "libberth_sim_cuda.so";
const NVML_FILE: &str = "libberth_sim_nvml.so";

/// The two libraries as cargo builds them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Libraries {
    pub cuda: PathBuf,
    pub nvml: PathBuf,
}

/// Looks beside the running program, one folder up (a test runs in `target/<profile>/deps`), and where an installed
/// program keeps its libraries (`../lib/berth`).
pub fn find_libraries() -> Result<Libraries, ServeError> {
    let exe = std::env::current_exe()
        .map_err(|source| ServeError::System { what: "ask where the running program is", source })?;
    let folders = folders(&exe);
    Ok(Libraries { cuda: find(CUDA_FILE, &folders)?, nvml: find(NVML_FILE, &folders)? })
}

fn folders(exe: &Path) -> Vec<PathBuf> {
    let beside = exe.parent().unwrap_or(Path::new("/"));
    let above = beside.parent().unwrap_or(beside);
    vec![beside.into(), above.into(), above.join("lib/berth")]
}

fn find(name: &'static str, folders: &[PathBuf]) -> Result<PathBuf, ServeError> {
    let candidates = folders.iter().map(|folder| folder.join(name));
    let found = candidates.clone().find(|path| path.is_file());
    found.ok_or_else(|| ServeError::NoLibrary { name, tried: candidates.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_names_every_place_that_was_tried() {
        let dir = tempfile::tempdir().unwrap();
        let exe = dir.path().join("bin/berth");
        let error = find(CUDA_FILE, &folders(&exe)).unwrap_err().to_string();
        assert!(error.contains(dir.path().join("bin").join(CUDA_FILE).to_str().unwrap()));
        assert!(error.contains("lib/berth"));
    }

    #[test]
    fn a_test_finds_what_cargo_put_above_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(CUDA_FILE), b"").unwrap();
        let found = find(CUDA_FILE, &folders(&dir.path().join("deps/test-123"))).unwrap();
        assert_eq!(found, dir.path().join(CUDA_FILE));
    }
}
