//! Tenants as plain cgroups: in the unified hierarchy where one is mounted, else in the v1 freezer's.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, bail};
use berth_model::settings::Mode;
use berth_model::{Settings, TenantKey};
use rustix::process::{Pid, Signal, kill_process};

use super::process::{Children, set_up};
use super::{Ground, StageId, Start, Started, wait_until};

const KILLED_WITHIN: Duration = Duration::from_secs(5);
const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer"];

#[derive(Debug)]
pub struct CgroupGround {
    hierarchy: PathBuf,
    /// The stage's own cgroup, parent of its tenants'.
    root: PathBuf,
    children: Children,
    /// Of the tenants, by their handle.
    cgroups: BTreeMap<String, PathBuf>,
}

impl CgroupGround {
    pub fn open(id: &StageId) -> anyhow::Result<Self> {
        let Some(hierarchy) = HIERARCHIES.iter().map(PathBuf::from).find(|dir| dir.join("cgroup.procs").exists())
        else {
            bail!("no cgroup hierarchy is mounted under /sys/fs/cgroup");
        };
        remove_left_behind(&hierarchy, &id.name);
        let root = hierarchy.join(id.to_string());
        std::fs::create_dir(&root).with_context(|| format!("making {}", root.display()))?;
        Ok(Self { hierarchy, root, children: Children::default(), cgroups: BTreeMap::new() })
    }
}

impl Ground for CgroupGround {
    fn what(&self) -> &'static str {
        "plain cgroups"
    }

    fn start(&mut self, start: &Start) -> anyhow::Result<Started> {
        let cgroup = self.root.join(start.name);
        std::fs::create_dir(&cgroup).with_context(|| format!("making {}", cgroup.display()))?;
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#]).arg(&cgroup);
        command.arg(&start.program).args(&start.args);
        set_up(&mut command, start);
        let path = shown(&self.hierarchy, &cgroup);
        let key = Some(TenantKey::Cgroup { path: path.clone() });
        let handle = self.children.spawn(command)?;
        self.cgroups.insert(handle.clone(), cgroup);
        Ok(Started { handle, name: path, key })
    }

    fn exit_code(&mut self, handle: &str) -> anyhow::Result<Option<i32>> {
        self.children.exit_code(handle)
    }

    /// A tenant may have started processes of its own: whatever is in its cgroup ends.
    fn end(&mut self, handle: &str) -> anyhow::Result<()> {
        if let Some(cgroup) = self.cgroups.remove(handle) {
            kill_all(&cgroup)?;
        }
        self.children.end(handle)
    }

    fn settings(&self, settings: &mut Settings) {
        settings.docker.mode = Mode::Off;
    }
}

/// The path inside the hierarchy, by which berth names a plain cgroup.
fn shown(hierarchy: &Path, cgroup: &Path) -> String {
    let inside = cgroup.strip_prefix(hierarchy).unwrap_or(cgroup);
    format!("/{}", inside.display())
}

/// Ends every process of a cgroup, those it starts meanwhile too.
fn kill_all(cgroup: &Path) -> anyhow::Result<()> {
    wait_until("the end of a cgroup's processes", KILLED_WITHIN, || {
        let procs = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        for pid in procs.lines().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw) {
            // One that is gone already is as good as killed.
            let _ = kill_process(pid, Signal::KILL);
        }
        Ok(procs.is_empty())
    })
}

/// Ends and removes the cgroups of a stage.
fn remove(root: &Path) {
    let tenants = std::fs::read_dir(root).into_iter().flatten().flatten();
    for tenant in tenants.map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let _ = kill_all(&tenant);
        let _ = std::fs::remove_dir(tenant);
    }
    let _ = std::fs::remove_dir(root);
}

/// What stages of this name left that were killed.
fn remove_left_behind(hierarchy: &Path, name: &str) {
    for entry in std::fs::read_dir(hierarchy).into_iter().flatten().flatten() {
        let id = entry.file_name().to_str().and_then(|text| StageId::parse(name, text));
        if id.is_some_and(|id| id.is_over()) {
            remove(&entry.path());
        }
    }
}

impl Drop for CgroupGround {
    fn drop(&mut self) {
        remove(&self.root);
        // Children that are killed are still to be waited for.
        drop(std::mem::take(&mut self.children));
    }
}
