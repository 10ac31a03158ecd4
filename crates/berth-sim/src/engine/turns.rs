//! Time slices: whose turn it is where processes do not share the SMs.
//!
//! Two models. If all kernels that are there are longer than a slice, turns are so many that only their mean counts: each of m processes has 1/m
//! of the time, less what switching takes, and nothing happens between the kernels' ends. If one is shorter, there are turns: one process
//! runs at a time, at full speed, until its slice is over or it has nothing to run; a change takes `switch` in which nobody
//! runs. So a short kernel beside a long one waits for the other's slice to end. A process that is alone has its slices one after
//! the other, so what is left of one for a newcomer to wait for depends on when it comes.

use std::collections::{BTreeMap, BTreeSet};

use super::fluid::Job;

/// A process without a kernel for this long has given up its turn: the next of a queue comes at once.
const IDLE_NS: u64 = 1;

#[derive(Debug)]
pub(super) struct Turns {
    slice_ns: u64,
    switch_ns: u64,
    turn: Option<Turn>,
}

#[derive(Debug, Clone, Copy)]
struct Turn {
    pid: u32,
    /// Its first slice begins then; before, it is being switched to.
    since: u64,
    /// While others wait: when its slice is over.
    until: Option<u64>,
    /// It has no kernel since then.
    idle_since: Option<u64>,
}

/// The part of the time each process runs, and when that changes by itself.
#[derive(Debug, PartialEq)]
pub(super) struct Parts {
    pub(super) of: BTreeMap<u32, f64>,
    pub(super) again_at: Option<u64>,
}

impl Turns {
    pub(super) fn new(slice_ns: u64, switch_ns: u64) -> Turns {
        Turns { slice_ns: slice_ns.max(1), switch_ns, turn: None }
    }

    pub(super) fn parts(&mut self, now: u64, jobs: &[Job]) -> Parts {
        let pids: BTreeSet<u32> = jobs.iter().map(|job| job.pid).collect();
        let slice_ns = self.slice_ns as f64;
        if pids.len() >= 2 && jobs.iter().all(|job| job.need.whole_ns >= slice_ns) {
            self.turn = None;
            let part = slice_ns / (slice_ns + self.switch_ns as f64) / pids.len() as f64;
            return Parts { of: pids.into_iter().map(|pid| (pid, part)).collect(), again_at: None };
        }
        let mut turn = self.turn.or(jobs.first().map(|job| Turn::new(job.pid, now)));
        if let Some(turn) = &mut turn {
            self.follow(now, turn, &pids);
        }
        self.turn = turn;
        let running = turn.filter(|turn| pids.contains(&turn.pid) && turn.since <= now).map(|turn| turn.pid);
        let of = pids.iter().map(|pid| (*pid, if running == Some(*pid) { 1.0 } else { 0.0 })).collect();
        Parts { of, again_at: turn.filter(|_| !pids.is_empty()).and_then(|turn| turn.next_change(now)) }
    }

    /// Ends the turn if it is over, and gives it to the next.
    fn follow(&self, now: u64, turn: &mut Turn, pids: &BTreeSet<u32>) {
        let is_there = pids.contains(&turn.pid);
        turn.idle_since = if is_there { None } else { Some(turn.idle_since.unwrap_or(now)) };
        let others = pids.len() > usize::from(is_there);
        if !others {
            turn.until = None;
            return;
        }
        let left_ns = self.slice_ns - now.saturating_sub(turn.since) % self.slice_ns;
        let until = *turn.until.get_or_insert(now.max(turn.since) + left_ns);
        let idle = turn.idle_since.is_some_and(|since| now >= since + IDLE_NS);
        if now < until && !idle {
            return;
        }
        let after = pids.range(turn.pid.saturating_add(1)..).next().or(pids.first());
        let Some(next) = after.copied() else { return };
        // Whoever comes to an idle GPU finds it switched already.
        let switch_ns = if idle && pids.len() == 1 && turn.was_long_idle(now) { 0 } else { self.switch_ns };
        *turn = Turn::new(next, now + switch_ns);
        turn.until = (pids.len() > 1).then_some(now + switch_ns + self.slice_ns);
    }
}

impl Turn {
    fn new(pid: u32, since: u64) -> Turn {
        Turn { pid, since, until: None, idle_since: None }
    }

    fn next_change(&self, now: u64) -> Option<u64> {
        let idle = self.idle_since.map(|since| (since + IDLE_NS).max(now + 1));
        let begins = Some(self.since).filter(|since| *since > now);
        idle.or(begins).or(self.until).map(|at| at.max(now + 1))
    }

    fn was_long_idle(&self, now: u64) -> bool {
        self.idle_since.is_some_and(|since| now > since + IDLE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fluid::Need;
    use super::*;

    const SLICE: u64 = 2_000_000;
    const SWITCH: u64 = 200_000;

    fn kernel(pid: u32, whole_ns: f64) -> Job {
        let need = Need { whole_ns, ..Need::default() };
        Job { pid, context: 1, stream: 0, demand: 1.0, memory_part: 0.0, remaining_ns: 1.0, rate: 0.0, need, held: 0.0 }
    }

    fn short(pid: u32) -> Job {
        kernel(pid, 1e4)
    }

    fn long(pid: u32) -> Job {
        kernel(pid, 1e8)
    }

    fn turns() -> Turns {
        Turns::new(SLICE, SWITCH)
    }

    fn of(parts: &Parts) -> Vec<f64> {
        parts.of.values().copied().collect()
    }

    #[test]
    fn one_alone_has_all_the_time() {
        for job in [short(1), long(1)] {
            let parts = turns().parts(5, &[job]);
            assert_eq!(parts, Parts { of: BTreeMap::from([(1, 1.0)]), again_at: None });
        }
    }

    #[test]
    fn long_kernels_share_the_time_less_what_switching_takes() {
        let parts = turns().parts(5, &[long(1), long(2)]);
        let part = 0.5 * 2.0 / 2.2;
        assert!(of(&parts).iter().all(|found| (found - part).abs() < 1e-12), "{parts:?}");
        assert_eq!(parts.again_at, None);
    }

    #[test]
    fn a_short_kernel_waits_for_what_is_left_of_the_others_slice_and_for_the_switch() {
        let mut turns = turns();
        turns.parts(0, &[long(1)]);
        let come = 3 * SLICE + 500_000;
        let parts = turns.parts(come, &[long(1), short(2)]);
        assert_eq!((of(&parts), parts.again_at), (vec![1.0, 0.0], Some(4 * SLICE)));
        let parts = turns.parts(4 * SLICE, &[long(1), short(2)]);
        assert_eq!((of(&parts), parts.again_at), (vec![0.0, 0.0], Some(4 * SLICE + SWITCH)), "it is switched to");
        let parts = turns.parts(4 * SLICE + SWITCH, &[long(1), short(2)]);
        assert_eq!((of(&parts), parts.again_at), (vec![0.0, 1.0], Some(5 * SLICE + SWITCH)));
    }

    #[test]
    fn whoever_has_nothing_to_run_gives_up_its_slice() {
        let mut turns = turns();
        turns.parts(0, &[short(1), short(2)]);
        let parts = turns.parts(50, &[short(2)]);
        assert_eq!((of(&parts), parts.again_at), (vec![0.0], Some(51)), "its next kernel may come at once");
        let parts = turns.parts(50, &[short(2), short(1)]);
        assert_eq!(of(&parts), [1.0, 0.0], "and keeps the turn");
        turns.parts(60, &[short(2)]);
        let parts = turns.parts(61, &[short(2)]);
        assert_eq!((of(&parts), parts.again_at), (vec![0.0], Some(61 + SWITCH)));
    }

    #[test]
    fn all_have_their_turns_one_after_the_other() {
        let (mut turns, jobs) = (turns(), [short(3), short(1), short(2)]);
        let (mut now, mut order) = (0, Vec::new());
        while order.len() < 6 {
            let parts = turns.parts(now, &jobs);
            order.extend(parts.of.iter().find(|(_, part)| **part > 0.0).map(|(pid, _)| *pid));
            now = parts.again_at.expect("a turn ends");
        }
        assert_eq!(order, [3, 1, 2, 3, 1, 2]);
        assert_eq!(now, 6 * SLICE + 5 * SWITCH);
    }
}
