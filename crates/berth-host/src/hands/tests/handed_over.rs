//! A freeze that becomes the engine's pause, with a real engine: nothing runs in between, and whatever fails leaves it frozen.

use std::path::PathBuf;

use super::real_engine::Container;
use super::*;
use crate::docker::Pauser;

/// Counts without rest, so that any moment it runs shows.
const BUSY: [&str; 3] = ["sh", "-c", "while :; do i=$((i+1)); echo $i >/tmp/count; done"];

fn dir(subject: &Subject) -> CgroupDir {
    CgroupDir::open(subject.cgroup.as_deref().unwrap()).unwrap()
}

fn shelter(subject: &Subject) -> PathBuf {
    subject.cgroup.as_ref().unwrap().join("berth-shelter")
}

/// How far it has counted; empty in the middle of writing it down. The kernel's own time for a frozen process does not show.
fn counted(container: &Container) -> String {
    let path = format!("/proc/{}/root/tmp/count", container.shown(".State.Pid"));
    std::fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_freeze_becomes_a_pause_and_nothing_runs_in_between() {
    let Some(container) = Container::running("a_freeze_becomes_a_pause_and_nothing_runs_in_between", &BUSY) else {
        return;
    };
    let subject = container.subject();
    for _ in 0..5 {
        container.hold(&subject, By::Cgroup);
        assert_eq!(container.shown(".State.Status"), "running", "the engine does not know");
        let before = counted(&container);
        for _ in 0..2 {
            container.hands.perform(&subject, Step::HandOver).unwrap();
            assert_eq!(container.shown(".State.Status"), "paused");
            assert!(motion(dir(&subject).path()) == Motion::Frozen && !shelter(&subject).exists());
        }
        assert_eq!(counted(&container), before, "it ran meanwhile");
        container.release(&subject, By::Docker);
        assert_eq!(container.shown(".State.Status"), "running");
        eventually("it goes on", || counted(&container) != before);
    }
}

#[test]
fn an_engine_that_does_not_answer_leaves_the_freeze_as_it_was() {
    let Some(container) = Container::running("an_engine_that_does_not_answer_leaves_the_freeze_as_it_was", &BUSY)
    else {
        return;
    };
    let subject = container.subject();
    let freezer = freezer();
    let nowhere = Pauser::new(Path::new("/nonexistent/docker.sock"), Duration::from_secs(1));
    let hands = HostHands::new(Path::new(PROC), freezer).with_docker(nowhere);
    hands.perform(&subject, Step::Freeze(By::Cgroup)).unwrap();
    let before = counted(&container);
    let failure = hands.perform(&subject, Step::HandOver).unwrap_err();
    assert!(failure.is_passing && failure.message.contains("/nonexistent/docker.sock"), "{failure:?}");
    assert!(motion(dir(&subject).path()) == Motion::Frozen && !shelter(&subject).exists());
    assert_eq!(counted(&container), before);
    hands.perform(&subject, Step::Unshelter).unwrap();
    hands.perform(&subject, Step::Thaw(By::Docker)).unwrap();
    assert_eq!(motion(dir(&subject).path()), Motion::Thawed);
}

/// Whoever was there is dead; all that is known is that a hand-over had begun.
#[test]
fn a_hand_over_cut_short_anywhere_is_undone_by_another() {
    let Some(container) = Container::running("a_hand_over_cut_short_anywhere_is_undone_by_another", &BUSY) else {
        return;
    };
    let subject = container.subject();
    let cuts: [fn(&Container, &Subject); 4] = [
        |_, subject| std::fs::create_dir(shelter(subject)).unwrap(),
        |_, subject| freezer().shelter(&dir(subject)).unwrap(),
        |container, subject| {
            freezer().shelter(&dir(subject)).unwrap();
            container.docker(&["pause", &container.shown(".Id")]);
        },
        |container, subject| container.hands.perform(subject, Step::HandOver).unwrap(),
    ];
    for (number, cut) in cuts.into_iter().enumerate() {
        container.hold(&subject, By::Cgroup);
        let before = counted(&container);
        cut(&container, &subject);
        assert_eq!(counted(&container), before, "cut {number}");
        let socket = std::env::var("BERTH_TEST_DOCKER").unwrap();
        let pauser = Pauser::new(Path::new(socket.strip_prefix("unix://").unwrap()), Duration::from_secs(20));
        let guard = hands().with_docker(pauser);
        guard.perform(&subject, Step::Unshelter).unwrap();
        guard.perform(&subject, Step::Thaw(By::Docker)).unwrap();
        eventually("it goes on", || counted(&container) != before);
        assert!(!shelter(&subject).exists(), "cut {number}");
        assert_eq!(container.shown(".State.Status"), "running", "cut {number}");
        // The hands of the one who died have not been told.
        container.release(&subject, By::Docker);
    }
}

#[test]
fn a_container_with_cgroups_inside_stays_with_the_freezer() {
    let Some(container) = Container::run("a_container_with_cgroups_inside_stays_with_the_freezer") else { return };
    let subject = container.subject();
    let inner = TestCgroup::at(subject.cgroup.as_ref().unwrap().join("inner"));
    container.hold(&subject, By::Cgroup);
    let failure = container.hands.perform(&subject, Step::HandOver).unwrap_err();
    assert!(!failure.is_passing && failure.message.contains("cgroups inside"), "{failure:?}");
    assert_eq!(motion(dir(&subject).path()), Motion::Frozen);
    container.release(&subject, By::Cgroup);
    drop(inner);
}
