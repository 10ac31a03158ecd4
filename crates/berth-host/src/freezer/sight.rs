//! Whose names of cgroups this process sees.
//!
//! The kernel writes `/proc/PID/cgroup` as seen from the reader's cgroup namespace, and engines give a container one of its own: from
//! there everybody else's cgroup reads as `/../..`, and none can be found below the host's mount. A daemon in a pod therefore goes back
//! into its host's.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use berth_model::Stat;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::locate::Hierarchies;

/// Generations above a process that are looked at: a container's first process is three or four below the host's.
const GENERATIONS: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum SightError {
    #[error("looking at the cgroup namespace {path}")]
    Look { path: PathBuf, source: io::Error },
    #[error("entering the cgroup namespace {path} (it takes CAP_SYS_ADMIN)")]
    Enter { path: PathBuf, source: io::Error },
}

/// Why no tenant's cgroup can be found here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfSight {
    #[error(
        "berth is in a cgroup namespace of its own, from which no tenant's cgroup can be reached: give its container the host's pid \
         namespace, CAP_SYS_ADMIN and CAP_SYS_PTRACE, and no AppArmor profile, or the host's cgroup namespace"
    )]
    Namespace,
    #[error(
        "the cgroups mounted under hold.cgroup_root are not the host's: mount the host's /sys/fs/cgroup there, to be written"
    )]
    Mount,
}

/// Sees cgroups as the outermost process does that this one descends from and may look at: the host's first one, where its pid namespace is
/// ours. `true` if that was another namespace than ours. It is the calling thread that moves, and those it starts later.
pub fn see_as_the_host(proc_root: &Path) -> Result<bool, SightError> {
    let namespace = |process: &str| proc_root.join(process).join("ns/cgroup");
    let ours = namespace("self");
    let looked = |path: &Path| File::open(path).and_then(|file| Ok((file.metadata()?.ino(), file)));
    let (our_inode, _) = looked(&ours).map_err(|source| SightError::Look { path: ours, source })?;
    let above = ancestors(proc_root).into_iter().rev().map(|pid| namespace(&pid.to_string()));
    // Those of others may be hidden from us.
    let outermost = above.into_iter().find_map(|path| looked(&path).ok().map(|(inode, file)| (path, inode, file)));
    let Some((path, inode, file)) = outermost else { return Ok(false) };
    if inode == our_inode {
        return Ok(false);
    }
    let entered = move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::ControlGroup));
    entered.map_err(|errno| SightError::Enter { path, source: errno.into() })?;
    Ok(true)
}

impl Hierarchies {
    /// Whether what `/proc` names can be found here. `None` also where that cannot be told.
    pub fn out_of_sight(&self, proc_root: &Path) -> Option<OutOfSight> {
        let text = |process: &str| fs::read_to_string(proc_root.join(process).join("cgroup")).unwrap_or_default();
        let is_beyond = |dir: &PathBuf| dir.components().any(|part| part == Component::ParentDir);
        if self.dirs(&text("1")).iter().any(is_beyond) {
            return Some(OutOfSight::Namespace);
        }
        let ours = std::process::id().to_string();
        let is_missing = |dir: PathBuf| match fs::read_to_string(dir.join("cgroup.procs")) {
            Ok(pids) => !pids.lines().any(|pid| pid == ours),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        };
        self.dirs(&text("self")).into_iter().any(is_missing).then_some(OutOfSight::Mount)
    }
}

/// From the nearest to the first.
fn ancestors(proc_root: &Path) -> Vec<u32> {
    let parent = |process: &str| {
        let stat = fs::read(proc_root.join(process).join("stat")).ok()?;
        Stat::parse(&stat)?.parent().filter(|pid| *pid > 0)
    };
    std::iter::successors(parent("self"), |pid| parent(&pid.to_string())).take(GENERATIONS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A host with the unified hierarchy alone, on which `processes` are in the cgroup at `path`.
    fn host(own: &str, first: &str, path: &str, processes: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        file(dir.path(), "cgroup/cgroup.controllers", "");
        file(dir.path(), &format!("cgroup/{path}/cgroup.procs"), processes);
        file(dir.path(), "proc/self/cgroup", &format!("0::{own}\n"));
        file(dir.path(), "proc/1/cgroup", &format!("0::{first}\n"));
        dir
    }

    fn told(host: &tempfile::TempDir) -> Option<OutOfSight> {
        Hierarchies::under(&host.path().join("cgroup")).out_of_sight(&host.path().join("proc"))
    }

    #[test]
    fn from_a_namespace_of_its_own_or_with_another_mount_nothing_is_in_sight() {
        let ours = format!("1\n{}\n", std::process::id());
        assert_eq!(told(&host("/pods/x", "/init.scope", "pods/x", &ours)), None);
        assert_eq!(told(&host("/", "/../../init.scope", "", &ours)), Some(OutOfSight::Namespace));
        assert_eq!(told(&host("/", "/init.scope", "", "1\n")), Some(OutOfSight::Mount), "the host's, seen from inside");
        assert_eq!(told(&host("/pods/x", "/init.scope", "", &ours)), Some(OutOfSight::Mount), "not the host's");
    }

    #[test]
    fn this_process_is_in_sight_and_stays_where_it_is() {
        assert_eq!(Hierarchies::under(Path::new("/sys/fs/cgroup")).out_of_sight(Path::new("/proc")), None);
        assert!(!see_as_the_host(Path::new("/proc")).unwrap());
    }
}
