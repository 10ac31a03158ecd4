//! Tenants as bare processes of this user, and what the cgroup ground shares with it.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context as _;
use berth_model::Settings;
use berth_model::settings::Mode;

use super::{Ground, Start, Started};

#[derive(Debug, Default)]
pub struct ProcessGround {
    children: Children,
}

impl ProcessGround {
    pub const WHAT: &str = "bare processes";
}

/// Processes started by this stage, by their pid.
#[derive(Debug, Default)]
pub struct Children {
    by_pid: BTreeMap<String, Child>,
}

/// What every tenant that is no container needs.
pub fn set_up(command: &mut Command, start: &Start) {
    command.env("LD_LIBRARY_PATH", &start.library_dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

impl Children {
    pub fn spawn(&mut self, mut command: Command) -> anyhow::Result<String> {
        let child = command.spawn().with_context(|| format!("running {:?}", command.get_program()))?;
        let pid = child.id().to_string();
        self.by_pid.insert(pid.clone(), child);
        Ok(pid)
    }

    pub fn exit_code(&mut self, pid: &str) -> anyhow::Result<Option<i32>> {
        let Some(child) = self.by_pid.get_mut(pid) else { return Ok(Some(0)) };
        Ok(child.try_wait()?.map(code))
    }

    pub fn end(&mut self, pid: &str) -> anyhow::Result<()> {
        if let Some(mut child) = self.by_pid.remove(pid) {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

/// As a shell counts it.
fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

impl Drop for Children {
    fn drop(&mut self) {
        for child in self.by_pid.values_mut() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Ground for ProcessGround {
    fn what(&self) -> &'static str {
        Self::WHAT
    }

    fn start(&mut self, start: &Start) -> anyhow::Result<Started> {
        let mut command = Command::new(&start.program);
        command.args(&start.args);
        set_up(&mut command, start);
        Ok(Started { handle: self.children.spawn(command)?, name: start.name.to_owned(), key: None })
    }

    fn exit_code(&mut self, handle: &str) -> anyhow::Result<Option<i32>> {
        self.children.exit_code(handle)
    }

    fn end(&mut self, handle: &str) -> anyhow::Result<()> {
        self.children.end(handle)
    }

    fn settings(&self, settings: &mut Settings) {
        settings.docker.mode = Mode::Off;
    }
}
