//! Calls that may never return, made so that the caller always does.
//!
//! The driver offers a timeout for its lock alone, and any call on a process may hang with a thread of that process that
//! stands still, or with another process it shares memory with. So calls are made on threads kept for that. Whoever asked
//! waits until a deadline and then goes on; the call is finished behind its back, and what is to be done then (a lock
//! nobody waits for any more is undone) was given with it. A thread in a call that never ends is lost, and only that.
//!
//! At most one call is under way for a process; until it ends, others are turned away.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Threads that make calls, as many as were ever under way at once.
#[derive(Debug, Default)]
pub struct Callers {
    /// Those with nothing to do. They end when this is dropped.
    idle: Arc<Mutex<Vec<Sender<Work>>>>,
    /// Processes with a call under way.
    busy: Arc<Mutex<HashSet<u32>>>,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// An earlier call on the process is under way.
    Busy,
    /// Not by the deadline; the call goes on.
    Late,
    /// No thread could be started for it.
    NoThread(io::Error),
}

/// A call, and the way back to the idle ones for the thread that makes it.
struct Work {
    call: Box<dyn FnOnce() + Send>,
    caller: Sender<Work>,
}

/// One process's call under way; dropped when it has ended.
struct Turn {
    pid: u32,
    busy: Arc<Mutex<HashSet<u32>>>,
}

/// Where the answer is left.
struct Slot<T> {
    answer: Mutex<Answer<T>>,
    told: Condvar,
}

enum Answer<T> {
    Awaited,
    Given(T),
    /// Nobody waits any more.
    Abandoned,
}

impl Callers {
    /// Makes the call on another thread and waits for `limit` at most. If it ends later, `late` gets its answer, and the
    /// process is busy until that has returned.
    pub fn call<T: Send + 'static>(
        &self,
        pid: u32,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
        late: impl FnOnce(T) + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let turn = Turn::take(pid, &self.busy).ok_or(NoAnswer::Busy)?;
        let slot = Arc::new(Slot { answer: Mutex::new(Answer::Awaited), told: Condvar::new() });
        let given = slot.clone();
        let work = move || {
            let answer = call();
            if let Some((answer, _turn)) = given.give(answer, turn) {
                late(answer);
            }
        };
        self.give(Box::new(work)).map_err(NoAnswer::NoThread)?;
        slot.wait(limit).ok_or(NoAnswer::Late)
    }

    fn give(&self, call: Box<dyn FnOnce() + Send>) -> io::Result<()> {
        let idle = lock(&self.idle).pop();
        let caller = idle.map_or_else(|| self.hire(), Ok)?;
        // A caller's thread ends only with its last sender, and this is one.
        let _ = caller.clone().send(Work { call, caller });
        Ok(())
    }

    fn hire(&self) -> io::Result<Sender<Work>> {
        let (work_tx, work_rx) = mpsc::channel();
        let idle = Arc::downgrade(&self.idle);
        std::thread::Builder::new().name("berth-driver".into()).spawn(move || serve(&work_rx, &idle))?;
        Ok(work_tx)
    }
}

fn serve(work_rx: &Receiver<Work>, idle: &Weak<Mutex<Vec<Sender<Work>>>>) {
    while let Ok(Work { call, caller }) = work_rx.recv() {
        call();
        match idle.upgrade() {
            Some(idle) => lock(&idle).push(caller),
            None => return,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn {
    fn take(pid: u32, busy: &Arc<Mutex<HashSet<u32>>>) -> Option<Turn> {
        lock(busy).insert(pid).then(|| Turn { pid, busy: busy.clone() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        lock(&self.busy).remove(&self.pid);
    }
}

impl<T> Slot<T> {
    /// Leaves the answer, the turn over by then; gives both back if nobody waits any more.
    fn give(&self, answer: T, turn: Turn) -> Option<(T, Turn)> {
        let mut slot = lock(&self.answer);
        if matches!(*slot, Answer::Abandoned) {
            return Some((answer, turn));
        }
        drop(turn);
        *slot = Answer::Given(answer);
        self.told.notify_one();
        None
    }

    fn wait(&self, limit: Duration) -> Option<T> {
        let begin = Instant::now();
        let mut slot = lock(&self.answer);
        loop {
            if let Answer::Given(answer) = std::mem::replace(&mut *slot, Answer::Awaited) {
                return Some(answer);
            }
            let left = limit.saturating_sub(begin.elapsed());
            if left.is_zero() {
                *slot = Answer::Abandoned;
                return None;
            }
            slot = self.told.wait_timeout(slot, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Work")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::eventually;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn an_answer_in_time_is_given_and_the_thread_used_again() {
        let callers = Callers::default();
        let thread = || callers.call(1, LONG, || std::thread::current().id(), |_| ()).unwrap();
        let first = thread();
        eventually("the thread is idle again", || lock(&callers.idle).len() == 1);
        assert_eq!(thread(), first);
    }

    #[test]
    fn a_call_that_hangs_is_left_behind_and_finished_when_it_ends() {
        let callers = Callers::default();
        let (go_tx, go_rx) = mpsc::channel::<()>();
        let (late_tx, late_rx) = mpsc::channel();
        let hung = callers.call(
            7,
            Duration::from_millis(20),
            move || go_rx.recv().map(|()| 42).unwrap(),
            move |answer| late_tx.send(answer).unwrap(),
        );
        assert!(matches!(hung, Err(NoAnswer::Late)));
        assert!(matches!(callers.call(7, LONG, || 1, |_| ()), Err(NoAnswer::Busy)));
        assert!(callers.call(8, LONG, || 1, |_| ()).is_ok(), "others are not held up");
        go_tx.send(()).unwrap();
        assert_eq!(late_rx.recv_timeout(LONG), Ok(42));
        eventually("the process is free again", || callers.call(7, LONG, || 1, |_| ()).is_ok());
    }
}
