//! The daemon replaced by another, and the package removed: holds are returned.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_model::settings::PolicyName;
use berth_model::snapshot::HoldStage;
use rustix::process::{Pid, Signal, kill_process};

use crate::support::held::{hold, is_at, is_free, is_frozen, launching, nothing_is_left, stage};
use crate::support::{BERTH, Container, Daemon, Engine, Host, run, until};

const BEFORE_REMOVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/before-remove.sh");

/// Held by the freezer and by the engine's pause, and the cgroups by which they are.
fn two_held(engine: &Engine, host: &Host, daemon: &Daemon) -> [(Container, PathBuf); 2] {
    ["gate", "freeze"].map(|means| {
        let container = launching(engine, host, daemon, means, &[]);
        let cgroup = hold(daemon, &container, means);
        (container, cgroup)
    })
}

#[test]
fn a_daemon_that_is_replaced_returns_its_holds_and_the_next_begins_with_everybody_free() {
    let test = "a_daemon_that_is_replaced_returns_its_holds_and_the_next_begins_with_everybody_free";
    let Some(engine) = Engine::for_test(test) else { return };
    let fifo = |settings: &mut berth_model::Settings| settings.hold.policy = PolicyName::Fifo;
    let Some((host, mut daemon)) = stage(test, &engine, fifo) else { return };
    let held = two_held(&engine, &host, &daemon);
    assert_eq!(daemon.stop(), 0);
    for (container, cgroup) in &held {
        assert!(is_free(cgroup) && container.says(".State.Status") == "running", "{}", container.name);
    }
    let next = host.daemon_with("berth", |settings| *settings = daemon.settings.clone());
    for (container, cgroup) in &held {
        let row = next.row_where(&container.key(), |row| row.container_name == container.name && row.task_id.is_some());
        assert!(!is_at(&row, HoldStage::Held), "{row:?}");
        hold(&next, container, "gate");
        next.berth(&["release", &container.name]).ok();
        nothing_is_left(&next, cgroup);
    }
}

/// The children of a daemon, whichever of its threads made them: its guards.
fn guards(daemon: &Daemon) -> Vec<Pid> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    children.collect::<String>().split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

fn program(host: &Host, name: &str, script: &str) {
    let dir = host.file("programs");
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(dir.join(name), PermissionsExt::from_mode(0o755)).unwrap();
}

fn is_gone(pid: Pid) -> bool {
    !Path::new(&format!("/proc/{}/exe", pid.as_raw_nonzero())).exists()
}

#[test]
fn a_package_that_is_removed_after_everyone_was_killed_leaves_nobody_held() {
    let test = "a_package_that_is_removed_after_everyone_was_killed_leaves_nobody_held";
    let Some(engine) = Engine::for_test(test) else { return };
    let Some((host, mut daemon)) = stage(test, &engine, |_| ()) else { return };
    let held = two_held(&engine, &host, &daemon);
    daemon.signal(Signal::STOP);
    let guards = guards(&daemon);
    assert!(!guards.is_empty(), "nobody guards the daemon");
    guards.iter().for_each(|guard| kill_process(*guard, Signal::KILL).unwrap());
    daemon.kill();
    until("the guard's end", || guards.iter().all(|guard| is_gone(*guard)).then_some(()));
    assert!(held.iter().all(|(_, cgroup)| is_frozen(cgroup)), "somebody else has released them");

    // No service of the machine is to be stopped.
    program(&host, "systemctl", "exit 0");
    program(&host, "berth", &format!("exec {BERTH} --config {} \"$@\"", host.file("berth.toml").display()));
    let path = format!("{}:{}", host.file("programs").display(), std::env::var("PATH").unwrap());
    run(Command::new(BEFORE_REMOVE).env("PATH", path)).ok();
    for (container, cgroup) in &held {
        assert!(is_free(cgroup) && container.says(".State.Status") == "running", "{}", container.name);
    }
}
