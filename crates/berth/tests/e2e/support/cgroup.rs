//! Plain cgroups as tenants: on cgroup v2 where it is mounted, else in the v1 freezer's hierarchy.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use berth_model::TenantKey;

const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer"];

/// To remove a cgroup, which takes no time once its processes have ended.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(10);

/// Where cgroups can be made.
pub fn hierarchy() -> PathBuf {
    let mut found = HIERARCHIES.iter().map(PathBuf::from);
    found.find(|dir| dir.join("cgroup.procs").exists()).expect("a cgroup hierarchy under /sys/fs/cgroup")
}

/// A cgroup of one test; removed when dropped, by when its processes must have ended.
#[derive(Debug)]
pub struct Cgroup {
    dir: PathBuf,
    /// Inside the hierarchy.
    path: String,
}

impl Cgroup {
    /// `name` is made unique on this machine.
    pub fn make(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        Self::at(&format!("/berth-e2e-{}-{count}-{name}", std::process::id()))
    }

    /// At exactly this path. Its parents stay when it is dropped, unless nothing else is in them.
    pub fn at(path: &str) -> Self {
        let dir = hierarchy().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(&dir).unwrap_or_else(|error| panic!("making {} (as root?): {error}", dir.display()));
        Self { dir, path: path.to_owned() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn key(&self) -> TenantKey {
        TenantKey::Cgroup { path: self.path.clone() }
    }

    /// A command that runs `program` in here, with the pid it is started with.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(&self.dir).arg(program.as_ref());
        command
    }

    /// Ends every process in it and removes the cgroups they made; of the unified hierarchy only.
    pub fn clear(&self) {
        std::fs::write(self.dir.join("cgroup.kill"), "1").unwrap();
        for dir in below(&self.dir) {
            assert!(remove(&dir) || std::thread::panicking(), "{} cannot be removed", dir.display());
        }
    }
}

/// A path that an engine is told to put containers below. It makes it itself, on cgroup v1 in every hierarchy, and leaves
/// it; removed when dropped, by when the containers must be gone.
#[derive(Debug)]
pub struct CgroupParent(String);

impl CgroupParent {
    pub fn at(path: String) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for CgroupParent {
    fn drop(&mut self) {
        // A slice is systemd's, which removes it.
        let Some(top) = self.0.strip_prefix('/').and_then(|path| path.split('/').next()) else { return };
        let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        let places = hierarchies.chain([PathBuf::from("/sys/fs/cgroup")]).map(|dir| dir.join(top));
        for dir in places.flat_map(|dir| [below(&dir), vec![dir]].concat()).filter(|dir| dir.is_dir()) {
            assert!(remove(&dir) || std::thread::panicking(), "{} cannot be removed", dir.display());
        }
    }
}

/// The cgroups below this one, each after those below it.
fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let dirs = entries.map(|entry| entry.path()).filter(|path| path.is_dir());
    dirs.flat_map(|dir| [below(&dir), vec![dir]].concat()).collect()
}

/// Busy for a moment after its last process was reaped.
fn remove(dir: &Path) -> bool {
    (0..ATTEMPTS).any(|_| {
        let removed = std::fs::remove_dir(dir);
        removed.inspect_err(|_| std::thread::sleep(PAUSE)).is_ok()
    })
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let is_gone = remove(&self.dir);
        // Ours alone only if empty.
        let parents = self.dir.ancestors().skip(1).take_while(|dir| **dir != hierarchy());
        let _ = parents.map(std::fs::remove_dir).take_while(Result::is_ok).count();
        assert!(is_gone || std::thread::panicking(), "{} cannot be removed", self.dir.display());
    }
}
