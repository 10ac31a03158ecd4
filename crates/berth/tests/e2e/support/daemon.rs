//! `berth daemon` with settings of its own, and the commands that ask it.

use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use berth_model::Settings;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::host::Host;
use super::process::{BERTH, Run, Running, run, until};
use super::view::View;

#[derive(Debug)]
pub struct Daemon {
    process: Running,
    config: PathBuf,
    pub settings: Settings,
    view: View,
}

impl Deref for Daemon {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Daemon {
    pub(super) fn start(host: &Host, name: &str, settings: Settings) -> Self {
        Self::start_by(host, name, settings, Command::new(BERTH))
    }

    /// `command` runs `berth` with the arguments that are added to it, wherever that may be.
    pub fn start_by(host: &Host, name: &str, settings: Settings, mut command: Command) -> Self {
        let config = host.write_config(name, &settings);
        command.arg("--config").arg(&config).arg("daemon");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(host.log(name));
        let view = View::of(&settings.api.socket);
        let mut daemon = Self { process: Running::start(&mut command), config, settings, view };
        until("the daemon's first look", || {
            assert!(daemon.is_running(), "the daemon ended");
            daemon.has_looked().then_some(())
        });
        daemon
    }

    /// A command of the binary with this daemon's settings.
    pub fn berth(&self, args: &[&str]) -> Run {
        run(Command::new(BERTH).arg("--config").arg(&self.config).args(args))
    }

    /// The same, without waiting for its end.
    pub fn berth_meanwhile(&self, args: &[&str]) -> Running {
        let mut command = Command::new(BERTH);
        command.arg("--config").arg(&self.config).args(args);
        Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// `berth ps --json`, asked of this daemon and nobody else.
    pub fn ps(&self) -> Vec<Value> {
        let run = self.berth(&["ps", "--json"]);
        assert!(!run.stderr.contains("without it"), "it was not the daemon that answered: {}", run.stderr);
        serde_json::from_str(&run.ok()).unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Asks it to stop; its exit code.
    pub fn stop(&mut self) -> i32 {
        self.signal(Signal::TERM);
        self.process.wait()
    }

    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Of the guard that is in place.
    pub fn guard(&self) -> Option<u32> {
        let pid = self.pid();
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children =
            threads.map(|thread| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default());
        let children: Vec<u32> = children
            .flat_map(|pids| pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
            .collect();
        let is_guard = |pid: &u32| {
            let command = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.split('\0').nth(1) == Some("guard")
        };
        children.into_iter().find(is_guard)
    }

    /// Nobody is left who would undo its holds.
    pub fn kill_with_guard(&mut self) {
        // It would start another.
        self.signal(Signal::STOP);
        let guard = self.guard().and_then(|pid| Pid::from_raw(pid.cast_signed())).expect("a guard");
        kill_process(guard, Signal::KILL).unwrap();
        self.kill();
    }
}
