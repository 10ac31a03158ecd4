//! What is left of a gate when the daemon is killed: nobody is stopped any more, and whom it had stopped can be told.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use berth_model::ProcKey;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

use super::super::{Options, Probes, available, read_halted};
use super::gate::{key, signal_continue, until_stopped};
use super::tenant::Workshop;
use crate::procs::Registry;
use crate::testing::skip;

/// A child of this test program that gates processes until it is killed.
struct Gatekeeper {
    child: Child,
    /// As a guard would have been handed it.
    halted: OwnedFd,
}

/// Tells a child of this test program to be a gatekeeper: `PERF:PID,PID…:LIBRARY`.
const GATEKEEPER: &str = "BERTH_TEST_GATEKEEPER";

impl Gatekeeper {
    /// Its gates are in place when this returns.
    fn start(perf_events: bool, library: &Path, gated: &[ProcKey]) -> Self {
        let pids: Vec<_> = gated.iter().map(|process| process.pid.to_string()).collect();
        // By the running image, not by path: a build beside this run may have replaced the file.
        let mut child = Command::new("/proc/self/exe")
            .args(["--exact", "probes::tests::dead_daemon::gatekeeper_process", "--nocapture", "--test-threads=1"])
            .env(GATEKEEPER, format!("{perf_events}:{}:{}", pids.join(","), library.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let number = lines.find_map(|line| line.split_once("gated ")?.1.parse().ok()).expect("a gatekeeper at work");
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).unwrap();
        let halted = pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()).unwrap();
        Self { child, halted }
    }
}

impl Drop for Gatekeeper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// No test: what such a child runs.
#[test]
fn gatekeeper_process() {
    let Ok(order) = std::env::var(GATEKEEPER) else { return };
    let mut parts = order.splitn(3, ':');
    let perf_events = parts.next().unwrap().parse().unwrap();
    let pids: Vec<u32> = parts.next().unwrap().split(',').map(|pid| pid.parse().unwrap()).collect();
    let (event_tx, _event_rx) = mpsc::channel();
    let registry = Registry::new("/proc".as_ref(), event_tx.clone()).unwrap();
    let options = Options { libraries: vec![parts.next().unwrap().into()], perf_events, ..Options::default() };
    let probes = Probes::start(options, move |pid| registry.resolve(pid), event_tx).unwrap();
    for pid in pids {
        probes.gate(key(pid)).unwrap();
    }
    println!("gated {}", probes.halted_map().as_raw_fd());
    std::io::stdout().flush().unwrap();
    // Until it is killed; or its parent is, which closes its input.
    let _ = std::io::stdin().lines().count();
}

#[test]
fn a_gate_ends_with_its_daemon_and_whom_it_stopped_is_known() {
    if let Err(reason) = available() {
        return skip("a_gate_ends_with_its_daemon", &reason.to_string());
    }
    for perf_events in [false, true] {
        let workshop = Workshop::new();
        let (mut stopped, mut later) = (workshop.tenant(), workshop.tenant());
        stopped.call("init");
        later.call("init");
        let (at_the_gate, before_it) = (key(stopped.pid()), key(later.pid()));
        let mut keeper = Gatekeeper::start(perf_events, &workshop.driver, &[at_the_gate, before_it]);
        stopped.begin("launch", 1);
        until_stopped(at_the_gate);
        keeper.child.kill().unwrap();
        keeper.child.wait().unwrap();
        assert_eq!(read_halted(keeper.halted.as_fd(), Path::new("/proc")).unwrap(), [at_the_gate]);
        later.repeat("launch", 5);
        assert_eq!(later.made(), [5, 0]);
        signal_continue(at_the_gate);
        stopped.answer("launch");
        stopped.repeat("launch", 4);
        assert_eq!(stopped.made(), [5, 0]);
    }
}

#[test]
fn a_pid_that_was_handed_out_again_is_not_taken_for_the_one_that_was_stopped() {
    if let Err(reason) = available() {
        return skip("a_pid_handed_out_again", &reason.to_string());
    }
    let map = super::super::sys::create_map(super::super::sys::MapType::Hash, 4, 8, 4).unwrap();
    let myself = key(std::process::id());
    let note = |at: u64| super::super::sys::map_update(map.as_fd(), &myself.pid.to_ne_bytes(), at).unwrap();
    note(crate::clock::now().0);
    assert_eq!(read_halted(map.as_fd(), Path::new("/proc")).unwrap(), [myself]);
    note(1);
    assert_eq!(read_halted(map.as_fd(), Path::new("/proc")).unwrap(), [], "stopped before this process began");
}
