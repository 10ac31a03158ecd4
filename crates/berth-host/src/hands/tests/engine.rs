//! An engine whose flag and answers are wrong: the freezer, which is real, decides.

use berth_model::{ContainerId, Runtime};

use super::*;
use crate::docker::Pauser;
use crate::docker::tests::engine::{FakeEngine, PauseAnswer};

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const CONFLICT: PauseAnswer = PauseAnswer::Status("409 Conflict");
const FAILURE: PauseAnswer = PauseAnswer::Status("500 Internal Server Error");

/// A container that the engine says it has, in a cgroup that only the test and the hands move.
struct Stage {
    engine: FakeEngine,
    cgroup: TestCgroup,
    hands: HostHands,
    subject: Subject,
}

impl Stage {
    fn new(hierarchy: &Path) -> Stage {
        let (engine, cgroup) = (FakeEngine::start(), TestCgroup::new(hierarchy));
        engine.change(|state| state.containers.insert(A.into(), "trainer".into()));
        let hands = hands().with_docker(Pauser::new(&engine.socket, Duration::from_secs(10)));
        let id = ContainerId(A.into());
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: id.clone() };
        let subject = Subject::new(tenant, Some(cgroup.path.clone()), Some(id));
        Stage { engine, cgroup, hands, subject }
    }

    fn answers(&self, answers: &[PauseAnswer]) {
        self.engine.change(|state| state.answers.extend(answers));
    }

    fn believes_paused(&self, paused: bool) {
        self.engine.change(|state| match paused {
            true => state.paused.insert(A.into()),
            false => state.paused.remove(A),
        });
    }

    fn is_believed_paused(&self) -> bool {
        self.engine.change(|state| state.paused.contains(A))
    }

    fn freeze(&self) -> Result<(), StepFailure> {
        self.hands.perform(&self.subject, Step::Freeze(By::Docker))
    }

    fn thaw(&self) -> Result<(), StepFailure> {
        self.hands.perform(&self.subject, Step::Thaw(By::Docker))
    }

    fn motion(&self) -> Motion {
        motion(&self.cgroup.path)
    }

    fn freezes_itself(&self) {
        self.cgroup.dir().freeze(Duration::from_secs(2)).unwrap();
    }
}

fn stages(test: &str) -> impl Iterator<Item = Stage> {
    hierarchies(test).into_iter().map(|hierarchy| Stage::new(&hierarchy))
}

#[test]
fn an_engine_that_wrongly_believes_it_paused_is_made_right() {
    for stage in stages("an_engine_that_wrongly_believes_it_paused_is_made_right") {
        stage.answers(&[CONFLICT]);
        stage.believes_paused(true);
        stage.freeze().unwrap();
        assert_eq!((stage.motion(), stage.is_believed_paused()), (Motion::Frozen, true));
        stage.thaw().unwrap();
        assert_eq!((stage.motion(), stage.is_believed_paused()), (Motion::Thawed, false));
    }
}

#[test]
fn an_engine_that_refuses_to_let_go_what_runs_is_corrected() {
    for stage in stages("an_engine_that_refuses_to_let_go_what_runs_is_corrected") {
        stage.believes_paused(true);
        stage.answers(&[FAILURE]);
        stage.thaw().unwrap();
        assert_eq!((stage.motion(), stage.is_believed_paused()), (Motion::Thawed, false));
    }
}

#[test]
fn what_the_engine_leaves_frozen_is_thawed_directly() {
    for stage in stages("what_the_engine_leaves_frozen_is_thawed_directly") {
        stage.answers(&[CONFLICT]);
        stage.freezes_itself();
        stage.thaw().unwrap();
        assert_eq!(stage.motion(), Motion::Thawed, "it said that it was not paused");
        stage.freezes_itself();
        stage.thaw().unwrap();
        assert_eq!(stage.motion(), Motion::Thawed, "it said that it had let it go");
        std::fs::remove_file(&stage.engine.socket).unwrap();
        stage.freezes_itself();
        stage.thaw().unwrap();
        assert_eq!(stage.motion(), Motion::Thawed, "it was away");
    }
}

/// Calls that wait would hold it up: the engine answers when all stand still.
#[test]
fn the_gate_is_told_of_a_pause_before_the_engine_says_that_it_is_done() {
    for stage in stages("the_gate_is_told_of_a_pause_before_the_engine_says_that_it_is_done") {
        let gate = Arc::new(WitnessGate::default());
        let mut child = stage.cgroup.shell("sleep 600");
        let process = key(&child);
        let subject = Subject { processes: [process].into(), ..stage.subject.clone() };
        let stage = Stage { hands: stage.hands.with_gate(gate.clone()), subject, ..stage };
        stage.answers(&[PauseAnswer::Late(Duration::from_secs(2))]);
        let paused = std::thread::scope(|scope| {
            let pausing = scope.spawn(|| stage.freeze());
            eventually("the engine is asked", || stage.is_believed_paused());
            assert_eq!(*gate.0.lock().unwrap(), [], "nothing keeps its calls yet");
            stage.freezes_itself();
            eventually("the gate is told", || !gate.0.lock().unwrap().is_empty());
            assert!(!pausing.is_finished());
            pausing.join().unwrap()
        });
        stage.cgroup.dir().thaw(Duration::from_secs(2)).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(paused, Ok(()));
        assert_eq!(*gate.0.lock().unwrap(), [("freezing", process, false), ("no longer", process, false)]);
    }
}

#[test]
fn a_pause_without_effect_is_no_hold() {
    for stage in stages("a_pause_without_effect_is_no_hold") {
        let failure = stage.freeze().unwrap_err();
        assert!(failure.is_passing && failure.message.contains("but its processes run"), "{failure:?}");
        stage.believes_paused(false);
        stage.answers(&[CONFLICT]);
        let failure = stage.freeze().unwrap_err();
        assert!(failure.is_passing && failure.message.contains("409"), "{failure:?}");
        stage.engine.change(|state| state.containers.clear());
        let failure = stage.freeze().unwrap_err();
        assert!(!failure.is_passing && failure.message.contains("has no container"), "{failure:?}");
        stage.thaw().unwrap();
    }
}

#[test]
fn what_a_person_paused_is_neither_held_nor_released() {
    for stage in stages("what_a_person_paused_is_neither_held_nor_released") {
        stage.believes_paused(true);
        stage.freezes_itself();
        for by in [By::Docker, By::Cgroup] {
            let failure = stage.hands.perform(&stage.subject, Step::Freeze(by)).unwrap_err();
            assert!(failure.message.contains("somebody else has frozen"), "{failure:?}");
            stage.hands.perform(&stage.subject, Step::Thaw(by)).unwrap();
            assert_eq!((stage.motion(), stage.is_believed_paused()), (Motion::Frozen, true));
        }
    }
}

#[test]
fn an_engine_that_hangs_does_not_keep_a_tenant_frozen() {
    for mut stage in stages("an_engine_that_hangs_does_not_keep_a_tenant_frozen") {
        stage.hands = hands().with_docker(Pauser::new(&stage.engine.socket, Duration::from_millis(50)));
        stage.freezes_itself();
        stage.answers(&[PauseAnswer::Late(Duration::from_millis(500))]);
        stage.thaw().unwrap();
        assert_eq!(stage.motion(), Motion::Thawed);
    }
}

/// Held by the freezer, and to be the engine's from now on; whether it is frozen afterwards, with its process back in its place.
fn handed_over(stage: &Stage) -> Result<(), StepFailure> {
    let mut child = stage.cgroup.shell("sleep 600");
    stage.hands.perform(&stage.subject, Step::Freeze(By::Cgroup)).unwrap();
    let outcome = stage.hands.perform(&stage.subject, Step::HandOver);
    assert_eq!(stage.motion(), Motion::Frozen, "{outcome:?}");
    let members = std::fs::read_to_string(stage.cgroup.path.join("cgroup.procs")).unwrap();
    assert!(members.lines().any(|pid| pid == child.id().to_string()), "{outcome:?}: {members}");
    assert!(!stage.cgroup.path.join("berth-shelter").exists(), "{outcome:?}");
    stage.thaw().unwrap();
    assert_eq!(stage.motion(), Motion::Thawed);
    child.kill().unwrap();
    child.wait().unwrap();
    outcome
}

#[test]
fn an_engine_that_does_not_take_over_leaves_the_freeze_whatever_it_says() {
    for stage in stages("an_engine_that_does_not_take_over_leaves_the_freeze_whatever_it_says") {
        let refused = |words: &str| {
            let failure = handed_over(&stage).unwrap_err();
            assert!(failure.message.contains(words), "{failure:?}");
            stage.believes_paused(false);
        };
        refused("but its processes run");
        stage.answers(&[CONFLICT]);
        refused("409");
        stage.answers(&[FAILURE]);
        refused("500");
        stage.engine.change(|state| state.containers.clear());
        refused("has no container");
        std::fs::remove_file(&stage.engine.socket).unwrap();
        refused("no Docker socket");
    }
}

#[test]
fn an_engine_that_believes_it_paused_already_is_made_right_by_the_freeze() {
    for stage in stages("an_engine_that_believes_it_paused_already_is_made_right_by_the_freeze") {
        stage.believes_paused(true);
        handed_over(&stage).unwrap();
        assert!(!stage.is_believed_paused(), "it was let go by the engine");
    }
}
