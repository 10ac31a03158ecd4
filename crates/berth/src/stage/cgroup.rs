//! Tenants as plain cgroups: on cgroup v2 where it is writable, else in the v1 freezer's hierarchy.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use berth_model::{Settings, TenantKey};

use super::process::{Children, set_up};
use super::{Ground, Start, Started};

const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer"];

#[derive(Debug)]
pub struct CgroupGround {
    hierarchy: PathBuf,
    /// The stage's own cgroup, parent of its tenants'.
    root: PathBuf,
    children: Children,
}

impl CgroupGround {
    pub fn open(name: &str) -> anyhow::Result<Self> {
        let Some(hierarchy) = HIERARCHIES.iter().map(PathBuf::from).find(|dir| dir.join("cgroup.procs").exists())
        else {
            bail!("no cgroup hierarchy is mounted under /sys/fs/cgroup");
        };
        let root = hierarchy.join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir(&root).with_context(|| format!("making {}", root.display()))?;
        Ok(Self { hierarchy, root, children: Children::default() })
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
        Ok(Started { handle: self.children.spawn(command)?, name: path, key })
    }

    fn exit_code(&mut self, handle: &str) -> anyhow::Result<Option<i32>> {
        self.children.exit_code(handle)
    }

    fn end(&mut self, handle: &str) -> anyhow::Result<()> {
        self.children.end(handle)
    }

    fn settings(&self, _: &mut Settings) {}
}

/// The path inside the hierarchy, by which berth names a plain cgroup.
fn shown(hierarchy: &Path, cgroup: &Path) -> String {
    let inside = cgroup.strip_prefix(hierarchy).unwrap_or(cgroup);
    format!("/{}", inside.display())
}

impl Drop for CgroupGround {
    fn drop(&mut self) {
        drop(std::mem::take(&mut self.children));
        let tenants = std::fs::read_dir(&self.root).into_iter().flatten().flatten();
        for tenant in tenants.filter(|entry| entry.path().is_dir()) {
            let _ = std::fs::remove_dir(tenant.path());
        }
        let _ = std::fs::remove_dir(&self.root);
    }
}
