//! Signals that wait for frozen processes: someone wants them to act, and they cannot hear it.

use std::fs;
use std::path::Path;

use berth_model::hold::Signal;

/// What people and service managers send to end a process, and what they send to make it do something. Others come from its own
/// timers, children and terminal, or can wait. The first that is found counts.
const SENT: [Signal; 7] =
    [Signal::KILL, Signal::TERM, Signal::INT, Signal::QUIT, Signal::HUP, Signal::USR1, Signal::USR2];

/// Such a signal for any process in the cgroup at `dir`. What cannot be read has ended already.
pub fn awaited_signal(proc_root: &Path, dir: &Path) -> Option<Signal> {
    let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    let status = |pid: &str| fs::read_to_string(proc_root.join(pid).join("status")).unwrap_or_default();
    let awaited = pids.lines().fold(0, |awaited, pid| awaited | awaited_by(&status(pid)));
    SENT.into_iter().find(|signal| awaited & (1 << (signal.0 - 1)) != 0)
}

/// By `/proc/PID/status`: signals sent to the process, and to its first thread, as a mask. What the process has blocked it would not
/// take either way; what it ignores is never pending.
fn awaited_by(status: &str) -> u64 {
    let mask = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(text.trim(), 16).ok()
    };
    let pending = mask("ShdPnd:").unwrap_or(0) | mask("SigPnd:").unwrap_or(0);
    pending & !mask("SigBlk:").unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_that_somebody_sends_and_that_it_takes_count() {
        let host = tempfile::tempdir().unwrap();
        let (proc_root, dir) = (host.path().join("proc"), host.path().join("cgroup"));
        fs::create_dir_all(proc_root.join("7")).unwrap();
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("cgroup.procs"), "6\n7\n").unwrap();
        let awaited = |shared: &str, own: &str| {
            let status = format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0004\n");
            fs::write(proc_root.join("7/status"), status).unwrap();
            awaited_signal(&proc_root, &dir)
        };
        let none = "0000000000000000";
        assert_eq!(awaited(none, none), None, "blocked is not pending");
        assert_eq!(awaited("0000000000004000", none), Some(Signal::TERM), "to the process");
        assert_eq!(awaited(none, "0000000000000002"), Some(Signal::INT), "to its first thread");
        assert_eq!(awaited("0000000000000a00", none), Some(Signal::USR1), "and SIGUSR2");
        assert_eq!(awaited("0000000000000001", "0000000000004000"), Some(Signal::TERM), "and SIGHUP");
        assert_eq!(awaited("0000000008022000", none), None, "SIGWINCH, SIGCONT and SIGALRM");
        assert_eq!(awaited("0000000000000004", none), None, "SIGQUIT, which it has blocked");
        fs::write(dir.join("cgroup.procs"), "8\n").unwrap();
        assert_eq!(awaited_signal(&proc_root, &dir), None, "nobody is there");
    }
}
