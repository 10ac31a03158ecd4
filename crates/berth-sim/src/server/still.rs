//! Which clients stand still: frozen by a cgroup of either version, or stopped.
//!
//! A real driver makes contexts and copies pageable memory on its caller's own threads, so a process that is frozen in the
//! middle gets no further. Here the server does that work, and has to ask the kernel whether the process could have. It asks
//! only about those whose threads are needed, and a few hundred times a second: a change is noticed by that much too late.
//!
//! What is asked about is the process's first thread. Freezing and stopping take all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

const ASK_EVERY_NS: u64 = 5_000_000;
/// Where a thread sleeps that the version 2 freezer holds; what it was doing is what it is shown as doing otherwise.
const FREEZER: [&str; 2] = ["get_signal", "do_freezer_trap"];

#[derive(Debug, Default)]
pub(super) struct Watch {
    asked: BTreeMap<u32, Asked>,
    asked_ns: u64,
}

/// Open files of one process: they keep meaning that process, and say so when it is gone.
#[derive(Debug)]
struct Asked {
    stat: File,
    wchan: File,
    is_still: bool,
}

impl Watch {
    /// When this wants to be called again, in `CLOCK_MONOTONIC`.
    pub(super) fn next_ns(&self, is_anyone_needed: bool) -> Option<u64> {
        (is_anyone_needed || !self.asked.is_empty()).then(|| self.asked_ns.saturating_add(ASK_EVERY_NS))
    }

    /// Who has come to stand still (true) or to move (false), of those whose threads are needed.
    pub(super) fn changes(&mut self, now_ns: u64, needed: &BTreeSet<u32>) -> Vec<(u32, bool)> {
        if self.next_ns(!needed.is_empty()).is_none_or(|at| at > now_ns) {
            return Vec::new();
        }
        self.asked_ns = now_ns;
        let dropped = self.asked.extract_if(.., |pid, _| !needed.contains(pid));
        let mut changes: Vec<_> = dropped.filter(|(_, asked)| asked.is_still).map(|(pid, _)| (pid, false)).collect();
        for pid in needed {
            if let Some(asked) = Asked::of(&mut self.asked, *pid) {
                let is_still = asked.stands_still();
                if std::mem::replace(&mut asked.is_still, is_still) != is_still {
                    changes.push((*pid, is_still));
                }
            }
        }
        changes
    }
}

impl Asked {
    /// `None` for a process that is gone or hidden; it counts as moving.
    fn of(all: &mut BTreeMap<u32, Asked>, pid: u32) -> Option<&mut Asked> {
        use std::collections::btree_map::Entry;
        match all.entry(pid) {
            Entry::Occupied(known) => Some(known.into_mut()),
            Entry::Vacant(new) => {
                let open = |file| File::open(format!("/proc/{pid}/{file}")).ok();
                Some(new.insert(Asked { stat: open("stat")?, wchan: open("wchan")?, is_still: false }))
            }
        }
    }

    fn stands_still(&self) -> bool {
        let state = read(&self.stat).and_then(|stat| state(&stat));
        match state {
            // Version 1 of the freezer shows as an uninterruptible sleep. Who waits for an answer of ours has no other.
            Some('D' | 'T' | 't') => true,
            Some('S') => read(&self.wchan).is_some_and(|place| FREEZER.contains(&place.trim())),
            _ => false,
        }
    }
}

/// The state in a line of `/proc/PID/stat`; the name before it may hold anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The first bytes, read anew.
fn read(file: &File) -> Option<String> {
    let mut bytes = [0; 256];
    let length = file.read_at(&mut bytes, 0).ok()?;
    Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    struct Sleeper(Child);

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_name_with_brackets_does_not_hide_the_state() {
        assert_eq!(state("12 (a) R (b)) S 1 12"), Some('S'));
        assert_eq!(state("12"), None);
    }

    #[test]
    fn who_is_stopped_stands_still_until_it_is_continued_or_not_needed() {
        let sleeper = Sleeper(Command::new("sleep").arg("60").spawn().unwrap());
        let pid = sleeper.0.id();
        let (mut watch, needed) = (Watch::default(), BTreeSet::from([pid]));
        let mut now_ns = 0;
        let mut next = |needed: &BTreeSet<u32>| {
            now_ns += ASK_EVERY_NS;
            watch.changes(now_ns, needed)
        };
        let until = |next: &mut dyn FnMut() -> Vec<(u32, bool)>| {
            let deadline = Instant::now() + Duration::from_secs(10);
            std::iter::repeat_with(next)
                .inspect(|_| assert!(Instant::now() < deadline, "no change seen"))
                .find(|changes| !changes.is_empty())
        };
        let signal = |signal| kill_process(Pid::from_child(&sleeper.0), signal).unwrap();
        signal(Signal::STOP);
        assert_eq!(until(&mut || next(&needed)), Some(vec![(pid, true)]));
        assert_eq!(next(&needed), vec![], "told once");
        signal(Signal::CONT);
        assert_eq!(until(&mut || next(&needed)), Some(vec![(pid, false)]));
        signal(Signal::STOP);
        assert_eq!(until(&mut || next(&needed)), Some(vec![(pid, true)]));
        assert_eq!(next(&BTreeSet::new()), vec![(pid, false)]);
    }

    #[test]
    fn nobody_is_asked_about_more_often_than_it_pays_or_when_nobody_is_needed() {
        let (mut watch, me) = (Watch::default(), BTreeSet::from([std::process::id()]));
        assert_eq!(watch.next_ns(false), None);
        watch.changes(ASK_EVERY_NS, &me);
        assert_eq!(watch.next_ns(true), Some(2 * ASK_EVERY_NS));
    }
}
