//! Keeps threads where they stand, at a driver call, while the rest of their process runs.
//!
//! A process that was stopped at a call and frozen there must run to be locked by the driver, but the thread at the call must
//! not: what it stood at would be launched, or fail for want of memory, before the lock is taken. So that thread alone is held
//! by ptrace while the others are thawed. Nothing is written to the process, no signal is seen. When the driver has locked the
//! process, the thread is let go, and its call waits in the driver like any other.
//!
//! The kernel lets everything go if the daemon dies, and a pin does so by itself after [`AT_MOST`].

use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{fs, io};

use berth_model::ProcKey;

use super::sys::Tracee;
use crate::procs::read;

/// Longer than any lock is waited for.
const AT_MOST: Duration = Duration::from_secs(60);
/// How soon a pinned process that is killed is seen to be dead by others.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[derive(Debug, thiserror::Error)]
#[error("cannot keep process {pid} at the call it stands at: {source}")]
pub struct PinError {
    pid: u32,
    source: io::Error,
}

/// A process some of whose threads are kept; dropped, they go on.
#[derive(Debug)]
pub struct Pin {
    /// The tracing thread, which alone can let go, ends when this is closed.
    _release: Sender<()>,
}

impl Pin {
    /// To be called while the process is frozen or stopped. None of its threads that are on their way back from a probe
    /// executes another instruction; which those are is read from where each thread is: not in a system call.
    pub fn put(proc_root: &Path, process: ProcKey) -> Result<Pin, PinError> {
        let failed = |source| PinError { pid: process.pid, source };
        let threads = threads_outside_calls(proc_root, process).map_err(failed)?;
        let (release_tx, release_rx) = mpsc::channel();
        let (ready_tx, ready_rx) = mpsc::channel();
        let thread = std::thread::Builder::new().name("berth-pin".into());
        thread.spawn(move || hold(&threads, &ready_tx, &release_rx)).map_err(failed)?;
        let gone = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready_rx.recv().map_err(gone).flatten().map_err(failed)?;
        Ok(Pin { _release: release_tx })
    }
}

/// Only the thread that attached may detach.
fn hold(threads: &[u32], ready: &Sender<io::Result<()>>, release: &Receiver<()>) {
    let seized: io::Result<Vec<Tracee>> = threads.iter().map(|thread| Tracee::seize(*thread)).collect();
    match seized {
        Err(error) => _ = ready.send(Err(error)),
        Ok(tracees) => {
            let _ = ready.send(Ok(()));
            let until = Instant::now() + AT_MOST;
            while Instant::now() < until && !tracees.iter().any(Tracee::has_ended) {
                if release.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
        }
    }
}

/// Threads that stand still elsewhere than in a system call: at a breakpoint of ours.
fn threads_outside_calls(proc_root: &Path, process: ProcKey) -> io::Result<Vec<u32>> {
    let tasks = proc_root.join(process.pid.to_string()).join("task");
    let mut threads = Vec::new();
    for entry in fs::read_dir(&tasks)? {
        let Some(thread) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // A thread that has ended meanwhile has no such file.
        let place = fs::read_to_string(tasks.join(format!("{thread}/syscall"))).unwrap_or_default();
        if place.starts_with("-1 ") {
            threads.push(thread);
        }
    }
    // Read afterwards: were the pid handed out again, its threads would be a stranger's.
    match read::key(proc_root, process.pid) {
        Ok(key) if key == process => Ok(threads),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Lines};
    use std::process::{Child, ChildStdout, Command, Stdio};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;
    use crate::testing::eventually;

    const CHILD: &str = "BERTH_TEST_PINNED";

    /// One thread never makes a system call, another tells that it lives.
    struct Busy {
        child: Child,
        words: Lines<BufReader<ChildStdout>>,
    }

    impl Busy {
        fn start() -> Self {
            let mut child = Command::new("/proc/self/exe")
                .args(["--exact", "hands::pin::tests::busy_process", "--nocapture", "--test-threads=1"])
                .env(CHILD, "1")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut words = BufReader::new(child.stdout.take().unwrap()).lines();
            let is_word = |line: &Result<String, _>| line.as_ref().is_ok_and(|line| line == "alive");
            words.by_ref().find(is_word).unwrap().unwrap();
            Busy { child, words }
        }

        fn key(&self) -> ProcKey {
            read::key("/proc".as_ref(), self.child.id()).unwrap()
        }

        fn signal(&self, signal: Signal) {
            kill_process(Pid::from_child(&self.child), signal).unwrap();
        }

        /// States of its threads as `/proc` shows them, without those that sleep.
        fn states(&self) -> Vec<char> {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
            let stats = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
            let states = stats.filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next());
            states.filter(|state| *state != 'S').collect()
        }

        fn says_something(&mut self) {
            // What it said before is in the pipe: more than that.
            for _ in 0..20 {
                assert_eq!(self.words.next().unwrap().unwrap(), "alive");
            }
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }

    /// No test: what the child runs.
    #[test]
    fn busy_process() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        std::thread::spawn(|| {
            loop {
                println!("alive");
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        loop {
            std::hint::black_box(());
        }
    }

    #[test]
    fn a_thread_outside_system_calls_stays_where_it_is_while_the_others_go_on() {
        let mut busy = Busy::start();
        busy.signal(Signal::STOP);
        eventually("all of it stands still", || busy.states().iter().all(|state| *state == 'T'));
        let pin = Pin::put("/proc".as_ref(), busy.key()).unwrap();
        busy.signal(Signal::CONT);
        eventually("the one is kept", || busy.states().contains(&'t'));
        busy.says_something();
        assert!(busy.states().contains(&'t'));
        drop(pin);
        eventually("it goes on", || busy.states() == ['R']);
    }

    #[test]
    fn a_pinned_process_that_is_killed_is_seen_to_be_dead_at_once() {
        let mut busy = Busy::start();
        busy.signal(Signal::STOP);
        eventually("all of it stands still", || busy.states().iter().all(|state| *state == 'T'));
        let _pin = Pin::put("/proc".as_ref(), busy.key()).unwrap();
        busy.signal(Signal::KILL);
        eventually("its parent can reap it", || busy.child.try_wait().unwrap().is_some());
    }

    #[test]
    fn of_a_process_that_has_ended_nothing_is_kept() {
        let busy = Busy::start();
        let later = ProcKey { start_ticks: busy.key().start_ticks + 1, ..busy.key() };
        assert!(Pin::put("/proc".as_ref(), later).is_err());
    }
}
