//! Signals that wait for frozen processes: someone wants them to act, and they cannot hear it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use berth_model::ProcKey;
use berth_model::hold::Signal;

use super::shelter;

/// What people and service managers send to end a process, and what they send to make it do something. Others come from its own
/// timers, children and terminal, or can wait. The first that is found counts.
const SENT: [Signal; 7] =
    [Signal::KILL, Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP, Signal::USR1, Signal::USR2];

/// Such a signal for any of `processes`, or for one they descend from, in the cgroup at `dir` or in its shelter. Others in there are
/// not the tenant's work: an engine that pauses a container kills the check of its health that is under way. What cannot be read has
/// ended already.
pub fn awaited_signal(proc_root: &Path, dir: &Path, processes: &BTreeSet<ProcKey>) -> Option<Signal> {
    let pids_in = |dir: &Path| fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let pids = pids_in(dir) + &pids_in(&shelter::below(dir));
    let statuses = pids.lines().filter_map(|pid| {
        let status = fs::read_to_string(proc_root.join(pid).join("status")).ok()?;
        Some((pid.parse().ok()?, Status::read(&status)))
    });
    let statuses: BTreeMap<u32, Status> = statuses.collect();
    let line_of = |process: &ProcKey| {
        let parent = |status: &&Status| statuses.get(&status.parent?);
        std::iter::successors(statuses.get(&process.pid), parent).take(statuses.len())
    };
    let awaited = processes.iter().flat_map(line_of).fold(0, |awaited, status| awaited | status.awaited);
    SENT.into_iter().find(|signal| awaited & (1 << (signal.0 - 1)) != 0)
}

/// What `/proc/PID/status` says that matters here.
#[derive(Debug, Clone, Copy)]
struct Status {
    parent: Option<u32>,
    /// Signals sent to the process, and to its first thread, as a mask. What the process has blocked it would not take either way; what
    /// it ignores is never pending.
    awaited: u64,
}

impl Status {
    fn read(text: &str) -> Status {
        let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let mask = |name: &str| value(name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        Status {
            parent: value("PPid:").and_then(|pid| pid.parse().ok()),
            awaited: (mask("ShdPnd:") | mask("SigPnd:")) & !mask("SigBlk:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &str = "0000000000000000";
    const TERM: &str = "0000000000004000";

    /// A cgroup of these processes, each with its parent and the signals that wait for it and for its first thread.
    fn awaited(processes: &[(u32, u32, &str, &str)], of: u32) -> Option<Signal> {
        let host = tempfile::tempdir().unwrap();
        let (proc_root, dir) = (host.path().join("proc"), host.path().join("cgroup"));
        fs::create_dir_all(shelter::below(&dir)).unwrap();
        let pids: String = processes.iter().map(|(pid, ..)| format!("{pid}\n")).collect();
        fs::write(shelter::below(&dir).join("cgroup.procs"), pids).unwrap();
        fs::write(dir.join("cgroup.procs"), "6\n").unwrap();
        for (pid, parent, shared, own) in processes {
            let masks = format!("SigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0004\n");
            fs::create_dir_all(proc_root.join(pid.to_string())).unwrap();
            let status = format!("Name:\tx\nPPid:\t{parent}\n{masks}");
            fs::write(proc_root.join(pid.to_string()).join("status"), status).unwrap();
        }
        awaited_signal(&proc_root, &dir, &[ProcKey { pid: of, start_ticks: 1 }].into())
    }

    #[test]
    fn only_signals_that_somebody_sends_and_that_it_takes_count() {
        let of = |shared: &str, own: &str| awaited(&[(7, 1, shared, own)], 7);
        assert_eq!(of(NONE, NONE), None, "blocked is not pending");
        assert_eq!(of(TERM, NONE), Some(Signal::TERM), "to the process");
        assert_eq!(of(NONE, "0000000000000002"), Some(Signal::INT), "to its first thread");
        assert_eq!(of("0000000000000a00", NONE), Some(Signal::USR1), "and SIGUSR2");
        assert_eq!(of("0000000000000001", TERM), Some(Signal::TERM), "and SIGHUP");
        assert_eq!(of("0000000008022000", NONE), None, "SIGWINCH, SIGCONT and SIGALRM");
        assert_eq!(of("0000000000000004", NONE), None, "SIGQUIT, which it has blocked");
    }

    #[test]
    fn a_signal_to_one_it_descends_from_counts_and_one_to_a_stranger_beside_it_does_not() {
        let family = |of_init: &str, of_check: &str| {
            awaited(&[(5, 1, of_init, NONE), (7, 5, NONE, NONE), (8, 1, of_check, NONE)], 7)
        };
        assert_eq!(family(TERM, NONE), Some(Signal::TERM));
        assert_eq!(family(NONE, TERM), None);
        assert_eq!(awaited(&[(7, 7, NONE, NONE)], 7), None, "whatever is read comes to an end");
        assert_eq!(awaited(&[(7, 1, TERM, NONE)], 9), None, "nobody is there");
    }
}
