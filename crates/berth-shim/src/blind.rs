//! Waits in streams that have no place in the table: an event behind each, until it is done. Beyond a bound such streams wait on their CPU.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sys::driver::{Driver, Progress};

/// Waits at the same time.
const MOST: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Blind(Mutex<Vec<Wait>>);

#[derive(Debug, Clone, Copy)]
struct Wait {
    lane: usize,
    context: u64,
    event: u64,
    /// The GPU's round when it was put.
    round: u64,
}

impl Blind {
    fn waits(&self) -> MutexGuard<'_, Vec<Wait>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waits().len() < MOST
    }

    /// After the work behind a wait. One without an event is never thought to have passed.
    pub(crate) fn mark(&self, driver: &Driver, lane: usize, context: u64, stream: u64, round: u64) {
        let event = driver.within(context, || driver.create_event(false)).flatten();
        let event = event.filter(|event| driver.record(*event, stream)).unwrap_or(0);
        self.waits().push(Wait { lane, context, event, round });
    }

    /// Takes away what is done. Not locked while the driver is asked.
    pub(crate) fn sweep(&self, driver: &Driver) {
        let waits = self.waits().clone();
        let is_done = |wait: &&Wait| wait.event != 0 && driver.progress(wait.event, wait.context) != Progress::UnderWay;
        let done: Vec<(u64, u64)> = waits.iter().filter(is_done).map(|wait| (wait.event, wait.context)).collect();
        if !done.is_empty() {
            self.waits().retain(|wait| !done.contains(&(wait.event, wait.context)));
            done.into_iter().for_each(|(event, context)| driver.destroy_event(event, context));
        }
    }

    /// Whether none is left on this GPU that was put before this round began.
    pub(crate) fn have_passed(&self, lane: usize, round: u64) -> bool {
        !self.waits().iter().any(|wait| wait.lane == lane && wait.round < round)
    }

    /// Its events are gone with it.
    pub(crate) fn forget(&self, context: u64) {
        self.waits().retain(|wait| wait.context != context);
    }
}
