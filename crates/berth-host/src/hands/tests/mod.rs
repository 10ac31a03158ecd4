//! Steps performed on real processes and cgroups; with an engine that can be told to lie, and with a real one.

mod engine;
mod handed_over;
mod real_engine;
mod sheltered;
mod unified_engine;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_model::hold::{Freezer as By, Step};
use berth_model::{ProcKey, StepFailure, TenantKey};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::fake::FakeHands;
use super::*;
use crate::freezer::tests::{TestCgroup, hierarchies};
use crate::freezer::{CgroupDir, Freezer, Hierarchies, Motion};
use crate::procs::read;
use crate::testing::eventually;

const PROC: &str = "/proc";
const CGROUP: &str = "/sys/fs/cgroup";

fn freezer() -> Arc<Freezer> {
    Arc::new(Freezer::new(Path::new(PROC), Hierarchies::under(Path::new(CGROUP)), Duration::from_secs(2)))
}

fn hands() -> HostHands {
    HostHands::new(Path::new(PROC), freezer())
}

fn subject(cgroup: &Path) -> Subject {
    let tenant = TenantKey::Cgroup { path: "/test".into() };
    Subject::new(tenant, Some(cgroup.to_owned()), None)
}

fn motion(path: &Path) -> Motion {
    CgroupDir::open(path).unwrap().state().unwrap().motion
}

fn key(child: &Child) -> ProcKey {
    read::key(Path::new(PROC), child.id()).unwrap()
}

#[test]
fn a_tenant_is_frozen_and_thawed_as_often_as_asked() {
    for hierarchy in hierarchies("a_tenant_is_frozen_and_thawed_as_often_as_asked") {
        let (cgroup, hands) = (TestCgroup::new(&hierarchy), hands());
        let mut child = cgroup.shell("sleep 600");
        let subject = subject(&cgroup.path);
        for _ in 0..2 {
            hands.perform(&subject, Step::Freeze(By::Cgroup)).unwrap();
            assert_eq!(motion(&cgroup.path), Motion::Frozen);
        }
        for _ in 0..2 {
            hands.perform(&subject, Step::Thaw(By::Cgroup)).unwrap();
            assert_eq!(motion(&cgroup.path), Motion::Thawed);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn what_is_gone_is_free_and_cannot_be_held() {
    for hierarchy in hierarchies("what_is_gone_is_free_and_cannot_be_held") {
        let (cgroup, hands) = (TestCgroup::new(&hierarchy), hands());
        let subject = subject(&cgroup.path);
        hands.perform(&subject, Step::Freeze(By::Cgroup)).unwrap();
        drop(cgroup);
        hands.perform(&subject, Step::Thaw(By::Cgroup)).unwrap();
        hands.perform(&subject, Step::Thaw(By::Docker)).unwrap();
        let failure = hands.perform(&subject, Step::Freeze(By::Cgroup)).unwrap_err();
        assert!(!failure.is_passing, "{failure:?}");
    }
    let process = ProcKey { pid: u32::MAX, start_ticks: 1 };
    hands().perform(&subject(Path::new("/gone")), Step::Continue(process)).unwrap();
}

#[test]
fn means_that_are_missing_fail_by_name_and_what_they_would_undo_is_undone() {
    let (hands, nowhere) = (hands(), Subject { cgroup: None, ..subject(Path::new("/")) });
    let process = ProcKey { pid: 1, start_ticks: 1 };
    let failure = |step| hands.perform(&nowhere, step).unwrap_err();
    for (step, words) in [
        (Step::Lock(process), "cannot lock process 1: no CUDA driver"),
        (Step::Checkpoint(process), "cannot park process 1"),
        (Step::Gate(process), "no probes are used"),
        (Step::Freeze(By::Cgroup), "has no cgroup of its own"),
    ] {
        let failure = failure(step);
        assert!(failure.message.contains(words) && !failure.is_passing, "{failure:?}");
    }
    hands.perform(&nowhere, Step::Ungate(process)).unwrap();
    hands.perform(&nowhere, Step::Thaw(By::Cgroup)).unwrap();
    let root = hands.perform(&subject(Path::new("/etc")), Step::Freeze(By::Cgroup)).unwrap_err();
    assert!(root.message.contains("/etc is left alone"), "{root:?}");
}

// === signals ===

fn stopped_child() -> Child {
    let child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    eventually("it is stopped", || is_stopped(&child));
    child
}

fn is_stopped(child: &Child) -> bool {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(Pid::from_child(child)), options).unwrap().is_some()
}

#[test]
fn only_the_very_process_that_was_stopped_is_continued() {
    let (hands, mut child) = (hands(), stopped_child());
    let (process, anybody) = (key(&child), subject(Path::new("/gone")));
    let earlier = ProcKey { start_ticks: process.start_ticks - 1, ..process };
    hands.perform(&anybody, Step::Continue(earlier)).unwrap();
    assert!(is_stopped(&child), "its pid was another's before; that one is gone");
    hands.perform(&anybody, Step::Continue(process)).unwrap();
    assert!(!is_stopped(&child));
    hands.perform(&anybody, Step::Continue(process)).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    hands.perform(&anybody, Step::Continue(process)).unwrap();
}

/// Writes down what is asked of it, and whether the process was stopped then.
#[derive(Debug, Default)]
struct WitnessGate(Mutex<Vec<(&'static str, ProcKey, bool)>>);

impl WitnessGate {
    fn note(&self, what: &'static str, process: ProcKey) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap();
        self.0.lock().unwrap().push((what, process, stat.contains(") T ")));
    }
}

impl Gate for WitnessGate {
    fn gate(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.note("gate", process);
        Ok(())
    }

    fn bar(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.note("bar", process);
        Ok(())
    }

    fn ungate(&self, process: ProcKey) -> Result<(), StepFailure> {
        self.note("ungate", process);
        Ok(())
    }

    fn freezing(&self, process: ProcKey, is_under_way: bool) {
        self.note(if is_under_way { "freezing" } else { "no longer" }, process);
    }

    /// One that is not stopped only waits.
    fn continued(&self, process: ProcKey) -> bool {
        self.note("continued", process);
        self.0.lock().unwrap().last().unwrap().2
    }
}

/// A handler of its own for SIGCONT would be called.
#[test]
fn a_process_whose_calls_only_wait_is_sent_no_signal() {
    let hands = hands().with_gate(Arc::new(WitnessGate::default()));
    let mut child =
        Command::new("sh").args(["-c", "trap 'exit 3' CONT; read _"]).stdin(Stdio::piped()).spawn().unwrap();
    hands.perform(&subject(Path::new("/gone")), Step::Continue(key(&child))).unwrap();
    drop(child.stdin.take());
    assert_ne!(child.wait().unwrap().code(), Some(3));
}

#[test]
fn the_gate_is_told_of_a_freeze_when_it_was_asked_for_and_when_it_has_taken_effect() {
    for hierarchy in hierarchies("the_gate_is_told_of_a_freeze") {
        let (cgroup, gate) = (TestCgroup::new(&hierarchy), Arc::new(WitnessGate::default()));
        let mut child = cgroup.shell("sleep 600");
        let process = key(&child);
        let subject = Subject { processes: [process].into(), ..subject(&cgroup.path) };
        hands().with_gate(gate.clone()).perform(&subject, Step::Freeze(By::Cgroup)).unwrap();
        assert_eq!(*gate.0.lock().unwrap(), [("freezing", process, false), ("no longer", process, false)]);
        cgroup.dir().thaw(Duration::from_secs(2)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn the_gate_is_told_before_a_process_goes_on() {
    let gate = Arc::new(WitnessGate::default());
    let (hands, mut child) = (hands().with_gate(gate.clone()), stopped_child());
    let (process, anybody) = (key(&child), subject(Path::new("/gone")));
    for step in [Step::Gate(process), Step::Continue(process)] {
        hands.perform(&anybody, step).unwrap();
    }
    assert_eq!(*gate.0.lock().unwrap(), [("gate", process, true), ("continued", process, true)]);
    assert!(!is_stopped(&child));
    child.kill().unwrap();
    child.wait().unwrap();
}

// === others ===

#[test]
fn fake_hands_tell_what_was_asked_and_fail_and_wait_as_told() {
    let hands = Arc::new(FakeHands::default());
    let (somebody, process) = (subject(Path::new("/x")), ProcKey { pid: 1, start_ticks: 1 });
    let (lock, unlock) = (Step::Lock(process), Step::Unlock(process));
    hands.fail(lock, "busy", true);
    assert_eq!(hands.perform(&somebody, lock), Err(StepFailure { message: "busy".into(), is_passing: true }));
    assert_eq!(hands.perform(&somebody, lock), Ok(()));
    hands.hold_up(unlock);
    let stuck = std::thread::spawn({
        let (hands, somebody) = (hands.clone(), somebody.clone());
        move || hands.perform(&somebody, unlock)
    });
    eventually("it is asked for", || hands.steps().len() == 3);
    assert!(!stuck.is_finished());
    hands.let_go(unlock);
    assert_eq!(stuck.join().unwrap(), Ok(()));
    assert_eq!(hands.steps(), [lock, lock, unlock].map(|step| (somebody.tenant.clone(), step)));
}
