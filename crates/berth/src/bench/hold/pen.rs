//! A cgroup for one process in a hierarchy its tenant has none in: on a host with both versions, each is measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use berth_host::freezer::{CgroupDir, Hierarchies};
use berth_model::ProcKey;
use rustix::process::{Pid, Signal, kill_process};

use super::STAGE;
use crate::stage::StageId;

const THAWED_WITHIN: Duration = Duration::from_secs(1);

/// Empty and gone when it is dropped.
#[derive(Debug)]
pub struct Pen {
    hierarchy: PathBuf,
    path: PathBuf,
}

impl Pen {
    pub fn around(process: ProcKey, hierarchy: &Path) -> anyhow::Result<Pen> {
        let path = hierarchy.join(StageId::here(STAGE)?.to_string() + "-pen");
        fs::create_dir(&path).with_context(|| format!("making {}", path.display()))?;
        let pen = Pen { hierarchy: hierarchy.to_owned(), path };
        move_to(&pen.path, process.pid).with_context(|| format!("moving a process to {}", pen.path.display()))?;
        Ok(pen)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Pen {
    fn drop(&mut self) {
        if let Err(error) = clear(&self.path, |pid| move_to(&self.hierarchy, pid)) {
            tracing::warn!(path = %self.path.display(), %error, "a cgroup is left behind");
        }
    }
}

/// Removes what measurements left that were killed, with the processes in it.
pub fn remove_left_behind(hierarchies: &Hierarchies) {
    for hierarchy in [&hierarchies.v1, &hierarchies.v2].into_iter().flatten() {
        for entry in fs::read_dir(hierarchy).into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| StageId::parse(STAGE, name.strip_suffix("-pen")?));
            if id.is_some_and(|id| id.is_over()) {
                // What cannot be removed now is tried again next time.
                let _ = clear(&entry.path(), kill);
            }
        }
    }
}

/// Thaws it first: on v1 the frozen can neither move nor die.
fn clear(path: &Path, empty: impl Fn(u32) -> std::io::Result<()>) -> std::io::Result<()> {
    let thawed = CgroupDir::open(path).and_then(|dir| dir.thaw(THAWED_WITHIN));
    if let Err(error) = thawed {
        tracing::warn!(path = %path.display(), %error, "a cgroup could not be thawed");
    }
    for pid in fs::read_to_string(path.join("cgroup.procs"))?.lines().filter_map(|pid| pid.parse().ok()) {
        empty(pid)?;
    }
    fs::remove_dir(path)
}

fn move_to(cgroup: &Path, pid: u32) -> std::io::Result<()> {
    fs::write(cgroup.join("cgroup.procs"), pid.to_string())
}

fn kill(pid: u32) -> std::io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.map_or(Ok(()), |pid| kill_process(pid, Signal::KILL).map_err(Into::into))
}
