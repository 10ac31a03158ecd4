//! The daemon in a container, as in a pod: it holds tenants of the host, and whoever kills all of the container kills no guard.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use berth_model::settings::{Mode, PolicyName};

use crate::support::held::{is_free, is_frozen};
use crate::support::{
    BERTH, Cgroup, Cgroups, Container, Daemon, Engine, Host, OwnEngine, Running, View, hierarchy, run, skip, until,
    until_within,
};

const ID: &str = "4e3c1c4b8f0a5d6e7f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6";
/// What the design promises.
const FREE_WITHIN: Duration = Duration::from_secs(2);
/// As in the chart, without those that old engines do not know (`SYS_ADMIN` includes them), or that a machine may not have to give.
const CAPABILITIES: [&str; 8] =
    ["SYS_ADMIN", "SYS_PTRACE", "SYS_NICE", "NET_ADMIN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "CHOWN", "KILL"];

/// Where a node with the cgroupfs driver puts the agent's own container.
fn pod(test: &str) -> Cgroup {
    Cgroup::at(&format!("/berth-e2e-{}-{test}/kubepods/burstable/pod1/{ID}", std::process::id()))
}

/// In a cgroup namespace of its own, which begins at its pod.
fn daemon_in(pod: &Cgroup, host: &Host) -> Daemon {
    let mut command = pod.command("unshare");
    command.args(["--cgroup", BERTH]);
    Daemon::start_by(host, "berth", host.settings("berth"), command)
}

/// What guards of containers leave behind; those of others may still be in it.
struct Tidy;

impl Drop for Tidy {
    fn drop(&mut self) {
        let below = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
        for hierarchy in below.chain([PathBuf::from("/sys/fs/cgroup")]) {
            let _ = std::fs::remove_dir(hierarchy.join("berth-guard"));
        }
    }
}

#[test]
fn in_a_cgroup_namespace_of_its_own_it_knows_and_freezes_tenants_of_the_host() {
    let (_tidy, host) = (Tidy, Host::start());
    let pod = pod("namespace");
    let mut daemon = daemon_in(&pod, &host);
    let tenant = host.holder("seen-from-inside", &[]);
    daemon.sees(&tenant.key());
    daemon.berth(&["hold", tenant.cgroup.path()]).ok();
    assert!(is_frozen(tenant.cgroup.dir()));
    daemon.berth(&["release", tenant.cgroup.path()]).ok();
    assert!(!is_frozen(tenant.cgroup.dir()));
    assert_eq!(daemon.stop(), 0);
}

/// As the kernel does when such a container runs out of memory, and an engine when its first process has ended.
#[test]
fn whoever_is_held_is_let_go_when_everything_in_the_daemon_s_cgroup_is_killed() {
    let (_tidy, host) = (Tidy, Host::start());
    let pod = pod("killed");
    let mut daemon = daemon_in(&pod, &host);
    let tenant = host.holder("held-from-inside", &[]);
    daemon.sees(&tenant.key());
    daemon.berth(&["hold", tenant.cgroup.path()]).ok();
    assert!(is_frozen(tenant.cgroup.dir()));
    let guard = daemon.guard().expect("a guard");
    let inside = std::fs::read_to_string(pod.dir().join("cgroup.procs")).unwrap();
    assert_eq!(inside.trim(), daemon.pid().to_string(), "nobody but the daemon is in its pod");
    pod.clear();
    daemon.kill();
    until_within(FREE_WITHIN, "it is free", || (!is_frozen(tenant.cgroup.dir())).then_some(()));
    until("the guard's end", || (!Path::new(&format!("/proc/{guard}")).exists()).then_some(()));
}

/// A daemon in a container that the engine gives its own cgroup namespace, with what the chart gives an agent's.
fn contained(engine: &Engine, host: &Host) -> (Container, Daemon) {
    let name = format!("berth-e2e-{}-agent", std::process::id());
    let dir = host.dir().display().to_string();
    let mut command = Command::new("docker");
    command.args(["--host", engine.address(), "run", "--name", &name, "--pid=host", "--cgroupns=private"]);
    command.args(["--network=host", "--security-opt=seccomp=unconfined", "--read-only", "--cap-drop=ALL"]);
    command.args(CAPABILITIES.map(|capability| format!("--cap-add={capability}")));
    for (from, to) in [(dir.as_str(), dir.as_str()), (BERTH, "/berth"), ("/sys/fs/cgroup", "/sys/fs/cgroup")] {
        command.args(["--volume", &format!("{from}:{to}")]);
    }
    command.arg(&engine.image).arg("/berth");
    let mut settings = host.settings("berth");
    settings.docker.mode = Mode::Off;
    settings.hold.policy = PolicyName::Off;
    (engine.named(&name), Daemon::start_by(host, "berth", settings, command))
}

fn a_container_that_is_killed_lets_go_whom_it_held(engine: &Engine, freezer: fn(&Container) -> PathBuf) {
    let (_tidy, host) = (Tidy, Host::start());
    let (agent, mut daemon) = contained(engine, &host);
    let tenant = engine.run(&host, "held", &[], &["light"]);
    daemon.row_where(&tenant.key(), |row| row.task_id.is_some());
    daemon.berth(&["hold", &tenant.id[..12], "--by", "freeze"]).ok();
    let cgroup = freezer(&tenant);
    until("it to stand still", || (!is_free(&cgroup)).then_some(()));
    agent.docker(&["kill", "--signal=KILL"]).ok();
    daemon.kill();
    until("the engine to see its end", || (agent.says(".State.Running") == "false").then_some(()));
    until_within(FREE_WITHIN, "it is free", || is_free(&cgroup).then_some(()));
}

#[test]
fn a_container_of_docker_that_is_killed_lets_go_whom_it_held() {
    let Some(engine) = Engine::for_test("a_container_of_docker_that_is_killed_lets_go_whom_it_held") else { return };
    a_container_that_is_killed_lets_go_whom_it_held(&engine, Container::freezer);
}

#[test]
fn the_same_where_the_unified_hierarchy_is_all_there_is() {
    let test = "the_same_where_the_unified_hierarchy_is_all_there_is";
    let Some(engine) = Engine::for_test(test) else { return };
    let Some(own) = OwnEngine::start(&engine, Cgroups::Unified, &[]) else {
        return skip(test, "an engine of its own on the unified hierarchy alone");
    };
    // By its path from outside that engine's mounts.
    let unified = |tenant: &Container| {
        let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", tenant.pid())).unwrap();
        let path = cgroups.lines().find_map(|line| line.strip_prefix("0::/")).unwrap().to_owned();
        hierarchy().join(path)
    };
    a_container_that_is_killed_lets_go_whom_it_held(own.engine(), unified);
}

/// What reads a container's log ends with it.
#[test]
fn a_guard_whose_log_nobody_reads_undoes_what_its_daemon_held() {
    let host = Host::start();
    let settings = host.settings("berth");
    let config = host.write_config("berth", &settings);
    let (log, log_end) = std::io::pipe().unwrap();
    let mut command = Command::new(BERTH);
    command.arg("--config").arg(&config).arg("daemon").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log_end);
    let mut daemon = Running::start(&mut command);
    drop((command, log));
    let view = View::of(&settings.api.socket);
    until("the daemon's first look", || view.has_looked().then_some(()));
    let tenant = host.holder("unread", &[]);
    view.sees(&tenant.key());
    run(Command::new(BERTH).arg("--config").arg(&config).args(["hold", tenant.cgroup.path()])).ok();
    assert!(is_frozen(tenant.cgroup.dir()));
    daemon.kill();
    until_within(FREE_WITHIN, "it is free", || (!is_frozen(tenant.cgroup.dir())).then_some(()));
}
