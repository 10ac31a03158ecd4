//! The units in `packaging/systemd` as they are shipped, run by systemd itself.

use std::path::Path;
use std::process::Command;

use berth_model::settings::Mode;
use berth_model::{Settings, Source, SourceStatus, TenantKey};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{BERTH, Engine, Host, Manager, Systemd, View, run, until};

/// In which a daemon must show that its loop turns. The shipped limit is for production; this one for those who wait.
const LIMIT_S: &str = "3";
/// The most that `systemd-analyze security` may find, of 10 for a unit that nothing holds back. It finds 5.4 today, 0.5 of it
/// because a node of a cluster may listen; how it weighs changes a little from version to version.
const EXPOSURE: f64 = 5.9;
/// The same of the placer's, which needs the network, the engine's socket and little else: 2.0 today.
const PLACERS_EXPOSURE: f64 = 2.5;
const PLACER: &str = "berth-placer.service";

/// GPUs, and a tenant that holds memory on one, as units beside berth's: in a pid namespace of its own everybody has to
/// live in it.
fn settle(systemd: &Systemd, host: &Host) -> TenantKey {
    let sim = host.sim_dir();
    let serve = ["--unit=sim", BERTH, "sim", "serve", "--profile", "h200", "--gpus", "2", "--dir"];
    systemd.run("systemd-run", &[&serve[..], &[sim.to_str().unwrap()]].concat()).ok();
    until("the simulated GPUs", || sim.join("gpu.sock").exists().then_some(()));
    let hold = ["--unit=holder", BERTH, "load", "hold", "--library", &host.library("libcuda.so.1")];
    systemd.run("systemd-run", &hold).ok();
    TenantKey::Cgroup { path: "/system.slice/holder.service".into() }
}

/// From its last line, "→ Overall exposure level for berth.service: 5.4 MEDIUM".
fn exposure(security: &str, unit: &str) -> f64 {
    let last = format!("{unit}: ");
    let words = security.rsplit_once(&last).and_then(|(_, after)| after.split_whitespace().next());
    words.unwrap_or_else(|| panic!("no exposure level in {security}")).parse().unwrap()
}

fn is_active(systemd: &Systemd) -> bool {
    systemd.property("ActiveState") == "active" && systemd.property("SubState") == "running"
}

/// Waits until systemd has started the daemon anew, and the new one sees who is there.
fn restarted(systemd: &Systemd, times: u32, before: u32, tenant: &TenantKey) -> u32 {
    until("the restart", || (systemd.property("NRestarts") == times.to_string() && is_active(systemd)).then_some(()));
    let pid = systemd.daemon_pid();
    assert_ne!(pid, before);
    systemd.view().sees(tenant);
    pid
}

#[test]
fn systemd_starts_the_unit_restarts_a_dead_or_stuck_daemon_and_stops_it() {
    let host = Host::bare();
    let test = "systemd_starts_the_unit_restarts_a_dead_or_stuck_daemon_and_stops_it";
    // As a node of a cluster: its sandbox must let it listen.
    let mut settings = host.settings("berth");
    (settings.cluster.listen, settings.cluster.key_file) = ("127.0.0.1:0".into(), host.file("cluster.key"));
    let key = ["cluster", "key", "new", "--out", settings.cluster.key_file.to_str().unwrap()];
    run(Command::new(BERTH).args(key)).ok();
    let Some(systemd) = Systemd::boot(test, &host, Manager::System, settings, &[]) else { return };
    let verified = systemd.tool("systemd-analyze", &["verify", "berth.service"]);
    assert!(!verified.stderr.contains("berth"), "{verified:?}");
    let security = systemd.tool("systemd-analyze", &["security", "berth.service"]).ok();
    assert!(exposure(&security, "berth.service") <= EXPOSURE, "an option that hardens the unit is gone: {security}");
    let tenant = settle(&systemd, &host);

    // The unit is of type notify: this returns when the daemon has said that it is ready.
    systemd.systemctl(&["start", "berth.service"]).ok();
    assert!(is_active(&systemd), "{:?}", systemd.systemctl(&["status", "berth.service"]));
    let row = systemd.view().sees(&tenant);
    assert!(systemd.view().metrics().contains("berth_reports_served_total 0"), "the cluster cannot ask it");
    let shown = systemd.run("berth", &["ps", "--json"]).ok();
    let shown: Vec<serde_json::Value> = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown[0]["pids"], serde_json::json!(row.pids), "{shown:?}");

    let first = systemd.daemon_pid();
    send(Signal::KILL, first);
    let second = restarted(&systemd, 1, first, &tenant);

    let limit = format!("[Service]\nWatchdogSec={LIMIT_S}\n");
    std::fs::create_dir_all(systemd.path("/run/systemd/system/berth.service.d")).unwrap();
    std::fs::write(systemd.path("/run/systemd/system/berth.service.d/limit.conf"), limit).unwrap();
    systemd.systemctl(&["daemon-reload"]).ok();
    systemd.systemctl(&["restart", "berth.service"]).ok();
    let third = systemd.daemon_pid();
    assert_ne!(third, second);
    send(Signal::STOP, third);
    restarted(&systemd, 1, third, &tenant);

    systemd.systemctl(&["stop", "berth.service"]).ok();
    assert_eq!(systemd.property("ActiveState"), "inactive");
    assert_eq!((systemd.property("Result"), systemd.property("ExecMainStatus")), ("success".into(), "0".into()));
    assert!(!systemd.path("/run/berth/berth.sock").exists(), "its socket is left");
    let remembered = systemd.run("berth", &["history", "holder.service"]);
    let is_told =
        remembered.stdout.contains("task lost sight of") && remembered.stderr.contains("/var/lib/berth/history");
    assert!(is_told, "{remembered:?}");
    println!("{security}");
}

/// The pid that systemd knows, which is that of its own namespace.
fn placer_pid(systemd: &Systemd) -> String {
    systemd.property_of(PLACER, "MainPID")
}

/// Waits until systemd has started the placer anew, and the new one answers.
fn answers_anew(systemd: &Systemd, before: &str) {
    until("another placer to answer", || {
        let is_another = ![before, "0"].contains(&placer_pid(systemd).as_str());
        (is_another && systemd.run("berth", &["nodes"]).code == 0).then_some(())
    });
}

#[test]
fn systemd_starts_the_placers_unit_restarts_a_dead_or_stuck_one_and_stops_it() {
    let host = Host::bare();
    let mut settings = host.settings("berth");
    settings.placer = Settings::default().placer;
    let test = "systemd_starts_the_placers_unit_restarts_a_dead_or_stuck_one_and_stops_it";
    let Some(systemd) = Systemd::boot(test, &host, Manager::System, settings, &[]) else { return };
    let verified = systemd.tool("systemd-analyze", &["verify", PLACER]);
    assert!(!verified.stderr.contains("berth"), "{verified:?}");
    let security = systemd.tool("systemd-analyze", &["security", PLACER]).ok();
    assert!(exposure(&security, PLACER) <= PLACERS_EXPOSURE, "an option that hardens the unit is gone: {security}");

    systemd.run("berth", &["cluster", "key", "new"]).ok();
    // There is no manager yet: it waits for one, and answers meanwhile.
    let started = systemd.systemctl(&["start", PLACER]);
    assert_eq!(started.code, 0, "{:?}", systemd.systemctl(&["status", PLACER]));
    let told = systemd.run("berth", &["nodes"]).ok();
    assert!(told.contains("swarm has told of no nodes"), "{told}");
    let first = placer_pid(&systemd);
    systemd.run("kill", &["-KILL", &first]).ok();
    answers_anew(&systemd, &first);

    let limit = format!("[Service]\nWatchdogSec={LIMIT_S}\n");
    std::fs::create_dir_all(systemd.path("/run/systemd/system/berth-placer.service.d")).unwrap();
    std::fs::write(systemd.path("/run/systemd/system/berth-placer.service.d/limit.conf"), limit).unwrap();
    systemd.systemctl(&["daemon-reload"]).ok();
    systemd.systemctl(&["restart", PLACER]).ok();
    let stuck = placer_pid(&systemd);
    systemd.run("kill", &["-STOP", &stuck]).ok();
    answers_anew(&systemd, &stuck);

    systemd.systemctl(&["stop", PLACER]).ok();
    let ended = ["ActiveState", "Result", "ExecMainStatus"].map(|name| systemd.property_of(PLACER, name));
    assert_eq!(ended, ["inactive", "success", "0"]);
    assert!(!systemd.path("/run/berth/placer.sock").exists(), "its socket is left");
}

fn send(signal: Signal, pid: u32) {
    let pid = Pid::from_raw(pid.try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn sources(view: &View) -> Vec<(Source, SourceStatus)> {
    // Every source speaks once at the start; Docker's word may come after the first look.
    [Source::Nvml, Source::Docker, Source::ProcessEvents, Source::Probes]
        .map(|source| (source, view.source(source, |_| true)))
        .into()
}

/// A line of `/proc/PID/status`.
fn status(pid: u32, key: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {key} in {text}")).trim().to_owned()
}

/// The options that could take something away from the daemon are in force: else the rest of the test shows nothing.
fn is_hardened(pid: u32) {
    assert_eq!((status(pid, "NoNewPrivs"), status(pid, "Seccomp")), ("1".into(), "2".into()));
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    assert!(!own.contains(&status(pid, "CapBnd")), "it may have every capability there is");
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap();
    let options = mounts.lines().rev().find_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[4] == "/").then(|| words[5].to_owned())
    });
    assert!(options.as_deref().is_some_and(|options| options.split(',').any(|option| option == "ro")), "{options:?}");
}

/// The daemon as it is shipped, beside one that runs without any sandbox, on the same host with the same settings.
fn takes_no_source_away(test: &str, engine: &Engine, probes: Mode) {
    let host = Host::start();
    let mut settings = host.settings("plain");
    (settings.docker.mode, settings.docker.socket) = (Mode::Auto, engine.socket());
    settings.probes.mode = probes;
    let socket_dir = engine.socket().parent().map(Path::to_owned).unwrap();
    let plain = host.daemon_with("plain", |changed| *changed = settings.clone());
    let Some(systemd) = Systemd::boot(test, &host, Manager::User, settings, &[&socket_dir]) else { return };
    systemd.systemctl(&["start", "berth.service"]).ok();
    is_hardened(systemd.daemon_pid());
    let view = systemd.view();
    assert_eq!(sources(&view), sources(&plain), "on the right the daemon without a sandbox");

    let container = engine.run(&host, "under-systemd", &["--label", "berth.owner=ada"], &["hold"]);
    let row = |view: &View| {
        let row = view.row_where(&container.key(), |row| {
            // More than the context: its allocation has been seen.
            row.container_name == container.name && row.gpu_memory_bytes.is_some_and(|bytes| bytes.0 > 1 << 30)
        });
        (row.owner, row.pids, row.gpu_uuid, row.gpu_memory_bytes, row.task_start_evidence)
    };
    assert_eq!(row(&view), row(&plain));
    systemd.systemctl(&["stop", "berth.service"]).ok();
    assert_eq!(systemd.property("Result"), "success");
}

#[test]
fn the_units_hardening_takes_no_source_away() {
    let test = "the_units_hardening_takes_no_source_away";
    let Some(engine) = Engine::for_test(test) else { return };
    takes_no_source_away(test, &engine, Mode::Auto);
    // Where there are no probes, process events take their place.
    takes_no_source_away(test, &engine, Mode::Off);
}
