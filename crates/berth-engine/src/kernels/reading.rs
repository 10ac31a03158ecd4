//! What one lane of a ledger says, taken for what it is: another process's word, which may be anything.
//!
//! Counters only grow: one that jumps back is ignored until it is past where it was. Instants lie in the past. Nothing here decides about
//! others: whoever lies in its ledger is shown wrong figures of itself.

use std::sync::atomic::Ordering;

use berth_host::shim::ClientClock;
use berth_model::Mono;
use berth_proto::shim::LaneLedger;

/// Totals of one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    pub launches: u64,
    pub stops: u64,
    pub stops_given_up: u64,
    pub preempted: u64,
    pub copied_bytes: u64,
    pub memory_refused: u64,
    pub requests: u64,
}

/// What it does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Doing {
    pub busy: bool,
    /// When that last changed; `None` if it says what cannot be.
    pub since: Option<Mono>,
    /// Device memory it has allocated.
    pub memory_bytes: u64,
    /// The link for which its streams stand although its word was set to 0.
    pub stuck_link: Option<u64>,
}

impl Totals {
    pub fn read(&mut self, lane: &LaneLedger) {
        let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        for (total, counter) in [
            (&mut self.launches, &lane.launches),
            (&mut self.stops, &lane.stops),
            (&mut self.stops_given_up, &lane.stops_given_up),
            (&mut self.preempted, &lane.preempted),
            (&mut self.copied_bytes, &lane.copied_bytes),
            (&mut self.memory_refused, &lane.memory_refused),
            (&mut self.requests, &lane.requests),
        ] {
            *total = (*total).max(load(counter));
        }
    }
}

impl Doing {
    pub fn read(lane: &LaneLedger, clock: ClientClock, now: Mono) -> Self {
        let busy = lane.busy.load(Ordering::Acquire) != 0;
        let since = Mono(clock.to_own(lane.busy_since_ns.load(Ordering::Acquire)));
        let is_stuck = lane.stuck_since_ns.load(Ordering::Acquire) != 0;
        Self {
            busy,
            since: (since <= now && since > Mono(0)).then_some(since),
            memory_bytes: lane.memory_bytes.load(Ordering::Relaxed),
            stuck_link: is_stuck.then(|| lane.stuck_link.load(Ordering::Acquire)),
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_proto::shim::Ledger;
    use berth_proto::shim::sys::{Page, Writers};

    use super::*;

    fn ledger() -> Page<Ledger> {
        Page::create(c"ledger", Writers::All).unwrap().0
    }

    #[test]
    fn counters_that_jump_back_are_ignored() {
        let (ledger, mut totals) = (ledger(), Totals::default());
        for (written, read) in [(5, 5), (9, 9), (0, 9), (7, 9), (u64::MAX, u64::MAX), (3, u64::MAX)] {
            ledger.lanes[0].launches.store(written, Ordering::Relaxed);
            totals.read(&ledger.lanes[0]);
            assert_eq!(totals.launches, read);
        }
    }

    #[test]
    fn an_instant_of_the_future_is_none_and_one_of_another_clock_is_ours() {
        let ledger = ledger();
        let lane = &ledger.lanes[0];
        lane.busy.store(7, Ordering::Relaxed);
        let clock = ClientClock { ahead_ns: 0 };
        for (written, since) in [(0, None), (10, Some(Mono(10))), (11, None), (u64::MAX, None)] {
            lane.busy_since_ns.store(written, Ordering::Relaxed);
            assert_eq!(Doing::read(lane, clock, Mono(10)), Doing { busy: true, since, ..Doing::default() });
        }
        lane.busy_since_ns.store(1_004, Ordering::Relaxed);
        assert_eq!(Doing::read(lane, ClientClock { ahead_ns: 1_000 }, Mono(10)).since, Some(Mono(4)));
    }
}
