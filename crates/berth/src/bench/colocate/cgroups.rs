//! A cgroup for each program, where that is possible: so a daemon tells them apart.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer"];

/// Removed when it is dropped, which must be after what ran in them has ended.
#[derive(Debug)]
pub struct Cgroups {
    hierarchy: PathBuf,
    root: PathBuf,
}

impl Cgroups {
    pub fn make(names: &[&str]) -> anyhow::Result<Self> {
        let is_there = |dir: &PathBuf| dir.join("cgroup.procs").exists();
        let Some(hierarchy) = HIERARCHIES.iter().map(PathBuf::from).find(is_there) else {
            bail!("no cgroup hierarchy is mounted under /sys/fs/cgroup");
        };
        let cgroups = Self { root: hierarchy.join(format!("berth-colocate-{}-pair", std::process::id())), hierarchy };
        for dir in [cgroups.root.clone()].into_iter().chain(names.iter().map(|name| cgroups.dir(name))) {
            std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        }
        Ok(cgroups)
    }

    pub fn dir(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// As berth calls a tenant that is a plain cgroup.
    pub fn tenant(&self, name: &str) -> String {
        let dir = self.dir(name);
        format!("/{}", dir.strip_prefix(&self.hierarchy).unwrap_or(&dir).display())
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        let below = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        for dir in below.map(|entry| entry.path()).filter(|path| path.is_dir()) {
            let _ = std::fs::remove_dir(dir);
        }
        let _ = std::fs::remove_dir(Path::new(&self.root));
    }
}
