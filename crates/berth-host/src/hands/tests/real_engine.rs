//! A real Docker Engine, whose containers are held while people do to them what they do.

use std::sync::atomic::{AtomicU32, Ordering};

use berth_model::{ContainerId, Runtime};

use super::*;
use crate::docker::Pauser;
use crate::testing::skip_unprepared;

pub struct Container {
    host: String,
    name: String,
    id: ContainerId,
    pub hands: HostHands,
}

impl Container {
    /// A container that runs; `None`, said loudly, where there is no engine.
    pub fn run(test: &str) -> Option<Container> {
        Self::running(test, &["sleep", "600"])
    }

    pub fn running(test: &str, command: &[&str]) -> Option<Container> {
        let (Ok(host), Ok(image)) = (std::env::var("BERTH_TEST_DOCKER"), std::env::var("BERTH_TEST_IMAGE")) else {
            let missing = "BERTH_TEST_DOCKER and BERTH_TEST_IMAGE name no engine and image (make test sets them)";
            skip_unprepared(test, missing);
            return None;
        };
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("berth-hands-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let socket = host.strip_prefix("unix://").expect("a unix:// address");
        let hands = hands().with_docker(Pauser::new(Path::new(socket), Duration::from_secs(20)));
        let mut container = Container { host, name, id: ContainerId(String::new()), hands };
        let run = ["run", "-d", "--network", "none", "--name", &container.name, &image];
        container.id = ContainerId(container.docker(&[&run, command].concat()));
        Some(container)
    }

    pub fn docker(&self, args: &[&str]) -> String {
        let output = self.try_docker(args);
        assert!(output.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// A command that hangs is a failure of what is tested.
    fn try_docker(&self, args: &[&str]) -> std::process::Output {
        let output = Command::new("timeout").args(["30", "docker", "-H", &self.host]).args(args).output().unwrap();
        assert_ne!(output.status.code(), Some(124), "docker {args:?} hung");
        output
    }

    pub fn shown(&self, what: &str) -> String {
        self.docker(&["inspect", "-f", &format!("{{{{{what}}}}}"), &self.id.0])
    }

    pub fn subject(&self) -> Subject {
        let pid: u32 = self.shown(".State.Pid").parse().unwrap();
        let process = read::key(Path::new(PROC), pid).unwrap();
        let dir = freezer().find(process).unwrap().expect("a container has a cgroup");
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: self.id.clone() };
        Subject::new(tenant, Some(dir.path().to_owned()), Some(self.id.clone()))
    }

    pub fn hold(&self, subject: &Subject, by: By) {
        self.hands.perform(subject, Step::Freeze(by)).unwrap();
        assert_eq!(motion(subject.cgroup.as_deref().unwrap()), Motion::Frozen);
    }

    pub fn release(&self, subject: &Subject, by: By) {
        self.hands.perform(subject, Step::Thaw(by)).unwrap();
        let dir = CgroupDir::open(subject.cgroup.as_deref().unwrap());
        let is_thawed = dir.and_then(|dir| dir.state()).is_ok_and(|state| state.motion == Motion::Thawed);
        assert!(is_thawed || !subject.cgroup.as_ref().unwrap().exists());
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.try_docker(&["rm", "-f", &self.name]);
    }
}

#[test]
fn a_pause_is_shown_and_so_is_its_end() {
    let Some(container) = Container::run("a_pause_is_shown_and_so_is_its_end") else { return };
    let subject = container.subject();
    container.hold(&subject, By::Docker);
    assert_eq!(container.shown(".State.Status"), "paused");
    container.hold(&subject, By::Docker);
    container.release(&subject, By::Docker);
    assert_eq!(container.shown(".State.Status"), "running");
    container.release(&subject, By::Docker);
}

/// Back to back, the engine's flag is wrong every few hundred times.
#[test]
fn two_hundred_pauses_back_to_back_are_survived() {
    let Some(container) = Container::run("two_hundred_pauses_back_to_back_are_survived") else { return };
    let subject = container.subject();
    for _ in 0..200 {
        container.hold(&subject, By::Docker);
        container.release(&subject, By::Docker);
    }
    eventually("the engine knows that it runs", || container.shown(".State.Status") == "running");
}

#[test]
fn a_person_s_pause_outlasts_whatever_berth_does() {
    let Some(container) = Container::run("a_person_s_pause_outlasts_whatever_berth_does") else { return };
    let subject = container.subject();
    container.docker(&["pause", &container.name]);
    for by in [By::Cgroup, By::Docker] {
        assert!(container.hands.perform(&subject, Step::Freeze(by)).is_err());
        container.hands.perform(&subject, Step::Thaw(by)).unwrap();
        assert_eq!(container.shown(".State.Status"), "paused");
        assert_eq!(motion(subject.cgroup.as_deref().unwrap()), Motion::Frozen);
    }
    container.docker(&["unpause", &container.name]);
    container.hold(&subject, By::Cgroup);
    container.release(&subject, By::Cgroup);
}

#[test]
fn a_person_may_unpause_what_berth_paused() {
    let Some(container) = Container::run("a_person_may_unpause_what_berth_paused") else { return };
    let subject = container.subject();
    container.hold(&subject, By::Docker);
    container.docker(&["unpause", &container.name]);
    container.release(&subject, By::Docker);
    assert_eq!(container.shown(".State.Status"), "running");
}

/// Whatever way a person ends a held container, it ends, and the release that follows finds nothing to do.
#[test]
fn a_held_container_is_stopped_killed_and_removed_as_any_other() {
    const TEST: &str = "a_held_container_is_stopped_killed_and_removed_as_any_other";
    let ways: [&[&str]; 3] = [&["stop", "-t", "1"], &["kill"], &["rm", "-f"]];
    for (way, by) in ways.into_iter().flat_map(|way| [(way, By::Cgroup), (way, By::Docker)]) {
        let Some(container) = Container::run(TEST) else { return };
        let subject = container.subject();
        container.hold(&subject, by);
        // `docker kill` refuses a paused container on some versions; its end is then the release's business.
        let _ = container.try_docker(&[way, &[&container.name]].concat());
        container.release(&subject, by);
        if way[0] != "rm" {
            eventually("it ended", || container.shown(".State.Running") == "false");
        }
    }
}

#[test]
fn a_held_container_that_is_restarted_is_free_and_held_anew() {
    for by in [By::Cgroup, By::Docker] {
        let Some(container) = Container::run("a_held_container_that_is_restarted_is_free_and_held_anew") else {
            return;
        };
        let before = container.subject();
        container.hold(&before, by);
        container.docker(&["restart", "-t", "1", &container.name]);
        assert_eq!(container.shown(".State.Status"), "running");
        let after = container.subject();
        assert_eq!(motion(after.cgroup.as_deref().unwrap()), Motion::Thawed);
        container.release(&before, by);
        container.hold(&after, by);
        container.release(&after, by);
        assert_eq!(container.shown(".State.Status"), "running");
    }
}

#[test]
fn a_renamed_container_is_released_by_its_id() {
    let Some(mut container) = Container::run("a_renamed_container_is_released_by_its_id") else { return };
    let subject = container.subject();
    container.hold(&subject, By::Docker);
    let renamed = format!("{}-renamed", container.name);
    container.docker(&["rename", &container.name, &renamed]);
    container.name = renamed;
    container.release(&subject, By::Docker);
    assert_eq!(container.shown(".State.Status"), "running");
}

/// Frozen where the engine does not look, the command would hang and hold up all later ones.
#[test]
fn a_command_in_a_frozen_container_is_refused_at_once() {
    let Some(container) = Container::run("a_command_in_a_frozen_container_is_refused_at_once") else { return };
    let subject = container.subject();
    for by in [By::Cgroup, By::Docker] {
        container.hold(&subject, by);
        assert!(!container.try_docker(&["exec", &container.name, "true"]).status.success());
        container.release(&subject, by);
        container.docker(&["exec", &container.name, "true"]);
    }
}

/// Its processes are not all in the cgroup of the first: they are frozen with it all the same.
#[test]
fn cgroups_inside_a_container_are_frozen_with_it() {
    let Some(container) = Container::run("cgroups_inside_a_container_are_frozen_with_it") else { return };
    let subject = container.subject();
    let inner = TestCgroup::at(subject.cgroup.as_ref().unwrap().join("inner"));
    let mut child = inner.shell("sleep 600");
    let found = freezer().find(key(&child)).unwrap().expect("the container's");
    assert_eq!(Some(found.path()), subject.cgroup.as_deref(), "not the inner one");
    container.hold(&subject, By::Cgroup);
    assert_eq!(motion(&inner.path), Motion::Frozen);
    container.release(&subject, By::Cgroup);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(motion(&inner.path), Motion::Thawed);
}
