//! Signals that wait for frozen processes: someone wants them to end, and they cannot hear it.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

/// What people and service managers send to end a process.
const ENDING: [Signal; 5] = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::KILL];

/// Whether such a signal waits for any process in the cgroup at `dir`. What cannot be read has ended already.
pub fn is_asked_to_end(proc_root: &Path, dir: &Path) -> bool {
    let pids = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    pids.lines().any(|pid| {
        let status = fs::read_to_string(proc_root.join(pid).join("status")).unwrap_or_default();
        awaits_an_end(&status)
    })
}

/// By `/proc/PID/status`: signals sent to the process, and to its first thread, as a mask in hexadecimal. What the process has
/// blocked it would not take either way.
fn awaits_an_end(status: &str) -> bool {
    let mask = |name: &str| {
        let text = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(text.trim(), 16).ok()
    };
    let pending = mask("ShdPnd:").unwrap_or(0) | mask("SigPnd:").unwrap_or(0);
    let heard = pending & !mask("SigBlk:").unwrap_or(0);
    ENDING.iter().any(|signal| heard & (1 << (signal.as_raw() - 1)) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signals_that_end_a_process_and_that_it_takes_count() {
        let status = |shared: &str, own: &str| format!("Name:\tx\nSigPnd:\t{own}\nShdPnd:\t{shared}\nSigBlk:\t0004\n");
        let none = "0000000000000000";
        assert!(!awaits_an_end(&status(none, none)), "blocked is not pending");
        assert!(awaits_an_end(&status("0000000000004000", none)), "SIGTERM to the process");
        assert!(awaits_an_end(&status(none, "0000000000000002")), "SIGINT to its first thread");
        assert!(!awaits_an_end(&status("0000000008020000", none)), "SIGWINCH and SIGCONT");
        assert!(!awaits_an_end(&status("0000000000000004", none)), "SIGQUIT, which it has blocked");
        assert!(!awaits_an_end(""));
    }
}
