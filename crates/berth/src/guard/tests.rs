//! Undoing with hands that fail, and guards of real daemons that are killed.

mod killed;

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_host::hands::{Hands, Subject};
use berth_model::hold::{By, Freezer, Grip, Step, Want};
use berth_model::{Mono, ProcKey, Settings, StepFailure, TenantKey};
use berth_store::{Entry, Journal, Role};
use jiff::Timestamp;

use super::link::Plan;
use super::undo::End;
use super::*;

const PROC: &str = "/proc";

/// Notes what is asked of it, and fails a while where it is told to.
#[derive(Debug, Default)]
struct Fake {
    performed: Mutex<Vec<Step>>,
    /// Steps that fail, how often, and whether that passes.
    failing: Mutex<Vec<(Step, u32, bool)>>,
    /// How many restores are under way, and how many there were at most.
    restoring: Mutex<(u32, u32)>,
}

impl Hands for Fake {
    fn perform(&self, _: &Subject, step: Step) -> Result<(), StepFailure> {
        let is_restore = matches!(step, Step::Restore(_));
        if is_restore {
            let mut restoring = self.restoring.lock().unwrap();
            *restoring = (restoring.0 + 1, restoring.1.max(restoring.0 + 1));
            drop(restoring);
            // Long enough for another to come in between, were it allowed to.
            std::thread::sleep(Duration::from_millis(5));
            self.restoring.lock().unwrap().0 -= 1;
        }
        for (failing, times, is_passing) in self.failing.lock().unwrap().iter_mut() {
            if *failing == step && *times > 0 {
                *times -= 1;
                return Err(StepFailure { message: "not now".into(), is_passing: *is_passing });
            }
        }
        self.performed.lock().unwrap().push(step);
        Ok(())
    }
}

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn journal(&self) -> PathBuf {
        self.0.path().join("holds")
    }

    fn open(&self, role: Role) -> (Journal, Found) {
        Journal::open(&self.journal(), role, Duration::from_secs(30), Path::new(PROC)).unwrap()
    }

    /// What a dead daemon wrote.
    fn left_behind(&self, entries: &[Entry]) -> (Journal, Found) {
        let (journal, _) = self.open(Role::Daemon);
        for entry in entries {
            journal.write(entry).unwrap();
        }
        drop(journal);
        self.open(Role::Guard)
    }
}

/// This very process: one that is sure to live.
fn living() -> ProcKey {
    process(std::process::id())
}

fn process(pid: u32) -> ProcKey {
    let stat = std::fs::read(format!("{PROC}/{pid}/stat")).unwrap();
    ProcKey { pid, start_ticks: Stat::parse(&stat).and_then(|stat| stat.start_ticks()).unwrap() }
}

fn entry(name: &str, since: u64, grip: Grip) -> Entry {
    Entry {
        tenant: TenantKey::Cgroup { path: format!("/{name}") },
        cgroup: None,
        container: None,
        grip,
        want: Want::Gated,
        needs_back: Vec::new(),
        by: By::Policy,
        since: Mono(since),
        since_wall: Timestamp::UNIX_EPOCH,
        name: name.into(),
        reason: String::new(),
    }
}

fn locked() -> Grip {
    Grip { locked: [living()].into(), ..Grip::default() }
}

fn parked() -> Grip {
    Grip { parked: [living()].into(), ..locked() }
}

#[test]
fn everything_on_record_is_undone_and_then_nothing_is_on_record() {
    let place = Place::new();
    let frozen = Grip { frozen: Some(Freezer::Docker), ..locked() };
    let (journal, found) = place.left_behind(&[entry("a", 1, frozen), entry("b", 2, locked())]);
    let hands = Arc::new(Fake::default());
    let undone = Undo::new(found, Some(&journal), hands.clone(), Path::new(PROC), None).run(None);
    assert_eq!((undone.end, undone.left.len()), (End::Done, 0));
    assert_eq!(undone.freed.iter().collect::<Vec<_>>(), ["a", "b"]);
    let performed = hands.performed.lock().unwrap();
    let at = |step| performed.iter().position(|done| *done == step).unwrap();
    assert!(at(Step::Thaw(Freezer::Docker)) < performed.len() - 1 && performed.len() == 3, "{performed:?}");
    assert!(journal.is_empty());
}

#[test]
fn parked_tenants_come_back_one_at_a_time_and_the_rest_does_not_wait_for_them() {
    let place = Place::new();
    let entries = [entry("late", 9, parked()), entry("early", 1, parked()), entry("quick", 5, locked())];
    let (journal, found) = place.left_behind(&entries);
    let hands = Arc::new(Fake::default());
    // Memory is full for a while: whoever could come back meanwhile does.
    hands.failing.lock().unwrap().push((Step::Restore(living()), 8, true));
    let undone = Undo::new(found, Some(&journal), hands.clone(), Path::new(PROC), None).run(None);
    assert!(undone.left.is_empty() && journal.is_empty(), "{undone:?}");
    assert_eq!(hands.restoring.lock().unwrap().1, 1, "more than one restore at a time");
    let performed = hands.performed.lock().unwrap();
    assert_eq!(performed.first(), Some(&Step::Unlock(living())), "the one that was only locked: {performed:?}");
}

#[test]
fn what_fails_is_tried_until_it_works_and_told_if_there_is_no_time() {
    let place = Place::new();
    let (journal, found) = place.left_behind(&[entry("a", 1, locked())]);
    let hands = Arc::new(Fake::default());
    hands.failing.lock().unwrap().push((Step::Unlock(living()), u32::MAX, false));
    let until = berth_host::clock::now() + Duration::from_millis(50);
    let undone = Undo::new(found, Some(&journal), hands.clone(), Path::new(PROC), None).run(Some(until));
    assert_eq!(undone.left.into_iter().collect::<Vec<_>>(), [("a".to_owned(), Some("not now".to_owned()))]);
    assert!(!journal.is_empty(), "what is not undone stays on record");
    drop(journal);

    hands.failing.lock().unwrap()[0].1 = 2;
    let (journal, found) = place.open(Role::Guard);
    assert!(Undo::new(found, Some(&journal), hands, Path::new(PROC), None).run(None).left.is_empty());
}

#[test]
fn it_makes_room_for_a_daemon_that_waits_and_leaves_the_rest_on_record() {
    let place = Place::new();
    let (journal, found) = place.left_behind(&[entry("a", 1, locked())]);
    let hands = Arc::new(Fake::default());
    hands.failing.lock().unwrap().push((Step::Unlock(living()), u32::MAX, false));
    let guard = std::thread::spawn(move || {
        let undone = Undo::new(found, Some(&journal), hands, Path::new(PROC), None).run(None);
        (undone.end, undone.left.len())
    });
    let (_, found) = place.open(Role::Daemon);
    assert_eq!(guard.join().unwrap(), (End::MadeRoom, 1));
    assert_eq!(found.entries.len(), 1);
}

#[test]
fn of_processes_that_ended_only_the_record_is_removed() {
    let place = Place::new();
    let ended = ProcKey { start_ticks: living().start_ticks + 1, ..living() };
    let (journal, found) = place.left_behind(&[entry("a", 1, Grip { stopped: [ended].into(), ..Grip::default() })]);
    let hands = Arc::new(Fake::default());
    let undone = Undo::new(found, Some(&journal), hands.clone(), Path::new(PROC), None).run(None);
    assert!(hands.performed.lock().unwrap().is_empty() && undone.left.is_empty() && journal.is_empty());
}

#[test]
fn a_guard_that_could_not_be_started_is_tried_again_until_it_can() {
    let place = Place::new();
    let path = place.0.path().join("guard");
    let plan = || Plan::new(&Settings::default());
    let program = Program { path: path.clone(), args: Vec::new() };
    assert!(matches!(Guard::start(program.clone(), plan()), Err(GuardError::Start { .. })));
    let guard = Guard::keep_trying(program, plan()).unwrap();
    assert!(!guard.guarded().is_so() && guard.pid().is_none());
    // One that is in place as soon as it has been told, and waits.
    let script = "#!/bin/sh\nread plan\nprintf r >&0\nread rest\n";
    std::fs::write(place.0.path().join("new"), script).unwrap();
    std::fs::set_permissions(place.0.path().join("new"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(place.0.path().join("new"), &path).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !guard.guarded().is_so() {
        assert!(std::time::Instant::now() < deadline, "it is not started");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_plan_and_descriptors_arrive_whole_and_then_the_end() {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    let (ours, theirs) = UnixStream::pair().unwrap();
    let (mut one, other) = UnixStream::pair().unwrap();
    let mut settings = Settings::default();
    // Longer than one read.
    settings.probes.libraries = vec!["x".repeat(100_000).into()];
    let sent = Plan::new(&settings);
    let sender = std::thread::spawn(move || {
        supervise::send_plan(&ours, &sent).unwrap();
        supervise::send_descriptor(&ours, other.as_fd()).unwrap();
    });
    let mut inbox = link::Inbox::new(theirs);
    let plan = inbox.plan().unwrap();
    assert_eq!((plan.daemon, plan.settings), (living(), settings));
    inbox.wait_hang_up();
    sender.join().unwrap();
    let [other] = inbox.descriptors.try_into().unwrap();
    UnixStream::from(other).write_all(b"!").unwrap();
    let mut byte = [0];
    one.read_exact(&mut byte).unwrap();
    assert_eq!(&byte, b"!");
}
