//! What the driver may do to whoever calls it: hang, refuse, and act on whoever has a pid just then.

use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use berth_model::{ProcKey, StepFailure};

use super::{LONG, SOON, Sleeper};
use crate::driver::api::code;
use crate::driver::fake::FakeApi;
use crate::driver::{Driver, DriverError, DriverHands, DriverSteps, Options, State};
use crate::testing::eventually;

struct Scene {
    api: Arc<FakeApi>,
    driver: Driver,
    process: Sleeper,
}

impl Scene {
    /// One process with a context.
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let (api, process) = (Arc::new(FakeApi::default()), Sleeper::new());
        api.add(process.0.id());
        let driver = Driver::with_api(api.clone(), Path::new("libcuda.so.1"), options);
        Self { api, driver, process }
    }

    fn key(&self) -> ProcKey {
        self.process.key()
    }

    fn state(&self) -> Option<u32> {
        self.api.state_of(self.process.0.id())
    }
}

#[test]
fn the_driver_is_touched_first_when_it_is_needed_and_initialised_once() {
    let scene = Scene::new();
    assert_eq!(scene.api.count("init"), 0);
    for _ in 0..3 {
        assert_eq!(scene.driver.state(scene.key()).unwrap(), State::Running);
    }
    assert_eq!(scene.api.count("init"), 1);
}

#[test]
fn a_driver_that_cannot_be_initialised_yet_is_asked_again() {
    let scene = Scene::new();
    scene.api.refuse("init", 100);
    let refused = scene.driver.lock(scene.key(), LONG).unwrap_err();
    assert_eq!(refused.to_string(), "cannot initialise libcuda.so.1: CUDA_ERROR_FAKE_100 (100)");
    scene.api.refuse("init", 0);
    scene.driver.lock(scene.key(), LONG).unwrap();
}

#[test]
fn a_lock_that_hangs_is_given_up_and_undone_when_it_comes_true() {
    let scene = Scene::with(Options { grace: SOON, ..Options::default() });
    scene.driver.state(scene.key()).unwrap();
    scene.api.hang(Some("lock"));
    let stuck = scene.driver.lock(scene.key(), SOON).unwrap_err();
    assert!(matches!(stuck, DriverError::Stuck { .. }) && stuck.is_passing(), "{stuck}");
    let busy = scene.driver.unlock(scene.key()).unwrap_err();
    assert!(matches!(busy, DriverError::Busy { .. }) && busy.is_passing(), "{busy}");
    scene.api.hang(None);
    eventually("the lock is undone", || scene.api.count("unlock") == 1 && scene.state() == Some(0));
    eventually("the process can be locked again", || scene.driver.lock(scene.key(), LONG).is_ok());
}

#[test]
fn an_unlock_that_hangs_is_known_for_ours_afterwards() {
    let scene = Scene::with(Options { answer_within: Duration::from_millis(500), ..Options::default() });
    scene.driver.lock(scene.key(), LONG).unwrap();
    scene.api.hang(Some("unlock"));
    assert!(matches!(scene.driver.unlock(scene.key()), Err(DriverError::Stuck { .. })));
    scene.api.refuse("unlock", 999);
    scene.api.hang(None);
    eventually("the call ends", || !matches!(scene.driver.lock(scene.key(), LONG), Err(DriverError::Busy { .. })));
    scene.driver.lock(scene.key(), LONG).expect("it was locked here");
}

#[test]
fn what_somebody_else_locked_is_left_locked() {
    let scene = Scene::new();
    scene.api.put(scene.process.0.id(), 1);
    let refused = scene.driver.lock(scene.key(), LONG).unwrap_err();
    assert!(matches!(refused, DriverError::LockedByOthers { .. }) && !refused.is_passing(), "{refused}");
    for _ in 0..2 {
        scene.driver.unlock(scene.key()).unwrap();
    }
    assert_eq!((scene.state(), scene.api.count("unlock")), (Some(1), 0));
    scene.api.put(scene.process.0.id(), 0);
    scene.driver.lock(scene.key(), LONG).expect("they unlocked it, so it can be locked");
    scene.driver.unlock(scene.key()).unwrap();
    assert_eq!(scene.state(), Some(0));
}

#[test]
fn steps_are_repeated_without_harm() {
    let scene = Scene::new();
    let (driver, process) = (&scene.driver, scene.key());
    driver.unlock(process).expect("was not locked");
    for _ in 0..2 {
        driver.lock(process, LONG).unwrap();
    }
    for _ in 0..2 {
        driver.checkpoint(process, LONG).unwrap();
    }
    assert!(matches!(driver.unlock(process), Err(DriverError::WrongState { state: "parked", .. })));
    for _ in 0..2 {
        driver.restore(process, LONG).unwrap();
    }
    for _ in 0..2 {
        driver.unlock(process).unwrap();
    }
    assert!(matches!(driver.checkpoint(process, LONG), Err(DriverError::WrongState { .. })), "only what is locked");
    assert_eq!(scene.state(), Some(0));
}

#[test]
fn asking_whether_it_is_idle_does_not_release_what_is_held() {
    let scene = Scene::new();
    assert!(scene.driver.probe_idle(scene.key(), SOON).unwrap());
    assert_eq!(scene.state(), Some(0));
    scene.driver.lock(scene.key(), LONG).unwrap();
    assert!(scene.driver.probe_idle(scene.key(), SOON).unwrap());
    assert_eq!(scene.state(), Some(1));
}

#[test]
fn who_is_gone_needs_no_freeing_and_cannot_be_held() {
    let mut scene = Scene::new();
    let process = scene.key();
    scene.process.end();
    assert!(matches!(scene.driver.lock(process, LONG), Err(DriverError::Gone { .. })));
    assert!(matches!(scene.driver.checkpoint(process, LONG), Err(DriverError::Gone { .. })));
    scene.driver.unlock(process).unwrap();
    scene.driver.restore(process, LONG).unwrap();
    assert_eq!(scene.api.count("lock") + scene.api.count("unlock"), 0, "nobody is asked about a bare pid");
}

#[test]
fn a_stranger_that_got_the_pid_during_the_lock_is_unlocked() {
    let Scene { api, driver, process } = Scene::new();
    let (key, pid) = (process.key(), process.0.id());
    let (gone_tx, gone_rx) = mpsc::channel();
    api.during_lock(move || {
        drop(process);
        gone_tx.send(()).unwrap();
    });
    let refused = driver.lock(key, LONG).unwrap_err();
    gone_rx.recv().unwrap();
    assert!(matches!(refused, DriverError::Gone { .. }), "{refused}");
    assert_eq!((api.state_of(pid), api.count("unlock")), (Some(0), 1));
}

#[test]
fn every_refusal_says_what_it_means() {
    for (code, words, is_passing) in [
        (code::INVALID_VALUE, "has no context", true),
        (code::NOT_READY, "still had work on the GPU", true),
        (code::TIMEOUT, "still had work on the GPU", true),
        (code::NOT_SUPPORTED, "MPS", false),
        (code::NOT_PERMITTED, "as root", false),
        (304, "CUDA_ERROR_FAKE_304 (304)", false),
    ] {
        let scene = Scene::new();
        scene.api.refuse("lock", code);
        let hands = DriverHands { driver: scene.driver.clone(), parking: None, lock_timeout: SOON };
        let failure: StepFailure = hands.lock(scene.key()).unwrap_err();
        assert!(failure.message.contains(words), "{failure:?}");
        assert_eq!(failure.is_passing, is_passing, "{failure:?}");
    }
}

#[test]
fn a_process_whose_memory_was_lost_in_the_move_is_told_as_such() {
    let scene = Scene::new();
    scene.api.put(scene.process.0.id(), 3);
    for refused in [
        scene.driver.lock(scene.key(), LONG),
        scene.driver.unlock(scene.key()),
        scene.driver.restore(scene.key(), LONG),
    ] {
        assert!(matches!(refused, Err(DriverError::Broken { .. })), "{refused:?}");
    }
}

#[test]
fn all_of_a_tenant_are_locked_or_none() {
    let scene = Scene::new();
    let (second, without_context) = (Sleeper::new(), Sleeper::new());
    scene.api.add(second.0.id());
    let tenant = [scene.key(), second.key(), without_context.key()];
    let refused = scene.driver.lock_all(&tenant, LONG).unwrap_err();
    assert!(matches!(refused, DriverError::NoContext { pid, .. } if pid == without_context.0.id()), "{refused}");
    assert_eq!((scene.state(), scene.api.state_of(second.0.id())), (Some(0), Some(0)));
    scene.driver.lock_all(&tenant[..2], LONG).unwrap();
    assert_eq!((scene.state(), scene.api.state_of(second.0.id())), (Some(1), Some(1)));
}

#[test]
fn moving_memory_that_takes_too_long_goes_on_and_can_be_asked_for_again() {
    let scene = Scene::new();
    scene.driver.lock(scene.key(), LONG).unwrap();
    scene.api.hang(Some("checkpoint"));
    assert!(matches!(scene.driver.checkpoint(scene.key(), SOON), Err(DriverError::Stuck { .. })));
    scene.api.hang(None);
    eventually("it is parked", || scene.driver.checkpoint(scene.key(), Duration::from_secs(1)).is_ok());
    assert_eq!(scene.state(), Some(2));
}
