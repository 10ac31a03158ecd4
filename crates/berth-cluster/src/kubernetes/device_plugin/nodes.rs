//! Device files of GPUs, from what the driver tells in `/proc/driver/nvidia`; where it tells nothing, the container runtime finds them by
//! the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use berth_model::GpuUuid;

/// What every container with a GPU needs beside the GPU's own.
const COMMON: [&str; 3] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"];

/// Where the driver tells of its GPUs, and where device files are.
#[derive(Debug, Clone)]
pub struct Roots {
    pub driver: PathBuf,
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { driver: "/proc/driver/nvidia/gpus".into(), dev: "/dev".into() }
    }
}

impl Roots {
    /// The files of these GPUs that are there; empty where the driver does not tell which they are.
    pub fn files(&self, gpus: &[GpuUuid]) -> Vec<PathBuf> {
        let minors = self.minors();
        let own: Vec<_> = gpus.iter().filter_map(|gpu| minors.get(gpu)).map(|minor| format!("nvidia{minor}")).collect();
        if own.is_empty() {
            return Vec::new();
        }
        let names = own.iter().map(String::as_str).chain(COMMON);
        names.map(|name| self.dev.join(name)).filter(|file| file.exists()).collect()
    }

    fn minors(&self) -> BTreeMap<GpuUuid, u32> {
        let Ok(entries) = std::fs::read_dir(&self.driver) else { return BTreeMap::new() };
        entries.flatten().filter_map(|entry| minor(&entry.path().join("information"))).collect()
    }
}

/// `GPU UUID: GPU-…` and `Device Minor: 0`, each on a line.
fn minor(file: &Path) -> Option<(GpuUuid, u32)> {
    let text = std::fs::read_to_string(file).ok()?;
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
    };
    Some((GpuUuid(value("GPU UUID")?), value("Device Minor")?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_those_of_the_minor_number_whatever_the_order_of_gpus() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { driver: dir.path().join("gpus"), dev: dir.path().join("dev") };
        let gpu = |name: &str| GpuUuid(name.to_owned());
        assert_eq!(roots.files(&[gpu("GPU-a")]), [""; 0].map(PathBuf::from), "no driver tells");
        for (address, uuid, minor) in [("0000:01:00.0", "GPU-a", 1), ("0000:02:00.0", "GPU-b", 0)] {
            std::fs::create_dir_all(roots.driver.join(address)).unwrap();
            let text = format!("Model: \t\t NVIDIA\nGPU UUID: \t {uuid}\nDevice Minor: \t {minor}\n");
            std::fs::write(roots.driver.join(address).join("information"), text).unwrap();
        }
        std::fs::create_dir_all(&roots.dev).unwrap();
        for name in ["nvidia0", "nvidia1", "nvidiactl"] {
            std::fs::write(roots.dev.join(name), "").unwrap();
        }
        assert_eq!(roots.files(&[gpu("GPU-a")]), ["nvidia1", "nvidiactl"].map(|name| roots.dev.join(name)));
        assert_eq!(roots.files(&[gpu("GPU-c")]), [""; 0].map(PathBuf::from));
    }
}
