//! How a guard comes to outlive its daemon: signals of the daemon's terminal do not reach it, the kernel spares it when memory runs out,
//! and it leaves the cgroup of the container it was started in.
//!
//! An engine that ends a container kills everything in the container's cgroup, and so does the kernel that ends one for its memory
//! (`memory.oom.group`). A service of systemd is no container: its unit says that the guard is left alone, and it stays in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use berth_host::freezer::Hierarchies;
use berth_model::Settings;
use berth_model::cgroup::tenant_of;

/// Of the kernel's -1000 to 1000: when memory runs out, others go first.
const OOM_SCORE: &str = "-900";
/// Below the root of each hierarchy, for the guards of all daemons on the host. An empty one is left behind: nobody can remove what it
/// stands in.
const CGROUP: &str = "berth-guard";
/// What a cgroup of v1 needs of the one above before anybody can be in it.
const CPUSET: [&str; 2] = ["cpuset.cpus", "cpuset.mems"];

#[derive(Debug, thiserror::Error)]
#[error("moving the guard into {path}")]
pub struct StuckError {
    path: PathBuf,
    source: io::Error,
}

/// What it lacks the rights for stays as it is, and is told.
pub fn stand_apart(settings: &Settings) {
    if let Err(error) = rustix::process::setsid() {
        tracing::debug!(%error, "the guard stays in its session");
    }
    if let Err(error) = fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        tracing::debug!(%error, "the guard is not spared when memory runs out");
    }
    let (proc_root, cgroup_root) = (&settings.processes.proc_root, &settings.hold.cgroup_root);
    if !is_in_container(proc_root, cgroup_root) {
        return;
    }
    match leave(cgroup_root) {
        Ok(()) => tracing::debug!("the guard has left its container's cgroup"),
        Err(error) => tracing::warn!(
            error = berth_engine::describe(&error),
            "the guard ends with its container: whoever is held then stays so until the next daemon starts"
        ),
    }
}

/// By what its cgroup is called; or because that cannot be seen from inside.
fn is_in_container(proc_root: &Path, cgroup_root: &Path) -> bool {
    let ours = fs::read_to_string(proc_root.join("self/cgroup")).unwrap_or_default();
    tenant_of(&ours, 0).container_id().is_some() || Hierarchies::under(cgroup_root).out_of_sight(proc_root).is_some()
}

/// Of every hierarchy that is mounted, as far as possible: which of them an engine goes by is its own affair. The first failure counts.
fn leave(cgroup_root: &Path) -> Result<(), StuckError> {
    let roots = roots(cgroup_root);
    if roots.is_empty() {
        return Err(StuckError { path: cgroup_root.to_owned(), source: io::ErrorKind::NotFound.into() });
    }
    let left = roots.into_iter().map(|root| {
        let path = root.join(CGROUP);
        enter(&root, &path).map_err(|source| StuckError { path, source })
    });
    left.fold(Ok(()), Result::and)
}

/// The unified hierarchy itself, or each below that is one; `cpu` may be another name of `cpu,cpuacct`.
fn roots(cgroup_root: &Path) -> Vec<PathBuf> {
    if cgroup_root.join("cgroup.controllers").exists() {
        return vec![cgroup_root.to_owned()];
    }
    let entries = fs::read_dir(cgroup_root).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path());
    dirs.filter(|dir| dir.join("cgroup.procs").exists()).collect()
}

fn enter(root: &Path, path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for file in CPUSET.map(|file| (root.join(file), path.join(file))).iter().filter(|(_, ours)| ours.exists()) {
        // The root of the unified hierarchy has none to copy, and needs none.
        if let Ok(all) = fs::read(&file.0) {
            fs::write(&file.1, all)?;
        }
    }
    // Whoever writes it.
    fs::write(path.join("cgroup.procs"), "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_are_no_cgroups_it_cannot_have_left_one() {
        let error = leave(tempfile::tempdir().unwrap().path()).unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_service_of_systemd_stays_where_it_is_and_a_pod_s_container_does_not() {
        let id = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";
        let pod = format!("kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope");
        for (path, is_left) in [("system.slice/berth.service", false), (pod.as_str(), true), ("user.slice", false)] {
            let dir = tempfile::tempdir().unwrap();
            let (proc_root, cgroup_root) = (dir.path().join("proc"), dir.path().join("cgroup"));
            for made in [proc_root.join("self"), cgroup_root.join(path)] {
                fs::create_dir_all(made).unwrap();
            }
            fs::write(cgroup_root.join("cgroup.controllers"), "").unwrap();
            fs::write(cgroup_root.join(path).join("cgroup.procs"), format!("{}\n", std::process::id())).unwrap();
            fs::write(proc_root.join("self/cgroup"), format!("0::/{path}\n")).unwrap();
            assert_eq!(is_in_container(&proc_root, &cgroup_root), is_left, "{path}");
        }
    }
}
