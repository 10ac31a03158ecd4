//! Signals that wait for frozen processes: someone wants them to act, and they cannot hear it.
//!
//! Only those are looked at whose work the tenant is, and so many of them: this is done again and again for everybody who stands still,
//! and how many processes there are is the tenant's choice. A signal to another waits for the tenant's turn.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use berth_model::ProcKey;
use berth_model::hold::Signal;

/// What people and service managers send to end a process, and what they send to make it do something. Others come from its own
/// timers, children and terminal, or can wait. The first that is found counts.
const SENT: [Signal; 7] =
    [Signal::KILL, Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP, Signal::USR1, Signal::USR2];
/// Processes looked at, those they descend from included: more than a container that trains on eight GPUs has. A look at one takes
/// some 30 µs.
const MOST: usize = 32;

/// Such a signal for any of `processes`, or for one they descend from, if `is_inside` says so of its `/proc/PID/cgroup`. Others in
/// there are not the tenant's work: an engine that pauses a container kills the check of its health that is under way. What cannot be
/// read has ended already.
pub fn awaited_signal(
    proc_root: &Path,
    is_inside: impl Fn(&str) -> bool,
    processes: &BTreeSet<ProcKey>,
) -> Option<Signal> {
    let read = |pid: u32, file: &str| {
        let bytes = fs::read(proc_root.join(pid.to_string()).join(file)).ok()?;
        // A process may call itself anything.
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let awaited = awaited(read, is_inside, processes);
    SENT.into_iter().find(|signal| awaited & bit(*signal) != 0)
}

/// Of every process its line is followed up to where another has come: so the first of a container, from which all descend, is among
/// those that are looked at.
fn awaited(
    mut read: impl FnMut(u32, &str) -> Option<String>,
    is_inside: impl Fn(&str) -> bool,
    processes: &BTreeSet<ProcKey>,
) -> u64 {
    let sent = SENT.into_iter().fold(0, |mask, signal| mask | bit(signal));
    let (mut looked_at, mut awaited) = (BTreeSet::new(), 0);
    for process in processes {
        let mut next = Some(process.pid);
        while let Some(pid) = next.filter(|pid| looked_at.len() < MOST && looked_at.insert(*pid)) {
            let status = read(pid, "status").map(|text| Status::read(&text)).unwrap_or_default();
            if status.awaited & sent != 0 && read(pid, "cgroup").is_some_and(|cgroup| is_inside(&cgroup)) {
                awaited |= status.awaited;
            }
            next = status.parent;
        }
    }
    awaited
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.0 - 1)
}

/// What `/proc/PID/status` says that matters here.
#[derive(Debug, Clone, Copy, Default)]
struct Status {
    /// `None` for the first of all, too.
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
            parent: value("PPid:").and_then(|pid| pid.parse().ok()).filter(|pid| *pid != 0),
            awaited: (mask("ShdPnd:") | mask("SigPnd:")) & !mask("SigBlk:"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &str = "0000000000000000";
    const TERM: &str = "0000000000004000";

    fn keys(pids: impl IntoIterator<Item = u32>) -> BTreeSet<ProcKey> {
        pids.into_iter().map(|pid| ProcKey { pid, start_ticks: 1 }).collect()
    }

    fn status(parent: u32, shared: &str, own: &str) -> String {
        format!("Name:\tx\nPPid:\t{parent}\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0004\n")
    }

    /// These processes, each with its parent and the signals that wait for it and for its first thread; all but 3 are inside.
    fn awaited_by(processes: &[(u32, u32, &str, &str)], of: u32) -> Option<Signal> {
        let host = tempfile::tempdir().unwrap();
        for (pid, parent, shared, own) in processes {
            let dir = host.path().join(pid.to_string());
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("status"), status(*parent, shared, own)).unwrap();
            fs::write(dir.join("cgroup"), if *pid == 3 { "0::/\n" } else { "0::/tenant\n" }).unwrap();
        }
        awaited_signal(host.path(), |cgroup| cgroup == "0::/tenant\n", &keys([of]))
    }

    #[test]
    fn only_signals_that_somebody_sends_and_that_it_takes_count() {
        let of = |shared: &str, own: &str| awaited_by(&[(7, 1, shared, own)], 7);
        assert_eq!(of(NONE, NONE), None, "blocked is not pending");
        assert_eq!(of(TERM, NONE), Some(Signal::TERM), "to the process");
        assert_eq!(of(NONE, "0000000000000002"), Some(Signal::INT), "to its first thread");
        assert_eq!(of("0000000000000a00", NONE), Some(Signal::USR1), "and SIGUSR2");
        assert_eq!(of("0000000000000001", TERM), Some(Signal::TERM), "and SIGHUP");
        assert_eq!(of("0000000008022000", NONE), None, "SIGWINCH, SIGCONT and SIGALRM");
        assert_eq!(of("0000000000000004", NONE), None, "SIGQUIT, which it has blocked");
    }

    #[test]
    fn a_signal_to_one_it_descends_from_counts_and_one_to_a_stranger_does_not() {
        let family = |of_shim: &str, of_init: &str, of_check: &str| {
            awaited_by(&[(3, 1, of_shim, NONE), (5, 3, of_init, NONE), (7, 5, NONE, NONE), (8, 5, of_check, NONE)], 7)
        };
        assert_eq!(family(NONE, TERM, NONE), Some(Signal::TERM));
        assert_eq!(family(NONE, NONE, TERM), None, "beside it");
        assert_eq!(family(TERM, NONE, NONE), None, "outside");
        assert_eq!(awaited_by(&[(7, 7, NONE, NONE)], 7), None, "whatever is read comes to an end");
        assert_eq!(awaited_by(&[(7, 1, TERM, NONE)], 9), None, "nobody is there");
    }

    /// Files read of a tenant whose processes have these parents, with a signal for some, and whether one was found.
    fn look(
        parent_of: impl Fn(u32) -> u32,
        is_signalled: impl Fn(u32) -> bool,
        processes: impl IntoIterator<Item = u32>,
    ) -> (usize, bool) {
        let mut reads = 0;
        let read = |pid: u32, file: &str| {
            reads += 1;
            let shared = if is_signalled(pid) { TERM } else { NONE };
            Some(if file == "status" { status(parent_of(pid), shared, NONE) } else { String::new() })
        };
        let found = awaited(read, |_| true, &keys(processes)) != 0;
        (reads, found)
    }

    #[test]
    fn however_many_processes_a_tenant_has_a_look_at_it_reads_a_bounded_number_of_files() {
        let children = look(|pid| if pid == 2 { 0 } else { 2 }, |pid| pid == 2, 3..20_000);
        assert_eq!(children, (MOST + 1, true), "the first of a container is looked at");
        let line = look(|pid| pid - 1, |pid| pid == 2, [20_000]);
        assert_eq!(line, (MOST, false), "a signal to one so far above waits");
        assert_eq!(look(|_| 2, |_| true, 3..20_000), (2 * MOST, true), "where each is, too");
    }
}
