use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::*;
use crate::testing::{eventually, skip};

fn registry() -> (Registry, Receiver<Event>) {
    let (event_tx, event_rx) = channel();
    (Registry::new(Path::new("/proc"), event_tx).unwrap(), event_rx)
}

fn sleeper() -> Child {
    Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap()
}

fn next(event_rx: &Receiver<Event>) -> Event {
    event_rx.recv_timeout(crate::testing::PATIENCE).expect("an event in time")
}

#[test]
fn a_process_is_announced_once_and_before_its_key_is_used() {
    let (registry, event_rx) = registry();
    let mut child = sleeper();
    let key = registry.resolve(child.id()).unwrap();
    assert_eq!(registry.clone().resolve(child.id()), Some(key));
    let Ok(Event::Process(facts)) = event_rx.try_recv() else { panic!("no facts sent before the key") };
    assert_eq!(facts.process, key);
    assert_eq!(facts.uid, Some(rustix::process::getuid().as_raw()));
    assert!(event_rx.try_recv().is_err(), "announced twice");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_exit_is_told_at_once_even_while_nobody_reaps_the_process() {
    let (registry, event_rx) = registry();
    let mut child = sleeper();
    let process = registry.resolve(child.id()).unwrap();
    assert!(matches!(next(&event_rx), Event::Process(_)));
    let before = crate::clock::now();
    child.kill().unwrap();
    let Event::ProcessExited { process: ended, at } = next(&event_rx) else { panic!("no exit told") };
    assert_eq!(ended, process);
    assert!(at >= before && crate::clock::now().since(before) < Duration::from_secs(4));
    assert_eq!(registry.resolve(child.id()), None, "a zombie is nobody");
    child.wait().unwrap();
    assert_eq!(registry.resolve(child.id()), None);
    assert!(event_rx.try_recv().is_err(), "told twice");
}

#[test]
fn the_holder_of_a_pid_is_told_without_being_announced_and_remembered_after_its_end() {
    let (registry, event_rx) = registry();
    let mut child = sleeper();
    let pid = child.id();
    let Holder { now: Now::Process(key), before: None } = registry.holder(pid) else {
        panic!("{:?}", registry.holder(pid))
    };
    assert!(event_rx.try_recv().is_err(), "it was announced");
    assert_eq!(registry.resolve(pid), Some(key));
    assert_eq!(registry.holder(pid), Holder { now: Now::Process(key), before: None });
    child.kill().unwrap();
    let held_before = || match registry.holder(pid) {
        Holder { now: Now::Nobody, before: Some((before, _)) } => before == key,
        _ => false,
    };
    eventually("a zombie holds nothing", held_before);
    child.wait().unwrap();
    assert_eq!(registry.resolve(pid), None);
    assert!(held_before(), "it is remembered");
}

/// Word of an exit takes a moment; whoever asks in it must not be told of the dead.
#[test]
fn a_process_whose_exit_was_not_yet_heard_of_is_nobody_and_its_end_is_told_then() {
    let (event_tx, event_rx) = channel();
    let shared = Arc::new(Shared::new(Path::new("/proc"), event_tx).unwrap());
    let registry = Registry { _watch: Arc::new(watch::Thread::withheld(shared.clone())), shared };
    let mut child = sleeper();
    let pid = child.id();
    let process = registry.resolve(pid).unwrap();
    assert!(matches!(event_rx.try_recv(), Ok(Event::Process(_))));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(event_rx.try_recv().is_err(), "the exit was heard of: this test shows nothing");
    let Holder { now: Now::Nobody, before: Some((before, _)) } = registry.holder(pid) else {
        panic!("{:?}", registry.holder(pid))
    };
    assert_eq!(before, process);
    assert_eq!(registry.facts(pid), None);
    assert!(matches!(event_rx.try_recv(), Ok(Event::ProcessExited { process: ended, .. }) if ended == process));
}

#[test]
fn no_pid_is_nobody() {
    let (registry, event_rx) = registry();
    for pid in [0, u32::MAX, i32::MAX as u32] {
        assert_eq!(registry.resolve(pid), None);
    }
    assert!(event_rx.try_recv().is_err());
}

#[test]
fn a_thread_is_no_process() {
    let (registry, _event_rx) = registry();
    let (tid_tx, tid_rx) = channel();
    let (stop_tx, stop_rx) = channel::<()>();
    let thread = std::thread::spawn(move || {
        tid_tx.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let _ = stop_rx.recv();
    });
    let tid = u32::try_from(tid_rx.recv().unwrap()).unwrap();
    assert_eq!(registry.resolve(tid), None);
    drop(stop_tx);
    thread.join().unwrap();
}

#[test]
fn the_watch_ends_with_the_last_clone() {
    let (registry, event_rx) = registry();
    let clone = registry.clone();
    drop(registry);
    assert!(matches!(event_rx.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)));
    drop(clone);
    assert!(matches!(event_rx.try_recv(), Err(std::sync::mpsc::TryRecvError::Disconnected)));
}

#[test]
fn a_directory_that_is_no_proc_is_refused_by_path() {
    let empty = tempfile::tempdir().unwrap();
    let error = Registry::new(empty.path(), channel().0).unwrap_err();
    assert!(matches!(&error, ProcsError::NotProc { path, .. } if path == empty.path()), "{error}");
    std::os::unix::fs::symlink("1", empty.path().join("self")).unwrap();
    let error = Registry::new(empty.path(), channel().0).unwrap_err();
    assert!(error.to_string().contains("host's pid namespace"), "{error}");
}

/// Forces the kernel to hand the pid out again.
#[test]
fn a_reused_pid_is_another_process() {
    let (registry, event_rx) = registry();
    let mut first = sleeper();
    let pid = first.id();
    let old = registry.resolve(pid).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    // Two processes with one pid differ by their start time, which the kernel counts in ticks of 10 ms.
    let born = crate::clock::now();
    eventually("the tick of the first one's start is over", || crate::clock::now().since(born).as_millis() > 20);
    let Some(mut second) = sleeper_with_pid(pid) else {
        skip("a_reused_pid_is_another_process", "choosing a pid needs root and /proc/sys/kernel/ns_last_pid");
        return;
    };
    let new = registry.resolve(pid).unwrap();
    assert_ne!(old, new);
    assert!(matches!(next(&event_rx), Event::Process(facts) if facts.process == old));
    assert!(matches!(next(&event_rx), Event::ProcessExited { process, .. } if process == old));
    assert!(matches!(next(&event_rx), Event::Process(facts) if facts.process == new));
    assert_eq!(registry.resolve(pid), Some(new), "the end of the first must not take the second away");
    second.kill().unwrap();
    second.wait().unwrap();
    assert!(matches!(next(&event_rx), Event::ProcessExited { process, .. } if process == new));
}

/// Other programs start processes too, so a few hundred attempts are made.
fn sleeper_with_pid(pid: u32) -> Option<Child> {
    for _ in 0..500 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut child = sleeper();
        if child.id() == pid {
            return Some(child);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    None
}
