//! `berth load` in a cgroup, and its own account of what it did.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use berth_load::{Edge, Event, Line, Moment, Phase};
use berth_model::TenantKey;
use rustix::process::Signal;

use super::cgroup::Cgroup;
use super::process::{BERTH, Running, until};

#[derive(Debug)]
pub struct Tenant {
    process: Running,
    lines: PathBuf,
    /// After the process: it must be empty when removed.
    pub cgroup: Arc<Cgroup>,
}

impl Tenant {
    /// `args`: those of `berth load`, besides the library and where to write.
    pub(super) fn start(cgroup: Arc<Cgroup>, library: &str, lines: PathBuf, args: &[&str]) -> Self {
        let mut command = cgroup.command(BERTH);
        command.arg("load").args(args).args(["--library", library, "--output"]).arg(&lines);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { process: Running::start(&mut command), lines, cgroup }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn key(&self) -> TenantKey {
        self.cgroup.key()
    }

    /// All it wrote so far; a line in the middle of being written is not there yet.
    pub fn lines(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(&self.lines).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Waits for a phase to begin.
    pub fn reaches(&self, phase: Phase) {
        until(&format!("phase {phase} of {}", self.cgroup.path()), || self.phase(0, phase, Edge::Begin));
    }

    /// When a phase of a task began or ended, on the monotonic clock; the first, where there are several.
    pub fn phase(&self, task: u32, wanted: Phase, at: Edge) -> Option<u64> {
        let is_it =
            |event: &Event| matches!(event, Event::Phase { phase, edge, .. } if (*phase, *edge) == (wanted, at));
        self.find(task, is_it)
    }

    pub fn moment(&self, task: u32, wanted: Moment, at: Edge) -> Option<u64> {
        let is_it =
            |event: &Event| matches!(event, Event::Moment { moment, edge, .. } if (*moment, *edge) == (wanted, at));
        self.find(task, is_it)
    }

    fn find(&self, task: u32, is_it: impl Fn(&Event) -> bool) -> Option<u64> {
        let lines = self.lines();
        lines.iter().find(|line| line.task == task && is_it(&line.event)).map(|line| line.at.mono_ns)
    }

    /// The instant of its last sign of life.
    pub fn last_word(&self) -> u64 {
        self.lines().last().map_or(0, |line| line.at.mono_ns)
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Its exit code; a signal is 128 and its number.
    pub fn wait(&mut self) -> i32 {
        self.process.wait()
    }
}
