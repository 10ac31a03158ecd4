//! Containers held by berth, and what of a hold may be left anywhere.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_model::settings::Mode;
use berth_model::snapshot::HoldStage;
use berth_model::{Settings, Source, SourceStatus, TaskRow};
use serde_json::Value;

use super::daemon::Daemon;
use super::engine::{Container, Engine};
use super::host::Host;
use super::process::{until, until_within};
use super::skip;

/// Launches for ever, ten times a second.
pub const LAUNCHES: [&str; 1] = ["light"];

/// A host whose daemon knows the engine and whose gate works; `None`, said loudly, without probes.
pub fn stage(test: &str, engine: &Engine, change: impl FnOnce(&mut Settings)) -> Option<(Host, Daemon)> {
    let host = Host::start();
    let daemon = host.daemon_with("berth", |settings| {
        settings.docker.mode = Mode::Required;
        settings.docker.socket = engine.socket();
        change(settings);
    });
    can_gate(&daemon, test).then_some((host, daemon))
}

/// Its probes can stop tenants; false, said loudly, where they cannot.
pub fn can_gate(daemon: &Daemon, test: &str) -> bool {
    match daemon.source(Source::Probes, |_| true) {
        SourceStatus::Down { reason } => {
            skip(test, &reason);
            false
        }
        SourceStatus::Up | SourceStatus::Off => true,
    }
}

/// What `berth explain` says, as JSON.
pub fn explained(daemon: &Daemon, tenant: &str) -> Value {
    serde_json::from_str(&daemon.berth(&["explain", tenant, "--json"]).ok()).unwrap()
}

pub fn is_at(row: &TaskRow, stage: HoldStage) -> bool {
    row.hold.as_ref().is_some_and(|hold| hold.stage == stage)
}

/// Told to freeze, or frozen.
pub fn is_frozen(cgroup: &Path) -> bool {
    let read = |file: &str| std::fs::read_to_string(cgroup.join(file)).unwrap_or_default();
    matches!(read("freezer.state").trim(), "FROZEN" | "FREEZING") || read("cgroup.freeze").trim() == "1"
}

pub fn is_stopped(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
}

/// A container that launches, as the daemon knows it.
pub fn launching(engine: &Engine, host: &Host, daemon: &Daemon, name: &str, options: &[&str]) -> Container {
    let container = engine.run(host, name, options, &LAUNCHES);
    daemon.row_where(&container.key(), |row| row.container_name == container.name && row.task_id.is_some());
    container
}

/// By root's word; returns when it is held, and the cgroup by which it is.
pub fn hold(daemon: &Daemon, container: &Container, means: &str) -> PathBuf {
    daemon.berth(&["hold", &container.id[..12], "--by", means]).ok();
    daemon.row_where(&container.key(), |row| is_at(row, HoldStage::Held));
    let cgroup = container.freezer();
    until("it to stand still", || is_frozen(&cgroup).then_some(()));
    cgroup
}

/// Waits until nothing of a hold is on record, and the cgroup keeps nobody from running.
pub fn nothing_is_left(daemon: &Daemon, cgroup: &Path) {
    nothing_is_left_within(Duration::from_secs(20), daemon, cgroup);
}

pub fn nothing_is_left_within(patience: Duration, daemon: &Daemon, cgroup: &Path) {
    until_within(patience, "nothing to be left of the hold", || {
        (records(&daemon.settings.hold.journal) == 0 && is_free(cgroup)).then_some(())
    });
}

/// Gone, or nobody in it stands still.
pub fn is_free(cgroup: &Path) -> bool {
    let pids = std::fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
    let is_any_stopped = pids.lines().filter_map(|pid| pid.parse().ok()).any(is_stopped);
    !is_frozen(cgroup) && !cgroup.join("berth-shelter").exists() && !is_any_stopped
}

fn records(journal: &Path) -> usize {
    let entries = std::fs::read_dir(journal).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "hold")).count()
}
