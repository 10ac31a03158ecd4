//! `berth bench` in the middle of its work is told to end, or is killed.

use rustix::process::Signal;

use crate::support::{Engine, Host, Staged, until};

const STAGE: &str = "berth-bench";
/// Looks only: needs no kernel that offers probes.
const BENCH: [&str; 6] = ["bench", "detect", "--part", "curve", "--containers", "2"];

/// Returns when its daemon and a tenant are at work.
fn at_work(host: &Host, name: &str, tmp: &str, args: &[&str]) -> Staged {
    let mut bench = Staged::start_in(host, tmp, name, STAGE, args);
    until("a daemon and a tenant at work", || {
        assert!(bench.process.is_running(), "the measurement ended");
        let has_tenant = bench.processes().iter().any(|command| command.contains(" bench tenant "));
        (has_tenant && !bench.daemons().is_empty()).then_some(())
    });
    bench
}

fn on_cgroups(host: &Host, name: &str, tmp: &str) -> Staged {
    at_work(host, name, tmp, &[&BENCH[..], &["--ground", "cgroup"]].concat())
}

fn on_docker(host: &Host, name: &str, tmp: &str, engine: &Engine) -> Staged {
    let socket = format!("docker.socket={}", engine.socket().display());
    at_work(host, name, tmp, &[&["--set", &socket], &BENCH[..], &["--ground", "docker"]].concat())
}

#[test]
fn a_measurement_ended_in_the_middle_leaves_nothing() {
    for (signal, name, code) in [(Signal::INT, "int", 130), (Signal::TERM, "term", 143), (Signal::HUP, "hup", 129)] {
        let host = Host::bare();
        let mut bench = on_cgroups(&host, name, name);
        assert!(bench.cgroup().is_some());
        bench.process.signal(signal);
        assert_eq!(bench.process.wait(), code, "{name}");
        assert_eq!(bench.printed(), "", "half a report");
        bench.leaves_nothing();
    }
}

#[test]
fn a_measurement_ended_in_the_middle_leaves_nothing_on_the_engine() {
    let Some(engine) = Engine::for_test("a_measurement_ended_in_the_middle_leaves_nothing_on_the_engine") else {
        return;
    };
    let host = Host::bare();
    let mut bench = on_docker(&host, "bench", "tmp", &engine);
    assert_ne!(bench.on(&engine), "");
    bench.process.signal(Signal::TERM);
    assert_eq!(bench.process.wait(), 143);
    bench.leaves_nothing_on(&engine);
}

#[test]
fn the_daemon_of_a_killed_measurement_ends_and_the_next_one_removes_the_rest() {
    let host = Host::bare();
    let mut killed = on_cgroups(&host, "killed", "tmp");
    assert!(killed.cgroup().is_some());
    killed.process.kill();
    until("the end of its daemon", || killed.daemons().is_empty().then_some(()));
    assert!(!killed.files().is_empty(), "nothing was left to be removed");
    let mut next = on_cgroups(&host, "next", "tmp");
    assert_eq!(killed.cgroup(), None, "its cgroups are left");
    next.process.signal(Signal::TERM);
    assert_eq!(next.process.wait(), 143);
    killed.leaves_nothing();
}

#[test]
fn what_a_killed_measurement_left_on_the_engine_is_removed_by_the_next_one() {
    let Some(engine) = Engine::for_test("what_a_killed_measurement_left_on_the_engine") else { return };
    let host = Host::bare();
    let mut killed = on_docker(&host, "killed", "tmp", &engine);
    assert_ne!(killed.on(&engine), "");
    killed.process.kill();
    until("the end of its daemon", || killed.daemons().is_empty().then_some(()));
    let mut next = on_docker(&host, "next", "tmp", &engine);
    assert_eq!(killed.on(&engine), "", "its containers or its image are left");
    next.process.signal(Signal::TERM);
    assert_eq!(next.process.wait(), 143);
    next.leaves_nothing_on(&engine);
}
