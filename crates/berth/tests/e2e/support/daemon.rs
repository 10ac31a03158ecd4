//! `berth daemon` with settings of its own, and the ways to ask it: its API, and the commands.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use berth_api::{Client, paths};
use berth_model::{Settings, Snapshot, Source, SourceStatus, TaskRow, TenantKey};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::events::Events;
use super::host::Host;
use super::process::{BERTH, Run, Running, run, until};

#[derive(Debug)]
pub struct Daemon {
    process: Running,
    config: PathBuf,
    pub settings: Settings,
}

impl Daemon {
    pub(super) fn start(host: &Host, name: &str, settings: Settings) -> Self {
        let config = host.write_config(name, &settings);
        let mut command = Command::new(BERTH);
        command.arg("--config").arg(&config).arg("daemon");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(host.log(name));
        let mut daemon = Self { process: Running::start(&mut command), config, settings };
        until("the daemon's first look", || {
            assert!(daemon.is_running(), "the daemon ended");
            let sources = daemon.try_get::<Snapshot>(paths::SNAPSHOT)?.sources;
            sources.iter().any(|view| view.source == Source::Nvml).then_some(())
        });
        daemon
    }

    /// `None` while it does not answer.
    pub fn try_get<T: DeserializeOwned>(&self, path: &str) -> Option<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Client::new(&self.settings.api.socket).get(path)).ok()
    }

    pub fn metrics(&self) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Client::new(&self.settings.api.socket).get_text(paths::METRICS)).unwrap()
    }

    /// What it knows now. A daemon that does not answer has failed the test.
    pub fn snapshot(&self) -> Snapshot {
        self.try_get(paths::SNAPSHOT).expect("the daemon does not answer")
    }

    pub fn row(&self, tenant: &TenantKey) -> Option<TaskRow> {
        self.snapshot().tasks.into_iter().find(|row| row.tenant == *tenant)
    }

    /// Waits for a row of this tenant that is as `wanted`.
    pub fn row_where(&self, tenant: &TenantKey, wanted: impl Fn(&TaskRow) -> bool) -> TaskRow {
        until(&format!("the row of {tenant}"), || self.row(tenant).filter(&wanted))
    }

    /// Waits until the tenant is on a GPU with memory.
    pub fn sees(&self, tenant: &TenantKey) -> TaskRow {
        self.row_where(tenant, |row| row.gpu_memory_bytes.is_some() && row.task_id.is_some())
    }

    pub fn sees_nothing_of(&self, tenant: &TenantKey) {
        until(&format!("{tenant} to be gone"), || self.row(tenant).is_none().then_some(()));
    }

    /// Waits until a source is as `wanted`.
    pub fn source(&self, source: Source, wanted: impl Fn(&SourceStatus) -> bool) -> SourceStatus {
        until(&format!("a status of {source:?}"), || {
            let sources = self.snapshot().sources;
            sources.into_iter().find(|view| view.source == source).map(|view| view.status).filter(&wanted)
        })
    }

    /// A command of the binary with this daemon's settings.
    pub fn berth(&self, args: &[&str]) -> Run {
        run(Command::new(BERTH).arg("--config").arg(&self.config).args(args))
    }

    /// `berth ps --json`, asked of this daemon and nobody else.
    pub fn ps(&self) -> Vec<Value> {
        let run = self.berth(&["ps", "--json"]);
        assert!(!run.stderr.contains("without it"), "it was not the daemon that answered: {}", run.stderr);
        serde_json::from_str(&run.ok()).unwrap()
    }

    /// What it tells from now on.
    pub fn events(&self) -> Events {
        Events::follow(Client::new(&self.settings.api.socket))
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
}
